"""What a method's formula promises about its maps, and how far the maps are from it.

A method says so in its decorator, `promise=completeness(...)` or `promise=conservation()`; a run
then computes the gap once for each map and keeps it with the scores.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from assay.methods.copies import points
from assay.methods.outputs import answers, relevance
from assay.plugins.option_types import Options, Output
from assay.plugins.registry import Promise
from assay.types import Batch, Model

# (model, batch, options) -> the baselines of each sample, every one like `points(model, batch)`
Baselines = Callable[[Model, Batch, Options], Iterable[Tensor]]


def completeness(baselines: Baselines, count: Callable[[Options], int] = lambda o: 1) -> Promise:
    """Maps add up to f(x) - f(b), with the mean of f(b) for `count` baselines b.

    The gap is the missing amount relative to the promised sum.
    """

    def function(model: Model, batch: Batch, raw: Tensor, options: Options) -> Tensor:
        output = options.get("output", "logit")
        promised = difference(model, batch, baselines(model, batch, options), output)
        return gap(raw, promised)

    return Promise("completeness gap", function, lambda options: 1 + count(options))


def conservation() -> Promise:
    """Maps add up to f(x): relevance is neither lost nor created on the way back.

    For an output other than the logit they add up to the logits times its gradients.
    """

    def function(model: Model, batch: Batch, raw: Tensor, options: Options) -> Tensor:
        x = points(model, batch)
        return gap(raw, answers(model, batch, x, options.get("output", "logit"), of=relevance))

    return Promise("conservation gap", function, lambda options: 1)


def difference(
    model: Model, batch: Batch, baselines: Iterable[Tensor], output: Output
) -> Tensor:  # [B]
    """f(x) minus the mean of f(b) over these baselines b."""
    here = answers(model, batch, points(model, batch), output)
    there = [answers(model, batch, start, output) for start in baselines]
    return here - torch.stack(there).mean(0)


def gap(raw: Tensor, promised: Tensor) -> Tensor:  # [B]
    """The error of the maps' sums relative to the promised sums; 0 where both are zero."""
    missed = (raw.double().flatten(1).sum(1) - promised).abs()
    return torch.where(missed == 0, missed, missed / promised.abs())
