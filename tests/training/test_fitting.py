"""Training by a recipe: the same for a seed, resumed to the bit, stopped before it diverges."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import assay
from assay.training.augmentation import augment
from assay.training.fitting import Recipe, fit_network, loss_of, normalised
from assay.training.resuming import Resumable

RECIPE = Recipe(epochs=3, batch=16, rate=0.05)


class Small(nn.Module):
    """Convolution, batch-norm and dropout: everything that has a state or random numbers."""

    def __init__(self, seed=0, outputs=3):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv = nn.Conv2d(3, 6, 3, padding=1)
            self.norm = nn.BatchNorm2d(6)
            self.drop = nn.Dropout(0.2)
            self.head = nn.Linear(6, outputs)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.head(self.drop(x.mean((2, 3))))


def data(n=70, side=8):
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(n) % 3
    pixels = torch.randint(0, 120, (n, 3, side, side), generator=generator)
    pixels[torch.arange(n), labels] += 100
    return pixels.byte(), labels


def small(**options):
    return assay.model(Small(**options), mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.25])


def fitted(recipe=RECIPE, inputs=None, model=None, **options):
    model = small() if model is None else model
    pixels, labels = data()
    losses = fit_network(
        model, pixels if inputs is None else inputs, labels, recipe, progress=False, **options
    )
    return model, losses


def same(a, b):
    ours, theirs = a.net.state_dict(), b.net.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("schedule", ["cosine", "steps"])
def test_it_learns_and_a_seed_gives_the_same_weights(optimizer, schedule):
    recipe = Recipe(8, batch=16, optimizer=optimizer, rate=0.05, schedule=schedule, every=5)
    first, losses = fitted(recipe, seed=3)
    torch.manual_seed(9)  # the global random numbers do not matter, and are not used up
    state = torch.get_rng_state()
    second, again = fitted(recipe, seed=3)
    assert torch.equal(state, torch.get_rng_state())
    assert same(first, second)
    assert losses == again
    assert losses[-1] < 0.7 * losses[0]
    assert not any(module.training for module in first.net.modules())
    assert not same(first, fitted(recipe, seed=4)[0])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("stopped", [1, 2])
def test_a_killed_training_ends_with_the_weights_of_an_uninterrupted_one(
    tmp_path, optimizer, stopped
):
    recipe = replace(RECIPE, optimizer=optimizer)
    whole, losses = fitted(recipe, seed=5)

    def kill(epoch):
        if epoch == stopped:
            raise KeyboardInterrupt

    path = tmp_path / "deep" / "resume.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fitted(recipe, seed=5, checkpoint=path, each_epoch=kill)
    epochs = []
    resumed, again = fitted(recipe, seed=5, checkpoint=path, each_epoch=epochs.append)
    assert epochs == list(range(stopped + 1, 4))
    assert same(whole, resumed)
    assert again == losses
    finished, third = fitted(recipe, seed=5, checkpoint=path, each_epoch=epochs.append)
    assert epochs == list(range(stopped + 1, 4))
    assert same(whole, finished)
    assert third == losses
    assert [file.name for file in path.parent.iterdir()] == ["resume.safetensors"]


def test_a_kill_within_an_epoch_loses_that_epoch_only(tmp_path):
    path = tmp_path / "resume.safetensors"
    calls = []

    def change(x, generator):
        calls.append(torch.rand(1, generator=generator))
        if len(calls) == 6:  # in the second epoch
            raise KeyboardInterrupt
        return x

    with pytest.raises(KeyboardInterrupt):
        fitted(checkpoint=path, change=change)
    resumed, _ = fitted(checkpoint=path, change=change)
    assert same(resumed, fitted(change=change)[0])


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    path = tmp_path / "resume.safetensors"
    fitted(checkpoint=path)
    others = [
        {"seed": 1},
        {"recipe": replace(RECIPE, rate=0.01)},
        {"about": "one cell"},
        {"inputs": data()[0].flip(0)},
        {"model": assay.model(Small(), mean=[0.4, 0.5, 0.6], std=[0.2, 0.3, 0.5])},
        {"model": replace(small(), output=lambda logits: logits)},
        {"model": replace(small(), output=lambda logits: 2 * logits)},
    ]
    for other in others:
        before = path.read_bytes()
        with pytest.raises(assay.InputError, match="belongs to another"):
            fitted(checkpoint=path, **other)
        assert path.read_bytes() == before


def test_a_damaged_checkpoint_is_named(tmp_path):
    path = tmp_path / "resume.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(assay.InputError, match="Delete it to start again"):
        fitted(checkpoint=path)


def test_pixels_of_8_bits_give_the_weights_of_their_floats():
    model = small()
    floats = normalised(model, data()[0])
    assert floats.dtype == torch.float32
    by_bytes, losses = fitted(seed=2)
    by_floats, again = fitted(seed=2, inputs=floats)
    assert losses == again
    assert same(by_bytes, by_floats)


def test_pixels_of_8_bits_are_normalised_per_channel():
    x = data()[0]
    mean, std = (torch.tensor(v)[:, None, None] for v in ((0.4, 0.5, 0.6), (0.2, 0.3, 0.25)))
    assert torch.allclose(normalised(small(), x), (x / 255 - mean) / std, atol=1e-6)


def test_pixels_of_8_bits_need_the_normalisation():
    pixels, labels = data()
    with pytest.raises(assay.InputError, match="mean="):
        fit_network(assay.model(Small()), pixels, labels, RECIPE, progress=False)


def test_a_diverging_rate_stops_and_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "resume.safetensors"
    seen = {}

    def explode(x, generator):
        return x * (math.inf if seen else 1)

    def keep(epoch):
        seen[epoch] = path.read_bytes()

    model = small()
    with pytest.raises(assay.InputError, match=r"epoch 2 of 3.*after epoch 1.*0.005.*`--out`"):
        fit_network(
            model, *data(), RECIPE, change=explode, checkpoint=path, each_epoch=keep, progress=False
        )
    assert path.read_bytes() == seen[1]
    one = small()
    key = fit_key(path)
    Resumable(path, key).load(one.net, torch.optim.SGD(one.net.parameters(), momentum=0.9))
    assert same(model, one)  # the network too has the weights of the last good epoch


def fit_key(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        return file.metadata()["key"]


def test_a_rate_that_is_far_too_high_stops():
    model = assay.model(nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Linear(32, 3)))
    start = {name: w.clone() for name, w in model.net.state_dict().items()}
    x = torch.randn(64, 3, 8, 8)
    with pytest.raises(assay.InputError, match="smaller rate"):
        fit_network(model, x, torch.arange(64) % 3, Recipe(50, 16, rate=1e6), progress=False)
    assert all(torch.isfinite(w).all() for w in model.net.state_dict().values())
    assert start.keys() == model.net.state_dict().keys()


def test_bad_data_are_refused():
    pixels, labels = data()
    cases = [
        ((pixels, labels + 1), "from 0 to 2"),
        ((pixels, labels.float()), "one class number"),
        ((pixels, labels[:5]), "one class number"),
        ((pixels[:1], labels[:1]), "at least 2"),
    ]
    for given, message in cases:
        with pytest.raises(assay.InputError, match=message):
            fit_network(small(), *given, RECIPE, progress=False)
    frozen = small()
    frozen.net.requires_grad_(False)
    with pytest.raises(assay.InputError, match="requires_grad"):
        fit_network(frozen, pixels, labels, RECIPE, progress=False)


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"epochs": 1, "rate": math.nan}, {"epochs": 1, "decay": -1.0}]
)
def test_a_recipe_without_sense_is_refused(wrong):
    with pytest.raises(assay.InputError):
        Recipe(**wrong)


def test_rates_follow_the_schedule():
    cosine = Recipe(10, rate=1.0)
    rates = [cosine.rate_at(step, 10) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.5 * (1 + math.cos(0.04 * math.pi))])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] < 0.001
    steps = Recipe(30, rate=1e-3, schedule="steps")
    assert [steps.rate_at(100 * epoch, 100) for epoch in (0, 9, 10, 29)] == pytest.approx(
        [1e-3, 1e-3, 1e-4, 1e-5]
    )


def test_losses_of_one_output_and_of_bcos_networks():
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    model = small()
    ordinary = nn.functional.cross_entropy(logits, labels)
    assert torch.allclose(loss_of(model, logits, labels), ordinary)
    single = torch.randn(4, 1)
    pair = torch.cat([-single, single], 1)
    expected = nn.functional.binary_cross_entropy_with_logits(
        single[:, 0], torch.tensor([0.0, 1, 1, 0])
    )
    assert torch.allclose(loss_of(model, pair, torch.tensor([0, 1, 1, 0]), True), expected)
    model.net.explanation_mode = lambda: None
    target = nn.functional.one_hot(labels, 3).float()
    each = nn.functional.binary_cross_entropy_with_logits(logits, target) * 3
    assert torch.allclose(loss_of(model, logits, labels), each)


def test_vectors_are_trained_on_too():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 4, generator=generator)
    losses = fit_network(
        assay.model(nn.Linear(4, 2)), x, (x[:, 0] > 0).long(), Recipe(5, 10, rate=0.5),
        progress=False,
    )  # fmt: skip
    assert losses[-1] < losses[0]


def test_crops_and_mirrors_are_of_the_image_itself():
    x = torch.arange(2 * 3 * 32 * 32.0).reshape(2, 3, 32, 32)
    generator = torch.Generator().manual_seed(0)
    made = [augment(x, generator) for _ in range(40)]
    assert all(m.shape == x.shape for m in made)
    padded = torch.nn.functional.pad(x[:1], (4, 4, 4, 4), mode="reflect")[0]
    windows = {
        (i, j, mirrored): padded[:, i : i + 32, j : j + 32].flip([2] if mirrored else [])
        for i in range(9)
        for j in range(9)
        for mirrored in (False, True)
    }
    found = [[k for k, w in windows.items() if torch.equal(m[0], w)] for m in made]
    assert all(len(k) == 1 for k in found)
    assert len({k[0][0] for k in found}) > 5
    assert {k[0][2] for k in found} == {False, True}


def test_sides_may_differ_and_bytes_stay_bytes():
    x = torch.arange(3 * 16 * 24).reshape(1, 3, 16, 24).byte()
    generator = torch.Generator().manual_seed(0)
    made = augment(x, generator)
    assert made.shape == x.shape
    assert made.dtype == torch.uint8
