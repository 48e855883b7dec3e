"""Labelled images for training and measuring: in memory where they fit, or read when needed."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from assay.data.array_checks import class_numbers, row_ids
from assay.data.classes import agree
from assay.data.memory import as_dataset
from assay.data.sample_hashes import AT_A_TIME, hash_inputs
from assay.errors import InputError
from assay.progress import bar
from assay.store.data_facts import DataFacts, knowing
from assay.training.fitting import normalised
from assay.training.streaming import Inputs, StreamedInputs, in_batches, room, select_inputs
from assay.types import Batch, Dataset, Model, Preprocess, Sample
from assay.types.dataset import drawing_order
from assay.types.sample_content import contents_of

FEWEST = 8  # samples of which some can be held out


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images with labels: inputs of a network, or 8 bits per channel where they say the same."""

    name: str
    ids: tuple[str, ...]
    inputs: Inputs  # [N, C, H, W]
    labels: Tensor  # [N]
    hashes: Tensor  # [N] of the content
    pixels: str  # where the pixels come from, in words

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.ids)

    def select(self, rows: Tensor) -> "Labelled":
        """The samples at these positions."""
        ids = tuple(self.ids[row] for row in rows.tolist())
        return replace(
            self, ids=ids, inputs=select_inputs(self.inputs, rows), labels=self.labels[rows],
            hashes=self.hashes[rows],
        )  # fmt: skip

    def limited(self, limit: int | None) -> "Labelled":
        """At most so many samples: a fixed draw with as many of each class as possible."""
        if limit is None or limit >= len(self):
            return self
        rows = {name: row for row, name in enumerate(self.ids)}
        labels = dict(zip(self.ids, self.labels.tolist(), strict=True))
        drawn = drawing_order(self.ids, labels)[:limit]
        return self.select(torch.tensor([rows[name] for name in drawn]))

    def held_out(self, share: float) -> tuple["Labelled", "Labelled"]:
        """The samples to train on, and a random slice that is held out, the same in every call.

        The slice is this share of the samples, but at least ten or, of few samples, a quarter.
        Samples of it whose content is also trained on are left out.

        Raises:
            InputError: There are too few samples, or too few different ones.
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
        training = self.select(order[count:].sort().values)
        measured = self.select(order[:count].sort().values)
        apart = ~torch.isin(measured.hashes, training.hashes)
        if not bool(apart.any()):
            raise InputError(
                f"Expected different samples in `{self.name}` to hold some out, got each of the "
                f"{count} held-out samples several times. Give other samples to measure on: "
                f"`measure=(X, y)`, on the command line `--measure`."
            )
        return training, measured.select(apart.nonzero()[:, 0])

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
        parts = torch.split(torch.arange(len(self)), size)
        for rows, inputs in zip(parts, in_batches(self.inputs, parts), strict=True):
            labels = self.labels[rows].to(model.device)
            yield Batch(
                ids=tuple(self.ids[row] for row in rows.tolist()),
                inputs=normalised(model, inputs.to(model.device)),
                targets=labels,
                labels=labels,
                pixels=model.pixels,
                dataset=samples,
                prepare=model.prepare,
                contents=contents_of(inputs),
            )


def read_labelled(
    model: Model, data: object, limit: int | None = None, *, progress: bool = False
) -> Labelled:
    """Read labelled images for a model, and keep them in memory where they fit.

    Otherwise every sample is read once here, which shows that all can be, and again when needed.

    Args:
        model: The model.
        data: `(X, y)`, with X the model's inputs or pixels of 8 bits `[N, C, H, W]`, a torch
            dataset, or a `Dataset`.
        limit: At most so many samples: a fixed draw with as many of each class as possible.
        progress: Whether to show a bar.

    Raises:
        InputError: These are not labelled images.
    """
    data = data.tensors if isinstance(data, TensorDataset) else data
    if isinstance(data, tuple | list) and len(data) in (2, 3):
        pixels = _bytes(data[0])
        if pixels is not None:
            return _of_bytes(pixels, data[1]).limited(limit)
    embeds = any(isinstance(part, nn.Embedding) for part in model.net.modules())
    with knowing(DataFacts(progress=progress)):
        dataset = as_dataset(data, tokens=model.tokens is not None, embeds=embeds, groups="none")
    if dataset.modality != "image" or model.tokens is not None:
        raise InputError(
            f"Expected images in `{dataset.name}` to fine-tune without a cell of a grid, got "
            f"{dataset.modality}s. Texts and vectors have no cells."
        )
    dataset = agree(dataset, {model.name: model})
    return _read(model, dataset, dataset.drawn(limit), progress)


def _read(model: Model, dataset: Dataset, ids: tuple[str, ...], progress: bool) -> Labelled:
    """Read these samples once; they stay in memory if they fit."""
    free, widest = room(), 1
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    hashes: list[Tensor] = []
    size: tuple[int, ...] = ()
    with bar(f"reading {dataset.name}", len(ids), progress) as done:
        for part in _parts(ids):
            batch = dataset.batch(part, model.prepare, pixels=model.pixels)
            if batch.labels is None:
                raise InputError(
                    f"Expected labels for all samples of `{dataset.name}`: fine-tuning needs them. "
                    f"Give (X, y), or a folder with one subfolder of images per class."
                )
            size = tuple(batch.inputs.shape[1:])
            labels.append(batch.labels)
            hashes.append(hash_inputs(batch.inputs, model.pixels))
            small = _compact(model, batch.inputs)
            widest = max(widest, small.element_size())
            if len(ids) * math.prod(size) * widest <= free:
                inputs.append(small)
            else:
                free, inputs = 0, []
            done(len(part))
    content = torch.cat(hashes)
    if len({x.dtype for x in inputs}) > 1:
        inputs = [normalised(model, x) for x in inputs]
    return Labelled(
        dataset.name, ids,
        torch.cat(inputs) if inputs else StreamedInputs(dataset, ids, model, content, size),
        torch.cat(labels), content, _origin(dataset),
    )  # fmt: skip


def _parts(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[start : start + AT_A_TIME] for start in range(0, len(ids), AT_A_TIME)]


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
        "data", row_ids(len(pixels)), pixels, torch.tensor(numbers), hash_inputs(pixels),
        "8 bits in memory",
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
        return "tensors"
    return f"{kind} images" if kind else "images"
