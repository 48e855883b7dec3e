"""What `explain` says where it cannot explain, and that it works where gradients are off."""

import pytest
import torch

import assay
from assay.report.promise_table import PromiseLine
from assay.store import SettingKey
from small_worlds import make_images, make_net


@pytest.fixture(scope="module")
def world():
    x, y = make_images(3)[:2]
    return make_net(), x, y


def test_shuffled_has_no_map_of_another_sample(world):
    net, x, y = world
    with pytest.raises(assay.NotApplicable, match=r"`shuffled` .*at least two samples"):
        assay.explain(net, x[:1], y[:1], "shuffled")


@pytest.mark.parametrize("method", ["saliency", "lrp", "gradcam"])
def test_inside_inference_mode(world, method):
    net, x, y = world
    with torch.inference_mode():
        inside = assay.explain(net, x * 1, y, method)
    torch.testing.assert_close(inside, assay.explain(net, x, y, method))


def test_a_network_made_in_inference_mode(world):
    with torch.inference_mode():
        net = make_net()
    with pytest.raises(assay.InputError, match=r"outside `torch.inference_mode\(\)`"):
        assay.explain(net, *world[1:], "saliency")


def test_a_layer_by_number(world):
    with pytest.raises(assay.InputError, match=r"Expected `layer` to be a layer of model .* got 3"):
        assay.explain(*world, "gradcam", layer=3)


def test_a_missing_need_names_the_model_and_the_cure(world):
    said = r"needs attention .self-attention that can be read.*own_model.md.*which model `smallnet`"
    with pytest.raises(assay.NotApplicable, match=said):
        assay.explain(*world, "rollout")


def test_a_bottleneck_of_one_sample(world):
    net, x, y = world
    with pytest.raises(assay.NotApplicable, match=r"`iba` .*at least two samples.*--method"):
        assay.explain(net, x[:1], y[:1], "iba")


def test_a_conservation_gap_is_expected_of_biases():
    setting, gaps = SettingKey("data", "net", ""), (0.5, 0.78, 2.384)
    line = PromiseLine(setting, "lrp", "conservation gap", gaps, 0)
    numbers, reason = line.sentence.split(". ", 1)
    assert numbers == "lrp: conservation gap median 78 %, largest 238 %; 3 of 3 maps above 1 %"
    assert reason.startswith("A network with biases is expected to show a gap")
