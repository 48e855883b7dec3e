"""What a run prints: notes, accuracy, costs, the order of the methods, what failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from assay.plan.forecast import Forecast
    from assay.ranking.answer import Answer
    from assay.ranking.leaderboard import Leaderboard
    from assay.ranking.overall import OverallRow
    from assay.results import Results
    from assay.store import CleanAccuracy, Manifest, StoredObject


def print_notes(console: Console, manifest: Manifest) -> None:
    """Print how data and weights were read, where assay had to decide it."""
    notes = {name: dataset.note for name, dataset in manifest.datasets.items()}
    weights = {name: model.weights_file for name, model in manifest.models.items()}
    for name, note in (*notes.items(), *weights.items()):
        if note:
            console.print(f"{name}: {note}.", markup=False, soft_wrap=True)
    cards = {name: model.card.get("in_domain") for name, model in manifest.models.items()}
    names = [n for n, c in cards.items() if isinstance(c, dict) and not c.get("training_sha256")]
    if names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        line = f"Not known which samples fine-tuned {', '.join(names[:3])}{more}."
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def print_accuracy(console: Console, row: CleanAccuracy) -> None:
    """Print how often a network is right, and a warning where that is hardly above chance."""
    right = f"right on {row.accuracy:.1%} of {row.n} samples of {row.dataset}."
    console.print(f"{row.model} is {right}", markup=False)
    if row.hardly_above_chance:
        console.print(
            f"That is hardly above chance ({row.chance:.1%}): labels or normalisation "
            f"probably do not fit the model.",
            style="yellow",
            highlight=False,
        )


def print_answer(console: Console, results: Results) -> None:
    """Print the answer in words, then the list of the methods per dataset and model."""
    from assay.ranking.answer_words import floor, question_lines, sentences, setting_names

    board, manifest = results.leaderboard(), results.entries
    names = setting_names([answer.setting for answer in results.answers])
    console.print(results.answer, style="bold", markup=False, highlight=False, soft_wrap=True)
    for answer in results.answers:
        rows = [row for row in board.over_protocols if row.setting == answer.setting]
        if rows:
            console.print(_list_table(rows, answer, names[answer.setting]))
            details = [floor(answer)] if len(results.answers) == 1 else sentences(answer)[1:]
            if answer.enough and any(details):
                text = " ".join(details)
                console.print(text, markup=False, highlight=False, soft_wrap=True)
        for left_out in answer.protocols_left_out:
            line = f"{names[answer.setting]}: {left_out.protocol} has no part in the answer"
            text = f"{line}: {left_out.reason}."
            console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
        _print_truth(console, manifest, board, answer, names[answer.setting])
    for line in question_lines(results.answers):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _list_table(rows: list[OverallRow], answer: Answer, name: str) -> Table:
    from assay.ranking.listing_table import HEADER, list_cells, title_of

    table = Table(title=escape(title_of(answer, name)))
    for column in HEADER:
        left = column in ("method", "beaten by")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, list_cells(row, rows, answer)))
    return table


def _print_truth(
    console: Console, manifest: Manifest, board: Leaderboard, answer: Answer, where: str
) -> None:
    """Print the methods by the truth, where it is known: it has no part in the overall list."""
    for protocol in manifest.truth_protocols:
        scores = [
            f"{row.method} {row.mean:.3f}"
            for row in board.by_protocol
            if (row.setting, row.protocol) == (answer.setting, protocol)
            and row.rank is not None
            and not row.control
        ]
        if scores:
            line = f"By the truth, {protocol} on {where}: {', '.join(scores)}."
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_signals(console: Console, results: Results) -> None:
    """Print whether there is anything to rank, per dataset and model."""
    from assay.ranking.answer_words import setting_names
    from assay.ranking.signal import signal_lines

    names = setting_names(results.entries.settings)
    for setting, lines in signal_lines(results.signal_rows).items():
        for line in lines:
            text = f"{names[setting]}: {line}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_validation(console: Console, results: Results) -> None:
    """Print whether scores fall when maps are mixed with maps of other samples."""
    from assay.ranking.answer_words import setting_names

    names = setting_names(results.entries.settings)
    for row in results.validation_rows:
        text = f"{names[row.setting]}: {row.protocol}: {row.sentence}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_promises(console: Console, results: Results) -> None:
    """Print by how much maps miss what their methods promise, where that can be seen."""
    from assay.ranking.answer_words import setting_names
    from assay.report.promise_table import promise_lines

    names = setting_names(results.entries.settings)
    for line in promise_lines(results.checks):
        if line.large:
            text = f"{names[line.setting]}: {line.sentence}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_not_applicable(
    console: Console, cells: Sequence[Mapping[str, str]], manifest: Manifest
) -> None:
    """Print which methods and protocols did not apply, each reason once."""
    for reason in dict.fromkeys(cell["reason"] for cell in cells):
        pairs = {(c["method"], c["protocol"]) for c in cells if c["reason"] == reason}
        line = f"Not applicable: {', '.join(_affected(pairs, manifest))}. {reason}"
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _affected(pairs: set[tuple[str, str]], manifest: Manifest) -> list[str]:
    """Name these pairs of method and protocol in few words.

    Methods that do not apply under any protocol come first, then protocols that apply to no method.
    The other pairs are named by their methods or by their protocols, whichever are fewer.
    """
    methods, protocols = list(manifest.methods), list(manifest.protocols)
    whole = [m for m in methods if all((m, p) in pairs for p in protocols)]
    whole += [p for p in protocols if all((m, p) in pairs for m in methods)]
    rest = [(m, p) for m, p in pairs if not {m, p} & set(whole)]
    rest_methods = [m for m in methods if m in {m for m, _ in rest}]
    rest_protocols = [p for p in protocols if p in {p for _, p in rest}]
    return [*whole, *min(rest_methods, rest_protocols, key=len)]


def print_unranked(console: Console, results: Results) -> None:
    """Print which protocols give scores and no order, and why."""
    for label, protocol in results.entries.protocols.items():
        if protocol.unranked:
            line = f"{label}: scores are shown and not ranked, because {protocol.unranked}"
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def print_failures(console: Console, failures: list[StoredObject]) -> None:
    """Print what failed, each message once."""
    console.print(f"[red]{len(failures)} cells failed[/red]; the others are stored:")
    for message in dict.fromkeys(f["message"] for f in failures):
        cells = [f"{f['method']} x {f['protocol']}" for f in failures if f["message"] == message]
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        console.print(f"  {', '.join(cells[:3])}{more}: {message}", markup=False)


def forecast_table(expected: Forecast) -> Table:
    """The network passes of a run, by protocol and method, and its time."""
    table = Table(title="What the run will cost, in passes through its networks")
    table.add_column("", overflow="fold")
    for column in ("forward", "of these shared", "backward"):
        table.add_column(column, justify="right")
    for name, rows in expected.rows.items():
        table.add_row(escape(name), f"{rows:,}", f"{expected.shared.get(name, 0):,}")
    table.add_section()
    for name, rows in expected.method_rows.items():
        more = " and more" if name in expected.unknown else ""
        backward = f"{expected.backward_rows.get(name, 0):,}"
        table.add_row(escape(f"explaining: {name}"), f"{rows:,}{more}", "", backward)
    for name, rows in expected.once_rows.items():
        table.add_row(escape(f"once for all samples: {name}"), f"{rows:,}")
    table.add_section()
    table.add_row("warm-up passes", f"{expected.looked:,}")
    shared = sum(expected.shared.values())
    all_passes = (expected.forwards, shared, expected.backwards)
    table.add_row("all passes", *(f"{passes:,}" for passes in all_passes))
    table.add_row("calls of the network", f"{expected.calls:,}")
    if expected.seconds is not None:
        minutes, seconds = divmod(round(expected.seconds), 60)
        trained = ", without training" if expected.trainings else ""
        table.add_row(f"estimated time{trained}", f"{minutes} min {seconds:02d} s")
    if expected.training_seconds is not None:
        minutes, seconds = divmod(round(expected.training_seconds), 60)
        table.add_row("time of training, at most", f"{minutes} min {seconds:02d} s")
    if expected.trainings:
        table.caption = escape(" ".join(f"{line}." for line in expected.training_lines))
    return table
