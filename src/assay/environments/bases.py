"""The images that features are planted on: those of any dataset as pixels, or a blank canvas."""

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.data.memory import as_dataset
from assay.errors import InputError
from assay.plugins import registry
from assay.suite.from_options import dataset_item
from assay.types import Dataset, Pixels, Preprocess

BLANK = 0.5  # the grey of the blank canvas: both black and white are visible on it
BLANK_CANVAS = "blank"  # the fingerprint where there is no data
AS_THEY_ARE = Pixels((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


@dataclass(frozen=True)
class Base:
    """Images to plant on, some to train with and others to evaluate with.

    Attributes:
        training: Pixels in [0, 1] that the network is trained on.
        held_out: Pixels that it is not trained on.
        ids: The sample ids of the held-out images.
        fingerprint: Identifies the content of the data.
    """

    training: Tensor  # [N, 3, H, W]
    held_out: Tensor  # [M, 3, H, W]
    ids: tuple[str, ...]
    fingerprint: str

    @property
    def blank(self) -> bool:
        """Whether there is nothing but the plant."""
        return self.fingerprint == BLANK_CANVAS

    @property
    def mean(self) -> Tensor:  # [3, 1, 1]
        """The mean colour."""
        return self.training.mean((0, 2, 3))[:, None, None]


def read_base(base: object, size: int, train: int, held_out: int, seed: int) -> Base:
    """Read the images of a base and split them at random.

    Args:
        base: `blank`; a dataset as a suite writes it, its path, a `Dataset`, or `(X, y)` with
            pixels in [0, 1].
        size: Pixels a side.
        train: The largest number of images to train with.
        held_out: The number of other images to evaluate with; of a small dataset at most half.
        seed: The seed of the split.

    Raises:
        InputError: There are fewer than two images, or their size or values are not as expected.
    """
    if isinstance(base, str) and base == "blank":
        canvas = torch.full((1, 3, size, size), BLANK)
        return Base(canvas, canvas, ("blank",), BLANK_CANVAS)
    dataset = _dataset(base)
    if dataset.modality != "image" or len(dataset.ids) < 2:
        raise InputError(
            f"Expected `base` to hold at least two images, got {len(dataset.ids)} "
            f"{dataset.modality}s in `{dataset.name}`."
        )
    order = torch.randperm(len(dataset.ids), generator=torch.Generator().manual_seed(seed))
    ids = [dataset.ids[i] for i in order.tolist()]
    cut = min(held_out, len(ids) // 2)
    pixels = _pixels(dataset, ids[: cut + train], size)
    return Base(pixels[cut:], pixels[:cut], tuple(ids[:cut]), dataset.fingerprint)


def _dataset(base: object) -> Dataset:
    if isinstance(base, str):
        base = dataset_item(base)
    if not isinstance(base, str | dict):
        return as_dataset(base, "base", groups="none")
    name, options = registry.pick(base)
    plugin = registry.get("dataset", name)
    return as_dataset(plugin.function(**plugin.configure(options)), name, groups="none")


def _pixels(dataset: Dataset, ids: list[str], size: int) -> Tensor:  # [N, 3, size, size]
    images = dataset.batch(ids, Preprocess(size, AS_THEY_ARE)).inputs.float()
    if images.shape[2:] != (size, size) or images.shape[1] not in (1, 3):
        raise InputError(
            f"Expected images of {size} x {size} pixels in one or three channels, got "
            f"{tuple(images.shape[1:])} from `{dataset.name}`. Set `size`, or crop them."
        )
    if float(images.min()) < 0 or float(images.max()) > 1:
        raise InputError(
            f"Expected pixels between 0 and 1 in `{dataset.name}`, got {float(images.min()):g} to "
            f"{float(images.max()):g}. Give them before normalisation, bytes divided by 255."
        )
    return images.expand(-1, 3, -1, -1).contiguous()
