"""DeepLIFT's rules: how each operator distributes the difference between two runs.

The network first runs at the baseline, and the inputs of its operators are recorded; in the run at
the sample each operator then knows both of its inputs. It passes back a multiplier: the share in
the difference of the output per difference of the input. The multipliers are exact for every
operator, so that the shares of the whole network add up.
"""

import functools
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from assay.errors import NotApplicable
from assay.methods.call_types import Backward, Context, Operator, Returned, Tensors
from assay.methods.fused_attention import FUSED
from assay.methods.operators import ELEMENTWISE, LARGEST, LINEAR, MOVING, PRODUCTS, SMALLEST
from assay.methods.override import Call, Override, Rule, refusing

Tape = list[tuple[str, Tensors]]  # the operators in order, each with its inputs

ROUNDING = 16  # units in the last place: for smaller differences the gradient is used


class Differences(Override):
    """The rules: record the operators' inputs, or compare them with those of a recorded run."""

    def __init__(self, tape: Tape, recording: bool = False) -> None:
        """Take a tape to fill, or a filled one."""
        unknown = refusing("DeepLIFT", MOVING | LINEAR)
        rules: dict[str, Rule] = dict.fromkeys(ELEMENTWISE, self._elementwise)
        rules |= dict.fromkeys(PRODUCTS, self._product)
        rules |= dict.fromkeys(LARGEST, functools.partial(self._extreme, torch.maximum))
        rules |= dict.fromkeys(SMALLEST, functools.partial(self._extreme, torch.minimum))
        rules |= dict.fromkeys(RECIPES, self._composed)
        rules |= dict.fromkeys(FUSED, self.written_out)
        rules |= {"batch_norm": self._batch_norm, "div": self._quotient}
        rules["logsumexp"] = functools.partial(self._differing, _LogSumExp)
        super().__init__(rules, unknown)
        self.tape, self.recording = tape, recording
        self.next = 0

    def finished(self) -> bool:
        """Whether every recorded operator has run again."""
        return self.next == len(self.tape)

    def before(self, call: Call) -> Tensors | None:
        """The same operator's inputs in the recorded run; None while recording."""
        if self.recording:
            self.tape.append((call.name, tuple(t.detach() for t in call.inputs)))
            return None
        name, inputs = self.tape[self.next] if not self.finished() else ("", ())
        self.next += 1
        if name != call.name or [t.shape for t in inputs] != [t.shape for t in call.inputs]:
            raise NotApplicable(
                f"The network runs other operators at the baseline than at the sample, from the "
                f"operator `{call.name}` on, so differences between the runs are not defined."
            )
        return inputs

    def _elementwise(self, call: Call) -> Returned:
        alone = len(call.inputs) == 1
        if not alone or call(*call.inputs).shape != call.inputs[0].shape:
            return self.otherwise(call)
        return self._differing(_Ratio, call)

    def _product(self, call: Call) -> Returned:
        if len(call.inputs) == 1:
            return call()
        return self._differing(_Midpoint, call) if len(call.inputs) == 2 else self.otherwise(call)

    def _extreme(self, chosen: Callable[[Tensor, Tensor], Tensor], call: Call) -> Returned:
        result = call()
        if isinstance(result, Tensor):
            return self._differing(_Winner, call, chosen)
        values = self._differing(_Winner, _first(call), chosen)  # indices come with the values
        return type(result)((values, *result[1:]))

    def _quotient(self, call: Call) -> Returned:
        if call.kwargs.get("rounding_mode"):
            return self.otherwise(call)
        by_a_constant = len(call.inputs) == 1 and call.args[0] is call.inputs[0]
        return call() if by_a_constant else self._composed(call)

    def _composed(self, call: Call) -> Returned:
        return self._differing(_Composed, call, RECIPES[call.name])

    def _batch_norm(self, call: Call) -> Returned:
        return self.otherwise(call) if call.option(5, "training") else call()

    def _differing(self, rule: type["_Difference"], call: Call, *more: Operator) -> Returned:
        before = self.before(call)
        if before is None:
            return call()
        return rule.apply(call, before, more, *call.inputs)  # type: ignore[no-untyped-call]


def _first(call: Call) -> Call:
    return Call(call.name, lambda *a, **k: call.function(*a, **k)[0], call.args, call.kwargs)


class _Difference(torch.autograd.Function):
    """An operator that knows its inputs at the baseline; `multiply` is its rule."""

    @staticmethod
    def forward(
        ctx: Context, call: Call, before: Tensors, more: tuple[Operator, ...], *inputs: Tensor
    ) -> Tensor:
        ctx.save_for_backward(*inputs)
        ctx.call, ctx.before, ctx.more = call, before, more
        result: Tensor = call(*inputs)
        return result

    @classmethod
    def backward(cls, ctx: Context, *gradients: Tensor) -> Backward:
        shares = cls.multiply(ctx.call, ctx.saved_tensors, ctx.before, gradients[0], *ctx.more)
        return None, None, None, *shares

    # (call, inputs now, inputs before, gradient, *more) -> what each input passes back
    multiply: ClassVar[Callable[..., Tensors]]


class _Ratio(_Difference):
    """(f(x) - f(b)) / (x - b) elementwise; the gradient where x and b differ only by rounding."""

    @staticmethod
    def multiply(call: Call, now: Tensors, before: Tensors, gradient: Tensor) -> Tensors:
        (x,), (b,) = now, before
        there, here = call(x), call(b)
        (slope,) = call.pulled(((x + b) / 2,), torch.ones_like(gradient))
        # Rounding affects x and f(x); a steep slope makes the error of f(x) a small change of x.
        rounded = torch.maximum(there.abs(), here.abs()) / slope.abs().clamp(min=1)
        size = torch.maximum(torch.maximum(x.abs(), b.abs()), rounded)
        change = x - b
        small = (x == b) | (change.abs() <= ROUNDING * torch.finfo(x.dtype).eps * size)
        ratio = (there - here) / torch.where(small, 1.0, change)
        return (gradient * torch.where(small, slope, ratio),)


class _Midpoint(_Difference):
    """Products share their difference evenly, which is exact for functions of second degree."""

    @staticmethod
    def multiply(call: Call, now: Tensors, before: Tensors, gradient: Tensor) -> Tensors:
        return call.pulled(tuple((x + b) / 2 for x, b in zip(now, before, strict=True)), gradient)


class _Winner(_Difference):
    """The change of a maximum goes to the largest input: now if it rose, before if it fell."""

    @staticmethod
    def multiply(
        call: Call, now: Tensors, before: Tensors, gradient: Tensor, *more: Operator
    ) -> Tensors:
        (chosen,) = more
        there, here = call(*now), call(*before)
        between = chosen(there, here)
        risen = call.pulled(now, gradient * (between - here))
        fallen = call.pulled(before, gradient * (there - between))
        changes = [x - b for x, b in zip(now, before, strict=True)]
        return tuple(
            torch.where(c == 0, 0.0, (r + f) / torch.where(c == 0, 1.0, c))
            for c, r, f in zip(changes, risen, fallen, strict=True)
        )


class _LogSumExp(_Difference):
    """log, sum and exp by their ratios at once, so that no exponential overflows."""

    @staticmethod
    def multiply(call: Call, now: Tensors, before: Tensors, gradient: Tensor) -> Tensors:
        (x,), (b,) = now, before
        dim = call.option(1, "dim")
        there, here = (t.logsumexp(dim, keepdim=True) for t in (x, b))
        top = torch.maximum(there, here)
        parts, whole = _mean_power(x, b, top), _mean_power(there, here, top)
        return (gradient.reshape(there.shape) * parts / whole,)


def _mean_power(x: Tensor, b: Tensor, top: Tensor) -> Tensor:
    """(exp x - exp b) / (x - b) / exp(top), and exp(x - top) where x = b, also at -inf (masks)."""
    gap = torch.where(x == b, 0.0, (x - b).abs())
    below = torch.where(gap == 0, 1.0, -torch.expm1(-gap) / gap)
    return torch.exp(torch.maximum(x, b) - top) * below


class _Composed(_Difference):
    """An operator written in simpler ones, whose rules are combined."""

    @staticmethod
    def multiply(
        call: Call, now: Tensors, before: Tensors, gradient: Tensor, *more: Operator
    ) -> Tensors:
        (recipe,) = more
        tape: Tape = []
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(True) for t in now]
            starts = [t.detach().requires_grad_(True) for t in before]
            with Differences(tape, recording=True):
                recipe(call, *starts)
            with Differences(tape):
                result = recipe(call, *leaves)
            return torch.autograd.grad(result, leaves, gradient)


# Recipes are `(call, *inputs) -> result`.


def _log_softmax(call: Call, x: Tensor) -> Tensor:
    return x - x.logsumexp(call.option(1, "dim"), keepdim=True)


def _softmax(call: Call, x: Tensor) -> Tensor:
    return _log_softmax(call, x).exp()


def _quotient(call: Call, *inputs: Tensor) -> Tensor:
    above = inputs[0] if len(inputs) == 2 else call.args[0]
    return inputs[-1].reciprocal() * above


def _standard(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * (centred.square().mean(dims, keepdim=True) + eps).rsqrt()


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(call: Call, x: Tensor) -> Tensor:
    dims = tuple(range(-len(call.option(1, "normalized_shape")), 0))
    standard = _standard(x, dims, call.option(4, "eps", 1e-5))
    return _affine(standard, call.option(2, "weight"), call.option(3, "bias"))


def _group_norm(call: Call, x: Tensor) -> Tensor:
    grouped = x.reshape(len(x), call.option(1, "num_groups"), -1)
    standard = _standard(grouped, (-1,), call.option(4, "eps", 1e-5)).reshape(x.shape)
    column = (-1, *[1] * (x.ndim - 2))
    weight, bias = call.option(2, "weight"), call.option(3, "bias")
    return _affine(
        standard,
        None if weight is None else weight.reshape(column),
        None if bias is None else bias.reshape(column),
    )


RECIPES: dict[str, Callable[..., Tensor]] = {
    "div": _quotient,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
}
