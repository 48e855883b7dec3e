"""How a network attends: every layer's attention, its gradient, and the tokens that are read.

Nothing of the network is touched. While it runs, a `TorchFunctionMode` sees the operations it is
made of: a softmax over pairs of tokens is an attention. Fused kernels, which keep theirs to
themselves, are computed step by step.
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
CUTTING = (  # they lay out the patches, or make fewer of them
    "conv2d", "max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d",
)  # fmt: skip


class Attending(TorchFunctionMode):
    """While a network runs: its attentions in order, `[n, H, s, s]`, from layer `start` on.

    That of layer `leaf` becomes a leaf, so that nothing before it is differentiated.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """For a network that is given so many samples."""
        super().__init__()
        self.rows, self.start, self.leaf = rows, start, start if leaf is None else leaf
        self.depth = 0  # layers seen
        self.grid: tuple[int, ...] = ()  # of the patches, where a convolution cuts them
        self.maps: list[Tensor] = []
        self._untold = 0  # attentions of one sample in one axis with the samples: heads, windows?
        self._joined = 0  # the width of what they give side by side

    def __torch_function__(
        self, func: Operator, types: object, args: Arguments = (), kwargs: Keywords | None = None
    ) -> Returned:
        """Each operation of the network, on its way."""
        told, name = kwargs or {}, getattr(func, "__name__", "")
        if name in FUSED:
            _check_tokens(name, args)
            with self:  # its parts are seen as well
                return FUSED[name](*args, **told)
        result = self.operate(name, func, args, told)
        if self._untold:
            self._tell_heads(name, args, result)
        if name in CUTTING and not self.depth:
            self.grid = tuple(result.shape[2:])
        if name == "softmax" and _between_tokens(result, _dimension(args, told)):
            return self.take(result)
        return result

    def begin(self, at: Tensor) -> Tensor:
        """The point that the network is run at; others may change it."""
        return at

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """What an operation gives; others may give it rules of their own."""
        return func(*args, **kwargs)

    def take(self, attention: Tensor) -> Tensor:
        """Keep an attention; gives what the network goes on with."""
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
                f"It attends from {queries} tokens to {keys}: what one says of the other is not "
                f"what these methods multiply."
            )
        if math.prod(leading) % self.rows or (len(leading) == 2 and leading[0] != self.rows):
            raise NotApplicable("It attends within windows: no row holds all tokens.")
        if self.maps and self.maps[0].shape[-1] != keys:
            raise NotApplicable(
                f"Its layers attend to {self.maps[0].shape[-1]} tokens and to {keys}: their "
                f"attentions cannot be multiplied."
            )
        self.check_heads()
        each = leading[0] // self.rows if len(leading) == 1 else 1
        self._untold = each if each > 1 else 0

    def _tell_heads(self, name: str, args: Arguments, result: Returned) -> None:
        """What heads give stands side by side in what the next layer takes; of windows not."""
        if name in ("matmul", "bmm", "einsum") and not self._joined:
            self._joined = self._untold * int(result.shape[-1])
        elif name in ("linear", "addmm") and self._joined:
            if args[name == "addmm"].shape[-1] == self._joined:
                self._untold = 0
            self.check_heads()
            self._joined = 0

    def check_heads(self) -> None:
        """Refuse attentions that may be those of windows as well as those of heads."""
        if self._untold:
            raise NotApplicable(
                f"It attends {self._untold} times in each sample, and the layer behind does not "
                f"take what so many heads give side by side: it attends within windows, or along "
                f"rows and columns, and no attention holds all tokens. Where these are heads, give "
                f"them an axis of their own, [samples, heads, tokens, tokens]."
            )


def _check_tokens(name: str, args: Arguments) -> None:
    """Refuse a fused attention between different tokens, which its maps do not show."""
    if name != "multi_head_attention_forward" or args[0] is args[1]:
        return
    if args[0].shape == args[1].shape and not torch.equal(args[0], args[1]):
        raise NotApplicable(
            "Its `nn.MultiheadAttention` looks at other tokens than it speaks for: only "
            "self-attention is explained."
        )


def _dimension(args: Arguments, kwargs: Keywords) -> int | None:
    return kwargs.get("dim", args[1] if len(args) > 1 else None)


def _between_tokens(result: Tensor, dimension: int | None) -> bool:
    """Whether a softmax is an attention: by heads, or square and with heads and samples in one."""
    if dimension not in (-1, result.ndim - 1):
        return False
    return result.ndim == 4 or (result.ndim == 3 and result.shape[1] == result.shape[2])


# --- one micro-batch, read ------------------------------------------------------------------------


@dataclass
class Attended:
    """What a network attended to in one micro-batch, from layer `start` on."""

    model: Model
    targets: Tensor  # [n]
    logits: Tensor
    maps: list[Tensor]  # [n, H, s, s] each, before the first of them nothing is differentiated
    depth: int
    grid: tuple[int, ...]
    seen: Tensor | None  # [n, T]: what is no padding

    @property
    def tokens(self) -> int:
        """The length s of the sequence."""
        return int(self.maps[-1].shape[-1])

    def heads(self, tensors: list[Tensor]) -> list[Tensor]:
        """Attentions, or what is shaped like them, as `[n, H, s, s]`."""
        return [t.detach().reshape(len(self.targets), -1, *t.shape[-2:]) for t in tensors]

    def gradients(self, output: Output, layers: list[Tensor] | None = None) -> list[Tensor]:
        """The gradients of the explained output; of attention to padding there is none."""
        with torch.enable_grad():
            scalar = explained(self.model, self.logits, self.targets, output).sum()
        return self.real(self._differentiate(scalar, self.maps if layers is None else layers))

    def real(self, tensors: list[Tensor]) -> list[Tensor]:
        """As `[n, H, s, s]`, with zeros in the columns of padding."""
        found = self.heads(tensors)
        if self.seen is None:
            return found
        first = self.tokens - self.seen.shape[1]
        there = functional.pad(self.seen, (first, 0), value=True)[:, None, None]
        return [torch.where(there, t, 0.0) for t in found]

    def read(self) -> Tensor:  # [n, s]
        """The tokens that the answer is read from, in equal parts that sum to one.

        They are those whose attention in the last layer changes some logit: the class token, all
        tokens of a network that takes their mean, the last word of a causal one.
        """
        mixed = torch.arange(1, self.logits.shape[1] + 1).cos().to(self.logits)  # no logits cancel
        with torch.enable_grad():
            scalar = (self.logits * mixed).sum()
        (gradient,) = self.heads(self._differentiate(scalar, self.maps[-1:]))
        found = gradient.abs().amax((1, 3)) > 0
        found = found | ~found.any(1, keepdim=True)
        return (found / found.sum(1, keepdim=True)).to(gradient.dtype)

    def release(self) -> None:
        """Forget how the maps came about: no gradient will be taken any more."""
        self.logits, self.maps = self.logits.detach(), [m.detach() for m in self.maps]

    def of_input(self, batch: Batch) -> Tensor:  # [n, s]
        """One for each token of the input, zero for what stands before it and for padding."""
        first, _ = layout(batch, self.tokens, self.grid)
        there = torch.ones(len(self.targets), self.tokens - first, device=self.logits.device)
        there = there if self.seen is None else self.seen.float()
        return functional.pad(there, (first, 0)).to(self.maps[-1].dtype)

    def _differentiate(self, scalar: Tensor, inputs: list[Tensor]) -> list[Tensor]:
        if not scalar.requires_grad:  # the answer does not depend on any attention
            return [torch.zeros_like(x) for x in inputs]
        return list(
            torch.autograd.grad(
                scalar, inputs, retain_graph=True, allow_unused=True, materialize_grads=True
            )
        )


def attend(model: Model, batch: Batch, samples: Tensor, at: Tensor, watch: Attending) -> Attended:
    """Run the network on some samples and watch it.

    Raises:
        NotApplicable: There is no attention to be seen, or none that these methods can use.
    """
    with torch.enable_grad():
        at = watch.begin(model.laid_out(at))
        with watch:
            logits = model.logits(batch.inputs[samples], at=at)
    watch.check_heads()
    if not watch.depth:
        raise NotApplicable(
            f"No attention was seen while model `{model.name}` ran: a kernel of its own may hide "
            f'it. Load it with `attn_implementation="eager"`, or write its attention with '
            f"`torch.nn.functional`."
        )
    if not watch.maps:
        raise InputError(
            f"Expected `start` to be below {watch.depth}, the number of attention layers of "
            f"model `{model.name}`, got {watch.start}."
        )
    seen = None if batch.tokens is None else batch.inputs[samples] != batch.tokens.pad
    maps, watch.maps = watch.maps, []  # whoever lets go of what was attended to frees its graph
    return Attended(model, batch.targets[samples], logits, maps, watch.depth, watch.grid, seen)


def _from_layer(start: int | None, depth: int | None) -> int:
    """The first layer that counts: the one told, from the end if negative; a third of the way."""
    if depth is None:  # not known before the first look: all are kept
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
    """Every micro-batch: its samples, the points, how many were asked for, what was attended to.

    `only_last` says that no gradient but the last layer's will be taken.
    """
    for module in model.net.modules():
        if getattr(getattr(module, "config", None), "is_encoder_decoder", False):
            raise NotApplicable("Encoder and decoder attend to different texts.")
    x = points(model, batch)
    depth: int | None = None
    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        first = _from_layer(start, depth)
        leaf = depth - 1 if only_last and depth is not None else first
        watch = kind(len(samples), first, leaf)
        found = attend(model, batch, samples, x[samples], watch)
        depth = found.depth
        layout(batch, found.tokens, found.grid)  # refused before anything is made of them
        found.maps = found.maps[_from_layer(start, depth) - first :]
        yield samples, x[samples], asked, found, watch


def token_maps(
    model: Model,
    batch: Batch,
    start: int | None,
    resize: Resize,
    combine: Callable[[Attended], Tensor],
    *,
    only_last: bool = False,
) -> Tensor:  # [B, *map_shape]
    """What `combine` makes of each micro-batch, `[n, s]`, as maps of the inputs."""
    rows: list[Tensor] = []
    grid: tuple[int, ...] = ()
    for _, _, asked, found, _ in attended(model, batch, start, only_last=only_last):
        rows.append(combine(found)[:asked])
        grid = found.grid
        found.release()  # before the next graph is built
    return to_map(batch, torch.cat(rows), grid, resize)


# --- from tokens to the input ---------------------------------------------------------------------


def to_map(batch: Batch, rows: Tensor, grid: tuple[int, ...], resize: Resize) -> Tensor:
    """Tokens `[B, s]` as places of the input: words as they are, patches enlarged to pixels."""
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
    """How many tokens stand before those of the input, and how these are laid out.

    Words are counted from the end. Patches fill the grid that convolutions and poolings cut, or,
    without any, the largest of the image's shape, behind a class token, one for distillation,
    registers.

    Raises:
        NotApplicable: The tokens are not the input's.
    """
    if len(batch.map_shape) == 1:
        first = tokens - batch.map_shape[0]
        if first >= 0:
            return first, batch.map_shape
    elif grid:
        if math.prod(grid) <= tokens:
            return tokens - math.prod(grid), grid
        raise NotApplicable(
            f"It attends among {tokens} tokens where its convolutions cut the image into "
            f"{' x '.join(map(str, grid))} patches: within windows or along rows and columns, or "
            f"after patches were merged or dropped. Only attention among all patches is laid out."
        )
    else:
        height, width = batch.map_shape
        unit = math.gcd(height, width)
        for times in range(unit, 0, -1):  # a grid of `times` patches to each side's unit
            grid = (times * height // unit, times * width // unit)
            if math.prod(grid) <= tokens:
                return tokens - math.prod(grid), grid
    raise NotApplicable(
        f"Its {tokens} tokens are not those of an input of shape {batch.map_shape}."
    )
