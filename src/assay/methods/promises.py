"""What a method's formula promises of its maps, and by how much they miss it.

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
    """Maps that add up to f(x) - f(b), with the mean of f(b) where there are `count` baselines b.

    The gap is what they miss, over the size of what was promised.
    """

    def function(model: Model, batch: Batch, raw: Tensor, options: Options) -> Tensor:
        output = options.get("output", "logit")
        promised = difference(model, batch, baselines(model, batch, options), output)
        return gap(raw, promised)

    return Promise("completeness gap", function, lambda options: 1 + count(options))


def conservation() -> Promise:
    """Maps that add up to f(x): nothing is lost on the way, and nothing is made.

    Of an output other than the logit, to what begins: the logits times its gradients.
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
    """What the sums of maps miss, over the size of what was promised; 0 where both are nothing."""
    missed = (raw.double().flatten(1).sum(1) - promised).abs()
    return torch.where(missed == 0, missed, missed / promised.abs())
