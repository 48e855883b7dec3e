"""A batch of samples to be explained and scored, and the source of all random numbers."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError
from assay.types.painted import Parts
from assay.types.pixels import Pixels, Preprocess
from assay.types.random_numbers import Stream, drawn
from assay.types.sample_content import contents_of
from assay.types.tokens import Tokenize, Tokens

Prepare = Preprocess | Tokenize  # how a model turns an image or a text into its input


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
    """A batch of samples: `targets` are the explained classes, `labels` the correct ones.

    Random numbers belong to a sample's content, hashed once from the inputs unless it is given:
    changed inputs of the same samples keep their random numbers.
    """

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
    contents: tuple[str, ...] = field(default=(), repr=False)  # a hash of each sample
    # Cache of random sets of units, as bits; a changed batch starts with an empty one.
    drawn_sets: dict[tuple[Any, ...], np.ndarray[Any, Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Hash the samples, unless their hashes are known."""
        if not self.contents:
            pad = None if self.tokens is None else self.tokens.pad
            object.__setattr__(self, "contents", contents_of(self.inputs, pad))
        elif len(self.contents) != len(self.ids):
            raise InputError(
                f"Expected a content hash for each of {len(self.ids)} samples, got "
                f"{len(self.contents)}. For other samples pass `contents=()`, which hashes them."
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

    def stream(self, sample: int, purpose: str) -> Stream:
        """The only source of random numbers: one per seed, content of a sample and purpose."""
        return Stream.of(self.seed, self.contents[sample], purpose)

    def generator(self, sample: int, purpose: str) -> torch.Generator:
        """A generator of torch on the CPU, for code that takes one; seeded by `stream`."""
        return torch.Generator().manual_seed(self.stream(sample, purpose).seed)

    def draw(self, purpose: str, shape: Sequence[int], *, normal: bool = False) -> Tensor:
        """Random numbers, uniform in [0, 1) or standard normal, `[B, *shape]`.

        They are the same on every device, and in single precision for every number type.
        """
        return self._drawn([self.stream(b, purpose) for b in range(len(self))], shape, normal)

    def draw_shared(self, purpose: str, shape: Sequence[int]) -> Tensor:
        """Random numbers uniform in [0, 1) that all samples of a seed share, `[1, *shape]`."""
        return self._drawn([Stream.of(self.seed, "shared", purpose)], shape)

    def _drawn(
        self, streams: Sequence[Stream], shape: Sequence[int], normal: bool = False
    ) -> Tensor:
        device, threads = self.inputs.device, torch.get_num_threads()
        numbers = drawn(streams, math.prod(shape), device, normal=normal, threads=threads)
        return numbers.reshape(len(streams), *shape).to(self.dtype)

    def redrawn(self, number: int) -> "Batch":
        """The same samples with the random numbers of draw `number`; 0 keeps their own."""
        if number == 0:
            return self
        return replace(self, seed=Stream.of(self.seed, "draw", number).seed)

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
            contents=tuple(self.contents[i] for i in index),
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
