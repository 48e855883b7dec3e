"""ROAR, KAR and mask leakage: what is removed, the design of ROAD, what masks give away."""

import pytest
import torch
from scipy import stats
from torch import nn

import assay
from assay.conformance.set_protocols import planted_block
from assay.plugins import registry
from assay.protocols import retrain

FEW = {"epochs": 3, "retrainings": 2, "augment": False}
QUIET = {"progress": False}


def means(results) -> dict[str, float]:
    return {row["protocol"]: row["mean"] for row in results.leaderboard()}


def test_both_splits_lose_exact_shares_and_get_the_training_mean():
    exam = planted_block()
    seen = []

    @assay.protocol("spy_for_this_test", scope="set", needs=["training"])
    def spy(trial: assay.Trial) -> assay.Scores:
        """Keep what was removed."""
        train, scored = retrain._splits(trial)
        for batch, maps in ((train, trial.maps("train")), (scored, trial.maps())):
            (inputs,) = retrain._removed(
                batch, maps, "most_relevant_first", (0.0625,), "mean", "elements"
            )
            seen.append((batch.inputs, inputs))
        return assay.Scores(torch.zeros(len(scored), dtype=torch.float64))

    try:
        assay.benchmark(
            exam.net, exam.scored, {"exact": exam.exact}, ["spy_for_this_test"],
            train=exam.train, **QUIET, controls="off",
        )  # fmt: skip
    finally:
        del registry._REGISTERED["protocol"]["spy_for_this_test"]
    fills = set()
    for before, after in seen:
        changed = before != after
        assert torch.equal(changed.flatten(1).sum(1), torch.full((len(before),), 4))
        assert changed[:, :, 3:5, 3:5].all()
        fills |= set(after[changed].tolist())
    assert len(fills) == 1  # one fill for both splits, from the training samples
    assert fills.pop() == pytest.approx(exam.train[0].mean().item(), abs=0.1)


def test_the_design_of_road_with_and_without_retraining():
    """{retrained, not} x {fixed, linear} x {MoRF, LeRF}: an exact map is right in all eight."""
    exam = planted_block()
    fractions, steps = (0.1, 0.5, 0.9), (0, 0.1, 0.5, 0.9, 1)
    design = {}
    for fill in ("mean", "noisy_linear"):
        design[f"roar {fill}"] = {"roar": {**FEW, "fractions": fractions, "fill": fill}}
        design[f"kar {fill}"] = {"kar": {**FEW, "fractions": fractions, "fill": fill}}
    design["morf mean"] = {"accuracy_morf": {"steps": steps, "fill": "mean"}}
    design["lerf mean"] = {"accuracy_lerf": {"steps": steps, "fill": "mean"}}
    design["morf noisy_linear"] = {"road_morf": {"steps": steps}}
    design["lerf noisy_linear"] = {"road_lerf": {"steps": steps}}
    items = [
        {name: {**options, "label": label}}
        for label, item in design.items()
        for name, options in item.items()
    ]
    colour = nn.Sequential(nn.Flatten(), nn.Linear(192, 2, bias=False))
    colour[1].load_state_dict({"weight": exam.net[1].weight.detach().repeat(1, 3) / 3})
    scored, train = ((x.repeat(1, 3, 1, 1), y) for x, y in (exam.scored, exam.train))
    results = assay.benchmark(
        colour,
        scored,
        {"exact": exam.exact, "random": {}},
        items,
        train=train,
        **QUIET,
        controls="off",
    )
    assert not results.failures
    rows = {(r["protocol"], r["method"]): r["mean"] for r in results.leaderboard()}
    for label in design:
        lower = label.startswith(("roar", "morf"))
        exact, random = rows[label, "exact"], rows[label, "random"]
        assert (exact < random) == lower, label


def leaking(n: int, seed: int):
    """The class is where the bright block is; noise elsewhere."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = 0.1 * torch.randn(n, 3, 16, 16, generator=generator)
    x[y == 0, :, 2:8, 2:8] += 1
    x[y == 1, :, 8:14, 8:14] += 1
    return x, y


ONE_CELL = {"masks": "random", "units": {"grid": {"side": 4}}, "fraction": 0.0625}
SCORED = 400
# Three standard errors of an accuracy of one half over the scored samples. What follows compares
# the mean of three networks with it, whose error is smaller.
MARGIN = 3 * (0.25 / SCORED) ** 0.5


def leakages(net, methods, items, n=200):
    """The rows of the leaderboard by label of the protocol and method."""
    results = assay.benchmark(
        net,
        leaking(SCORED, 1),
        methods,
        items,
        train=leaking(n, 2),
        target="predicted",
        **QUIET,
        controls="off",
    )
    assert not results.failures
    rows = {(r["protocol"], r["method"]): r for r in results.leaderboard()}
    assert {row["rank"] for row in rows.values()} == {None}
    return rows


def template():
    """A linear network that is right on all samples of `leaking`."""
    x, y = leaking(400, 3)
    means = torch.stack([x[y == c].mean(0).flatten() for c in (0, 1)])
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 2, bias=False))
    net[1].load_state_dict({"weight": means - means.mean(0)})
    assert (net(x).argmax(1) == y).all()
    return net


def test_masks_of_the_content_leak_and_grid_masks_do_not():
    def brightness(model, batch):
        return batch.inputs.sum(1)

    common = {"epochs": 4, "trainings": 3}
    items = [
        {"mask_leakage": {**common, "fraction": 0.1, "label": "map"}},
        {"mask_leakage": {**common, **ONE_CELL, "label": "grid"}},
    ]
    methods = {"brightness": brightness, "input_x_gradient": {}, "random": {}}
    rows = leakages(template(), methods, items)
    for method in ("brightness", "input_x_gradient"):  # of the content, and of an attribution
        assert rows["map", method]["mean"] == pytest.approx(0.5, abs=0.02)
        assert rows["map", method]["low"] > 0.4
    assert abs(rows["map", "random"]["mean"]) < MARGIN
    assert abs(rows["grid", "random"]["mean"]) < MARGIN
    assert rows["grid", "random"]["low"] < 0 < rows["grid", "random"]["high"]
    assert len({rows["grid", method]["mean"] for method in methods}) == 1  # the same masks for all


def test_borders_of_segments_leak_and_those_of_cells_do_not():
    """IDSDS' reason for a grid: the shape of random segments tells the class."""
    pytest.importorskip("skimage")
    common = {"epochs": 10, "rate": 0.02, "masks": "random", "trainings": 2}
    items = [
        {"mask_leakage": {**common, "units": "slic", "fraction": 0.5, "label": "segments"}},
        {"mask_leakage": {**common, **ONE_CELL, "label": "cell"}},
        {"mask_leakage": {**common, **ONE_CELL, "fraction": 0.5, "label": "cells"}},
    ]
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 2))
    rows = leakages(net, ["random"], items, n=600)
    assert rows["segments", "random"]["mean"] > 2 * MARGIN
    assert abs(rows["cell", "random"]["mean"]) < MARGIN
    assert abs(rows["cells", "random"]["mean"]) < MARGIN


def test_the_interval_of_a_leakage_contains_the_spread_between_trainings():
    item = {"mask_leakage": {"epochs": 2, "trainings": 4, **ONE_CELL}}
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    results = assay.benchmark(
        net, leaking(60, 1), ["random"], [item], train=leaking(200, 2), **QUIET, controls="off"
    )
    rows = results.scores.to_pylist()
    each = [sum(r["value"] for r in rows if r["metric"] == f"training_{s}") / 60 for s in range(4)]
    (row,) = results.leaderboard()
    assert row["mean"] == pytest.approx(sum(each) / 4)
    spread = stats.t.interval(0.95, 3, sum(each) / 4, stats.sem(each))
    assert row["low"] < spread[0] < spread[1] < row["high"]


def test_wrong_fractions_are_refused(recwarn):
    exam = planted_block()
    for fractions in ((0.5, 0.1), (0.0, 0.5), ()):
        item = {"roar": {**FEW, "fractions": fractions}}
        call = (exam.net, exam.scored, {"exact": exam.exact}, [item])
        if fractions == (0.5, 0.1):
            results = assay.benchmark(*call, train=exam.train, **QUIET, controls="off")
            assert "that rise" in results.failures[0]["message"]
        else:
            with pytest.raises(assay.InputError, match="fractions"):
                assay.benchmark(*call, train=exam.train, **QUIET, controls="off")
