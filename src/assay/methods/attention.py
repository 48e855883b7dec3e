"""Methods that follow a transformer's attention from the output back to words and patches."""

import functools
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from assay.methods.attending import Attended, Resize, attend, attended, to_map, token_maps
from assay.methods.attention_lrp import CheferRules
from assay.methods.gradients import Output, one_pass
from assay.methods.override import refuse_half
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.types import Batch, Model

Start = Annotated[int, Field(ge=0)]
Form = Literal["chefer", "m4", "bt"]

transformer = functools.partial(
    method, needs=["gradients", "attention"], noise=True, family="attention"
)


def carried(rows: Tensor, steps: Sequence[Tensor]) -> Tensor:
    """Rows `[n, r, s]` times the steps `[n, s, s]` of all layers, the last layer's first."""
    for step in reversed(steps):
        rows = rows @ step
    return rows


def beside_itself(step: Tensor) -> Tensor:
    """I + step: the residual branch and what the layer adds."""
    return step + torch.eye(step.shape[-1], dtype=step.dtype, device=step.device)


@transformer("rollout", passes=one_pass, cite="abnar2020", title="Attention rollout")
def rollout(model: Model, batch: Batch, *, start: Start = 0, resize: Resize = "nearest") -> Tensor:
    """Attention multiplied through all layers: where the information in the output comes from.

    Formula: the rows of the tokens from which the output is read, in the product over layers l from
    the last to `start` of rows(mean_h A_l + I), rows scaled to sum to one. The map is the same for
    every class.

    Differs from the paper: the paper takes the row of the class token; for networks that read the
    mean of their tokens it is the mean of their rows. IDSDS leaves out the first layer: `start: 1`.
    Pixels take the value of their patch; `resize: bilinear` smooths.
    """

    def combine(seen: Attended) -> Tensor:
        steps = [beside_itself(a.mean(1)) for a in seen.heads(seen.maps)]
        steps = [step / step.sum(-1, keepdim=True) for step in steps]
        return carried(seen.read()[:, None], steps)[:, 0]

    return token_maps(model, batch, start, resize, combine, only_last=True)


FORMS = {
    "chefer": lambda a, g: (g * a).clamp(min=0).mean(1),
    "m4": lambda a, g: (a.mean(1) * g.mean(1)).clamp(min=0),
    "bt": lambda a, g: (g * a).mean(1).clamp(min=0),
}


def _and_back(options: Options) -> Passes:
    """A backward pass for the maps, and a short one to find the tokens that are read."""
    return Passes(forward=1, backward=2)


@transformer("generic_attention", passes=_and_back, cite="chefer2021b", title="Generic attention")
def generic_attention(
    model: Model,
    batch: Batch,
    *,
    form: Form = "chefer",
    start: Start = 0,
    resize: Resize = "nearest",
    output: Output = "logit",
) -> Tensor:
    """Attention times its positive gradient, multiplied through the layers.

    Formula: the read tokens' rows of R, with R = I, then R + C_l R for layers l from `start` up,
    C_l = mean_h max(G_l A_l, 0) and G_l = df/dA_l.

    Differs from the paper: nothing. `form: m4` averages the heads of A and of G before they are
    multiplied, as M4 does (which starts at a third of the depth); `form: bt` clips after averaging.
    """

    def combine(seen: Attended) -> Tensor:
        pairs = zip(seen.heads(seen.maps), seen.gradients(output), strict=True)
        steps = [beside_itself(FORMS[form](a, g)) for a, g in pairs]
        return carried(seen.read()[:, None], steps)[:, 0]

    return token_maps(model, batch, start, resize, combine)


@transformer("attention_gradcam", passes=_and_back, cite="chefer2021a", title="Attention Grad-CAM")
def attention_gradcam(
    model: Model, batch: Batch, *, resize: Resize = "nearest", output: Output = "logit"
) -> Tensor:
    """Grad-CAM on the last layer's attention: heads weighted by their mean gradient.

    Formula: max(mean_h w_h a_h, 0), with a_h the read tokens' row of the last attention and w_h the
    mean of df/da_h over the tokens of the input.

    Differs from the paper: the paper scales each map to the range from 0 to 1, which does not
    change the order.
    """

    def combine(seen: Attended) -> Tensor:
        (a,), (g,) = seen.heads(seen.maps[-1:]), seen.gradients(output, seen.maps[-1:])
        read = seen.read()[:, None, None]  # [n, 1, 1, s]
        of_input = seen.of_input(batch)[:, None]  # [n, 1, s]
        row, slope = (read @ a)[:, :, 0], (read @ g)[:, :, 0]  # [n, H, s]
        weight = (slope * of_input).sum(-1, keepdim=True) / of_input.sum(-1, keepdim=True)
        return (weight * row).mean(1).clamp(min=0)

    return token_maps(model, batch, -1, resize, combine)


def _two_passes(options: Options) -> Passes:
    return Passes(forward=2, backward=3)


@transformer("chefer_lrp", passes=_two_passes, cite="chefer2021a", title="Chefer LRP")
def chefer_lrp(
    model: Model,
    batch: Batch,
    *,
    start: Start | None = None,
    resize: Resize = "nearest",
    output: Output = "logit",
) -> Tensor:
    """Relevance of each attention times its gradient, multiplied through the layers.

    Formula: the read tokens' rows of the product over layers l from the last to `start` of C_l + I,
    C_l = mean_h max(G_l P_l, 0), with G_l = df/dA_l and P_l the relevance of A_l: one at the
    target's logit, passed back by the alpha-1 beta-0 rule in linear layers, half to each factor of
    a matrix product, by their shares to both branches of a residual sum, and unchanged through
    softmax, GELU and LayerNorm.

    Differs from the paper: nothing; its code for ImageNet leaves out the first layer, as here,
    unless `start` is set or there is only one. Networks with operations without a rule are refused.
    The method takes two passes.
    """
    refuse_half(model, "Chefer LRP")
    turned = any(
        isinstance(m, nn.MultiheadAttention) and not m.batch_first for m in model.net.modules()
    )
    rows: list[Tensor] = []
    grid: tuple[int, ...] = ()
    for samples, at, asked, seen, _ in attended(model, batch, start or 0):
        first = min(1, seen.depth - 1) if start is None else start
        maps = seen.maps[first - (start or 0) :]
        gradients, read = seen.gradients(output, maps), seen.read()
        seen.release()
        watch = CheferRules(len(samples), first)
        watch.samples_second = turned
        second = attend(model, batch, samples, at, watch)
        one_hot = torch.zeros_like(second.logits).scatter(1, second.targets[:, None], 1.0)
        of_maps = torch.autograd.grad(
            second.logits, second.maps, one_hot, allow_unused=True, materialize_grads=True
        )
        relevance = second.real(list(of_maps))
        second.release()
        pairs = zip(gradients, relevance, strict=True)
        steps = [beside_itself((g * r).clamp(min=0).mean(1)) for g, r in pairs]
        rows.append(carried(read[:, None], steps)[:asked, 0])
        grid = seen.grid
    return to_map(batch, torch.cat(rows), grid, resize)
