"""Do the settings of some runs order methods alike? All measures of agreement together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from assay.aggregation.consistency_sentences import sentences
from assay.aggregation.image_halves import SampledScores
from assay.aggregation.measured import Consistency
from assay.aggregation.noise_ceiling import NoiseCeiling, noise_ceiling
from assay.aggregation.prediction_skill import LeftOutPrediction, left_out_prediction
from assay.aggregation.rank_rules import RULES, merge
from assay.aggregation.rank_tests import FriedmanTest, friedman
from assay.aggregation.row_samples import row_samples
from assay.aggregation.run_settings import RunSettings, VoteRow, protocol_rows, read_settings
from assay.aggregation.run_trajectories import run_trajectories
from assay.aggregation.same_settings import RankableRun
from assay.aggregation.setting_agreement import (
    Concordance,
    cluster_settings,
    concordance,
    krippendorff_alpha,
    spearman_matrix,
    tau_matrix,
    winner_flips,
)
from assay.aggregation.setting_orders import ascending_ranks
from assay.aggregation.variance_parts import VarianceParts, balanced_core, variance_parts
from assay.errors import InputError
from assay.ranking.architectures import Grouping
from assay.ranking.resampling import Floats

FACETS = ("dataset", "model", "protocol")
MIN_LEVELS = 2


def consistency(
    runs: Sequence[RankableRun],
    *,
    families: Grouping | None = None,
    sources: Mapping[str, str] | None = None,
    splits: int = 200,
    seed: int = 0,
) -> Consistency:
    """Measure how far the settings of some runs agree about the order of methods.

    Args:
        runs: The runs.
        families: The architecture of each model, or a regular expression.
        sources: Where a dataset comes from, by its label.
        splits: Number of random halves of the images.
        seed: Their seed.

    Raises:
        InputError: There are fewer than two settings or methods.
    """
    read = read_settings(runs, families, sources)
    rows = protocol_rows(read)
    read.require(methods=2, rows=2, found_rows=len(rows))
    scores = np.array([[row.scores.get(m, np.nan) for m in read.methods] for row in rows])
    tau, rho = tau_matrix(scores), spearman_matrix(scores)
    ceiling, of = _ceiling(read, rows, splits, seed)
    found = Consistency(
        read.methods,
        tuple((*row.setting, row.protocols[0]) for row in rows),
        scores, tau, rho, cluster_settings(rho).order, *_complete(scores), winner_flips(scores),
        ceiling, of, _variance(read, rows, scores), _skills(rows, scores), (), read.notes,
        run_trajectories(read, rows, seed=seed),
    )  # fmt: skip
    along = [one.sentence for one in found.trajectories]
    return replace(found, sentences=(*sentences(found), *along))


def _complete(scores: Floats) -> tuple[Concordance, float, FriedmanTest | None]:
    """The measures over settings that score every method."""
    complete = ~np.isnan(scores).any(axis=1)
    alpha = krippendorff_alpha(ascending_ranks(scores))
    if complete.sum() < MIN_LEVELS:
        return Concordance(np.nan, np.nan, 0, len(scores)), alpha, None
    return concordance(scores), alpha, friedman(scores)


def _ceiling(
    read: RunSettings, rows: Sequence[VoteRow], splits: int, seed: int
) -> tuple[NoiseCeiling | None, tuple[int, ...]]:
    places, settings = [], []
    for place, row in enumerate(rows):
        samples = row_samples(read, row)
        if samples is not None:
            labels = np.array([f"{samples.task}\0{group}" for group in samples.groups])
            places.append(place)
            settings.append(SampledScores(samples.values.T, labels))
    if len(settings) < MIN_LEVELS:
        return None, ()
    return noise_ceiling(settings, splits=splits, seed=seed), tuple(places)


def _variance(read: RunSettings, rows: Sequence[VoteRow], scores: Floats) -> VarianceParts | None:
    """The variance components of ranks over the largest balanced part of the settings."""
    labels = [_facets(row) for row in rows]
    levels = [list(dict.fromkeys(one[i] for one in labels)) for i in range(len(FACETS))]
    total = np.zeros((len(read.methods), *map(len, levels)))
    count = np.zeros_like(total)
    for one, values in zip(labels, scores, strict=True):
        spread = np.nanstd(values)
        standard = (values - np.nanmean(values)) / spread if spread > 0 else values * 0.0
        dataset, model, protocol = (levels[i].index(one[i]) for i in range(len(FACETS)))
        known = ~np.isnan(standard)  # seeds of one architecture share a cell
        total[:, dataset, model, protocol] += np.where(known, standard, 0.0)
        count[:, dataset, model, protocol] += known
    table = total / np.maximum(count, 1)
    kept = balanced_core(count > 0)
    if min(map(len, kept)) < 1 or len(kept[0]) < MIN_LEVELS:
        return None
    core = table[np.ix_(*kept)]
    several = [i for i in range(len(FACETS)) if core.shape[i + 1] >= MIN_LEVELS]
    if not several:
        return None
    flat = tuple(i + 1 for i in range(len(FACETS)) if i not in several)
    return variance_parts(core.squeeze(axis=flat), [FACETS[i] for i in several])


def _facets(row: VoteRow) -> tuple[str, str, str]:
    """Dataset, architecture with its checkpoint, and protocol."""
    model = " ".join(part for part in (row.family, row.setting.checkpoint) if part)
    return row.setting.dataset, model, row.protocols[0]


def _skills(rows: Sequence[VoteRow], scores: Floats) -> dict[str, dict[str, LeftOutPrediction]]:
    """How well each rule predicts settings of a dataset, model or protocol from the others."""
    skills: dict[str, dict[str, LeftOutPrediction]] = {}
    for i, facet in enumerate(FACETS):
        labels = [_facets(row)[i] for row in rows]
        if len(set(labels)) < MIN_LEVELS:
            continue
        skills[facet] = {}
        for rule in RULES:
            try:
                skills[facet][rule] = left_out_prediction(scores, labels, _strength(rule))
            except InputError:  # no group shares two methods with the rest
                continue
    return {facet: of for facet, of in skills.items() if of}


def _strength(rule: str) -> Callable[[Floats, Floats], Floats]:
    return lambda scores, weights: merge(rule, scores, weights).strength
