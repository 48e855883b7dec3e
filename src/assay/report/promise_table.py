"""The methods' own checks in few numbers: by how much their maps miss what they promise."""

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

import pyarrow as pa

LARGE = 0.01  # a gap of one per cent can be seen in a map
EXPECTED = {  # where a gap is no fault
    "conservation gap": " Biases keep their part of what is handed back, so a network with biases "
    "is expected to show a gap.",
}


@dataclass(frozen=True)
class CheckLine:
    """One check of one method, over all samples and seeds."""

    dataset: str
    model: str
    checkpoint: str
    method: str
    check: str
    values: tuple[float, ...]  # those that are numbers, or infinite
    broken: int  # maps that hold NaN or inf

    @property
    def n(self) -> int:
        """How many maps were checked."""
        return len(self.values) + self.broken

    @property
    def median(self) -> str:
        """The gap of the middle map."""
        return shown(median(self.values)) if self.values else "–"

    @property
    def largest(self) -> str:
        """The gap of the worst map."""
        return shown(max(self.values)) if self.values else "–"

    @property
    def large(self) -> int:
        """How many maps miss by more than one per cent, or cannot be told."""
        return sum(value > LARGE for value in self.values) + self.broken

    @property
    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"{self.method}: {self.check} median {self.median}, largest {self.largest}; "
            f"{self.large} of {self.n} maps above {shown(LARGE)}.{EXPECTED.get(self.check, '')}"
        )


def lines(checks: pa.Table) -> list[CheckLine]:
    """What was checked, in the order of the table."""
    found: dict[tuple[str, ...], list[float]] = {}
    for row in checks.to_pylist():
        place = tuple(row[n] for n in ("dataset", "model", "checkpoint", "method", "check"))
        found.setdefault(place, []).append(math.nan if row["value"] is None else row["value"])
    made: list[CheckLine] = []
    for (dataset, model, checkpoint, method, check), values in found.items():
        whole = tuple(v for v in values if not math.isnan(v))
        broken = len(values) - len(whole)
        made.append(CheckLine(dataset, model, checkpoint, method, check, whole, broken))
    return made


def shown(value: float) -> str:
    """A share as people read it."""
    if not math.isfinite(value):
        return "∞"
    if value < 1e-4:
        return "below 0.01 %"
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:,.0f} %"


def of(all_lines: list[CheckLine], key: Any) -> tuple[CheckLine, ...]:
    """The lines of one dataset, model and checkpoint."""
    return tuple(x for x in all_lines if (x.dataset, x.model, x.checkpoint) == tuple(key))
