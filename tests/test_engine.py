"""The engine: what is shared, what is counted, and that nothing depends on company."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.engine.engine import Engine, network_engine
from assay.engine.respondent import Counter, micro_batches
from assay.models.prepare import prepare_network
from assay.removal import all_absent, make_removal
from assay.types import Batch
from assay.units.absent import above, below, by_rank, each, random_subsets, ranks
from assay.units.features import make_units
from small_worlds import LinearImages, make_images, make_net


def make_batch(x: torch.Tensor, y: torch.Tensor | None = None, **changes) -> Batch:
    dataset = as_dataset((x, y))
    return replace(dataset.batch(dataset.ids), **changes)


def make_engine(net: nn.Module, batch: Batch, micro_batch: int = 4) -> Engine:
    model = replace(assay.model(net), micro_batch=micro_batch)
    engine = network_engine(model, batch, model.logits)
    with torch.no_grad():
        engine.clean  # noqa: B018  # asked for first, as in a run
    return engine


@pytest.fixture
def batch(images) -> Batch:
    return make_batch(*images)


class TestAbsentSets:
    def test_each_is_one_unit_at_a_time(self, batch):
        cells = make_units(batch, {"grid": {"side": 2}})
        made = each(cells).make(torch.zeros(4, dtype=torch.long), torch.arange(4))
        assert torch.equal(made, torch.eye(4, dtype=torch.bool))

    def test_ranked_sets_are_nested_and_of_exact_size_even_with_ties(self, batch):
        units = make_units(batch, "elements")
        values = torch.zeros(6, units.count)
        values[:, :10] = 1
        sets = by_rank(batch, units, values, [0, 0.1, 0.5, 1], descending=True)
        rows = torch.arange(4)
        made = sets.make(torch.full((4,), 2), rows)
        assert made.sum(1).tolist() == [0, 26, 128, 256]
        assert (made[1:] | ~made[:-1]).all()
        assert made[1, :10].all()  # the ten relevant ones leave first

    def test_ascending_is_descending_backwards(self, batch):
        units = make_units(batch, "elements")
        values = torch.zeros(6, units.count)  # all tied
        down = by_rank(batch, units, values, [0.25], descending=True)
        up = by_rank(batch, units, values, [0.75], descending=False)
        everyone, row = torch.arange(6), torch.zeros(6, dtype=torch.long)
        assert torch.equal(down.make(everyone, row), ~up.make(everyone, row))

    def test_ties_are_seeded_by_sample_not_by_place(self, batch):
        units = make_units(batch, "elements")
        flat = torch.zeros(6, units.count)
        all_of_them = ranks(batch, units, flat)
        alone = ranks(batch.select([4]), make_units(batch.select([4]), "elements"), flat[:1])
        assert torch.equal(all_of_them[4], alone[0])
        assert not torch.equal(all_of_them[4], all_of_them[3])
        other = replace(batch, seed=1)
        assert not torch.equal(ranks(other, units, flat), all_of_them)

    def test_levels_are_strict(self, batch):
        units = make_units(batch, {"grid": {"side": 2}})
        values = torch.tensor([[1.0, 2.0, 2.0, 3.0]]).expand(6, 4)
        levels = torch.full((6, 1), 2.0)
        zero = torch.zeros(1, dtype=torch.long)
        assert above(units, values, levels, ["m"]).make(zero, zero).tolist() == [[0, 0, 0, 1]]
        assert below(units, values, levels, ["m"]).make(zero, zero).tolist() == [[1, 0, 0, 0]]

    def test_random_subsets_have_their_size_and_do_not_depend_on_company(self, batch):
        units = make_units(batch, {"grid": {"side": 4}})
        few = random_subsets(batch, units, [3, 5], 2)
        sample = torch.tensor([1, 1, 1, 1])
        made = few.make(sample, torch.arange(4))
        assert made.sum(1).tolist() == [3, 3, 5, 5]
        more = random_subsets(batch, units, [3, 5], 9)
        assert torch.equal(more.make(sample[:2], torch.arange(2)), made[:2])
        alone = batch.select([1])
        again = random_subsets(alone, make_units(alone, {"grid": {"side": 4}}), [3, 5], 2)
        assert torch.equal(again.make(sample * 0, torch.arange(4)), made)


class TestUnits:
    @pytest.mark.parametrize("size", [(16, 16), (15, 17), (7, 30)])
    @pytest.mark.parametrize(
        "choice",
        ["elements", {"grid": {"side": 4}}, {"windows": {"sizes": (0.3, 0.6), "stride": 0.2}}],
    )
    def test_sums_equal_the_map_over_what_leaves(self, choice, size):
        """A unit's total is the map summed over the positions that its absence removes."""
        batch = make_batch(torch.randn(2, 3, *size))
        units = make_units(batch, choice)
        values = torch.randn(2, *size).double()
        rows = torch.arange(units.count)
        for b in range(2):
            sample = torch.full_like(rows, b)
            gone = units.spread(each(units).make(sample, rows), sample)
            expected = (values[b] * gone).sum((1, 2))
            assert torch.allclose(units.sum(values)[b], expected, atol=1e-9)

    def test_overlapping_windows_leave_as_their_union(self):
        batch = make_batch(torch.randn(1, 3, 12, 12))
        units = make_units(batch, {"windows": {"sizes": (0.5,), "stride": 0.25}})
        chosen = torch.zeros(1, units.count, dtype=torch.bool)
        chosen[0, [0, 1, 4]] = True
        expected = torch.zeros(12, 12, dtype=torch.bool)
        for top, left, bottom, right in units.boxes[[0, 1, 4]].tolist():
            expected[top:bottom, left:right] = True
        assert torch.equal(units.spread(chosen, torch.zeros(1, dtype=torch.long))[0], expected)

    def test_the_papers_windows_at_224(self):
        batch = make_batch(torch.zeros(1, 1, 224, 224))
        assert make_units(batch, "windows").count == 625 + 441 + 169

    def test_cells_cover_every_pixel_once(self):
        batch = make_batch(torch.zeros(1, 3, 13, 10))
        cells = make_units(batch, {"grid": {"side": 4}})
        assert cells.sum(torch.ones(1, 13, 10)).sum() == 130
        assert cells.count == 16


class TestFills:
    def test_pixel_fills_know_the_normalisation(self, images):
        from assay.types import Pixels

        pixels = Pixels((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
        batch = make_batch(*images, pixels=pixels)
        for name, value in (("black", 0.0), ("grey", 127 / 255)):
            filled = pixels.to_pixels(all_absent(batch, name))
            assert filled.numpy() == pytest.approx(value, abs=1e-6)
        assert all_absent(batch, "zero").abs().max() == 0

    @pytest.mark.parametrize("name", ["black", "grey"])
    def test_pixel_fills_without_normalisation_are_refused_with_the_cure(self, net, images, name):
        with pytest.raises(assay.PrerequisiteError, match=r"mean=.*std=.*assay\.model"):
            assay.benchmark(net, images, ["random"], [{"deletion": {"fill": name}}], progress=False)

    def test_mean_is_the_channels_mean_over_the_dataset(self, images):
        batch = make_batch(*images)
        expected = images[0].mean((0, 2, 3))
        filled = all_absent(batch.select([0]), "mean")
        assert torch.allclose(filled[0, :, 3, 3], expected, atol=1e-6)

    def test_uniform_is_one_field_per_sample_within_its_range(self, batch):
        filled = all_absent(batch, {"uniform": {"low": 2.0, "high": 3.0}})
        assert filled.min() >= 2
        assert filled.max() < 3
        assert torch.equal(
            filled[3], all_absent(batch.select([3]), {"uniform": {"low": 2.0, "high": 3.0}})[0]
        )

    def test_blur_keeps_a_flat_picture_and_the_mean_of_a_dot(self):
        flat = torch.full((1, 3, 20, 20), 0.7)
        assert all_absent(make_batch(flat), {"blur": {"sigma": 2.0}}).numpy() == pytest.approx(
            0.7, abs=1e-6
        )
        dot = torch.zeros(1, 1, 41, 41)
        dot[0, 0, 20, 20] = 1
        blurred = all_absent(make_batch(dot), {"blur": {"sigma": 2.0}})[0, 0]
        assert blurred.sum() == pytest.approx(1, abs=1e-5)
        offsets = torch.arange(41) - 20.0
        assert (blurred.sum(0) * offsets**2).sum() == pytest.approx(4.0, rel=0.05)  # sigma squared

    @pytest.mark.parametrize("shape", [(), (3,), (3, 1, 1), (1, 16, 16), (3, 16, 16)])
    def test_a_given_tensor_is_broadcast(self, batch, shape):
        value = torch.full(shape, 2.5)
        assert (all_absent(batch, value) == 2.5).all()

    def test_a_given_tensor_of_another_shape_is_refused(self, batch):
        with pytest.raises(
            assay.InputError, match=r"the shape of one input, \(3, 16, 16\), got \(5, 5\)"
        ):
            make_removal(batch, torch.zeros(5, 5))

    def test_nothing_absent_leaves_the_input_as_it_is(self, batch):
        units = make_units(batch, "elements")
        removal = make_removal(batch, "uniform")
        nobody = torch.zeros(6, units.count, dtype=torch.bool)
        assert torch.equal(removal(units, nobody, torch.arange(6)), batch.inputs)


class TestSharing:
    def test_rows_are_computed_once(self, net, batch):
        engine = make_engine(net, batch)
        cells = make_units(batch, {"grid": {"side": 4}})
        first = engine.respond(cells, each(cells), "zero")
        before = engine.asked
        assert before == 6 + 6 * 16
        again = engine.respond(cells, each(cells), "zero")
        assert engine.asked == before
        assert torch.equal(first.logit, again.logit)

    def test_all_absent_is_one_row_whoever_asks(self, net, batch):
        engine = make_engine(net, batch)
        pixels, cells = make_units(batch, "elements"), make_units(batch, {"grid": {"side": 4}})
        noise = torch.rand(6, 16, 16)
        for units in (pixels, cells):
            for descending in (True, False):
                sets = by_rank(batch, units, units.sum(noise), [0, 1], descending=descending)
                engine.respond(units, sets, "zero")
        assert engine.asked == 6 + 6

    def test_forgetting_keeps_what_is_shared(self, net, batch):
        engine = make_engine(net, batch)
        cells = make_units(batch, {"grid": {"side": 4}})
        engine.respond(cells, each(cells), "zero")
        sets = by_rank(batch, cells, cells.sum(torch.rand(6, 16, 16)), [0.5], descending=True)
        engine.respond(cells, sets, "zero")
        engine.forget()
        before = engine.asked
        engine.respond(cells, each(cells), "zero")
        assert engine.asked == before
        engine.respond(cells, sets, "zero")
        assert engine.asked == before + 6

    def test_another_fill_is_another_row(self, net, batch):
        engine = make_engine(net, batch)
        cells = make_units(batch, {"grid": {"side": 2}})
        a = engine.respond(cells, each(cells), "zero")
        b = engine.respond(cells, each(cells), torch.ones(3))
        assert not torch.allclose(a.logit, b.logit)
        assert engine.asked == 6 + 2 * 6 * 4


class TestForwards:
    def test_answers_equal_a_plain_loop(self, net, batch):
        engine = make_engine(net, batch)
        cells = make_units(batch, {"grid": {"side": 4}})
        answer = engine.respond(cells, each(cells), "zero")
        with torch.no_grad():
            for b, p in ((0, 0), (3, 7), (5, 15)):
                x = batch.inputs[b].clone()
                row, column = divmod(p, 4)
                x[:, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 0
                logits = net(x[None])[0]
                target = batch.targets[b]
                assert answer.logit[b, p] == pytest.approx(logits[target].item(), abs=1e-5)
                assert answer.probability[b, p] == pytest.approx(
                    logits.softmax(0)[target].item(), abs=1e-5
                )
                assert answer.predicted[b, p] == logits.argmax()

    def test_without_targets_the_prediction_is_explained(self, net, images):
        batch = make_batch(images[0])
        engine = make_engine(net, batch)
        assert torch.equal(engine.batch.targets, net(images[0]).argmax(1))

    @pytest.mark.parametrize("size", [1, 7, 64])
    def test_every_call_has_the_fixed_size(self, net, batch, size):
        sizes = []
        net.register_forward_hook(lambda m, i, o: sizes.append(len(i[0])))
        engine = make_engine(net, batch, size)
        cells = make_units(batch, {"grid": {"side": 4}})
        engine.respond(cells, each(cells), "zero")
        assert set(sizes) == {size}
        assert engine.respondent.counter.calls == len(sizes) == -(-6 // size) + -(-96 // size)

    def test_micro_batches_cover_every_pair_once(self):
        seen = []
        for samples, rows, asked in micro_batches(3, 5, 4, torch.device("cpu")):
            assert len(samples) == 4
            seen += list(zip(samples[:asked].tolist(), rows[:asked].tolist(), strict=True))
        assert seen == [(s, r) for s in range(3) for r in range(5)]

    @pytest.mark.parametrize(
        "protocol", ["deletion", "insertion", "single_deletion", "infidelity", "sensitivity_n"]
    )
    def test_the_micro_batch_does_not_matter(self, protocol):
        """Answers within 1e-4 in single precision, scores within 1e-9 on a double network."""
        x, y = make_images(5, size=8)
        noise = torch.rand(5, 8, 8, generator=torch.Generator().manual_seed(0))
        double = LinearImages(dtype=torch.float64)
        deep = make_net().double()
        for net in (double, deep):
            data = (x.double(), y % 3)
            scores = [
                assay.benchmark(
                    net, data, [{"noise": noise}], [protocol], micro_batch=m, progress=False
                )
                .scores["value"]
                .to_numpy()
                for m in (1, 7, 64)
            ]
            assert scores[1] == pytest.approx(scores[0], abs=1e-9)
            assert scores[2] == pytest.approx(scores[0], abs=1e-9)

    def test_responses_hardly_depend_on_the_micro_batch_in_single_precision(self, net, batch):
        cells = make_units(batch, {"grid": {"side": 4}})
        answers = [
            make_engine(net, batch, m).respond(cells, each(cells), "zero").logit for m in (1, 7, 64)
        ]
        for other in answers[1:]:
            assert torch.allclose(other, answers[0], rtol=1e-4, atol=1e-6)


class TestPreparation:
    def test_folding_and_layout_keep_the_answers(self, net, images):
        model = assay.model(net)
        with model.evaluating(), torch.no_grad():
            prepared = prepare_network(model, images[0][:1])
            assert prepared.changes == ("batch-norm folded", "channels last")
            assert torch.allclose(
                model.logits(images[0], net=prepared.net), net(images[0]), atol=1e-5
            )
        assert isinstance(net.bn1, nn.BatchNorm2d)
        assert not any(isinstance(m, nn.BatchNorm2d) for m in prepared.net.modules())

    def test_a_network_that_views_its_activations_stays_plain(self, images):
        class Viewing(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 14 * 14, 3)

            def forward(self, x):
                return self.head(self.conv(x).view(len(x), -1))

        model = assay.model(Viewing())
        with model.evaluating(), torch.no_grad():
            assert prepare_network(model, images[0][:1]).changes == ()
        assay.benchmark(
            model,
            (images[0], images[1] % 3),
            ["saliency", "gradcam"],
            ["single_deletion"],
            progress=False,
        )

    def test_a_batch_norm_used_twice_is_not_folded(self, images):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b, self.bn = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

            def forward(self, x):
                return self.bn(self.b(self.bn(self.a(x)))).mean((2, 3))

        net = Twice()
        net.train()(torch.randn(8, 3, 4, 4) * 3 + 1)
        model = assay.model(net)
        with model.evaluating(), torch.no_grad():
            prepared = prepare_network(model, images[0][:1])
            assert torch.allclose(
                model.logits(images[0], net=prepared.net), net(images[0]), atol=1e-5
            )

    def test_train_mode_and_gradients_are_as_before(self, net, images):
        net.train()
        net.bn1.eval()
        net.head.weight.requires_grad_(False)
        before = {k: v.clone() for k, v in net.state_dict().items()}
        assay.benchmark(net, images, ["saliency", "gradcam"], ["single_deletion"], progress=False)
        assert net.training
        assert net.conv1.training
        assert not net.bn1.training
        assert not net.head.weight.requires_grad
        assert net.conv1.weight.requires_grad
        assert all(p.grad is None for p in net.parameters())
        assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())
        assert not any(m._forward_hooks for m in net.modules())


def test_counter_tells_its_listener():
    heard = []
    counter = Counter(listen=heard.append)
    counter.add(3)
    counter.add(2)
    assert (counter.rows, counter.calls, heard) == (5, 2, [3, 2])
