"""Incremental deletion against a loop without an engine, and what it may not do."""

import math

import pytest
import torch
from torch import nn

import assay
from assay.errors import NotApplicable
from assay.types import Batch, Model
from small_worlds import length_of, make_images, make_net

UPDATED = {"steps": 8, "attribution": "updated"}
CELLS = {"grid": {"side": 4}}


def run(net, data, methods, options, **changes):
    protocols = [{"incremental_deletion": options}] if isinstance(options, dict) else options
    return assay.benchmark(net, data, methods, protocols, progress=False, **changes, controls="off")


def curve(results, n):
    return torch.tensor(results.curves["value"].to_pylist()).reshape(n, -1)


def gradient(net, x, target):
    """The map of one image, by autograd alone."""
    x = x.clone().requires_grad_(True)
    net(x[None])[0, target].backward()
    return x.grad.sum(0)


def by_hand(net, x, target, shares, nothing, side):
    """One image, one row at a time: what is gone stays gone, the rest leaves by a new map."""
    height = x.shape[-1] // side
    cell = torch.arange(side * side).reshape(side, side)
    cell = cell.repeat_interleave(height, 0).repeat_interleave(height, 1)  # [H, W]
    gone: set[int] = set()
    current, answers = x, []
    for share in shares:
        said = gradient(net, current, target)
        totals = {p: said[cell == p].sum().item() for p in range(side * side) if p not in gone}
        leaving = sorted(totals, key=totals.__getitem__)
        gone |= set(
            leaving[: (side * side - math.floor((1 - share) * side * side + 0.5)) - len(gone)]
        )
        mask = sum((cell == p for p in gone), torch.zeros_like(cell, dtype=torch.bool))
        current = torch.where(mask, nothing[:, None, None], x)
        answers.append(net(current[None])[0].softmax(0)[target].item())
    return answers


@pytest.mark.parametrize("side", [4, 16])
@pytest.mark.parametrize("steps", [8, "idsds"])
def test_updated_maps_equal_a_loop_by_hand(side, steps):
    net, (x, y) = make_net().double(), make_images(3)
    x, nothing = x.double(), torch.tensor([0.3, -0.2, 0.1])
    options = {**UPDATED, "steps": steps, "fill": nothing, "units": {"grid": {"side": side}}}
    ours = curve(run(net, (x, y), ["saliency"], options), 3)
    shares = [k / 32 for k in range(32)] if steps == "idsds" else [k / 8 for k in range(9)]
    for b in range(3):
        theirs = by_hand(net, x[b], y[b], shares, nothing.double(), side)
        assert ours[b].numpy() == pytest.approx(theirs, abs=1e-9)


def test_updating_changes_the_order_of_a_network_that_bends():
    net, data = make_net(), make_images(6)
    fixed = run(net, data, ["saliency"], {"steps": 8}).scores["value"].to_numpy()
    updated = run(net, data, ["saliency"], UPDATED).scores["value"].to_numpy()
    assert abs(fixed - updated).max() > 1e-4


@pytest.mark.parametrize("method", ["random", "constant", "centre"])
@pytest.mark.parametrize("units", ["elements", CELLS])
def test_updating_a_map_that_never_looks_at_the_input_changes_nothing(method, units):
    """Ties included: `constant` is nothing but ties."""
    net, data = make_net(), make_images(6)
    fixed = run(net, data, [method], {"steps": 8, "units": units})
    updated = run(net, data, [method], {**UPDATED, "units": units})
    assert torch.equal(curve(fixed, 6), curve(updated, 6))


@pytest.mark.parametrize("attribution", ["fixed", "updated"])
def test_on_a_linear_network_the_curve_is_known(linear, attribution):
    """The gradient is w everywhere, so both orders are w's; a step adds the entry it removes."""
    net, x, y, exact = linear
    options = {"steps": 12, "output": "logit", "attribution": attribution}
    ours = run(net, (x, y), ["saliency"], options)
    order = net.weight[y].argsort(1)
    leaving = torch.cat([torch.zeros(len(x), 1), exact.gather(1, order).cumsum(1)], 1)
    expected = exact.sum(1, keepdim=True) - leaving.detach()
    assert curve(ours, len(x)).numpy() == pytest.approx(expected.numpy(), abs=1e-5)
    means = ours.scores["value"].to_numpy()
    assert means == pytest.approx(expected.mean(1).numpy(), abs=1e-5)


@pytest.mark.parametrize("attribution", ["fixed", "updated"])
def test_shares_are_of_the_units_a_sample_has(linear, attribution):
    net, x, y, _ = linear
    options = {
        "steps": (0, 0.3, 0.7, 1), "output": "logit", "units": "small_worlds:some_entries",
        "attribution": attribution,
    }  # fmt: skip
    ours = curve(run(net, (x, y), ["saliency"], options), len(x))
    lengths = set()
    for b, (row, target) in enumerate(zip(x, y, strict=True)):
        length = length_of(f"{b:04d}", 12)
        lengths.add(length)
        order = net.weight[target][:length].argsort()
        for k, share in enumerate((0, 0.3, 0.7, 1)):
            left = row.clone()
            left[order[: length - math.floor((1 - share) * length + 0.5)]] = 0
            assert ours[b, k].item() == pytest.approx(net(left)[target].item(), abs=1e-5)
    assert len(lengths) > 2


def test_an_updated_score_does_not_depend_on_its_neighbours():
    net, (x, y) = make_net(), make_images(11)  # two shards
    together = run(net, (x, y), ["saliency", "gradcam"], UPDATED, micro_batch=4)
    alone = run(net, (x[:3], y[:3]), ["gradcam"], UPDATED, micro_batch=4)
    chosen = "select value from scores where method = 'gradcam' and sample < '0003' order by sample"
    assert together.query(chosen)["value"].to_pylist() == alone.scores["value"].to_pylist()


def test_the_default_shares_every_row_with_lerf():
    net, data = make_net(), make_images(6)
    protocols = ["lerf", "incremental_deletion", {"incremental_deletion": UPDATED}]
    results = run(net, data, ["saliency"], protocols)
    cost = {c["protocol"]: c["forwards"] for c in results.cells}
    assert cost["incremental_deletion"] == 0
    # The first step of the updated order would be shared too, were it on the grid of the others.
    assert cost["incremental_deletion[steps=8,attribution=updated]"] == 6 * 7
    again = run(net, data, ["saliency"], [{"lerf": {"steps": 8}}, protocols[-1]])
    assert {c["protocol"]: c["forwards"] for c in again.cells}[
        "incremental_deletion[steps=8,attribution=updated]"
    ] == 6 * 6


def test_the_papers_grid_leaves_out_the_end():
    net, data = make_net(), make_images(4)
    results = run(net, data, ["saliency"], {"steps": "idsds"})
    assert results.curves["x"].to_pylist()[:32] == [k / 32 for k in range(32)]
    assert len(results.curves) == 4 * 32


class TestRefusals:
    def message(self, methods, **options) -> str:
        net, data = make_net(), make_images(4)
        results = run(net, data, methods, {**UPDATED, **options})
        (cell,) = results.cells
        assert cell["status"] == "n/a"
        return cell["message"]

    def test_many_passes_need_force(self):
        method = [{"integrated_gradients": {"steps": 3}}]
        assert "this one takes 3. Use `force: true`" in self.message(method)
        results = run(make_net(), make_images(4), method, {**UPDATED, "force": True})
        assert {c["status"] for c in results.cells} == {"ok"}

    def test_a_function_that_does_not_say_its_cost_needs_force(self):
        def mine(model, batch):
            return batch.inputs.sum(1)

        assert "an unknown number of" in self.message([mine])
        results = run(make_net(), make_images(4), [mine], {**UPDATED, "force": True})
        assert {c["status"] for c in results.cells} == {"ok"}

    def test_maps_computed_elsewhere_cannot_be_updated(self):
        maps = torch.rand(4, 16, 16)
        assert "computed elsewhere" in self.message([{"mine": maps}], force=True)
        net, (x, y) = make_net(), make_images(4)
        with pytest.raises(NotApplicable, match="attribution: fixed"):
            assay.score(net, x, y, maps, "incremental_deletion", attribution="updated")


def test_a_map_that_breaks_on_changed_inputs_fails_its_sample_alone():
    def brittle(model: Model, batch: Batch) -> torch.Tensor:
        """NaN as soon as half of the first sample is gone."""
        maps = batch.inputs.clone()
        half = (batch.inputs == 0).float().mean(1) >= 0.5
        maps[half & (torch.arange(len(batch)) == 0)] = torch.nan
        return maps

    torch.manual_seed(0)
    net, data = nn.Linear(8, 2), (torch.randn(3, 8), [0, 1, 0])
    with pytest.warns(RuntimeWarning, match="1 of 3 maps hold NaN"):
        results = run(net, data, [brittle], [
            {"incremental_deletion": {**UPDATED, "force": True}}, {"lerf": {"steps": 8}},
        ])  # fmt: skip
    found = results.query("select protocol, sample, status from scores order by protocol, sample")
    assert found["status"].to_pylist() == ["failed", "ok", "ok", "ok", "ok", "ok"]
