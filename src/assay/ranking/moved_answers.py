"""How far the answers of a network move when everything is removed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from assay.ranking.intervals import Interval, mean_interval
from assay.ranking.resampling import BootstrapOptions, Floats
from assay.store import Manifest, ProtocolEntry, RunFiles, SettingKey
from assay.store.all_absent import fill_text

PROBABILITY = "probability"
LEAST_PROBABILITY = 0.01  # a smaller mean change of a probability is no signal
LEAST_SHARE = 0.01  # of the spread of the clean answers, for logits and log-odds
PRECISION = 1e-6  # of the largest answer: a smaller change may be rounding in single precision

CleanAndAbsent = tuple[Floats, Floats]  # the answers with nothing and with everything absent
Moves = Mapping[tuple[SettingKey, str], "MovedSamples"]  # by setting and fill


@dataclass(frozen=True, eq=False)
class MovedSamples:
    """The answers of all samples of a setting, with one fill.

    Attributes:
        samples: Ids of the samples; one per seed.
        groups: The group of each.
        outputs: The clean answers and those when everything is absent, by output.
    """

    samples: tuple[str, ...]
    groups: tuple[str, ...]
    outputs: Mapping[str, CleanAndAbsent]


@dataclass(frozen=True)
class Movement:
    """How far one output moves when everything is removed.

    Attributes:
        mean: Mean absolute change over the samples, seeds averaged.
        low: Lower end of its interval; NaN where there is none.
        high: Upper end of its interval.
        spread: Standard deviation of the clean answers over the samples.
        least: A smaller mean change is no signal.
        share: Share of the samples whose answer changes by more than that.
        n: Number of samples.
    """

    mean: float
    low: float
    high: float
    spread: float
    least: float
    share: float
    n: int

    @property
    def hardly(self) -> bool:
        """Whether the answers hardly move: the whole interval lies below the least change."""
        highest = self.mean if math.isnan(self.high) else self.high
        return highest <= self.least


def read_moves(files: RunFiles, manifest: Manifest) -> Moves:
    """The stored answers, by setting and fill; runs of older versions have none."""
    outputs = ("logit", PROBABILITY, "log_odds")
    found: dict[tuple[SettingKey, str], list[tuple[str, str, Floats]]] = {}
    for shard in manifest.shards:
        stored = files.all_absent(shard)
        groups = files.groups(shard) if stored else ()
        for fill, answers in stored.items():
            numbers = np.stack([part for name in outputs for part in answers.output(name)], axis=1)
            rows = zip(shard.samples, groups, numbers, strict=True)
            found.setdefault((shard.setting, fill), []).extend(rows)
    return {place: _joined(rows, outputs) for place, rows in found.items()}


def movements(
    manifest: Manifest, moves: Moves, options: BootstrapOptions
) -> dict[tuple[SettingKey, str], Movement | None]:
    """How far the output of each protocol moves, by setting and label; equal ones computed once."""
    measured: dict[tuple[SettingKey, str, str], Movement | None] = {}
    found: dict[tuple[SettingKey, str], Movement | None] = {}
    for setting in manifest.settings:
        for label, entry in manifest.protocols.items():
            fill, output = fill_text(entry.options.get("fill")), output_of(entry)
            place = setting, fill, output
            if (setting, fill) in moves and place not in measured:
                measured[place] = movement(moves[setting, fill], output, options)
            found[setting, label] = measured.get(place)
    return found


def output_of(entry: ProtocolEntry) -> str:
    """The output of the network that a protocol reads."""
    return str(entry.options.get("output") or PROBABILITY)


def _joined(rows: Iterable[tuple[str, str, Floats]], outputs: Iterable[str]) -> MovedSamples:
    samples, groups, numbers = zip(*rows, strict=True)
    table = np.stack(numbers)
    pairs = {name: (table[:, 2 * i], table[:, 2 * i + 1]) for i, name in enumerate(outputs)}
    return MovedSamples(samples, groups, pairs)


def movement(moved: MovedSamples, output: str, options: BootstrapOptions) -> Movement | None:
    """How far an output moves; None where no sample has finite answers."""
    clean, absent = moved.outputs[output]
    finite = np.isfinite(clean) & np.isfinite(absent)
    if not finite.any():
        return None
    names, first, index = np.unique(
        np.array(moved.samples)[finite], return_index=True, return_inverse=True
    )
    times = np.bincount(index)
    change = np.bincount(index, np.abs(clean - absent)[finite]) / times
    answers = np.bincount(index, clean[finite]) / times
    groups = np.array(moved.groups)[finite][first]
    spread = float(answers.std(ddof=1)) if len(names) > 1 else 0.0
    least = _least(output, answers, spread)
    interval = _interval(change, groups, options)
    return Movement(
        interval.mean,
        interval.low,
        interval.high,
        spread,
        least,
        float((change > least).mean()),
        len(names),
    )


def _interval(change: Floats, groups: Floats, options: BootstrapOptions) -> Interval:
    interval = mean_interval(change, groups, **options)
    return interval.within(0.0, math.inf) if not math.isnan(interval.low) else interval


def _least(output: str, answers: Floats, spread: float) -> float:
    """The smallest mean change that is a signal."""
    if output == PROBABILITY:
        return LEAST_PROBABILITY
    return max(LEAST_SHARE * spread, PRECISION * float(np.abs(answers).max()))
