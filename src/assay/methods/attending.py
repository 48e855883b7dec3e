"""How a network attends: every layer's attention, its gradient, and the tokens that are read.

The network is not changed. While it runs, a `TorchFunctionMode` sees its operations: a softmax over
pairs of tokens is an attention. Fused kernels, which hide theirs, are computed step by step.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from assay.engine.respondent import micro_batches
from assay.errors import InputError, NotApplicable
from assay.methods.call_types import Arguments, Keywords, Operator, Returned
from assay.methods.copies import points
from assay.methods.fused_attention import FUSED
from assay.methods.gradients import Output, explained
from assay.types import Batch, Model

Resize = Literal["nearest", "bilinear"]
CUTTING = (  # they cut the image into patches, or merge patches
    "conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d",
)  # fmt: skip


class Attending(TorchFunctionMode):
    """Watch a running network: collect its attentions `[n, H, s, s]` from layer `start` on.

    The attention of layer `leaf` becomes a leaf, so that nothing before it is differentiated.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """`rows` is the number of samples in a pass."""
        super().__init__()
        self.rows, self.start, self.leaf = rows, start, start if leaf is None else leaf
        self.depth = 0  # layers seen
        self.grid: tuple[int, ...] = ()  # of the patches, if a convolution cuts them
        self.maps: list[Tensor] = []
        self._unclear = 0  # attentions per sample that may be heads or windows
        self._joined = 0  # the width of their results side by side

    def __torch_function__(
        self, func: Operator, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Returned:
        """Run one operation of the network."""
        keywords, name = kwargs or {}, getattr(func, "__name__", "")
        if name in FUSED:
            _check_tokens(name, args)
            with self:  # so that its steps are seen
                return FUSED[name](*args, **keywords)
        result = self.operate(name, func, args, keywords)
        if self._unclear:
            self._identify_heads(name, args, result)
        if name in CUTTING and not self.depth:
            self.grid = tuple(result.shape[2:])
        if name == "softmax" and _between_tokens(result, _dimension(args, keywords)):
            return self.take(result)
        return result

    def begin(self, at: Tensor) -> Tensor:
        """The point that the network runs at; subclasses may change it."""
        return at

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """The result of an operation; subclasses may give it other rules."""
        return func(*args, **kwargs)

    def take(self, attention: Tensor) -> Tensor:
        """Record an attention; returns the tensor with which the network continues."""
        self._check(attention)
        if self.depth == self.leaf:
            attention = attention.detach().requires_grad_(True)
        if self.depth >= self.start:
            self.maps.append(attention)
        self.depth += 1
        return attention

    def _check(self, attention: Tensor) -> None:
        *leading, queries, keys = attention.shape
        if queries != keys:
            raise NotApplicable(
                f"This network attends from {queries} tokens to {keys}; attention methods need "
                f"attention among the same tokens."
            )
        if math.prod(leading) % self.rows or (len(leading) == 2 and leading[0] != self.rows):
            raise NotApplicable(
                "This network attends within windows, so no attention covers all tokens."
            )
        if self.maps and self.maps[0].shape[-1] != keys:
            raise NotApplicable(
                f"The layers of this network attend to {self.maps[0].shape[-1]} and to {keys} "
                f"tokens, so their attentions cannot be multiplied."
            )
        self.check_heads()
        each = leading[0] // self.rows if len(leading) == 1 else 1
        self._unclear = each if each > 1 else 0

    def _identify_heads(self, name: str, args: Arguments, result: Returned) -> None:
        """Heads are joined side by side in the input of the next layer; windows are not."""
        if name in ("matmul", "bmm", "einsum") and not self._joined:
            self._joined = self._unclear * int(result.shape[-1])
        elif name in ("linear", "addmm") and self._joined:
            if args[name == "addmm"].shape[-1] == self._joined:
                self._unclear = 0
            self.check_heads()
            self._joined = 0

    def check_heads(self) -> None:
        """Refuse attentions that may belong to windows instead of heads."""
        if self._unclear:
            raise NotApplicable(
                f"This network attends {self._unclear} times in each sample, and the next layer "
                f"does not take the results of so many heads side by side. It seems to attend "
                f"within windows, or along rows and columns, so no attention covers all tokens. If "
                f"these are heads, give them their own axis, [samples, heads, tokens, tokens]."
            )


def _check_tokens(name: str, args: Arguments) -> None:
    """Refuse fused attention between different tokens, which its maps do not show."""
    if name != "multi_head_attention_forward" or args[0] is args[1]:
        return
    if args[0].shape == args[1].shape and not torch.equal(args[0], args[1]):
        raise NotApplicable(
            "Its `nn.MultiheadAttention` has different queries and keys; only self-attention is "
            "supported."
        )


def _dimension(args: Arguments, kwargs: Keywords) -> int | None:
    return kwargs.get("dim", args[1] if len(args) > 1 else None)


def _between_tokens(result: Tensor, dimension: int | None) -> bool:
    """Whether a softmax is an attention: with heads, or square with heads and samples joined."""
    if dimension not in (-1, result.ndim - 1):
        return False
    return result.ndim == 4 or (result.ndim == 3 and result.shape[1] == result.shape[2])


# --- one micro-batch ------------------------------------------------------------------------------


@dataclass
class Attended:
    """The attentions of a network in one micro-batch, from layer `start` on."""

    model: Model
    targets: Tensor  # [n]
    logits: Tensor
    maps: list[Tensor]  # [n, H, s, s] each; nothing before the first is differentiated
    depth: int
    grid: tuple[int, ...]
    seen: Tensor | None  # [n, T]: true where there is no padding

    @property
    def tokens(self) -> int:
        """The length s of the sequence."""
        return int(self.maps[-1].shape[-1])

    def heads(self, tensors: list[Tensor]) -> list[Tensor]:
        """Attentions, or tensors of their shape, as `[n, H, s, s]`."""
        return [t.detach().reshape(len(self.targets), -1, *t.shape[-2:]) for t in tensors]

    def gradients(self, output: Output, layers: list[Tensor] | None = None) -> list[Tensor]:
        """The gradients of the explained output; zero for attention to padding."""
        with torch.enable_grad():
            scalar = explained(self.model, self.logits, self.targets, output).sum()
        return self.real(self._differentiate(scalar, self.maps if layers is None else layers))

    def real(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors as `[n, H, s, s]`, with zeros in the columns of padding."""
        by_head = self.heads(tensors)
        if self.seen is None:
            return by_head
        first = self.tokens - self.seen.shape[1]
        there = functional.pad(self.seen, (first, 0), value=True)[:, None, None]
        return [torch.where(there, t, 0.0) for t in by_head]

    def read(self) -> Tensor:  # [n, s]
        """Equal weights, with sum one, of the tokens from which the output is read.

        These are the tokens whose attention in the last layer changes some logit: the class token,
        all tokens of a network that takes their mean, the last word of a causal network.
        """
        mixed = torch.arange(1, self.logits.shape[1] + 1).cos().to(self.logits)  # no logits cancel
        with torch.enable_grad():
            scalar = (self.logits * mixed).sum()
        (gradient,) = self.heads(self._differentiate(scalar, self.maps[-1:]))
        read = gradient.abs().amax((1, 3)) > 0
        read = read | ~read.any(1, keepdim=True)
        return (read / read.sum(1, keepdim=True)).to(gradient.dtype)

    def release(self) -> None:
        """Free the graph of the maps; no gradients can be taken afterwards."""
        self.logits, self.maps = self.logits.detach(), [m.detach() for m in self.maps]

    def of_input(self, batch: Batch) -> Tensor:  # [n, s]
        """One for each token of the input, zero for special tokens before it and for padding."""
        first, _ = layout(batch, self.tokens, self.grid)
        there = torch.ones(len(self.targets), self.tokens - first, device=self.logits.device)
        there = there if self.seen is None else self.seen.float()
        return functional.pad(there, (first, 0)).to(self.maps[-1].dtype)

    def _differentiate(self, scalar: Tensor, inputs: list[Tensor]) -> list[Tensor]:
        if not scalar.requires_grad:  # the output does not depend on any attention
            return [torch.zeros_like(x) for x in inputs]
        return list(
            torch.autograd.grad(
                scalar, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )


def attend(model: Model, batch: Batch, samples: Tensor, at: Tensor, watch: Attending) -> Attended:
    """Run the network on some samples and watch it.

    Raises:
        NotApplicable: No attention is visible, or none that these methods can use.
    """
    with torch.enable_grad():
        at = watch.begin(model.laid_out(at))
        with watch:
            logits = model.logits(batch.inputs[samples], at=at)
    watch.check_heads()
    if not watch.depth:
        raise NotApplicable(
            f"No attention was seen while model `{model.name}` ran; a custom kernel may hide it. "
            f'Load it with `attn_implementation="eager"`, or write its attention with '
            f"`torch.nn.functional`."
        )
    if not watch.maps:
        raise InputError(
            f"Expected `start` to be below {watch.depth}, the number of attention layers of "
            f"model `{model.name}`, got {watch.start}."
        )
    seen = None if batch.tokens is None else batch.inputs[samples] != batch.tokens.pad
    maps, watch.maps = watch.maps, []  # so that releasing `Attended` frees its graph
    return Attended(model, batch.targets[samples], logits, maps, watch.depth, watch.grid, seen)


def _from_layer(start: int | None, depth: int | None) -> int:
    """The first layer that counts: `start`, from the end if negative; by default at a third."""
    if depth is None:  # unknown before the first pass, so all layers are collected
        return max(start or 0, 0)
    if start is None:
        return depth // 3
    return start if start >= 0 else depth + start


def attended(
    model: Model,
    batch: Batch,
    start: int | None,
    *,
    only_last: bool = False,
    kind: type[Attending] = Attending,
) -> Iterator[tuple[Tensor, Tensor, int, Attended, Attending]]:
    """Each micro-batch: its samples, their points, how many are not padding, their attentions.

    `only_last` means that only the last layer's gradient will be taken.
    """
    for module in model.net.modules():
        if getattr(getattr(module, "config", None), "is_encoder_decoder", False):
            raise NotApplicable(
                "Attention methods are not defined for encoder-decoder networks, whose parts "
                "attend to different texts."
            )
    x = points(model, batch)
    depth: int | None = None
    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        first = _from_layer(start, depth)
        leaf = depth - 1 if only_last and depth is not None else first
        watch = kind(len(samples), first, leaf)
        seen = attend(model, batch, samples, x[samples], watch)
        depth = seen.depth
        layout(batch, seen.tokens, seen.grid)  # an unknown layout is refused before any work
        seen.maps = seen.maps[_from_layer(start, depth) - first :]
        yield samples, x[samples], asked, seen, watch


def token_maps(
    model: Model,
    batch: Batch,
    start: int | None,
    resize: Resize,
    combine: Callable[[Attended], Tensor],
    *,
    only_last: bool = False,
) -> Tensor:  # [B, *map_shape]
    """The results `[n, s]` of `combine` for each micro-batch, as maps of the inputs."""
    rows: list[Tensor] = []
    grid: tuple[int, ...] = ()
    for _, _, asked, seen, _ in attended(model, batch, start, only_last=only_last):
        rows.append(combine(seen)[:asked])
        grid = seen.grid
        seen.release()  # before the next graph is built
    return to_map(batch, torch.cat(rows), grid, resize)


# --- from tokens to the input ---------------------------------------------------------------------


def to_map(batch: Batch, rows: Tensor, grid: tuple[int, ...], resize: Resize) -> Tensor:
    """Values of tokens `[B, s]` as a map: words unchanged, patches enlarged to pixels."""
    first, grid = layout(batch, rows.shape[1], grid)
    content = rows[:, first:].to(batch.dtype)
    if len(grid) == 1:
        return content
    coarse = content.reshape(-1, 1, *grid)
    if resize == "nearest":
        return functional.interpolate(coarse, batch.map_shape, mode="nearest")[:, 0]
    return functional.interpolate(
        coarse, batch.map_shape, mode="bilinear", align_corners=False
    )[:, 0]  # fmt: skip


def layout(batch: Batch, tokens: int, grid: tuple[int, ...] = ()) -> tuple[int, tuple[int, ...]]:
    """How many tokens come before those of the input, and the shape of the latter.

    Words are counted from the end. Patches fill the grid cut by convolutions and poolings, or,
    without any, the largest grid of the image's proportions, after a class token, a distillation
    token and registers.

    Raises:
        NotApplicable: The tokens do not match the input.
    """
    if len(batch.map_shape) == 1:
        first = tokens - batch.map_shape[0]
        if first >= 0:
            return first, batch.map_shape
    elif grid:
        if math.prod(grid) <= tokens:
            return tokens - math.prod(grid), grid
        raise NotApplicable(
            f"This network attends among {tokens} tokens, but its convolutions cut the image into "
            f"{' x '.join(map(str, grid))} patches: it attends within windows or along rows and "
            f"columns, or merges or drops patches. Only attention among all patches is supported."
        )
    else:
        height, width = batch.map_shape
        unit = math.gcd(height, width)
        for times in range(unit, 0, -1):  # `times` patches per unit of each side
            grid = (times * height // unit, times * width // unit)
            if math.prod(grid) <= tokens:
                return tokens - math.prod(grid), grid
    raise NotApplicable(
        f"The {tokens} tokens of this network do not match an input of shape {batch.map_shape}."
    )
