"""BagNets: what a patch sees, where it lies, and that the logit is the mean over patches."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.conformance.worlds import make_bagnet
from assay.errors import InputError
from assay.models.bagnet import LAYOUTS, BagNet
from assay.plugins import registry

MAKE = registry.get("model", "bagnet").function


@pytest.mark.parametrize(("field", "stride"), [(5, 2), (9, 2), (33, 8)])
def test_a_patch_sees_its_pixels_and_no_other(field: int, stride: int) -> None:
    """By its gradient, which knows nothing of how the field was computed."""
    net = make_bagnet(field=field).double()
    assert (net.receptive_field, net.stride) == (field, stride)
    size = field + 3 * stride + stride - 1  # the last pixels belong to no patch
    x = torch.randn(1, 3, size, size).double().requires_grad_(True)
    logits = net.patch_logits(x)
    assert logits.shape == (1, 4, 4, 4)
    seen = torch.zeros(size, size, dtype=torch.bool)
    for _ in range(30):  # a ReLU may hide a pixel from one draw
        x = torch.randn(1, 3, size, size).double().requires_grad_(True)
        (gradient,) = torch.autograd.grad(net.patch_logits(x)[0, :, 1, 2].sum(), x)
        seen |= gradient[0].abs().sum(0) > 0
    rows, columns = seen.any(1).nonzero().flatten(), seen.any(0).nonzero().flatten()
    assert (int(rows.min()), int(rows.max())) == (stride, stride + field - 1)
    assert (int(columns.min()), int(columns.max())) == (2 * stride, 2 * stride + field - 1)


@pytest.mark.parametrize("field", [5, 9, 33])
def test_the_logit_is_the_mean_over_patches(field: int) -> None:
    net = make_bagnet(field=field)
    x = torch.randn(2, 3, field + 20, field + 11)
    with torch.no_grad():
        assert torch.allclose(net.patch_logits(x).mean((2, 3)), net(x), atol=1e-5)


@pytest.mark.parametrize("field", [5, 9, 33])
def test_a_patch_alone_is_told_the_same(field: int) -> None:
    net = make_bagnet(field=field).double()
    x = torch.randn(1, 3, field + 3 * net.stride, field + 3 * net.stride).double()
    with torch.no_grad():
        patches = net.patch_logits(x)
        for i, j in ((0, 0), (3, 1), (2, 3)):
            top, left = i * net.stride, j * net.stride
            alone = net(x[:, :, top : top + field, left : left + field])
            assert torch.allclose(alone[0], patches[0, :, i, j], atol=1e-12)


def test_the_published_sizes() -> None:
    """BagNet-33 at 224 pixels: 24 x 24 patches; weights by the published names."""
    layout = LAYOUTS[33]
    with torch.device("meta"):
        net = BagNet(1000, layout.width, layout.kernels, layout.strides, layout.blocks)
        assert net.patch_logits(torch.zeros(1, 3, 224, 224)).shape == (1, 1000, 24, 24)
    assert sum(isinstance(m, nn.Conv2d) for m in net.modules()) == 2 + 3 * 16 + 4
    shapes = {name: tuple(p.shape) for name, p in net.named_parameters()}
    assert shapes["conv2.weight"] == (64, 64, 3, 3)
    assert shapes["layer1.0.conv2.weight"] == (64, 64, 3, 3)
    assert shapes["layer1.1.conv2.weight"] == (64, 64, 1, 1)
    assert shapes["layer4.0.downsample.0.weight"] == (2048, 1024, 1, 1)
    assert shapes["fc.weight"] == (1000, 2048)


def test_what_is_said_about_it() -> None:
    model = MAKE()
    assert (model.name, model.checkpoint, model.cam_layer) == ("bagnet", "untrained", "layer3")
    assert model.card["parameters"] == 573_610
    assert "bagnet" in model.capabilities
    assert "bcos" not in model.capabilities
    with torch.no_grad():
        assert model.net.patch_logits(torch.zeros(1, 3, 32, 32)).shape == (1, 10, 12, 12)
    assert MAKE(field=5, width=2).net.receptive_field == 5


def test_weights_load(tmp_path: Path) -> None:
    path, trained = tmp_path / "mine.safetensors", MAKE(width=2, seed=3)
    save_file(trained.net.state_dict(), path)
    model = MAKE(width=2, weights=str(path))
    assert model.weights_hash == trained.weights_hash != MAKE(width=2).weights_hash
    with pytest.raises(InputError, match="do not fit `BagNet`"):
        MAKE(width=3, weights=str(path))


def test_images_smaller_than_a_patch() -> None:
    with pytest.raises(InputError, match=r"at least 5 pixels a side.*got \(4, 9\)"):
        make_bagnet()(torch.zeros(1, 3, 4, 9))
