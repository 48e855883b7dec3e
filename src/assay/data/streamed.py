"""Samples of map-style torch datasets: read once to check them, and again when they are needed."""

import hashlib
from array import array
from collections.abc import Callable, Sequence, Sized
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from assay.data.array_checks import (
    check_truth,
    class_numbers,
    input_dtype,
    is_array,
    modality_of,
    refuse_infinite,
    row_ids,
)
from assay.data.content_digest import ContentDigest, raw_bytes
from assay.data.grouping import with_alike
from assay.data.near_duplicates import alike_images, coarse_image
from assay.errors import InputError
from assay.progress import slow_bar
from assay.store.data_facts import data_facts
from assay.types import Dataset, Sample
from assay.types.dense import dense

HASH_BYTES = 8  # of the hash by which a sample is known again


@dataclass(frozen=True)
class Row:
    """One sample of a torch dataset as it gives it."""

    input: Tensor
    label: object
    truth: Tensor | None


@dataclass(frozen=True)
class SampleLayout:
    """The type and shape of inputs and truth, equal for all samples."""

    dtype: torch.dtype  # of all samples stacked
    kept: torch.dtype  # that the model is given
    shape: torch.Size
    truth: torch.Size | None

    def sample(self, row: Row) -> tuple[Tensor, Tensor | None]:
        """Copies of input and truth as they are kept: the dataset may fill its tensors anew."""
        truth = None if row.truth is None else row.truth.to(torch.float32, copy=True)
        return row.input.to(self.dtype).to(self.kept, copy=True), truth

    def fits(self, row: Row) -> bool:
        """Whether a sample has the shapes of the others."""
        return (row.input.shape, _shape_of(row.truth)) == (self.shape, self.truth)


@dataclass
class FirstReading:
    """What is kept of all samples while they are read for the first time."""

    layout: SampleLayout
    digest: ContentDigest = field(default_factory=ContentDigest)  # of all inputs
    hashes: "array[int]" = field(default_factory=lambda: array("Q"))  # one per sample
    labels: list[object] = field(default_factory=list)
    coarse: list[Tensor] = field(default_factory=list)  # images, to find those that are alike
    infinite: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))

    def add(self, row: Row, number: int) -> None:
        """Take in the next sample."""
        sample, truth = self.layout.sample(row)
        for part, rows in zip((sample, truth), self.infinite, strict=True):
            if part is not None and not bool(torch.isfinite(part).all()):
                rows.append(number)
        self.digest.add(sample)
        self.hashes.append(_hash(sample, truth))
        self.labels.append(row.label)
        if sample.ndim == 3:
            self.coarse.append(coarse_image(sample))


@dataclass(frozen=True)
class KnownSamples:
    """What is known of all samples of a torch dataset after they were read once."""

    layout: SampleLayout
    labels: list[int] | None
    hashes: "array[int]"
    fingerprint: str
    alike: Sequence[int] = ()  # for each image, the first that is nearly the same


def streamed(
    data: TorchDataset[object],
    name: str,
    *,
    tokens: bool = False,
    embeds: bool = False,
    key: str = "",
    search: bool = False,
) -> Dataset:
    """A dataset that reads samples of a map-style torch dataset when they are needed.

    All samples are read once, one by one, to check them and to compute the fingerprint, which is
    that of the same samples in memory. Of each only its label and a hash are kept. The hash is
    compared whenever the sample is read again.

    Args:
        data: The torch dataset.
        name: Its name in tables.
        tokens: Whether whole numbers are token ids.
        embeds: Whether the network has an embedding of words.
        key: What identifies the dataset in a suite, so that one process reads for all of a run.
        search: Whether to put images that are nearly the same into groups.

    Raises:
        InputError: There are no samples by number, or they cannot be inputs of a model.
    """
    source, readings = _Source(data, name), data_facts().readings
    known = readings.get(key)
    if not isinstance(known, KnownSamples) or len(known.hashes) != len(source):
        known = _read_once(source, tokens, embeds)
        if key:
            readings[key] = known
    rows, ids, labels = _KnownRows(source, known), row_ids(len(source)), known.labels
    has = {"labels": labels, "truth": known.layout.truth}
    dataset = Dataset(
        name=name,
        modality=modality_of(1 + len(known.layout.shape), tokens),
        ids=ids,
        fetch=lambda sample: rows.sample(int(sample)),
        fingerprint=known.fingerprint,
        has=frozenset(what for what, value in has.items() if value is not None),
        labels={} if labels is None else dict(zip(ids, labels, strict=True)),
    )
    return with_alike(dataset, known.alike) if search and known.alike else dataset


def _read_once(source: "_Source", tokens: bool, embeds: bool) -> KnownSamples:
    """Check all samples and compute their fingerprint."""
    first, name, ids = source.read_all(tokens, embeds), source.name, row_ids(len(source))
    layout, digest = first.layout, first.digest
    refuse_infinite(first.infinite[0], f"X of `{name}`", ids)
    unlabelled = all(label is None for label in first.labels)
    labels = None if unlabelled else class_numbers(first.labels, len(ids), name)
    if layout.truth is not None:
        check_truth((len(ids), *layout.truth), (len(ids), *layout.shape), name)
        refuse_infinite(first.infinite[1], f"truth of `{name}`", ids)
    digest.add_labels(labels)
    known = KnownSamples(layout, labels, first.hashes, "")
    rows = _KnownRows(source, known)
    if layout.truth is None:
        digest.add_part(None)
    else:  # in the fingerprint truth follows all inputs; it may fill the memory: it is read again
        digest.begin(torch.float32, (len(ids), *layout.truth))
        with source.bar("reading the truth of") as done:
            for number in range(len(source)):
                _, truth = rows.read(number)
                if truth is not None:
                    digest.add(truth)
                done(1)
    alike = alike_images(first.coarse, lambda number: rows.read(number)[0])
    return replace(known, fingerprint=digest.fingerprint, alike=alike)


class _Source:
    """The samples of a torch dataset by number."""

    def __init__(self, data: TorchDataset[object], name: str) -> None:
        """Check that there are samples by number; none is read yet."""
        if not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
            raise InputError(
                f"Expected the torch dataset `{name}` to have a length and samples by number, got "
                f"{type(data).__name__}. Give a map-style dataset, or (X, y)."
            )
        self.data, self.name, self.length = data, name, len(data)
        if not self.length:
            raise InputError(f"Expected dataset `{name}` to hold samples, got none.")

    def __len__(self) -> int:
        return self.length

    def bar(self, what: str) -> AbstractContextManager[Callable[[int], None]]:
        """A bar of all samples, where reading them takes long."""
        return slow_bar(f"{what} {self.name}", self.length, data_facts().progress)

    def row(self, number: int) -> Row:
        """One sample, checked by itself."""
        row = self.data[number]
        if not isinstance(row, tuple | list) or len(row) not in (2, 3) or not is_array(row[0]):
            got = type(row).__name__
            if isinstance(row, tuple | list):
                got = f"({', '.join(type(part).__name__ for part in row)})"
            raise InputError(
                f"Expected sample {number} of `{self.name}` to be (tensor, label), got {got}. Add "
                f"the transform that makes the model's inputs to the dataset."
            )
        label = row[1]
        if is_array(label) and torch.as_tensor(label).numel() == 1:
            label = label.item()
        truth = None
        if len(row) == 3 and row[2] is not None:
            truth = dense(torch.as_tensor(row[2]), f"truth of `{self.name}`").cpu()
        return Row(dense(torch.as_tensor(row[0]), f"X of `{self.name}`").cpu(), label, truth)

    def read_all(self, tokens: bool, embeds: bool) -> FirstReading:
        """Read all samples one by one."""
        dtype: torch.dtype | None = None
        while True:
            with self.bar("reading") as done:
                reading, dtype = self._try_reading(dtype, tokens, embeds, done)
            if reading is not None:
                return reading

    def _try_reading(
        self,
        dtype: torch.dtype | None,
        tokens: bool,
        embeds: bool,
        done: Callable[[int], None],
    ) -> tuple[FirstReading | None, torch.dtype | None]:
        """Read all samples as if stacked in this type; None where one needs a wider type."""
        reading: FirstReading | None = None
        for number in range(self.length):
            row = self.row(number)
            if reading is None:
                dtype = dtype or row.input.dtype
                reading = FirstReading(self._layout(row, dtype, tokens, embeds))
                reading.digest.begin(reading.layout.kept, (self.length, *row.input.shape))
            self._check_shapes(row, number, reading.layout)
            if row.input.dtype != dtype:
                wider = torch.promote_types(row.input.dtype, reading.layout.dtype)
                if wider != dtype:
                    return None, wider
            reading.add(row, number)
            done(1)
        return reading, dtype

    def _layout(self, row: Row, dtype: torch.dtype, tokens: bool, embeds: bool) -> SampleLayout:
        stacked = row.input.to(dtype)[None].expand(self.length, *row.input.shape)
        kept = input_dtype(stacked, self.name, tokens=tokens, embeds=embeds)
        return SampleLayout(dtype, kept, row.input.shape, _shape_of(row.truth))

    def _check_shapes(self, row: Row, number: int, first: SampleLayout) -> None:
        pairs = (
            ("sample", row.input.shape, first.shape),
            ("truth", _shape_of(row.truth), first.truth),
        )
        for what, shape, expected in pairs:
            if shape != expected:
                raise InputError(
                    f"Expected every {what} of `{self.name}` to have one shape, got "
                    f"{_words(expected)} at 0 and {_words(shape)} at {number}."
                )


class _KnownRows:
    """The samples of a torch dataset, each compared with what it was when it was first read."""

    def __init__(self, source: _Source, known: KnownSamples) -> None:
        """Set the samples and what is known of them."""
        self.source, self.known = source, known

    def sample(self, number: int) -> Sample:
        """One sample."""
        inputs, truth = self.read(number)
        return Sample(inputs, self._label(number), truth)

    def read(self, number: int) -> tuple[Tensor, Tensor | None]:
        """Input and truth of one sample.

        Raises:
            InputError: They or the label are not what they were.
        """
        row, layout = self.source.row(number), self.known.layout
        if layout.fits(row) and not is_array(row.label) and row.label == self._label(number):
            inputs, truth = layout.sample(row)
            if _hash(inputs, truth) == self.known.hashes[number]:
                return inputs, truth
        raise InputError(
            f"Expected sample `{row_ids(len(self.source))[number]}` of `{self.source.name}` to be "
            f"the same whenever it is read, got other content than at first. Give the torch "
            f"dataset a deterministic transform, without random augmentation."
        )

    def _label(self, number: int) -> int | None:
        return None if self.known.labels is None else self.known.labels[number]


def _shape_of(value: Tensor | None) -> torch.Size | None:
    return None if value is None else value.shape


def _words(shape: torch.Size | None) -> str:
    return "none" if shape is None else str(tuple(shape))


def _hash(sample: Tensor, truth: Tensor | None) -> int:
    digest = hashlib.blake2b(raw_bytes(sample), digest_size=HASH_BYTES)
    if truth is not None:
        digest.update(raw_bytes(truth))
    return int.from_bytes(digest.digest(), "little")
