"""In-domain fine-tuning: the exact augmentation, the card, resuming, and bad input."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy.stats import chisquare
from torch import nn

import assay
from assay.models.weights import load_weights
from assay.training.cell_deletion import without_a_cell
from assay.training.fine_tuning import FineTuning, beside_placebo, in_domain
from assay.training.fitting import fit_network
from assay.training.labelled import read_labelled
from assay.training.network_distance import distance, measure_network, top_overlap
from assay.types import Model

SIDE = 8
PROTOCOL = "in_domain_single_deletion"


class Tiny(nn.Module):
    """A convolution with batch-norm and a head."""

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 8, 3, padding=1)
            self.norm = nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))


def images(n=90, seed=1):
    """Three classes, each brighter in its own channel."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    x = torch.randn(n, 3, SIDE, SIDE, generator=generator)
    x[torch.arange(n), y] += 1.0
    return x, y


@pytest.fixture(scope="module")
def trained():
    model = assay.model(Tiny())
    from assay.training.fitting import Recipe

    fit_network(model, *images(240, 0), Recipe(6, 20, rate=0.1), progress=False)
    return model.net


def tuned(net, **options):
    settings = {"epochs": 2, "rate": 0.02, "progress": False, **options}
    return assay.training.in_domain(net, options.pop("data", images()), **{
        k: v for k, v in settings.items() if k != "data"
    })  # fmt: skip


# --- the augmentation -----------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [2, 4])
def test_each_cell_is_removed_equally_often_and_half_of_the_images_stay_whole(grid):
    change = without_a_cell(assay.model(Tiny()), grid, "zero", 0.5)
    generator = torch.Generator().manual_seed(0)
    x = torch.ones(4000, 3, SIDE, SIDE)
    counts = torch.zeros(grid * grid + 1)
    for _ in range(5):
        gone = change(x, generator) == 0
        assert torch.equal(gone[:, 0], gone[:, 1])  # all channels of a cell
        cells = nn.functional.avg_pool2d(gone[:, 0].float(), SIDE // grid).flatten(1)
        assert set(cells.unique().tolist()) <= {0.0, 1.0}  # whole cells
        assert cells.sum(1).max() == 1  # one at most
        counts[:-1] += cells.sum(0)
        counts[-1] += (cells.sum(1) == 0).sum()
    total, cells = counts.sum().item(), grid * grid
    expected = [total / 2 / cells] * cells + [total / 2]
    assert chisquare(counts.numpy(), expected).pvalue > 1e-3


@pytest.mark.parametrize(
    "fill", ["uniform", {"blur": {"sigma": 1.0}}, "mean", torch.full((3,), 5.0), "normal"]
)
def test_any_fill_stands_where_the_cell_was(fill):
    model, (x, y) = assay.model(Tiny()), images(40)
    samples = read_labelled(model, (x, y)).dataset(model)
    change = without_a_cell(model, 4, fill, 1.0, samples=samples)
    changed = change(x, torch.Generator().manual_seed(0)) != x
    cells = nn.functional.max_pool2d(changed.float().amax(1), 2).flatten(1)
    assert (cells.sum(1) == 1).all()
    again = change(x, torch.Generator().manual_seed(0))
    assert torch.equal(again != x, changed)


def test_random_fills_are_drawn_anew_for_each_batch():
    change = without_a_cell(assay.model(Tiny()), 2, "uniform", 1.0)
    x, generator = torch.full((64, 3, 4, 4), 7.0), torch.Generator().manual_seed(0)
    first, second = (change(x, generator) for _ in range(2))
    values = [set(made[made != 7].tolist()) for made in (first, second)]
    assert len(values[0] & values[1]) < 0.05 * len(values[0])


def test_a_side_that_the_grid_does_not_divide_has_the_cells_of_the_protocol():
    x = torch.ones(300, 3, 10, 7)
    change = without_a_cell(assay.model(Tiny()), 4, "zero", 1.0)
    seen = {tuple(map(tuple, (m == 0).nonzero().tolist())) for m in change(x, gen(0))[:, 0]}
    rows, columns = (torch.arange(side) * 4 // side for side in (10, 7))
    cells = {
        tuple(
            (i, j) for i in range(10) for j in range(7) if rows[i] == row and columns[j] == column
        )
        for row in range(4)
        for column in range(4)
    }
    assert seen == cells
    assert sum(map(len, cells)) == 70  # no pixel is left over


def gen(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("fill", ["zero", "uniform", "blur"])
def test_the_placebo_sees_the_same_batches_whole(fill):
    seen = {}
    for placebo in (False, True):
        model = assay.model(Tiny())
        inner = without_a_cell(model, 4, fill, 0.5, placebo=placebo)
        batches = seen[placebo] = []

        def change(x, generator, inner=inner, batches=batches):
            batches.append((x, inner(x, generator), generator.get_state()))
            return batches[-1][1]

        from assay.training.fitting import Recipe

        fit_network(model, *images(), Recipe(1, 30), change=change, progress=False)
    for (whole, cut, drawn), (same, uncut, also) in zip(seen[False], seen[True], strict=True):
        assert torch.equal(whole, same)
        assert torch.equal(drawn, also)  # the numbers that come next
        assert torch.equal(same, uncut)
        assert not torch.equal(whole, cut)


# --- the result -----------------------------------------------------------------------------------


def test_a_copy_is_tuned_and_its_card_fits_it(trained):
    before = assay.model(trained).weights_hash
    net, card = tuned(trained, grid=2, seed=3)
    assert assay.model(trained).weights_hash == before == card.base_sha256
    assert type(net) is Tiny
    assert assay.model(net, card=card).weights_hash == card.weights_sha256 != before
    assert (card.grid, card.fill, card.probability, card.epochs, card.seed) == (
        2, "zero", 0.5, 2, 3,
    )  # fmt: skip
    assert not card.placebo
    assert card.n == 10
    assert "10 held-out samples of the same data" in card.origin
    assert card.accuracy_before > 0.8
    assert card.worst_patch_after <= card.lowest_patch_after
    assert card.worst_patch_before <= card.lowest_patch_before
    assert 0 < card.mad_softmax < 0.5
    assert 0 <= card.mad_gradcam < 1
    again, same = tuned(trained, grid=2, seed=3)
    assert same == card
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))
    assert tuned(trained, grid=2, seed=4)[1].weights_sha256 != card.weights_sha256


def test_a_model_comes_back_with_its_card_and_measured_samples_are_not_trained_on(trained):
    model = assay.model(trained, name="mine")
    made, card = tuned(model, measure=images(40, 9))
    assert isinstance(made, Model)
    assert made.name == "mine"
    assert made.card["in_domain"] is card
    assert card.n == 40
    assert "trained on 90 samples" in card.origin
    scores = assay.score(made, *images(5, 8), torch.randn(5, SIDE, SIDE), PROTOCOL)
    assert scores.shape == (5,)


def test_a_placebo_and_another_seed_stand_beside_it(trained):
    task = FineTuning.of(trained, images(), measure=images(60, 9), progress=False)
    recipe = task.recipe(epochs=2, rate=0.02)
    _, card = task.fit(recipe)
    _, placebo = task.fit(recipe, placebo=True)
    assert placebo.placebo
    card = beside_placebo(card, placebo)
    card = task.beside_another_seed(card, assay.model(Tiny(5)))
    assert card.placebo_mad_softmax == placebo.mad_softmax
    assert card.seeds_mad_softmax > card.mad_softmax
    assert card.overlap > card.seeds_overlap
    assert card.same_network is not None
    assert card.seeds_sha256 == assay.model(Tiny(5)).weights_hash
    with pytest.raises(assay.InputError, match="placebo"):
        beside_placebo(card, card)
    for name, value in {
        "base_sha256": "another", "grid": 2, "fill": "uniform", "epochs": 3, "rate": 0.1,
        "batch": 4, "n": 20,
    }.items():  # fmt: skip
        with pytest.raises(assay.InputError, match=f"placebo with `{name}`"):
            beside_placebo(card, replace(placebo, **{name: value}))
    other = assay.model(Tiny(5)).weights_hash
    with pytest.raises(assay.InputError, match=rf"{other}.*{card.base_sha256}"):
        task.beside_another_seed(replace(card, base_sha256=other), assay.model(Tiny(5)))


def test_pixels_of_8_bits_and_floats_give_one_result():
    pixels = torch.randint(0, 256, (60, 3, SIDE, SIDE), generator=gen(0)).byte()
    y = torch.arange(60) % 3
    model = assay.model(Tiny(), mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.4])
    from assay.training.fitting import normalised

    floats = normalised(model, pixels)
    first = tuned(model, data=(pixels, y))[1]
    second = tuned(model, data=(floats, y))[1]
    assert first.weights_sha256 == second.weights_sha256
    assert first.mad_softmax == second.mad_softmax


def test_weights_can_be_rounded_before_they_are_measured(trained):
    net, card = tuned(trained, half=True)
    for weight in net.state_dict().values():
        if weight.is_floating_point():
            assert torch.equal(weight, weight.half().float())
    assert assay.model(net).weights_hash == card.weights_sha256


def test_weights_that_half_precision_cannot_hold_are_refused():
    net = Tiny()
    net.norm.running_var.fill_(1e9)
    with pytest.raises(assay.InputError, match=r"65504.*`norm.running_var`"):
        tuned(net, half=True, epochs=1)


def test_worst_and_lowest_patch_by_hand():
    """A linear network: what is left of the logits without each cell is known."""
    from assay.conformance.worlds import LinearImages

    net = LinearImages()
    x = torch.randn(30, 3, 8, 8, generator=gen(2))
    y = net(x).argmax(1)
    model = assay.model(net)
    measured = measure_network(model, read_labelled(model, (x, y)), 2, "zero", progress=False)
    right, lowest = [], []
    for i in range(30):
        answers = []
        for row in range(2):
            for column in range(2):
                cut = x[i].clone()
                cut[:, row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 0
                answers.append(net(cut[None])[0].detach())
        right.append(all(a.argmax() == y[i] for a in answers))
        low = min(answers, key=lambda a: a[y[i]])
        lowest.append(bool(low.argmax() == y[i]))
    assert measured.accuracy == 1
    assert measured.all_right.tolist() == right
    assert measured.lowest_right.tolist() == lowest
    assert measured.maps is None  # there is no spatial layer
    softmax = net(x).softmax(1).gather(1, y[:, None])[:, 0]
    assert torch.allclose(measured.probability, softmax.detach(), atol=1e-6)


def test_gradcam_maps_are_compared_at_the_layer_s_resolution():
    one, other = assay.model(Tiny(0)), assay.model(Tiny(1))
    samples = read_labelled(one, images(25))
    first, second = (measure_network(m, samples, 2, "zero", progress=False) for m in (one, other))
    assert first.maps.shape == (25, SIDE, SIDE)
    enlarged = assay.explain(one, *images(25), "gradcam")  # here the layer has the image's size
    low, high = enlarged.amin((1, 2), keepdim=True), enlarged.amax((1, 2), keepdim=True)
    assert torch.allclose(first.maps, (enlarged - low) / (high - low + 1e-8), atol=1e-5)
    far = distance(first, second)
    assert far.mad_gradcam == pytest.approx((first.maps - second.maps).abs().mean().item())
    assert distance(first, first) == replace(far, mad_softmax=0.0, mad_gradcam=0.0, overlap=1.0)


def test_overlap_of_top_samples():
    values = torch.randn(40, 3, generator=gen(0))
    assert top_overlap(values, values * 2 + 1) == 1
    assert top_overlap(values, -values) == 0
    half = values.clone()
    half[:, 0] = -values[:, 0]
    assert top_overlap(values, half) == pytest.approx(2 / 3)
    assert top_overlap(values, torch.zeros(40, 3)) is None
    assert top_overlap(values[:19], values[:19]) is None
    assert top_overlap(values, values[:, :2]) is None


def test_the_published_schedule_is_the_default_for_many_samples(trained):
    task = FineTuning.of(trained, images(), progress=False)
    short = task.recipe()
    assert (short.epochs, short.schedule) == (5, "cosine")
    many = replace(task, training=replace(task.training, ids=("x",) * 100_000))
    recipe = many.recipe()
    assert (recipe.epochs, recipe.batch, recipe.rate, recipe.decay) == (30, 256, 1e-3, 1e-4)
    assert (recipe.schedule, recipe.every, recipe.nesterov) == ("steps", 10, False)
    many.model.net.explanation_mode = lambda: None
    assert many.recipe().rate == pytest.approx(1e-2 / 3)  # the loss is a sum over three classes
    assert many.recipe().decay == pytest.approx(3e-4)
    assert task.recipe().rate == 1e-2
    del many.model.net.explanation_mode


# --- resuming -------------------------------------------------------------------------------------

KILLED = """
import sys, torch
sys.path.insert(0, sys.argv[1])
torch.set_num_threads(1)
from test_in_domain import Tiny, images
from assay.training import in_domain
net, card = in_domain(
    Tiny(), images(2000), epochs=4, rate=0.02, batch=8, checkpoint=sys.argv[2], progress=False
)
print(card.weights_sha256)
"""


def start(checkpoint):
    here = str(Path(__file__).parent)
    return subprocess.Popen(
        [sys.executable, "-c", KILLED, here, str(checkpoint)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_a_killed_process_started_again_ends_with_the_same_weights(tmp_path):
    whole = start(tmp_path / "whole.safetensors").communicate(timeout=300)[0]
    path = tmp_path / "killed.safetensors"
    process = start(path)
    while not path.is_file():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=60)
    assert process.returncode == -signal.SIGKILL
    unfinished = hashlib.sha256(path.read_bytes()).hexdigest()
    again = start(path).communicate(timeout=300)[0]
    assert again == whole
    assert len(whole.strip()) == 16
    assert hashlib.sha256(path.read_bytes()).hexdigest() != unfinished


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((images()[0], None), "labels"),
        ((images()[0].mul(50).byte(), None), "labels"),
        ((torch.randn(20, 5), torch.zeros(20).long()), "no cells"),
        ((["a text"] * 20, [0] * 20), "no cells"),
        (images(7), "at least 8 samples"),
        ((images()[0], images()[1] + 1), "from 0 to 2"),
        ((images()[0][:, :2], images()[1]), "cannot run on inputs of shape"),
    ],
)
def test_bad_data_are_refused(trained, data, message):
    with pytest.raises(assay.InputError, match=message):
        tuned(trained, data=data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": 1}, "grid"),
        ({"grid": 9}, "at most 8 cells"),
        ({"fill": "nothing"}, "Unknown fill"),
        ({"fill": "rerender"}, "in domain without fine-tuning"),
        ({"probability": 0.0}, "probability"),
        ({"held_out": 1.0}, "held_out"),
        ({"epochs": -1}, "epochs"),
        ({"epochs": 0}, "`epochs` to be at least 1, got 0"),
        ({"batch": 0}, "`batch` to be at least 1, got 0"),
        ({"rate": 0.0}, "`rate` to be a number above 0, got 0"),
        ({"rate": -0.1}, "rate"),
        ({"device": "nowhere"}, "device"),
    ],
)
def test_bad_options_are_refused(trained, options, message):
    with pytest.raises(assay.InputError, match=message):
        tuned(trained, **options)


def test_a_network_without_weights_to_train_is_refused(trained):
    class Fixed(nn.Module):
        def forward(self, x):
            return x.mean((2, 3))

    with pytest.raises(assay.InputError, match="weights that take gradients"):
        tuned(Fixed())


def test_a_diverging_rate_stops_and_keeps_the_checkpoint(trained, tmp_path):
    path = tmp_path / "resume.safetensors"
    x, y = images()
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 30), nn.Linear(30, 3))
    with pytest.raises(assay.InputError, match="finite loss"):
        tuned(linear, data=(x * 100, y), rate=1e9, epochs=20, checkpoint=path)
    if path.is_file():
        from safetensors.torch import load_file

        assert all(torch.isfinite(t).all() for t in load_file(path).values())
    assert all(torch.isfinite(p).all() for p in linear.parameters())


def test_lost_accuracy_is_a_warning(trained):
    with pytest.warns(RuntimeWarning, match="lowered the accuracy"):
        tuned(trained, rate=30.0, epochs=3)


def test_both_ways_of_importing_it_work():
    code = "import assay; print(assay.training.in_domain.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "in_domain"
    from assay.training import in_domain as imported

    assert imported is in_domain
    with pytest.raises(AttributeError, match="no attribute"):
        _ = assay.training.nothing


def test_stored_weights_fit_the_card(trained, tmp_path):
    net, card = tuned(trained)
    from safetensors.torch import save_file

    save_file(net.state_dict(), tmp_path / "w.safetensors")
    fresh = Tiny(9)
    load_weights(fresh, tmp_path / "w.safetensors")
    assert assay.model(fresh, card=card).weights_hash == card.weights_sha256
