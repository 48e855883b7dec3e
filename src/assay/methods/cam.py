"""Class activation maps: how much each position of a spatial layer supports the class."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from assay.engine.respondent import micro_batches
from assay.errors import InputError, NotApplicable, unknown
from assay.methods.call_types import Returned
from assay.methods.copies import points
from assay.methods.gradients import Output, explained, one_pass
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.types import Batch, Model
from assay.types.tokens import hooked

CamVariant = Literal["paper", "torchcam"]
LayerChoice = Any  # a layer, its name, or None: the last one with a spatial output
TOGETHER = 16  # samples whose noisy copies are in memory at once, or as fill a micro-batch


def find_layer(model: Model, layer: str | nn.Module | None) -> nn.Module:
    """The module whose output is read: the chosen one, the model's default, or the last spatial."""
    if isinstance(layer, nn.Module):
        return layer
    if layer is not None and not isinstance(layer, str):
        raise InputError(
            f"Expected `layer` to be a layer of model `{model.name}` or its name, got {layer!r}."
        )
    modules = dict(model.net.named_modules())
    name = layer or model.cam_layer or model.spatial_layer
    if name is None:
        raise NotApplicable(
            f"Model `{model.name}` has no layer with a spatial output near its end. Choose one "
            f"with `layer=` or `assay.model(..., cam_layer=...)`, or give the grid of a "
            f"transformer's tokens: `assay.model(..., cam_reshape=(14, 14))`."
        )
    if name not in modules:
        raise unknown(f"layer of model `{model.name}`:", name, [n for n in modules if n])
    module: nn.Module = modules[name]
    return module


def activations(
    model: Model, batch: Batch, layer: str | nn.Module | None, output: Output
) -> Iterator[tuple[Tensor, Tensor]]:
    """The layer's output and its gradient, by micro-batch; gradients stop at the layer."""
    module = find_layer(model, layer)
    seen: list[Tensor] = []
    at = points(model, batch)

    def cut(_: nn.Module, __: object, output: Returned) -> Returned:
        several = isinstance(output, tuple | list) and len(output) > 0
        first = output[0] if several else output
        model.places(output)  # raises an error without a spatial layout
        seen.append(first.detach().requires_grad_(True))
        fresh = seen[-1].clone()  # what follows may work in place
        return type(output)((fresh, *output[1:])) if several else fresh

    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        seen.clear()
        x = at[samples]
        x = model.laid_out(x)
        with torch.enable_grad(), hooked(module, cut):
            logits = model.logits(batch.inputs[samples], at=x)
            scalar = explained(model, logits, batch.targets[samples], output).sum()
            _check_used(model, seen)
            (gradient,) = torch.autograd.grad(scalar, seen[-1], allow_unused=True)
        if gradient is None:
            raise InputError(
                f"Expected the output of model `{model.name}` to depend on the layer read by a "
                f"CAM, but it does not. Choose another with `layer=`."
            )
        yield model.places(seen[-1].detach())[:asked], model.places(gradient)[:asked]


def outputs(
    model: Model, batch: Batch, layer: str | nn.Module | None
) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
    """The layer's output `[n, C, h, w]` and the logits, without gradients, by micro-batch.

    Also yields the samples they belong to, and how many of them are not padding.
    """
    module = find_layer(model, layer)
    seen: list[Tensor] = []
    at = points(model, batch)

    def keep(_: nn.Module, __: object, output: Returned) -> None:
        seen.append(model.places(output).detach().clone())  # what follows may work in place

    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        seen.clear()
        x = at[samples]
        x = model.laid_out(x)
        # In a dry run the network may not be in evaluation mode yet.
        with model.evaluating(), hooked(module, keep):
            logits = model.logits(batch.inputs[samples], at=x)
        _check_used(model, seen)
        yield seen[-1], logits, samples, asked


def _check_used(model: Model, seen: list[Tensor]) -> None:
    if not seen:
        raise InputError(
            f"Expected the layer to be used by model `{model.name}`, but it was not. Choose "
            f"another with `layer=`."
        )


gradient_cam = functools.partial(
    method,
    needs=["gradients", "image", "spatial"],
    noise=True,
    coarse=True,
    passes=one_pass,
    family="cam",
)


def _weighted(
    model: Model,
    batch: Batch,
    layer: str | nn.Module | None,
    output: Output,
    relu: bool,
    weigh: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The weighted sum of activations, enlarged; `weigh(activation, gradient)` gives weights."""
    maps = []
    for activation, gradient in activations(model, batch, layer, output):
        coarse = (weigh(activation, gradient) * activation).sum(1)  # [n, h, w]
        maps.append(functional.relu(coarse) if relu else coarse)
    return enlarge(torch.cat(maps), batch.map_shape)


def _mean_gradient(activation: Tensor, gradient: Tensor) -> Tensor:
    return gradient.mean((2, 3), keepdim=True)


def _share_of_activation(activation: Tensor, gradient: Tensor) -> Tensor:
    total = activation.sum((2, 3), keepdim=True)
    return (gradient * activation).sum((2, 3), keepdim=True) / (total + 1e-8)


def _positive_gradient(activation: Tensor, gradient: Tensor) -> Tensor:
    return functional.relu(gradient)


def _pixel_weighted(activation: Tensor, gradient: Tensor) -> Tensor:
    square, cube = gradient**2, gradient**3
    return (_share(activation, square, cube) * functional.relu(gradient)).sum((2, 3), keepdim=True)


def _share(activation: Tensor, square: Tensor, cube: Tensor) -> Tensor:
    """Grad-CAM++'s weight of each position, from second and third powers of its gradients."""
    below = 2 * square + (cube * activation).sum((2, 3), keepdim=True)
    return torch.where(below == 0, 0.0, square / torch.where(below == 0, 1.0, below))


def _undivided(activation: Tensor, gradient: Tensor) -> Tensor:
    return (gradient**2 * functional.relu(gradient)).sum((2, 3), keepdim=True)


@gradient_cam("gradcam", cite="selvaraju2017", title="Grad-CAM")
def gradcam(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Relu of the activations weighted by their mean gradients, enlarged to the input.

    Formula: relu(sum_k w_k A_k), w_k the mean over positions of df/dA_k.

    Differs from the paper: nothing. The layer is the last with a spatial output, unless `layer` is
    set.
    """
    return _weighted(model, batch, layer, output, relu, _mean_gradient)


@gradient_cam("xgradcam", cite="fu2020", title="XGrad-CAM")
def xgradcam(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Grad-CAM with weights sum(g A) / sum(A): each activation's own share of the output.

    Formula: relu(sum_k w_k A_k), w_k = sum(g_k A_k) / sum(A_k) over positions, g = df/dA.

    Differs from the paper: 1e-8 is added to the denominator. On a network that ends in a mean over
    positions and one linear layer it equals `gradcam`.
    """
    return _weighted(model, batch, layer, output, relu, _share_of_activation)


@gradient_cam("layercam", cite="jiang2021", title="Layer-CAM")
def layercam(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Activations weighted with their positive gradients, position by position.

    Formula: relu(sum_k relu(g_k) A_k), g = df/dA, position by position.

    Differs from the paper: one layer is used; the paper also combines several.
    """
    return _weighted(model, batch, layer, output, relu, _positive_gradient)


@gradient_cam("gradcam_pp", cite="chattopadhay2018", title="Grad-CAM++")
def gradcam_pp(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    relu: bool = True,
    output: Output = "logit",
    variant: CamVariant = "paper",
) -> Tensor:
    """Grad-CAM with positive gradients and a weight for each position.

    Formula: relu(sum_k w_k A_k), w_k = sum(alpha relu(g_k)) over positions, alpha = g^2 / (2 g^2 +
    sum(g^3 A)), g = df/dA.

    Differs from the paper: the paper explains the exponential of the logit, which multiplies all
    weights by the same factor and does not change the order of the map. `variant: torchcam` is what
    that library computes, and IDSDS with it: the division acts on a copy and is lost, w_k = sum(g^2
    relu(g)).
    """
    weigh = _pixel_weighted if variant == "paper" else _undivided
    return _weighted(model, batch, layer, output, relu, weigh)


def _noisy_passes(options: Options) -> Passes:
    return Passes(forward=options["samples"] + 1, backward=options["samples"])


@method(
    "smooth_gradcam_pp",
    needs=["gradients", "image", "spatial"],
    passes=_noisy_passes,
    coarse=True,
    family="cam",
    cite="omeiza2019",
    title="Smooth Grad-CAM++",
)
def smooth_gradcam_pp(
    model: Model,
    batch: Batch,
    *,
    layer: LayerChoice = None,
    samples: Annotated[int, Field(ge=1)] = 4,
    sigma: Annotated[float, Field(ge=0)] = 0.3,
    relu: bool = True,
    output: Output = "logit",
    variant: CamVariant = "paper",
) -> Tensor:
    """Grad-CAM++ with the powers of its gradients averaged over noisy copies of the input.

    Formula: relu(sum_k w_k A_k), w_k = sum(alpha relu(m_1)) over positions, alpha = m_2 / (2 m_2 +
    sum(m_3 A)), m_p the mean of g^p over copies x + `sigma` N(0, 1), A the clean activations.

    Differs from the paper: the paper prints the first power in the numerator, which without noise
    would not be Grad-CAM++. `samples` and `sigma` are those of IDSDS. `variant: torchcam` is what
    IDSDS ran: relu(g) and the summed A are those of the last noisy copy, so it is nearly Grad-CAM++
    of one noisy image.
    """
    noise = sigma * batch.draw(
        "smooth_gradcam_pp", (samples, *batch.inputs.shape[1:]), normal=True
    )  # [B, S, C, H, W]
    maps = []
    together = max(TOGETHER, model.micro_batch // samples)
    for start in range(0, len(batch), together):
        some = range(start, min(start + together, len(batch)))
        part = batch.select(some)
        clean = torch.cat([a[:asked] for a, _, _, asked in outputs(model, part, layer)])
        copies = part.select([b for b in range(len(part)) for _ in range(samples)])
        added = noise[some.start : some.stop].flatten(0, 1)
        copies = replace(copies, noise=added)
        pairs = list(activations(model, copies, layer, output))
        noisy, gradient = (
            tensor.reshape(len(part), samples, *tensor.shape[1:]).unbind(1)
            for tensor in map(torch.cat, zip(*pairs, strict=True))
        )  # each S times [n, K, h, w]
        first, square, cube = (
            functools.reduce(torch.add, [g**power for g in gradient]) / samples
            for power in (1, 2, 3)
        )
        if variant == "paper":
            weight = _share(clean, square, cube) * functional.relu(first)
            shown = clean
        else:
            below = 2 * square + (cube * clean).sum((2, 3), keepdim=True) + 1e-8
            weight = square / below * functional.relu(gradient[-1])
            shown = noisy[-1]
        coarse = (weight.sum((2, 3), keepdim=True) * shown).sum(1)
        maps.append(functional.relu(coarse) if relu else coarse)
    return enlarge(torch.cat(maps), batch.map_shape)


def enlarge(maps: Tensor, shape: tuple[int, ...]) -> Tensor:  # [B, h, w] -> [B, H, W]
    """Coarse maps enlarged bilinearly to the input's size."""
    return functional.interpolate(maps[:, None], shape, mode="bilinear", align_corners=False)[:, 0]
