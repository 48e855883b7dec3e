"""Relevance in transformers: the operations of a running network get other backward rules.

What autograd then returns as the gradient of an attention is its relevance. Where a tensor is used
twice its relevances add up, as gradients do.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from assay.errors import NotApplicable
from assay.methods.attending import Attending
from assay.methods.call_types import (
    Arguments,
    Backward,
    Context,
    Keywords,
    Operator,
    Returned,
    Tensors,
)

# Relevance passes unchanged through operations on each token alone,
THROUGH = {
    "softmax", "layer_norm", "gelu", "relu", "silu", "tanh", "sigmoid", "dropout", "masked_fill",
}  # fmt: skip
# is shared by the factors of a product, or by the terms of a sum over positions,
CONTRACTIONS = {"matmul", "bmm", "einsum"}
SUMS = {"sum", "mean"}
# and follows values that only move.
MOVES = {
    "__get__", "__getitem__", "cat", "chunk", "clone", "contiguous", "double", "expand",
    "expand_as", "flatten", "float", "gather", "half", "index_select", "movedim", "narrow",
    "permute", "repeat", "repeat_interleave", "reshape", "select", "split", "squeeze", "stack",
    "swapaxes", "to", "transpose", "type_as", "unbind", "unflatten", "unsqueeze", "view", "view_as",
}  # fmt: skip


class CheferRules(Attending):
    """Watch a running network and give its operations the backward rules of relevance.

    Raises:
        NotApplicable: An operation has no rule.
    """

    samples_second = False  # whether the network's streams are [s, n, D]

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """The result of an operation, with its rule where relevance passes."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        moving = [a for a in tensors if a.requires_grad]
        if name == "linear" and moving:
            return _linear(*args, **kwargs)
        if name == "addmm" and not kwargs and len(moving) == 1 and moving[0] is args[1]:
            return _linear(args[1], args[2].T, args[0])
        if name in CONTRACTIONS and moving and len(tensors) == 2:
            return _Shares.apply(  # type: ignore[no-untyped-call]
                lambda *factors: func(*_put(args, factors), **kwargs), *tensors
            )
        if name in SUMS and moving:
            return _Shares.apply(  # type: ignore[no-untyped-call]
                lambda x: func(x, *args[1:], **kwargs), *tensors
            )
        if name == "add" and moving and _are_branches(tensors) and not kwargs:
            axis = int(self.samples_second and tensors[0].ndim == 3)
            return _Branches.apply(*tensors, axis)  # type: ignore[no-untyped-call]
        alone = len(moving) == 1 and (name != "div" or moving[0] is args[0])
        if alone and name in {*THROUGH, "add", "mul", "div"}:
            still = [a.detach() if isinstance(a, Tensor) else a for a in args]
            value = func(*still, **kwargs)
            if value.shape == moving[0].shape:
                return _Through.apply(moving[0], value)  # type: ignore[no-untyped-call]
        result = func(*args, **kwargs)
        if name in MOVES or not _carries(result):
            return result
        cure = (
            " With one logit z the logits of the classes are -z and z: give the network one logit "
            "per class."
            if name == "neg"
            else ""
        )
        raise NotApplicable(
            f"Chefer LRP has no rule for the operation `{name}` of this network.{cure}"
        )


def _carries(result: Returned) -> bool:
    parts = result if isinstance(result, tuple | list) else [result]
    return any(isinstance(part, Tensor) and part.requires_grad for part in parts)


def _put(args: Arguments, tensors: Tensors) -> Arguments:
    """The arguments with their tensors replaced."""
    rest = iter(tensors)
    return tuple(next(rest) if isinstance(a, Tensor) else a for a in args)


def _are_branches(tensors: list[Tensor]) -> bool:
    """Whether a sum joins two branches of the network, not one with a mask, bias or position."""
    if len(tensors) != 2 or tensors[0].shape != tensors[1].shape:
        return False
    return all(t.requires_grad for t in tensors) or tensors[0].ndim < 4


def _divide(above: Tensor, below: Tensor) -> Tensor:
    """Their quotient, zero where the denominator is zero."""
    return torch.where(below == 0, 0.0, above / torch.where(below == -1e-9, 1e-9, below + 1e-9))


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    result: Tensor = _Linear.apply(input, weight, bias)  # type: ignore[no-untyped-call]
    return result


class _Linear(Function):
    """Each input gets its share of the positive contributions: the alpha-1 beta-0 rule."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Context, *relevance: Tensor) -> Backward:
        x, weight = ctx.saved_tensors
        pairs = [(x.clamp(min=0), weight.clamp(min=0)), (x.clamp(max=0), weight.clamp(max=0))]
        total = sum(functional.linear(a, w) for a, w in pairs)
        share = _divide(relevance[0], torch.as_tensor(total))
        return torch.as_tensor(sum(a * (share @ w) for a, w in pairs)), None, None


class _Shares(Function):
    """Each input gets its share of the result; two factors of a product get half of it each."""

    @staticmethod
    def forward(ctx: Context, call: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.call = call
        ctx.save_for_backward(*inputs)
        return call(*inputs)

    @staticmethod
    def backward(ctx: Context, *relevance: Tensor) -> Backward:
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_(True) for x in ctx.saved_tensors]
            outcome = ctx.call(*inputs)
            slopes = torch.autograd.grad(outcome, inputs, _divide(relevance[0], outcome.detach()))
        parts = zip(inputs, slopes, strict=True)
        return None, *(x.detach() * slope / len(inputs) for x, slope in parts)


class _Branches(Function):
    """Both branches of a residual sum get their absolute shares, sample by sample."""

    @staticmethod
    def forward(ctx: Context, a: Tensor, b: Tensor, axis: int) -> Tensor:
        ctx.others = [i for i in range(a.ndim) if i != axis]
        ctx.save_for_backward(a, b)
        return a + b

    @staticmethod
    def backward(ctx: Context, *relevance: Tensor) -> Backward:
        branches = ctx.saved_tensors
        each = _divide(relevance[0], branches[0] + branches[1])
        parts = [branch * each for branch in branches]
        sums = [part.sum(ctx.others, keepdim=True) for part in parts]
        weight = sums[0].abs() + sums[1].abs()
        whole = relevance[0].sum(ctx.others, keepdim=True)
        scaled = [
            part * _divide(_divide(own.abs(), weight) * whole, own)
            for part, own in zip(parts, sums, strict=True)
        ]
        return *scaled, None


class _Through(Function):
    """Relevance passes unchanged."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, value: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Context, *relevance: Tensor) -> Backward:
        return relevance[0], None
