"""Trained networks on images, two of three in any clone."""

from dataclasses import dataclass, replace

import pytest
import torch.nn.functional as F
from torch import Tensor

import assay
from assay.plugins import registry
from assay.types import Model
from squeezenet import SEEN, trained_squeezenet


@dataclass(frozen=True)
class RealWorld:
    """A trained network with images, the classes explained and the layer CAMs read."""

    model: Model
    x: Tensor
    y: Tensor
    layer: str


@pytest.fixture(scope="session")
def resnet() -> RealWorld:
    """The packaged residual network on six painted animals, both at half their size.

    So its first layers are as large as the images.
    """
    made = assay.environment("parts", samples=6)
    made.model.net.conv1.stride = (1, 1)
    batch = made.dataset.batch(made.dataset.ids)
    return _world(made.model, F.avg_pool2d(batch.inputs, 2), batch.labels)


@pytest.fixture(scope="session")
def efficientnet() -> RealWorld:
    """EfficientNet-Lite0 on two photographs."""
    model = registry.get("model", "efficientnet_lite0").function()
    return _on_photographs(model)


@pytest.fixture(scope="session")
def squeezenet() -> RealWorld:
    """SqueezeNet on two photographs; its last layer of features."""
    net = trained_squeezenet(rectified=True)
    model = assay.model(net, size=227, resize=256, cam_layer="features.12", **SEEN)
    return _on_photographs(model)


def _on_photographs(model: Model) -> RealWorld:
    photos = registry.get("dataset", "photos").function()
    batch = photos.batch(photos.ids[:2], model.prepare)
    return _world(model, batch.inputs, batch.labels)


def _world(model: Model, x: Tensor, y: Tensor) -> RealWorld:
    model.net.requires_grad_(False)
    model = replace(model, micro_batch=len(x))  # nothing is padded
    return RealWorld(model, x, y, model.cam_layer)


@pytest.fixture(params=["resnet", "efficientnet", "squeezenet"])
def real(request) -> RealWorld:
    return request.getfixturevalue(request.param)
