"""The faithfulness test on the command line: verdicts, reasons, pictures."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from assay.errors import InputError
from assay.refutation import Evidence, Judged, Verdict, refute
from assay.store import file_name

LAST = "refuted on a designed network; this does not measure faithfulness on yours."
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
    with tempfile.TemporaryDirectory(prefix="assay-check-") as folder:
        verdicts, evidence = refute(
            methods or USUAL, folder, gamma=gamma, samples=samples, sizes=sides,
            progress=not as_json, workers=workers,
        )  # fmt: skip
        saved = {} if pictures is None else _save(verdicts, evidence, pictures)
    if as_json:
        rows = [json.dumps(asdict(row)) for verdict in verdicts for row in verdict.rows]
        print("[" + ",\n ".join(rows) + "]")
        return
    for verdict in verdicts:
        for line in (*_said(verdict), *(f"  picture: {p}" for p in saved.get(verdict.method, ()))):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    none = "" if any(v.refuted for v in verdicts) else "not "
    console.print(f"\n{none}{LAST}", markup=False, highlight=False, soft_wrap=True)


def _sizes(text: str) -> tuple[int, ...]:
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise InputError(f"Expected `--sizes` to be sides in pixels by commas, got `{text}`.")
    return tuple(int(part) for part in text.split(","))


def _said(verdict: Verdict) -> list[str]:
    if not verdict.rows:
        return [f"{verdict.method}: not tried. {verdict.missing}"]
    worst = verdict.worst
    if not verdict.refuted:
        return [f"{verdict.method}: not refuted", f"  lowest: {_numbers(worst)}"]
    everywhere = {row.environment for row in verdict.rows}
    where = {row.environment for row in verdict.rows if row.refuted}
    lines = [f"{verdict.method}: REFUTED on {len(where)} of {len(everywhere)} environments"]
    by_reason: dict[str, list[Judged]] = {}
    for row in verdict.rows:
        if row.refuted:
            by_reason.setdefault(row.reason, []).append(row)
    for reason, rows in by_reason.items():
        lowest = min(rows, key=lambda row: row.f1)
        lines.append(f"  {reason}, {len(rows)} x; lowest: {_numbers(lowest)}")
    return lines


def _numbers(row: Judged) -> str:
    return (
        f"F1 {row.f1:.2f} (precision {row.precision:.2f}, recall {row.recall:.2f}) of the "
        f"{row.truth.replace('_', ' ')} truth in {row.environment}; random {row.f1_random:.2f}, "
        f"constant {row.f1_constant:.2f}"
    )


def _save(verdicts: Sequence[Verdict], evidence: Evidence, folder: Path) -> dict[str, list[Any]]:
    """One picture of each refuted method, where it is worst: image, truth, map."""
    saved: dict[str, list[Any]] = {}
    for verdict in verdicts:
        if verdict.refuted:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{file_name(verdict.method)}.png"
            evidence.picture(verdict.worst).save(path)
            saved[verdict.method] = [f"{path} (image, truth, map)"]
    return saved
