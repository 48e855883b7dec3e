"""The nouns: what flows from data and model through explanation and intervention to scores."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from PIL import Image
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.hashing import hash_network
from assay.pixels import Pixels as Pixels
from assay.pixels import Preprocess as Preprocess


@dataclass(frozen=True)
class Sample:
    """One item of a dataset: an image or text to be prepared, or a tensor that is a model input."""

    input: Image.Image | Tensor | str
    label: int | None = None
    truth: Image.Image | Tensor | None = None
    baseline: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """Samples on their way through: `targets` is the class explained, `labels` the right one."""

    ids: tuple[str, ...]
    inputs: Tensor  # [B, C, H, W] images, [B, D] vectors
    targets: Tensor  # [B]
    labels: Tensor | None = None  # [B]
    truth: Tensor | None = None  # [B, *map_shape]
    baseline: Tensor | None = None  # like inputs: what "nothing" is, where known
    groups: tuple[str, ...] | None = None  # what a bootstrap must resample together
    seed: int = 0
    pixels: Pixels | None = None
    dataset: "Dataset | None" = field(default=None, repr=False, compare=False)
    prepare: Preprocess | None = field(default=None, repr=False, compare=False)
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """The number of samples."""
        return len(self.ids)

    @property
    def map_shape(self) -> tuple[int, ...]:
        """The shape of one attribution map: the input without its channels."""
        shape = tuple(self.inputs.shape[1:])
        return shape[1:] if len(shape) > 1 else shape

    def generator(self, sample: int, purpose: str) -> torch.Generator:
        """The only source of randomness: one per seed, sample id and purpose, on the CPU."""
        text = f"{self.seed}\0{self.ids[sample]}\0{purpose}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
        return torch.Generator().manual_seed(seed)

    def draw(self, purpose: str, shape: Sequence[int], *, normal: bool = False) -> Tensor:
        """Random numbers, uniform in [0, 1) or standard normal, `[B, *shape]`."""
        make = torch.randn if normal else torch.rand
        rows = [make(*shape, generator=self.generator(b, purpose)) for b in range(len(self))]
        return torch.stack(rows).to(self.inputs.device, self.inputs.dtype)

    def reference(self, n: int) -> Tensor:
        """`n` fixed inputs of the whole dataset, the same everywhere; fewer where it is smaller."""
        everyone = self._dataset("reference inputs")
        order = sorted(everyone.ids, key=lambda i: hashlib.sha256(i.encode()).digest())
        return everyone.batch(order[:n], self.prepare).inputs.to(self.inputs)

    def partners(self) -> "Batch":
        """For each sample one of another group, fixed over the whole dataset.

        A partner's target is its own label; where there are no labels, the class explained here.
        """
        everyone = self._dataset("partners")
        others = everyone.batch(
            [everyone.partner(i) for i in self.ids],
            self.prepare,
            seed=self.seed,
            pixels=self.pixels,
        ).to(self.inputs.device)
        inputs = others.inputs.to(self.inputs)
        return replace(
            others, inputs=inputs, targets=self.targets if others.labels is None else others.labels
        )

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
        prepare: Preprocess | None = None,
        *,
        seed: int = 0,
        pixels: Pixels | None = None,
        targets: Tensor | None = None,
    ) -> Batch:
        """Read these samples; images go through `prepare`, and so do their truth masks."""
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
        self, sample: str, raw: Image.Image | Tensor | str, prepare: Preprocess | None
    ) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if isinstance(raw, str):
            raise PrerequisiteError(f"Dataset `{self.name}` holds texts; the model takes images.")
        if prepare is None:
            raise PrerequisiteError(
                f"Dataset `{self.name}` holds images, but the model does not say how it prepares "
                f"them. Give `size`, `mean` and `std` (`--size 224 --mean ... --std ...`), "
                f"`prepare=Preprocess(...)` to `assay.model`, or hand over tensors."
            )
        return prepare(raw)

    @staticmethod
    def _truth(raw: Image.Image | Tensor, prepare: Preprocess | None) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if prepare is None:
            raise PrerequisiteError("Truth masks that are images need the model's `prepare`.")
        return prepare.mask(raw)


@dataclass
class Model:
    """A network that is explained, with what the tool must know about it."""

    net: nn.Module = field(repr=False)
    name: str = "model"
    checkpoint: str = ""
    modality: str = "image"
    cam_layer: str | None = None
    has: frozenset[str] = frozenset({"gradients", "classes"})
    prepare: Preprocess | None = None
    pixels: Pixels | None = None
    classes: Sequence[str] | None = field(default=None, repr=False)
    output: str | int | Callable[[Any], Tensor] | None = None
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    micro_batch: int = 32  # rows per call of the network, fixed for a run
    channels_last: bool = False
    # Seen at the first look at the network:
    binary: bool = field(default=False, init=False)  # it gives one logit
    outputs: int = field(default=0, init=False)  # how many classes it tells apart
    spatial_layer: str | None = field(default=None, init=False)  # the last with a spatial output
    prepared: Any = field(default=None, init=False, repr=False)  # the network as the engine runs it

    @property
    def weights_hash(self) -> str:
        """The hash of all parameters, buffers and modules: a name is not a model."""
        return hash_network(self.net)

    @property
    def capabilities(self) -> frozenset[str]:
        """What a method may need of the model."""
        spatial = self.cam_layer or any(isinstance(m, nn.Conv2d) for m in self.net.modules())
        return self.has | ({"spatial"} if spatial else set())

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return next((p.device for p in self.net.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The network's number type."""
        return next((p.dtype for p in self.net.parameters()), torch.float32)

    def logits(
        self, inputs: Tensor, at: Tensor | None = None, net: nn.Module | None = None
    ) -> Tensor:
        """Class scores `[B, C]`; a single score z becomes the binary pair (-z, z)."""
        raw = (net or self.net)(inputs if at is None else at)
        scores = self._scores(raw)
        if scores.ndim == 1:
            scores = scores[:, None]
        if scores.ndim != 2:
            raise InputError(
                f"Expected model `{self.name}` to give logits [batch, classes], got shape "
                f"{tuple(scores.shape)}. Say where they are with `assay.model(..., output=...)`."
            )
        self.binary = scores.shape[1] == 1
        return torch.cat([-scores, scores], 1) if self.binary else scores

    def __call__(self, inputs: Tensor) -> Tensor:
        """Class scores, as `logits` gives them."""
        return self.logits(inputs)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities; under the binary pair (-z, z) they are log sigmoid(±z)."""
        return torch.log_softmax(logits / 2 if self.binary else logits, -1)

    def continuous(self, inputs: Tensor) -> Tensor:
        """What gradients are taken at: the inputs themselves, detached."""
        return inputs.detach()

    def _scores(self, raw: Any) -> Tensor:
        if callable(self.output):
            raw = self.output(raw)
        elif isinstance(self.output, int):
            raw = raw[self.output]
        elif isinstance(self.output, str):
            raw = raw[self.output] if isinstance(raw, Mapping) else getattr(raw, self.output)
        elif isinstance(raw, Mapping) and "logits" in raw:
            raw = raw["logits"]
        elif hasattr(raw, "logits"):
            raw = raw.logits
        if not isinstance(raw, Tensor):
            raise InputError(
                f"Expected model `{self.name}` to give logits, got {type(raw).__name__}. "
                f"Say where they are with `assay.model(..., output=...)`."
            )
        return raw

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode, frozen parameters and full precision inside; all as it was afterwards."""
        backends: tuple[Any, ...] = (torch.backends.cudnn, torch.backends.cuda.matmul)
        rounding = [b.allow_tf32 for b in backends]
        modes = [(m, m.training) for m in self.net.modules()]
        grads = [(p, p.requires_grad) for p in self.net.parameters()]
        self.net.eval().requires_grad_(False)
        for backend in backends:
            backend.allow_tf32 = False
        try:
            yield
        finally:
            for backend, allowed in zip(backends, rounding, strict=True):
                backend.allow_tf32 = allowed
            for module, training in modes:
                module.training = training
            for parameter, required in grads:
                parameter.requires_grad_(required)


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

    @property
    def constant(self) -> Tensor:
        """Which maps say nothing: all values equal. `[B]`."""
        flat = self.attribution.flatten(1)
        return flat.amax(1) == flat.amin(1)


@dataclass(frozen=True)
class Scores:
    """A protocol's answer per sample, with the curves it came from; `extra` is never ranked."""

    value: Tensor  # [B]
    curves: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B, K]
    x: Tensor | None = None  # [K]
    extra: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [B]
