"""What is said of networks of timm and torchvision, whether or not these are installed."""

import importlib.util

import pytest
import torch

import assay
from assay.models import hub
from assay.models.hub import hub_model, is_hub_name


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
