"""Networks of timm and torchvision, where the extra `vision` is installed."""

import importlib.util

import pytest
import torch

import assay
from assay.models import hub
from assay.models.hub import hub_model, is_hub_name
from small_worlds import make_images

needs_vision = pytest.mark.skipif(
    not all(importlib.util.find_spec(p) for p in ("timm", "torchvision")),
    reason="the extra `vision` is not installed",
)


def test_only_known_libraries_are_hub_names():
    assert is_hub_name("timm:resnet18")
    assert is_hub_name("torchvision:resnet18")
    assert not is_hub_name("./timm.py:resnet18")
    assert not is_hub_name("package.module:build")


def test_wrong_options_are_named_before_anything_is_imported():
    with pytest.raises(assay.InputError, match="Did you mean `pretrained`"):
        hub_model("timm:resnet18", {"pretraind": True}, "x")


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is not None, reason="torchvision is installed"
)
def test_the_missing_extra_is_named():
    with pytest.raises(assay.PrerequisiteError, match=r"pip install .assay\[vision\]"):
        hub_model("timm:resnet18", {}, "x")


@pytest.mark.parametrize(
    ("options", "classes"),
    [
        ({}, None),
        ({"pretrained": True}, ("cat", "dog")),
        ({"pretrained": True, "classes": ["a", "b"]}, ("a", "b")),
    ],
)
def test_a_library_names_the_classes_of_its_own_weights(monkeypatch, options, classes):
    built = (torch.nn.Linear(2, 2), None, ["cat", "dog"])
    monkeypatch.setattr(hub, "ensure_torchvision", lambda: None)
    monkeypatch.setitem(hub._LIBRARIES, "timm", lambda name, pretrained, outputs: built)
    assert hub_model("timm:any", options, "x").classes == classes


@needs_vision
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


@needs_vision
@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_unknown_names_get_a_hint(library):
    with pytest.raises(assay.InputError, match=r"Did you mean .*`resnet18`"):
        hub_model(f"{library}:resnet81", {}, "x")


@needs_vision
@pytest.mark.parametrize("name", ["timm:resnet10t", "torchvision:squeezenet1_1"])
def test_a_benchmark_runs(name):
    model = hub_model(name, {}, "net")
    x, y = make_images(2, size=64)
    methods, protocols = ["saliency", "gradcam", "random"], [{"deletion": {"steps": 2}}]
    results = assay.benchmark(model, (x, y), methods, protocols, progress=False)
    assert not results.failures
