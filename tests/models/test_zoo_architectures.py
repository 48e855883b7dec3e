"""The architectures of the zoo: shapes, sizes, seeds, and what their design promises."""

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_resnet import CifarResNet
from assay.models.residual import ResidualNetwork
from assay.models.small_vit import PIXELS
from assay.plugins import registry
from assay.training.zoo import ZOO, zoo_model
from assay.types import Model

LARGEST = 4_500_000
HOMOGENEOUS = [n.name for n in ZOO.values() if not n.bias and n.norm == "none"]
# One mean over positions, then one linear layer: the gradient at the features is constant.
POOLED = ("resnet20", "resnet20_w2_nobias", "separable", "densenet", "inception", "squeeze_excite")


def images(n: int = 2) -> Tensor:
    return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def stirred(name: str) -> Model:
    """The network with other random weights in every layer, also where training starts from 0."""
    model = zoo_model(name)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.net.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.add_(noise * (0.3 / max(1, weight[0].numel()) ** 0.5))
    return model


@pytest.mark.parametrize("name", ZOO)
def test_shape_size_seed_and_gradient(name: str) -> None:
    model, again, other = zoo_model(name, 3), zoo_model(name, 3), zoo_model(name, 4)
    assert model.card["parameters"] <= LARGEST
    assert model.weights_hash == again.weights_hash != other.weights_hash
    assert model.pixels == PIXELS or name == "bcos"
    logits = model.logits(images())
    assert logits.shape == (2, 10)
    assert bool(torch.isfinite(logits).all())
    torch.autograd.backward(logits.square().sum())
    last = [p.grad for p in model.net.parameters()][-1]
    assert last is not None
    assert bool(last.any())


@pytest.mark.parametrize("name", ZOO)
def test_every_relu_is_used_once(name: str) -> None:
    """Hooks, LRP and DeepLIFT tell the uses of an activation apart by its module."""
    net, calls = zoo_model(name).net, []
    for module in net.modules():
        if isinstance(module, nn.ReLU | nn.SiLU | nn.GELU):
            module.register_forward_hook(lambda module, *_: calls.append(module))
    with torch.no_grad():
        net(images(1))
    assert len(calls) == len(set(calls))


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_homogeneous_networks_scale_with_their_input(name: str) -> None:
    model = stirred(name)
    x = images()
    with torch.no_grad():
        assert torch.allclose(model.logits(3 * x), 3 * model.logits(x), rtol=1e-4, atol=1e-4)
        assert not bool(model.logits(torch.zeros_like(x)).any())


@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_integrated_gradients_are_input_times_gradient_there(name: str) -> None:
    import assay

    model, x = stirred(name), images()
    maps = [
        assay.explain(model, x, torch.ones(2, dtype=torch.long), method)
        for method in ("input_x_gradient", {"integrated_gradients": {"steps": 4}})
    ]
    assert torch.allclose(maps[0], maps[1], atol=1e-4 * float(maps[0].abs().max()))


@pytest.mark.parametrize("name", POOLED)
def test_gradcam_is_xgradcam_where_one_mean_and_one_linear_layer_follow(name: str) -> None:
    import assay

    model, x = stirred(name), images()
    first, second = (
        assay.explain(model, x, torch.full((2,), 2), method) for method in ("gradcam", "xgradcam")
    )
    assert torch.allclose(first, second, atol=1e-4 * max(1.0, float(first.abs().max())))


@pytest.mark.parametrize("name", ["bagnet5", "bagnet9", "bagnet17"])
def test_bagnets_are_means_over_patches(name: str) -> None:
    net = stirred(name).net
    with torch.no_grad():
        patches = net.patch_logits(images())
    assert net.receptive_field == ZOO[name].receptive_field
    assert patches.shape[2] > 4  # more than the cells of a grid
    with torch.no_grad():
        assert torch.allclose(patches.mean((2, 3)), net(images()), atol=1e-4)


def test_the_residual_network_takes_weights_of_the_published_one(tmp_path) -> None:
    published = CifarResNet(20).eval()
    path = tmp_path / "published.safetensors"
    save_file(published.state_dict(), path)
    plugin = registry.get("model", "residual")
    model = plugin.function(**plugin.configure({"weights": str(path)}))
    with torch.no_grad():
        assert torch.equal(model.logits(images()), published(images()))


def test_fixup_starts_as_the_shortcuts() -> None:
    net = ResidualNetwork(20, 1, "fixup").eval()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    block = net.layer1[0]
    x = torch.rand(1, 16, 8, 8)
    with torch.no_grad():
        assert torch.equal(block(x), x)


def test_wrong_options_say_what_is_right() -> None:
    residual, vgg = (registry.get("model", name) for name in ("residual", "vgg"))
    with pytest.raises(InputError, match=r"6n \+ 2"):
        residual.function(**residual.configure({"depth": 21}))
    with pytest.raises(InputError, match="batch-norm adds one"):
        vgg.function(**vgg.configure({"norm": "batch", "bias": False}))
