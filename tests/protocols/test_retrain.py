"""ROAR, KAR and mask leakage: what is removed, the design of ROAD, what masks give away."""

import pytest
import torch
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
            train=exam.train, **QUIET,
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
        colour, scored, {"exact": exam.exact, "random": {}}, items, train=train, **QUIET
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


def test_masks_of_the_content_leak_and_grid_masks_do_not():
    def brightness(model, batch):
        return batch.inputs.sum(1)

    grid = {"masks": "random", "units": {"grid": {"side": 4}}, "fraction": 0.0625}
    items = [
        {"mask_leakage": {"epochs": 4, "fraction": 0.1, "label": "map"}},
        {"mask_leakage": {"epochs": 4, **grid, "label": "grid"}},
    ]
    net = nn.Sequential(nn.Flatten(), nn.Linear(768, 2))
    results = assay.benchmark(
        net, leaking(100, 1), {"brightness": brightness, "random": {}}, items,
        train=leaking(200, 2), **QUIET,
    )  # fmt: skip
    rows = {(r["protocol"], r["method"]): r for r in results.leaderboard()}
    assert rows["map", "brightness"]["mean"] == pytest.approx(0.5, abs=0.02)
    assert abs(rows["map", "random"]["mean"]) < 0.2
    assert abs(rows["grid", "brightness"]["mean"]) < 0.2
    assert rows["grid", "brightness"]["mean"] == rows["grid", "random"]["mean"]
    assert {row["rank"] for row in rows.values()} == {None}


def test_borders_of_segments_leak_and_those_of_cells_do_not():
    pytest.importorskip("skimage")
    common = {"epochs": 10, "rate": 0.02, "masks": "random", "fraction": 0.5}
    items = [
        {"mask_leakage": {**common, "units": "slic", "label": "segments"}},
        {"mask_leakage": {**common, "units": {"grid": {"side": 4}}, "label": "cells"}},
    ]
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2048, 2))
    results = assay.benchmark(
        net, leaking(200, 1), ["random"], items, train=leaking(600, 2), **QUIET
    )
    rows = {row["protocol"]: row for row in results.leaderboard()}
    assert rows["segments"]["low"] > 0.1
    assert rows["cells"]["low"] < 0.05


def test_wrong_fractions_are_refused(recwarn):
    exam = planted_block()
    for fractions in ((0.5, 0.1), (0.0, 0.5), ()):
        item = {"roar": {**FEW, "fractions": fractions}}
        call = (exam.net, exam.scored, {"exact": exam.exact}, [item])
        if fractions == (0.5, 0.1):
            results = assay.benchmark(*call, train=exam.train, **QUIET)
            assert "that rise" in results.failures[0]["message"]
        else:
            with pytest.raises(assay.InputError, match="fractions"):
                assay.benchmark(*call, train=exam.train, **QUIET)
