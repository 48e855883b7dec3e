"""The rules of a protocol: each is a function of an exam and a protocol as a suite writes it.

A check returns if the rule holds, raises `Fault` if it is broken, and `NotApplicable` if the
protocol does not apply.
"""

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.api import benchmark, score
from assay.conformance.worlds import (
    Exam,
    Fault,
    designed_card,
    linear_images,
    linear_texts,
    linear_vectors,
    make_images,
    make_net,
    marked_images,
    painted_parts,
)
from assay.data.memory import as_dataset
from assay.engine.guard import Guard
from assay.errors import NotApplicable
from assay.models.wrap import model as as_model
from assay.plan.scoring import score_case
from assay.plugins.registry import Protocol, identity
from assay.plugins.set_level import own_reduction
from assay.run.shard import make_engine
from assay.run.suite_run import prepare
from assay.store import NOWHERE
from assay.suite.spec import choose_one, make_suite
from assay.types import Case, Model
from assay.types.card import IN_DOMAIN

_LAST: dict[str, tuple[Exam, Tensor]] = {}  # the last scores of exact maps


def scores(exam: Exam, maps: Tensor, item: Any) -> Tensor:  # [B]
    """The score of each sample's map.

    Raises:
        NotApplicable: The data lack what the protocol needs, or are not meant for it.
    """
    _check_tried(exam, item)
    data = exam.data
    x, y = data if isinstance(data, tuple) else (data, None)
    return score(_network(exam, item), x, y, maps, item)


def _network(exam: Exam, item: Any) -> nn.Module | Model:
    """The network, with the card of a fine-tuning where the protocol asks for one.

    Designed networks are not fine-tuned: their exact maps are exact without a cell too.
    """
    choice = choose_one("protocol", item)
    if not any(need.startswith(IN_DOMAIN) for need in choice.plugin.required(choice.options)):
        return exam.net
    model = as_model(exam.net)
    if model.modality != "image":
        return model
    grid, fill = choice.options["grid"], choice.options["fill"]
    return as_model(model, card=designed_card(grid, fill, model.weights_hash))


def _check_tried(exam: Exam, item: Any) -> None:
    choice = choose_one("protocol", item)
    needs = choice.plugin.required(choice.options)
    missing = needs & {"counted", "truth"} - exam.has
    if missing:
        raise NotApplicable(f"needs {', '.join(sorted(missing))}")
    if exam.made_for and exam.made_for not in needs and not choice.plugin.own:
        raise NotApplicable(f"is checked on other data: these are for {exam.made_for}")


def _check_judges_maps(item: Any) -> None:
    if _plugin(item).judges == "model":
        raise NotApplicable("its score does not depend on the map")


def _plugin(item: Any) -> Protocol:
    plugin: Protocol = choose_one("protocol", item).plugin
    return plugin


def exact_scores(exam: Exam, item: Any) -> Tensor:  # [B]
    """The scores of the exact maps, computed once for the checks that compare others with them."""
    key = identity([id(exam), choose_one("protocol", item).key])
    if key not in _LAST:
        values = scores(exam, exam.truth, item)
        _LAST.clear()
        _LAST[key] = exam, values  # keeps the exam alive, so that its id is not reused
    return _LAST[key][1]


def _mean(values: Tensor, item: Any) -> float:
    """The mean score, negated if lower is better."""
    sign = 1 if _plugin(item).higher_is_better else -1
    return sign * values.nanmean().item()


def the_oracle_beats_noise(exam: Exam, item: Any) -> None:
    """The exact map scores better than noise."""
    _check_judges_maps(item)
    best = _mean(exact_scores(exam, item), item)
    for seed in range(3):
        noise = torch.rand(exam.truth.shape, generator=torch.Generator().manual_seed(seed))
        chance = _mean(scores(exam, noise, item), item)
        if not best > chance:
            raise Fault(f"the exact map scores {best:.4g}, noise {chance:.4g} (higher is better)")


def signs_matter_as_declared(exam: Exam, item: Any) -> None:
    """Negating a map lowers the score if `sign_sensitive`, and changes nothing otherwise."""
    right = _mean(exact_scores(exam, item), item)
    flipped = _mean(scores(exam, -exam.truth, item), item)
    choice = choose_one("protocol", item)
    sensitive = choice.plugin.signs_matter(choice.options)
    if sensitive and not right > flipped:
        raise Fault(f"sign_sensitive, but the exact map scores {right:.4g}, negated {flipped:.4g}")
    if not sensitive and not abs(right - flipped) <= 1e-9:
        raise Fault(
            f"not sign_sensitive, but the exact map scores {right:.4g}, negated {flipped:.4g}"
        )


def neighbours_do_not_matter(exam: Exam, item: Any) -> None:
    """A score does not depend on the other samples in the batch, unless declared."""
    if _plugin(item).judges == "set":
        raise NotApplicable("it scores a whole set")
    together = exact_scores(exam, item)
    half = scores(exam.first(5), exam.truth[:5], item)
    if not torch.equal(half, together[:5]):
        raise Fault("five samples alone get different scores than among twelve")


def the_same_twice(exam: Exam, item: Any) -> None:
    """The same call gives the same scores: randomness comes from `case.batch.draw`."""
    first = exact_scores(exam, item)
    if not torch.equal(first, scores(exam, exam.truth, item)):
        raise Fault("two equal calls gave different scores: draw with `case.batch.draw`")
    _, guard = _score_copies(exam, item, guarded=True)
    for used in guard.drawn.values() if guard is not None else ():
        raise Fault(f"it uses {used[0]}, which all share: draw with `case.batch.draw`")


def the_map_is_not_touched(exam: Exam, item: Any) -> None:
    """The map is not changed, so that the next protocol reads the same map."""
    maps, _ = _score_copies(exam, item, guarded=False)
    if not torch.equal(maps, exam.truth[: len(maps)]):
        raise Fault("the map was changed: work on a clone")


def _score_copies(exam: Exam, item: Any, guarded: bool) -> tuple[Tensor, Guard | None]:
    """Copies of the exact maps after they were scored, and what compared things meanwhile."""
    _check_tried(exam, item)
    data = as_dataset(exam.data)
    model = replace(as_model(_network(exam, item)), modality=data.modality)
    fields = {"datasets": [data], "models": [model]}
    spec = make_suite({**fields, "methods": ["random"], "protocols": [item]})
    plan, _ = prepare(spec, NOWHERE)
    (protocol,), (model,), shard = plan.protocols, plan.models.values(), plan.shards[0]
    missing = plan.missing(shard, protocol)
    if missing:
        raise NotApplicable(f"needs {', '.join(missing)}")
    maps = exam.truth[: len(shard.samples)].clone()
    with model.evaluating(), torch.no_grad():
        engine = make_engine(plan, shard)
        others = maps.roll(1, 0)
        case = Case(engine.batch, maps, engine.respond, engine.clean, partner=lambda: others)
        score_case(protocol, case, engine if guarded else None)
    return maps, engine.guard


def a_scale_does_not_matter(exam: Exam, item: Any, scale: float = 1e6) -> None:
    """A positive factor on the map changes nothing, unless the protocol uses its values."""
    if _plugin(item).own and _plugin(item).uses == "value":
        raise NotApplicable("uses the values of a map")
    first, scaled = exact_scores(exam, item), scores(exam, exam.truth * scale, item)
    gaps = (first - scaled).abs()
    if not bool((gaps <= (1e-6 * first.abs()).clamp(min=1e-6)).all()):
        raise Fault(f"the map times {scale:g} scores differently, by {gaps.max()}")


def scores_stay_in_their_range(exam: Exam, item: Any) -> None:
    """Scores of noise stay in the declared `range`."""
    low, high = _plugin(item).range
    noise = torch.randn(exam.truth.shape, generator=torch.Generator().manual_seed(0))
    values = scores(exam, noise, item)
    if own_reduction(_plugin(item).reduce) is not None:
        values = values.mean(0, keepdim=True)  # the score of the set: parts may exceed the range
    if not bool(((values >= low - 1e-9) & (values <= high + 1e-9)).all()):
        raise Fault(f"declares the range {low:g} to {high:g}, gives {values.min():g} to "
                    f"{values.max():g}")  # fmt: skip


def a_constant_map_is_scored(exam: Exam, item: Any) -> None:
    """A constant map gets a score, equal to `chance` if that is a number, and is marked."""
    _check_tried(exam, item)
    _check_judges_maps(item)
    flat = {"flat": torch.ones_like(exam.truth)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # failures are checked below
        results = benchmark(
            _network(exam, item), exam.data, [flat], [item], progress=False, controls="off"
        )
    if results.failures:
        raise Fault(results.failures[0]["message"])
    headline = results.query("select value, status from scores where headline")
    statuses, values = set(headline["status"].to_pylist()), set(headline["value"].to_pylist())
    if "n/a" in statuses:
        raise NotApplicable(results.cells[0]["message"])
    if statuses != {"degenerate"}:
        raise Fault(f"expected a constant map to be marked degenerate, got {', '.join(statuses)}")
    if any(math.isnan(value) for value in values):
        raise Fault("a constant map has no score: break its ties at random, or declare `chance`")
    chance = _plugin(item).chance
    if isinstance(chance, int | float) and values != {chance}:
        raise Fault(f"expected a constant map to score {chance:g}, got {sorted(values)[0]:g}")


def small_images() -> Exam:
    """Six images under a small convolutional network; the truth is noise."""
    x, y = make_images(6)
    truth = torch.randint(-1, 2, (6, 16, 16), generator=torch.Generator().manual_seed(0)).float()
    return Exam(make_net(), x, y, truth, has=frozenset({"counted", "truth"}))


RULES = (
    the_oracle_beats_noise,
    signs_matter_as_declared,
    neighbours_do_not_matter,
    the_same_twice,
    the_map_is_not_touched,
    a_scale_does_not_matter,
    scores_stay_in_their_range,
    a_constant_map_is_scored,
)
WORLDS = (linear_images, linear_vectors, linear_texts, marked_images, painted_parts)
