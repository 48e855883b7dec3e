"""Compare models under one protocol: score of the best common method, accuracy, and ceiling."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from assay.ranking.architectures import (
    ReplicateSpread,
    differences_of_architectures,
    over_samples_and_replicates,
    spread_over_replicates,
)
from assay.ranking.blocks import Block, MethodScores
from assay.ranking.choosing import ChosenScores, choose_on_other_half, width_of_choice
from assay.ranking.intervals import Interval, PairedDifferences, mean_interval, paired_differences
from assay.ranking.model_rows import (
    ArchitectureRow,
    Bounded,
    ModelComparison,
    ModelMethodRow,
    ModelRow,
    PairRow,
)
from assay.ranking.orders import FEWEST_GROUPS, resolved, tied_ranks
from assay.ranking.resampling import BootstrapOptions, Floats
from assay.ranking.rows import known
from assay.store import CleanAccuracy

FEWEST_MODELS = 5  # with fewer, a correlation over models says nothing


@dataclass(frozen=True)
class Candidate:
    """One model under the protocol by which models are compared.

    Attributes:
        model: Label of the model in the comparison.
        architecture: What its replicates have in common.
        block: The scores of all methods.
        intrinsic: Labels of the methods that only networks that explain themselves have.
        controls: Labels of the controls.
        accuracy: How often it is right on the samples, where that is known.
        stability: Ceilings by name, one number per sample; empty where they were not measured.
    """

    model: str
    architecture: str
    block: Block
    intrinsic: frozenset[str] = frozenset()
    controls: frozenset[str] = frozenset()
    accuracy: CleanAccuracy | None = None
    stability: Mapping[str, Mapping[str, float]] | None = None

    @property
    def eligible(self) -> dict[str, MethodScores]:
        """The methods that may be the best one: ranked, neither control nor intrinsic."""
        apart = self.intrinsic | self.controls
        return {s.method: s for s in self.block.ranked if s.method not in apart}


def compare_models(
    candidates: Sequence[Candidate], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> ModelComparison | None:
    """Compare models on the methods and samples that all of them have.

    Args:
        candidates: At least two models on the same dataset, under the same protocol.
        level: Nominal coverage of the intervals; of all pairs together for differences.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The comparison; None where no method is common to all models.
    """
    first = candidates[0].block
    methods = _common_methods(candidates)
    if not methods:
        return None
    options: BootstrapOptions = {"level": level, "resamples": resamples, "seed": seed}
    samples, notes = _shared_samples(candidates, methods)
    if len(set(first.groups_of(samples))) < 2:
        notes = [*notes, "The models share fewer than two independent samples: no comparison."]
        return replace(_nothing(first, methods), notes=tuple(notes))
    work = _Work(candidates, methods, samples, options)
    rows = work.model_rows()
    architectures, architecture_pairs = work.architectures()
    sign = 1 if first.higher_is_better else -1
    best_first = sorted(rows, key=lambda row: -sign * (row.score.value or 0.0))
    return replace(
        _nothing(first, methods),
        models=tuple(best_first),
        pairs=_pairs([c.model for c in candidates], work.differences, first.higher_is_better),
        architectures=architectures,
        architecture_pairs=architecture_pairs,
        by_method=tuple(work.method_rows()),
        correlation=_correlation(architectures or rows),
        notes=(*notes, *work.notes()),
    )


def _common_methods(candidates: Sequence[Candidate]) -> list[str]:
    """The methods that every model has with the same options."""
    by_model = [{m: s.options for m, s in c.eligible.items()} for c in candidates]
    return [m for m, options in by_model[0].items() if all(o.get(m) == options for o in by_model)]


def _nothing(block: Block, methods: Sequence[str]) -> ModelComparison:
    facts = (block.dataset, block.protocol, block.metric, block.higher_is_better)
    return ModelComparison(*facts, methods=tuple(methods), models=(), pairs=())


def _shared_samples(
    candidates: Sequence[Candidate], methods: Sequence[str]
) -> tuple[list[str], list[str]]:
    """The samples that every model has under every common method, and a note on lost ones."""
    sets = [set(c.eligible[m].values) for c in candidates for m in methods]
    shared = sorted(set.intersection(*sets))
    most = max(map(len, sets))
    lost = f"{most - len(shared)} of {most} samples do not have all scores and are left out."
    return shared, [lost] if len(shared) < most else []


@dataclass(frozen=True)
class _Work:
    """The numbers of one comparison."""

    candidates: Sequence[Candidate]
    methods: Sequence[str]
    samples: Sequence[str]
    options: BootstrapOptions

    @property
    def _block(self) -> Block:
        return self.candidates[0].block

    @property
    def _groups(self) -> list[str]:
        return self._block.groups_of(self.samples)

    @property
    def _width(self) -> float:
        return width_of_choice(len(self.methods))

    @property
    def _level(self) -> float:
        return self.options.get("level", 0.95)

    def _chosen(self, candidate: Candidate) -> ChosenScores:
        scores = np.array(
            [[candidate.eligible[m].values[s] for m in self.methods] for s in self.samples]
        )
        higher = self._block.higher_is_better
        return choose_on_other_half(scores, self._groups, higher_is_better=higher)

    def _values(self) -> Floats:
        """The scores of all models on all samples [n, models]."""
        return np.stack([self._chosen(c).values for c in self.candidates], axis=1)

    def _interval(self, values: Floats) -> Interval:
        interval = mean_interval(values, self._groups, **self.options).widened(self._width)
        return interval.within(*self._block.range)

    @property
    def differences(self) -> PairedDifferences:
        """All models compared in pairs, on the same samples."""
        least, most = self._block.range
        paired = paired_differences(self._values(), self._groups, **self.options)
        return paired.widened(self._width).within(most - least)

    def model_rows(self) -> list[ModelRow]:
        """One row per model, in their own order."""
        order = tied_ranks(self.differences, higher_is_better=self._block.higher_is_better)
        rows = []
        for candidate, rank in zip(self.candidates, order.ranks, strict=True):
            chosen = self._chosen(candidate)
            rows.append(
                ModelRow(
                    candidate.model,
                    candidate.architecture,
                    _accuracy(candidate.accuracy, self._level),
                    _bounded(self._interval(chosen.values)),
                    (self.methods[chosen.methods[0]], self.methods[chosen.methods[1]]),
                    int(rank) if order.ties_broken else None,
                    self._ceiling(candidate, "noise"),
                    self._ceiling(candidate, "other_fill"),
                    len(self.samples),
                )
            )
        return rows

    def _ceiling(self, candidate: Candidate, name: str) -> Bounded:
        by_sample = (candidate.stability or {}).get(name, {})
        there = [sample for sample in self.samples if sample in by_sample]
        if not there:
            return Bounded()
        groups = self._block.groups_of(there)
        values = [by_sample[sample] for sample in there]
        return _bounded(mean_interval(values, groups, **self.options).within(-1.0, 1.0))

    def method_rows(self) -> list[ModelMethodRow]:
        """The mean of each method on each model; circular cells and controls are left out."""
        rows = []
        for candidate in self.candidates:
            for scores in candidate.block.ranked:
                if scores.method in candidate.controls:
                    continue
                kind = "common" if scores.method in self.methods else "some"
                kind = "intrinsic" if scores.method in candidate.intrinsic else kind
                score = _bounded(candidate.block.interval(scores, self.options))
                n = len(scores.values)
                rows.append(ModelMethodRow(candidate.model, scores.method, kind, score, n))
        return rows

    def architectures(self) -> tuple[tuple[ArchitectureRow, ...], tuple[PairRow, ...]]:
        """The architectures of which there are several models, best first, and their pairs."""
        names = [c.architecture for c in self.candidates]
        several = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if not several:
            return (), ()
        values, higher = self._values(), self._block.higher_is_better
        columns = [[i for i, name in enumerate(names) if name == one] for one in several]
        means = np.stack([values[:, mine].mean(axis=1) for mine in columns], axis=1)
        spreads = [spread_over_replicates(values[:, mine].mean(axis=0)) for mine in columns]
        paired = paired_differences(means, self._groups, **self.options).widened(self._width)
        differences = differences_of_architectures(paired, spreads, self._level)
        order = tied_ranks(differences, higher_is_better=higher)
        rows = [
            self._architecture(name, mine, means[:, i], spreads[i], int(order.ranks[i]))
            for i, (name, mine) in enumerate(zip(several, columns, strict=True))
        ]
        if not order.ties_broken or len(rows) < 2:
            rows = [replace(row, rank=None) for row in rows]
        sign = 1 if higher else -1
        rows.sort(key=lambda row: -sign * (row.score.value or 0.0))
        return tuple(rows), _pairs(several, differences, higher)

    def _architecture(
        self, name: str, mine: Sequence[int], values: Floats, spread: ReplicateSpread, rank: int
    ) -> ArchitectureRow:
        interval = over_samples_and_replicates(self._interval(values), spread, self._level)
        right = [one.accuracy for i in mine if (one := self.candidates[i].accuracy) is not None]
        return ArchitectureRow(
            name,
            tuple(self.candidates[i].model for i in mine),
            sum(right) / len(right) if len(right) == len(mine) else None,
            _bounded(interval.within(*self._block.range)),
            spread.deviation,
            rank,
        )

    def notes(self) -> list[str]:
        """What limits the comparison."""
        notes = []
        groups = len(set(self._groups))
        if groups < FEWEST_GROUPS:
            notes.append(f"{groups} independent samples give no order; {FEWEST_GROUPS} are needed.")
        alone = [c.architecture for c in self.candidates]
        single = [name for name in dict.fromkeys(alone) if alone.count(name) == 1]
        if len(single) < len(set(alone)):
            notes += [f"{name}: one model does not show how replicates differ." for name in single]
        if not any(c.stability for c in self.candidates):
            notes.append("The ceiling was not measured: add a stability protocol to the run.")
        return notes


def _accuracy(clean: CleanAccuracy | None, level: float) -> Bounded:
    if clean is None or clean.n == 0:
        return Bounded()
    test = stats.binomtest(round(clean.accuracy * clean.n), clean.n)
    ends = test.proportion_ci(level, method="wilson")
    return Bounded(clean.accuracy, float(ends.low), float(ends.high))


def _bounded(interval: Interval) -> Bounded:
    return Bounded(interval.mean, known(interval.low), known(interval.high))


def _pairs(
    names: Sequence[str], differences: PairedDifferences, higher: bool
) -> tuple[PairRow, ...]:
    """All pairs, positive where the first is better."""
    better = resolved(differences, higher_is_better=higher)
    sign = 1.0 if higher else -1.0
    rows = []
    for i, j in itertools.combinations(range(len(names)), 2):
        verdict = "better" if better[i, j] else "worse" if better[j, i] else "unclear"
        low, high = sorted((sign * differences.low[i, j], sign * differences.high[i, j]))
        ends = known(float(low)), known(float(high))
        mean = sign * float(differences.mean[i, j])
        rows.append(PairRow(names[i], names[j], mean, *ends, verdict))
    return tuple(rows)


def _correlation(rows: Sequence[ModelRow | ArchitectureRow]) -> float | None:
    """Spearman's correlation of score and accuracy over models or architectures."""
    pairs = []
    for row in rows:
        accuracy = row.accuracy if isinstance(row, ArchitectureRow) else row.accuracy.value
        if accuracy is not None and row.score.value is not None:
            pairs.append((accuracy, row.score.value))
    if len(pairs) < FEWEST_MODELS or any(
        len(set(column)) < 2 for column in zip(*pairs, strict=True)
    ):
        return None
    value = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    return None if math.isnan(value) else value
