"""How far the settings of some runs agree, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np

from assay.aggregation.noise_ceiling import NoiseCeiling
from assay.aggregation.prediction_skill import LeftOutPrediction
from assay.aggregation.rank_tests import FriedmanTest
from assay.aggregation.run_trajectories import RunTrajectories
from assay.aggregation.setting_agreement import Concordance, WinnerFlips
from assay.aggregation.variance_parts import VarianceParts
from assay.ranking.resampling import Codes, Floats


@dataclass(frozen=True, eq=False)
class Consistency:
    """How far the settings of some runs agree; arrays are in the order of `settings`.

    Attributes:
        methods: The methods [n], each set of clones once.
        settings: Dataset, model, checkpoint and protocol of each setting [S].
        scores: The scores [S, n], higher is better.
        tau: Kendall's tau-b between settings [S, S].
        rho: Spearman's correlation [S, S].
        leaves: The settings in the order of their clusters [S].
        concordance: Kendall's W.
        alpha: Krippendorff's alpha of ordinal values.
        friedman: Friedman's test and that of Iman and Davenport; None where it does not apply.
        flips: Whether settings have the same winner.
        ceiling: The agreement of halves of the images; None where no setting has single scores.
        ceiling_of: The places of the settings behind `ceiling`.
        variance: Variance components of the largest balanced part; None where there is none.
        skills: How well the rest predicts what is left out, by facet and then by rule.
        sentences: All of it in words.
        notes: What was left out, and why.
        trajectories: Whether checkpoints of one training run agree more than those of several.
    """

    methods: tuple[str, ...]
    settings: tuple[tuple[str, str, str, str], ...]
    scores: Floats
    tau: Floats
    rho: Floats
    leaves: Codes
    concordance: Concordance
    alpha: float
    friedman: FriedmanTest | None
    flips: WinnerFlips
    ceiling: NoiseCeiling | None
    ceiling_of: tuple[int, ...]
    variance: VarianceParts | None
    skills: Mapping[str, Mapping[str, LeftOutPrediction]]
    sentences: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    trajectories: tuple[RunTrajectories, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """All of it as plain values; None where a number is not known."""
        plain = _plain(asdict(self))
        return plain if isinstance(plain, dict) else {}

    def __repr__(self) -> str:
        """The sentences."""
        return "\n".join(self.sentences)


def _plain(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
