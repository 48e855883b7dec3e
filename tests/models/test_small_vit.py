"""The small vision transformer: its size, its weights and what it computes."""

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

import assay
from assay.models.small_vit import SmallViT
from assay.plan.resolving import build_one


def test_it_fits_two_megabytes_in_half_precision():
    parameters = sum(p.numel() for p in SmallViT().parameters())
    assert parameters <= 900_000
    assert 2 * parameters < 2e6


@pytest.mark.parametrize("options", [{}, {"width": 24, "depth": 2, "heads": 3, "pool": "mean"}])
def test_weights_come_back_from_half_precision(tmp_path, options):
    torch.manual_seed(0)
    net = SmallViT(**options).eval()
    save_file({k: v.half() for k, v in net.state_dict().items()}, tmp_path / "vit.safetensors")
    model = build_one(
        "model", {"small_vit": {"weights": str(tmp_path / "vit.safetensors"), **options}}
    )
    assert model.net.head.weight.dtype == torch.float32
    assert model.classes[3] == "cat"
    assert "attention" in model.capabilities
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(x), net(x), rtol=0.01, atol=0.005)
    assert assay.explain(model, x, [0, 1], "rollout").shape == (2, 32, 32)


def test_other_weights_are_refused(tmp_path):
    save_file(SmallViT(depth=2).state_dict(), tmp_path / "vit.safetensors")
    with pytest.raises(assay.InputError, match="blocks"):
        build_one("model", {"small_vit": {"weights": str(tmp_path / "vit.safetensors")}})
    with pytest.raises(assay.InputError, match="multiple of `heads`"):
        SmallViT(width=10, heads=4)


def test_it_is_trained_by_gradients():
    """A few steps on four images, in training mode with dropout, tell them apart."""
    torch.manual_seed(0)
    net = SmallViT(width=24, depth=2, heads=2, dropout=0.1)
    x, y = torch.randn(4, 3, 32, 32), torch.arange(4)
    optimiser = torch.optim.AdamW(net.parameters(), lr=3e-3)
    first = F.cross_entropy(net(x), y).item()
    for _ in range(60):
        optimiser.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.parameters())
    assert loss.item() < 0.3 * first
