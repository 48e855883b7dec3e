"""Random sets: one function for two correlations, and samples with different numbers of units."""

import numpy as np
import pytest
import torch

import assay
from assay.data.memory import as_dataset
from assay.protocols import subsets
from assay.types.random_numbers import Stream
from assay.units.absent import random_subsets
from small_worlds import length_of, make_images, make_net, some_entries


@pytest.fixture
def ragged(monkeypatch):
    """Units of which each sample has another number, whatever is asked for."""
    monkeypatch.setattr(subsets, "make_units", lambda batch, choice: some_entries(batch))


def test_faithfulness_correlation_is_pearson_over_sets_of_one_size():
    """Against NumPy on the engine's own sets, run through the network one at a time."""
    net, (x, y) = make_net().double(), make_images(3)
    x, maps = x.double(), torch.randn(3, 16, 16, generator=torch.Generator().manual_seed(0))
    options = {"grid": 4, "share": 0.25, "subsets": 12}
    ours = assay.score(net, x, y, maps, "faithfulness_correlation", **options)
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    cells = subsets.make_units(batch, {"grid": {"side": 4}})
    sets = random_subsets(batch, cells, [4], 12)
    for b in range(3):
        said, cost = [], []
        for k in range(12):
            sample = torch.tensor([b])
            gone = cells.spread(sets.make(sample, torch.tensor([k])), sample)[0]
            assert gone.sum() == 4 * 16
            with torch.no_grad():
                left = torch.where(gone, 0.0, x[b])
                cost.append((net(x[b : b + 1]) - net(left[None]))[0, y[b]].item())
            said.append(maps[b][gone].sum().item())
        assert ours[b].item() == pytest.approx(np.corrcoef(said, cost)[0, 1], abs=1e-6)


def test_it_is_sensitivity_n_at_one_size():
    net, (x, y) = make_net(), make_images(6)
    maps = torch.randn(6, 16, 16)
    one = assay.score(net, x, y, maps, "faithfulness_correlation", share=0.5, subsets=20)
    other = assay.score(net, x, y, maps, "sensitivity_n", shares=(0.5,), subsets=20)
    assert torch.equal(one, other)


def test_both_share_their_rows():
    net, data = make_net(), make_images(6)
    protocols = ["sensitivity_n", "faithfulness_correlation"]
    results = assay.benchmark(net, data, ["random"], protocols, progress=False)
    cost = {c["protocol"]: c["forwards"] for c in results.cells}
    assert cost["sensitivity_n"] == 6 * 4 * 50
    assert cost["faithfulness_correlation"] == 6 * (100 - 50)


def test_sets_are_shares_of_the_units_a_sample_has(linear):
    _, x, y, _ = linear
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    units = some_entries(batch)
    sets = random_subsets(batch, units, subsets.set_sizes(units, [0.4]), 9)
    for b, sample in enumerate(batch.ids):
        made = sets.make(torch.full((9,), b), torch.arange(9))
        length = length_of(sample, 12)
        assert made.sum(1).tolist() == [round(0.4 * length)] * 9
        assert not made[:, length:].any()
        numbered = random_subsets(batch, units, [round(0.4 * length)], 9)
        assert torch.equal(numbered.make(torch.full((9,), b), torch.arange(9)), made)


@pytest.mark.parametrize("protocol", ["faithfulness_correlation", "sensitivity_n"])
def test_a_map_is_judged_on_the_units_there_are(ragged, linear, protocol):
    net, x, y, exact = linear
    maps = exact.clone()
    for b in range(len(x)):
        maps[b, length_of(f"{b:04d}", 12) :] = 1e3  # never removed: says nothing
    assert assay.score(net, x, y, maps, protocol).numpy() == pytest.approx(1.0, abs=1e-6)
    assert assay.score(net, x, y, -maps, protocol).numpy() == pytest.approx(-1.0, abs=1e-6)
    assert assay.score(net, x, y, maps, "infidelity").max() < 1e-6


@pytest.mark.parametrize(
    ("protocol", "option"), [("sensitivity_n", "shares"), ("infidelity", "sizes")]
)
def test_shares_that_come_to_one_number_count_once(linear, protocol, option):
    net, x, y, exact = linear
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    once = assay.score(net, x, y, noise, protocol, **{option: (0.1, 0.5)})
    twice = assay.score(net, x, y, noise, protocol, **{option: (0.11, 0.5, 0.1)})  # 1, 6, 1 of 12
    assert torch.equal(once, twice)


@pytest.mark.parametrize("protocol", ["faithfulness_correlation", "sensitivity_n", "infidelity"])
def test_company_with_more_units_does_not_matter(ragged, linear, protocol):
    """Shares that come to one number for a short sample count once, alone or in company."""
    net, x, y, exact = linear
    options = {"share": 0.1} if protocol == "faithfulness_correlation" else {}
    if protocol == "sensitivity_n":
        options = {"shares": (0.1, 0.15, 0.5, 0.95)}
    if protocol == "infidelity":
        options = {"sizes": (0.1, 0.15, 0.5)}
    noise = torch.randn(exact.shape, generator=torch.Generator().manual_seed(1))
    together = assay.score(net, x, y, noise, protocol, **options)
    for n in (1, 2, 5):
        alone = assay.score(net, x[:n], y[:n], noise[:n], protocol, **options)
        assert torch.equal(alone, together[:n])


class TestInfidelity:
    def test_captums_form_is_zero_for_the_exact_map_only_at_its_own_scale(self, linear):
        net, x, y, exact = linear
        options = {"variant": "captum"}
        assert assay.score(net, x, y, exact, "infidelity", **options).max() < 1e-6
        silent = assay.score(net, x, y, 0 * exact, "infidelity", **options)
        doubled = assay.score(net, x, y, 2 * exact, "infidelity", **options)
        tripled = assay.score(net, x, y, 3 * exact, "infidelity", **options)
        assert doubled.numpy() == pytest.approx(silent.numpy(), rel=1e-5)  # (d - 2d)^2 = d^2
        assert tripled.numpy() == pytest.approx(4 * silent.numpy(), rel=1e-5)

    def test_a_fitted_scale_is_the_variant_m4(self):
        net, (x, y) = make_net(), make_images(4)
        maps = torch.randn(4, 16, 16)
        fitted = {"variant": "captum", "normalize": True, "stride": 0.25}
        ours = assay.score(net, x, y, maps, "infidelity", **fitted)
        m4 = assay.score(net, x, y, maps, "infidelity", variant="m4", stride=0.25)
        assert torch.equal(ours, m4)

    def test_normalize_belongs_to_captum(self):
        net, (x, y) = make_net(), make_images(2)
        with pytest.raises(
            assay.InputError, match="with `variant: captum`, got `variant: positive`"
        ):
            assay.score(net, x, y, torch.rand(2, 16, 16), "infidelity", normalize=True)


class TestSetsAreDrawnOnce:
    @pytest.fixture
    def draws(self, monkeypatch):
        """Every draw of a random set, by the number of units."""
        made, subsets = [], Stream.subsets

        def counted(stream, n, units, size):
            made.extend([units] * n)
            return subsets(stream, n, units, size)

        monkeypatch.setattr(Stream, "subsets", counted)
        return made

    def test_for_all_methods_and_protocols(self, draws):
        net, data = make_net(), make_images(6)
        shares = {"units": "elements", "subsets": 20}
        protocols = [
            {"sensitivity_n": {**shares, "shares": (0.25, 0.5)}},
            {"infidelity": {**shares, "sizes": (0.25, 0.5)}},
            {"faithfulness_correlation": {**shares, "share": 0.5, "subsets": 10}},
        ]
        counts = []
        for methods in (["saliency"], ["saliency", "input_x_gradient", "centre", "edge"]):
            draws.clear()
            assay.benchmark(net, data, methods, protocols, progress=False)
            counts.append(draws.count(256))
        assert counts[0] == counts[1] > 0

    def test_they_are_the_same_whoever_asks_first_and_in_whatever_batch(self, draws):
        dataset = as_dataset(make_images(4))
        batch = dataset.batch(dataset.ids)
        rows = torch.arange(5)

        def sets(batch, b, n=5):
            asked = random_subsets(batch, subsets.make_units(batch, "elements"), [40], n)
            return asked.make(torch.full_like(rows, b), rows)

        first = [sets(batch, b) for b in range(4)]
        assert len(draws) == 4 * 5
        many = [sets(batch, b, 8) for b in range(4)]
        few = [sets(batch, b) for b in range(4)]
        assert len(draws) == 4 * 5 + 4 * 8
        other = batch.select([3, 1])
        assert not other.drawn_sets
        for b in range(4):
            assert first[b].sum(1).tolist() == [40] * 5
            assert torch.equal(first[b], many[b])
            assert torch.equal(first[b], few[b])
        assert torch.equal(sets(other, 0), first[3])
        assert torch.equal(sets(other, 1), first[1])
        assert not torch.equal(sets(batch.redrawn(1), 0), first[0])

    def test_what_does_not_fit_is_drawn_again(self, draws, monkeypatch):
        dataset = as_dataset(make_images(4))
        batch = dataset.batch(dataset.ids)
        units = subsets.make_units(batch, "elements")
        monkeypatch.setattr("assay.units.absent.KEPT", 2 * 5 * 256 // 8)  # two samples of four
        made = [random_subsets(batch, units, [40], 5) for _ in range(2)]
        rows = torch.arange(5)
        for b in range(4):
            one, again = (sets.make(torch.full_like(rows, b), rows) for sets in made)
            assert torch.equal(one, again)
        assert len(batch.drawn_sets) == 2
        assert len(draws) == 4 * 5 + 2 * 5
