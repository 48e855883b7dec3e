"""Methods with other backward rules: for rectifiers, or for shares of excitation."""

import contextlib
import functools

import torch
from torch import Tensor

from assay.errors import InputError, NotApplicable
from assay.methods.call_types import Backward, Context, Returned
from assay.methods.cam import LayerChoice, enlarge, find_layer, gradcam
from assay.methods.copies import points
from assay.methods.gradients import Output, explained
from assay.methods.override import (
    Call,
    Override,
    Rule,
    chunks,
    laid_out,
    logits_under,
    refuse_half,
    refusing,
)
from assay.methods.relevance import Relevance, excitation_rule
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.types import Batch, Model
from assay.types.tokens import hooked

# Activations in place of rectifiers: the papers define no rule for them, and without one the map
# would be the plain gradient under another name.
SMOOTH = (
    "celu", "elu", "gelu", "hardswish", "leaky_relu", "mish", "prelu", "rrelu", "selu", "silu",
    "softplus",
)  # fmt: skip

# They are rectifiers if their bound is zero.
RECTIFYING = ("clamp", "clamp_min", "hardtanh", "relu", "relu6", "threshold")
LARGER = ("fmax", "max", "maximum")  # rectifiers if the other argument is zeros
COMPARISONS = (
    "ge", "greater", "greater_equal", "gt", "heaviside", "le", "less", "less_equal", "lt",
)  # fmt: skip


class _Positive(torch.autograd.Function):
    """A rectifier that passes back only positive gradients."""

    @staticmethod
    def forward(ctx: Context, x: Tensor, call: Call, gated: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.call, ctx.gated = call, gated
        result: Tensor = call(x)
        return result

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> Backward:
        positive = gradients[0].clamp(min=0)
        if ctx.gated:
            (x,) = ctx.saved_tensors
            (pulled,) = ctx.call.pulled((x,), positive)
            positive = torch.where(x > 0, pulled, 0.0)  # operators differ in the gradient at zero
        return positive, None, None


def _rectifies(call: Call) -> bool:
    """Whether the operator sets negative values to zero."""
    if call.name in ("clamp", "clamp_min"):
        return _is_zero(call.option(1, "min"))
    if call.name in LARGER:
        others = [a for a in (*call.args, *call.kwargs.values()) if a is not call.inputs[0]]
        return len(others) == 1 and isinstance(others[0], Tensor) and _is_zero(others[0])
    if call.name == "threshold":
        return _is_zero(call.option(1, "threshold")) and _is_zero(call.option(2, "value"))
    return call.name in ("relu", "relu6") or call.option(1, "min_val") == 0


def _is_zero(bound: object) -> bool:
    """Whether a bound is the constant zero."""
    if isinstance(bound, Tensor):
        return not bound.requires_grad and not bool(bound.any())
    return bool(bound == 0)


def _compared(name: str) -> Rule:
    """Refuse comparisons: they have no gradient, so a rectifier made of them cannot be seen."""

    def rule(call: Call) -> Returned:
        result = call()
        if result.ndim == 0:  # of the whole batch, as in an `if`
            return result
        raise NotApplicable(
            f"`{name}` is defined for rectifiers; the network compares its values with "
            f"`{call.name}`, which may implement one. Write it as `torch.relu`."
        )

    return rule


def _rectifiers(gated: bool, name: str) -> Override:
    def rule(call: Call) -> Returned:
        if not _rectifies(call):
            return smooth(call) if call.name == "threshold" else call()
        return _Positive.apply(call.inputs[0], call, gated)  # type: ignore[no-untyped-call]

    smooth: Rule = refusing(f"`{name}` is defined for rectifiers; it", frozenset())
    rules = dict.fromkeys(SMOOTH, smooth) | dict.fromkeys(COMPARISONS, _compared(name))
    rules |= dict.fromkeys((*RECTIFYING, *LARGER), rule)
    return Override(rules)


def _through_rectifiers(
    model: Model, batch: Batch, output: Output, gated: bool, name: str
) -> Tensor:
    x = points(model, batch)
    parts = []
    for samples, _, asked in chunks(model, batch):
        at = laid_out(model, x[samples])
        logits = logits_under(_rectifiers(gated, name), model, batch.inputs[samples], at)
        with torch.enable_grad():
            scalar = explained(model, logits, batch.targets[samples], output).sum()
        (gradient,) = torch.autograd.grad(scalar, at)
        parts.append(gradient[:asked])
    return torch.cat(parts)


def checked_pass(options: Options) -> Passes:
    """One forward and backward pass by other rules, and one forward pass to check the logits."""
    return Passes(forward=2, backward=1)


rectified = functools.partial(
    method, version=2, needs=["gradients"], noise=True, family="relevance"
)


@rectified("guided_backprop", passes=checked_pass, cite="springenberg2015", title="Guided backprop")
def guided_backprop(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """The gradient, with negative values set to zero at each rectifier on the way back.

    Formula: df/dx, where y = relu(x) passes back 1[x > 0] max(g, 0) instead of 1[x > 0] g.

    Differs from the paper: nothing. Bounded rectifiers, such as ReLU6, and the maximum with zeros
    are rectifiers too. For a network without rectifiers the map is the gradient. The method does
    not apply to networks with other activations in their place (SiLU, GELU, ELU, leaky ReLU; most
    transformers), for which there is no rule, nor to networks that compare their values, as in x *
    (x > 0).
    """
    return _through_rectifiers(model, batch, output, True, "guided_backprop")


@rectified("deconvolution", passes=checked_pass, cite="zeiler2014", title="Deconvolution")
def deconvolution(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """The gradient, rectified at each rectifier on the way back.

    Formula: df/dx, where y = relu(x) passes back max(g, 0), whatever x is.

    Differs from the paper: the paper shows what excites a unit inside the network; here that unit
    is the explained output. Like `guided_backprop`, it does not apply to networks with other
    activations in place of rectifiers.
    """
    return _through_rectifiers(model, batch, output, False, "deconvolution")


def _with_gradcam(options: Options) -> Passes:
    return Passes(forward=3, backward=2)


@method(
    "guided_gradcam",
    version=2,
    needs=["gradients", "image", "spatial"],
    noise=True,
    passes=_with_gradcam,
    family="relevance",
    cite="selvaraju2017",
    title="Guided Grad-CAM",
)
def guided_gradcam(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Guided backprop weighted by Grad-CAM.

    Formula: GBP * GradCAM, the second enlarged to the input, channel by channel.

    Differs from the paper: nothing. Captum enlarges the map by repeating its values.
    """
    coarse = gradcam(model, batch, layer=layer, relu=relu, output=output)
    return coarse[:, None] * guided_backprop(model, batch, output=output)


def _excited(options: Options) -> Passes:
    return Passes(forward=2, backward=2 if options["contrastive"] else 1)


@method(
    "excitation_backprop",
    version=2,
    needs=lambda options: {"gradients"} if options["layer"] is None else {"gradients", "image"},
    coarse=lambda options: options["layer"] is not None,
    noise=True,
    passes=_excited,
    family="relevance",
    cite="zhang2018",
    title="Excitation backprop",
)
def excitation_backprop(
    model: Model, batch: Batch, *, layer: LayerChoice = None, contrastive: bool = False
) -> Tensor:
    """The probability that a random walk from the class along excitations ends at each input.

    Formula: P_i = sum_j x_i+ w_ij+ / (sum_k x_k+ w_kj+) P_j, from P = 1 at the class; `contrastive`
    subtracts the same walk with the last layer's weights negated: what excites all other classes.
    For class 0 of a network with one logit the weights are negated too, because its score is the
    negative logit.

    Differs from the paper: the walk ends at the input unless `layer` names an earlier end, as in
    the paper; negative inputs excite nothing, and a walk without a next step is lost. Batch norms
    are merged into the layer before them, sums distribute among their positive terms, gates get
    nothing; layer norms have no rule, so the method does not apply to transformers.
    """
    refuse_half(model, "Excitation backprop")
    x = points(model, batch)
    module = None if layer is None else find_layer(model, layer)
    parts: list[Tensor] = []
    seen: list[Returned] = []
    for samples, _, asked in chunks(model, batch):
        at = laid_out(model, x[samples])
        mode = Relevance("Excitation backprop", lambda _: excitation_rule, 0, positive=True)
        with contextlib.ExitStack() as stack:
            if module is not None:
                stack.enter_context(hooked(module, lambda _, __, output: seen.append(output)))
            logits = logits_under(mode, model, batch.inputs[samples], at)
        end = at if module is None else _spatial(seen)
        top = torch.zeros_like(logits).scatter(1, batch.targets[samples][:, None], 1)
        walk = _walked(logits, end, top)
        if contrastive:
            walk = walk - _walked(logits, end, -top)
        parts.append(walk[:asked])
    walks = torch.cat(parts)
    return walks if module is None else enlarge(walks.sum(1), batch.map_shape)


def _walked(logits: Tensor, end: Tensor, top: Tensor) -> Tensor:
    (walk,) = torch.autograd.grad(logits, end, top, retain_graph=True, allow_unused=True)
    if walk is None:
        raise NotApplicable(
            "The layer's output is merged with the batch norm after it, or is not used. Choose "
            "the next layer with `layer`."
        )
    if bool((walk < 0).any()):
        raise NotApplicable(
            "The walk from a negated logit meets no layer with weights, so excitation of the "
            "negative is not defined. Leave `contrastive` out, or choose an earlier `layer`."
        )
    return walk


def _spatial(seen: list[Returned]) -> Tensor:
    """The layer's last output."""
    if not seen:
        raise NotApplicable("The network does not use this layer. Choose another with `layer`.")
    output = seen[-1]
    seen.clear()
    if not isinstance(output, Tensor) or output.ndim != 4:
        raise InputError(
            f"Expected the layer to return [batch, channels, height, width], got "
            f"{tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__}."
        )
    return output
