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
    OverallOrder,
    ProtocolScores,
    TiedRanks,
    overall_order,
    positions,
    resolved,
    tied_ranks,
)

__all__ = [
    "FEWEST_GROUPS",
    "Interval",
    "Leaderboard",
    "OverallOrder",
    "PairedDifferences",
    "ProtocolScores",
    "TiedRanks",
    "against",
    "leaderboard",
    "mean_interval",
    "overall_order",
    "paired_differences",
    "positions",
    "resolved",
    "tied_ranks",
]
