"""What a dry run foretells is what a run makes, of every method, forward and backward."""

from collections import OrderedDict

import pytest
import torch

import assay
from assay.conformance.counting import counting
from assay.conformance.methods import CHEAP, WORLDS
from assay.conformance.worlds import (
    World,
    bag_of_patches,
    make_texts,
    patches_in_a_transformer,
    small_image_network,
)
from assay.data.memory import as_dataset
from assay.methods import statistics
from assay.plan.finished import Finished
from assay.plan.forecast import forecast
from assay.plugins import registry
from assay.run.suite_run import prepare
from assay.store import Store
from assay.suite.spec import choose_one, make_suite
from small_worlds import make_images, make_net

PROTOCOL = {"single_deletion": {"grid": 2}}
FEWER = {"steps": 3, "masks": 20, "samples": 4}  # a count is as right of few as of many


def cheaply(plugin) -> dict:
    """A method as a suite writes it, of few passes."""
    options = {name: few for name, few in FEWER.items() if name in plugin.defaults}
    noise = {"noise": {**plugin.preset["noise"], "samples": 2}} if "noise" in plugin.preset else {}
    return {plugin.name: {**options, **noise, **CHEAP.get(plugin.name, {})}}


# Those that need nothing said: maps of a file pass through no network.
METHODS = {
    m.name: cheaply(m)
    for m in registry.everything("method")
    if not m.own and m.options.keys() <= m.defaults.keys()
}


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    """A layer's statistics are kept as long as a process lives: each test begins without any."""
    monkeypatch.setattr(statistics, "_ESTIMATES", OrderedDict())


def data_of(world: World):
    """The samples as a user gives them."""
    if world.model.tokens is not None:
        return make_texts(5)
    batch = world.batch
    return batch.inputs, batch.labels, batch.truth


def world_for(name: str) -> World:
    """The first small world that has what a method needs."""
    choice = choose_one("method", METHODS[name])
    needs = choice.plugin.required(choice.options)
    worlds = (make() for make in WORLDS)
    return next(
        w for w in worlds if needs <= w.model.capabilities | {"labels", "truth", w.model.modality}
    )


def foretold_and_made(world: World, methods, protocols=(PROTOCOL,)):
    call = {"micro_batch": 1}
    data = data_of(world)
    said = assay.dry_run(world.model, data, methods, protocols, time_it=False, **call)
    with counting(world.model.net) as made:
        results = assay.benchmark(world.model, data, methods, protocols, progress=False, **call)
    return said, made, results


def agree(said, made, results) -> bool:
    counted = results.manifest["forwards"] + said.looked
    return (said.forwards, said.backwards, said.calls, counted) == (
        made.forward, made.backward, made.calls, made.forward
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", METHODS)
def test_of_every_method(name):
    said, made, results = foretold_and_made(world_for(name), [METHODS[name]])
    assert not {"n/a", "failed"} & set(results.scores["status"].to_pylist())
    assert not said.unknown
    assert agree(said, made, results), (said, made, results.manifest["forwards"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_explained_anew_while_units_are_removed():
    """Every step of the protocol asks the method again: all that it needs is counted again."""
    updated = {"incremental_deletion": {"attribution": "updated", "steps": 3, "force": True}}
    methods = [METHODS["scorecam"], METHODS["iba"], {"gradcam": {"noise": {"samples": 2}}}]
    said, made, results = foretold_and_made(small_image_network(), methods, [updated])
    assert agree(said, made, results), (said, made, results.manifest["forwards"])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_maps_of_partners():
    methods = [{"shuffled": {"of": METHODS[name]}} for name in ("bagnet", "iba")]
    for item, world in zip(methods, (bag_of_patches(), small_image_network()), strict=True):
        said, made, results = foretold_and_made(world, [item])
        assert agree(said, made, results), (said, made, results.manifest["forwards"])


class TestOnceForAllSamples:
    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_methods_that_want_the_same_share_it(self):
        methods = [
            METHODS["iba"], METHODS["input_iba"],
            {"iba": {**CHEAP["iba"], "beta": 1.0, "label": "wider"}},
            {"iba": {**CHEAP["iba"], "layer": "relu1", "estimate": 3, "label": "elsewhere"}},
        ]  # fmt: skip
        said, made, results = foretold_and_made(small_image_network(), methods)
        assert agree(said, made, results)
        first = choose_one("method", methods[0]).label
        assert said.once_rows == {first: 5, "elsewhere": 3}

    def test_every_process_that_explains_finds_it_out(self):
        ask = {"methods": [METHODS["iba"]], "protocols": [PROTOCOL], "time_it": False}
        for samples, workers, times in ((30, 1, 1), (30, 2, 2), (8, 2, 1)):  # 8 are one shard
            said = assay.dry_run(make_net(), make_images(samples), workers=workers, **ask)
            assert list(said.once_rows.values()) == [samples * times]

    @pytest.mark.filterwarnings("ignore::RuntimeWarning")
    def test_not_where_it_does_not_apply(self):
        """A transformer's class token passes beside any bottleneck: nothing is estimated.

        Clean answers are due, and those without anything.
        """
        net, data = patches_in_a_transformer().model.net, make_images(5)
        model = assay.model(net, cam_reshape=(4, 4))
        told = (model, data, [METHODS["iba"]], [PROTOCOL])
        said = assay.dry_run(*told, controls="off", time_it=False)
        results = assay.benchmark(*told, controls="off", progress=False)
        assert set(results.scores["status"].to_pylist()) == {"n/a"}
        assert results.manifest["forwards"] == said.forwards - said.looked == 5 + 5
        assert not statistics._ESTIMATES


def test_given_maps_are_checked_without_the_network():
    net, data = make_net(), make_images(150)
    maps = {f"given {i}": torch.randn(150, *data[0].shape[2:]) for i in range(3)}
    with counting(net) as made:
        expected = assay.dry_run(net, data, maps, ["single_deletion"], time_it=False)
    assert made.forward <= 2  # to see its outputs
    assert expected.work == 150 * (1 + 1 + 16)  # as they are, without anything, without a cell


def test_a_method_of_a_user_with_stored_maps_is_not_counted_as_free(tmp_path):
    grid = {"grid": {"side": 2}}

    def removed(batch, options):
        return assay.intervention(batch, grid, "zero", "logit")

    def leave_out(model, batch, engine):
        cells = assay.make_units(batch, grid)
        answers = engine.respond(cells, assay.each(cells), "zero")
        return cells.paint(engine.clean.logit - answers.logit)

    cost = assay.Passes(forward=4)
    assay.method("leave_out", passes=lambda options: cost, intervenes=removed)(leave_out)
    try:
        net, data, steps = make_net(), make_images(8), {"incremental_deletion": {"steps": 2}}
        call = {"out": tmp_path / "run", "progress": False}
        assay.benchmark(net, data, ["leave_out"], ["single_deletion"], **call)
        again = {"incremental_deletion": {"attribution": "updated", "steps": 2, "as": "again"}}
        spec = make_suite(
            {"datasets": [as_dataset(data)], "models": [assay.model(net)],
             "methods": ["leave_out"], "protocols": [steps, again]}
        )  # fmt: skip
        plan, _ = prepare(spec, Store(tmp_path / "run"))
        finished = Finished(plan, Store(tmp_path / "run"))
        expected = forecast(finished, finished.unfinished(), users=False)
    finally:
        registry._REGISTERED["method"].pop("leave_out")
    assert expected.uncounted
    assert expected.unknown == ["leave_out"]
