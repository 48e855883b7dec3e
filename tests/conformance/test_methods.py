"""Every registered method, on every kind of input: tested by existing."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

import assay
from assay import registry
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.interventions import engine_of
from assay.methods import attribute
from assay.models.prepare import prepare_network
from assay.spec import choose_one
from assay.types import Batch, Model
from small_worlds import LinearImages, make_images, make_net

# Options beside the defaults that change what a method computes.
VARIANTS = {
    "random": [{"grid": 14}, {"grid": 7}],
    "integrated_gradients": [
        {"steps": 3, "baseline": "uniform"}, {"steps": 3, "output": "probability"},
    ],
    "saliency": [{"output": "log_odds"}, {"abs": True}, {"reduce": "square"}],
    "gradcam": [{"relu": False}, {"layer": "relu1"}, {"noise": {"samples": 3}}],
    **{name: [{"steps": 3, "noise": {"samples": 2}}] for name in ("ig_sg", "ig_sg_sq", "ig_var")},
    "vargrad": [{"noise": {"samples": 3, "sigma": 0.5, "relative": False}}],
    "occlusion": [
        {"units": {"windows": {"sizes": [0.5], "stride": 0.25}}}, {"fill": "uniform"},
        {"units": "elements", "spread": "share", "output": "probability"},
    ],
    **{name: [{"masks": 20, "side": 4, "normalise": True}] for name in ("rise", "rise_uniform")},
    "shuffled": [{"of": "gradcam"}, {"of": {"integrated_gradients": {"steps": 2}}}],
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """A model with samples whose truth is known, or taken as known."""

    model: Model
    batch: Batch


def _world(net: nn.Module, x: Tensor, y: Tensor, truth: Tensor) -> World:
    dataset = as_dataset((x, y, truth))
    model = replace(assay.model(net), modality=dataset.modality)
    with model.evaluating(), torch.no_grad():
        prepare_network(model, x[:1])
    return World(model, dataset.batch(dataset.ids))


def small_image_network() -> World:
    x, y = make_images(5)
    return _world(make_net(), x, y, torch.rand(5, 16, 16))


def linear_image_model() -> World:
    net, (x, y) = LinearImages(), make_images(5, size=8)
    return _world(net, x, y % 3, (x * net.weight[y % 3]).sum(1).detach())


def linear_vector_model() -> World:
    torch.manual_seed(0)
    net, x, y = nn.Linear(9, 3, bias=False), torch.randn(5, 9), torch.arange(5) % 3
    return _world(net, x, y, (x * net.weight[y]).detach())


WORLDS = [small_image_network, linear_image_model, linear_vector_model]
ITEMS = [
    item
    for name in registry.names("method")
    for item in (name, *({name: options} for options in VARIANTS.get(name, ())))
]


@pytest.fixture(params=WORLDS, ids=lambda w: w.__name__)
def world(request) -> World:
    return request.param()


def explain(world: World, item: object, batch: Batch | None = None) -> Tensor:
    """The maps, or a skip where the method says that it does not apply."""
    choice = choose_one("method", item)
    has = world.model.capabilities | {"labels", "truth", world.model.modality}
    missing = choice.plugin.required(choice.options) - has
    if missing:
        pytest.skip(f"n/a: needs {missing}")
    with world.model.evaluating(), torch.no_grad():
        try:
            return attribute(world.model, batch or world.batch, choice)
        except NotApplicable as reason:
            pytest.skip(f"n/a: {reason}")
        except assay.InputError as error:
            if "layer" not in str(error):
                raise
            pytest.skip("the named layer is another network's")


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_maps_have_shape_dtype_and_finite_values(world, item):
    maps = explain(world, item)
    assert maps.shape == (5, *world.batch.map_shape)
    assert maps.dtype == world.batch.inputs.dtype
    assert torch.isfinite(maps).all()
    assert not maps.requires_grad


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_nothing_is_left_behind(world, item):
    net, batch = world.model.net, world.batch
    inputs, weights = batch.inputs.clone(), {k: v.clone() for k, v in net.state_dict().items()}
    explain(world, item)
    assert torch.equal(batch.inputs, inputs)
    assert all(torch.equal(weights[k], v) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    assert not any(m._forward_hooks or m._backward_hooks for m in net.modules())


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_a_map_does_not_depend_on_its_neighbours(world, item):
    together = explain(world, item)
    order = [3, 0, 4, 2, 1]
    assert torch.equal(explain(world, item, world.batch.select(order)), together[order])
    alone = torch.cat([explain(world, item, world.batch.select([b])) for b in range(5)])
    assert torch.equal(alone, together)


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_a_seed_decides_everything_random(world, item):
    assert torch.equal(explain(world, item), explain(world, item))


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_passes_are_as_declared(world, item):
    """With the engine of a run, whose clean answers are there already."""
    choice, rows = choose_one("method", item), []
    world.model.micro_batch = 1
    explain(world, item)
    engine = engine_of(world.model, world.batch)
    asked = engine.counter.rows
    hooked = world.model.prepared.net if choice.plugin.intervenes else world.model.net
    handle = hooked.register_forward_hook(lambda m, i, o: rows.append(len(i[0])))
    explain(world, item, engine.lent())
    handle.remove()
    if choice.plugin.intervenes:
        assert sum(rows) == engine.counter.rows - asked
    image = len(world.batch.map_shape) == 2
    if choice.passes.forward is not None and (image or choice.plugin.name != "occlusion"):
        assert sum(rows) == choice.passes.forward * 5


@pytest.mark.parametrize("name", registry.names("method"))
def test_every_method_describes_itself(name):
    method = registry.get("method", name)
    assert method.summary.endswith(".")
    assert method.title
    assert method.family
    assert method.control or method.cite


@pytest.mark.parametrize("name", registry.names("method"))
def test_every_method_applies_somewhere(name):
    def applies(make) -> bool:
        try:
            explain(make(), name)
        except pytest.skip.Exception:
            return False
        return True

    assert any(applies(make) for make in WORLDS)


def test_methods_that_follow_the_model_find_the_linear_truth():
    """On f(x) = w x, input x gradient and integrated gradients are the exact map."""
    for world in (linear_image_model(), linear_vector_model()):
        for item in ("input_x_gradient", {"integrated_gradients": {"steps": 3}}, "oracle"):
            assert torch.allclose(explain(world, item), world.batch.truth, atol=1e-5)
