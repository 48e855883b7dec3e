"""What a run says on the terminal: how it was read, what it costs, who comes first, what failed."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_start(console: Console, manifest: dict[str, Any]) -> None:
    """How data and weights were read, and the accuracy of each network."""
    print_notes(console, manifest)
    print_accuracy(console, manifest)


def print_notes(console: Console, manifest: dict[str, Any]) -> None:
    """How data and weights were read, where that was not said but found."""
    for name, about in manifest["datasets"].items():
        if about.get("note"):
            console.print(f"{name}: {about['note']}.", markup=False, soft_wrap=True)
    for name, about in manifest["models"].items():
        if about.get("card", {}).get("weights"):
            console.print(f"{name}: {about['card']['weights']}.", markup=False, soft_wrap=True)


def print_accuracy(console: Console, manifest: dict[str, Any]) -> None:
    """How often each network is right, and a warning where that is hardly above chance."""
    from assay.run.manifest import hardly_above_chance

    for row in manifest["clean"]:
        right = f"right on {row['accuracy']:.1%} of {row['n']} samples of {row['dataset']}."
        console.print(f"{row['model']} is {right}", markup=False)
        if hardly_above_chance(row):
            console.print(
                f"That is hardly above chance ({row['chance']:.1%}): labels or normalisation "
                f"probably do not fit the model.",
                style="yellow",
                highlight=False,
            )


def print_answer(console: Console, results: Any) -> None:
    """The order of the methods, per dataset and model."""
    board, manifest = results.leaderboard(), results.manifest
    pairs = dict.fromkeys((shard["dataset"], shard["model"]) for shard in manifest["shards"])
    for dataset, model in pairs:
        rows = [r for r in board.overall if (r["dataset"], r["model"]) == (dataset, model)]
        title = f"{_setting(dataset, model)}: provisional order by mean rank over the protocols"
        table = Table(title=escape(title))
        for column in ("", "method", "mean rank", "95 %", "first in resamples"):
            table.add_column(
                column, justify="left" if column == "method" else "right", overflow="fold"
            )
        tied = [row["position"] for row in rows]
        for row in rows:
            control = " (control)" if manifest["methods"][row["method"]]["control"] else ""
            table.add_row(
                f"{row['position']:g}{'=' if tied.count(row['position']) > 1 else ''}",
                escape(row["method"] + control),
                f"{row['mean_rank']:.2f}",
                "" if row["low"] is None else f"{row['low']:.1f} to {row['high']:.1f}",
                "" if row["first_share"] is None else f"{row['first_share']:.0%}",
            )
        if rows:
            console.print(table)
        _print_truth(console, results, board, (dataset, model))


def _setting(dataset: str, model: str) -> str:
    return dataset if dataset == model else f"{dataset}, {model}"  # an environment is both


def _print_truth(console: Console, results: Any, board: Any, where: tuple[str, str]) -> None:
    """The methods by the truth, where it is known: it is not in the order by mean rank."""
    for protocol in results.knowing:
        rows = [
            row
            for row in board.rows
            if (row["dataset"], row["model"], row["protocol"]) == (*where, protocol)
            and row["rank"] is not None
            and not results.manifest["methods"][row["method"]]["control"]
        ]
        if rows:
            said = ", ".join(f"{row['method']} {row['mean']:.3f}" for row in rows)
            line = f"By the truth, {protocol} on {where[0]}: {said}."
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_promises(console: Console, results: Any) -> None:
    """By how much maps miss what their methods promise, where that can be seen."""
    from assay.report.promise_table import lines

    for line in lines(results.checks):
        if line.large:
            text = f"{_setting(line.dataset, line.model)}: {line.sentence}"
            console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_not_applicable(console: Console, results: Any) -> None:
    """Which methods and protocols did not apply, each reason once."""
    cells = results.not_applicable
    for reason in dict.fromkeys(c["reason"] for c in cells):
        mine = {(c["method"], c["protocol"]) for c in cells if c["reason"] == reason}
        line = f"Not applicable: {', '.join(_who(mine, results.manifest))}. {reason}"
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)


def _who(cells: set[tuple[str, str]], manifest: dict[str, Any]) -> list[str]:
    """To whom it is due: methods under every protocol, protocols for every method; then the rest.

    Of the rest, the fewer names.
    """
    methods, protocols = list(manifest["methods"]), list(manifest["protocols"])
    whole = [m for m in methods if all((m, p) in cells for p in protocols)]
    whole += [p for p in protocols if all((m, p) in cells for m in methods)]
    rest = {(m, p) for m, p in cells if not {m, p} & set(whole)}
    left = [m for m in methods if m in {m for m, _ in rest}]
    asked = [p for p in protocols if p in {p for _, p in rest}]
    return [*whole, *min(left, asked, key=len)]


def print_failures(console: Console, failures: list[dict[str, Any]]) -> None:
    """What failed, each message once."""
    console.print(f"[red]{len(failures)} cells failed[/red]; the others are kept:")
    for message in dict.fromkeys(f["message"] for f in failures):
        cells = [f"{f['method']} x {f['protocol']}" for f in failures if f["message"] == message]
        more = f" and {len(cells) - 3} more" if len(cells) > 3 else ""
        console.print(f"  {', '.join(cells[:3])}{more}: {message}", markup=False)


def forecast_table(found: Any) -> Table:
    """The passes of a run through its networks, by protocol and method, and its time."""
    table = Table(title="What the run will cost, in passes through its networks")
    table.add_column("", overflow="fold")
    for column in ("forward", "of these shared", "backward"):
        table.add_column(column, justify="right")
    for name, rows in found.rows.items():
        table.add_row(escape(name), f"{rows:,}", f"{found.shared.get(name, 0):,}")
    table.add_section()
    for name, rows in found.method_rows.items():
        more = " and more" if name in found.unknown else ""
        back = f"{found.backward_rows.get(name, 0):,}"
        table.add_row(escape(f"explaining: {name}"), f"{rows:,}{more}", "", back)
    for name, rows in found.once_rows.items():
        table.add_row(escape(f"once for all samples: {name}"), f"{rows:,}")
    table.add_section()
    table.add_row("a look at each network", f"{found.looked:,}")
    shared, back = sum(found.shared.values()), found.backwards
    table.add_row("all passes", f"{found.forwards:,}", f"{shared:,}", f"{back:,}")
    table.add_row("calls of the network", f"{found.calls:,}")
    if found.seconds is not None:
        minutes, seconds = divmod(round(found.seconds), 60)
        table.add_row("estimated time", f"{minutes} min {seconds:02d} s")
    return table
