"""The best segments there can be, for LIME on designed images."""

import numpy as np
import torch
from scipy import ndimage

from assay.errors import NotApplicable
from assay.types import Batch
from assay.units.features import Features

LIKE_ONE = 5  # pixels of 224: gaps up to this wide belong to a patch


def true_patches(batch: Batch) -> Features:
    """The patches themselves as units, and the background: the best segments there can be."""
    if batch.truth is None:
        raise NotApplicable("The true patches are known where the truth is.")
    labels = []
    for truth in batch.truth.cpu().numpy():
        side = max(2, round(LIKE_ONE * truth.shape[0] / 224))
        filled = ndimage.binary_closing(np.pad(truth != 0, side), np.ones((side, side)))
        labels.append(ndimage.label(filled[side:-side, side:-side])[0])
    index = torch.from_numpy(np.stack(labels)).long().to(batch.inputs.device)
    numbers = index.flatten(1).amax(1) + 1
    count = int(numbers.max())
    exist = torch.arange(count, device=index.device) < numbers[:, None]
    return Features("true patches", batch.map_shape, count, exist, index=index)
