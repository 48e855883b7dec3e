"""Units whose number differs per sample: only what exists is asked, summed and correlated."""

import hashlib
import math
from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.engine.engine import Engine, network_engine
from assay.engine.respondent import micro_batches
from assay.plugins import registry
from assay.protocols.subsets import set_sizes
from assay.types import Batch
from assay.units.absent import by_rank, each, random_subsets
from assay.units.features import Features, make_units
from small_worlds import make_images, make_net

QUIET = {"progress": False}


def lot(x: torch.Tensor, n: int) -> int:
    """A number below n that depends on nothing but the sample."""
    return hashlib.sha256(x.numpy().tobytes()).digest()[0] % n


@registry.units("stripes", title="Stripes")
def stripes(batch: Batch, *, most: int = 6) -> Features:
    """One to `most` stripes, each image its own number."""
    width = batch.map_shape[1]
    counts = [1 + lot(x, most) for x in batch.inputs]
    index = torch.stack([torch.arange(width) * n // width for n in counts])
    index = index[:, None, :].expand(-1, *batch.map_shape).contiguous()
    valid = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    return Features(f"stripes({most})", batch.map_shape, max(counts), valid, index=index)


@registry.units("open_entries", title="Unprotected entries")
def open_entries(batch: Batch) -> Features:
    """Entries of a vector, of which each sample protects some."""
    size = batch.map_shape[0]
    valid = torch.stack([torch.arange(size) < size - lot(x, size - 3) for x in batch.inputs])
    return Features("open_entries", batch.map_shape, size, valid)


def make_batch(x: torch.Tensor, y: torch.Tensor | None = None) -> Batch:
    dataset = as_dataset((x, y))
    return dataset.batch(dataset.ids)


@pytest.fixture
def batch(images) -> Batch:
    return make_batch(*images)


def make_engine(net: nn.Module, batch: Batch, micro_batch: int = 4) -> Engine:
    model = replace(assay.model(net), micro_batch=micro_batch)
    engine = network_engine(model, batch, model.logits)
    with torch.no_grad():
        engine.clean  # noqa: B018  # asked for first, as in a run
    return engine


class TestEngine:
    def test_answers_equal_a_plain_loop_and_the_clean_answer_where_nobody_is(self, net, batch):
        engine, units = make_engine(net, batch), make_units(batch, "stripes")
        counts = units.valid.sum(1).tolist()
        assert len(set(counts)) > 2
        found = engine.respond(units, each(units), "zero")
        assert engine.asked == 6 + sum(counts)
        with torch.no_grad():
            for b, n in enumerate(counts):
                for p in range(units.count):
                    x = batch.inputs[b].clone()
                    x[:, :, torch.arange(16) * n // 16 == p] = 0  # nothing where p >= n
                    logits = net(x[None])[0]
                    right = logits[batch.targets[b]].item()
                    assert found.logit[b, p].item() == pytest.approx(right, abs=1e-5)
                    assert found.predicted[b, p] == logits.argmax()
        assert torch.equal(
            found.logit[~units.valid], engine.clean.logit.expand_as(found.logit)[~units.valid]
        )

    def test_where_all_exist_nothing_is_left_out(self, batch):
        assert each(make_units(batch, {"grid": {"side": 2}})).valid is None
        assert each(make_units(batch.select([0]), "stripes")).valid is None

    def test_nobody_anywhere_costs_nothing(self, net, batch):
        engine = make_engine(net, batch)
        shape = batch.map_shape
        nobody = Features("nobody", shape, 3, torch.zeros(6, 3) > 0, index=torch.full(shape, -1))
        found = engine.respond(nobody, each(nobody), "zero")
        assert engine.asked == 6
        assert torch.equal(found.logit, engine.clean.logit.expand(6, 3))

    def test_pairs_that_exist_come_once(self):
        valid = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]) > 0
        seen = []
        for samples, rows, asked in micro_batches(3, 3, 4, torch.device("cpu"), valid):
            assert len(samples) == 4
            seen += list(zip(samples[:asked].tolist(), rows[:asked].tolist(), strict=True))
        assert seen == [(0, 0), (0, 2), (2, 0), (2, 1), (2, 2)]

    def test_everything_gone_is_one_row_whoever_asks(self, net, batch):
        engine, noise = make_engine(net, batch), torch.rand(6, 16, 16)
        for name in ("elements", "stripes"):
            units = make_units(batch, name)
            sets = by_rank(batch, units, units.sum(noise), [0, 1], descending=True)
            engine.respond(units, sets, "zero")
        assert engine.asked == 6 + 6

    def test_windows_that_leave_a_border_do_not_cover_everything(self, batch):
        sparse = make_units(batch, {"windows": {"sizes": (0.3,), "stride": 0.6}})
        assert sparse.coverage == sparse.key
        dense = make_units(batch, {"windows": {"sizes": (0.5,), "stride": 0.5}})
        assert dense.coverage == "everything"


class TestSubsets:
    def test_sizes_are_shares_of_the_samples_own_number(self, batch):
        units = make_units(batch, {"stripes": {"most": 12}})
        number = units.valid.sum(1)
        sizes = set_sizes(units, (0.5, 0.25))
        for n, (quarter, half) in zip(number.tolist(), sizes.tolist(), strict=True):
            assert quarter == max(1, round(n / 4))
            assert half == (max(1, round(n / 2)) if round(n / 2) > quarter else 0)
        sets = random_subsets(batch, units, sizes, 3)
        rows = torch.arange(6)
        for b in range(6):
            made = sets.make(torch.full_like(rows, b), rows)
            assert made.sum(1).tolist() == sizes[b].repeat_interleave(3).tolist()
            assert not (made & ~units.valid[b]).any()
        assert sets.valid is None or torch.equal(sets.valid, (sizes > 0).repeat_interleave(3, 1))

    def test_a_samples_sets_do_not_depend_on_its_company(self, batch):
        units = make_units(batch, {"stripes": {"most": 12}})
        together = random_subsets(batch, units, set_sizes(units, (0.5,)), 4)
        for b in range(6):
            alone = batch.select([b])
            own = make_units(alone, {"stripes": {"most": 12}})
            sets = random_subsets(alone, own, set_sizes(own, (0.5,)), 4)
            rows = torch.arange(4)
            expected = together.make(torch.full_like(rows, b), rows)[:, : own.count]
            assert torch.equal(sets.make(rows * 0, rows), expected)

    def test_other_sizes_have_other_names(self, batch):
        units = make_units(batch, {"stripes": {"most": 12}})
        names = [random_subsets(batch, units, set_sizes(units, (s,)), 2).rows for s in (0.2, 0.9)]
        assert not set(names[0]) & set(names[1])


SCORED = [
    ("single_deletion", {}),
    ("sensitivity_n", {"subsets": 6}),
    ("infidelity", {"subsets": 6}),
    ("deletion", {"steps": 4}),
    ("morf", {"steps": 4, "variant": "m4"}),
    ("lerf", {"steps": 4, "variant": "m4"}),
]


@pytest.mark.parametrize(("name", "options"), SCORED, ids=str)
def test_a_score_does_not_depend_on_its_neighbours(name, options):
    x, y = make_images(8)
    maps = torch.randn(8, 16, 16, generator=torch.Generator().manual_seed(0))
    told = {"units": {"stripes": {"most": 9}}, **options}
    together = assay.score(make_net(), x, y, maps, name, **told)
    few = assay.score(make_net(), x[:3], y[:3], maps[:3], name, **told)
    assert torch.equal(few.nan_to_num(99), together[:3].nan_to_num(99))
    assert not together.isnan().all()


@pytest.mark.parametrize(("name", "options"), SCORED, ids=str)
def test_what_a_map_says_of_protected_entries_does_not_matter(name, options):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(12, 9), nn.ReLU(), nn.Linear(9, 3)), torch.randn(7, 12)
    y, maps = torch.arange(7) % 3, torch.randn(7, 12)
    protected = ~make_units(make_batch(x, y), "open_entries").valid
    assert 0 < protected.sum() < protected.numel()
    told = {"units": "open_entries", **options}
    before = assay.score(net, x, y, maps, name, **told)
    after = assay.score(net, x, y, torch.where(protected, maps * 50 + 9, maps), name, **told)
    assert torch.equal(before, after)


def test_single_deletion_equals_scipy_over_each_samples_own_units():
    net, (x, y) = make_net(), make_images(8)
    maps = torch.randn(8, 16, 16, generator=torch.Generator().manual_seed(0))
    values = assay.score(net, x, y, maps, "single_deletion", units="stripes")
    few = 0
    with torch.no_grad():
        for b in range(8):
            n = 1 + lot(x[b], 6)
            said, cost = [], []
            for p in range(n):
                gone = torch.arange(16) * n // 16 == p
                without = torch.where(gone, 0.0, x[b])
                cost.append((net(x[b : b + 1]) - net(without[None]))[0, y[b]].item())
                said.append(maps[b][:, gone].double().sum().item())
            if n < 3:
                few += 1
                assert math.isnan(values[b])
            else:
                assert values[b].item() == pytest.approx(stats.spearmanr(said, cost)[0], abs=1e-9)
    assert 0 < few < 8


def test_too_few_units_are_degenerate_not_failed():
    data = make_images(8)
    results = assay.benchmark(
        make_net(), data, ["saliency"], [{"single_deletion": {"units": "stripes"}}], **QUIET
    )
    found = results.query("select value, status from scores where headline").to_pylist()
    words = {math.isnan(row["value"]): row["status"] for row in found}
    assert words == {True: "degenerate", False: "ok"}


@pytest.mark.parametrize("micro_batch", [1, 5])
def test_forwards_are_predicted_exactly(micro_batch):
    net, data, rows = make_net(), make_images(11), []  # two shards
    net.register_forward_hook(lambda m, i, o: rows.append(len(i[0])))
    protocols = [
        "single_deletion",
        {"single_deletion": {"units": "stripes"}},
        {"sensitivity_n": {"units": "stripes", "subsets": 4}},
        {"infidelity": {"units": "stripes", "subsets": 4}},
        {"deletion": {"units": "stripes", "steps": 3}},
    ]
    told = {"methods": ["saliency", "random"], "protocols": protocols, "micro_batch": micro_batch}
    expected = assay.dry_run(net, data, **told, time_it=False)
    assert not rows
    results = assay.benchmark(net, data, **told, **QUIET)
    assert len(rows) == expected.calls
    if micro_batch == 1:  # nothing is padded
        assert sum(rows) == expected.forwards
    spent = sum(c["forwards"] for c in results.cells if c["method"] == "random")
    assert sum(expected.rows.values()) - sum(expected.shared.values()) == 2 * spent
