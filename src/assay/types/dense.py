"""Numbers of the user's as a tensor whose values are all there: none hidden, cast or missing."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError

KINDS = {  # of tensors that cannot be read number by number, with the cure
    "quantised": "Give `x.dequantize()`",
    "sparse": "Give `x.to_dense()`",
    "nested": "Give samples of one shape, padded, as `torch.nested.to_padded_tensor` does",
    "on the device `meta`": "It has a shape and no numbers; give the numbers",
}
LARGEST = 2**63 - 1


def dense(value: Any, what: str) -> Tensor:
    """Real numbers as a tensor on their device; a tensor's own values are shared, not copied.

    Args:
        value: A tensor, an array or nested lists.
        what: Its name in errors.

    Raises:
        InputError: It is not numbers, or numbers that would be changed without a word: complex or
            masked ones, or ones too long for a tensor.
    """
    if isinstance(value, Tensor):
        kind = _kind(value)
        if kind:
            raise InputError(f"Expected {what} as a dense tensor, got one {kind}. {KINDS[kind]}.")
        tensor = value.detach()
    else:
        tensor = _from_array(value, what)
    if tensor.is_complex():
        raise InputError(
            f"Expected {what} to be real numbers, got {tensor.dtype}. Give `x.real` or `x.abs()`."
        )
    return tensor


def _kind(tensor: Tensor) -> str:
    """Why the numbers of a tensor cannot be read; empty where they can."""
    if tensor.is_nested:
        return "nested"
    if tensor.layout != torch.strided:
        return "sparse"
    if tensor.is_quantized:
        return "quantised"
    return "on the device `meta`" if tensor.is_meta else ""


def _from_array(value: Any, what: str) -> Tensor:
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(
            f"Expected {what} without missing numbers, got a masked array: its mask would be lost. "
            f"Fill it, `x.filled(0)`, or drop the samples."
        )
    arraylike = hasattr(value, "__array__") or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes)
    )
    try:
        array = np.array(value) if arraylike else None
    except Exception:  # ragged lists, or an object's own `__array__`
        array = None
    if array is None or array.dtype.kind not in "biufc":
        got = "numbers of more than 64 bits" if _too_long(array) else _type(value, array)
        raise InputError(f"Expected {what} to be numbers, got {got}. Give a tensor or an array.")
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    if array.dtype.itemsize > 8 and array.dtype.kind == "f":
        raise InputError(
            f"Expected {what} to be numbers that torch has, got {array.dtype}. Give "
            f"`x.astype('float64')`."
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > LARGEST:
        raise InputError(f"Expected {what} to be numbers of 64 bits, got {array.max()}.")
    if array.dtype.itemsize > 16:  # complex of long doubles
        array = array.astype(np.complex128)
    return torch.from_numpy(array)


def _too_long(array: Any) -> bool:
    """Whether an array holds whole numbers that no type of NumPy has."""
    return array is not None and array.dtype == object and all(type(v) is int for v in array.flat)


def _type(value: object, array: Any) -> str:
    return type(value).__name__ if array is None else f"{array.dtype}"
