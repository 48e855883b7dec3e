"""CAMs that need a head, noise or masks, and CAMs of transformers, against closed forms."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import assay
from assay.data.memory import as_dataset
from assay.engine.engine import Engine
from assay.methods.attribution import attribute
from assay.models.prepare import prepare_network
from assay.plan.rehearsal import Rehearsal
from assay.suite.spec import choose_one
from small_worlds import make_images, make_net


def enlarged(coarse: Tensor, size: int = 16) -> Tensor:
    shape = (size, size)
    return functional.interpolate(coarse[:, None], shape, mode="bilinear", align_corners=False)[
        :, 0
    ]


@pytest.fixture
def world():
    """Network, images, classes and the last activations [B, K, h, w]."""
    net, (x, y) = make_net(), make_images(5)
    seen = []
    handle = net.relu2.register_forward_hook(lambda m, i, o: seen.append(o))
    with torch.no_grad():
        net(x)
    handle.remove()
    return net, x, y, seen[0]


class Pooled(nn.Module):
    """A convolution and whatever comes after it."""

    def __init__(self, *tail: nn.Module, channels: int = 4):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, channels, 3, padding=1)
        self.tail = nn.Sequential(*tail)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.conv(x))


def test_cam_weighs_activations_by_the_head(world):
    net, x, y, activation = world
    coarse = torch.einsum("bk,bkhw->bhw", net.head.weight[y].detach(), activation)
    ours = assay.explain(net, x, y, "cam")
    assert torch.allclose(ours, enlarged(coarse), atol=1e-5)
    assert torch.allclose(
        assay.explain(net, x, y, "cam", relu=True), enlarged(coarse.relu()), atol=1e-5
    )
    logit = net(x).gather(1, y[:, None])[:, 0].detach()
    assert torch.allclose(coarse.mean((1, 2)) + net.head.bias[y].detach(), logit, atol=1e-5)


def test_cam_is_gradcam_times_the_places(world):
    net, x, y, activation = world
    places = activation[0, 0].numel()
    gradcam = assay.explain(net, x, y, "gradcam", relu=False)
    assert torch.allclose(assay.explain(net, x, y, "cam"), places * gradcam, atol=1e-5)


def test_cam_of_a_network_that_ends_in_the_mean_is_the_channel_of_the_class():
    net, (x, y) = Pooled(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()), make_images(4)
    with torch.no_grad():
        expected = net.conv(x).relu()[torch.arange(4), y]
    assert torch.allclose(assay.explain(net, x, y, "cam"), expected, atol=1e-6)


def test_cam_reads_a_convolution_as_head_and_both_signs_of_one_logit():
    x, _ = make_images(4)
    y = torch.tensor([0, 1, 0, 1])
    net = Pooled(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 1, 1), nn.Flatten())
    with torch.no_grad():
        coarse = (net.tail[2].weight[0] * net.conv(x).relu()).sum(1)
    sign = torch.tensor([-1.0, 1.0])[y][:, None, None]
    assert torch.allclose(assay.explain(net, x, y, "cam"), sign * coarse, atol=1e-6)


@pytest.mark.parametrize(
    ("tail", "reason"),
    [
        ([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)],
         "has 6 inputs"),
        ([nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.ReLU(), nn.Linear(4, 4)], "one linear layer"),
        ([nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(4, 4)], "mean over positions"),
    ],
    ids=["two layers", "a relu between", "max-pool"],
)  # fmt: skip
def test_cam_refuses_other_heads(tail, reason):
    x, y = make_images(4)
    with pytest.raises(assay.NotApplicable, match=reason):
        assay.explain(Pooled(*tail), x, y, "cam")


def drawn(x: Tensor, y: Tensor, samples: int, sigma: float) -> Tensor:  # [B, S, C, H, W]
    """The noise that the method adds."""
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    return sigma * batch.draw("smooth_gradcam_pp", (samples, *x.shape[1:]), normal=True)


def layer_gradient(net: nn.Module, layer: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    seen = []
    handle = layer.register_forward_hook(lambda m, i, o: seen.append(o))
    logits = net(x)
    handle.remove()
    (gradient,) = torch.autograd.grad(logits.gather(1, y[:, None]).sum(), seen[0])
    return seen[0].detach(), gradient


@pytest.mark.parametrize("layer", ["relu2", "relu1"])  # gradients constant, and not
def test_smooth_gradcam_pp_averages_the_powers(world, layer):
    net, x, y, _ = world
    module, copies = getattr(net, layer), x[:, None] + drawn(x, y, 3, 0.5)
    clean, _ = layer_gradient(net, module, x, y)
    powers = [0.0, 0.0, 0.0]
    for s in range(3):
        _, g = layer_gradient(net, module, copies[:, s], y)
        powers = [total + g.double() ** (p + 1) / 3 for p, total in enumerate(powers)]
    below = 2 * powers[1] + (powers[2] * clean).sum((2, 3), keepdim=True)
    alpha = torch.where(powers[1] == 0, 0.0, powers[1] / below)
    weight = (alpha * powers[0].relu()).sum((2, 3))
    coarse = torch.einsum("bk,bkhw->bhw", weight, clean.double()).relu().float()
    ours = assay.explain(net, x, y, "smooth_gradcam_pp", layer=layer, samples=3, sigma=0.5)
    assert ours.abs().max() > 0
    assert torch.allclose(ours, enlarged(coarse), atol=1e-4 * coarse.max().item())


def test_without_noise_it_is_gradcam_pp(world):
    net, x, y, _ = world
    ours = assay.explain(net, x, y, "smooth_gradcam_pp", layer="relu1", sigma=0.0)
    plain = assay.explain(net, x, y, "gradcam_pp", layer="relu1")
    assert torch.allclose(ours, plain, atol=1e-5 * plain.max().item())


def test_scorecam_weighs_channels_by_the_answers_under_their_masks(world):
    net, x, y, activation = world
    maps = []
    for b in range(len(x)):
        scores = []
        for k in range(activation.shape[1]):
            mask = enlarged(activation[b : b + 1, k])[0]
            span = mask.max() - mask.min()
            mask = (mask - mask.min()) / span if span > 0 else torch.zeros_like(mask)
            with torch.no_grad():
                grey = 0.25 * torch.ones_like(x[b])
                scores.append(net((mask * x[b] + (1 - mask) * grey)[None])[0, y[b]])
        weight = torch.stack(scores).softmax(0)
        maps.append((weight[:, None, None] * activation[b]).sum(0).relu())
    expected = enlarged(torch.stack(maps))
    ours = assay.explain(net, x, y, "scorecam", fill=torch.full((3, 16, 16), 0.25))
    assert torch.allclose(ours, expected, atol=1e-4 * expected.max().item())


def test_scorecam_leaves_constant_channels_out():
    """A channel without contrast masks everything; it must not divide by zero."""
    net, (x, y) = make_net(), make_images(3)
    with torch.no_grad():
        net.bn2.weight[:4] = 0
        net.bn2.bias[:4] = 1
    assert torch.isfinite(assay.explain(net, x, y, "scorecam")).all()


def test_a_dry_run_counts_the_channels(world):
    net, x, y, activation = world
    net.train()  # nobody has put it into evaluation mode yet
    statistics = net.bn1.running_mean.clone()
    dataset = as_dataset((x, y))
    batch, rehearsal = dataset.batch(dataset.ids), Rehearsal(assay.model(net))
    with torch.no_grad():
        choice = choose_one("method", "scorecam")
        attribute(rehearsal.model, batch, choice, Engine(batch, rehearsal))
    assert rehearsal.asked == [len(x), len(x) * activation.shape[1]]  # the activations first
    assert torch.equal(net.bn1.running_mean, statistics)
    assert net.training


class TinyViT(nn.Module):
    """A class token, 4 x 2 patches of 4 x 8 pixels, two blocks; the head reads token or mean."""

    def __init__(self, mean: bool = False, width: int = 8):
        super().__init__()
        torch.manual_seed(0)
        self.mean = mean
        self.patches = nn.Conv2d(3, width, (4, 8), stride=(4, 8))
        self.start = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 9, width))
        self.blocks = nn.ModuleList(TinyBlock(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.start.expand(len(x), -1, -1), tokens], 1) + self.place
        for block in self.blocks:
            tokens = block(tokens)
        tokens = self.norm(tokens)
        return self.head(tokens[:, 1:].mean(1) if self.mean else tokens[:, 0])


class TinyBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y)[0]
        return x + self.mlp(self.norm2(x)).relu()


def by_hand(net: nn.Module, layer: nn.Module, x: Tensor, y: Tensor, rows: int) -> Tensor:
    """Grad-CAM of a layer's patches, without relu."""
    seen = []
    handle = layer.register_forward_hook(lambda m, i, o: seen.append(o))
    out = net(x)
    handle.remove()
    logits = getattr(out, "logits", out)
    (g,) = torch.autograd.grad(logits.gather(1, y[:, None]).sum(), seen[0])
    coarse = torch.einsum("bd,bnd->bn", g[:, 1:].mean(1), seen[0][:, 1:])
    return enlarged(coarse.unflatten(1, (rows, -1)).detach())


def found_layer(model, x: Tensor) -> str:
    with model.evaluating(), torch.no_grad():
        return prepare_network(model, x[:1]).model.spatial_layer


CAMS = ["gradcam", "xgradcam", "layercam", "gradcam_pp", "smooth_gradcam_pp", "scorecam"]


def test_tokens_become_places_at_the_layer_the_last_attention_reads():
    net, (x, y) = TinyViT().eval(), make_images(4)
    model = assay.model(net, cam_reshape=(4, 2))
    ours = assay.explain(model, x, y, "gradcam", relu=False)
    assert found_layer(model, x) == "blocks.1.norm1"
    assert torch.allclose(ours, by_hand(net, net.blocks[1].norm1, x, y, 4), atol=1e-6)
    for name in CAMS:
        assert assay.explain(model, x, y, name, relu=False).flatten(1).std(1).min() > 0, name


def test_tokens_can_be_laid_out_by_a_function_and_at_a_named_layer():
    def lay_out(tokens: Tensor) -> Tensor:
        return tokens[:, 1:].reshape(len(tokens), 4, 2, -1).permute(0, 3, 1, 2)

    net, (x, y) = TinyViT().eval(), make_images(4)
    by_function = assay.model(net, cam_reshape=lay_out)
    by_grid = assay.model(net, cam_reshape=[4, 2], cam_layer="blocks.0")
    expected = by_hand(net, net.blocks[0], x, y, 4)
    for model in (by_function, by_grid):
        ours = assay.explain(model, x, y, "gradcam", layer="blocks.0", relu=False)
        assert torch.allclose(ours, expected, atol=1e-6)


def test_a_mean_over_tokens_is_a_head_for_cam():
    net, (x, y) = TinyViT(mean=True).eval(), make_images(4)
    model = assay.model(net, cam_reshape=(4, 2))
    cam = assay.explain(model, x, y, "cam")
    assert found_layer(model, x) == "norm"
    assert torch.allclose(cam, 8 * by_hand(net, net.norm, x, y, 4), atol=1e-5)
    with pytest.raises(assay.NotApplicable, match="mean over positions"):
        assay.explain(assay.model(TinyViT().eval(), cam_reshape=(4, 2)), x, y, "cam")


@pytest.fixture
def transformers_vit():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=4, num_labels=4,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config).eval()


def test_a_transformers_vit_has_cams(transformers_vit):
    net, (x, y) = transformers_vit, make_images(4)
    model = assay.model(net, cam_reshape=(4, 4))
    ours = assay.explain(model, x, y, "gradcam", relu=False)
    layer = found_layer(model, x)
    assert layer.endswith("1.layernorm_before")
    expected = by_hand(net, net.get_submodule(layer), x, y, 4)
    assert torch.allclose(ours, expected, atol=1e-4 * expected.abs().max().item())
    blocks = [name for name, m in net.named_modules() if type(m).__name__ == "ViTLayer"]
    for layer in blocks:  # a block of patches after which only the class token is read says nothing
        quiet = layer == blocks[-1]
        map_ = assay.explain(model, x, y, "gradcam", layer=layer, relu=False)
        assert (map_.abs().max() == 0) == quiet


def test_what_is_wrong_with_tokens_is_said():
    net, (x, y) = TinyViT().eval(), make_images(4)
    with pytest.raises(assay.NotApplicable, match="cam_reshape"):
        assay.explain(net, x, y, "gradcam")
    with pytest.raises(assay.InputError, match="cam_reshape"):
        assay.explain(net, x, y, "gradcam", layer="blocks.0")
    with pytest.raises(assay.InputError, match=r"5 x 5 tokens.*got 9"):
        assay.explain(assay.model(net, cam_reshape=(5, 5)), x, y, "gradcam", layer="blocks.0")
    for wrong in ((4,), (0, 2), "4x2"):
        with pytest.raises(assay.InputError, match="rows and columns"):
            assay.model(net, cam_reshape=wrong)


def test_a_layer_that_is_not_used_is_named():
    net, (x, y) = make_net(), make_images(3)
    net.spare = nn.ReLU()
    for name in ("gradcam", "scorecam"):
        with pytest.raises(assay.InputError, match="used by model `smallnet`, but it was not"):
            assay.explain(net, x, y, name, layer="spare")
    assert not any(m._forward_hooks for m in net.modules())


def test_how_tokens_lie_is_part_of_the_identity(tmp_path):
    """Maps of one layout are not taken for those of another."""
    net, (x, y) = TinyViT().eval(), make_images(4)
    cells = [
        set(
            assay.benchmark(
                assay.model(net, cam_reshape=grid, name="vit"), (x, y), ["gradcam"],
                ["single_deletion"], out=tmp_path / str(number), progress=False,
            ).scores["cell"]
        )
        for number, grid in enumerate([(4, 2), (2, 4)])
    ]  # fmt: skip
    assert cells[0]
    assert not cells[0] & cells[1]


class Gated(nn.Module):
    """A dense layer before the one that is read, none after it."""

    def __init__(self):
        super().__init__()
        self.first, self.gate = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 8)
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None]).mean((2, 3))


def test_cam_reads_the_head_behind_its_layer_alone():
    torch.manual_seed(0)
    net, (x, y) = Gated(), make_images(3)
    maps = assay.explain(net, x, y % 4, "cam", layer="last")
    with torch.no_grad():
        answers = net(x)[torch.arange(3), y % 4]
    assert maps.mean((1, 2)).numpy() == pytest.approx(answers.numpy(), abs=1e-5)
