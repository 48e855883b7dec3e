"""The fingerprint of samples that are tensors, computed at once or sample by sample."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor


class ContentDigest:
    """The SHA-256 of inputs, labels and truth, which are added in this order."""

    def __init__(self) -> None:
        """Begin; nothing is added yet."""
        self._digest = hashlib.sha256()

    def begin(self, dtype: torch.dtype, shape: Sequence[int]) -> None:
        """Begin a part by its type and shape; its rows are added one after the other."""
        self._digest.update(f"{dtype}{tuple(shape)}".encode())

    def add(self, rows: Tensor) -> None:
        """Add rows of the part that was begun."""
        self._digest.update(raw_bytes(rows))

    def add_part(self, part: Tensor | None) -> None:
        """Add a whole part, or that there is none."""
        if part is None:
            self._digest.update(b"none")
            return
        self.begin(part.dtype, part.shape)
        self.add(part)

    def add_labels(self, labels: list[int] | None) -> None:
        """Add the labels, or that there are none."""
        self.add_part(None if labels is None else torch.tensor(labels))

    @property
    def fingerprint(self) -> str:
        """The hash of what was added."""
        return self._digest.hexdigest()


def fingerprint_of(inputs: Tensor, labels: list[int] | None, truth: Tensor | None = None) -> str:
    """The hash of samples in memory."""
    digest = ContentDigest()
    digest.add_part(inputs)
    digest.add_labels(labels)
    digest.add_part(truth)
    return digest.fingerprint


def raw_bytes(values: Tensor) -> memoryview:
    """The bytes of a tensor on the CPU."""
    raw: memoryview = values.contiguous().flatten().view(torch.uint8).numpy().data
    return raw
