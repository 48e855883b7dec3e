"""Compare models under one protocol: score of the best common method, accuracy, and ceiling."""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from assay.ranking.architectures import (
    ReplicateSpread,
    differences_of_architectures,
    over_samples_and_replicates,
    spread_over_replicates,
)
from assay.ranking.association import association
from assay.ranking.blocks import Block, MethodScores, shared_rows
from assay.ranking.candidates import Candidate
from assay.ranking.choosing import (
    ChosenScores,
    choose_on_other_half,
    split_in_halves,
    width_of_choice,
)
from assay.ranking.common_ground import CommonGround, common_ground, some
from assay.ranking.independent import IndependentModels, independent_replicates, origins
from assay.ranking.intervals import (
    Interval,
    PairedDifferences,
    mean_interval,
    mean_intervals,
    paired_differences,
)
from assay.ranking.model_rows import (
    ArchitectureRow,
    Bounded,
    LeftOut,
    ModelComparison,
    ModelMethodRow,
    ModelRow,
    PairRow,
)
from assay.ranking.orders import FEWEST_GROUPS, resolved, tied_ranks
from assay.ranking.resampling import BootstrapOptions, Floats
from assay.ranking.rows import known
from assay.store import CleanAccuracy

WEAK = "How well such a network can be explained says little."
ONE_EACH = (
    "Each architecture has one model. The order is of these networks; another training of an "
    "architecture may differ."
)
NO_CEILING = "The ceiling was not measured: add `drop_stability` for the same cells and fill."


def compare_models(
    candidates: Sequence[Candidate], level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> ModelComparison:
    """Compare models on the methods and samples that all of them have.

    Args:
        candidates: Different models on the same samples, under the same protocol.
        level: Nominal coverage of the intervals; of all pairs together for differences.
        resamples: Number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The comparison of those that fit together; without rows where no two of them do.
    """
    options: BootstrapOptions = {"level": level, "resamples": resamples, "seed": seed}
    ground = common_ground(candidates)
    block = (ground.candidates or candidates)[0].block
    nothing = _nothing(block, ground)
    if not ground.candidates:
        return nothing
    samples, notes = _shared_samples(ground)
    if len(set(block.groups_of(samples))) < 2:
        reason = "The models share fewer than two independent samples with all scores."
        names = [c.model for c in ground.candidates]
        return replace(nothing, left_out=(*nothing.left_out, *(LeftOut(n, reason) for n in names)))
    work = _Work(ground.candidates, ground.methods, samples, options)
    rows, higher = work.model_rows(), nothing.higher_is_better
    architectures, architecture_pairs = work.architectures()
    return replace(
        nothing,
        models=tuple(_best_first(rows, higher)),
        pairs=_pairs([c.model for c in ground.candidates], work.differences, higher, len(samples)),
        architectures=architectures,
        architecture_pairs=architecture_pairs,
        by_method=tuple(work.method_rows()),
        correlation=association(rows, origins(ground.candidates), level),
        notes=(*notes, *work.notes()),
    )


def _nothing(block: Block, ground: CommonGround) -> ModelComparison:
    facts = (block.dataset, block.protocol, block.metric, block.higher_is_better)
    return ModelComparison(
        *facts,
        methods=tuple(ground.methods),
        models=(),
        pairs=(),
        left_out=tuple(ground.left_out),
        methods_left_out=tuple(ground.methods_left_out),
    )


def _shared_samples(ground: CommonGround) -> tuple[list[str], list[str]]:
    """The samples that every model has under every common method, and a note on lost ones."""
    by_model = [[c.eligible[m] for m in ground.methods] for c in ground.candidates]
    sets = [
        set(candidate.block.names(shared_rows(methods)))
        for candidate, methods in zip(ground.candidates, by_model, strict=True)
    ]
    shared = sorted(set.intersection(*sets))
    most = max(len(scores) for methods in by_model for scores in methods)
    lost = f"{most - len(shared)} of {most} samples do not have all scores and are left out."
    return shared, [lost] if len(shared) < most else []


def _best_first(rows: Sequence[ModelRow], higher: bool) -> list[ModelRow]:
    sign = 1 if higher else -1
    return sorted(rows, key=lambda row: -sign * (row.score.value or 0.0))


def method_rows(
    candidate: Candidate, common: Sequence[str], options: BootstrapOptions
) -> list[ModelMethodRow]:
    """The mean of each method on one model; circular cells and controls are left out."""
    block = candidate.block
    shown = [s for s in block.ranked if s.method not in candidate.controls]
    together: dict[bytes, list[MethodScores]] = {}  # by their samples
    for scores in shown:
        together.setdefault(scores.rows.tobytes(), []).append(scores)
    intervals: dict[str, Bounded] = {}
    for of in together.values():
        rows = of[0].rows
        values, groups = block.matrix(of, rows), block.groups_numbered(rows)
        made = mean_intervals(values, groups, **options, binary=block.shares(values))
        for scores, interval in zip(of, made, strict=True):
            intervals[scores.method] = _bounded(interval.within(*block.range), len(rows))
    lines = []
    for scores in shown:
        kind = "common" if scores.method in common else "some"
        kind = "intrinsic" if scores.method in candidate.intrinsic else kind
        score = intervals[scores.method]
        lines.append(ModelMethodRow(candidate.model, scores.method, kind, score, score.n))
    return lines


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

    @functools.cached_property
    def _tables(self) -> list[Floats]:
        """The scores of each model on all samples by all common methods [n, methods]."""
        return [
            c.block.matrix([c.eligible[m] for m in self.methods], c.block.rows_of(self.samples))
            for c in self.candidates
        ]

    @functools.cached_property
    def _chosen(self) -> list[ChosenScores]:
        """The score of each model's best method, chosen on the other half."""
        first, higher = split_in_halves(self._groups), self._block.higher_is_better
        return [choose_on_other_half(t, first, higher_is_better=higher) for t in self._tables]

    @functools.cached_property
    def _values(self) -> Floats:
        """The scores of all models on all samples [n, models]."""
        return np.stack([chosen.values for chosen in self._chosen], axis=1)

    def _intervals(self, values: Floats) -> list[Interval]:
        """The interval of each column of chosen scores [n, m]."""
        shares = self._block.shares(values)
        made = mean_intervals(values, self._groups, **self.options, binary=shares)
        return [one.widened(self._width).within(*self._block.range) for one in made]

    @functools.cached_property
    def differences(self) -> PairedDifferences:
        """All models compared in pairs, on the same samples."""
        least, most = self._block.range
        paired = paired_differences(self._values, self._groups, **self.options, width=most - least)
        return paired.widened(self._width).within(most - least)

    def model_rows(self) -> list[ModelRow]:
        """One row per model, in their own order."""
        order = tied_ranks(self.differences, higher_is_better=self._block.higher_is_better)
        rows = []
        columns = (self.candidates, self._chosen, self._intervals(self._values), order.ranks)
        for candidate, chosen, interval, rank in zip(*columns, strict=True):
            rows.append(
                ModelRow(
                    candidate.model,
                    candidate.architecture,
                    _accuracy(candidate.accuracy, self._level),
                    _bounded(interval, len(self.samples)),
                    (self.methods[chosen.methods[0]], self.methods[chosen.methods[1]]),
                    int(rank) if order.ties_broken else None,
                    self._ceiling(candidate, "noise"),
                    self._ceiling(candidate, "other_fill"),
                    len(self.samples),
                    candidate.tuning,
                    candidate.weak,
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
        interval = mean_interval(values, groups, **self.options).within(-1.0, 1.0)
        return _bounded(interval, len(there))

    def method_rows(self) -> list[ModelMethodRow]:
        """The mean of each method on each model; circular cells and controls are left out."""
        return [row for c in self.candidates for row in method_rows(c, self.methods, self.options)]

    @functools.cached_property
    def _replicates(self) -> IndependentModels:
        """The places of independent models by architecture, and what counts as one model."""
        return independent_replicates(self.candidates, self._tables)

    def architectures(self) -> tuple[tuple[ArchitectureRow, ...], tuple[PairRow, ...]]:
        """The architectures of which there are several models, best first, and their pairs."""
        several = {name: mine for name, mine in self._replicates.places.items() if len(mine) > 1}
        if not several:
            return (), ()
        values, higher = self._values, self._block.higher_is_better
        means = np.stack([values[:, mine].mean(axis=1) for mine in several.values()], axis=1)
        spreads = [spread_over_replicates(values[:, m].mean(axis=0)) for m in several.values()]
        paired = paired_differences(means, self._groups, **self.options).widened(self._width)
        differences = differences_of_architectures(paired, spreads, self._level)
        order = tied_ranks(differences, higher_is_better=higher)
        rows = [
            self._architecture(name, mine, means[:, i], spreads[i], int(order.ranks[i]))
            for i, (name, mine) in enumerate(several.items())
        ]
        if not order.ties_broken or len(rows) < 2:
            rows = [replace(row, rank=None) for row in rows]
        sign = 1 if higher else -1
        rows.sort(key=lambda row: -sign * (row.score.value or 0.0))
        return tuple(rows), _pairs(list(several), differences, higher, len(self.samples))

    def _architecture(
        self, name: str, mine: Sequence[int], values: Floats, spread: ReplicateSpread, rank: int
    ) -> ArchitectureRow:
        (samples,) = self._intervals(values[:, None])
        interval = over_samples_and_replicates(samples, spread, self._level)
        right = [one.accuracy for i in mine if (one := self.candidates[i].accuracy) is not None]
        counts = [one.n for i in mine if (one := self.candidates[i].accuracy) is not None]
        accuracy = Bounded()
        if len(right) == len(mine) and min(counts) > 0:
            accuracy = _mean_accuracy(np.array(right), min(counts), self._level)
        return ArchitectureRow(
            name,
            tuple(self.candidates[i].model for i in mine),
            accuracy,
            _bounded(interval.within(*self._block.range), len(self.samples)),
            spread.deviation,
            rank,
        )

    def notes(self) -> list[str]:
        """What limits the comparison."""
        notes = []
        groups = len(set(self._groups))
        if groups < FEWEST_GROUPS:
            notes.append(f"{groups} independent samples give no order; {FEWEST_GROUPS} are needed.")
        weak = [c.model for c in self.candidates if c.weak]
        if weak:
            notes.append(f"Hardly right more often than by chance: {some(weak)}. {WEAK}")
        places = self._replicates.places
        single = [name for name, mine in places.items() if len(mine) == 1]
        if len(single) == len(places):
            notes.append(ONE_EACH)
        elif single:
            notes.append(f"One model does not show how replicates differ: {some(single)}.")
        notes += self._replicates.notes
        without = [c.model for c in self.candidates if not c.stability]
        if len(without) == len(self.candidates):
            by_cells = "grid" in json.loads(self._block.protocol_options)
            notes.append(NO_CEILING if by_cells else "No ceiling of this score is known.")
        elif without:
            notes.append(f"No ceiling was measured for the same cells and fill: {some(without)}.")
        return notes


def _accuracy(clean: CleanAccuracy | None, level: float) -> Bounded:
    if clean is None or clean.n == 0:
        return Bounded()
    low, high = _wilson(clean.accuracy, clean.n, level)
    return Bounded(clean.accuracy, low, high, clean.n)


def _mean_accuracy(right: Floats, n: int, level: float) -> Bounded:
    """The mean accuracy of replicates on n samples, with an interval over both.

    Replicates see the same samples, so the samples count as for one network.
    """
    spread = spread_over_replicates(right)
    samples = Interval(spread.mean, *_wilson(spread.mean, n, level), n)
    return _bounded(over_samples_and_replicates(samples, spread, level).within(0.0, 1.0), n)


def _wilson(share: float, n: int, level: float) -> tuple[float, float]:
    z = float(scipy.stats.norm.ppf((1 + level) / 2))
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((centre + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return max(0.0, low), min(1.0, high)


def _bounded(interval: Interval, n: int) -> Bounded:
    return Bounded(interval.mean, known(interval.low), known(interval.high), n)


def _pairs(
    names: Sequence[str], differences: PairedDifferences, higher: bool, n: int
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
        rows.append(PairRow(names[i], names[j], mean, *ends, verdict, n))
    return tuple(rows)
