"""The faithfulness test on the command line: verdicts, reasons, pictures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import typer
from PIL import Image
from rich.console import Console

from assay.answers.refutation import Evidence, RefutationResult, TruthComparison, refute
from assay.errors import InputError, PrerequisiteError
from assay.store import file_name

LAST = "refuted on a designed network; this does not measure faithfulness on yours."
FAILED = 3  # the exit code where a method failed
HINTS = {
    "empty maps": "no value anywhere: of a path method, too few steps; these networks change only "
    "near whole colours",
    "wrong baseline": "with the environment's own, `given`, it is not refuted here",
    "signs flipped": "the negated map is not refuted",
}
# What is tried where nobody names a method: cheap, one of each family.
USUAL = ("saliency", "input_x_gradient", "integrated_gradients", "deepshap", "lrp", "gradcam")


def check_methods(
    console: Console,
    methods: Sequence[str],
    *,
    gamma: float,
    samples: int,
    sizes: str,
    pictures: Path | None,
    as_json: bool,
    workers: int,
) -> None:
    """Try methods and say what came out."""
    sides = _sizes(sizes)
    named = [name.strip() for word in methods for name in word.split(",") if name.strip()]
    if pictures is not None and pictures.exists() and not pictures.is_dir():
        raise PrerequisiteError(f"Expected `--pictures` to be a folder, got the file `{pictures}`.")
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        verdicts, evidence = refute(
            named or USUAL, folder, gamma=gamma, samples=samples, sizes=sides,
            progress=not as_json, workers=workers,
        )  # fmt: skip
        pages = {} if pictures is None else _pictures(verdicts, evidence)
    if as_json:
        print("[" + ",\n ".join(json.dumps(one) for v in verdicts for one in _objects(v)) + "]")
        return _end(verdicts)
    for verdict in verdicts:
        lines = _said(verdict)
        if pictures is not None and verdict.method in pages:
            path = pictures / f"{file_name(verdict.method)}.png"
            _write(pages[verdict.method], path)
            lines.append(f"  picture: {path} (image, truth, map)")
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if any(v.rows for v in verdicts):
        none = "" if any(v.refuted for v in verdicts) else "not "
        console.print(f"\n{none}{LAST}", markup=False, highlight=False, soft_wrap=True)
    _end(verdicts)


def _end(verdicts: Sequence[RefutationResult]) -> None:
    """A method that failed was not judged: the exit code says so."""
    if any(verdict.failed for verdict in verdicts):
        raise typer.Exit(FAILED)


def _objects(verdict: RefutationResult) -> list[dict[str, Any]]:
    """What programs read; of a method that gave no map, why."""
    if verdict.rows:
        return [asdict(row) for row in verdict.rows]
    empty = dict.fromkeys(field.name for field in fields(TruthComparison))
    return [{**empty, "method": verdict.method, "refuted": False, "reason": verdict.missing}]


def _sizes(text: str) -> tuple[int, ...]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise InputError(f"Expected `--sizes` to be sides in pixels by commas, got `{text}`.")
    return tuple(int(part) for part in text.split(","))


def _said(verdict: RefutationResult) -> list[str]:
    if not verdict.rows:
        how = "FAILED" if verdict.failed else "not tried"
        return [f"{verdict.method}: {how}. {verdict.missing}"]
    worst = verdict.worst
    if verdict.failed:
        return [f"{verdict.method}: FAILED on some samples. {verdict.failed}"]
    rest = f" Of {verdict.asked}; elsewhere: {verdict.missing}" if verdict.missing else ""
    if not verdict.decided:
        return [
            f"{verdict.method}: not decided. At this gamma noise is not refuted either; raise it."
        ]
    if not verdict.refuted:
        said = f"{verdict.method}: not refuted on {verdict.decided} environments.{rest}"
        return [said, f"  lowest: {_numbers(worst)}"]
    everywhere = {row.environment for row in verdict.rows}
    where = {row.environment for row in verdict.rows if row.refuted}
    by_reason: dict[str, list[TruthComparison]] = {}
    for row in verdict.rows:
        if row.refuted:
            by_reason.setdefault(row.reason, []).append(row)
    refuted = sum(map(len, by_reason.values()))
    sides = ", ".join(dict.fromkeys(row.truth.replace("_", " ") for row in verdict.rows))
    lines = [
        f"{verdict.method}: REFUTED on {len(where)} of {len(everywhere)} environments, in "
        f"{refuted} of {len(verdict.rows)} comparisons with their truth ({sides})"
    ]
    for reason, rows in by_reason.items():
        lowest = min(rows, key=lambda row: row.f1)
        hint = f" ({HINTS[reason]})" if reason in HINTS else ""
        lines.append(f"  {reason}{hint}: in {len(rows)}; lowest: {_numbers(lowest)}")
    return lines


def _numbers(row: TruthComparison) -> str:
    return (
        f"F1 {row.f1:.2f} (precision {row.precision:.2f}, recall {row.recall:.2f}) of the "
        f"{row.truth.replace('_', ' ')} truth in {row.environment}; random {row.f1_random:.2f}, "
        f"constant {row.f1_constant:.2f}"
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
