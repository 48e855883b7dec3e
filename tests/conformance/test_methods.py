"""Every registered method, on every kind of input: tested by existing."""

import pytest
import torch

from assay.conformance.methods import (
    RULES,
    WORLDS,
    choose,
    explain,
    its_promise_is_whole,
    usual_maps,
)
from assay.conformance.worlds import linear_image_model, linear_vector_model
from assay.plugins import registry
from conformance.everywhere import check_everywhere

# Options beside the defaults that change what a method computes.
VARIANTS = {
    "random": [{"grid": 14}, {"grid": 7}],
    "integrated_gradients": [
        {"steps": 3, "baseline": "uniform"}, {"steps": 3, "output": "probability"},
        {"steps": "auto", "tolerance": 0.05}, {"steps": 2, "baseline": "normal", "draws": 2},
    ],
    "saliency": [{"output": "log_odds"}, {"abs": True}, {"reduce": "square"}],
    "deeplift": [{"baseline": "uniform"}, {"output": "log_odds"}, {"noise": {"samples": 2}}],
    "guided_backprop": [{"noise": {"samples": 2}}],
    "excitation_backprop": [{"contrastive": True}, {"layer": "relu1"}],
    "deepshap": [{"baselines": 3, "output": "probability"}],
    "lrp": [
        {"rule": rule} for rule in ("zero", "epsilon", "epsilon_plus_flat", "epsilon_alpha_beta")
    ] + [{"rule": "alpha_beta", "alpha": 1}, {"output": "log_odds"}, {"noise": {"samples": 2}}],
    "gradcam": [{"relu": False}, {"layer": "relu1"}, {"noise": {"samples": 3}}],
    "gradcam_pp": [{"variant": "torchcam"}],
    "smooth_gradcam_pp": [{"variant": "torchcam", "layer": "relu1", "samples": 2}],
    "cam": [{"relu": True}],
    "scorecam": [{"layer": "relu1", "fill": "uniform", "output": "probability"}],
    "vargrad": [{"noise": {"samples": 3, "sigma": 0.5, "relative": False}}],
    "occlusion": [
        {"units": {"windows": {"sizes": [0.5], "stride": 0.25}}}, {"fill": "uniform"},
        {"units": "elements", "spread": "share", "output": "probability"},
    ],
    **{name: [{"masks": 20, "side": 4, "normalise": True}] for name in ("rise", "rise_uniform")},
    "iba": [{"steps": 2, "samples": 2, "layer": "relu1", "beta": 0.1, "estimate": 3}],
    "input_iba": [
        {"steps": 2, "samples": 2, "feature_steps": 1, "epochs": 2, "synthetic": 33,
         "variant": "code"},
    ],
    "rect": [{"of": "gradcam", "side": 3}],
    "pooling": [{"of": "occlusion", "bands": 3}],
    "rollout": [{"start": 1, "resize": "bilinear", "noise": {"samples": 2}}],
    "generic_attention": [{"form": "m4", "output": "probability"}],
    "bt_token": [{"steps": 2, "start": 1}],
    "lime": [
        {"samples": 40, "units": {"grid": {"side": 4}}, "ridge": 0, "distance": "euclidean"},
        {"samples": 20, "units": "elements", "ridge": 0, "output": "log_odds"},
    ],
    "kernel_shap": [
        {"samples": 32, "units": {"grid": {"side": 2}}, "fill": "uniform"},
        {"samples": 75, "units": {"grid": {"side": 3}}, "output": "probability"},
    ],
    "extremal_perturbation": [
        {"steps": 3, "area": [0.1, 0.4], "output": "log_odds"}, {"steps": 3, "variant": "delete"},
    ],
    "bcos": [{"output": "log_odds"}, {"noise": {"samples": 3}}],
    "bagnet": [{"output": "probability"}],
    "shuffled": [{"of": "gradcam"}, {"of": {"integrated_gradients": {"steps": 2}}}],
}  # fmt: skip


# Those that need nothing said: maps of a file are tried in tests/methods/test_given.py.
NAMES = [m.name for m in registry.everything("method") if m.options.keys() <= m.defaults.keys()]


@pytest.mark.parametrize("name", NAMES)
def test_rules(name):
    """At the defaults and under every other option set, in all worlds where it applies."""
    for item in (name, *({name: options} for options in VARIANTS.get(name, ()))):
        promises = choose(item).promise is not None
        rules = [rule for rule in RULES if promises or rule is not its_promise_is_whole]
        check_everywhere(item, WORLDS, usual_maps, rules)


def test_no_option_set_is_of_a_method_that_is_gone():
    assert VARIANTS.keys() <= set(NAMES)


@pytest.mark.parametrize("name", registry.names("method"))
def test_every_method_describes_itself(name):
    method = registry.get("method", name)
    assert method.summary.endswith(".")
    assert method.title
    assert method.family
    elsewhere = method.family == "elsewhere"  # maps of a file: nobody's method, and no passes
    assert method.control or method.cite or elsewhere
    # What knows nothing of the model passes nothing through it; all others say what they do.
    assert method.passes is not registry.Method.passes or method.control or elsewhere
    passes = method.passes(method.defaults)
    assert passes.by or None not in (passes.forward, passes.backward)


def test_methods_that_follow_the_model_find_the_linear_truth():
    """On f(x) = w x, input x gradient and integrated gradients are the exact map."""
    for world in (linear_image_model(), linear_vector_model()):
        for item in ("input_x_gradient", {"integrated_gradients": {"steps": 3}}, "oracle"):
            assert torch.allclose(explain(world, item), world.batch.truth, atol=1e-5)
