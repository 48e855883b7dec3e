"""Class activation maps: how much each place of the last spatial layer speaks for the class."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError, NotApplicable, unknown
from assay.interventions import micro_batches
from assay.methods.copies import points
from assay.methods.gradients import Output, explained, one_pass
from assay.registry import method
from assay.tokens import hooked
from assay.types import Batch, Model


def find_layer(model: Model, layer: str | nn.Module | None) -> nn.Module:
    """The module whose output is read: the one named, the model's own, or the last spatial one."""
    if isinstance(layer, nn.Module):
        return layer
    modules = dict(model.net.named_modules())
    name = layer or model.cam_layer or model.spatial_layer
    if name is None:
        raise NotApplicable(
            f"Model `{model.name}` has no layer with a spatial output near its answer; "
            f"name one with `layer=` or `assay.model(..., cam_layer=...)`."
        )
    if name not in modules:
        raise unknown(f"layer of model `{model.name}`:", name, [n for n in modules if n])
    found: nn.Module = modules[name]
    return found


def activations(
    model: Model, batch: Batch, layer: str | nn.Module | None, output: Output
) -> Iterator[tuple[Tensor, Tensor]]:
    """The layer's output and its gradient, a micro-batch at a time; only the tail runs back."""
    module = find_layer(model, layer)
    seen: list[Tensor] = []
    at = points(model, batch)

    def cut(_: nn.Module, __: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or output.ndim != 4:
            raise InputError(
                f"Expected the layer to give [batch, channels, height, width], got "
                f"{tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__}."
            )
        seen.append(output.detach().requires_grad_(True))
        return seen[-1].clone()  # what follows may work in place

    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        seen.clear()
        x = at[samples]
        if model.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.enable_grad(), hooked(module, cut):
            logits = model.logits(batch.inputs[samples], at=x)
            scalar = explained(model, logits, batch.targets[samples], output).sum()
            (gradient,) = torch.autograd.grad(scalar, seen[-1])
        yield seen[-1].detach()[:asked], gradient[:asked]


cam = functools.partial(
    method, needs=["gradients", "image", "spatial"], noise=True, passes=one_pass, family="cam"
)


def _weighted(
    model: Model,
    batch: Batch,
    layer: str | nn.Module | None,
    output: Output,
    relu: bool,
    weigh: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    """The activations' sum under weights from (activation, gradient), enlarged to the input."""
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
    below = 2 * square + (cube * activation).sum((2, 3), keepdim=True)
    alpha = torch.where(below == 0, 0.0, square / torch.where(below == 0, 1.0, below))
    return (alpha * functional.relu(gradient)).sum((2, 3), keepdim=True)


@cam("gradcam", cite="selvaraju2017", title="Grad-CAM")
def gradcam(
    model: Model,
    batch: Batch,
    *,
    layer: Any = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Relu of the activations weighted by their mean gradients, enlarged to the input.

    Formula: relu(sum_k w_k A_k), w_k the mean over places of df/dA_k.

    Beside the paper: nothing. The layer is the last with a spatial output unless `layer` names one.
    """
    return _weighted(model, batch, layer, output, relu, _mean_gradient)


@cam("xgradcam", cite="fu2020", title="XGrad-CAM")
def xgradcam(
    model: Model,
    batch: Batch,
    *,
    layer: Any = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Grad-CAM with weights sum(g A) / sum(A): each activation's own share of the answer.

    Formula: relu(sum_k w_k A_k), w_k = sum(g_k A_k) / sum(A_k) over places, g = df/dA.

    Beside the paper: 1e-8 is added below the line. On a network that ends in a mean over places and
    one linear layer it equals `gradcam`.
    """
    return _weighted(model, batch, layer, output, relu, _share_of_activation)


@cam("layercam", cite="jiang2021", title="Layer-CAM")
def layercam(
    model: Model,
    batch: Batch,
    *,
    layer: Any = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Activations weighted place by place with their positive gradients.

    Formula: relu(sum_k relu(g_k) A_k), g = df/dA, place by place.

    Beside the paper: one layer; the paper also joins several.
    """
    return _weighted(model, batch, layer, output, relu, _positive_gradient)


@cam("gradcam_pp", cite="chattopadhay2018", title="Grad-CAM++")
def gradcam_pp(
    model: Model,
    batch: Batch,
    *,
    layer: Any = None,
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Grad-CAM with positive gradients, each place counted by a weight of its own.

    Formula: relu(sum_k w_k A_k), w_k = sum(alpha relu(g_k)) over places, alpha = g^2 / (2 g^2 +
    sum(g^3 A)), g = df/dA.

    Beside the paper: it explains the exponential of the logit, which gives all weights the same
    factor and leaves the order of the map as it is.
    """
    return _weighted(model, batch, layer, output, relu, _pixel_weighted)


def enlarge(maps: Tensor, shape: tuple[int, ...]) -> Tensor:  # [B, h, w] -> [B, H, W]
    """Coarse maps at the input's size, bilinearly."""
    return functional.interpolate(maps[:, None], shape, mode="bilinear", align_corners=False)[:, 0]
