"""Samples from tensors and arrays that are model inputs, from texts and from torch datasets."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from assay.data.array_checks import (
    TOKENS_CURE,
    check_finite,
    check_truth,
    class_numbers,
    input_dtype,
    modality_of,
    own_copy,
    row_ids,
)
from assay.data.content_digest import fingerprint_of
from assay.data.grouping import Groups, with_alike, with_groups
from assay.data.near_duplicates import alike_images, alike_texts, coarse_image
from assay.data.streamed import streamed
from assay.errors import InputError
from assay.types import Dataset, Sample


def as_dataset(
    data: object,
    name: str = "data",
    *,
    tokens: bool = False,
    embeds: bool = False,
    key: str = "",
    groups: Groups | Literal["none"] | None = None,
) -> Dataset:
    """A dataset from tensors, arrays, texts or a torch dataset.

    Args:
        data: `(X, y)` or `(X, y, truth)`, tensors or arrays, with X the model's inputs `[N, ...]`,
            y the class numbers `[N]` or None, and truth one map per sample `[N, *map_shape]`; a
            map-style torch dataset of such samples, which are read once to check them and again
            when they are needed; a list of texts as X; or a `Dataset`.
        name: The dataset's name in tables.
        tokens: Whether whole numbers in X are token ids `[N, T]`.
        embeds: Whether the network has an embedding of words. Whole numbers without `tokens` are
            then refused: they are token ids, which must not become floats.
        key: What identifies a torch dataset in a suite, so that workers need not read it in full.
        groups: What must be resampled together, one label per sample or by id; by default images
            and texts that are nearly the same. `none`: no samples.

    Raises:
        InputError: The data is none of these, empty, or cannot be a model's input.
    """
    dataset = _as_dataset(data, name, tokens, embeds, key, search=groups is None)
    return dataset if groups is None or groups == "none" else with_groups(dataset, groups)


def _as_dataset(
    data: object, name: str, tokens: bool, embeds: bool, key: str, search: bool
) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, TensorDataset):
        data = data.tensors
    elif isinstance(data, TorchDataset):
        return streamed(data, name, tokens=tokens, embeds=embeds, key=key, search=search)
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
        texts = list(data[0])
        dataset = of_texts(texts, data[1], name)
        return with_alike(dataset, alike_texts(texts)) if search else dataset
    inputs = _inputs(data[0], name, tokens, embeds)  # [N, ...]
    ids = row_ids(len(inputs))
    check_finite(inputs, f"X of `{name}`", ids)
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
    dataset = Dataset(
        name=name,
        modality=modality_of(inputs.ndim, tokens),
        ids=ids,
        fetch=fetch,
        fingerprint=fingerprint_of(inputs, labels, truth),
        has=frozenset(what for what, value in known.items() if value is not None),
        labels={} if labels is None else dict(zip(ids, labels, strict=True)),
    )
    if not search or dataset.modality != "image":
        return dataset
    return with_alike(dataset, alike_images([coarse_image(x) for x in inputs], inputs.__getitem__))


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


def _inputs(value: object, name: str, tokens: bool, embeds: bool) -> Tensor:
    """A copy of X as floats: a later change of X changes neither scores nor hash."""
    if isinstance(value, Mapping):
        raise InputError(
            f"Expected X of `{name}` to be one tensor, got {type(value).__name__} of "
            f"{', '.join(map(str, value))}. {TOKENS_CURE}: the attention mask is made from `pad`."
        )
    tensor = own_copy(value, f"X of `{name}`")
    kind = input_dtype(tensor, name, tokens=tokens, embeds=embeds)
    intended = tokens or isinstance(value, Tensor)  # such as float64
    return tensor.to(kind if intended else torch.float32)


def _truth(value: object, inputs: Tensor, name: str, ids: Sequence[str]) -> Tensor:
    truth = own_copy(value, f"truth of `{name}`").float()
    check_truth(truth.shape, inputs.shape, name)
    check_finite(truth, f"truth of `{name}`", ids)
    return truth
