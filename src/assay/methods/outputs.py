"""The explained output: a class's logit, its probability or its log-odds."""

from collections.abc import Callable

import torch
from torch import Tensor

from assay.engine.respondent import micro_batches
from assay.plugins.option_types import Output as Output
from assay.types import Batch, Model


def explained(model: Model, logits: Tensor, targets: Tensor, output: Output) -> Tensor:  # [n]
    """The explained number of each row."""
    column = targets[:, None]
    if output == "logit":
        return logits.gather(1, column)[:, 0]
    if output == "probability":
        return model.log_probs(logits).gather(1, column)[:, 0].exp()
    if model.binary:
        return logits.gather(1, column)[:, 0]
    others = logits.scatter(1, column, -torch.inf)
    return logits.gather(1, column)[:, 0] - torch.logsumexp(others, 1)


def begun_with(model: Model, logits: Tensor, targets: Tensor, output: Output) -> Tensor:  # [n, C]
    """The relevance of the logits: the logits times the gradients of the explained output."""
    with torch.enable_grad():
        top = logits.detach().requires_grad_(True)
        scalar = explained(model, top, targets, output).sum()
    (slope,) = torch.autograd.grad(scalar, top)
    return slope * top.detach()


def relevance(model: Model, logits: Tensor, targets: Tensor, output: Output) -> Tensor:  # [n]
    """The total relevance: the logit itself if that is the explained output."""
    return begun_with(model, logits, targets, output).sum(1)


def answers(
    model: Model,
    batch: Batch,
    at: Tensor,
    output: Output,
    of: Callable[[Model, Tensor, Tensor, Output], Tensor] = explained,
) -> Tensor:  # [B]
    """The explained output at one point of each sample, or another function `of` the logits.

    One forward pass per sample.
    """
    parts = []
    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, at.device):
        points = at[samples]
        points = model.laid_out(points)
        logits = model.logits(batch.inputs[samples], at=points)
        parts.append(of(model, logits, batch.targets[samples], output)[:asked])
    return torch.cat(parts).double()
