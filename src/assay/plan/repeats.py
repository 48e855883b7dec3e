"""Whether a network is a function of its input: the same samples are asked twice, then compared."""

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.engine.respondent import ask
from assay.errors import InputError, warn
from assay.models.prepare import DRAWS, INPUT, Prepared
from assay.plan.finished import Finished
from assay.plan.plan import Plan, Shard
from assay.types import Model

SAMPLES = 4  # asked first; half of them are asked again, in the opposite order

# Differences from rounding, relative to the largest output, on the CPU and the GPU: another batch
# size may choose another algorithm.
ROUNDING = {torch.float64: 1e-7, torch.float32: 1e-4, torch.float16: 0.01, torch.bfloat16: 0.05}
LARGE = 0.05  # of the range of the outputs over samples: from here on, the network is refused


def first_asked(finished: Finished, shards: Sequence[Shard]) -> list[Shard]:
    """The shards in which a network meets a dataset for the first time in a run folder."""
    plan = finished.plan
    scored = [shard for shard in shards if not shard.split]
    firsts = {(shard.dataset, shard.model): shard for shard in reversed(scored)}
    known = {
        pair
        for shard in plan.shards
        if (pair := (shard.dataset, shard.model)) in firsts and finished.summary(shard) is not None
    }
    return [shard for pair, shard in firsts.items() if pair not in known]


def repeat_passes(shard: Shard, micro_batch: int) -> tuple[int, int]:
    """The forward passes that asking twice takes, and the calls."""
    sizes = len(_once(shard)), len(_again(shard))
    return sum(sizes), sum(-(-size // micro_batch) for size in sizes)


def check_repeats(plan: Plan, shard: Shard) -> None:
    """Compare the outputs of some samples with those in another order and batch.

    Warns where they differ by more than rounding, and of outputs that are probabilities.

    Raises:
        InputError: They differ by a lot, and the model is not declared as stochastic.
    """
    batch = plan.batch(shard, tuple(_once(shard)))
    ready = plan.ready(shard, batch)
    again = [batch.ids.index(sample) for sample in _again(shard)]
    with plan.models[shard.model].evaluating(), torch.no_grad():
        first, second = (_outputs(ready, batch.inputs[rows]) for rows in (slice(None), again))
    model = ready.model
    if _are_probabilities(first, model):
        warn(
            f"The outputs of model `{shard.model}` are probabilities: none is negative, and their "
            f"sum is 1, as after a softmax. Logits are expected, because the softmax is applied to "
            f"them. Remove the last layer, or take the logarithm: "
            f"`assay.model(net, output=lambda p: p.clamp_min(1e-12).log())`."
        )
    if INPUT in _changes(model):
        warn(
            f"The forward pass of model `{shard.model}` changes its own input in place. Begin it "
            f"with `x = x.clone()`, or leave out `inplace=True` in its first layers."
        )
    difference, largest = _difference(first[again], second), _finite(first).abs().max()
    rounding = max(
        ROUNDING.get(kind, ROUNDING[torch.float32]) for kind in (first.dtype, model.dtype)
    )
    if model.stochastic or difference <= rounding * largest:
        return
    effect = float(difference / _range(first))
    text = (
        f"Model `{shard.model}` is not a function of its input: the same samples, asked again in "
        f"another order and batch, give outputs that differ by {effect:.2g} of their range over "
        f"samples. {_cause(model)}"
    )
    if effect > LARGE:
        raise InputError(
            f"{text} Scores would depend on it. If this is intended, declare it: "
            f"`assay.model(net, stochastic=True)`, `stochastic: true` in a suite, or "
            f"`--stochastic`."
        )
    warn(text)


def _once(shard: Shard) -> Sequence[str]:
    return shard.samples[:SAMPLES]


def _again(shard: Shard) -> Sequence[str]:
    once = _once(shard)
    return once[: max(1, len(once) // 2)][::-1]


def _outputs(ready: Prepared, inputs: Tensor) -> Tensor:  # [n, C]
    parts = torch.split(inputs, ready.model.micro_batch)
    return torch.cat([ask(ready.forward, part.clone(), ready.model.name) for part in parts])


def _difference(first: Tensor, second: Tensor) -> Tensor:
    """The largest difference; equal NaN or inf do not differ."""
    first, second = first.double(), second.double()
    same = (first == second) | (first.isnan() & second.isnan())
    return torch.where(same, 0.0, (first - second).abs()).nan_to_num(nan=torch.inf).max()


def _finite(outputs: Tensor) -> Tensor:
    return outputs.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _range(outputs: Tensor) -> Tensor:
    """How far an output differs between samples; where none does, the largest output."""
    finite = _finite(outputs)
    over_samples = (finite.amax(0) - finite.amin(0)).max()
    return over_samples if bool(over_samples > 0) else finite.abs().max()


def _are_probabilities(outputs: Tensor, model: Model) -> bool:
    if model.binary or "regression" in model.has or outputs.shape[1] < 2:
        return False
    sums = outputs.double().sum(1)
    tolerance = 1e-4 if outputs.dtype in (torch.float32, torch.float64) else 0.02
    return bool((outputs >= 0).all()) and bool(((sums - 1).abs() < tolerance).all())


def _changes(model: Model) -> frozenset[str]:
    return frozenset() if model.observed is None else model.observed.changes


def _cause(model: Model) -> str:
    changes = _changes(model)
    if DRAWS in changes:
        return (
            "Its forward pass draws random numbers. `nn.Dropout` and "
            "`F.dropout(x, p, self.training)` are off in evaluation mode; `F.dropout(x, p)` is not."
        )
    own = sorted(changes - {INPUT})
    if own:
        return f"Its forward pass changes {own[0]}."
    return (
        "Its outputs depend on the other samples of the batch, as with batch normalisation without "
        "running statistics, or on earlier calls."
    )
