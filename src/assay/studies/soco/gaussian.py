"""A linear network on Gaussian vectors, whose true map is known: SoCo's synthetic validation.

Two variants. `literal` is the paper's (Fig. 6): y is the sign of the sum of 200 features, and
absent features are zero. What the paper leaves open is chosen here: Remove zeroes 30 % of the
attributed features, Introduce gives 30 % of the others a value between 0 and 1. In this variant the
two halves of the claim conflict: a feature without attribution speaks against the label, so
removing it helps. `clean` avoids that: half of the features have weight zero, absent features are
drawn again, and Introduce puts attribution on features without effect, and a little more on those
with an effect.
"""

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from assay.api import benchmark
from assay.ranking.reduce_soundness import at_level, soundness_curve
from assay.ranking.resampling import Floats
from assay.studies.reading import Reading

GaussianVariant = Literal["literal", "clean"]

SAMPLES, FEATURES = 1000, 200
THRESHOLDS = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
CHANGED = 0.3  # the share of features that are changed
ROWS = 4096  # vectors per call of this small network
MAPS = ("truth", "remove", "introduce")


class Sign(nn.Module):
    """Two classes by the sign of a weighted sum."""

    def __init__(self, weights: Tensor) -> None:
        """Take the weights of the features."""
        super().__init__()
        self.weights = nn.Parameter(weights)

    def forward(self, x: Tensor) -> Tensor:  # [B, d] -> [B, 2]
        """Give the logits of the negative and of the positive class."""
        total = x @ self.weights
        return torch.stack([-total, total], 1)


@dataclass(frozen=True)
class GaussianTrial:
    """The results of one draw of data and changes.

    Attributes:
        accuracy: Along the soundness sweep, by map.
        soundness: Along the same sweep, by map.
        completeness: The drop of accuracy at each of `THRESHOLDS`, by map.
    """

    accuracy: dict[str, Floats]
    soundness: dict[str, Floats]
    completeness: dict[str, Floats]

    def sound_at(self, name: str, level: float) -> float:
        """Soundness of a map where accuracy first reaches a level."""
        return at_level(self.accuracy[name], self.soundness[name], level)


def draw(
    variant: GaussianVariant, seed: int, samples: int = SAMPLES
) -> tuple[Sign, Tensor, Tensor, dict[str, Tensor]]:
    """The network, inputs, labels and the three maps of one trial."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((samples, FEATURES))
    weights = np.ones(FEATURES)
    if variant == "clean":
        weights[FEATURES // 2 :] = 0
    total = x @ weights
    truth = np.clip(np.sign(total)[:, None] * weights * x, 0, None)
    truth /= truth.max(1, keepdims=True)
    positive = truth > 0
    removed = np.where(positive & (random.random(truth.shape) < CHANGED), 0, truth)
    fresh = random.random(truth.shape)
    if variant == "literal":
        chosen = ~positive & (random.random(truth.shape) < CHANGED)
        introduced = np.where(chosen, fresh, truth)
    else:
        introduced = np.where(weights == 0, fresh, truth + np.where(positive, CHANGED * fresh, 0))
    maps = {"truth": truth, "remove": removed, "introduce": np.clip(introduced, 0, 1)}
    net = Sign(torch.from_numpy(weights))
    tensors = {name: torch.from_numpy(values) for name, values in maps.items()}
    return net, torch.from_numpy(x), torch.from_numpy((total > 0).astype(np.int64)), tensors


@functools.cache
def trial(variant: GaussianVariant, seed: int, samples: int = SAMPLES) -> GaussianTrial:
    """Score the three maps by soundness and by completeness at absolute thresholds.

    A sample's absent features take the same random values at every step. With new values at each
    step, accuracy fluctuates more, and more steps of the introduced map count as false: its
    soundness at an accuracy of 0.9 is then near 0.67, here near 0.9.
    """
    net, x, y, maps = draw(variant, seed, samples)
    fill = "zero" if variant == "literal" else "normal"
    protocols = [
        {"soundness": {"fill": fill}},
        {"completeness": {"fill": fill, "relative": False, "thresholds": THRESHOLDS}},
    ]
    results = benchmark(
        net,
        (x, y),
        maps,
        protocols,
        seed,
        progress=False,
        keep_maps=False,
        micro_batch=ROWS,
        controls="off",
    )
    reading = Reading(results)
    soundness, completeness = reading.protocols
    curves = {name: reading.curves(soundness, name) for name in MAPS}
    shares = reading.x(soundness, "truth")
    swept = {name: soundness_curve(parts, shares) for name, parts in curves.items()}
    return GaussianTrial(
        {name: accuracy for name, (accuracy, _) in swept.items()},
        {name: sound for name, (_, sound) in swept.items()},
        {name: reading.falls(completeness, name).mean(0) for name in MAPS},
    )
