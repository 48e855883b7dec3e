"""The ideal segments for LIME on designed images."""

import numpy as np
import scipy
import torch

from assay.errors import NotApplicable
from assay.types import Batch
from assay.units.features import Features

LIKE_ONE = 5  # pixels of 224: gaps up to this width belong to a patch


def true_patches(batch: Batch) -> Features:
    """The patches themselves and the background as units: the ideal segments."""
    if batch.truth is None:
        raise NotApplicable(
            "The units `true_patches` need data with ground truth; these have none."
        )
    labels = []
    for truth in batch.truth.cpu().numpy():
        side = max(2, round(LIKE_ONE * truth.shape[0] / 224))
        filled = scipy.ndimage.binary_closing(np.pad(truth != 0, side), np.ones((side, side)))
        labels.append(scipy.ndimage.label(filled[side:-side, side:-side])[0])
    index = torch.from_numpy(np.stack(labels)).long().to(batch.inputs.device)
    numbers = index.flatten(1).amax(1) + 1
    count = int(numbers.max())
    exist = torch.arange(count, device=index.device) < numbers[:, None]
    return Features("true patches", batch.map_shape, count, exist, index=index)
