"""Run an unchanged network with other backward rules for its operators.

A torch function mode sees every operator that the network calls, as a module or as a function,
however often a module is used. The network is not hooked, copied or rewritten, and in this mode no
operator works in place.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as tree

from assay.engine.respondent import micro_batches
from assay.errors import NotApplicable
from assay.methods.call_types import Arguments, Backward, Context, Keywords, Operator, Returned
from assay.methods.fused_attention import FUSED
from assay.types import Batch, Model

AGREEMENT = 1e-4  # how much the mode may change the logits, as a share of the largest
SAME = {
    "multiply": "mul", "rmul": "mul", "divide": "div", "true_divide": "div", "rtruediv": "rdiv",
    "radd": "add", "subtract": "sub", "clip": "clamp", "absolute": "abs", "negative": "neg",
    "concat": "cat", "concatenate": "cat", "mm": "matmul", "bmm": "matmul", "rmatmul": "matmul",
    "mv": "matmul", "dot": "matmul",
    "max_pool1d_with_indices": "max_pool1d", "max_pool2d_with_indices": "max_pool2d",
    "max_pool3d_with_indices": "max_pool3d",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """One call of an operator; `inputs` are its tensors that depend on the network's input."""

    name: str
    function: Operator
    args: Arguments
    kwargs: Keywords = field(default_factory=dict)

    @functools.cached_property
    def _parts(self) -> tuple[list[Any], tree.TreeSpec, list[int]]:
        leaves, shape = tree.tree_flatten((self.args, self.kwargs))
        places = [i for i, p in enumerate(leaves) if isinstance(p, Tensor) and p.requires_grad]
        return leaves, shape, places

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that depend on the network's input."""
        leaves, _, places = self._parts
        return tuple(leaves[i] for i in places)

    def __call__(self, *inputs: Tensor) -> Returned:
        """The operator's result; `inputs`, if any, replace the call's own."""
        if not inputs:
            return self.function(*self.args, **self.kwargs)
        leaves, shape, places = self._parts
        leaves = list(leaves)
        for place, value in zip(places, inputs, strict=True):
            leaves[place] = value
        args, kwargs = tree.tree_unflatten(leaves, shape)
        return self.function(*args, **kwargs)

    def option(self, place: int, name: str, default: Any = None) -> Any:
        """An argument by its position or its name."""
        return self.args[place] if len(self.args) > place else self.kwargs.get(name, default)

    def pulled(self, at: tuple[Tensor, ...], gradient: Tensor) -> tuple[Tensor, ...]:
        """The operator's own gradients at these inputs."""
        with torch.enable_grad():
            leaves = [t.detach().requires_grad_(True) for t in at]
            return torch.autograd.grad(self(*leaves), leaves, gradient)


Rule = Callable[[Call], Returned]


class Override(TorchFunctionMode):
    """Run operators by their rules; `otherwise` handles those without one, by default unchanged."""

    def __init__(self, rules: dict[str, Rule], otherwise: Rule = lambda call: call()) -> None:
        """Take the rules by operator name."""
        super().__init__()
        self.rules, self.otherwise = rules, otherwise
        # The current value of tensors that the network wrote into; the original keeps its id in
        # use.
        self._written: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self,
        function: Operator,
        types: object,
        args: Arguments = (),
        kwargs: Keywords | None = None,
    ) -> Returned:
        """Run one call."""
        if self._written:
            args, kwargs = tree.tree_map(self.newest, (args, kwargs or {}))
        call = Call(_name(function), function, tuple(args), dict(kwargs or {}))
        if not call.inputs or not torch.is_grad_enabled():
            return call()
        if not _writes(function, call):
            return self.apply(call)
        result = self.apply(_out_of_place(call))
        self._written[id(args[0])] = args[0], result
        return result

    def apply(self, call: Call) -> Returned:
        """Run a call by its rule."""
        return self.rules.get(call.name, self.otherwise)(call)

    def written_out(self, call: Call) -> Returned:
        """Run a fused operator step by step, each step by its rule."""
        with self:
            return FUSED[call.name](*call.args, **call.kwargs)

    def newest(self, value: Returned) -> Returned:
        """The current value of a tensor that the network may have written into."""
        while isinstance(value, Tensor) and id(value) in self._written:
            value = self._written[id(value)][1]
        return value


def _name(function: Operator) -> str:
    """The name of an operator however it is called: `relu` for `Tensor.relu_` too."""
    name = getattr(function, "__name__", str(function))
    if name in ("__get__", "__set__"):  # x.shape, x.T
        return name
    name = name.strip("_")
    return SAME.get(name, name)


def _writes(function: Operator, call: Call) -> bool:
    name = getattr(function, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return in_place or name == "__setitem__" or bool(call.kwargs.get("inplace"))


def _out_of_place(call: Call) -> Call:
    if call.kwargs.get("inplace"):
        return Call(call.name, call.function, call.args, {**call.kwargs, "inplace": False})

    def on_a_copy(first: Tensor, *args: object, **kwargs: object) -> Tensor:
        copy = first.clone()
        call.function(copy, *args, **kwargs)
        return copy

    return Call(call.name, on_a_copy, call.args, call.kwargs)


class _Refusal(torch.autograd.Function):
    """An operator without a rule: an error only if a gradient flows back through it."""

    @staticmethod
    def forward(ctx: Context, value: Tensor, reason: str) -> Tensor:
        ctx.reason = reason
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Context, *_: Tensor) -> Backward:
        raise NotApplicable(ctx.reason)


def refusing(method: str, known: frozenset[str]) -> Rule:
    """The rule for operators without one: `known` operators run unchanged, others are refused."""

    def rule(call: Call) -> Returned:
        result = call()
        if call.name in known:
            return result
        reason = f"{method} has no rule for the operator `{call.name}`."

        def guard(part: Returned) -> Returned:
            if isinstance(part, Tensor) and part.requires_grad:
                return _Refusal.apply(part, reason)  # type: ignore[no-untyped-call]
            return part

        return tree.tree_map(guard, result)

    return rule


def refuse_half(model: Model, method: str) -> None:
    """Refuse networks in half precision, where rounding loses shares and sums are not exact."""
    halves = {p.dtype for p in model.net.parameters()} & {torch.float16, torch.bfloat16}
    if halves:
        raise NotApplicable(
            f"{method} is not exact in half precision, and model `{model.name}` is in "
            f"{', '.join(map(str, halves))}. Use `net.float()`."
        )


def chunks(model: Model, batch: Batch, rows: int = 1) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Samples and rows by micro-batch, after a check that the network is not compiled."""
    for name, module in model.net.named_modules():
        if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
            raise NotApplicable(
                f"Model `{model.name}` is compiled{f' in `{name}`' if name else ''}, so its "
                f"operators cannot get other rules. Pass the network before compilation."
            )
    yield from micro_batches(len(batch), rows, model.micro_batch, batch.inputs.device)


def logits_under(
    mode: Override, model: Model, inputs: Tensor, at: Tensor, own: Tensor | None = None
) -> Tensor:
    """The logits under a mode, ready for a backward pass to `at`.

    Raises:
        NotApplicable: They differ from the network's own logits.
    """
    if own is None:
        with torch.no_grad():
            own = model.logits(inputs, at=at.detach().clone())
    with torch.enable_grad(), mode:
        logits: Tensor = mode.newest(model.logits(inputs, at=at))
    scale = float(own.abs().max())
    if not torch.allclose(own, logits, rtol=0, atol=AGREEMENT * scale, equal_nan=True):
        off = float((own - logits).abs().max())
        raise NotApplicable(
            f"Model `{model.name}` gives other logits when no operator works in place (off by "
            f"{off:.2g} of {scale:.2g}): it writes into a view of a tensor, or draws random "
            f"numbers. Rewrite it without operators that work in place."
        )
    if not logits.requires_grad:
        raise NotApplicable(f"The logits of model `{model.name}` do not depend on its input.")
    _check_operators(logits, model)
    return logits


def _check_operators(logits: Tensor, model: Model) -> None:
    """Refuse custom autograd functions, which no rule can see."""
    seen, ahead = set(), [logits.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        own = getattr(type(node), "_forward_cls", None)
        if own is not None and not own.__module__.startswith("assay."):
            raise NotApplicable(
                f"Model `{model.name}` has a custom autograd function, `{own.__name__}`, "
                f"whose backward pass cannot get other rules."
            )
        ahead.extend(edge for edge, _ in node.next_functions)


def laid_out(model: Model, points: Tensor) -> Tensor:
    """Points as a leaf of the graph, in the network's memory layout."""
    points = points.detach()
    points = model.laid_out(points)
    return points.requires_grad_(True)
