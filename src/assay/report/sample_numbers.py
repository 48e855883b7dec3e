"""Numbers that the page shows beside the ranking, from one pass over the scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.ranking.sets import Key, Outcome, with_parts
from assay.report.charts import shown
from assay.report.protocol_panels import FieldKey
from assay.store import SettingKey
from assay.store.run_arrays import RunArrays, ScoreArrays

TipScores = dict[tuple[str, str], dict[str, float]]  # of each (method, sample), by protocol


@dataclass(frozen=True)
class SampleNumbers:
    """What one pass over the scores gives.

    Attributes:
        others: The means of the numbers that protocols give besides their score, as text.
        tips: By setting, the scores of each method on the samples that the gallery shows.
    """

    others: dict[FieldKey, str] = field(default_factory=dict)
    tips: dict[SettingKey, TipScores] = field(default_factory=dict)


def sample_numbers(
    arrays: RunArrays, outcomes: Mapping[Key, Outcome], samples: Mapping[SettingKey, Sequence[str]]
) -> SampleNumbers:
    """Read what the page shows of single samples, and of the numbers besides the scores.

    Args:
        arrays: The scores of a run.
        outcomes: The numbers of the protocols that score whole sets.
        samples: By setting, the samples that the gallery shows.
    """
    numbers = SampleNumbers()
    for block in arrays.scores():
        setting = SettingKey(block.dataset, block.model, block.checkpoint)
        _add_others(numbers.others, setting, block)
        if samples.get(setting):
            tips = numbers.tips.setdefault(setting, {})
            _add_tips(tips, with_parts(block, outcomes), samples[setting])
    return numbers


def _add_others(others: dict[FieldKey, str], setting: SettingKey, block: ScoreArrays) -> None:
    for place, method in enumerate(block.methods):
        texts = []
        for metric, values in sorted(block.replicates.items()):
            mine = values[:, place]
            known = mine[np.isfinite(mine)]
            texts += [f"{metric} {shown(float(known.mean()))}"] if len(known) else []
        if texts:
            others[setting, method, block.protocol] = ", ".join(texts)


def _add_tips(tips: TipScores, block: ScoreArrays, samples: Sequence[str]) -> None:
    chosen = set(samples)
    rows = [row for row, sample in enumerate(block.samples) if sample in chosen]
    values, there = block.values[:, :, rows], block.statuses[:, :, rows] != 0
    count = there.sum(axis=0)
    means = np.where(there, values, 0.0).sum(axis=0) / np.maximum(count, 1)
    for place, column in zip(*np.nonzero(count), strict=True):
        here = tips.setdefault((block.methods[place], block.samples[rows[column]]), {})
        here[block.protocol] = float(means[place, column])
