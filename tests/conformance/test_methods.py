"""Every registered method, on every kind of input: tested by existing."""

import pytest
import torch

import assay
from assay import registry
from assay.conformance.methods import CHECKS, WORLDS, explain
from assay.conformance.worlds import World, linear_image_model, linear_vector_model
from assay.errors import NotApplicable

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
    "bcos": [{"output": "log_odds"}, {"noise": {"samples": 3}}],
    "bagnet": [{"output": "probability"}],
    "shuffled": [{"of": "gradcam"}, {"of": {"integrated_gradients": {"steps": 2}}}],
}  # fmt: skip


ITEMS = [
    item
    for name in registry.names("method")
    for item in (name, *({name: options} for options in VARIANTS.get(name, ())))
]


@pytest.fixture(params=WORLDS, ids=lambda w: w.__name__)
def world(request) -> World:
    return request.param()


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_rules(world, item, check):
    try:
        check(world, item)
    except NotApplicable as reason:
        pytest.skip(f"n/a: {reason}")
    except assay.InputError as error:
        if "layer" not in str(error):
            raise
        pytest.skip("the named layer is another network's")


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
        except NotApplicable:
            return False
        return True

    assert any(applies(make) for make in WORLDS)


def test_methods_that_follow_the_model_find_the_linear_truth():
    """On f(x) = w x, input x gradient and integrated gradients are the exact map."""
    for world in (linear_image_model(), linear_vector_model()):
        for item in ("input_x_gradient", {"integrated_gradients": {"steps": 3}}, "oracle"):
            assert torch.allclose(explain(world, item), world.batch.truth, atol=1e-5)
