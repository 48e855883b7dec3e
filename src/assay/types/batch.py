"""A batch of samples to be explained and scored, and the source of all random numbers."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.types.painted import Parts
from assay.types.pixels import Pixels, Preprocess
from assay.types.tokens import Tokenize, Tokens

Prepare = Preprocess | Tokenize  # how a model turns an image or a text into its input
MANY = 2**20  # from this many random numbers on, several threads are faster


class Source(Protocol):
    """The part of a dataset's interface that a batch needs."""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all samples."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the content."""
        ...

    @property
    def has(self) -> frozenset[str]:
        """What is known about the samples: labels, truth, ..."""
        ...

    @property
    def groups(self) -> Mapping[str, str]:
        """The group of each sample that shares one with others."""
        ...

    @property
    def parts(self) -> Parts | None:
        """The parts that images are painted from; None for other images."""
        ...

    @property
    def reference_order(self) -> tuple[str, ...]:
        """All ids in a fixed order."""
        ...

    def partner(self, sample: str) -> str:
        """Another sample, of another group if there is one."""
        ...

    def batch(
        self,
        ids: Sequence[str],
        prepare: Prepare | None = None,
        *,
        seed: int = 0,
        pixels: Pixels | None = None,
        tokens: Tokens | None = None,
    ) -> "Batch":
        """Read these samples."""
        ...


@dataclass(frozen=True)
class Batch:
    """A batch of samples: `targets` are the explained classes, `labels` the correct ones."""

    ids: tuple[str, ...]
    inputs: Tensor  # [B, C, H, W] images, [B, D] vectors, [B, T] token ids
    targets: Tensor  # [B]
    labels: Tensor | None = None  # [B]
    truth: Tensor | None = None  # [B, *map_shape]
    baseline: Tensor | None = None  # like inputs: the input without information, where known
    groups: tuple[str, ...] | None = None  # samples of a group are resampled together
    seed: int = 0
    pixels: Pixels | None = None
    tokens: Tokens | None = None
    dataset: "Source | None" = field(default=None, repr=False, compare=False)
    prepare: Prepare | None = field(default=None, repr=False, compare=False)
    noise: Tensor | None = None  # [B, ...]: added where gradients are taken, for noisy copies
    # Cache of random sets of units, as bits; a changed batch starts with an empty one.
    drawn_sets: dict[tuple[Any, ...], np.ndarray[Any, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.ids)

    @property
    def map_shape(self) -> tuple[int, ...]:
        """The shape of one attribution map: the input without its channels."""
        shape = tuple(self.inputs.shape[1:])
        return shape[1:] if len(shape) > 1 else shape

    @property
    def removable(self) -> Tensor | None:  # [B, T]
        """Which positions can be removed: all but special tokens and padding; None if all can."""
        return None if self.tokens is None else ~self.tokens.special_at(self.inputs)

    def generator(self, sample: int, purpose: str) -> torch.Generator:
        """The only source of random numbers: one per seed, sample id and purpose, on the CPU."""
        text = f"{self.seed}\0{self.ids[sample]}\0{purpose}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
        return torch.Generator().manual_seed(seed)

    def draw(self, purpose: str, shape: Sequence[int], *, normal: bool = False) -> Tensor:
        """Random numbers, uniform in [0, 1) or standard normal, `[B, *shape]`."""
        make = torch.randn if normal else torch.rand

        def row(sample: int) -> Tensor:
            drawn = make(*shape, generator=self.generator(sample, purpose))
            return drawn.to(self.inputs.device, self.dtype)

        at_once = torch.get_num_threads() if len(self) * math.prod(shape) >= MANY else 1
        if at_once == 1 or len(self) == 1:
            return torch.stack([row(b) for b in range(len(self))])
        with ThreadPoolExecutor(at_once) as pool:  # one thread draws all numbers of a sample
            return torch.stack(list(pool.map(row, range(len(self)))))

    def draw_shared(self, purpose: str, shape: Sequence[int]) -> Tensor:
        """Random numbers uniform in [0, 1) that all samples of a seed share, `[1, *shape]`."""
        digest = hashlib.sha256(f"{self.seed}\0shared\0{purpose}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
        drawn = torch.rand(1, *shape, generator=generator)
        return drawn.to(self.inputs.device, self.dtype)

    def redrawn(self, number: int) -> "Batch":
        """The same samples with the random numbers of draw `number`; 0 keeps their own."""
        if number == 0:
            return self
        digest = hashlib.sha256(f"{self.seed}\0draw\0{number}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:8], "big"))

    @property
    def dtype(self) -> torch.dtype:
        """The number type of maps: that of the inputs, or single precision for tokens."""
        return self.inputs.dtype if self.inputs.is_floating_point() else torch.float32

    def reference(self, n: int) -> Tensor:
        """`n` fixed inputs of the dataset, the same in every batch; fewer if it has fewer."""
        return self.others(self.reference_ids(n)).inputs

    def reference_ids(self, n: int) -> list[str]:
        """The ids of the reference inputs, for use when memory cannot hold them all."""
        return list(self._dataset("reference inputs").reference_order[:n])

    def others(self, ids: Sequence[str]) -> "Batch":
        """Other samples of the dataset, prepared in the same way."""
        chosen = self._dataset("other samples").batch(
            ids, self.prepare, seed=self.seed, pixels=self.pixels, tokens=self.tokens
        )
        chosen = chosen.to(self.inputs.device)
        return replace(chosen, inputs=chosen.inputs.to(self.inputs))

    def partners(self) -> "Batch":
        """For each sample one sample of another group; the pairs are fixed for the dataset.

        A partner's target is its own label; where there are no labels, the class explained here.
        """
        everyone = self._dataset("partners")
        others = self.others([everyone.partner(i) for i in self.ids])
        return replace(others, targets=self.targets if others.labels is None else others.labels)

    def _dataset(self, what: str) -> "Source":
        if self.dataset is None:
            raise InputError(
                f"Expected a batch with a dataset, to take {what} from, got one without."
            )
        return self.dataset

    def select(self, index: Sequence[int]) -> "Batch":
        """The samples at these positions."""
        pick = torch.as_tensor(list(index), device=self.inputs.device)
        chosen = replace(
            self,
            ids=tuple(self.ids[i] for i in index),
            groups=self.groups and tuple(self.groups[i] for i in index),
        )
        return chosen._each(lambda t: t[pick])

    def to(self, device: torch.device | str) -> "Batch":
        """The same samples on another device."""
        return self._each(lambda t: t.to(device))

    def aliased(self) -> "Batch":
        """The same numbers as other tensors: gradients may be taken at them."""
        return self._each(lambda t: t.detach())

    def cloned(self) -> "Batch":
        """The same numbers in memory of their own."""
        return self._each(torch.clone)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Apply the same change to every tensor."""
        return replace(
            self,
            inputs=change(self.inputs),
            targets=change(self.targets),
            labels=None if self.labels is None else change(self.labels),
            truth=None if self.truth is None else change(self.truth),
            baseline=None if self.baseline is None else change(self.baseline),
            noise=None if self.noise is None else change(self.noise),
        )
