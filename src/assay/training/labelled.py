"""Labelled images in memory, read once for training and measuring."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from assay.data.classes import agree
from assay.data.memory import as_dataset, class_numbers, fingerprint_of, row_ids
from assay.errors import InputError
from assay.training.fitting import normalised
from assay.types import Batch, Dataset, Model, Preprocess, Sample
from assay.types.dataset import draw

READ = 500  # samples read at a time
FEWEST = 8  # samples of which some can be held out


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images with labels: inputs of a network, or 8 bits per channel where they say the same."""

    name: str
    ids: tuple[str, ...]
    inputs: Tensor  # [N, C, H, W]
    labels: Tensor  # [N]
    pixels: str  # where the pixels come from, in words
    fingerprint: str  # of all samples that it was read from

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.ids)

    def select(self, rows: Tensor) -> "Labelled":
        """The samples at these positions."""
        ids = tuple(self.ids[row] for row in rows.tolist())
        return replace(self, ids=ids, inputs=self.inputs[rows], labels=self.labels[rows])

    def limited(self, limit: int | None) -> "Labelled":
        """At most so many samples: a fixed draw with as many of each class as possible."""
        if limit is None or limit >= len(self):
            return self
        rows = {name: row for row, name in enumerate(self.ids)}
        labels = dict(zip(self.ids, self.labels.tolist(), strict=True))
        return self.select(torch.tensor([rows[name] for name in draw(self.ids, labels, limit)]))

    def held_out(self, share: float) -> tuple["Labelled", "Labelled"]:
        """The samples to train on, and a random slice that is held out, the same in every call.

        The slice is this share of the samples, but at least ten or, of few samples, a quarter.

        Raises:
            InputError: There are too few samples.
        """
        if len(self) < FEWEST:
            raise InputError(
                f"Expected at least {FEWEST} samples in `{self.name}` to hold some out, got "
                f"{len(self)}. Give other samples to measure on: `measure=(X, y)`, on the command "
                f"line `--measure`."
            )
        if not 0 < share < 1:
            raise InputError(f"Expected `held_out` to be a share between 0 and 1, got {share}.")
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(0))
        count = min(max(round(share * len(self)), min(10, len(self) // 4)), len(self) - 2)
        return self.select(order[count:].sort().values), self.select(order[:count].sort().values)

    def dataset(self, model: Model) -> Dataset:
        """The samples as a dataset of inputs."""
        rows = {name: row for row, name in enumerate(self.ids)}

        def fetch(sample: str) -> Sample:
            row = rows[sample]
            return Sample(normalised(model, self.inputs[row : row + 1])[0], int(self.labels[row]))

        return Dataset(self.name, "image", self.ids, fetch, fingerprint="in memory")

    def batches(self, model: Model, size: int) -> Iterator[Batch]:
        """All samples as the network takes them, on its device; labels are the targets."""
        samples = self.dataset(model)
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            labels = self.labels[rows].to(model.device)
            yield Batch(
                ids=self.ids[rows],
                inputs=normalised(model, self.inputs[rows].to(model.device)),
                targets=labels,
                labels=labels,
                pixels=model.pixels,
                dataset=samples,
                prepare=model.prepare,
            )


def read_labelled(model: Model, data: object, limit: int | None = None) -> Labelled:
    """Read labelled images for a model.

    Args:
        model: The model.
        data: `(X, y)`, with X the model's inputs or pixels of 8 bits `[N, C, H, W]`, a torch
            dataset, or a `Dataset`.
        limit: At most so many samples: a fixed draw with as many of each class as possible.

    Raises:
        InputError: These are not labelled images.
    """
    data = data.tensors if isinstance(data, TensorDataset) else data
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        pixels = _bytes(data[0])
        if pixels is not None:
            return _of_bytes(pixels, data[1]).limited(limit)
    embeds = any(isinstance(part, nn.Embedding) for part in model.net.modules())
    dataset = as_dataset(data, tokens=model.tokens is not None, embeds=embeds)
    if dataset.modality != "image" or model.tokens is not None:
        raise InputError(
            f"Expected images in `{dataset.name}` to fine-tune without a cell of a grid, got "
            f"{dataset.modality}s. Texts and vectors have no cells."
        )
    dataset = agree(dataset, {model.name: model})
    ids = dataset.drawn(limit)
    inputs, labels = [], []
    for start in range(0, len(ids), READ):
        batch = dataset.batch(ids[start : start + READ], model.prepare, pixels=model.pixels)
        if batch.labels is None:
            raise InputError(
                f"Expected labels for all samples of `{dataset.name}`: fine-tuning needs them. "
                f"Give (X, y)."
            )
        inputs.append(_compact(model, batch.inputs))
        labels.append(batch.labels)
    if len({x.dtype for x in inputs}) > 1:
        inputs = [normalised(model, x) for x in inputs]
    return Labelled(
        dataset.name, ids, torch.cat(inputs), torch.cat(labels), _origin(dataset),
        dataset.fingerprint,
    )  # fmt: skip


def _bytes(value: object) -> Tensor | None:
    """A tensor or array of 8 bits as a tensor; None for anything else."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        return torch.from_numpy(value.copy())
    return value if isinstance(value, Tensor) and value.dtype == torch.uint8 else None


def _of_bytes(pixels: Tensor, labels: object) -> Labelled:
    """Pixels of 8 bits that are in memory already."""
    if labels is None:
        raise InputError("Expected labels: fine-tuning needs them. Give (X, y).")
    if pixels.ndim != 4 or not pixels.numel():
        raise InputError(
            f"Expected pixels [samples, channels, height, width], got {tuple(pixels.shape)}. Add "
            f"the sides that are missing, such as `X[:, None]` for the channel of grey images."
        )
    numbers = class_numbers(labels, len(pixels), "data")
    return Labelled(
        "data", row_ids(len(pixels)), pixels, torch.tensor(numbers), "8 bits in memory",
        fingerprint_of(pixels.cpu(), numbers),
    )  # fmt: skip


def _compact(model: Model, inputs: Tensor) -> Tensor:
    """The inputs as 8 bits per channel where these give exactly the same inputs again."""
    if model.pixels is None or not isinstance(model.prepare, Preprocess):
        return inputs
    small = (model.pixels.to_pixels(inputs) * 255).round().to(torch.uint8)
    return small if torch.equal(normalised(model, small), inputs.to(model.dtype)) else inputs


def _origin(dataset: Dataset) -> str:
    """Where the pixels come from, in words."""
    first = dataset.fetch(dataset.ids[0]).input
    kind = getattr(first, "format", None)
    if isinstance(first, Tensor):
        return "tensors in memory"
    return f"{kind} images" if kind else "images"
