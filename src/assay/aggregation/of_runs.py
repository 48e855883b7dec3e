"""`assay.rank` and `assay.consistency`: runs are given as folders or results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.aggregation.consistency import consistency as measure
from assay.aggregation.measured import Consistency
from assay.aggregation.merged_ranking import Ranking
from assay.aggregation.rank_runs import Weights, rank_runs
from assay.ranking.architectures import Grouping
from assay.results import Results

Runs = str | Path | Results | Sequence[str | Path | Results]


def rank(
    runs: Runs,
    rule: str = "mixed",
    *,
    weights: Weights | str = "equal",
    families: Grouping | None = None,
    sources: Mapping[str, str] | None = None,
    margin: float = 0.1,
    resamples: int = 2000,
    seed: int = 0,
) -> Ranking:
    """Rank methods over all settings of one or more runs, given as folders or results.

    Args:
        runs: A run, or several.
        rule: `mixed`, a model of standardised differences from `random` that says how far the
            answer carries to a new dataset; or a voting rule: `metarank`, `borda`, `copeland`,
            `kemeny`, `schulze`, `ranked_pairs`, `bradley_terry`, `plackett_luce`.
        weights: How much a row counts in a voting rule: `equal`, each `dataset` the same, or
            `two_stage`, within each dataset first.
        families: The architecture of each model by its label, or a regular expression for the part
            of a label that numbers replicates.
        sources: Where a dataset comes from, by its label; by default from itself.
        margin: Methods that surely differ by less are equivalent; the spread of `random` is 1.
        resamples: Number of bootstrap resamples.
        seed: Their seed.

    Returns:
        The ranking, with `order`, `ties`, `p_best` and `verdict`.

    Raises:
        InputError: The runs cannot be combined, or rank fewer than two methods.
    """
    return rank_runs(
        _opened(runs), rule, weights=weights, families=families, sources=sources, margin=margin,
        resamples=resamples, seed=seed,
    )  # fmt: skip


def consistency(
    runs: Runs,
    *,
    families: Grouping | None = None,
    sources: Mapping[str, str] | None = None,
    splits: int = 200,
    seed: int = 0,
) -> Consistency:
    """Measure how far datasets, models and protocols of one or more runs order methods alike.

    Args:
        runs: A run, or several, as folders or results.
        families: As in `rank`.
        sources: As in `rank`.
        splits: Number of random halves of the images, for the noise ceiling.
        seed: Their seed.

    Raises:
        InputError: The runs cannot be combined, or have fewer than two settings or methods.
    """
    return measure(_opened(runs), families=families, sources=sources, splits=splits, seed=seed)


def _opened(
    runs: Runs,
) -> list[Results]:
    several = [runs] if isinstance(runs, (str, Path, Results)) else list(runs)
    return [run if isinstance(run, Results) else Results(run) for run in several]
