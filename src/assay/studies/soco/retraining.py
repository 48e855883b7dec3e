"""SoCo's claims about retraining: a network also learns from the places of removed pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, make_row, replicates
from assay.studies.soco.networks import perturbed, seeds, test_images, trained, training_images
from assay.training.epochs import accuracy

if TYPE_CHECKING:
    from assay.studies.setting import Study

PUBLISHED = {"disc": (0.60, 0.24), "disc and place": (0.88, 0.29)}  # retrained, original


def retraining_restores(claim: Claim, study: Study) -> list[ClaimRow]:
    """1: on perturbed images a retrained network is more accurate than the original."""
    training, _, _ = training_images(study)
    images, labels = test_images(study)
    effects, noted, after = [], [], []
    for strategy, (again, before) in PUBLISHED.items():
        shown = perturbed(strategy, images, labels, training)
        retrained = _right(study, strategy, shown, labels)
        original = _right(study, None, shown, labels)
        effects.append(replicates(strategy, retrained - original))
        after.append(retrained)
        noted.append(
            f"{strategy}: retrained {retrained.mean():.2f}, original {original.mean():.2f} "
            f"(published {again:.2f}, {before:.2f})"
        )
    effects.append(replicates("by the place alone", after[1] - after[0]))
    note = f"{'; '.join(noted)}; {_training_note(training)}"
    return [make_row(claim, effects, "scaled", note=note)]


def whole_images_fail(claim: Claim, study: Study) -> list[ClaimRow]:
    """2: a network trained with a spot that reveals the class fails without it."""
    training, _, _ = training_images(study)
    images, labels = test_images(study)
    original, retrained = (_right(study, s, images, labels) for s in (None, "place"))
    note = (
        f"Original {original.mean():.3f}, retrained {retrained.mean():.3f} (published .887, .322); "
        f"{_training_note(training)}"
    )
    effects = [replicates("whole images", original - retrained)]
    return [make_row(claim, effects, "scaled", note=note)]


def _right(study: Study, strategy: str | None, images: Tensor, labels: Tensor) -> Floats:
    """The accuracy of each network trained with a strategy."""
    return np.array(
        [accuracy(trained(study, strategy, seed), images, labels) for seed in seeds(study)]
    )


def _training_note(training: Tensor) -> str:
    return f"ResNet-8 on {len(training):,} training images, as the authors' code has it"
