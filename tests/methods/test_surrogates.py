"""LIME and KernelSHAP: exact values by brute force, closed forms, what is asked and shared."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.conformance.worlds import bag_of_words, make_texts, padded, word_shares
from assay.data.memory import as_dataset
from assay.engine.engine import network_engine
from assay.errors import InputError
from assay.methods.attribution import attribute
from assay.suite.spec import choose_one
from small_worlds import LinearImages, make_images, make_net


class Game(nn.Module):
    """f(x) of players 1 (there) and 0 (gone): shares, one term of two players, one of three."""

    def __init__(self, players: int, additive: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(players)
        worth = torch.randn(players, generator=generator, dtype=torch.float64)
        self.worth = nn.Parameter(worth, requires_grad=False)
        self.additive = additive

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        value = x @ self.worth + 0.3
        if not self.additive:
            value = value + 2 * x[:, 0] * x[:, 1] - x[:, 1] * x[:, 2] * x[:, 3] + value.tanh()
        return torch.stack([value, -value], 1)


def shapley_by_permutations(value, players: int) -> np.ndarray:
    """The mean gain of each player over every order in which they may come."""
    shares = np.zeros(players)
    for order in itertools.permutations(range(players)):
        there = np.zeros(players)
        before = value(there)
        for player in order:
            there[player] = 1
            after = value(there)
            shares[player] += after - before
            before = after
    return shares / math.factorial(players)


@pytest.mark.parametrize("additive", [True, False])
@pytest.mark.parametrize("players", [4, 6])
def test_kernel_shap_is_the_mean_over_all_orders(players, additive):
    game = Game(players, additive)

    def value(there: np.ndarray) -> float:
        return game(torch.tensor(there)[None])[0, 0].item()

    x = torch.ones(1, players, dtype=torch.float64)
    exact = shapley_by_permutations(value, players)
    ours = assay.explain(game, x, [0], "kernel_shap", samples=2**players)[0]
    assert ours.numpy() == pytest.approx(exact, abs=1e-12)
    if additive:
        assert ours.numpy() == pytest.approx(game.worth.numpy(), abs=1e-12)


def test_few_sets_are_enough_for_a_game_without_teams():
    """Any sets that span the units find the shares of an additive game, drawn ones too."""
    game, x = Game(12, additive=True), torch.ones(1, 12, dtype=torch.float64)
    ours = assay.explain(game, x, [0], "kernel_shap", samples=60)[0]
    assert ours.numpy() == pytest.approx(game.worth.numpy(), abs=1e-9)


def test_drawn_sets_come_near_the_exact_values():
    """More sets come nearer; sizes weigh as the kernel says, whether complete or drawn."""
    game, x = Game(10, additive=False), torch.ones(1, 10, dtype=torch.float64)
    exact = assay.explain(game, x, [0], "kernel_shap", samples=1024)
    errors = []
    for samples in (40, 160, 640):
        drawn = torch.cat(
            [assay.explain(game, x, [0], "kernel_shap", samples=samples, seed=s) for s in range(20)]
        )
        assert not torch.equal(drawn[0], drawn[1])  # each seed has sets of its own
        bias = (drawn.mean(0) - exact[0]).abs().max()
        noise = drawn.std(0).max() / math.sqrt(20)
        assert bias < 4 * noise
        errors.append((drawn - exact).square().mean().sqrt().item())
    assert errors[0] > 1.5 * errors[1] > 2.25 * errors[2]


@pytest.mark.parametrize("samples", [4, 20, 300, 1024])
def test_kernel_shap_sums_to_what_there_is(samples):
    """To the last digits, however few sets were asked."""
    net, (x, y) = make_net().double(), make_images(4)
    x = x.double()
    maps = assay.explain(net, x, y, "kernel_shap", samples=samples)
    with torch.no_grad():
        total = (net(x) - net(torch.zeros_like(x))).gather(1, y[:, None])[:, 0]
    assert maps.sum((1, 2)).numpy() == pytest.approx(total.numpy(), abs=1e-12)


def test_units_that_do_the_same_get_the_same():
    """Symmetry and the null player, with all sets asked."""

    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = (x[:, 0] * x[:, 1]).relu() + x[:, 2] ** 2
            return torch.stack([score, -score], 1)

    x = torch.tensor([[2.0, 2.0, 1.0, 5.0]])
    a, b, c, d = assay.explain(Pair(), x, [0], "kernel_shap")[0].tolist()
    assert (a, b, c, d) == pytest.approx((2.0, 2.0, 1.0, 0.0), abs=1e-6)


@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("units", [{"grid": {"side": 4}}, "elements"])
def test_lime_recovers_a_linear_model_of_units(units, distance):
    """f(x) = w x is linear in which units are there: the coefficient is the unit's share."""
    net, (x, y) = LinearImages(dtype=torch.float64), make_images(3, size=8)
    x, y = x.double(), y % 3
    shares = (x * net.weight[y]).sum(1).detach()
    options = {"ridge": 0, "output": "logit", "distance": distance, "units": units}
    ours = assay.explain(net, x, y, "lime", samples=200, spread="share", **options)
    if units == "elements":
        assert torch.allclose(ours, shares, atol=1e-9)
    else:
        cells = nn.functional.avg_pool2d(shares[:, None], 2)[:, 0]
        cells = cells.repeat_interleave(2, 1).repeat_interleave(2, 2)
        assert torch.allclose(ours, cells, atol=1e-9)
        full = assay.explain(net, x, y, "lime", samples=200, **options)
        assert torch.allclose(full, 4 * cells, atol=1e-9)


def asked_of_the_engine(net, x, y, item, **engine_options):
    """The maps, and the engine that was asked, all rows in its memory."""
    model, data = assay.model(net), as_dataset((x, y))
    batch = data.batch(data.ids)
    with model.evaluating(), torch.no_grad():
        engine = network_engine(model, batch, **engine_options)
        engine.clean  # noqa: B018  # in a run it is asked for first
        return attribute(engine.model, batch, choose_one("method", item), engine), engine, model


def masks_of(batch, key: str, samples: int, units: int) -> list[np.ndarray]:
    """LIME's sets from the same random numbers, told independently."""
    made = []
    for b in range(len(batch)):
        there = batch.stream(b, f"coin tosses {key}").uniform(samples - 1, units).numpy() >= 0.5
        made.append(np.concatenate([np.ones((1, units), bool), there]))
    return made


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_lime_is_weighted_ridge_regression(ridge):
    """Against the augmented normal equations with an intercept, one image and one set at a time."""
    net, (x, y) = make_net().double(), make_images(3)
    x, samples = x.double(), 80
    item = {"lime": {"samples": samples, "units": {"grid": {"side": 4}}, "ridge": ridge}}
    ours, engine, _ = asked_of_the_engine(net, x, y, item)
    for b, there in enumerate(masks_of(engine.batch, "grid(4x4)", samples, 16)):
        large = torch.tensor(there.reshape(-1, 4, 4)).repeat_interleave(4, 1)
        large = large.repeat_interleave(4, 2)[:, None]
        with torch.no_grad():
            answers = net(x[b] * large).softmax(1)[:, y[b]].numpy()
        away = 1 - there.sum(1) / np.sqrt(there.sum(1) * 16.0)
        weight = np.sqrt(np.exp(-(away**2) / 0.25**2))
        design = np.c_[np.ones(samples), there]
        penalty = ridge * np.diag([0.0] + [1.0] * 16)
        normal = design.T @ (weight[:, None] * design) + penalty
        coefficients = np.linalg.solve(normal, design.T @ (weight * answers))[1:]
        assert ours[b, ::4, ::4].flatten().numpy() == pytest.approx(coefficients, abs=1e-9)


def test_answers_are_shared_by_all_fits():
    """Another kernel, penalty, output or fewer samples asks nothing; other sets do."""
    net, (x, y) = make_net(), make_images(3)
    _, engine, model = asked_of_the_engine(net, x, y, {"lime": {"samples": 60}})
    asked = engine.asked
    assert asked == 3 * 60  # 59 sets and the clean answer

    def ask(name: str, **options) -> int:
        before = engine.asked
        with model.evaluating(), torch.no_grad():
            attribute(engine.model, engine.batch, choose_one("method", {name: options}), engine)
        return engine.asked - before

    for options in ({"ridge": 0}, {"output": "logit"}, {"width": 1.0, "distance": "euclidean"}):
        assert ask("lime", samples=60, **options) == 0
    assert ask("lime", samples=30) == 0
    assert ask("lime", samples=70) == 3 * 10
    assert ask("kernel_shap", samples=40) == 3 * 39
    assert ask("kernel_shap", samples=40, output="probability") == 0


def test_texts_of_different_lengths():
    """A bag of words is additive in its tokens: both methods find each word's share."""
    model, (texts, labels) = bag_of_words(), make_texts(6)
    ids = padded(model, texts)
    exact = word_shares(model, ids, torch.tensor(labels))
    exact[model.tokens.special_at(ids)] = 0  # never removed
    lime = {"lime": {"output": "logit", "ridge": 0, "samples": 200}}
    for method in (lime, "kernel_shap", {"kernel_shap": {"samples": 100}}):
        maps = assay.explain(model, texts, labels, method)
        assert torch.allclose(maps, exact, atol=1e-5)
    masked = assay.explain(model, texts, labels, "kernel_shap", fill="mask")
    assert torch.allclose(masked, exact, atol=1e-5)  # special tokens say nothing here


def test_segments_differ_in_number_and_neighbours_do_not_matter():
    pytest.importorskip("skimage")
    generator = torch.Generator().manual_seed(4)
    coarse = torch.randn(4, 3, 5, 5, generator=generator)
    x = nn.functional.interpolate(coarse, (16, 16))
    net, y = make_net(), torch.tensor([0, 1, 2, 3])
    units = {"felzenszwalb": {"scale": 1.0, "sigma": 0.2, "min_size": 9}}
    for name in ("lime", "kernel_shap"):
        options = {"units": units, "samples": 200}
        together = assay.explain(net, x, y, name, **options)
        for b in range(4):
            data = as_dataset((x, y))
            model, batch = assay.model(net), data.batch(data.ids[b : b + 1])
            with model.evaluating(), torch.no_grad():
                alone = attribute(model, batch, choose_one("method", {name: options}))
            assert torch.equal(alone[0], together[b])


@pytest.mark.parametrize(
    ("method", "protocol", "status"),
    [
        ("kernel_shap", "sensitivity_n", "circular"),
        ({"lime": {"output": "logit", "samples": 50}}, "sensitivity_n", "circular"),
        ({"lime": {"output": "logit", "samples": 50}}, "infidelity", "circular"),
        ({"lime": {"samples": 50}}, "sensitivity_n", "ok"),  # reads the probability
        ({"kernel_shap": {"fill": "mean"}}, "faithfulness_correlation", "ok"),
        ("kernel_shap", "single_deletion", "ok"),  # fitted to sets, not to units alone
        ("occlusion", "sensitivity_n", "ok"),
    ],
)
def test_methods_fitted_to_random_sets_are_circular_where_such_sets_judge(
    linear, method, protocol, status
):
    net, x, _, _ = linear
    y = net(x).argmax(1)
    results = assay.benchmark(net, (x, y), [method, "random"], [protocol], progress=False)
    found = {r["status"] for r in results.scores.to_pylist() if r["method"] != "random"}
    assert found == {status}


def test_on_images_the_units_must_be_the_same(linear_images):
    net, x, _, _ = linear_images
    y = net(x).argmax(1)
    cells = {"units": {"grid": {"side": 4}}, "samples": 50}
    results = assay.benchmark(
        net, (x, y), [{"kernel_shap": cells}],
        [{"sensitivity_n": {"grid": 4, "label": "same"}}, "sensitivity_n", "infidelity"],
        progress=False, controls="off",
    )  # fmt: skip
    found = {(r["protocol"], r["status"]) for r in results.scores.to_pylist()}
    assert found == {("same", "circular"), ("sensitivity_n", "ok"), ("infidelity", "ok")}


def test_the_dry_run_counts_every_set():
    """Some texts have few enough words for all sets, others do not; fits share their answers."""
    model, (texts, labels), rows = bag_of_words(hidden=4), make_texts(6), []
    methods = [
        {"lime": {"samples": 20}}, {"lime": {"samples": 20, "ridge": 0, "label": "unpenalised"}},
        {"kernel_shap": {"samples": 64}},
    ]  # fmt: skip
    said = assay.dry_run(
        model, (texts, labels), methods, ["single_deletion"], micro_batch=1, time_it=False
    )
    model.net.register_forward_hook(lambda m, i, o: rows.append(len(i[0])))
    with pytest.warns(RuntimeWarning, match="hardly above chance"):
        assay.benchmark(
            model, (texts, labels), methods, ["single_deletion"], micro_batch=1, progress=False
        )
    assert sum(rows) == said.forwards
    assert said.method_rows["lime[samples=20]"] == 6 * 19
    assert said.method_rows["unpenalised"] == 0


def test_what_cannot_be():
    net, (x, y) = make_net(), make_images(2)
    for options, message in (
        ({"samples": 1}, "`samples` of method `lime` to be greater than or equal to 2"),
        ({"width": 0}, "`width` of method `lime` to be greater than 0"),
        ({"distance": "manhattan"}, "'cosine' or 'euclidean'"),
    ):
        with pytest.raises(InputError, match=message):
            assay.explain(net, x, y, "lime", **options)


def test_one_unit_gets_all_there_is():
    """A game of one player."""
    model = bag_of_words()
    texts = ["good", "the film was great"]
    maps = assay.explain(model, texts, [1, 1], "kernel_shap")
    alone = assay.explain(model, texts[:1], [1], "occlusion")
    assert maps[0].sum() == pytest.approx(alone[0].sum().item(), abs=1e-5)
