"""What methods promise about their own maps, in few numbers: by how much the maps miss it."""

import math
from dataclasses import dataclass
from statistics import median

import pyarrow as pa

from assay.report.charts import NOTHING
from assay.store import SettingKey

LARGE = 0.01  # a gap of one per cent can be seen in a map
EXPECTED = {  # where a gap is no fault
    "conservation gap": " A network with biases is expected to show a gap: its biases keep a part "
    "of the relevance.",
}


@dataclass(frozen=True)
class PromiseLine:
    """One promise of one method, over all samples and seeds."""

    setting: SettingKey
    method: str
    promise: str
    gaps: tuple[float, ...]  # those that are numbers, or infinite
    broken: int  # maps that hold NaN or inf

    @property
    def n(self) -> int:
        """How many maps were compared with the promise."""
        return len(self.gaps) + self.broken

    @property
    def median(self) -> str:
        """The gap of the middle map."""
        return shown_gap(median(self.gaps)) if self.gaps else NOTHING

    @property
    def largest(self) -> str:
        """The gap of the worst map."""
        return shown_gap(max(self.gaps)) if self.gaps else NOTHING

    @property
    def large(self) -> int:
        """How many maps miss by more than one per cent, or hold NaN or inf."""
        return sum(gap > LARGE for gap in self.gaps) + self.broken

    @property
    def sentence(self) -> str:
        """All of it in words."""
        return (
            f"{self.method}: {self.promise} median {self.median}, largest {self.largest}; "
            f"{self.large} of {self.n} maps above {shown_gap(LARGE)}."
            f"{EXPECTED.get(self.promise, '')}"
        )


def promise_lines(checks: pa.Table) -> list[PromiseLine]:
    """One line per setting, method and promise, in the order of the table."""
    gaps: dict[tuple[SettingKey, str, str], list[float]] = {}
    for row in checks.to_pylist():
        setting = SettingKey(row["dataset"], row["model"], row["checkpoint"])
        value = math.nan if row["value"] is None else row["value"]
        gaps.setdefault((setting, row["method"], row["check"]), []).append(value)
    lines = []
    for (setting, method, promise), values in gaps.items():
        known = tuple(value for value in values if not math.isnan(value))
        lines.append(PromiseLine(setting, method, promise, known, len(values) - len(known)))
    return lines


def shown_gap(value: float) -> str:
    """A share as people read it."""
    if not math.isfinite(value):
        return "∞"
    if value < 1e-4:
        return "below 0.01 %"
    return f"{100 * value:.2g} %" if value < 1 else f"{100 * value:,.0f} %"
