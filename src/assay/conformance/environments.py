"""The rules of an environment, each a function of small options and an environment by its name.

A check returns where the rule holds, raises `Fault` where it is broken, and `NotApplicable` where
the environment does not have what the rule speaks of.
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

FEW, MORE, MANY = 6, 9, 100  # samples: of most checks, of one larger batch, of what chance gives
MOSTLY = 0.9  # how often a trained network must be right; a designed one always is
ERRORS = 5  # standard errors that a mean over many samples may lie off
ROUNDING = 1e-6
BRIEFLY = {"classes": 8, "train": 2048}  # of this package's, what trains a network is tried with

Small = Mapping[str, int]
Number = Callable[[Tensor], Tensor]  # from the truth [B, *units] to a number each [B]
_BUILT: dict[str, Environment] = {}  # the last one


def in_small() -> Small:
    """What an environment named without options is tried with, where it has larger ones."""
    return {"size": 64, "samples": 8}


def say_small(item: Any) -> str:
    """What a reader should know before an environment is tried: how small, and what it takes."""
    usual = choose_one("environment", item).options
    lasts = "" if _own(item) else ", within a minute or so"
    lesser = {o: v for o, v in _options(in_small(), item).items() if v != usual[o]}
    said = ", ".join(f"{option}: {value}" for option, value in lesser.items())
    trains = f"A network is trained first{lasts}. " if _trains(usual) else ""
    return trains + (f"Tried in small, with {said}." if said else "Tried as it is.")


def _options(small: Small, item: Any) -> dict[str, Any]:
    options = dict(choose_one("environment", item).options)
    if isinstance(item, str):
        brief = _trains(options) and not _own(item)  # how much training others need, only they know
        most = {**small, **(BRIEFLY if brief else {})}
        options |= {o: min(options[o], n) for o, n in most.items() if type(options.get(o)) is int}
    return options


def _trains(options: Mapping[str, Any]) -> bool:
    """Whether it says how many images a network is trained on."""
    return type(options.get("train")) is int


def _own(item: Any) -> bool:
    return bool(choose_one("environment", item).plugin.own)


def build(small: Small, item: Any) -> Environment:
    """The environment as it is tried; the same one for all checks, for some train their network."""
    choice, (name, _) = choose_one("environment", item), registry.pick(item)
    options = _options(small, item)
    key = registry.identity([choice.key, registry.canonical(options)])
    if key not in _BUILT:
        _BUILT.clear()
        _BUILT[key] = make(name, **options)
    return _BUILT[key]


def batches_are_whole(small: Small, item: Any) -> None:
    """A batch has finite inputs, targets among the outputs, truth and baseline of their size."""
    made = build(small, item)
    batch = made.batch(FEW)
    if len(batch) != FEW or len(set(batch.ids)) != FEW:
        raise Fault(f"expected {FEW} samples with ids of their own, got {len(set(batch.ids))}")
    if not bool(torch.isfinite(batch.inputs).all()):
        raise Fault("expected finite inputs, got NaN or inf")
    outputs = _answers(made, batch).shape[1]
    if not bool(((batch.targets >= 0) & (batch.targets < outputs)).all()):
        raise Fault(f"expected targets below {outputs}, the outputs, got {batch.targets.tolist()}")
    if batch.baseline is not None and batch.baseline.shape != batch.inputs.shape:
        raise Fault(
            f"expected a baseline of shape {tuple(batch.inputs.shape)}, as the inputs are, got "
            f"{tuple(batch.baseline.shape)}"
        )
    for what, there in (("truth", batch.truth), ("labels", batch.labels)):
        if (what in made.dataset.has) != (there is not None):
            raise Fault(f"`{what}` must be in the dataset's `has` where its samples have them")
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
        raise Fault("expected something to be relevant in every sample, got a truth of zeros")


def a_seed_decides(small: Small, item: Any) -> None:
    """The same seed gives the same batch, another seed other samples with other ids."""
    made = build(small, item)
    first = made.batch(FEW)
    _expect_same(first, made.batch(FEW), "twice the same seed gave different")
    other = made.batch(FEW, seed=1)
    if set(first.ids) & set(other.ids):
        raise Fault("another seed gave the same ids")
    if torch.equal(first.inputs, other.inputs):
        raise Fault("another seed gave the same inputs")


def more_samples_begin_alike(small: Small, item: Any) -> None:
    """A larger batch of the same seed begins with the smaller one."""
    made = build(small, item)
    larger = made.batch(MORE).select(range(FEW))
    _expect_same(made.batch(FEW), larger, "in a larger batch the first samples have other")


def the_network_is_right(small: Small, item: Any) -> None:
    """Its network gives the right class: always where it is designed, mostly where trained."""
    made = build(small, item)
    batch = made.batch(MANY)
    if batch.labels is None:
        raise NotApplicable("its samples have no labels")
    right = float((_answers(made, batch).argmax(1) == batch.labels).double().mean())
    designed = choose_one("environment", item).plugin.family == "designed"
    least = 1.0 if designed else MOSTLY
    if right < least:
        raise Fault(f"expected its network to be right on {least:.0%} of samples, got {right:.0%}")


def the_truth_scores_best(small: Small, item: Any) -> None:
    """The truth, taken as a map, gets the best score of every truth protocol that applies."""
    made = build(small, item)
    drawn, batch = _drawn(made, FEW), made.batch(FEW)
    for protocol in _judges(made):
        truth = _truth(batch)
        found = score(made.model, drawn, None, truth, protocol.plugin.name)
        low, high = protocol.plugin.range
        end = torch.full_like(found, high if protocol.plugin.higher_is_better else low)
        best = BEST.get(protocol.plugin.name, lambda _, end=end: end)(truth.double())
        known = ~found.isnan()
        if not bool(((found - best).abs()[known] <= ROUNDING).all()):
            raise Fault(
                f"expected the truth to score {_few(best[known])} by {protocol.label}, got "
                f"{_few(found[known])}"
            )


def noise_scores_chance(small: Small, item: Any) -> None:
    """Uniform noise, taken as maps, gets the score that chance gives, by every truth protocol."""
    made = build(small, item)
    drawn, batch = _drawn(made, MANY), made.batch(MANY)
    for protocol in _judges(made):
        truth, said = _truth(batch).double(), protocol.plugin.chance
        if said == "measured" and protocol.plugin.name not in CHANCE:
            continue  # no theory gives it
        noise = batch.draw("noise of the checks", batch.map_shape)  # nobody else draws these
        found = score(made.model, drawn, None, noise, protocol.plugin.name)
        known = ~found.isnan()
        if said == "measured":
            chance = CHANCE[protocol.plugin.name](truth)[known]
        else:
            chance = torch.full_like(found[known], float(said))
        off, error = float((found[known] - chance).mean()), _error(found[known], chance)
        if abs(off) > ERRORS * error:
            raise Fault(
                f"expected noise to score {float(chance.mean()):.4g} by {protocol.label}, got "
                f"{float(found[known].mean()):.4g}, more than {ERRORS} standard errors off"
            )


# --- what theory gives ----------------------------------------------------------------------------


def _itself(truth: Tensor) -> Tensor:
    """Soft precision, recall and F1 of the truth against itself: 1 where it is even."""
    size = normalise(truth).abs().flatten(1)
    return size.square().sum(1) / size.sum(1)


def _half_the_share(truth: Tensor) -> Tensor:
    return (truth != 0).flatten(1).double().mean(1) / 2


def _mean_size(truth: Tensor) -> Tensor:
    """Precision: every unit has the same part of the noise's mass, whatever is relevant."""
    return normalise(truth).abs().flatten(1).mean(1)


def _of_the_largest(truth: Tensor) -> Tensor:
    """Recall: the mean of uniform noise over its largest value; below that it is uniform."""
    units = truth[0].numel()
    return truth.new_full((len(truth),), (units + 1) / (2 * units))


def _soft_f1(truth: Tensor) -> Tensor:
    """2 sum(a g) / (sum a + sum g), each sum at its mean: off by the order of 1 / units."""
    size, level = normalise(truth).abs().flatten(1), _of_the_largest(truth)
    return 2 * level * size.sum(1) / (level * size.shape[1] + size.sum(1))


def _area(truth: Tensor) -> Tensor:
    return (truth > 0).flatten(1).double().mean(1)


def _random_ranking(truth: Tensor) -> Tensor:
    """Average precision of k relevant ones among T in random order.

    At rank i stands a relevant one by chance k / T, and of the i - 1 before it (k - 1) / (T - 1)
    are relevant.
    """
    relevant, units = (truth > 0).flatten(1).double().sum(1), truth[0].numel()
    harmonic = (1 / torch.arange(1, units + 1, dtype=torch.float64)).sum()
    return (harmonic + (relevant - 1) / (units - 1) * (units - harmonic)) / units


BEST: dict[str, Number] = {  # where it is not the end of the range
    "truth_f1": _itself,
    "truth_precision": _itself,
    "truth_recall": _itself,
    "modulo_insertion": lambda truth: 1 - _half_the_share(truth),
    "modulo_deletion": _half_the_share,
}
CHANCE: dict[str, Number] = {  # where it depends on the sample
    "truth_f1": _soft_f1,
    "truth_precision": _mean_size,
    "truth_recall": _of_the_largest,
    "attribution_percent": _area,
    "pointing_game": _area,
    "synscore": _random_ranking,
}


# --- parts of the checks --------------------------------------------------------------------------


def _drawn(made: Environment, n: int) -> Dataset:
    """Samples that are made once, however many protocols ask for them."""
    drawn = made.draw(n, 0)
    return replace(drawn, fetch=functools.cache(drawn.fetch))


def _answers(made: Environment, batch: Batch) -> Tensor:
    with made.model.evaluating(), torch.no_grad():
        return made.model.logits(batch.inputs.to(made.model.device)).cpu()


def _expect_same(one: Batch, other: Batch, how: str) -> None:
    if one.ids != other.ids:
        raise Fault(f"{how} ids")
    for name in ("inputs", "targets", "labels", "truth", "baseline"):
        mine, its = getattr(one, name), getattr(other, name)
        if (mine is None) != (its is None) or (mine is not None and not torch.equal(mine, its)):
            raise Fault(f"{how} {name}")


def _judges(made: Environment) -> Iterator[Choice]:
    """The truth protocols of this package that apply, at their defaults."""
    has = made.dataset.has | made.model.capabilities | {made.dataset.modality}
    if "truth" not in has:
        raise NotApplicable("its samples have no truth")
    for plugin in registry.everything("protocol"):
        choice = choose_one("protocol", plugin.name)
        if plugin.family == "truth" and not plugin.own and plugin.required(choice.options) <= has:
            yield choice


def _truth(batch: Batch) -> Tensor:
    if batch.truth is None:
        raise Fault("its dataset says `truth`, its samples have none")
    return batch.truth


def _error(found: Tensor, chance: Tensor) -> float:
    """The standard error of the mean; of hits and misses by their chance, for they may all miss."""
    if bool(((found == 0) | (found == 1)).all()):
        return float((chance * (1 - chance)).mean().sqrt()) / math.sqrt(len(found))
    return float((found - chance).std()) / math.sqrt(len(found))


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
