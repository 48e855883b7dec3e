"""Weights that fit, and the words for those that do not."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.models.weights import load_weights


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@pytest.fixture
def state() -> dict[str, Tensor]:
    """A state dict with other values than a fresh network."""
    generator = torch.Generator().manual_seed(3)
    return {
        k: torch.rand(v.shape, generator=generator) if v.is_floating_point() else v
        for k, v in _net().state_dict().items()
    }


def test_both_formats_and_the_usual_wrappings(tmp_path: Path, state: dict[str, Tensor]) -> None:
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "b.pth")
    torch.save({"state_dict": {f"module.{k}": v for k, v in state.items()}}, tmp_path / "c.pt")
    for path in sorted(tmp_path.iterdir()):
        net = _net()
        said = load_weights(net, path)
        assert all(torch.equal(v, state[k]) for k, v in net.state_dict().items())
        assert bool(said) == (path.name == "c.pt")


def test_what_was_taken_off_is_said(tmp_path: Path, state: dict[str, Tensor]) -> None:
    inner = {f"module.model.{k}": v for k, v in state.items()}
    torch.save({"model_state_dict": inner, "epoch": 3, "loss": 0.5}, tmp_path / "best.pt")
    assert load_weights(_net(), tmp_path / "best.pt") == (
        "weights of best.pt: taken from `model_state_dict` (`epoch`, `loss` not used), "
        "`module.` stripped from the keys, `model.` stripped from the keys"
    )


def test_renamed_keys_and_a_missing_step_counter(tmp_path: Path, state: dict[str, Tensor]) -> None:
    renamed = {f"x.{k}": v for k, v in state.items() if "num_batches" not in k}
    save_file(renamed, tmp_path / "a.safetensors")
    net = _net()
    load_weights(net, tmp_path / "a.safetensors", rename=lambda key: key[2:])
    assert torch.equal(net[0].weight, state["0.weight"])


def test_every_misfit_is_named(tmp_path: Path, state: dict[str, Tensor]) -> None:
    state["0.weight"] = torch.ones(2, 4)
    state["extra.bias"] = state.pop("1.running_var")
    save_file(state, tmp_path / "a.safetensors")
    net = _net()
    before = net[0].bias.clone()
    with pytest.raises(InputError) as caught:
        load_weights(net, tmp_path / "a.safetensors")
    text = str(caught.value)
    assert "missing `1.running_var`" in text
    assert "unexpected `extra.bias`" in text
    assert "`0.weight` expected [2, 3], got [2, 4]" in text
    assert torch.equal(net[0].bias, before)  # nothing was loaded


def test_long_lists_are_cut(tmp_path: Path) -> None:
    save_file({f"k{i}": torch.ones(1) for i in range(9)}, tmp_path / "a.safetensors")
    with pytest.raises(InputError, match="`k2` and 6 more"):
        load_weights(_net(), tmp_path / "a.safetensors")


def test_files_that_are_missing_broken_or_more_than_tensors(tmp_path: Path) -> None:
    with pytest.raises(PrerequisiteError, match="nowhere"):
        load_weights(_net(), tmp_path / "nowhere.safetensors")
    for name in ("a.safetensors", "a.pth"):
        (tmp_path / name).write_bytes(b"garbage")
        with pytest.raises(InputError, match=name):
            load_weights(_net(), tmp_path / name)
    torch.save(_net(), tmp_path / "net.pth")
    with pytest.raises(InputError, match=r"net\.state_dict\(\)"):
        load_weights(_net(), tmp_path / "net.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(InputError, match="got list"):
        load_weights(_net(), tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    with pytest.raises(InputError, match="got int at `epoch`"):
        load_weights(_net(), tmp_path / "epoch.pth")
