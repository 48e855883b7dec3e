"""Orders of methods with intervals and ties, from the tables of a run."""

from assay.ranking.against import against
from assay.ranking.intervals import (
    Interval,
    PairedDifferences,
    mean_interval,
    paired_differences,
)
from assay.ranking.leaderboard import Leaderboard, leaderboard
from assay.ranking.orders import (
    FEWEST_GROUPS,
    TiedRanks,
    resolved,
    tied_ranks,
)

__all__ = [
    "FEWEST_GROUPS",
    "Interval",
    "Leaderboard",
    "PairedDifferences",
    "TiedRanks",
    "against",
    "leaderboard",
    "mean_interval",
    "paired_differences",
    "resolved",
    "tied_ranks",
]
