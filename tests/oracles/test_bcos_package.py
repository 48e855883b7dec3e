"""B-cos beside the authors' own package (`pip install bcos`), weight for weight."""

import pytest
import torch

import assay
from assay.models.bcos import BcosResNet

pytest.importorskip("torchvision")
pytest.importorskip("bcos")


@pytest.fixture
def theirs():
    from bcos.models import resnet
    from bcos.modules import norms

    torch.manual_seed(0)
    norm = norms.NoBias(norms.uncentered_norms.BatchNormUncentered2d)
    constant = torch.tensor(1 / 9).log().item()
    net = resnet.cifar10_resnet20(num_classes=10, norm_layer=norm, logit_bias=constant)
    net.train()
    with torch.no_grad():
        for _ in range(2):
            net(torch.rand(4, 6, 16, 16))
        for name, parameter in net.named_parameters():
            if "bn" in name or "downsample.1" in name:
                parameter.uniform_(0.5, 2.0)
    return net.eval()


def ours_with(theirs) -> BcosResNet:
    def rename(key: str) -> str:
        for old, new in (("bn", "norm"), ("downsample", "shortcut"), ("fc", "head")):
            key = key.replace(old, new)
        return key

    net = BcosResNet(depth=20, width=16)
    wanted = net.state_dict()
    named = {rename(key): value for key, value in theirs.state_dict().items()}
    net.load_state_dict({key: named[key] for key in wanted})
    return net.eval()


def test_logits_and_maps_are_theirs(theirs) -> None:
    ours, x, y = ours_with(theirs), torch.rand(2, 3, 16, 16), torch.tensor([3, 8])
    z = torch.cat([x, 1 - x], 1)
    with torch.no_grad():
        assert torch.allclose(ours(x), theirs(z), rtol=1e-4, atol=1e-5)
    maps = assay.explain(ours, x, y, "bcos")
    for n in range(2):
        one = z[n : n + 1].clone().requires_grad_(True)
        # Their contribution map, without the picture that `explain` makes beside it.
        with theirs.explanation_mode():
            (gradient,) = torch.autograd.grad(theirs(one)[0, y[n]], one)
        found = (one * gradient).sum(1)[0].detach()
        assert torch.allclose(maps[n], found, rtol=1e-4, atol=1e-4 * found.abs().max().item())


def test_their_network_is_taken_as_it_is(theirs) -> None:
    z, y = torch.rand(2, 6, 16, 16), torch.tensor([1, 4])
    maps = assay.explain(theirs, z, y, "bcos")
    with torch.no_grad():
        logits = theirs(z)[range(2), y] - torch.tensor(1 / 9).log()
    assert torch.allclose(maps.sum((1, 2)), logits, rtol=1e-4, atol=1e-4)
