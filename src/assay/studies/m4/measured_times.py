"""M4's claim about times, read from a table that `benchmarks/speed.py` has written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import PrerequisiteError
from assay.studies.claim import Claim, ClaimRow, Effect, make_row, open_row

if TYPE_CHECKING:
    from assay.studies.setting import Study

TABLES = "speed_*.md"
TIMED = 100  # images timed together
MINUTE = 60.0
REPEATS = 0.1  # by how much a time differs between runs, as a share of it
FAST = ("gradcam", "generic_attention")  # of convolutional networks, and of transformers
Times = dict[str, dict[str, float]]  # seconds for 100 images by network and method


def only_two_take_seconds(claim: Claim, study: Study) -> list[ClaimRow]:
    """12: one row for each table of times in the study's folder, named by its file.

    Without a table the row is open, so that a run of all claims goes on.
    """
    tables = sorted(study.out.glob(TABLES))
    if not tables:
        reason = (
            f"Expected a table of times `{TABLES}` in the folder given as `--out`, but there is "
            f"none. `python -m benchmarks.speed` makes one; `--out benchmarks` holds those of the "
            f"repository."
        )
        return [open_row(claim, reason=reason)]
    return [row_of_table(claim, path) for path in tables]


def row_of_table(claim: Claim, path: Path) -> ClaimRow:
    """The row of one run, which its file and its hardware name."""
    text = path.read_text(encoding="utf-8")
    effects: list[Effect] = []
    noted = []
    for network, seconds in published_methods(text).items():
        (fast,) = (seconds[name] for name in FAST if name in seconds)
        name, other = min(
            ((name, time) for name, time in seconds.items() if name not in FAST),
            key=lambda timed: timed[1],
        )
        under = _timed(f"{network}: seconds", fast)
        effects += [
            replace(under, direction="below", margin=MINUTE),
            replace(_timed(f"{network}: fastest other", other), margin=MINUTE),
            _timed(f"{network}: ratio", other / fast),
        ]
        noted.append(f"{network}: {name} is the fastest other")
    note = f"Timed in `{path.name}` on {_hardware(text)}. {'; '.join(noted)}"
    row = make_row(claim, effects, "stand-in", path.stem, note)
    return replace(row, source=path.as_posix())


def _timed(name: str, seconds: float) -> Effect:
    return Effect(name, seconds, REPEATS * seconds, TIMED)


def published_methods(text: str) -> Times:
    """The seconds of the methods for which the table gives M4's own times."""
    times: Times = {}
    for network, method, seconds in _rows(text):
        times.setdefault(network, {})[method] = seconds
    if len(times) != 2 or not all(set(FAST) & set(of) and len(of) > 1 for of in times.values()):
        raise PrerequisiteError(
            f"Expected the times of {' or '.join(FAST)} and of others on two networks, got "
            f"{ ({network: sorted(of) for network, of in times.items()}) }. Time all methods again."
        )
    return times


def _rows(text: str) -> Iterator[tuple[str, str, float]]:
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if len(cells) == 7 and re.fullmatch(r"[\d.]+", cells[4]) and cells[6]:
            yield cells[0], cells[1].partition("[")[0], float(cells[4])


def _hardware(text: str) -> str:
    """The machine, the first thing that the table's text says below its title."""
    return text.partition("\n\n")[2].partition(",")[0]
