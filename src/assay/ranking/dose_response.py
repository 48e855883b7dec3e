"""Dose-response: do the scores fall when maps are mixed with maps of other samples?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores, Places, shared_rows
from assay.ranking.intervals import Interval, mean_interval, mean_intervals
from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.resampling import BootstrapOptions, Floats, level_of
from assay.ranking.rows import PublicRow, known
from assay.store import DoseEntry, RunFiles, SettingKey
from assay.store.log_arrays import LogArrays


@dataclass(frozen=True)
class DoseResponse:
    """How the scores of one protocol respond to a growing share of other samples' maps.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        methods: Number of methods behind the numbers.
        n: Number of samples that all of them have at all doses.
        n_groups: Number of groups of these.
        doses: The doses; 0 is the method itself.
        means: Mean score over methods and samples at each dose.
        slope: Change of the score from dose 0 to 1 by the line of least squares, in units of
            `scale`; negative where scores get worse. None where no score changes.
        slope_low: Lower end of its interval over groups.
        slope_high: Upper end.
        scale: Standard deviation, over the samples, of the score at dose 0 minus that at dose 1.
        monotone: Share of the methods whose mean gets worse with every dose.
        smallest_dose: The smallest dose whose scores are worse than at dose 0, with intervals that
            hold for all doses together; None where there is none.
        falls: Whether the whole interval of the slope is negative.
        sentence: All of it in words.
    """

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    methods: int
    n: int
    n_groups: int
    doses: tuple[float, ...]
    means: tuple[float, ...]
    slope: float | None
    slope_low: float | None
    slope_high: float | None
    scale: float
    monotone: float
    smallest_dose: float | None
    falls: bool
    sentence: str

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


def validation_of(files: RunFiles) -> list[DoseResponse]:
    """The dose-response of a run; empty where it has no mixed maps."""
    manifest = files.manifest
    if not manifest.doses:
        return []
    ranges = {label: entry.limits for label, entry in manifest.protocols.items()}
    without = [label for label, entry in manifest.protocols.items() if entry.judges != "sample"]
    blocks = read_blocks(LogArrays(files.with_doses), ranges=ranges, without=without)
    return dose_responses(blocks, manifest.doses, {})


def dose_responses(
    blocks: Sequence[Block], doses: Mapping[str, DoseEntry], options: BootstrapOptions
) -> list[DoseResponse]:
    """One row per setting and protocol under which a method is ranked and has all doses."""
    by_method: dict[str, dict[float, str]] = {}
    for label, entry in doses.items():
        by_method.setdefault(entry.method, {})[entry.dose] = label
    rows = []
    for block in blocks:
        scores = {one.method: one for one in block.methods}
        chosen = [
            [scores[method], *(scores[by_dose[dose]] for dose in sorted(by_dose))]
            for method, by_dose in by_method.items()
            if _complete(scores, method, by_dose)
        ]
        known_doses = sorted({0.0, *(entry.dose for entry in doses.values())})
        if chosen and len(shared_rows([one for several in chosen for one in several])):
            rows.append(_response(block, chosen, known_doses, options))
    return rows


def _complete(
    scores: Mapping[str, MethodScores], method: str, by_dose: Mapping[float, str]
) -> bool:
    """Whether a method is ranked, and all its mixed maps are scored."""
    own = scores.get(method)
    there = (scores.get(label) for label in by_dose.values())
    return own is not None and own.status == "ok" and all(one and len(one) for one in there)


def _response(
    block: Block,
    chosen: Sequence[Sequence[MethodScores]],
    doses: Sequence[float],
    options: BootstrapOptions,
) -> DoseResponse:
    """The response of methods that have the same samples, each with its scores by dose."""
    rows = shared_rows([one for several in chosen for one in several])
    raw = np.stack([block.matrix(several, rows) for several in chosen], axis=1)  # [n, M, doses]
    values = raw if block.higher_is_better else -raw
    groups = block.groups_numbered(rows)
    apart = values[:, :, 0] - values[:, :, -1]
    variance = apart.var(axis=0, ddof=1).mean() if len(rows) > 1 else 0.0
    scale = math.sqrt(float(variance))
    centred = np.array(doses) - np.mean(doses)
    slopes = values @ (centred / np.square(centred).sum())  # [n, M]
    slope = None
    if scale > 0:
        slope = mean_interval(slopes.mean(axis=1) / scale, groups, **options)
    falls = slope is not None and slope.n_groups >= FEWEST_GROUPS and slope.high < 0
    means = values.mean(axis=0)
    smallest = _smallest_dose(values, groups, doses, options)
    monotone = float((np.diff(means, axis=1) < 0).all(axis=1).mean())
    return DoseResponse(
        *block.setting,
        protocol=block.protocol,
        methods=len(chosen),
        n=len(rows),
        n_groups=len(np.unique(groups)),
        doses=tuple(doses),
        means=tuple(raw.mean(axis=(0, 1)).tolist()),
        slope=None if slope is None else slope.mean,
        slope_low=None if slope is None else known(slope.low),
        slope_high=None if slope is None else known(slope.high),
        scale=scale,
        monotone=monotone,
        smallest_dose=smallest,
        falls=falls,
        sentence=_sentence(slope, falls, monotone, smallest, len(chosen)),
    )


def _smallest_dose(
    values: Floats, groups: Places, doses: Sequence[float], options: BootstrapOptions
) -> float | None:
    """The smallest dose whose scores are worse than those at dose 0; Bonferroni over the doses."""
    falls = values[:, :, :1].mean(axis=1) - values[:, :, 1:].mean(axis=1)  # [n, doses - 1]
    level = 1 - (1 - level_of(options)) / falls.shape[1]
    together: BootstrapOptions = {**options, "level": level}
    intervals = mean_intervals(falls, groups, **together)
    found = [
        dose
        for dose, one in zip(doses[1:], intervals, strict=True)
        if one.n_groups >= FEWEST_GROUPS and one.low > 0
    ]
    return min(found, default=None)


def _sentence(
    slope: Interval | None, falls: bool, monotone: float, smallest: float | None, methods: int
) -> str:
    if slope is None:
        return "Mixing in maps of other samples changes no score."
    ends = "" if math.isnan(slope.low) else f" ({slope.low:.2f} to {slope.high:.2f})"
    what = "Scores fall with the dose" if falls else "Scores do not clearly fall with the dose"
    told = (
        "No dose is told apart from 0."
        if smallest is None
        else f"The smallest dose told apart from 0 is {smallest:g}."
    )
    return (
        f"{what}: the slope is {slope.mean:.2f} standard deviations{ends}. The means of "
        f"{round(monotone * methods)} of {methods} methods get worse with every dose. {told}"
    )
