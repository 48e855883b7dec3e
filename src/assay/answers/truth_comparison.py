"""What comparisons with a known truth say of a method: refuted, resolution-limited or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.protocols.agreement import TruthSide

MARGIN = 0.05  # of F1: how far below its ceiling a method may stay
TruthVerdict = Literal["refuted", "resolution-limited", "not refuted", "not decided"]


@dataclass(frozen=True)
class TruthComparison:
    """One method compared with one side of the truth of one environment.

    Attributes:
        ceiling: The F1 of the truth, averaged to the grid of the maps and enlarged as they are.
        below: The lower end of the 95 % interval of the ceiling minus F1.
        grid: The resolution of the maps, rows by columns; empty where it is the image's.
    """

    method: str
    environment: str
    truth: TruthSide
    precision: float
    recall: float
    f1: float
    ceiling: float
    below: float
    grid: str
    f1_random: float
    f1_constant: float
    gamma: float
    margin: float = MARGIN
    reason: str = ""

    @property
    def counts(self) -> bool:
        """Whether this environment can refute the method.

        It must refute maps without information, and show at this resolution more than they do.
        """
        noise = max(self.f1_random, self.f1_constant)
        return noise < self.gamma and self.ceiling > noise + self.margin

    @property
    def refuted(self) -> bool:
        """Whether F1 is below gamma, and surely below the ceiling by more than the margin."""
        return self.counts and self.f1 < self.gamma and self.below > self.margin

    @property
    def passing(self) -> float:
        """The F1 from which on other maps would pass here."""
        return min(self.gamma, self.ceiling - self.margin)

    @property
    def verdict(self) -> TruthVerdict:
        """What this comparison says of the method."""
        if not self.counts:
            return "not decided"
        if self.refuted:
            return "refuted"
        limited = self.grid and self.f1 < self.gamma and self.f1 >= self.ceiling - self.margin
        return "resolution-limited" if limited and self.ceiling < self.gamma else "not refuted"


@dataclass(frozen=True)
class RefutationResult:
    """What the designed environments show of a method."""

    method: str
    rows: tuple[TruthComparison, ...]
    asked: int  # number of environments
    missing: str = ""  # why it was not tried on some of them
    failed: str = ""  # its first error, where it failed

    @property
    def refuted(self) -> bool:
        """Whether some environment refutes it."""
        return any(row.refuted for row in self.rows)

    @property
    def verdict(self) -> TruthVerdict:
        """The worst verdict of its comparisons."""
        verdicts = {row.verdict for row in self.rows}
        order: tuple[TruthVerdict, ...] = ("refuted", "resolution-limited", "not refuted")
        return next((verdict for verdict in order if verdict in verdicts), "not decided")

    @property
    def limited(self) -> int:
        """On how many environments its resolution keeps it below gamma."""
        rows = (row for row in self.rows if row.verdict == "resolution-limited")
        return len({row.environment for row in rows})

    @property
    def decided(self) -> int:
        """On how many environments it could have been refuted."""
        return len({row.environment for row in self.rows if row.counts})

    @property
    def worst(self) -> TruthComparison:
        """Where its F1 is lowest, of the comparisons that count; of those that refute it first."""
        return min(self.rows, key=lambda row: (not row.refuted, not row.counts, row.f1))
