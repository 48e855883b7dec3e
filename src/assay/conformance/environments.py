"""The rules of an environment: each is a function of small options and an environment.

A check returns if the rule holds, raises `Fault` if it is broken, and `NotApplicable` if the
environment does not have what the rule is about.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.api import score
from assay.conformance.worlds import Fault
from assay.environments.environment import Environment
from assay.environments.environment import environment as make
from assay.errors import NotApplicable
from assay.plugins import registry
from assay.protocols.agreement import normalise
from assay.suite.spec import Choice, choose_one
from assay.types import Batch, Dataset

FEW, MORE, MANY = 6, 9, 100  # samples: in most checks, in one larger batch, for chance scores
MOSTLY = 0.9  # least accuracy of a trained network; a designed one must reach 1
ERRORS = 5  # allowed distance of a mean over many samples, in standard errors
ROUNDING = 1e-6
BRIEFLY = {"classes": 8, "train": 2048}  # for environments of this package that train a network

Small = Mapping[str, int]
Number = Callable[[Tensor], Tensor]  # from the truth [B, *units] to one number per sample [B]
_BUILT: dict[str, Environment] = {}  # the last environment


def in_small() -> Small:
    """The largest options with which an environment named without options is checked."""
    return {"size": 64, "samples": 8}


def say_small(item: Any) -> str:
    """A note to print before the checks: the reduced options, and whether a network is trained."""
    defaults = choose_one("environment", item).options
    time = "" if _own(item) else ", in about a minute"
    reduced = {o: v for o, v in _options(in_small(), item).items() if v != defaults[o]}
    options = ", ".join(f"{option}: {value}" for option, value in reduced.items())
    trains = f"A network is trained first{time}. " if _trains(defaults) else ""
    size = (
        f"Checked with smaller options: {options}." if options else "Checked with its own options."
    )
    return trains + size


def _options(small: Small, item: Any) -> dict[str, Any]:
    options = dict(choose_one("environment", item).options)
    if isinstance(item, str):
        brief = _trains(options) and not _own(item)  # the training that others need is unknown
        most = {**small, **(BRIEFLY if brief else {})}
        options |= {o: min(options[o], n) for o, n in most.items() if type(options.get(o)) is int}
    return options


def _trains(options: Mapping[str, Any]) -> bool:
    """Whether the options set the number of images on which a network is trained."""
    return type(options.get("train")) is int


def _own(item: Any) -> bool:
    return bool(choose_one("environment", item).plugin.own)


def build(small: Small, item: Any) -> Environment:
    """The environment for the checks. All checks share one, because some train a network."""
    choice, (name, _) = choose_one("environment", item), registry.pick(item)
    options = _options(small, item)
    key = registry.identity([choice.key, registry.canonical(options)])
    if key not in _BUILT:
        _BUILT.clear()
        _BUILT[key] = make(name, **options)
    return _BUILT[key]


def batches_are_whole(small: Small, item: Any) -> None:
    """A batch has finite inputs, targets among the outputs, truth and baseline of their shape."""
    made = build(small, item)
    batch = made.batch(FEW)
    if len(batch) != FEW or len(set(batch.ids)) != FEW:
        raise Fault(f"expected {FEW} samples with different ids, got {len(set(batch.ids))}")
    if not bool(torch.isfinite(batch.inputs).all()):
        raise Fault("expected finite inputs, got NaN or inf")
    outputs = _answers(made, batch).shape[1]
    if not bool(((batch.targets >= 0) & (batch.targets < outputs)).all()):
        targets = batch.targets.tolist()
        raise Fault(f"expected targets below {outputs}, the number of outputs, got {targets}")
    if batch.baseline is not None and batch.baseline.shape != batch.inputs.shape:
        raise Fault(
            f"expected a baseline of the inputs' shape {tuple(batch.inputs.shape)}, got "
            f"{tuple(batch.baseline.shape)}"
        )
    for field, values in (("truth", batch.truth), ("labels", batch.labels)):
        if (field in made.dataset.has) != (values is not None):
            raise Fault(
                f"expected `{field}` in the dataset's `has` if and only if its samples have it"
            )
    if len(made.dataset.ids) != made.samples:
        raise Fault(f"expected a dataset of {made.samples} samples, got {len(made.dataset.ids)}")
    if batch.truth is None:
        return
    if tuple(batch.truth.shape) != (FEW, *batch.map_shape):
        raise Fault(
            f"expected truth of shape {(FEW, *batch.map_shape)}, got {tuple(batch.truth.shape)}"
        )
    if not bool(torch.isfinite(batch.truth).all()):
        raise Fault("expected finite truth, got NaN or inf")
    if not bool(batch.truth.flatten(1).any(1).all()):
        raise Fault("expected a relevant unit in every sample, got a truth of zeros")


def a_seed_decides(small: Small, item: Any) -> None:
    """The same seed gives the same batch; another seed gives other samples with other ids."""
    made = build(small, item)
    first = made.batch(FEW)
    _expect_same(first, made.batch(FEW), "two batches of the same seed have different")
    other = made.batch(FEW, seed=1)
    if set(first.ids) & set(other.ids):
        raise Fault("another seed gave the same ids")
    if torch.equal(first.inputs, other.inputs):
        raise Fault("another seed gave the same inputs")


def more_samples_begin_alike(small: Small, item: Any) -> None:
    """A larger batch of the same seed begins with the smaller one."""
    made = build(small, item)
    larger = made.batch(MORE).select(range(FEW))
    _expect_same(made.batch(FEW), larger, "in a larger batch the first samples have different")


def the_network_is_right(small: Small, item: Any) -> None:
    """The network predicts the right class: always if it is designed, mostly if it is trained."""
    made = build(small, item)
    batch = made.batch(MANY)
    if batch.labels is None:
        raise NotApplicable("its samples have no labels")
    right = float((_answers(made, batch).argmax(1) == batch.labels).double().mean())
    designed = choose_one("environment", item).plugin.family == "designed"
    least = 1.0 if designed else MOSTLY
    if right < least:
        raise Fault(f"expected the network to be right on {least:.0%} of samples, got {right:.0%}")


def the_truth_scores_best(small: Small, item: Any) -> None:
    """The truth, used as a map, gets the best score under every truth protocol that applies."""
    made = build(small, item)
    drawn, batch = _drawn(made, FEW), made.batch(FEW)
    for protocol in _judges(made):
        truth = _truth(batch)
        scores = score(made.model, drawn, None, truth, protocol.plugin.name)
        low, high = protocol.plugin.range
        end = torch.full_like(scores, high if protocol.plugin.higher_is_better else low)
        best = BEST.get(protocol.plugin.name, lambda _, end=end: end)(truth.double())
        known = ~scores.isnan()
        if not bool(((scores - best).abs()[known] <= ROUNDING).all()):
            raise Fault(
                f"expected the truth to score {_few(best[known])} under {protocol.label}, got "
                f"{_few(scores[known])}"
            )


def noise_scores_chance(small: Small, item: Any) -> None:
    """Uniform noise, used as maps, gets the chance score under every truth protocol."""
    made = build(small, item)
    drawn, batch = _drawn(made, MANY), made.batch(MANY)
    batch = replace(batch, contents=batch.ids)  # equal samples too have noise of their own
    for protocol in _judges(made):
        truth, declared = _truth(batch).double(), protocol.plugin.chance
        if declared == "measured" and protocol.plugin.name not in CHANCE:
            continue  # not known in theory
        noise = batch.draw("noise of the checks", batch.map_shape)  # a purpose of its own
        scores = score(made.model, drawn, None, noise, protocol.plugin.name)
        known = ~scores.isnan()
        if declared == "measured":
            chance = CHANCE[protocol.plugin.name](truth)[known]
        else:
            chance = torch.full_like(scores[known], float(declared))
        gap, error = float((scores[known] - chance).mean()), _error(scores[known], chance)
        if abs(gap) > ERRORS * error:
            raise Fault(
                f"expected noise to score {float(chance.mean()):.4g} under {protocol.label}, got "
                f"{float(scores[known].mean()):.4g}, over {ERRORS} standard errors away"
            )


# --- expected scores ------------------------------------------------------------------------------


def _itself(truth: Tensor) -> Tensor:
    """Soft precision, recall and F1 of the truth against itself: 1 if all its sizes are equal."""
    size = normalise(truth).abs().flatten(1)
    return size.square().sum(1) / size.sum(1)


def _half_the_share(truth: Tensor) -> Tensor:
    return (truth != 0).flatten(1).double().mean(1) / 2


def _mean_size(truth: Tensor) -> Tensor:
    """Precision: every unit has the same expected share of the noise's mass."""
    return normalise(truth).abs().flatten(1).mean(1)


def _of_the_largest(truth: Tensor) -> Tensor:
    """Recall: the mean of uniform noise divided by its largest value."""
    units = truth[0].numel()
    return truth.new_full((len(truth),), (units + 1) / (2 * units))


def _soft_f1(truth: Tensor) -> Tensor:
    """2 sum(a g) / (sum a + sum g) with every sum at its mean; the error is of order 1 / units."""
    size, level = normalise(truth).abs().flatten(1), _of_the_largest(truth)
    return 2 * level * size.sum(1) / (level * size.shape[1] + size.sum(1))


def _area(truth: Tensor) -> Tensor:
    return (truth > 0).flatten(1).double().mean(1)


def _random_ranking(truth: Tensor) -> Tensor:
    """Average precision of k relevant units among T in random order.

    The unit at rank i is relevant with probability k / T, and then a share (k - 1) / (T - 1) of the
    i - 1 units before it is relevant in expectation.
    """
    relevant, units = (truth > 0).flatten(1).double().sum(1), truth[0].numel()
    harmonic = (1 / torch.arange(1, units + 1, dtype=torch.float64)).sum()
    return (harmonic + (relevant - 1) / (units - 1) * (units - harmonic)) / units


BEST: dict[str, Number] = {  # if it is not the end of the range
    "truth_f1": _itself,
    "truth_precision": _itself,
    "truth_recall": _itself,
    "modulo_insertion": lambda truth: 1 - _half_the_share(truth),
    "modulo_deletion": _half_the_share,
}
CHANCE: dict[str, Number] = {  # if it depends on the sample
    "truth_f1": _soft_f1,
    "truth_precision": _mean_size,
    "truth_recall": _of_the_largest,
    "attribution_percent": _area,
    "pointing_game": _area,
    "synscore": _random_ranking,
}


# --- parts of the checks --------------------------------------------------------------------------


def _drawn(made: Environment, n: int) -> Dataset:
    """Samples that are made once for all protocols."""
    drawn = made.draw(n, 0)
    return replace(drawn, fetch=functools.cache(drawn.fetch))


def _answers(made: Environment, batch: Batch) -> Tensor:
    with made.model.evaluating(), torch.no_grad():
        return made.model.logits(batch.inputs.to(made.model.device)).cpu()


def _expect_same(one: Batch, other: Batch, message: str) -> None:
    if one.ids != other.ids:
        raise Fault(f"{message} ids")
    for name in ("inputs", "targets", "labels", "truth", "baseline"):
        first, second = getattr(one, name), getattr(other, name)
        one_is_missing = (first is None) != (second is None)
        if one_is_missing or (first is not None and not torch.equal(first, second)):
            raise Fault(f"{message} {name}")


def _judges(made: Environment) -> Iterator[Choice]:
    """The truth protocols of this package that apply, at their defaults."""
    available = made.dataset.has | made.model.capabilities | {made.dataset.modality}
    if "truth" not in available:
        raise NotApplicable("its samples have no truth")
    for plugin in registry.everything("protocol"):
        choice = choose_one("protocol", plugin.name)
        applies = plugin.required(choice.options) <= available
        if plugin.family == "truth" and not plugin.own and applies:
            yield choice


def _truth(batch: Batch) -> Tensor:
    if batch.truth is None:
        raise Fault("expected samples with truth, as the dataset's `has` declares, got none")
    return batch.truth


def _error(scores: Tensor, chance: Tensor) -> float:
    """The standard error of the mean; for 0 or 1 from the chance, because all may be equal."""
    if bool(((scores == 0) | (scores == 1)).all()):
        return float((chance * (1 - chance)).mean().sqrt()) / math.sqrt(len(scores))
    return float((scores - chance).std()) / math.sqrt(len(scores))


def _few(values: Tensor) -> str:
    return ", ".join(f"{v:.4g}" for v in values[:3].tolist()) + (", ..." if len(values) > 3 else "")


RULES = (
    batches_are_whole,
    a_seed_decides,
    more_samples_begin_alike,
    the_network_is_right,
    the_truth_scores_best,
    noise_scores_chance,
)
WORLDS = (in_small,)
