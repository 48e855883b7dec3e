"""Networks of timm and torchvision, where the extra `vision` is installed."""

import pytest
import torch

import assay
from assay.models.hub import hub_model
from small_worlds import make_images

pytest.importorskip("timm", reason="the extra `vision` is not installed")
pytest.importorskip("torchvision", reason="the extra `vision` is not installed")


@pytest.mark.parametrize(
    ("name", "size", "resize"),
    [
        ("timm:resnet18", 224, 236),
        ("torchvision:resnet18", 224, 256),
        ("timm:vit_tiny_patch16_224", 224, 249),
    ],
)
def test_a_network_brings_its_own_preprocessing(name, size, resize):
    model = hub_model(name, {}, "net")
    assert model.prepare.size == size
    assert model.prepare.resize == resize
    with model.evaluating(), torch.no_grad():
        assert model(torch.randn(2, 3, size, size)).shape == (2, 1000)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_unknown_names_get_a_hint(library):
    with pytest.raises(assay.InputError, match=r"Did you mean .*`resnet18`"):
        hub_model(f"{library}:resnet81", {}, "x")


@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:squeezenet1_1"])
def test_a_benchmark_runs(name):
    model = hub_model(name, {}, "net")
    x, y = make_images(2, size=64)
    methods, protocols = ["saliency", "gradcam", "random"], [{"deletion": {"steps": 2}}]
    results = assay.benchmark(model, (x, y), methods, protocols, progress=False)
    assert not results.failures
