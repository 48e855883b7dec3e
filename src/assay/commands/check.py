"""`assay check`: is a method refuted by a network whose true attribution is known?"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.commands.arguments import WorkersOption
from assay.commands.terminal import FAILED, say
from assay.errors import InputError, PrerequisiteError
from assay.suite.defaults import CHECKED_METHODS, in_words

if TYPE_CHECKING:
    from PIL import Image

    from assay.answers.refutation import Evidence
    from assay.answers.truth_comparison import RefutationResult, TruthComparison

LAST = "refuted on a designed network; this does not measure faithfulness on yours."
HINTS = {
    "empty maps": "no value anywhere: for a path method, too few steps; these networks change only "
    "near whole colours",
    "wrong baseline": "with the environment's own, `given`, it is not refuted here",
    "signs flipped": "the negated map is not refuted",
    "too coarse": "its maps vary by cells, at which the truth does no better; a method that "
    "enlarges its maps declares `coarse=True`",
    "shifted": "moved by up to one of its cells, the map is not refuted",
}


def check(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names or ./file.py:function, separated by blanks or commas. By default "
            f"{in_words(CHECKED_METHODS)}."
        ),
    ] = None,
    gamma: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="A method is refuted if the F1 of its maps against the truth is below this and "
            "below the ceiling of their resolution.",
        ),
    ] = 0.5,
    margin: Annotated[
        float,
        typer.Option(min=0.0, max=0.99, help="How far below its ceiling the F1 may be."),
    ] = 0.05,
    samples: Annotated[int, typer.Option(min=2, help="Images per environment.")] = 10,
    sizes: Annotated[
        str, typer.Option(help="Side lengths of the images in pixels, separated by commas.")
    ] = "36,72",
    pictures: Annotated[
        Path, typer.Option(help="The folder for one image per refuted method, with truth and map.")
    ] = Path("assay-check"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for programs. Write no pictures.")
    ] = False,
    workers: WorkersOption = 1,
) -> None:
    """Test methods on networks whose true attribution is known. Wrong ones are refuted."""
    from assay.answers.refutation import refute

    sides = _sizes(sizes)
    named = [name.strip() for word in methods or () for name in word.split(",") if name.strip()]
    if not as_json and pictures.exists() and not pictures.is_dir():
        raise PrerequisiteError(f"Expected `--pictures` to be a folder, got the file `{pictures}`.")
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        verdicts, evidence = refute(
            named or CHECKED_METHODS, folder, gamma=gamma, margin=margin, samples=samples,
            sizes=sides, progress=not as_json, workers=workers,
        )  # fmt: skip
        drawn = {} if as_json else _pictures(verdicts, evidence)
    if as_json:
        rows = [json.dumps(row) for verdict in verdicts for row in _rows(verdict)]
        print("[" + ",\n ".join(rows) + "]")
    else:
        _print(verdicts, drawn, pictures)
    if any(verdict.failed for verdict in verdicts):  # a method that failed was not judged
        raise typer.Exit(FAILED)


def _print(
    verdicts: Sequence[RefutationResult], drawn: dict[str, Image.Image], folder: Path
) -> None:
    from assay.store import file_name

    for verdict in verdicts:
        for line in _sentences(verdict):
            say(line)
        if verdict.method in drawn:
            path = folder / f"{file_name(verdict.method)}.png"
            _write(drawn[verdict.method], path)
            say(f"  picture: {path} (image, truth, map)")
    if any(verdict.rows for verdict in verdicts):
        none = "" if any(verdict.refuted for verdict in verdicts) else "not "
        say(f"\n{none}{LAST}")


def _rows(verdict: RefutationResult) -> list[dict[str, object]]:
    """The rows for programs; for a method without a map, one row with the reason."""
    from assay.answers.truth_comparison import TruthComparison

    if verdict.rows:
        return [
            {**asdict(row), "verdict": row.verdict, "refuted": row.refuted} for row in verdict.rows
        ]
    empty = dict.fromkeys(field.name for field in fields(TruthComparison))
    none = {"verdict": "not decided", "refuted": False, "reason": verdict.missing}
    return [{**empty, "method": verdict.method, **none}]


def _sizes(text: str) -> tuple[int, ...]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise InputError(f"Expected `--sizes` to be pixels separated by commas, got `{text}`.")
    return tuple(int(part) for part in text.split(","))


def _sentences(verdict: RefutationResult) -> list[str]:
    """A verdict in words."""
    name, worst = verdict.method, verdict.worst if verdict.rows else None
    if worst is None:
        status = "FAILED" if verdict.failed else "not tested"
        return [f"{name}: {status}. {verdict.missing}"]
    if verdict.failed:
        return [f"{name}: FAILED on some samples. {verdict.failed}"]
    if not verdict.decided:
        if max(worst.f1_random, worst.f1_constant) < worst.gamma:
            return [
                f"{name}: not decided. At {worst.grid} cells the truth itself is hardly better "
                f"than noise; use larger `--sizes`."
            ]
        return [f"{name}: not decided. At this gamma noise is not refuted either; raise it."]
    if verdict.refuted:
        return _refuted(verdict)
    rest = f" Of {verdict.asked}; elsewhere: {verdict.missing}" if verdict.missing else ""
    status = f"not refuted on {verdict.decided} environments."
    if verdict.limited:
        status = (
            f"resolution-limited on {verdict.limited} of {verdict.decided} environments: as good "
            f"as the truth at its resolution."
        )
    return [f"{name}: {status}{rest}", f"  lowest: {_numbers(worst)}"]


def _refuted(verdict: RefutationResult) -> list[str]:
    """Where a method is refuted, and for which reasons."""
    by_reason: dict[str, list[TruthComparison]] = {}
    for row in verdict.rows:
        if row.refuted:
            by_reason.setdefault(row.reason, []).append(row)
    comparisons = sum(map(len, by_reason.values()))
    everywhere = {row.environment for row in verdict.rows}
    where = {row.environment for row in verdict.rows if row.refuted}
    sides = ", ".join(dict.fromkeys(row.truth.replace("_", " ") for row in verdict.rows))
    lines = [
        f"{verdict.method}: REFUTED on {len(where)} of {len(everywhere)} environments, in "
        f"{comparisons} of {len(verdict.rows)} comparisons with their truth ({sides})"
    ]
    for reason, rows in by_reason.items():
        lowest = min(rows, key=lambda row: row.f1)
        hint = f" ({HINTS[reason]})" if reason in HINTS else ""
        lines.append(f"  {reason}{hint}: in {len(rows)}; lowest: {_numbers(lowest)}")
    return lines


def _numbers(row: TruthComparison) -> str:
    cells = f" at {row.grid} cells" if row.grid else ""
    return (
        f"F1 {row.f1:.2f}, ceiling {row.ceiling:.2f}{cells} (precision {row.precision:.2f}, recall "
        f"{row.recall:.2f}) of the {row.truth.replace('_', ' ')} truth in {row.environment}; "
        f"random {row.f1_random:.2f}, constant {row.f1_constant:.2f}"
    )


def _pictures(verdicts: Sequence[RefutationResult], evidence: Evidence) -> dict[str, Image.Image]:
    """One picture of each refuted method, where it is worst."""
    return {v.method: evidence.picture(v.worst) for v in verdicts if v.refuted}


def _write(picture: Image.Image, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        picture.save(path)
    except OSError as error:
        raise PrerequisiteError(f"Cannot write `{path}`: {error.strerror or error}.") from None
