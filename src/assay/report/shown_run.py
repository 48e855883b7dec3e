"""A run as the page reads it: what `assay.Results` offers, without importing it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from assay.ranking.dose_response import DoseResponse
from assay.ranking.leaderboard import Leaderboard
from assay.ranking.sets import Key, Outcome
from assay.ranking.signal import Signal, SignalKey
from assay.ranking.trust import TrustRow
from assay.store import CellRecord, Manifest, RunFiles
from assay.store.run_arrays import RunArrays


class ShownRun(Protocol):
    """The tables, entries and orders of one run."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        ...

    @property
    def files(self) -> RunFiles:
        """The stored files of the run."""
        ...

    @property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        ...

    @property
    def records(self) -> Sequence[CellRecord]:
        """How each cell came about."""
        ...

    @property
    def progress(self) -> tuple[int, int]:
        """Cells that are done, and cells that are planned."""
        ...

    @property
    def arrays(self) -> RunArrays:
        """The scores and curves as arrays."""
        ...

    @property
    def checks(self) -> pa.Table:
        """By how much each map misses what its method promises."""
        ...

    @property
    def outcomes(self) -> Mapping[Key, Outcome]:
        """The numbers of the protocols that score whole sets."""
        ...

    @property
    def answer(self) -> str:
        """The answer over all settings in words."""
        ...

    @property
    def signal_rows(self) -> dict[SignalKey, Signal]:
        """Whether there is anything to rank, by setting and protocol."""
        ...

    @property
    def validation_rows(self) -> Sequence[DoseResponse]:
        """Whether scores fall when maps are mixed with maps of other samples."""
        ...

    def leaderboard(self) -> Leaderboard:
        """The order of the methods."""
        ...

    def trust_rows(self) -> Sequence[TrustRow]:
        """How far each protocol orders the methods as the truth does."""
        ...
