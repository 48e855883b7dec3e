"""Layer-wise relevance: each operator passes back how much its inputs contribute to its output.

Relevance flows back through the network instead of gradients: a linear layer distributes it by a
rule, all other operators in one fixed way each. Where a tensor is used twice, its relevances add
up.
"""

import functools
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils import _pytree as tree
from torch.utils.weak import WeakTensorKeyDictionary

from assay.methods.call_types import Backward, Context, Returned, Tensors
from assay.methods.fused_attention import FUSED
from assay.methods.operators import ACTIVATIONS, GATES, LARGEST, LINEAR, MOVING
from assay.methods.override import Call, Override, Rule, refusing

STABLE = 1e-6  # keeps denominators away from zero
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")


@dataclass(eq=False)
class Layer:
    """A linear layer: `apply(input, weight)` plus a bias, from `x` to `z`."""

    kind: str  # conv | dense
    first: bool
    x: Tensor
    z: Tensor
    weight: Tensor
    bias: Tensor | None  # broadcasts to z
    apply: Callable[[Tensor, Tensor], Tensor]
    units: int | None = None  # the axis of the weight that counts the outputs
    axis: int = 1  # the same axis of z

    def back(
        self, pairs: list[tuple[Tensor, Tensor]], shares: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Distribute relevance among pairs of input and weight: x times the transposed layer.

        `shares` turns the total output of the pairs into the relevance per unit of output.
        """
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_(True) for x, _ in pairs]
            parts = [self.apply(x, pair[1]) for x, pair in zip(leaves, pairs, strict=True)]
            total = functools.reduce(torch.add, parts)
            slopes = torch.autograd.grad(total, leaves, shares(total.detach()))
        return functools.reduce(torch.add, [s * x for s, (x, _) in zip(slopes, pairs, strict=True)])

    def gives_channels(self) -> bool:
        """Whether its outputs are the channels of z, [n, channels, ...], one for each weight."""
        return self.units is not None and self.z.ndim + self.axis == 1

    def scaled(self, scale: Tensor, shift: Tensor, z: Tensor) -> "Layer":
        """The same layer with its output scaled and shifted, channel by channel."""
        column = [1] * self.z.ndim
        column[self.axis] = -1
        row = [1] * self.weight.ndim
        row[self.units or 0] = -1
        bias = shift.reshape(column)
        bias = bias if self.bias is None else bias + self.bias * scale.reshape(column)
        return replace(self, z=z.detach(), weight=self.weight * scale.reshape(row), bias=bias)


LayerRule = Callable[[Layer, Tensor], Tensor]  # from a layer and the relevance of z to that of x


def stable_ratio(above: Tensor, below: Tensor, epsilon: float) -> Tensor:
    """`above / below`, with `below` kept away from zero; without epsilon, 0 where it is zero."""
    if epsilon == 0:
        return torch.where(below == 0, 0.0, above / torch.where(below == 0, 1.0, below))
    return above / (below + torch.where(below < 0, -epsilon, epsilon))


def epsilon_rule(epsilon: float) -> LayerRule:
    """The share of x w in z, with its bias; epsilon reduces shares where z is nearly zero."""

    def share(layer: Layer, relevance: Tensor) -> Tensor:
        shares = stable_ratio(relevance, layer.z, epsilon)
        return layer.back([(layer.x, layer.weight)], lambda _: shares)

    return share


def alpha_beta_rule(alpha: float) -> LayerRule:
    """Positive contributions to z get alpha times its relevance, negative ones 1 - alpha times."""

    def share(layer: Layer, relevance: Tensor) -> Tensor:
        shared = torch.zeros_like(layer.x)
        for sign, part in ((1, alpha), (-1, 1 - alpha)):
            if part:
                shared = shared + part * _one_sign(layer, relevance, sign)
        return shared

    return share


def _one_sign(layer: Layer, relevance: Tensor, sign: int) -> Tensor:
    """The relevance distributed among the products x w of one sign."""
    pairs = [(layer.x.clamp(min=0), _part(layer.weight, sign))]
    if bool((layer.x < 0).any()):
        pairs.append((layer.x.clamp(max=0), _part(layer.weight, -sign)))
    bias = 0.0 if layer.bias is None else _part(layer.bias, sign)
    return layer.back(pairs, lambda total: stable_ratio(relevance, total + bias, STABLE))


def _part(values: Tensor, sign: int) -> Tensor:
    return values.clamp(min=0) if sign > 0 else values.clamp(max=0)


def flat_rule(layer: Layer, relevance: Tensor) -> Tensor:
    """Every input of a unit gets the same share, whatever its value."""
    ones = (torch.ones_like(layer.x), torch.ones_like(layer.weight))
    return layer.back([ones], lambda total: stable_ratio(relevance, total, STABLE))


def excitation_rule(layer: Layer, relevance: Tensor) -> Tensor:
    """Distribute among positive inputs with positive weights; without any, relevance is lost.

    Negative relevance belongs to -z, which positive inputs excite through negative weights.
    """
    shared = _excited(layer, relevance, 1)
    return shared + _excited(layer, relevance, -1) if bool((relevance < 0).any()) else shared


def _excited(layer: Layer, relevance: Tensor, sign: int) -> Tensor:
    pairs = [(layer.x.clamp(min=0), _part(layer.weight, sign))]
    part = _part(relevance, sign)
    return sign * layer.back(pairs, lambda total: stable_ratio(part, total, 0))


# From the relevance of a result to that of the inputs it was made of.
Shares = Callable[[Tensor], Tensors]


class _Carry(torch.autograd.Function):
    """A result unchanged, with relevance in place of its gradient."""

    @staticmethod
    def forward(ctx: Context, value: list[Tensor], share: Shares, *inputs: Tensor) -> Tensor:
        ctx.share = share
        return value.pop().detach()

    @staticmethod
    def backward(ctx: Context, *relevance: Tensor) -> Backward:
        return None, None, *ctx.share(relevance[0])


def carry(value: Tensor, share: Shares, *inputs: Tensor) -> Tensor:
    """The value; `share` turns its relevance into the inputs' relevance."""
    carried: Tensor = _Carry.apply([value], share, *inputs)  # type: ignore[no-untyped-call]
    return carried


class Relevance(Override):
    """The rules: `rule` for linear layers by kind and position, a fixed one for other operators."""

    def __init__(
        self, name: str, rule: Callable[[Layer], LayerRule], epsilon: float, positive: bool = False
    ) -> None:
        """`positive` distributes sums among their positive terms, without constants.

        Negative relevance then belongs to a number's negative, and goes to its positive terms.
        """
        self.rule, self.epsilon, self.positive = rule, epsilon, positive
        self._first = True  # no layer has run yet
        # The layer that gave a tensor, with its input; and the outputs of sigmoids.
        self._made: MutableMapping[Tensor, tuple[Layer, Tensor]] = WeakTensorKeyDictionary()
        self._gates: MutableMapping[Tensor, bool] = WeakTensorKeyDictionary()
        self._unknown = refusing(name, MOVING | frozenset(LARGEST))
        rules: dict[str, Rule] = dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED, "linear"), self._layer)
        rules["addmm"] = self._dense
        rules |= dict.fromkeys(("matmul", "einsum", "tensordot"), self._contraction)
        rules |= dict.fromkeys(LINEAR, self._proportional)
        rules |= dict.fromkeys(ACTIVATIONS, self._unchanged)
        rules |= dict.fromkeys(GATES, self._gate)
        rules |= {"batch_norm": self._batch_norm, "mul": self._scaled, "div": self._scaled}
        rules |= {"neg": self._negated} if positive else {}
        rules |= dict.fromkeys(FUSED, self.written_out) | {"layer_norm": self._layer_norm}
        super().__init__(rules, self._moved)

    def _layer(self, call: Call) -> Returned:
        x, weight = call.option(0, "input"), call.option(1, "weight")
        if len(call.inputs) > 1 or call.inputs[0] is not x:
            return self._unknown(call)
        rest = call.args[3:]
        options = {k: v for k, v in call.kwargs.items() if k not in ("input", "weight", "bias")}

        def apply(x: Tensor, weight: Tensor) -> Tensor:
            result: Tensor = call.function(x, weight, None, *rest, **options)
            return result

        dense = call.name == "linear"
        bias = call.option(2, "bias")
        if bias is not None and not dense:
            bias = bias.reshape(-1, *[1] * (weight.ndim - 2))
        axis = -1 if dense else 1 - weight.ndim
        units = None if call.name in TRANSPOSED else 0
        return self._share_out(call, weight, bias, apply, "dense" if dense else "conv", units, axis)

    def _dense(self, call: Call) -> Returned:
        """A bias plus x times a weight, without other factors, is a dense layer."""
        if call.kwargs or len(call.inputs) > 1 or call.inputs[0] is not call.args[1]:
            return self._unknown(call)
        bias, x, weight = call.args
        return self._layer(Call("linear", functional.linear, (x, weight.T, bias)))

    def _contraction(self, call: Call) -> Returned:
        """A product with a constant is a dense layer over any axes; one with a gate is a sum."""
        gates = [t for t in call.inputs if t in self._gates]
        if len(call.inputs) == 2 and len(gates) == 1:
            return self._proportional(_held(call, gates[0]))
        leaves, shape = tree.tree_flatten((call.args, call.kwargs))
        others = [
            i for i, p in enumerate(leaves) if isinstance(p, Tensor) and p is not call.inputs[0]
        ]
        if len(call.inputs) > 1 or len(others) != 1:
            return self._unknown(call)
        at = next(i for i, p in enumerate(leaves) if p is call.inputs[0])

        def apply(x: Tensor, weight: Tensor) -> Tensor:
            changed = list(leaves)
            changed[at], changed[others[0]] = x, weight
            args, kwargs = tree.tree_unflatten(changed, shape)
            result: Tensor = call.function(*args, **kwargs)
            return result

        return self._share_out(call, leaves[others[0]], None, apply, "dense", None, -1)

    def _share_out(
        self, call: Call, weight: Tensor, bias: Tensor | None,
        apply: Callable[[Tensor, Tensor], Tensor], kind: str, units: int | None, axis: int,
    ) -> Tensor:  # fmt: skip
        value = call()
        layer = Layer(
            kind, self._first, call.inputs[0].detach(), value.detach(), weight, bias, apply, units,
            axis,
        )  # fmt: skip
        self._first = False
        rule = self.rule  # the graph must not hold the mode, which holds tensors of the graph
        result = carry(value, lambda r: (rule(layer)(layer, r),), call.inputs[0])
        self._made[result] = layer, call.inputs[0]
        return result

    def _batch_norm(self, call: Call) -> Returned:
        """Merged into the layer before it; without one, a scale and a shift."""
        if call.option(5, "training"):
            return self._unknown(call)
        made = self._made.get(call.inputs[0])
        if made is None or not made[0].gives_channels():
            return self._unchanged(call) if self.positive else self._proportional(call)
        layer, x = made
        mean, variance = call.option(1, "running_mean"), call.option(2, "running_var")
        weight, bias = call.option(3, "weight"), call.option(4, "bias")
        scale = (variance + call.option(7, "eps", 1e-5)).rsqrt() * (1 if weight is None else weight)
        shift = (0 if bias is None else bias) - mean * scale
        value = call()
        merged = layer.scaled(scale, shift, value)
        rule = self.rule
        return carry(value, lambda r: (rule(merged)(merged, r),), x)

    def _layer_norm(self, call: Call) -> Returned:
        """Linear with its deviation held constant: centred, scaled and shifted."""
        if self.positive or len(call.inputs) > 1:
            return self._unknown(call)
        dims = tuple(range(-len(call.option(1, "normalized_shape")), 0))
        weight, bias = call.option(2, "weight"), call.option(3, "bias")
        variance = call.inputs[0].detach().var(dims, correction=0, keepdim=True)
        scale = (variance + call.option(4, "eps", 1e-5)).rsqrt()
        scale = scale if weight is None else scale * weight

        def linear(x: Tensor) -> Tensor:
            centred: Tensor = (x - x.mean(dims, keepdim=True)) * scale
            return centred if bias is None else centred + bias

        return self._proportional(Call(call.name, linear, call.inputs))

    def _proportional(self, call: Call) -> Returned:
        """Sums and means: each input gets its share of the sum; constants keep theirs."""
        if self.positive:
            return self._positive_sum(call)
        inputs, value = tuple(t.detach() for t in call.inputs), call()
        total, epsilon = value.detach(), self.epsilon
        return carry(value, lambda r: _shares(call, inputs, total, r, epsilon), *call.inputs)

    def _positive_sum(self, call: Call) -> Returned:
        """Positive sums go to positive inputs, negative sums to negative inputs."""
        inputs, value = tuple(t.detach() for t in call.inputs), call()
        shifted = len(inputs) == 1 and inputs[0].shape == value.shape
        if call.name == "add" and shifted:
            return self._unchanged(call)
        if call.name in ("sub", "rsub"):
            if not shifted:
                return self._unknown(call)
            subtracted = call.name == "rsub" or call.args[0] is not call.inputs[0]
            return self._negated(call) if subtracted else self._unchanged(call)
        epsilon = self.epsilon

        def one_sign(relevance: Tensor, sign: int) -> tuple[Tensor, ...]:
            parts = tuple(_part(t, sign) for t in inputs)
            return _shares(call, parts, call(*parts), _part(relevance, sign), epsilon)

        def share(relevance: Tensor) -> tuple[Tensor, ...]:
            shared = one_sign(relevance, 1)
            if not bool((relevance < 0).any()):
                return shared
            both = zip(shared, one_sign(relevance, -1), strict=True)
            return tuple(a + b for a, b in both)

        return carry(value, share, *call.inputs)

    def _scaled(self, call: Call) -> Returned:
        """A product passes relevance on unchanged; of two factors, the gate gets none."""
        if len(call.inputs) > 1:
            gate = call.inputs[1] if call.name == "div" else self._which_gate(call)
            if gate is None:
                return self._unknown(call)
            call = _held(call, gate)
        x = call.inputs[0]
        if call.name == "div" and x is not call.args[0]:
            return self._unknown(call)
        value = call()
        if value.shape != x.shape:
            return self._proportional(call)
        sign = torch.where((value < 0) != (x < 0), -1.0, 1.0) if self.positive else 1.0
        return carry(value, lambda r: (torch.where((value == 0) & (x != 0), 0.0, sign * r),), x)

    def _which_gate(self, call: Call) -> Tensor | None:
        """The factor that came out of a sigmoid; if that is unclear, the one that is broadcast."""
        one, other = call.inputs
        if (one in self._gates) != (other in self._gates):
            return one if one in self._gates else other
        if one.numel() == other.numel():
            return None
        return one if one.numel() < other.numel() else other

    def _unchanged(self, call: Call) -> Returned:
        if len(call.inputs) > 1:
            return self._unknown(call)
        return carry(call(), lambda r: (r,), call.inputs[0])

    def _negated(self, call: Call) -> Returned:
        return carry(call(), lambda r: (-r,), call.inputs[0])

    def _gate(self, call: Call) -> Returned:
        result = self._unchanged(call) if call.name in ACTIVATIONS else self._unknown(call)
        self._gates[result] = True
        return result

    def _moved(self, call: Call) -> Returned:
        result = self._unknown(call)
        moved = call.inputs[:1] if call.name.endswith("_as") else call.inputs
        if isinstance(result, Tensor) and all(t in self._gates for t in moved):
            self._gates[result] = True
        return result


def _shares(
    call: Call, inputs: tuple[Tensor, ...], total: Tensor, relevance: Tensor, epsilon: float
) -> tuple[Tensor, ...]:
    """The relevance by each input's share of the total."""
    shares = call.pulled(inputs, stable_ratio(relevance, total, epsilon))
    return tuple(x * s for x, s in zip(inputs, shares, strict=True))


def _held(call: Call, gate: Tensor) -> Call:
    """The same call, with one of its inputs held constant."""
    args, kwargs = tree.tree_map(lambda t: t.detach() if t is gate else t, (call.args, call.kwargs))
    return Call(call.name, call.function, args, kwargs)
