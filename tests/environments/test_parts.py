"""The environment of painted parts: what the network learned, and that removal is repainting."""

import functools
import itertools

import numpy as np
import pytest
import torch

import assay
from assay.engine.engine import network_engine
from assay.environments import painter
from assay.environments import parts as environment
from assay.protocols.painted_parts import covered, every_set, minimal_sets
from assay.removal import all_absent, make_removal
from assay.training.several_targets import fit, fitting, several_targets_loss
from assay.training.trained_weights import TrainedWeights
from assay.units.absent import each
from assay.units.features import make_units

CARD = ("scenes", "accuracy", "accuracy_without_one", "background_independence")


@pytest.fixture(scope="module")
def made():
    return assay.environment("parts", samples=12)


@pytest.fixture(scope="module")
def batch(made):
    return made.batch(12, seed=5)


# --- the samples ----------------------------------------------------------------------------------


def test_a_batch_has_what_an_environment_promises(made, batch):
    assert batch.inputs.shape == batch.baseline.shape == (12, 3, 64, 64)
    assert batch.truth.shape == (12, 64, 64)
    assert set(batch.truth.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(batch.targets, batch.labels)
    assert made.batch(3, seed=5).ids == batch.ids[:3]
    assert torch.equal(made.batch(3, seed=5).inputs, batch.inputs[:3])
    assert not torch.equal(made.batch(3, seed=6).inputs, batch.inputs[:3])


def test_no_test_scene_was_trained_on():
    table = environment.class_table()
    trained = {environment._scene(table, environment.TRAINING, 0, i)[1] for i in range(200)}
    tested = {environment._scene(table, environment.TESTING, 0, i)[1] for i in range(200)}
    assert len(trained) == len(tested) == 200
    assert not trained & tested


def test_truth_is_where_parts_are_seen(batch):
    """Inside it every part may change the image; outside a margin of one pixel none does."""
    moved = (batch.inputs != batch.baseline).any(1)
    near = torch.nn.functional.max_pool2d(batch.truth[:, None], 3, 1, 1)[:, 0] > 0
    assert (moved & ~near).sum() <= 0.001 * moved.sum()  # tips of parts finer than a pixel
    same = ~moved & (batch.truth > 0)
    assert same.sum() <= 0.05 * batch.truth.sum()  # a thing of the same colour behind


# --- units and removal ----------------------------------------------------------------------------


def test_units_are_the_parts_and_the_things(batch):
    units = make_units(batch, "parts")
    assert units.count == 5
    assert bool(units.valid.all())
    assert torch.equal(units.index >= 0, batch.truth > 0)
    further = make_units(batch, {"parts": {"things": True}})
    things = [batch.dataset.parts.things(i) for i in batch.ids]
    assert further.valid.sum(1).tolist() == [5 + n for n in things]
    assert torch.equal(torch.where(further.index < 5, further.index, -1), units.index)
    assert further.key != units.key


def test_repainting_the_whole_scene_gives_the_image_bit_for_bit(batch):
    units = make_units(batch, "parts")
    removal, everyone = make_removal(batch, "rerender"), torch.arange(len(batch))
    nobody = torch.zeros(len(batch), 5, dtype=torch.bool)
    assert torch.equal(removal(units, nobody, everyone), batch.inputs)
    assert torch.equal(removal(units, ~nobody, everyone), batch.baseline)
    assert torch.equal(all_absent(batch, "rerender"), batch.baseline)


def test_a_removal_is_the_scene_painted_without_the_part(batch):
    """Only pixels that show something of the part change, whoever else is gone already."""
    units, removal = make_units(batch, "parts"), make_removal(batch, "rerender")
    table = environment.class_table()
    for b in range(4):
        scene = environment._scene(table, environment.TESTING, 5, b)[1]
        for part in range(5):
            absent = torch.zeros(1, 5, dtype=torch.bool)
            absent[0, part] = True
            image = removal(units, absent, torch.tensor([b]))[0]
            painted = painter.paint(scene, 64, frozenset({part}))
            assert torch.equal(image, torch.tensor(painted).permute(2, 0, 1) / 255)
            changed = (image != batch.inputs[b]).any(0).numpy()
            assert changed.any()
            assert not (changed & ~painter.touched(scene, 64, part)).any()


def test_only_whole_parts_can_be_repainted(batch):
    grid, removal = make_units(batch, "grid"), make_removal(batch, "rerender")
    some = torch.zeros(1, 16, dtype=torch.bool)
    some[0, 3] = True
    with pytest.raises(assay.NotApplicable, match="units: parts"):
        removal(grid, some, torch.tensor([0]))


def test_data_without_parts_have_none_to_leave_out(images):
    x, _ = images
    from assay.data.memory import as_dataset

    data = as_dataset((x, None))
    bare = data.batch(data.ids)
    for make in (lambda: make_units(bare, "parts"), lambda: make_removal(bare, "rerender")):
        with pytest.raises(assay.NotApplicable, match="painted of parts"):
            make()


def test_all_sets_of_parts_are_asked_once(made, batch):
    units = make_units(batch, "parts")
    rows = torch.arange(32)
    sets = every_set(units).make(torch.zeros(32, dtype=torch.long), rows)
    assert [sum(1 << k for k in range(5) if row[k]) for row in sets.tolist()] == rows.tolist()
    with made.model.evaluating(), torch.no_grad():
        engine = network_engine(made.model, batch)
        first = engine.respond(units, every_set(units), "rerender")
        asked = engine.asked
        assert asked == len(batch) * (1 + 31)  # the whole image is the clean answer
        engine.respond(units, every_set(units), "rerender")
        assert engine.asked == asked
        one = engine.respond(units, each(units), "rerender")
        parts, chosen = batch.dataset.parts, frozenset({2, 3})
        by_hand = made.net(torch.stack([parts.without(i, chosen) for i in batch.ids]))
    assert torch.equal(first.logit[:, [1, 2, 4, 8, 16]], one.logit)
    expected = by_hand.gather(1, batch.targets[:, None])[:, 0]
    torch.testing.assert_close(first.logit[:, 4 + 8], expected, rtol=1e-4, atol=1e-4)


# --- classes and sufficient sets ------------------------------------------------------------------


def test_minimal_sufficient_sets_by_brute_force():
    table = environment.class_table()
    rows = [tuple(row) for row in table.tolist()]
    subsets = [set(s) for n in range(6) for s in itertools.combinations(range(5), n)]
    shares = covered(table)
    for label in range(len(rows)):
        enough = [
            s
            for s in subsets
            if sum(all(other[k] == rows[label][k] for k in s) for other in rows) == 1
        ]
        minimal = {frozenset(s) for s in enough if not any(t < s for t in enough)}
        assert set(minimal_sets(table, label)) == minimal
        for bits in range(32):
            there = {k for k in range(5) if bits >> k & 1}
            best = max(len(s & there) / len(s) for s in minimal)
            assert shares[label, bits].item() == pytest.approx(best)


def test_classes_that_fit_what_is_left():
    table = environment.class_table()
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 50, (40,), generator=generator)
    absent = torch.rand(40, 5, generator=generator) < 0.5
    absent[0], absent[1] = True, False
    fits = fitting(table, labels, absent)
    for b in range(40):
        for c in range(50):
            kept = [k for k in range(5) if not absent[b, k]]
            assert fits[b, c] == all(table[c, k] == table[labels[b], k] for k in kept)
    assert bool(fits[0].all())
    assert fits[1].nonzero().flatten().tolist() == [labels[1]]


def test_the_loss_is_the_mean_over_the_classes_that_fit():
    logits = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    fits = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    each_class = -logits.log_softmax(1)
    expected = sum(each_class[b][fits[b]].mean() for b in range(3)) / 3
    torch.testing.assert_close(several_targets_loss(logits, fits), expected)


# --- the network ----------------------------------------------------------------------------------


def measured(made, n):
    scenes = functools.partial(environment.draw, environment.class_table(), 64)
    return environment.card(made.net, scenes, n)


def test_the_packaged_network_knows_its_animals(made):
    """Whole ones, and those without a part: these are nothing strange to it."""
    found = measured(made, 60)
    for told in (found, made.card):
        assert told["accuracy"] > 0.9
        assert told["accuracy_without_one"] > 0.9
        assert told["background_independence"] > 0.9


@pytest.mark.slow
def test_the_card_is_what_is_measured(made):
    assert measured(made, 500) == pytest.approx({n: made.card[n] for n in CARD}, abs=0.004)


@pytest.mark.slow
def test_training_with_the_defaults_gives_the_packaged_network(made):
    """Rounding differs between processors, so the weights are not compared but what they do."""
    net = environment.train(environment.class_table(), **environment.TRAINED)
    scenes = functools.partial(environment.draw, environment.class_table(), 64)
    found = environment.card(net, scenes)
    assert found == pytest.approx({n: made.card[n] for n in CARD}, abs=0.03)


def test_training_is_the_same_twice_and_learns():
    """A network so small that it takes seconds: the loss falls, and weights are equal."""
    options = {"size": 32, "images": 256, "epochs": 2, "seed": 1}
    table = environment.class_table()
    first, second = (environment.train(table, TrainedWeights(), **options) for _ in range(2))
    for a, b in zip(first.state_dict().values(), second.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    images, labels, absent = environment.training_images(table, 32, 256, 1)
    fits = fitting(table, labels, absent)
    torch.manual_seed(1)
    untrained = environment.network(32).train()
    with torch.no_grad():
        before = several_targets_loss(untrained(images / 255), fits)
        after = several_targets_loss(first.train()(images / 255), fits)
    assert after < before


def test_half_of_the_images_lack_parts():
    """None to five of them, each as likely."""
    _, _, absent = environment.training_images(environment.class_table(), 32, 1500, 0)
    counts = np.bincount(absent.sum(1).numpy(), minlength=6) / 1500
    assert counts[0] == pytest.approx(0.5 + 1 / 12, abs=0.05)
    assert counts[1:] == pytest.approx(np.full(5, 1 / 12), abs=0.03)
    assert absent.float().mean(0).numpy() == pytest.approx(np.full(5, 0.25), abs=0.05)


def test_training_shows_a_bar(capsys):
    net = environment.network(32)
    images = torch.zeros(64, 3, 32, 32, dtype=torch.uint8)
    fit(net, images, torch.ones(64, 50), epochs=1, seed=0, progress=True)
    assert "training" in capsys.readouterr().err


def test_other_networks_are_trained_not_packaged():
    with pytest.raises(assay.InputError, match="weights: train"):
        assay.environment("parts", size=96)


def test_whether_a_bar_shows_is_no_part_of_an_environment():
    with pytest.raises(assay.InputError, match="progress"):
        assay.environment("parts", progress=False)


def test_a_network_trained_here_is_measured_here():
    options = {"size": 32, "images": 64, "epochs": 1}
    made = assay.environment("parts", weights="train", **options)
    assert made.model.checkpoint == "train"
    assert made.batch(2).inputs.shape == (2, 3, 32, 32)
    assert {name: made.card[name] for name in options} == options
    assert made.card["scenes"] == 500
    assert made.card["accuracy"] < 0.5  # one step is not enough, and it says so
