"""A network to be explained, with its metadata."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.plugins.display_names import display_name
from assay.types.card import IN_DOMAIN, Card
from assay.types.hashing import hash_network
from assay.types.pixels import Pixels, Preprocess
from assay.types.tokens import Tokenize, Tokens

# The spatial layout of a layer's tokens: rows and columns of the patches, which come after all
# other tokens, or a function from the layer's output to [B, C, h, w].
Reshape = tuple[int, int] | Callable[[Tensor], Tensor]

# Attributes of self-explaining networks: the mode in which autograd sees a B-cos network as linear,
# and the attributes of a bag of patches.
EXPLANATION_MODES = ("explaining", "explanation_mode")
BAG_OF_PATCHES = ("patch_logits", "receptive_field", "stride")


def has_attention(module: nn.Module) -> bool:
    """Whether a module's class name contains `attention`; a model may also declare it in `has`."""
    return any("attention" in type(part).__name__.lower() for part in module.modules())


def usable_device(name: str | None) -> torch.device:
    """The device of this name, by default the CPU; an error if it cannot be used."""
    try:
        device = torch.device(name or "cpu")
    except (RuntimeError, TypeError, ValueError, OverflowError):
        device = torch.device("meta")
    if device.type == "meta" or not isinstance(name, str | torch.device | None):
        raise InputError(f"Expected `device` to be `cpu` or `cuda`, got {name!r}.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise PrerequisiteError(f"Expected a CUDA device for `{name}`, but torch finds none.")
    return device


@dataclass(frozen=True)
class OutputRead:
    """A network by its weights, and which of its outputs is read."""

    weights_hash: str
    output: object  # as `Model.output`
    regression: bool


@dataclass(frozen=True)
class Observation:
    """What one forward pass shows about a network."""

    outputs: int  # number of classes
    binary: bool  # the network outputs one logit
    spatial_layer: str | None = None  # the last layer with a spatial output
    channels_last: bool = False  # the fastest memory layout
    changes: frozenset[str] = frozenset()  # what a forward pass itself changes, in words


def log_probabilities(logits: Tensor, binary: bool) -> Tensor:
    """Log-probabilities; under the binary pair (-z, z) they are log sigmoid(±z)."""
    return torch.log_softmax(logits / 2 if binary else logits, -1)


@dataclass(frozen=True, eq=False)
class Model:
    """A network to be explained, with its metadata."""

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
    stochastic: bool = False  # declared: its outputs may differ for the same input
    micro_batch: int = 32  # rows per call of the network, fixed for a run
    observed: Observation | None = field(default=None, repr=False)  # None: not observed yet
    series: str = ""  # its label in tables where it is one of several checkpoints of one training

    def __post_init__(self) -> None:
        """Determine how the network takes token ids, unless `tokens` specifies it."""
        display_name(self.name, "the `name` of a model")
        if self.tokens is not None:
            object.__setattr__(self, "tokens", self.tokens.settled(self.net))

    @property
    def weights_hash(self) -> str:
        """The hash of all parameters, buffers and modules; the name is not part of it."""
        return hash_network(self.net)

    @property
    def output_read(self) -> OutputRead:
        """The network by its weights, and which of its outputs is read."""
        return OutputRead(self.weights_hash, self.output, "regression" in self.has)

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the model that methods may need."""
        named = self.cam_layer or self.cam_reshape
        seen = {
            "spatial": named or any(isinstance(m, nn.Conv2d) for m in self.net.modules()),
            "attention": has_attention(self.net),
            "bcos": any(callable(getattr(self.net, mode, None)) for mode in EXPLANATION_MODES),
            "bagnet": all(hasattr(self.net, part) for part in BAG_OF_PATCHES),
        }
        card = self.card.get(IN_DOMAIN)
        tuned = card.capabilities if isinstance(card, Card) else frozenset()
        return self.has | tuned | {name for name, there in seen.items() if there}

    @property
    def card_use(self) -> str:
        """What the card of its fine-tuning is of, for messages; empty without one."""
        card = self.card.get(IN_DOMAIN)
        return card.use if isinstance(card, Card) else ""

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next((p.device for p in self.net.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        """The number type of its inputs: that of its first weights that are real numbers."""
        kinds = (p.dtype for p in self.net.parameters() if p.is_floating_point())
        return next(kinds, torch.float32)

    @property
    def binary(self) -> bool:
        """Whether the network outputs one logit."""
        return self._observation.binary

    @property
    def outputs(self) -> int:
        """The number of classes of the network."""
        return self._observation.outputs

    @property
    def spatial_layer(self) -> str | None:
        """The last layer with a spatial output; None where there is none, or none observed yet."""
        return None if self.observed is None else self.observed.spatial_layer

    @property
    def _observation(self) -> Observation:
        if self.observed is None:
            raise InputError(
                f"Expected model `{self.name}` to be observed first: only a forward pass shows "
                f"whether it outputs one logit. Use `assay.explain` or `assay.benchmark`."
            )
        return self.observed

    def logits(
        self, inputs: Tensor, at: Tensor | None = None, net: nn.Module | None = None
    ) -> Tensor:
        """Class scores `[B, C]`; a single score z becomes the binary pair (-z, z).

        The single score of a regression is not changed.
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
                f"{tuple(scores.shape)}. Select them with `assay.model(..., output=...)`."
            )
        if len(scores) != len(inputs) or not scores.shape[1]:
            raise InputError(
                f"Expected model `{self.name}` to give logits [batch, classes], one row for each "
                f"of {len(inputs)} samples, got shape {tuple(scores.shape)}."
            )
        derived = at is not None and at.requires_grad and torch.is_grad_enabled()
        if derived and not scores.requires_grad:
            raise NotApplicable(
                f"the logits of model `{self.name}` have no gradient: its forward pass detaches "
                f"them, or they do not depend on the inputs. Use a method without gradients, such "
                f"as `occlusion`."
            )
        binary = scores.shape[1] == 1 and "regression" not in self.has
        return torch.cat([-scores, scores], 1) if binary else scores, binary

    def __call__(self, inputs: Tensor) -> Tensor:
        """Class scores, as `logits` gives them."""
        return self.logits(inputs)

    def log_probs(self, logits: Tensor) -> Tensor:
        """Log-probabilities of logits; two logits may be a binary pair."""
        return log_probabilities(logits, logits.shape[-1] == 2 and self.binary)

    def continuous(self, inputs: Tensor) -> Tensor:
        """Where gradients are taken: at the inputs themselves, or at the embeddings of tokens."""
        if self.tokens is not None:
            return self.tokens.embed(self.net, inputs)
        return inputs.detach()

    def places(self, output: Any) -> Tensor:  # [B, C, h, w]
        """The output of a layer in spatial layout; `cam_reshape` arranges a transformer's tokens.

        Raises:
            InputError: The output is not spatial, or does not fit `cam_reshape`.
        """
        features = output[0] if isinstance(output, tuple | list) and output else output
        if isinstance(features, Tensor) and callable(self.cam_reshape):
            features = self.cam_reshape(features)
        elif (
            isinstance(features, Tensor)
            and features.ndim == 3
            and isinstance(self.cam_reshape, tuple)
        ):
            rows, columns = self.cam_reshape
            others = features.shape[1] - rows * columns
            if others < 0:
                raise InputError(
                    f"Expected at least {rows} x {columns} tokens of the layer, as `cam_reshape` "
                    f"of model `{self.name}` declares, got {features.shape[1]}."
                )
            features = (
                features[:, others:].transpose(1, 2).reshape(len(features), -1, rows, columns)
            )
        if isinstance(features, Tensor) and features.ndim == 4:
            return features
        shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise InputError(
            f"Expected the layer to output [batch, channels, height, width], got {shape}. For a "
            f"transformer, set the token layout: `assay.model(..., cam_reshape=(14, 14))`."
        )

    def laid_out(self, inputs: Tensor) -> Tensor:
        """Inputs in the memory layout in which this network runs fastest."""
        if self.observed is None or not self.observed.channels_last:
            return inputs
        return inputs.contiguous(memory_format=torch.channels_last)

    def _scores(self, raw: Any) -> Tensor:
        if self.output is not None:
            raw = self._selected(raw)
        elif isinstance(raw, Mapping) and "logits" in raw:
            raw = raw["logits"]
        elif hasattr(raw, "logits"):
            raw = raw.logits
        if not isinstance(raw, Tensor):
            raise InputError(
                f"Expected model `{self.name}` to give logits, got {type(raw).__name__}. "
                f"Select them with `assay.model(..., output=...)`."
            )
        if not raw.is_floating_point():
            raise InputError(
                f"Expected model `{self.name}` to give logits as real numbers, got {raw.dtype}: "
                f"they have no gradients or no order. Select the logits with "
                f"`assay.model(..., output=...)`."
            )
        if raw.layout is not torch.strided or raw.is_meta:
            kind = "on the meta device" if raw.is_meta else f"of layout {raw.layout}"
            raise InputError(
                f"Expected model `{self.name}` to give logits as a dense tensor with values, got "
                f"one {kind}."
            )
        return raw

    def _selected(self, raw: Any) -> Any:
        """What `output` selects of a network's answer.

        Raises:
            InputError: There is nothing of that key or position, or the function fails.
        """
        try:
            if callable(self.output):
                return self.output(raw)
            if isinstance(self.output, int) or isinstance(raw, Mapping):
                return raw[self.output]
            return getattr(raw, str(self.output))
        except Exception as error:
            got = type(raw).__name__
            if isinstance(raw, Mapping):
                got += f" with {', '.join(f'`{key}`' for key in raw)}"
            raise InputError(
                f"Expected `output` of model `{self.name}`, {self.output!r}, to select the logits, "
                f"got {type(error).__name__}: {error}. The network returns {got}."
            ) from error

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Eval mode, frozen parameters and full precision inside; restored afterwards."""
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
