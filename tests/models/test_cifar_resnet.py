"""CIFAR residual networks: sizes, the shortcut by hand, and the published accuracy."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.models.cifar_resnet import CifarResNet, Shortcut
from assay.plugins import registry
from assay.types import Model
from beside import beside

IMAGES = "cifar10/cifar10_test_lossless.parquet"


def _make(depth: int, weights: Path) -> Model:
    made: Model = registry.get("model", f"cifar_resnet{depth}").function(weights=str(weights))
    return made


def _right(depth: int, samples: int) -> Tensor:
    """Which test images the trained network knows."""
    weights = beside(f"weights/cifar10-resnet/cifar10_resnet{depth}.safetensors")
    data = registry.get("dataset", "parquet").function(path=str(beside(IMAGES)))
    model = _make(depth, weights)
    batch = data.batch(data.ids[:samples], model.prepare)
    with torch.inference_mode():
        return model.logits(batch.inputs).argmax(1) == batch.labels


@pytest.mark.parametrize(
    ("depth", "parameters"), [(20, 269_722), (32, 464_154), (44, 658_586), (56, 853_018)]
)
def test_parameters_layers_and_shapes(depth: int, parameters: int) -> None:
    net = CifarResNet(depth)
    assert sum(p.numel() for p in net.parameters()) == parameters
    weighted = [m for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weighted) == depth
    relus = [m for m in net.modules() if isinstance(m, nn.ReLU)]
    assert len(relus) == len(weighted) - 1  # one of its own for every convolution


def test_the_shortcut_by_hand() -> None:
    x = torch.arange(2 * 4 * 4, dtype=torch.float32).reshape(1, 2, 4, 4)
    y = Shortcut(2, 4)(x)
    assert y.shape == (1, 4, 2, 2)
    assert y[0, 0].abs().sum() == y[0, 3].abs().sum() == 0
    assert y[0, 1].tolist() == [[0, 2], [8, 10]]
    assert y[0, 2].tolist() == [[16, 18], [24, 26]]


def test_the_published_accuracy() -> None:
    # All 10,000 give the published 91.73 %; the standard error of 300 of them is 1.6 points.
    assert _right(20, 300).float().mean().item() == pytest.approx(0.9173, abs=0.03)


def test_the_deeper_ones_load_and_know_a_cat() -> None:
    for depth in (32, 44, 56):
        assert _right(depth, 20).sum() >= 18


def test_what_is_said_about_it(tmp_path: Path) -> None:
    save_file(CifarResNet(20).state_dict(), tmp_path / "mine.safetensors")
    model = _make(20, tmp_path / "mine.safetensors")
    assert (model.name, model.checkpoint) == ("cifar_resnet20", "mine")
    assert model.cam_layer == "layer3"
    assert model.card["parameters"] == 269_722
    seen = []
    model.net.get_submodule("layer3").register_forward_hook(lambda *a: seen.append(a[2].shape))
    model.net(torch.zeros(1, 3, 32, 32))
    assert seen == [(1, 64, 8, 8)]


def test_weights_that_do_not_fit(tmp_path: Path) -> None:
    save_file(CifarResNet(20).state_dict(), tmp_path / "twenty.safetensors")
    make = registry.get("model", "cifar_resnet32").function
    with pytest.raises(InputError, match=r"do not fit `CifarResNet`: missing `layer1\.3\.conv1"):
        make(weights=str(tmp_path / "twenty.safetensors"))
    with pytest.raises(PrerequisiteError, match=r"none\.safetensors"):
        make(weights=str(tmp_path / "none.safetensors"))


def test_weights_are_asked_for() -> None:
    with pytest.raises(InputError, match="`cifar_resnet20` to be given `weights`"):
        registry.get("model", "cifar_resnet20").configure({})
