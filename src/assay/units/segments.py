"""Segments: regions of similar pixels, computed by scikit-image; each image has its own."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from importlib import metadata

import numpy as np
import torch

from assay.errors import NotApplicable, PrerequisiteError
from assay.plugins.option_types import Count, NonNegative, Positive
from assay.plugins.registry import identity, units
from assay.store import Array
from assay.types import Batch
from assay.units.features import Features

# Cache of recent segmentations: many protocols and methods segment the same images.
_CACHE: OrderedDict[str, Array] = OrderedDict()
_MOST = 256


@units("slic", title="Segments, SLIC")
def slic(batch: Batch, *, n_segments: Count = 50, compactness: Positive = 10.0) -> Features:
    """About `n_segments` compact segments: k-means over colour and position (achanta2012)."""
    return _segments(batch, "slic", n_segments=n_segments, compactness=compactness)


@units("quickshift", title="Segments, quickshift")
def quickshift(
    batch: Batch,
    *,
    kernel_size: Positive = 5.0,
    max_dist: Positive = 10.0,
    ratio: NonNegative = 1.0,
) -> Features:
    """Modes of the density over colour and position (vedaldi2008), the segments that LIME uses."""
    return _segments(batch, "quickshift", kernel_size=kernel_size, max_dist=max_dist, ratio=ratio)


@units("felzenszwalb", title="Segments, Felzenszwalb")
def felzenszwalb(
    batch: Batch, *, scale: Positive = 100.0, sigma: NonNegative = 0.8, min_size: Count = 20
) -> Features:
    """Regions of a minimum spanning tree cut where colours change (felzenszwalb2004)."""
    return _segments(batch, "felzenszwalb", scale=scale, sigma=sigma, min_size=min_size)


def _segments(batch: Batch, name: str, **options: float) -> Features:
    segment, version = _algorithm(name)
    pictures = _pictures(batch)
    settings = ",".join(f"{option}={value!r}" for option, value in options.items())
    key = f"{name}({settings};scikit-image {version})"
    labels = [_once(key, picture, lambda p: segment(p, **options)) for picture in pictures]
    device = batch.inputs.device
    numbers = torch.tensor([int(label.max()) + 1 for label in labels], device=device)
    count = int(numbers.max())
    return Features(
        key,
        batch.map_shape,
        count,
        torch.arange(count, device=device) < numbers[:, None],
        index=torch.from_numpy(np.stack(labels)).long().to(device),
    )


def _algorithm(name: str) -> tuple[Callable[..., Array], str]:
    try:
        from skimage import segmentation
    except ImportError:
        raise PrerequisiteError(
            f"Units `{name}` need scikit-image, which is not installed. "
            f'Run `pip install "assay[segments]"`.'
        ) from None
    return getattr(segmentation, name), metadata.version("scikit-image")


def _pictures(batch: Batch) -> Array:  # [B, H, W, 3] in [0, 1]
    """The images in pixels; where the normalisation is unknown, scaled from darkest to brightest.

    Always on the CPU in double precision: a borderline pixel must not depend on the device.
    """
    if batch.inputs.ndim != 4 or batch.inputs.shape[1] not in (1, 3):
        raise NotApplicable(
            f"Segments are for grey or colour images only; one input here has shape "
            f"{tuple(batch.inputs.shape[1:])}."
        )
    inputs = batch.inputs.detach().cpu().double()
    if batch.pixels is not None:
        pixels = batch.pixels.to_pixels(inputs)
    else:
        low, high = inputs.flatten(1).aminmax(dim=1)
        span = torch.where(high > low, high - low, 1.0)
        pixels = (inputs - low.reshape(-1, 1, 1, 1)) / span.reshape(-1, 1, 1, 1)
    colour = pixels.expand(-1, 3, -1, -1).permute(0, 2, 3, 1)
    return np.ascontiguousarray(colour.numpy())


def _once(key: str, picture: Array, segment: Callable[[Array], Array]) -> Array:  # [H, W]
    """The labels 0, 1, ... of one picture, cached."""
    content = hashlib.sha256(picture.tobytes()).hexdigest()
    question = identity([key, picture.shape, content])
    if question not in _CACHE:
        raw = segment(picture)
        labels = np.unique(raw, return_inverse=True)[1].reshape(raw.shape)
        _CACHE[question] = labels.astype(np.int32)
        while len(_CACHE) > _MOST:
            _CACHE.popitem(last=False)
    _CACHE.move_to_end(question)
    return _CACHE[question]
