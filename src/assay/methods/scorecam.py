"""Class activation maps without gradients: by the head's weights, or by each channel's score."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.engine.engine import Engine
from assay.errors import NotApplicable
from assay.methods.cam import LayerChoice, enlarge, find_layer, outputs
from assay.methods.gradients import Output
from assay.plugins.registry import Passes, method
from assay.removal import FillChoice, all_absent
from assay.types import Batch, Model


@method(
    "cam",
    needs=["image", "spatial"],
    noise=True,
    passes=lambda options: Passes(forward=1),
    coarse=True,
    family="cam",
    cite="zhou2016",
    title="CAM",
)
def cam(model: Model, batch: Batch, *, layer: LayerChoice = None, relu: bool = False) -> Tensor:
    """The activations weighted by the linear head's weights of the class.

    Formula: sum_k W_ck A_k, where the logits are W mean(A) + b; the map's mean is the logit minus
    its bias. For networks whose output is the mean over positions itself, channel c of A.

    It applies only to networks that end in a mean over positions and one linear layer, which is
    checked on every sample. For these, `gradcam` without its relu is this map divided by the number
    of positions.

    Differs from the paper: nothing.
    """
    maps = []
    with _heads(model, find_layer(model, layer)) as heads:
        for activation, logits, samples, asked in outputs(model, batch, layer):
            weight = _head(model, activation, logits, heads)[batch.targets[samples]]  # [n, K]
            coarse = (weight[:, :, None, None] * activation)[:asked].sum(1)
            maps.append(functional.relu(coarse) if relu else coarse)
            heads.clear()
    return enlarge(torch.cat(maps), batch.map_shape)


@contextlib.contextmanager
def _heads(model: Model, layer: nn.Module) -> Iterator[list[nn.Module]]:
    """The layers after `layer` whose outputs have no positions."""
    heads: list[nn.Module] = []

    def note(module: nn.Module, _: object, output: object) -> None:
        if isinstance(output, Tensor) and output.numel() == output.shape[0] * output.shape[1]:
            heads.append(module)

    linear = [m for m in model.net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    handles = [m.register_forward_hook(note) for m in linear]
    handles.append(layer.register_forward_hook(lambda _, __, ___: heads.clear()))
    try:
        yield heads
    finally:
        for handle in handles:
            handle.remove()


def _head(
    model: Model, activation: Tensor, logits: Tensor, heads: list[nn.Module]
) -> Tensor:  # [classes, K]
    """The weights that turn the mean over positions into the logits.

    Raises:
        NotApplicable: The logits are not such a sum.
    """
    pooled, channels = activation.mean((2, 3)), activation.shape[1]
    weight, bias = torch.eye(channels).to(pooled), None
    if heads:
        last: Any = heads[-1]
        weight, bias = last.weight.detach().flatten(1), last.bias
        if weight.shape[1] != channels:
            raise NotApplicable(
                f"CAM needs a linear head on the mean over positions; the head of model "
                f"`{model.name}` has {weight.shape[1]} inputs, the layer has {channels} channels."
            )
    answer = functional.linear(pooled, weight, bias)
    if model.binary:
        weight, answer = torch.cat([-weight, weight]), torch.cat([-answer, answer], 1)
    near = 1e-4 * logits.abs().max().clamp(min=1)
    if answer.shape != logits.shape or bool((answer - logits).abs().max() > near):
        raise NotApplicable(
            f"CAM needs a mean over positions and one linear layer at the end; the logits of model "
            f"`{model.name}` are not such a function of the layer. Choose the last spatial layer "
            f"with `layer=`, or use `gradcam`."
        )
    return weight


@method(
    "scorecam",
    needs=["image", "spatial"],
    passes=lambda options: Passes(forward=None, by="channels + 1"),
    coarse=True,
    intervenes=lambda batch, options: ("channel masks",),
    family="cam",
    cite="wang2020",
    title="Score-CAM",
)
def scorecam(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    layer: LayerChoice = None,
    fill: FillChoice = "zero",
    relu: bool = True,
    output: Output = "logit",
) -> Tensor:
    """Activations weighted by how much each, as a mask on the input, raises the output.

    Formula: relu(sum_k w_k A_k), w = softmax over channels of f(M_k x + (1 - M_k) fill), M_k the
    channel enlarged to the input and scaled to [0, 1]; a channel without contrast keeps nothing.

    It costs one pass per channel of the layer, and one for the activations.

    Differs from the paper: nothing; the output for the baseline image, which the paper subtracts
    before the softmax, cancels there and is not computed. The authors' code leaves out the softmax
    and adds probabilities; torchcam scales before it enlarges.
    """
    parts = []
    for part, _, _, asked in outputs(model, batch, layer):
        parts.append(part[:asked])
        engine.count(asked)
    activation = torch.cat(parts)  # [B, K, h, w]
    nothing = all_absent(batch, fill)

    def place(samples: Tensor, rows: Tensor) -> Tensor:
        mask = enlarge(activation[samples, rows], batch.map_shape)  # [n, H, W]
        low, high = mask.amin((1, 2), keepdim=True), mask.amax((1, 2), keepdim=True)
        mask = (mask - low) / torch.where(high > low, high - low, 1.0)
        return torch.lerp(nothing[samples], batch.inputs[samples], mask[:, None])

    answers = engine.answers(activation.shape[1], place).output(output)
    weights = answers.double().softmax(1).to(batch.dtype)  # [B, K]
    maps = [(w[:, None, None] * a).sum(0) for w, a in zip(weights, activation, strict=True)]
    coarse = torch.stack(maps)
    return enlarge(functional.relu(coarse) if relu else coarse, batch.map_shape)
