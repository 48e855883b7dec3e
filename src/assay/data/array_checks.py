"""Checks of tensors and arrays that are samples: type, shape, finite numbers, labels."""

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from assay.errors import InputError
from assay.types.dense import dense

MOST_CLASSES = 10_000_000  # a larger class number is a mistake, such as an id
TensorOrArray = Tensor | npt.NDArray[np.generic] | np.generic
TOKENS_CURE = "Give token ids and `assay.model(net, tokens=assay.Tokens(pad=...))`"


def row_ids(n: int) -> tuple[str, ...]:
    """Row numbers as ids, padded to one length so that they sort by number."""
    width = max(4, len(str(n - 1)))
    return tuple(f"{row:0{width}d}" for row in range(n))


def is_array(value: object) -> TypeGuard[TensorOrArray]:
    """Whether a value is a tensor, an array or one number of an array."""
    return isinstance(value, Tensor | np.ndarray | np.generic)


def own_copy(value: object, what: str) -> Tensor:
    """A copy on the CPU."""
    tensor = dense(value, what).cpu()
    return tensor.clone() if isinstance(value, Tensor) else tensor


def check_finite(values: Tensor, what: str, ids: Sequence[str]) -> None:  # [N, ...]
    """Refuse samples with NaN or inf.

    Raises:
        InputError: There are some.
    """
    bad = (~torch.isfinite(values)).flatten(1).any(1).nonzero().flatten().tolist()
    refuse_infinite(bad, what, ids)


def refuse_infinite(rows: Sequence[int], what: str, ids: Sequence[str]) -> None:
    """Report the rows of samples with NaN or inf, if there are any.

    Raises:
        InputError: There are some.
    """
    if rows:
        first = ", ".join(f"`{ids[row]}`" for row in rows[:5])
        raise InputError(
            f"Expected {what} to be finite, got NaN or inf in {len(rows)} of {len(ids)} samples, "
            f"first {first}. Repair or drop them."
        )


def input_dtype(inputs: Tensor, name: str, *, tokens: bool, embeds: bool) -> torch.dtype:
    """The type that inputs X `[N, ...]` are kept in: `int64` for token ids, else floats.

    Raises:
        InputError: These cannot be inputs of a model.
    """
    if tokens:
        if inputs.is_floating_point() or inputs.ndim != 2:
            raise InputError(
                f"Expected X of `{name}` to be token ids [samples, tokens], whole numbers, got "
                f"{inputs.dtype} of shape {tuple(inputs.shape)}. Pad to one length."
            )
        return torch.int64
    if embeds and inputs.ndim == 2 and not inputs.is_floating_point():
        raise InputError(
            f"X of `{name}` looks like token ids: {inputs.dtype} of shape {tuple(inputs.shape)} "
            f"for a network with an nn.Embedding. {TOKENS_CURE}, or `X.float()` where they are "
            f"not ids."
        )
    if inputs.dtype == torch.uint8:
        raise InputError(
            f"Expected X of `{name}` to be model inputs, got uint8. Give floats, normalised as "
            f"the model expects them, such as `(X / 255 - mean) / std`."
        )
    if inputs.ndim < 2:
        raise InputError(
            f"Expected X of `{name}` to have a shape [samples, ...], got {tuple(inputs.shape)}."
        )
    if not inputs.numel():
        raise InputError(
            f"Expected dataset `{name}` to hold samples, got none: X has the shape "
            f"{tuple(inputs.shape)}."
        )
    return inputs.dtype if inputs.is_floating_point() else torch.float32


def check_truth(truth: Sequence[int], inputs: Sequence[int], name: str) -> None:
    """Refuse truth that is not one map per sample, by its shape and that of the inputs.

    Raises:
        InputError: The shape is another one.
    """
    expected = (inputs[0], *(inputs[1:] if len(inputs) == 2 else inputs[2:]))
    if tuple(truth) != expected:
        raise InputError(
            f"Expected truth of `{name}` to have the shape {expected}, one map per sample without "
            f"channels, got {tuple(truth)}."
        )


def modality_of(dimensions: int, tokens: bool) -> str:
    """What inputs of so many dimensions are, that of the samples included."""
    return "image" if dimensions == 4 else "text" if tokens else "vector"


def class_numbers(value: object, n: int, name: str) -> list[int]:
    """The labels of n samples.

    Raises:
        InputError: They are not one whole number from 0 on for each sample.
    """
    if isinstance(value, Sequence) and any(label is None for label in value):
        raise InputError(f"Expected y of `{name}` to be class numbers for all samples or None.")
    tensor = own_copy(value, f"y of `{name}`")
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
