"""Methods made of gradients of the explained output with respect to the input."""

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.interventions import micro_batches
from assay.methods.copies import points
from assay.registry import Passes, method
from assay.removal import FillChoice, all_absent
from assay.types import Batch, Model

Output = Literal["logit", "probability", "log_odds"]


def explained(model: Model, logits: Tensor, targets: Tensor, output: Output) -> Tensor:  # [n]
    """The scalar that is explained, for each row."""
    column = targets[:, None]
    if output == "logit":
        return logits.gather(1, column)[:, 0]
    if output == "probability":
        return model.log_probs(logits).gather(1, column)[:, 0].exp()
    if model.binary:
        return logits.gather(1, column)[:, 0]
    others = logits.scatter(1, column, -torch.inf)
    return logits.gather(1, column)[:, 0] - torch.logsumexp(others, 1)


def gradients(
    model: Model,
    batch: Batch,
    rows: int,
    place: Callable[[Tensor, Tensor], Tensor],
    output: Output,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Gradients at `rows` points of each sample, a micro-batch at a time.

    `place(samples, rows)` gives the points. Yields samples, rows, points and gradients; padding is
    already cut off.
    """
    for samples, row, asked in micro_batches(
        len(batch), rows, model.micro_batch, batch.inputs.device
    ):
        points = place(samples, row).detach()
        if model.channels_last:
            points = points.contiguous(memory_format=torch.channels_last)
        points.requires_grad_(True)
        with torch.enable_grad():
            logits = model.logits(batch.inputs[samples], at=points.clone())  # may work in place
            scalar = explained(model, logits, batch.targets[samples], output).sum()
            (gradient,) = torch.autograd.grad(scalar, points)
        yield samples[:asked], row[:asked], points.detach()[:asked], gradient[:asked]


def one_pass(options: Mapping[str, Any]) -> Passes:
    """One pass forward and backward per sample."""
    return Passes(forward=1, backward=1)


@method(
    "saliency",
    needs=["gradients"],
    noise=True,
    passes=one_pass,
    family="gradients",
    cite="simonyan2014",
    title="Saliency",
)
def saliency(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """The gradient of the explained output: how the answer changes with each input.

    Formula: df/dx at x.

    Beside the paper: it takes the largest absolute value over the channels; here they are summed
    with their signs unless `reduce` or `abs` say otherwise.
    """
    x = points(model, batch)
    parts = [g for _, _, _, g in gradients(model, batch, 1, lambda s, _: x[s], output)]
    return torch.cat(parts)


@method(
    "input_x_gradient",
    needs=["gradients"],
    noise=True,
    passes=one_pass,
    family="gradients",
    cite="shrikumar2016",
    title="Input x gradient",
)
def input_x_gradient(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """The input times the gradient: the first-order share of each input in the answer.

    Formula: x df/dx at x, with x as the network takes it.

    Beside the paper: nothing.
    """
    x = points(model, batch)
    return torch.cat(
        [p * g for _, _, p, g in gradients(model, batch, 1, lambda s, _: x[s], output)]
    )


def baseline_points(model: Model, batch: Batch, baseline: FillChoice, x: Tensor) -> Tensor:
    """Where the way begins; zero is zero where the gradients are taken, so for words as well."""
    if isinstance(baseline, str) and baseline == "zero":
        return torch.zeros_like(x)
    return model.continuous(all_absent(batch, baseline))


def _per_step(options: Mapping[str, Any]) -> Passes:
    return Passes(forward=options["steps"], backward=options["steps"])


@method(
    "integrated_gradients",
    needs=["gradients"],
    noise=True,
    passes=_per_step,
    family="gradients",
    cite="sundararajan2017",
    title="Integrated gradients",
)
def integrated_gradients(
    model: Model,
    batch: Batch,
    *,
    steps: Annotated[int, Field(ge=1)] = 50,
    baseline: FillChoice = "zero",
    output: Output = "logit",
) -> Tensor:
    """(x - b) times the mean gradient on the straight way from a baseline b to x.

    Formula: (x - b) times the integral over a in [0, 1] of df/dx at b + a (x - b).

    Beside the paper: the integral is taken by Gauss-Legendre quadrature with `steps` nodes, not by
    a sum of equal steps, and the logit is explained; `output: probability` is the paper's.
    """
    x = points(model, batch)
    start = baseline_points(model, batch, baseline, x)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    alpha = torch.as_tensor((nodes + 1) / 2).to(x)
    weight = torch.as_tensor(weights / 2).to(x)
    ones = [1] * (x.ndim - 1)

    def place(samples: Tensor, rows: Tensor) -> Tensor:
        return torch.lerp(start[samples], x[samples], alpha[rows].reshape(-1, *ones))

    mean = torch.zeros_like(x)
    for samples, rows, _, gradient in gradients(model, batch, steps, place, output):
        mean.index_add_(0, samples, gradient * weight[rows].reshape(-1, *ones))
    return (x - start) * mean


@method(
    "integrated_gradients_uniform",
    needs=["gradients"],
    noise=True,
    passes=_per_step,
    family="gradients",
    cite="sturmfels2020",
    title="Integrated gradients, uniform baseline",
)
def integrated_gradients_uniform(
    model: Model,
    batch: Batch,
    *,
    steps: Annotated[int, Field(ge=1)] = 50,
    output: Output = "logit",
) -> Tensor:
    """Integrated gradients from uniform noise in [-1, 1], one fixed field per sample.

    Formula: that of `integrated_gradients` with b uniform in [-1, 1].

    Beside the paper: it draws over the range of valid pixels, and averages over several draws too;
    IDSDS takes one field for all images.
    """
    return integrated_gradients(model, batch, steps=steps, baseline="uniform", output=output)
