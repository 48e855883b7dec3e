"""Networks that explain themselves: completeness of B-cos, BagNet pixel by pixel."""

import contextlib
from dataclasses import replace

import pytest
import torch
from torch import nn

import assay
from assay.conformance.worlds import make_bagnet, make_bcos
from assay.data.memory import as_dataset
from assay.errors import InputError, NotApplicable
from assay.methods.intrinsic import bagnet
from assay.models.bcos import BcosConv2d, explaining


def images(n: int = 3, height: int = 8, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(n, 3, height, width, generator=generator), torch.arange(n) % 4


# --- B-cos ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [8, 11])
def test_bcos_maps_sum_to_the_logit_less_the_constant(size):
    net, (x, y) = make_bcos(), images(height=size, width=size)
    maps = assay.explain(net, x, y, "bcos")
    with torch.no_grad():
        logits = net(x)[range(len(y)), y]
    assert torch.allclose(maps.sum((1, 2)) + net.constant, logits, atol=1e-5)
    assert maps.abs().sum((1, 2)).min() > 1e-3  # not all of it is the constant


def test_bcos_is_the_linear_map_times_the_encoded_input():
    """The matrix from double precision jacobians of the network behind its encoder."""
    net, (x, y) = make_bcos(), images()
    maps = assay.explain(net, x, y, "bcos")
    behind = make_bcos().double()
    behind.encode = nn.Identity()
    z = torch.cat([x, 1 - x], 1).double()
    with behind.explaining():
        for n in range(len(y)):
            weights = torch.autograd.functional.jacobian(behind, z[n : n + 1])[0, y[n], 0]
            assert torch.allclose(maps[n].double(), (weights * z[n]).sum(0), atol=1e-6)


def test_bcos_is_neither_input_x_gradient_nor_blind_to_dark_pixels():
    """A black pixel speaks through its complement, where input x gradient must stay silent."""
    net, (x, y) = make_bcos(), images()
    x[:, :, 2:5, 2:5] = 0
    maps = assay.explain(net, x, y, "bcos")
    assert (maps[:, 2:5, 2:5].abs() > 0).all()
    assert assay.explain(net, x, y, "input_x_gradient")[:, 2:5, 2:5].abs().sum() == 0


def test_bcos_of_other_outputs():
    """The gradient of the log-odds is that of the logit, less those of the others, weighted."""
    net, (x, y) = make_bcos(), images(1)
    of_class = torch.stack([assay.explain(net, x, torch.tensor([k]), "bcos")[0] for k in range(4)])
    with torch.no_grad():
        weights = net(x)[0].index_fill(0, y, -torch.inf).softmax(0)
    by_hand = of_class[y[0]] - (weights[:, None, None] * of_class).sum(0)
    assert torch.allclose(
        assay.explain(net, x, y, "bcos", output="log_odds")[0], by_hand, atol=1e-6
    )


class Own(nn.Module):
    """A user's network that takes six channels itself, with the published name of the mode."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = BcosConv2d(6, 5, 3), BcosConv2d(5, 3)

    def forward(self, z):
        return self.head(self.conv(z)).mean((2, 3))

    @contextlib.contextmanager
    def explanation_mode(self):
        with explaining(self):
            yield


def test_bcos_on_a_network_of_the_users_own():
    torch.manual_seed(0)
    net, z, y = Own(), torch.rand(2, 6, 6, 6), torch.tensor([0, 2])
    maps = assay.explain(net, z, y, "bcos")
    assert maps.shape == (2, 6, 6)
    assert torch.allclose(maps.sum((1, 2)), net(z)[range(2), y], atol=1e-5)


def test_bcos_leaves_the_network_as_it_was_even_after_an_error():
    net, (x, y) = make_bcos(), images()
    layers = [m for m in net.modules() if isinstance(m, BcosConv2d)]

    def fail(*_) -> None:
        if any(layer.cosines_given for layer in layers):  # not while the network is looked at
            raise ZeroDivisionError

    net.layer3.register_forward_hook(fail)
    with pytest.raises(ZeroDivisionError):
        assay.explain(net, x, y, "bcos")
    assert not any(layer.cosines_given for layer in layers)
    assert not net.encode._forward_hooks


def test_bcos_wants_a_network_with_such_a_mode(net):
    x, y = images()
    with pytest.raises(NotApplicable, match="`bcos` needs bcos"):
        assay.explain(net, x, y, "bcos")
    declared = replace(assay.model(net), has=frozenset({"gradients", "bcos"}))
    with pytest.raises(InputError, match=r"`explaining\(\)` or `explanation_mode\(\)`"):
        assay.explain(declared, x, y, "bcos")


# --- BagNet ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "height", "width"), [(5, 7, 10), (5, 8, 8), (9, 9, 6), (33, 11, 9)]
)
def test_bagnet_is_one_forward_per_pixel(field, height, width):
    """The published definition, on sizes that the stride divides and that it does not."""
    net, (x, y) = make_bagnet(field=field), images(2, height, width)
    maps = _dense(net, x, y)
    half = field // 2
    padded = nn.functional.pad(x, (half,) * 4)
    with torch.no_grad():
        for i in range(height):
            row = torch.stack([padded[:, :, i : i + field, j : j + field] for j in range(width)])
            alone = net(row.flatten(0, 1)).reshape(width, 2, 4)
            for n in range(2):
                assert torch.allclose(maps[n, i], alone[:, n, y[n]], atol=1e-5)


def _dense(net, x, y, **options):
    """The map; an image smaller than a patch has no logit, so the method is called directly."""
    if min(x.shape[2:]) >= net.receptive_field:
        return assay.explain(net, x, y, "bagnet", **options)
    data = as_dataset((x, y))
    with torch.no_grad():
        return bagnet(assay.model(net), data.batch(data.ids), **options)


@pytest.mark.parametrize("field", [5, 9, 33])
def test_bagnet_holds_the_patches_of_the_logit_at_their_places(field):
    size = field + 12
    net, (x, y) = make_bagnet(field=field), images(2, size, size)
    maps = assay.explain(net, x, y, "bagnet")
    with torch.no_grad():
        patches, logits = net.patch_logits(x)[range(2), y], net(x)[range(2), y]
    half, step = field // 2, net.stride
    places = maps[:, half : size - half : step, half : size - half : step]
    assert torch.allclose(places, patches, atol=1e-5)
    assert torch.allclose(places.mean((1, 2)), logits, atol=1e-5)
    assert (maps.mean((1, 2)) - logits).abs().max() > 1e-2  # of all places it is not the logit


def test_bagnet_reads_probabilities_of_patches():
    net, (x, y) = make_bagnet(), images(2, 9, 9)
    maps = assay.explain(net, x, y, "bagnet", output="probability")
    with torch.no_grad():
        patches = net.patch_logits(x).softmax(1)[range(2), y]
    assert torch.allclose(maps[:, 2:7:2, 2:7:2], patches, atol=1e-6)


def test_bagnet_runs_the_network_once_for_each_shift():
    net, (x, y) = make_bagnet(), images(3, 9, 9)
    rows, plain = [], net.patch_logits
    net.patch_logits = lambda z: rows.append(len(z)) or plain(z)
    model = replace(assay.model(net), micro_batch=1)
    data = as_dataset((x, y))
    with torch.no_grad():
        bagnet(model, data.batch(data.ids))
    assert sum(rows) == 3 * net.stride**2


class OneLogit(nn.Module):
    """A user's bag of patches with a single score and another layout: 4 pixels, stride 3."""

    receptive_field, stride = 4, 3

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 4, 3)

    def patch_logits(self, x):
        return self.conv(x)

    def forward(self, x):
        return self.patch_logits(x).mean((2, 3))


def test_bagnet_on_a_network_of_the_users_own():
    """One score is a pair of classes; patches of an even side lie a pixel to the lower right."""
    torch.manual_seed(0)
    net, x, y = OneLogit(), torch.rand(2, 1, 8, 10), torch.tensor([1, 0])
    maps = assay.explain(net, x, y, "bagnet")
    with torch.no_grad():
        patches = net.patch_logits(x)[:, 0]
    assert torch.allclose(maps[0, 1:5:3, 1:8:3], patches[0], atol=1e-6)
    assert torch.allclose(maps[1, 1:5:3, 1:8:3], -patches[1], atol=1e-6)


def test_bagnet_refuses_a_network_that_says_a_wrong_field(net):
    x, y = images()
    with pytest.raises(NotApplicable, match="`bagnet` needs bagnet"):
        assay.explain(net, x, y, "bagnet")
    wrong = make_bagnet()
    wrong.receptive_field = 9
    with pytest.raises(InputError, match=r"5 x 5 patches, for a receptive field of 9.*\(.*7, 7\)"):
        assay.explain(wrong, *images(1, 9, 9), "bagnet")


@pytest.mark.parametrize("method", ["saliency", "gradcam", "occlusion", "layercam"])
@pytest.mark.parametrize("make", [make_bcos, make_bagnet])
def test_other_methods_work_on_them(make, method):
    x, y = images(2, 12, 12)
    maps = assay.explain(make(), x, y, method)
    assert maps.shape == (2, 12, 12)
    assert torch.isfinite(maps).all()
    assert maps.abs().sum() > 0
