"""Orders of methods with intervals and ties, from the tables of a run."""

from assay.ranking.against import against
from assay.ranking.intervals import Differences, Interval, mean_interval, paired_differences
from assay.ranking.leaderboard import Leaderboard, leaderboard
from assay.ranking.orders import (
    FEWEST_GROUPS,
    OverallOrder,
    ProtocolScores,
    Ranks,
    overall_order,
    positions,
    resolved,
    tied_ranks,
)

__all__ = [
    "FEWEST_GROUPS",
    "Differences",
    "Interval",
    "Leaderboard",
    "OverallOrder",
    "ProtocolScores",
    "Ranks",
    "against",
    "leaderboard",
    "mean_interval",
    "overall_order",
    "paired_differences",
    "positions",
    "resolved",
    "tied_ranks",
]
