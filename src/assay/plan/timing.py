"""Measure the seconds of one micro-batch of each network on real samples."""

import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from statistics import fmean

import torch
from torch import Tensor

from assay.methods.gradients import gradients
from assay.plan.forecast import Forecast
from assay.plan.plan import Plan
from assay.removal import FillChoice, imputes, make_removal
from assay.types import Batch
from assay.units.features import elements


@dataclass(frozen=True)
class Seconds:
    """The seconds of one micro-batch of a model."""

    forward: float
    gradient: float
    imputing: float = 0.0  # before the forward pass, if the suite imputes

    @classmethod
    def mean(cls, several: "Sequence[Seconds]") -> "Seconds":
        """The mean over processes."""
        return cls(*(fmean(each) for each in zip(*map(astuple, several), strict=True)))

    def of(self, name: str, expected: Forecast) -> float:
        """The seconds of a model's calls in a forecast."""
        return (
            expected.forward_calls.get(name, 0) * self.forward
            + expected.gradient_calls.get(name, 0) * self.gradient
            + expected.imputed_calls.get(name, 0) * self.imputing
        )


def measure(plan: Plan, name: str) -> Seconds:
    """The seconds of an engine call, a gradient call and an imputation, on real samples."""
    model = plan.models[name]
    shard = next(s for s in plan.shards if s.model == name)
    with model.evaluating(), torch.no_grad():
        batch = plan.batch(shard, shard.samples[: model.micro_batch])
        ready = plan.ready(shard, batch)
        model, network = ready.model, ready.net
        rows = torch.arange(model.micro_batch, device=batch.inputs.device) % len(batch)
        inputs = model.laid_out(batch.inputs[rows])
        targets = torch.where(batch.targets < 0, 0, batch.targets)
        full = replace(
            batch, inputs=inputs, targets=targets[rows], ids=tuple(map(str, range(len(rows)))),
            contents=(),
        )  # fmt: skip
        forward = _time(lambda: model.logits(inputs, net=network))
        fill = _imputing_fill(plan, batch)
        imputing = 0.0 if fill is None else _time(_imputation(batch, rows, fill))
        if "gradients" not in model.has:
            return Seconds(forward, forward, imputing)
        points = model.continuous(inputs)
        gradient = _time(lambda: list(gradients(model, full, 1, lambda s, _: points[s], "logit")))
        return Seconds(forward, gradient, imputing)


def _imputation(batch: Batch, samples: Tensor, fill: FillChoice) -> Callable[[], object]:
    """Impute these samples, each with a different share of its pixels."""
    removal, features = make_removal(batch, fill), elements(batch)
    shares = torch.linspace(0, 1, len(samples), device=samples.device)[:, None]
    uniform = batch.draw("pixels to impute", (features.valid.shape[1],))[samples]
    return partial(removal, features, uniform < shares, samples)


def _imputing_fill(plan: Plan, batch: Batch) -> FillChoice | None:
    """The first fill of the suite that imputes; None if there is none."""
    if batch.inputs.ndim != 4:
        return None
    fills = (
        choice.options[option]
        for choice in (*plan.methods, *plan.protocols)
        for option, kind in choice.plugin.nested().items()
        if kind == "fill"
    )
    return next((fill for fill in fills if imputes(batch, fill)), None)


def _time(call: Callable[[], object], least: float = 1.0) -> float:
    """Seconds per call, averaged over about a second, without the first call."""
    call()
    _wait()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < least or calls < 3:
        call()
        calls += 1
        _wait()
    return (time.perf_counter() - started) / calls


def _wait() -> None:
    """Wait for the GPU: its calls return before the work is done."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
