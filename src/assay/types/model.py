"""A network that is explained, with what the tool must know about it."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.types.hashing import hash_network
from assay.types.pixels import Pixels, Preprocess
from assay.types.tokens import Tokenize, Tokens

# How a layer's tokens lie in the image: rows and columns of the patches, which come after all other
# tokens, or a function from the layer's output to [B, C, h, w].
Reshape = tuple[int, int] | Callable[[Tensor], Tensor]

# What a network that explains itself has: a mode in which a B-cos network is linear to autograd,
# and what makes a network a bag of patches.
EXPLANATION_MODES = ("explaining", "explanation_mode")
BAG_OF_PATCHES = ("patch_logits", "receptive_field", "stride")


def has_attention(module: nn.Module) -> bool:
    """Whether some part of a network calls itself attention; a model may say so in its `has`."""
    return any("attention" in type(part).__name__.lower() for part in module.modules())


def usable_device(name: str | None) -> torch.device:
    """The device of this name, the processor without one; refused where it cannot be used."""
    try:
        wanted = torch.device(name or "cpu")
    except RuntimeError:
        raise InputError(f"Expected `device` to be `cpu` or `cuda`, got {name!r}.") from None
    if wanted.type == "cuda" and not torch.cuda.is_available():
        raise PrerequisiteError(f"Expected a CUDA device for `{name}`, but torch finds none.")
    return wanted


@dataclass(frozen=True)
class OutputRead:
    """A network by its weights, and which of its outputs is read."""

    weights_hash: str
    output: object  # as `Model.output`
    regression: bool


@dataclass(frozen=True)
class Observation:
    """What one look at a network shows."""

    outputs: int  # how many classes it has
    binary: bool  # it gives one logit
    spatial_layer: str | None = None  # the last layer with a spatial output
    channels_last: bool = False  # the layout of memory that it runs fastest in


def log_probabilities(logits: Tensor, binary: bool) -> Tensor:
    """Log-probabilities; under the binary pair (-z, z) they are log sigmoid(±z)."""
    return torch.log_softmax(logits / 2 if binary else logits, -1)


@dataclass(frozen=True, eq=False)
class Model:
    """A network that is explained, with what the tool must know about it."""

    net: nn.Module = field(repr=False)
    name: str = "model"
    checkpoint: str = ""
    modality: str = "image"
    cam_layer: str | None = None
    cam_reshape: Reshape | None = None
    has: frozenset[str] = frozenset({"gradients", "classes"})
    prepare: Preprocess | Tokenize | None = None
    pixels: Pixels | None = None
    tokens: Tokens | None = None
    classes: Sequence[str] | None = field(default=None, repr=False)
    output: str | int | Callable[[Any], Tensor] | None = None
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    micro_batch: int = 32  # rows per call of the network, fixed for a run
    observed: Observation | None = field(default=None, repr=False)  # None: not looked at yet

    def __post_init__(self) -> None:
        """Settle how the network takes token ids, where nobody said it."""
        if self.tokens is not None:
            object.__setattr__(self, "tokens", self.tokens.settled(self.net))

    @property
    def weights_hash(self) -> str:
        """The hash of all parameters, buffers and modules: a name is not a model."""
        return hash_network(self.net)

    @property
    def output_read(self) -> OutputRead:
        """The network by its weights, and which of its outputs is read."""
        return OutputRead(self.weights_hash, self.output, "regression" in self.has)

    @property
    def capabilities(self) -> frozenset[str]:
        """What a method may need of the model."""
        named = self.cam_layer or self.cam_reshape
        seen = {
            "spatial": named or any(isinstance(m, nn.Conv2d) for m in self.net.modules()),
            "attention": has_attention(self.net),
            "bcos": any(callable(getattr(self.net, mode, None)) for mode in EXPLANATION_MODES),
            "bagnet": all(hasattr(self.net, part) for part in BAG_OF_PATCHES),
        }
        return self.has | {name for name, there in seen.items() if there}

    @property
    def device(self) -> torch.device:
        """Where the network lives."""
        return next((p.device for p in self.net.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The network's number type."""
        return next((p.dtype for p in self.net.parameters()), torch.float32)

    @property
    def binary(self) -> bool:
        """Whether the network gives one logit."""
        return self._observation.binary

    @property
    def outputs(self) -> int:
        """How many classes the network has."""
        return self._observation.outputs

    @property
    def spatial_layer(self) -> str | None:
        """The last layer with a spatial output; None where there is none, or nobody looked yet."""
        return None if self.observed is None else self.observed.spatial_layer

    @property
    def _observation(self) -> Observation:
        if self.observed is None:
            raise InputError(
                f"Expected model `{self.name}` to be looked at first: whether its classes are two "
                f"or one logit shows when it runs. Use `assay.explain` or `assay.benchmark`."
            )
        return self.observed

    def logits(
        self, inputs: Tensor, at: Tensor | None = None, net: nn.Module | None = None
    ) -> Tensor:
        """Class scores `[B, C]`; a single score z becomes the binary pair (-z, z).

        Of a regression it stays alone.
        """
        return self.read(inputs, at, net)[0]

    def read(
        self, inputs: Tensor, at: Tensor | None = None, net: nn.Module | None = None
    ) -> tuple[Tensor, bool]:
        """Class scores, and whether they are the binary pair (-z, z) of a single score z."""
        network = net or self.net
        if self.tokens is not None:
            raw = self.tokens.read(network, inputs, at)
        else:
            raw = network(inputs if at is None else at)
        scores = self._scores(raw)
        if scores.ndim == 1:
            scores = scores[:, None]
        if scores.ndim != 2:
            raise InputError(
                f"Expected model `{self.name}` to give logits [batch, classes], got shape "
                f"{tuple(scores.shape)}. Say where they are with `assay.model(..., output=...)`."
            )
        binary = scores.shape[1] == 1 and "regression" not in self.has
        return torch.cat([-scores, scores], 1) if binary else scores, binary

    def __call__(self, inputs: Tensor) -> Tensor:
        """Class scores, as `logits` gives them."""
        return self.logits(inputs)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of logits; only two of them may be a binary pair."""
        return log_probabilities(logits, logits.shape[-1] == 2 and self.binary)

    def continuous(self, inputs: Tensor) -> Tensor:
        """What gradients are taken at: the inputs themselves, or the embeddings of tokens."""
        if self.tokens is not None:
            return self.tokens.embed(self.net, inputs)
        return inputs.detach()

    def places(self, output: Any) -> Tensor:  # [B, C, h, w]
        """What a layer gives, laid out in space; a transformer's tokens as `cam_reshape` says.

        Raises:
            InputError: It has no places, or other ones than declared.
        """
        found = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(found, Tensor) and callable(self.cam_reshape):
            found = self.cam_reshape(found)
        elif isinstance(found, Tensor) and found.ndim == 3 and isinstance(self.cam_reshape, tuple):
            rows, columns = self.cam_reshape
            others = found.shape[1] - rows * columns
            if others < 0:
                raise InputError(
                    f"Expected at least {rows} x {columns} tokens of the layer, as `cam_reshape` "
                    f"of model `{self.name}` says, got {found.shape[1]}."
                )
            found = found[:, others:].transpose(1, 2).reshape(len(found), -1, rows, columns)
        if isinstance(found, Tensor) and found.ndim == 4:
            return found
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InputError(
            f"Expected the layer to give [batch, channels, height, width], got {shape}. Of a "
            f"transformer, say how its tokens lie: `assay.model(..., cam_reshape=(14, 14))`."
        )

    def laid_out(self, inputs: Tensor) -> Tensor:
        """Inputs in the order of memory that this network runs fastest in."""
        if self.observed is None or not self.observed.channels_last:
            return inputs
        return inputs.contiguous(memory_format=torch.channels_last)

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
