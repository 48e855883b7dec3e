"""The rules of a protocol, each a function of a small world and a protocol as a suite writes it.

A check returns where the rule holds, raises `Fault` where it is broken, and `NotApplicable` where
the protocol does not apply.
"""

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from assay.api import benchmark, score
from assay.conformance.worlds import (
    Exam,
    Fault,
    linear_images,
    linear_texts,
    linear_vectors,
    make_images,
    make_net,
    marked_images,
    painted_parts,
)
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.models.wrap import model as as_model
from assay.plan.scoring import score_case
from assay.plugins.registry import Protocol, identity
from assay.plugins.set_level import own_reduction
from assay.run.shard import make_engine
from assay.run.suite_run import prepare
from assay.store import NOWHERE
from assay.suite.spec import choose_one, make_suite
from assay.types import Case

_LAST: dict[str, tuple[Exam, Tensor]] = {}  # the exact maps' scores computed last


def scores(exam: Exam, maps: Tensor, item: Any) -> Tensor:  # [B]
    """The score of each sample's map.

    Raises:
        NotApplicable: The protocol needs what the data do not have, or is tried elsewhere.
    """
    _check_tried(exam, item)
    data = exam.data
    x, y = data if isinstance(data, tuple) else (data, None)
    return score(exam.net, x, y, maps, item)


def _check_tried(exam: Exam, item: Any) -> None:
    choice = choose_one("protocol", item)
    needs = choice.plugin.required(choice.options)
    missing = needs & {"counted", "truth"} - exam.has
    if missing:
        raise NotApplicable(f"needs {', '.join(sorted(missing))}")
    if exam.made_for and exam.made_for not in needs and not choice.plugin.own:
        raise NotApplicable(f"is tried on plainer data: these are there for {exam.made_for}")


def _plugin(item: Any) -> Protocol:
    plugin: Protocol = choose_one("protocol", item).plugin
    return plugin


def exact_scores(exam: Exam, item: Any) -> Tensor:  # [B]
    """The scores of the exact maps, for checks that hold others against them: computed once."""
    key = identity([id(exam), choose_one("protocol", item).key])
    if key not in _LAST:
        values = scores(exam, exam.truth, item)
        _LAST.clear()
        _LAST[key] = exam, values  # with its exam, so that nobody else gets its id
    return _LAST[key][1]


def _mean(values: Tensor, item: Any) -> float:
    """The mean score, turned so that higher is better."""
    sign = 1 if _plugin(item).higher_is_better else -1
    return sign * values.nanmean().item()


def the_oracle_beats_noise(exam: Exam, item: Any) -> None:
    """The exact map scores better than noise."""
    best = _mean(exact_scores(exam, item), item)
    for seed in range(3):
        noise = torch.rand(exam.truth.shape, generator=torch.Generator().manual_seed(seed))
        found = _mean(scores(exam, noise, item), item)
        if not best > found:
            raise Fault(f"the exact map scores {best:.4g}, noise {found:.4g} (higher is better)")


def signs_matter_as_declared(exam: Exam, item: Any) -> None:
    """Turning a map's sign is punished where `sign_sensitive`, and changes nothing where not."""
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
    """A score does not depend on who else is in the batch, unless it says so."""
    if _plugin(item).judges == "set":
        raise NotApplicable("a score of a whole set")
    together = exact_scores(exam, item)
    half = scores(exam.first(5), exam.truth[:5], item)
    if not torch.equal(half, together[:5]):
        raise Fault("five samples alone score otherwise than among twelve")


def the_same_twice(exam: Exam, item: Any) -> None:
    """The same call gives the same scores."""
    first = exact_scores(exam, item)
    if not torch.equal(first, scores(exam, exam.truth, item)):
        raise Fault("twice the same call gave different scores: draw with `case.batch.draw`")


def the_map_is_not_touched(exam: Exam, item: Any) -> None:
    """The map is not changed: the next protocol reads the same."""
    _check_tried(exam, item)
    data = as_dataset(exam.data)
    model = replace(as_model(exam.net), modality=data.modality)
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
        score_case(protocol, case)
    if not torch.equal(maps, exam.truth[: len(maps)]):
        raise Fault("the map was changed: work on a clone")


def a_scale_does_not_matter(exam: Exam, item: Any, scale: float = 1e6) -> None:
    """A positive factor on the map changes nothing, unless the protocol uses its values."""
    if _plugin(item).own and _plugin(item).uses == "value":
        raise NotApplicable("uses the values of a map")
    first, scaled = exact_scores(exam, item), scores(exam, exam.truth * scale, item)
    if not bool(((first - scaled).abs() <= (1e-6 * first.abs()).clamp(min=1e-6)).all()):
        raise Fault(f"the map times {scale:g} scores otherwise, by {(first - scaled).abs().max()}")


def scores_stay_in_their_range(exam: Exam, item: Any) -> None:
    """Scores of noise stay in the declared `range`."""
    low, high = _plugin(item).range
    noise = torch.randn(exam.truth.shape, generator=torch.Generator().manual_seed(0))
    values = scores(exam, noise, item)
    if own_reduction(_plugin(item).reduce) is not None:
        values = values.mean(0, keepdim=True)  # the set's number: only parts lie beyond the range
    if not bool(((values >= low - 1e-9) & (values <= high + 1e-9)).all()):
        raise Fault(f"declares the range {low:g} to {high:g}, gives {values.min():g} to "
                    f"{values.max():g}")  # fmt: skip


def a_constant_map_is_scored(exam: Exam, item: Any) -> None:
    """A constant map gets a score, of chance where `chance` is a number, and is marked."""
    _check_tried(exam, item)
    flat = {"flat": torch.ones_like(exam.truth)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # failures are looked at below
        results = benchmark(exam.net, exam.data, [flat], [item], progress=False)
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
    """Six images under a small convolutional network; what is called truth is noise."""
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
