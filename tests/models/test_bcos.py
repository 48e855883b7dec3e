"""B-cos networks: the layer by hand, the linear map they are, the mode and its end."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.conformance.worlds import make_bcos
from assay.errors import InputError
from assay.models.bcos import BcosConv2d, BcosResNet, Encode, UncentredNorm, explaining
from assay.plugins import registry

MAKE = registry.get("model", "bcos_resnet").function


def images(n: int = 3, size: int = 8) -> torch.Tensor:
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_a_layer_by_hand() -> None:
    """|cos(patch, w)| times the projection on w / |w|, for every place and filter."""
    torch.manual_seed(0)
    layer, x = BcosConv2d(2, 3, kernel=3, stride=2).double(), torch.randn(1, 2, 5, 5).double()
    out = layer(x)
    assert out.shape == (1, 3, 3, 3)
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    for k in range(3):
        w = layer.linear.weight[k].flatten()
        for i in range(3):
            for j in range(3):
                patch = padded[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3].flatten()
                projected = patch @ w / w.norm()
                cosine = (projected / (patch.square().sum() + 1e-6).sqrt()).abs()
                assert out[0, k, i, j].item() == pytest.approx((cosine * projected).item())


def test_filters_have_unit_length() -> None:
    layer, x = BcosConv2d(6, 4, 3), torch.rand(2, 6, 7, 7)
    before = layer(x)
    with torch.no_grad():
        layer.linear.weight *= torch.tensor([0.1, 2, 30, 1])[:, None, None, None]
    assert torch.allclose(layer(x), before, rtol=1e-5)


def test_gradients_in_explanation_mode_are_the_linear_map_of_one_layer() -> None:
    """The matrix built by hand, row by row: the unit filter, times the cosine at that place."""
    torch.manual_seed(1)
    layer, x = BcosConv2d(2, 3, kernel=3).double(), torch.randn(1, 2, 4, 4).double()
    padded = nn.functional.pad(x, (1, 1, 1, 1))
    rows = torch.zeros(3, 4, 4, 2, 6, 6).double()  # of the padded input
    for k in range(3):
        unit = layer.linear.weight[k].detach() / layer.linear.weight[k].detach().norm()
        for i in range(4):
            for j in range(4):
                patch = padded[0, :, i : i + 3, j : j + 3]
                cosine = ((patch * unit).sum() / (patch.square().sum() + 1e-6).sqrt()).abs()
                rows[k, i, j, :, i : i + 3, j : j + 3] = cosine * unit
    by_hand = rows[..., 1:-1, 1:-1]  # [3, 4, 4, 2, 4, 4]
    x.requires_grad_(True)
    with explaining(layer):
        given = torch.autograd.functional.jacobian(layer, x)[0, :, :, :, 0]
    assert torch.allclose(given, by_hand, atol=1e-12)
    plain = torch.autograd.functional.jacobian(layer, x)[0, :, :, :, 0]
    assert not torch.allclose(plain, by_hand, rtol=0.1)
    assert torch.allclose((by_hand * x[0]).sum((-3, -2, -1)), layer(x)[0])


def test_the_mode_leaves_every_answer_as_it_is_and_ends() -> None:
    net, x = make_bcos(), images()
    before = net(x)
    with net.explaining():
        assert all(m.cosines_given for m in net.modules() if isinstance(m, BcosConv2d))
        assert torch.equal(net(x), before)
        with net.explaining():
            pass
        assert net.head.cosines_given  # an inner mode does not end the outer one
    assert torch.equal(net(x), before)
    with pytest.raises(ZeroDivisionError), net.explaining():
        _ = 1 / 0
    assert not any(m.cosines_given for m in net.modules() if isinstance(m, BcosConv2d))


def test_the_whole_network_is_one_linear_map_without_a_bias() -> None:
    net = make_bcos().double()
    encoded = Encode()(images(1).double()).requires_grad_(True)
    net.encode = nn.Identity()
    with net.explaining():
        weights = torch.autograd.functional.jacobian(net, encoded)[0, :, 0]  # [K, 6, H, W]
    shares = (weights * encoded[0]).sum((1, 2, 3))
    assert torch.allclose(shares + net.constant, net(encoded)[0], atol=1e-12)
    assert net.constant == pytest.approx(-torch.tensor(3.0).log().item())


def test_the_norm_neither_centres_nor_shifts() -> None:
    norm = UncentredNorm(2)
    x = torch.randn(64, 2, 3, 3) * torch.tensor([1.0, 5.0])[:, None, None] + 7
    norm.train()
    out = norm(x)
    spread = x.transpose(0, 1).flatten(1).std(1, unbiased=False)
    assert torch.allclose(out, x / spread[:, None, None], rtol=1e-4)
    assert torch.allclose(norm.running_var, 0.9 + 0.1 * spread.square(), rtol=1e-4)
    norm.eval()
    scale = (norm.running_var + norm.eps).sqrt()[:, None, None]
    assert torch.allclose(norm(x), x / scale, rtol=1e-5)
    assert norm(torch.zeros(1, 2, 3, 3)).abs().sum() == 0


def test_nothing_in_it_is_a_relu_a_pool_or_a_bias() -> None:
    net = BcosResNet()
    assert not any(isinstance(m, nn.ReLU | nn.MaxPool2d | nn.BatchNorm2d) for m in net.modules())
    assert not [name for name, _ in net.named_parameters() if "bias" in name]


def test_what_is_said_about_it() -> None:
    model = MAKE()
    assert (model.name, model.checkpoint, model.cam_layer) == ("bcos_resnet", "untrained", "layer3")
    assert model.card["parameters"] == 610_536
    assert "bcos" in model.capabilities
    assert "bagnet" not in model.capabilities
    assert model.pixels.to_input(0.25).flatten().tolist() == [0.25] * 3  # pixels as they are
    assert model.net(images(size=32)).shape == (3, 10)


def test_untrained_weights_are_the_same_every_time() -> None:
    state = torch.random.get_rng_state()
    one, same, other = (
        MAKE(depth=8, width=2),
        MAKE(depth=8, width=2),
        MAKE(depth=8, width=2, seed=1),
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    assert one.weights_hash == same.weights_hash != other.weights_hash


def test_weights_in_half_precision_load(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    trained = make_bcos(classes=10)
    save_file({k: v.half() for k, v in trained.state_dict().items()}, path)
    model = MAKE(weights=str(path), depth=8, width=4)
    assert (model.checkpoint, model.dtype) == ("mine", torch.float32)
    assert torch.allclose(model.net(images()), trained(images()), atol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"depth": 19}, r"`depth` to be 6n \+ 2.*got 19"), ({"classes": 1}, "at least 2 `classes`")],
)
def test_sizes_that_make_no_network(options: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        BcosResNet(**options)
