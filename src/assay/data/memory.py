"""Samples in memory: tensors and arrays that are model inputs, texts, map-style torch datasets."""

import hashlib
from collections.abc import Mapping, Sequence, Sized
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from assay.errors import InputError
from assay.types import Dataset, Sample
from assay.types.dense import dense

MOST_CLASSES = 10_000_000  # a larger class number is a mistake, such as an id
TensorOrArray = Tensor | npt.NDArray[np.generic] | np.generic
TOKENS_CURE = "Give token ids and `assay.model(net, tokens=assay.Tokens(pad=...))`"


def as_dataset(
    data: object, name: str = "data", *, tokens: bool = False, embeds: bool = False
) -> Dataset:
    """A dataset from tensors, arrays, texts or a torch dataset.

    Args:
        data: `(X, y)` or `(X, y, truth)`, tensors or arrays, with X the model's inputs `[N, ...]`,
            y the class numbers `[N]` or None, and truth one map per sample `[N, *map_shape]`; a
            map-style torch dataset of such samples, which is read once in full; a list of texts
            as X; or a `Dataset`.
        name: The dataset's name in tables.
        tokens: Whether whole numbers in X are token ids `[N, T]`.
        embeds: Whether the network has an embedding of words. Whole numbers without `tokens` are
            then refused: they are token ids, which must not become floats.

    Raises:
        InputError: The data is none of these, empty, or cannot be a model's input.
    """
    if isinstance(data, Dataset):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    elif isinstance(data, TorchDataset):
        data = _read(data, name)
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        got = type(data).__name__
        if isinstance(data, tuple | list):
            got += f" of {len(data)}"
        if isinstance(data, DataLoader):
            raise InputError(
                f"Expected `{name}` to be samples one by one, got a DataLoader of batches. Give "
                f"its dataset, `loader.dataset`."
            )
        if isinstance(getattr(data, "dataset", None), Dataset):  # an `Environment`
            raise InputError(
                f"Expected the samples of {data!r}, got the environment itself. Give "
                f"`env.model, env.dataset`."
            )
        raise InputError(
            f"Expected `{name}` to be (X, y), (X, y, truth), a torch dataset or an "
            f"`assay.types.Dataset`, got {got}. Without labels, give (X, None)."
        )
    if _texts(data[0]):
        return of_texts(list(data[0]), data[1], name)
    inputs = _inputs(data[0], name, tokens, embeds)  # [N, ...]
    ids = row_ids(len(inputs))
    _check_finite(inputs, f"X of `{name}`", ids)
    labels = None if data[1] is None else class_numbers(data[1], len(inputs), name)
    truth = None if len(data) == 2 or data[2] is None else _truth(data[2], inputs, name, ids)

    def fetch(sample: str) -> Sample:
        row = int(sample)
        return Sample(
            input=inputs[row].clone(),  # who reads it may change it
            label=None if labels is None else labels[row],
            truth=None if truth is None else truth[row].clone(),
        )

    known = {"labels": labels, "truth": truth}
    return Dataset(
        name=name,
        modality="image" if inputs.ndim == 4 else "text" if tokens else "vector",
        ids=ids,
        fetch=fetch,
        fingerprint=fingerprint_of(inputs, labels, truth),
        has=frozenset(what for what, value in known.items() if value is not None),
        labels={} if labels is None else dict(zip(ids, labels, strict=True)),
    )


def of_texts(texts: list[str], labels: object, name: str) -> Dataset:
    """A dataset of texts; `labels` are class numbers, or None."""
    ids = row_ids(len(texts))
    known = None if labels is None else class_numbers(labels, len(texts), name)
    by_id = dict(zip(ids, texts, strict=True))
    labelled = {} if known is None else dict(zip(ids, known, strict=True))
    digest = hashlib.sha256("\0".join(texts).encode())
    digest.update(str(known).encode())
    return Dataset(
        name=name,
        modality="text",
        ids=ids,
        fetch=lambda sample: Sample(by_id[sample], labelled.get(sample)),
        fingerprint=digest.hexdigest(),
        has=frozenset() if known is None else frozenset({"labels"}),
        labels=labelled,
    )


def _texts(value: object) -> bool:
    return (
        isinstance(value, list | tuple) and bool(value) and all(isinstance(t, str) for t in value)
    )


def row_ids(n: int) -> tuple[str, ...]:
    """Row numbers as ids, padded to one length so that they sort by number."""
    width = max(4, len(str(n - 1)))
    return tuple(f"{row:0{width}d}" for row in range(n))


def _read(
    data: TorchDataset[object], name: str
) -> tuple[Tensor, list[object] | None, Tensor | None]:
    """All samples of a torch dataset, stacked."""
    if not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        raise InputError(
            f"Expected the torch dataset `{name}` to have a length and samples by number, got "
            f"{type(data).__name__}. Give a map-style dataset, or (X, y)."
        )
    rows = [_row(data[i], i, name) for i in range(len(data))]
    if not rows:
        raise InputError(f"Expected dataset `{name}` to hold samples, got none.")
    for i, row in enumerate(rows):
        for what, one, first in (("sample", row[0], rows[0][0]), ("truth", row[2], rows[0][2])):
            if (one is None) != (first is None) or (
                one is not None and first is not None and one.shape != first.shape
            ):
                raise InputError(
                    f"Expected every {what} of `{name}` to have one shape, got {_shape(first)} "
                    f"at 0 and {_shape(one)} at {i}."
                )
    inputs, labels, truths = zip(*rows, strict=True)
    return (
        torch.stack(inputs),
        None if all(label is None for label in labels) else list(labels),
        None if truths[0] is None else torch.stack(truths),
    )


def _row(row: object, number: int, name: str) -> tuple[Tensor, object, Tensor | None]:
    if not isinstance(row, tuple | list) or len(row) not in (2, 3) or not _is_array(row[0]):
        got = type(row).__name__
        if isinstance(row, tuple | list):
            got = f"({', '.join(type(part).__name__ for part in row)})"
        raise InputError(
            f"Expected sample {number} of `{name}` to be (tensor, label), got {got}. Add the "
            f"transform that makes the model's inputs to the dataset."
        )
    label = row[1]
    if _is_array(label) and torch.as_tensor(label).numel() == 1:
        label = label.item()
    truth = torch.as_tensor(row[2]) if len(row) == 3 and row[2] is not None else None
    return torch.as_tensor(row[0]), label, truth


def _is_array(value: object) -> TypeGuard[TensorOrArray]:
    return isinstance(value, Tensor | np.ndarray | np.generic)


def _shape(value: Tensor | None) -> str:
    return "none" if value is None else str(tuple(value.shape))


def _inputs(value: object, name: str, tokens: bool, embeds: bool) -> Tensor:
    """A copy of X as floats: a later change of X changes neither scores nor hash."""
    if isinstance(value, Mapping):
        raise InputError(
            f"Expected X of `{name}` to be one tensor, got {type(value).__name__} of "
            f"{', '.join(map(str, value))}. {TOKENS_CURE}: the attention mask is made from `pad`."
        )
    tensor = _tensor(value, f"X of `{name}`")
    if tokens:
        if tensor.is_floating_point() or tensor.ndim != 2:
            raise InputError(
                f"Expected X of `{name}` to be token ids [samples, tokens], whole numbers, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}. Pad to one length."
            )
        return tensor.long()
    if embeds and tensor.ndim == 2 and not tensor.is_floating_point():
        raise InputError(
            f"X of `{name}` looks like token ids: {tensor.dtype} of shape {tuple(tensor.shape)} "
            f"for a network with an nn.Embedding. {TOKENS_CURE}, or `X.float()` where they are "
            f"not ids."
        )
    if tensor.dtype == torch.uint8:
        raise InputError(
            f"Expected X of `{name}` to be model inputs, got uint8. Give floats, normalised as "
            f"the model expects them, such as `(X / 255 - mean) / std`."
        )
    if tensor.ndim < 2:
        raise InputError(
            f"Expected X of `{name}` to have a shape [samples, ...], got {tuple(tensor.shape)}."
        )
    if not tensor.numel():
        raise InputError(
            f"Expected dataset `{name}` to hold samples, got none: X has the shape "
            f"{tuple(tensor.shape)}."
        )
    intended = isinstance(value, Tensor) and tensor.is_floating_point()  # such as float64
    return tensor if intended else tensor.float()


def _tensor(value: object, what: str) -> Tensor:
    """A copy on the CPU."""
    tensor = dense(value, what).cpu()
    return tensor.clone() if isinstance(value, Tensor) else tensor


def _check_finite(values: Tensor, what: str, ids: Sequence[str]) -> None:
    bad = (~torch.isfinite(values)).flatten(1).any(1).nonzero().flatten().tolist()
    if bad:
        first = ", ".join(f"`{ids[row]}`" for row in bad[:5])
        raise InputError(
            f"Expected {what} to be finite, got NaN or inf in {len(bad)} of {len(values)} samples, "
            f"first {first}. Repair or drop them."
        )


def class_numbers(value: object, n: int, name: str) -> list[int]:
    """The labels of n samples.

    Raises:
        InputError: They are not one whole number from 0 on for each sample.
    """
    if isinstance(value, Sequence) and any(label is None for label in value):
        raise InputError(f"Expected y of `{name}` to be class numbers for all samples or None.")
    tensor = _tensor(value, f"y of `{name}`")
    if tensor.ndim != 1 or len(tensor) != n:
        raise InputError(
            f"Expected y of `{name}` to hold one class number for each of the {n} samples of X, "
            f"got the shape {tuple(tensor.shape)}."
        )
    if tensor.is_floating_point():
        raise InputError(
            f"Expected y of `{name}` to be whole class numbers, got {tensor.dtype}. "
            f"Give `y.long()`, or None where there are no classes."
        )
    labels: list[int] = tensor.long().tolist()
    if max(labels) > MOST_CLASSES:
        row = labels.index(max(labels))
        raise InputError(
            f"Expected y of `{name}` to be class numbers of at most {MOST_CLASSES:,}, got "
            f"{labels[row]} for sample `{row_ids(n)[row]}`."
        )
    if min(labels) < 0:
        row = next(i for i, label in enumerate(labels) if label < 0)
        raise InputError(
            f"Expected y of `{name}` to count classes from 0, got {labels[row]} for sample "
            f"`{row_ids(n)[row]}`. Drop unlabelled samples, or give None for y."
        )
    return labels


def _truth(value: object, inputs: Tensor, name: str, ids: Sequence[str]) -> Tensor:
    truth = _tensor(value, f"truth of `{name}`").float()
    shape = inputs.shape[1:] if inputs.ndim == 2 else inputs.shape[2:]
    expected = (len(inputs), *shape)
    if tuple(truth.shape) != expected:
        raise InputError(
            f"Expected truth of `{name}` to have the shape {expected}, one map per sample without "
            f"channels, got {tuple(truth.shape)}."
        )
    _check_finite(truth, f"truth of `{name}`", ids)
    return truth


def fingerprint_of(inputs: Tensor, labels: list[int] | None, truth: Tensor | None = None) -> str:
    """The hash of samples in memory."""
    digest = hashlib.sha256()
    known = None if labels is None else torch.tensor(labels)
    for part in (inputs, known, truth):
        if part is None:
            digest.update(b"none")
            continue
        digest.update(f"{part.dtype}{tuple(part.shape)}".encode())
        digest.update(part.contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
