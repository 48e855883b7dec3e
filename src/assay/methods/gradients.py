"""Methods based on gradients of the explained output with respect to the input."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from assay.engine.engine import Engine
from assay.engine.respondent import micro_batches
from assay.errors import InputError
from assay.methods.copies import points
from assay.methods.outputs import Output as Output
from assay.methods.outputs import explained as explained
from assay.methods.promises import completeness, difference, gap
from assay.plugins.option_types import Count, Options
from assay.plugins.registry import Passes, Promise, describe, get, method, pick
from assay.removal import FillChoice, all_absent
from assay.types import Batch, Model

FEWEST_STEPS, MOST_STEPS = 8, 512  # of integrals with `steps: auto`
PathSteps = Literal["auto"] | Annotated[int, Field(ge=1, le=4096)]  # nodes of a quadrature
Tolerance = Annotated[float, Field(gt=0)]


def gradients(
    model: Model,
    batch: Batch,
    rows: int,
    place: Callable[[Tensor, Tensor], Tensor],
    output: Output,
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Gradients at `rows` points of each sample, by micro-batch.

    `place(samples, rows)` returns the points. Yields samples, rows, points and gradients without
    padding.
    """
    for samples, row, asked in micro_batches(
        len(batch), rows, model.micro_batch, batch.inputs.device
    ):
        points = place(samples, row).detach()
        points = model.laid_out(points)
        points.requires_grad_(True)
        with torch.enable_grad():
            logits = model.logits(batch.inputs[samples], at=points.clone())  # may work in place
            scalar = explained(model, logits, batch.targets[samples], output).sum()
            (gradient,) = torch.autograd.grad(scalar, points)
        yield samples[:asked], row[:asked], points.detach()[:asked], gradient[:asked]


def one_pass(options: Options) -> Passes:
    """One forward and one backward pass per sample."""
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
    """The gradient of the explained output: how it changes with each input.

    Formula: df/dx at x.

    Differs from the paper: the paper takes the largest absolute value over the channels; here they
    are summed with their signs, unless `reduce` or `abs` is set.
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
    """The input times the gradient: the first-order contribution of each input.

    Formula: x df/dx at x, with x as preprocessed for the network.

    Differs from the paper: nothing.
    """
    x = points(model, batch)
    return torch.cat(
        [p * g for _, _, p, g in gradients(model, batch, 1, lambda s, _: x[s], output)]
    )


def starting_point(model: Model, batch: Batch, baseline: FillChoice, x: Tensor) -> Tensor:
    """Where the path to x begins: a fill at every position.

    A constant is that number where the gradients are taken, so for word embeddings as well.
    """
    constant = None if isinstance(baseline, Tensor) else get("fill", pick(baseline)[0]).constant
    if constant is not None:
        return torch.full_like(x, constant)
    return model.continuous(all_absent(batch, baseline))


def _starts(model: Model, batch: Batch, baseline: FillChoice, draws: int) -> Iterator[Tensor]:
    """The baselines, one after the other, because all at once take much memory."""
    x, first = points(model, batch), None
    for number in range(draws):
        start = starting_point(model, batch.redrawn(number), baseline, x)
        if number == 1 and first is not None and torch.equal(first, start):
            raise InputError(
                f"Expected a random `baseline`, such as `normal` or `uniform`, where `draws` is "
                f"{draws}, got `{describe(baseline)}`, which is the same in every draw."
            )
        first = start if number == 0 else first
        yield start


def _per_step(options: Options) -> Passes:
    if options["steps"] == "auto":
        return Passes(forward=None, backward=None, by="until it adds up")
    rows = options["steps"] * options["draws"]
    return Passes(forward=rows, backward=rows)


def _from(fill: str | None = None) -> Promise:
    """The promise of a path that begins at the option `baseline`, or at this fill."""
    return completeness(
        lambda model, batch, o: _starts(model, batch, fill or o["baseline"], o["draws"]),
        lambda options: int(options["draws"]),
    )


@method(
    "integrated_gradients",
    needs=["gradients"],
    noise=True,
    passes=_per_step,
    promise=_from(),
    family="gradients",
    cite="sundararajan2017",
    title="Integrated gradients",
)
def integrated_gradients(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    steps: PathSteps = 50,
    baseline: FillChoice = "zero",
    draws: Count = 1,
    tolerance: Tolerance = 1e-3,
    output: Output = "logit",
) -> Tensor:
    """(x - b) times the mean gradient on the straight path from a baseline b to x.

    Formula: (x - b) times the integral over a in [0, 1] of df/dx at b + a (x - b).

    `draws` is the number of draws of a random baseline to average over. `steps: auto` doubles the
    steps of each sample, from 8 to at most 512, until its map adds up to f(x) - f(b) up to a
    relative error of `tolerance`; the run records which samples missed it.

    Differs from the paper: the integral uses Gauss-Legendre quadrature with `steps` nodes, not a
    sum of equal steps, and the logit is explained; the paper's is `output: probability`. M4 uses
    `{steps: 50, baseline: normal, draws: 10, output: probability}` with equal steps.
    """
    starts = functools.partial(_starts, model, batch, baseline, draws)
    if steps == "auto":
        return _until_complete(model, batch, engine, starts, tolerance, output)
    x = points(model, batch)
    parts = (_integral(model, batch, x, start, steps, output) for start in starts())
    return functools.reduce(torch.add, parts) / draws


def _until_complete(
    model: Model,
    batch: Batch,
    engine: Engine,
    starts: Callable[[], Iterable[Tensor]],
    tolerance: float,
    output: Output,
) -> Tensor:
    """Integrals with as many steps as each sample needs for completeness."""
    x, count = points(model, batch), engine.count
    promised = difference(model, batch, _counted(starts(), count, len(batch)), output)
    count(len(batch))
    result, rest, steps = torch.empty_like(x), list(range(len(batch))), FEWEST_STEPS
    while rest:
        some = batch.select(rest)
        parts = [
            _integral(model, some, x[rest], start[rest], steps, output, count) for start in starts()
        ]
        maps = functools.reduce(torch.add, parts) / len(parts)
        result[rest] = maps
        missed = gap(maps, promised[rest]).tolist()
        if steps == MOST_STEPS:
            break
        rest = [b for b, share in zip(rest, missed, strict=True) if not share <= tolerance]
        steps *= 2
    return result


def _counted(
    starts: Iterable[Tensor], count: Callable[[int], None], passes: int
) -> Iterator[Tensor]:
    for start in starts:
        count(passes)
        yield start


def _integral(
    model: Model,
    batch: Batch,
    x: Tensor,
    start: Tensor,
    steps: int,
    output: Output,
    count: Callable[[int], None] = lambda rows: None,
) -> Tensor:
    """(x - start) times the mean gradient between them."""
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    alpha = torch.as_tensor((nodes + 1) / 2).to(x)
    weight = torch.as_tensor(weights / 2).to(x)
    ones = [1] * (x.ndim - 1)

    def place(samples: Tensor, rows: Tensor) -> Tensor:
        return torch.lerp(start[samples], x[samples], alpha[rows].reshape(-1, *ones))

    mean = torch.zeros_like(x)
    for samples, rows, _, gradient in gradients(model, batch, steps, place, output):
        mean.index_add_(0, samples, gradient * weight[rows].reshape(-1, *ones))
        count(len(rows))
    return (x - start) * mean


@method(
    "integrated_gradients_uniform",
    needs=["gradients"],
    noise=True,
    passes=_per_step,
    promise=_from("uniform"),
    family="gradients",
    cite="sturmfels2020",
    title="Integrated gradients, uniform baseline",
)
def integrated_gradients_uniform(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    steps: PathSteps = 50,
    draws: Count = 1,
    tolerance: Tolerance = 1e-3,
    output: Output = "logit",
) -> Tensor:
    """Integrated gradients from uniform noise in [-1, 1], one fixed field per sample.

    Formula: that of `integrated_gradients` with b uniform in [-1, 1].

    Differs from the paper: the paper draws over the range of valid pixels and also averages over
    several draws, as `draws` does; IDSDS uses one field for all images.
    """
    return integrated_gradients(
        model, batch, engine, steps=steps, baseline="uniform", draws=draws, tolerance=tolerance,
        output=output,
    )  # fmt: skip
