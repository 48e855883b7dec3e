"""The rules of a method: each is a function of a small world and a method as a suite writes it.

A check returns if the rule holds, raises `Fault` if it is broken, and `NotApplicable` if the method
does not apply. Maps of this package's methods must be equal in every bit; maps of other methods,
which may call the network in any way, up to rounding.
"""

from typing import Any

import torch
from torch import Tensor

from assay.conformance.counting import counting
from assay.conformance.worlds import (
    Fault,
    World,
    bag_of_patches,
    bcos_network,
    linear_image_model,
    linear_vector_model,
    patches_in_a_transformer,
    small_image_network,
    words_in_a_bag,
    words_in_a_network,
    words_in_a_transformer,
)
from assay.engine.engine import Engine, network_engine
from assay.engine.guard import Guard
from assay.errors import HarmError, NotApplicable
from assay.methods.attribution import attribute, raw_map
from assay.plan.rehearsal import Rehearsal
from assay.plugins.registry import Passes, identity
from assay.suite.spec import Choice, choose_one
from assay.types import Batch

ROUNDING = 1e-4  # relative to the largest value, for methods of users
_LAST: dict[str, tuple[World, Tensor]] = {}  # the last maps of a world's own samples

# Options for a method named without options. The rules hold for all options, and the checks run
# the method many times.
CHEAP: dict[str, dict[str, Any]] = {
    "lime": {"samples": 24},
    "kernel_shap": {"samples": 24},
    "extremal_perturbation": {"steps": 5},
    "iba": {"steps": 3, "samples": 3},
    "input_iba": {"steps": 3, "samples": 3, "feature_steps": 2, "epochs": 1, "synthetic": 10},
    **{name: {"steps": 3} for name in ("integrated_gradients", "integrated_gradients_uniform")},
    **{name: {"steps": 2, "noise": {"samples": 2}} for name in ("ig_sg", "ig_sg_sq", "ig_var")},
    **{
        name: {"noise": {"samples": 2}}
        for name in ("smoothgrad", "smoothgrad_sq", "vargrad", "ixg_sg")
    },
    **{name: {"masks": 12, "side": 4} for name in ("rise", "rise_uniform")},
    **{name: {"of": {"integrated_gradients": {"steps": 3}}} for name in ("rect", "pooling")},
    **{name: {"steps": 3} for name in ("bt_head", "bt_token")},
}


def choose(item: Any) -> Choice:
    """The method with the options of the checks."""
    if isinstance(item, str) and item in CHEAP:
        item = {item: CHEAP[item]}
    return choose_one("method", item)


def explain(
    world: World, item: Any, batch: Batch | None = None, engine: Engine | None = None
) -> Tensor:
    """The maps of a method.

    Raises:
        NotApplicable: The world does not have what the method needs.
    """
    choice = choose(item)
    _check_tried(world, choice)
    with world.model.evaluating(), torch.no_grad():
        return attribute(world.model, batch or world.batch, choice, engine)


def _check_tried(world: World, choice: Choice) -> None:
    available = world.model.capabilities | {"labels", "truth", world.model.modality}
    needs = choice.plugin.required(choice.options)
    missing = needs - available
    if missing:
        raise NotApplicable(f"needs {', '.join(sorted(missing))}")
    if world.made_for and world.made_for not in needs and not choice.plugin.own:
        raise NotApplicable(f"is checked on other networks: this one is for {world.made_for}")
    if choice.plugin.own and not choice.plugin.noise and world.model.tokens and "text" not in needs:
        raise NotApplicable("is not declared for texts: declare needs=['text'] to check it on them")
    layer = choice.options.get("layer")
    if isinstance(layer, str) and layer not in dict(world.model.net.named_modules()):
        raise NotApplicable(f"reads the layer `{layer}`, which this network does not have")


def usual_maps(world: World, item: Any) -> Tensor:
    """The maps of a world's own samples, for checks that only read them: computed once."""
    key = identity([id(world), choose(item).key])
    if key not in _LAST:
        maps = explain(world, item)
        _LAST.clear()
        _LAST[key] = world, maps  # keeps the world alive, so that its id is not reused
    return _LAST[key][1]


def maps_are_whole(world: World, item: Any) -> None:
    """Maps have the right shape and type, and finite values."""
    maps = usual_maps(world, item)
    expected = (len(world.batch), *world.batch.map_shape)
    if tuple(maps.shape) != expected:
        raise Fault(f"expected maps of shape {expected}, got {tuple(maps.shape)}")
    if maps.dtype != world.batch.dtype:
        raise Fault(f"expected {world.batch.dtype}, the type of the inputs, got {maps.dtype}")
    if not bool(torch.isfinite(maps).all()):
        raise Fault("expected finite maps, got NaN or inf")
    if maps.requires_grad:
        raise Fault("the maps still require gradients: detach them")


def nothing_is_left_behind(world: World, item: Any) -> None:
    """Inputs, weights, layers and settings are not changed; no hook and no gradient is left."""
    guard = Guard(world.model.net)
    try:
        with guard.watch(world.model, world.batch, choose(item).label, numbers=True):
            explain(world, item)
    except HarmError as harm:
        raise Fault(str(harm)) from None


def neighbours_do_not_matter(world: World, item: Any) -> None:
    """A map does not depend on the order of the batch, or on the other samples in it."""
    together = usual_maps(world, item)
    order = [*range(1, len(together), 2), *range(0, len(together), 2)]
    if not _same(explain(world, item, world.batch.select(order)), together[order], item):
        raise Fault("the maps depend on the order of the samples")
    alone = [explain(world, item, world.batch.select([b])) for b in range(len(together))]
    if not _same(torch.cat(alone), together, item):
        raise Fault("a sample alone gets a different map than in a batch")


def a_seed_decides(world: World, item: Any) -> None:
    """The same call gives the same maps: randomness comes from `batch.draw`."""
    if not _same(explain(world, item), usual_maps(world, item), item):
        raise Fault("two equal calls gave different maps: draw with `batch.draw`")
    engine = network_engine(world.model, world.batch, world.ready.forward)
    engine.guard = Guard(world.model.net)
    explain(world, item, engine=engine)
    for used in engine.guard.drawn.values():
        raise Fault(f"it uses {used[0]}, which all methods share: draw with `batch.draw`")


def passes_are_as_declared(world: World, item: Any) -> None:
    """The number of network passes is as declared and as forecast by a dry run."""
    choice, samples = choose(item), len(world.batch)
    alone = world.one_by_one()
    explain(alone, item)
    with alone.model.evaluating(), torch.no_grad():
        engine = network_engine(alone.model, alone.batch, alone.ready.forward)
        engine.clean  # noqa: B018  # as in a run, where it is requested first
    before = engine.asked
    with counting(alone.model.net, alone.ready.net) as made:
        explain(alone, item, engine=engine)
    declared, counted = choice.passes_on(alone.model, alone.batch), engine.asked - before
    if choice.plugin.own and declared == Passes() and made.forward:
        each = made.forward / samples
        raise NotApplicable(f"declares no `passes`; it makes {each:g} per sample")
    if choice.intervening:
        if made.forward != counted:
            raise Fault("it calls the network directly: use the engine, which counts passes")
        forecast = _rehearsed(world, choice)
        if made.forward != forecast:
            raise Fault(f"a dry run forecasts {forecast} forward passes, but it makes {counted}")
        if len(world.batch.map_shape) == 1:
            return  # `passes` is for images; here samples differ in their units
    if declared.forward is None and not choice.plugin.own and made.forward != counted:
        raise Fault(f"counts {counted} forward passes, but it makes {made.forward}")
    for direction, expected, actual in (
        ("forward", declared.forward, made.forward),
        ("backward", declared.backward, made.backward),
    ):
        if expected is not None and actual != expected * samples:
            each = actual / samples
            raise Fault(f"declares {expected} {direction} passes per sample, makes {each:g}")


def _rehearsed(world: World, choice: Choice) -> int:
    """The forward passes of an intervening method as a dry run counts them, without a network."""
    rehearsal = Rehearsal(world.model)
    engine = Engine(world.batch, rehearsal)
    engine.clean  # noqa: B018  # as in a run, where it is requested first
    before = engine.asked
    with world.model.evaluating(), torch.no_grad():
        raw_map(world.model, world.batch, choice, engine)
    return engine.asked - before


def its_promise_is_whole(world: World, item: Any) -> None:
    """The check of what its formula promises gives one number per map, at the declared passes."""
    choice, rows = choose(item), []
    if choice.promise is None:
        raise NotApplicable("promises nothing that can be checked")
    usual_maps(world, item)  # raises if the world lacks something
    world = world.one_by_one()
    with world.model.evaluating(), torch.no_grad():
        raw = raw_map(world.model, world.batch, choice)
        handle = world.model.net.register_forward_hook(lambda m, i, o: rows.append(len(o)))
        try:
            gaps = choice.promise.function(world.model, world.batch, raw, choice.options)
        finally:
            handle.remove()
    if tuple(gaps.shape) != (len(world.batch),) or not bool((gaps >= 0).all()):
        raise Fault(f"expected one number of at least 0 per sample, got {gaps.tolist()}")
    declared = choice.promise.passes(choice.options)
    if sum(rows) != declared * len(world.batch):
        raise Fault(f"declares {declared} passes for its check, makes {sum(rows) / len(gaps):g}")


def _same(one: Tensor, other: Tensor, item: Any) -> bool:
    if not choose(item).plugin.own:
        return torch.equal(one, other)
    scale = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=0, atol=ROUNDING * scale)


RULES = (
    maps_are_whole,
    nothing_is_left_behind,
    neighbours_do_not_matter,
    a_seed_decides,
    passes_are_as_declared,
    its_promise_is_whole,
)
WORLDS = (
    small_image_network,
    bcos_network,
    bag_of_patches,
    linear_image_model,
    linear_vector_model,
    words_in_a_bag,
    words_in_a_network,
    patches_in_a_transformer,
    words_in_a_transformer,
)
