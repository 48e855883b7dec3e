"""The nouns: what flows from data and model through explanation and intervention to scores."""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.errors import InputError, PrerequisiteError
from assay.network import Model as Model
from assay.pixels import Pixels as Pixels
from assay.pixels import Preprocess as Preprocess
from assay.tokens import Tokenize as Tokenize
from assay.tokens import Tokens as Tokens

Prepare = Preprocess | Tokenize  # a model's own way from an image or a text to its input


@dataclass(frozen=True)
class Sample:
    """One item of a dataset: an image or a text still to be prepared, or a model's input."""

    input: Image.Image | Tensor | str
    label: int | None = None
    truth: Image.Image | Tensor | None = None
    baseline: Tensor | None = None


MANY = 2**20  # random numbers that are worth several threads
UPPER_BOUND = "upper_bound_truth"  # in a dataset's `has`: not all of its truth need be relevant


@dataclass(frozen=True)
class Batch:
    """Samples on their way through: `targets` is the class explained, `labels` the right one."""

    ids: tuple[str, ...]
    inputs: Tensor  # [B, C, H, W] images, [B, D] vectors, [B, T] token ids
    targets: Tensor  # [B]
    labels: Tensor | None = None  # [B]
    truth: Tensor | None = None  # [B, *map_shape]
    baseline: Tensor | None = None  # like inputs: what "nothing" is, where known
    groups: tuple[str, ...] | None = None  # what a bootstrap must resample together
    seed: int = 0
    pixels: Pixels | None = None
    tokens: Tokens | None = None
    dataset: "Dataset | None" = field(default=None, repr=False, compare=False)
    prepare: Prepare | None = field(default=None, repr=False, compare=False)
    extra: Mapping[str, Any] = field(default_factory=dict)
    # Random sets of units as bits, for whoever asks next; a changed batch begins with none.
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
        """Which positions hold content; None where all do. Special tokens and padding do not."""
        return None if self.tokens is None else ~self.tokens.special_at(self.inputs)

    def generator(self, sample: int, purpose: str) -> torch.Generator:
        """The only source of randomness: one per seed, sample id and purpose, on the CPU."""
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
        with ThreadPoolExecutor(at_once) as pool:  # one sample's numbers come one after the other
            return torch.stack(list(pool.map(row, range(len(self)))))

    def redrawn(self, number: int) -> "Batch":
        """The same samples with other random numbers, the same for a number; 0: with their own."""
        if number == 0:
            return self
        digest = hashlib.sha256(f"{self.seed}\0draw\0{number}".encode()).digest()
        return replace(self, seed=int.from_bytes(digest[:8], "big"))

    @property
    def dtype(self) -> torch.dtype:
        """The number type of maps: the inputs', or single precision where those are tokens."""
        return self.inputs.dtype if self.inputs.is_floating_point() else torch.float32

    def reference(self, n: int) -> Tensor:
        """`n` fixed inputs of the whole dataset, the same everywhere; fewer where it is smaller."""
        return self.others(self.reference_ids(n)).inputs

    def reference_ids(self, n: int) -> list[str]:
        """Whose inputs those are, for where they are too many to be held at once."""
        everyone = self._dataset("reference inputs")
        return sorted(everyone.ids, key=lambda i: hashlib.sha256(i.encode()).digest())[:n]

    def others(self, ids: Sequence[str]) -> "Batch":
        """Other samples of the dataset, prepared as these are."""
        chosen = self._dataset("other samples").batch(
            ids, self.prepare, seed=self.seed, pixels=self.pixels, tokens=self.tokens
        )
        chosen = chosen.to(self.inputs.device)
        return replace(chosen, inputs=chosen.inputs.to(self.inputs))

    def partners(self) -> "Batch":
        """For each sample one of another group, fixed over the whole dataset.

        A partner's target is its own label; where there are no labels, the class explained here.
        """
        everyone = self._dataset("partners")
        others = self.others([everyone.partner(i) for i in self.ids])
        return replace(others, targets=self.targets if others.labels is None else others.labels)

    def _dataset(self, what: str) -> "Dataset":
        if self.dataset is None:
            raise InputError(
                f"Expected a batch of a dataset to take {what} from, got a bare batch."
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

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The same change to every tensor there is."""
        return replace(
            self,
            inputs=change(self.inputs),
            targets=change(self.targets),
            labels=None if self.labels is None else change(self.labels),
            truth=None if self.truth is None else change(self.truth),
            baseline=None if self.baseline is None else change(self.baseline),
        )


@dataclass(frozen=True)
class Parts:
    """Things in the images of a dataset that can be left out: they are painted anew without them.

    A part may be seen in several pieces, as a pair of wings is. Behind its parts a sample has as
    many things around it as `things` says, numbered after the parts, their pieces after the pieces.
    """

    names: tuple[str, ...]
    pieces: tuple[int, ...]  # the part of each piece
    classes: Tensor  # [classes, parts]: the variant each class has of each part
    places: Callable[[str], Tensor] = field(repr=False)  # id -> [H, W]: pieces; -1 = nobody's
    things: Callable[[str], int] = field(repr=False)  # id -> how many
    without: Callable[[str, frozenset[int]], Tensor] = field(repr=False)  # id, absent -> input


@dataclass(frozen=True)
class Dataset:
    """Samples by id. `fetch` reads one; `fingerprint` hashes the content, not the name."""

    name: str
    modality: str  # image | vector | text
    ids: tuple[str, ...]
    fetch: Callable[[str], Sample] = field(repr=False)
    fingerprint: str = ""
    has: frozenset[str] = frozenset({"labels"})
    groups: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict, repr=False)  # where cheaply known
    numbering: str = "given"  # of the classes: given | declared (by the data) | sorted (names)
    note: str = ""  # what a reader should know of how it was read
    parts: Parts | None = field(default=None, repr=False)  # where images are painted of them
    truth_of: Model | None = field(default=None, repr=False, compare=False)  # of an environment

    def __post_init__(self) -> None:
        """Refuse what no run could use."""
        if not self.ids:
            raise InputError(f"Expected dataset `{self.name}` to hold samples, got none.")
        if not self.fingerprint:
            raise InputError(
                f"Expected dataset `{self.name}` to have a `fingerprint`, a hash of its content: "
                f"results are stored under it."
            )
        if len(set(self.ids)) != len(self.ids):
            raise InputError(f"Expected the ids of dataset `{self.name}` to be unique.")

    def batch(
        self,
        ids: Sequence[str],
        prepare: Prepare | None = None,
        *,
        seed: int = 0,
        pixels: Pixels | None = None,
        tokens: Tokens | None = None,
        targets: Tensor | None = None,
    ) -> Batch:
        """Read these samples; images and texts go through `prepare`, and so do truth masks."""
        samples = [self.fetch(i) for i in ids]
        inputs = [self._input(i, s.input, prepare) for i, s in zip(ids, samples, strict=True)]
        for i, x in zip(ids, inputs, strict=True):
            if not bool(torch.isfinite(x).all()):
                raise InputError(
                    f"Expected finite numbers in sample `{i}` of `{self.name}`, got NaN or inf."
                )
            if x.shape != inputs[0].shape:
                raise InputError(
                    f"Expected all samples of `{self.name}` to have one shape, got "
                    f"{tuple(inputs[0].shape)} for `{ids[0]}` and {tuple(x.shape)} for `{i}`."
                )
        labels = [s.label for s in samples if s.label is not None]
        known = torch.tensor(labels) if len(labels) == len(samples) else None
        truths = [self._truth(s.truth, prepare) for s in samples if s.truth is not None]
        baselines = [s.baseline for s in samples if s.baseline is not None]
        if targets is None:
            targets = known if known is not None else torch.full((len(samples),), -1)
        return Batch(
            ids=tuple(ids),
            inputs=torch.stack(inputs),
            targets=targets,
            labels=known,
            truth=torch.stack(truths) if len(truths) == len(samples) else None,
            baseline=torch.stack(baselines) if len(baselines) == len(samples) else None,
            groups=tuple(self.groups.get(i, i) for i in ids),
            seed=seed,
            pixels=pixels,
            tokens=tokens,
            dataset=self,
            prepare=prepare,
        )

    def partner(self, sample: str) -> str:
        """Another sample, of another group if there is one: the next on a fixed shuffled ring."""
        ring = sorted(self.ids, key=lambda i: hashlib.sha256(f"partner\0{i}".encode()).digest())
        start = ring.index(sample)
        others = ring[start + 1 :] + ring[:start]
        mine = self.groups.get(sample, sample)
        fallback = others[0] if others else sample
        return next((i for i in others if self.groups.get(i, i) != mine), fallback)

    def _input(
        self, sample: str, raw: Image.Image | Tensor | str, prepare: Prepare | None
    ) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if isinstance(raw, str):
            if not isinstance(prepare, Tokenize):
                raise PrerequisiteError(
                    f"Dataset `{self.name}` holds texts, but the model does not say how it reads "
                    f"them. Use `hf:FOLDER`, or give `prepare=Tokenize(...)` to `assay.model`."
                )
            return prepare(raw, f"sample `{sample}` of `{self.name}`")
        if not isinstance(prepare, Preprocess):
            raise PrerequisiteError(
                f"Dataset `{self.name}` holds images, but the model does not say how it prepares "
                f"them. Give `size`, `mean` and `std` (`--size 224 --mean ... --std ...`), "
                f"`prepare=Preprocess(...)` to `assay.model`, or hand over tensors."
            )
        return prepare(raw)

    @staticmethod
    def _truth(raw: Image.Image | Tensor, prepare: Prepare | None) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if not isinstance(prepare, Preprocess):
            raise PrerequisiteError("Truth masks that are images need the model's `prepare`.")
        return prepare.mask(raw)


@dataclass(frozen=True)
class Response:
    """What is kept of every forward pass, each `[B, K]`; all else is arithmetic on it."""

    logit: Tensor
    log_prob: Tensor
    predicted: Tensor

    @property
    def probability(self) -> Tensor:
        """The probability of the target."""
        return self.log_prob.exp()

    @property
    def log_odds(self) -> Tensor:
        """The log-odds of the target."""
        return self.log_prob - torch.log(-torch.expm1(self.log_prob.clamp(max=-1e-16)))

    def output(self, name: str) -> Tensor:
        """One of `logit`, `probability`, `log_odds`."""
        value: Tensor = getattr(self, name)
        return value

    def columns(self, start: int, stop: int | None = None) -> "Response":
        """Some of the rows asked for."""
        part = slice(start, stop)
        return Response(self.logit[:, part], self.log_prob[:, part], self.predicted[:, part])


class Respond(Protocol):
    """The engine's one verb, as a protocol sees it."""

    def __call__(self, features: Any, absent: Any, fill: Any) -> Response:
        """The model's answers when these units are absent."""
        ...


@dataclass(frozen=True)
class Case:
    """All that a batch protocol sees; it has no model, so it cannot go round the engine."""

    batch: Batch
    attribution: Tensor  # [B, *map_shape]
    respond: Respond
    clean: Response  # [B, 1]
    # The same method on changed inputs [B, ...], and its forward passes a sample (None: not known).
    explain: Callable[[Tensor], Tensor] | None = None
    explain_passes: int | None = 0
    # The same method's maps of other samples, one for each: what a map is worth by accident.
    partner: Callable[[], Tensor] | None = None

    @property
    def constant(self) -> Tensor:
        """Which maps say nothing: all values equal where something can be removed. `[B]`."""
        flat = self.attribution.flatten(1)
        able = self.batch.removable
        if able is None:
            return flat.amax(1) == flat.amin(1)
        lowest, highest = torch.where(able, flat, torch.inf), torch.where(able, flat, -torch.inf)
        return highest.amax(1) == lowest.amin(1)


@dataclass(frozen=True)
class Scores:
    """A protocol's answer per sample, with the curves it came from; `extra` is never ranked.

    A protocol with a set-level `reduce` is judged on the whole set, by its curves: its values are
    ignored.
    """

    value: Tensor  # [B]
    curves: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B, K]
    x: Tensor | None = None  # [K]
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B]
    degenerate: Tensor | None = None  # [B]: whose map the protocol can do nothing with
