"""How stable a network's drops are, and models compared beside it, from run to command line."""

import json

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from typer.testing import CliRunner

import assay
from assay.cli import app
from assay.conformance.worlds import make_bagnet, make_images, make_net
from assay.engine.engine import network_engine
from assay.models.wrap import model as as_model
from assay.removal import make_removal
from assay.types import Batch
from assay.units.features import make_units

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
METHODS = ["saliency", "input_x_gradient", {"integrated_gradients": {"steps": 4}}, "random"]
BOTH = ["single_deletion", "drop_stability", {"deletion": {"steps": 4}}]


def batch_of(n: int = 4) -> Batch:
    x, y = make_images(n)
    return Batch(tuple(f"s{i}" for i in range(n)), x, y)


def drops_by_hand(net: nn.Module, x: torch.Tensor, y: torch.Tensor, fill: torch.Tensor):
    """Logits without each of 16 cells, in a plain loop."""
    side, rows = x.shape[-1] // 4, []
    for cell in range(16):
        row, column = divmod(cell, 4)
        here = (..., slice(side * row, side * (row + 1)), slice(side * column, side * (column + 1)))
        changed = x.clone()
        changed[here] = fill.expand_as(x)[here]
        with torch.no_grad():
            rows.append(-net(changed).gather(1, y[:, None])[:, 0])
    return torch.stack(rows, 1).numpy()


def test_the_noisy_copy_is_the_input_with_noise_and_the_other_fill():
    batch = batch_of()
    cells = make_units(batch, {"grid": {"side": 4}})
    absent = torch.zeros(4, 16, dtype=torch.bool)
    absent[:, 5] = True
    made = make_removal(batch, {"shaken": {"noise": 0.05}})(cells, absent, torch.arange(4))
    gone = cells.spread(absent, torch.arange(4))[:, None].expand_as(made)
    assert (made[gone] == 0).all()
    ratio = (made - batch.inputs)[~gone].std() / (0.05 * batch.inputs.std())
    assert 0.8 < float(ratio) < 1.25
    again = make_removal(batch, {"shaken": {"noise": 0.05}})(cells, absent, torch.arange(4))
    assert torch.equal(made, again)
    still = make_removal(batch, {"shaken": {"noise": 0}})(cells, absent, torch.arange(4))
    assert torch.equal(still, make_removal(batch, "zero")(cells, absent, torch.arange(4)))


def test_stability_is_scipys_correlation_of_two_lists_of_drops():
    net, batch = make_net(), batch_of()
    x, y = batch.inputs, batch.targets
    results = assay.benchmark(net, (x, y), ["random"], [
        {"drop_stability": {"other": "uniform", "noise": 0.3}},
    ], progress=False)  # fmt: skip
    rows = results.scores.to_pylist()
    uniform = [r["value"] for r in rows if r["metric"] == "other_fill"]
    run_batch = Batch(tuple(r["sample"] for r in rows[: len(x)]), x, y)
    plain = drops_by_hand(net, x, y, torch.zeros(1))
    filled = drops_by_hand(net, x, y, -1 + 2 * run_batch.draw("uniform fill", x.shape[1:]))
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(plain, filled, strict=True)]
    assert uniform == pytest.approx(expected, abs=1e-6)
    noise = 0.3 * torch.stack([one.std() for one in x])[:, None, None, None]
    moved = x + noise * run_batch.draw("shaken copy", x.shape[1:], normal=True)
    noisy = drops_by_hand(net, moved, y, torch.zeros(1))
    expected = [stats.spearmanr(a, b).statistic for a, b in zip(plain, noisy, strict=True)]
    assert [r["value"] for r in rows if r["metric"] == "noise"] == pytest.approx(expected, abs=1e-6)


def test_without_noise_the_drops_are_the_same():
    values = assay.score(
        make_net(), *make_images(3), torch.rand(3, 16, 16), "drop_stability", noise=0, other="zero"
    )
    assert values.tolist() == [1, 1, 1]


def test_it_is_the_same_for_every_method_costs_once_and_is_never_ranked():
    x, y = make_images(4)
    one = assay.dry_run(make_net(), (x, y), ["saliency"], ["drop_stability"])
    three = assay.dry_run(make_net(), (x, y), METHODS, ["drop_stability"])
    assert one.rows["drop_stability"] == three.rows["drop_stability"] == 4 * 3 * 16
    results = assay.benchmark(make_net(), (x, y), METHODS, BOTH, progress=False)
    rows = [r for r in results.scores.to_pylist() if r["protocol"] == "drop_stability"]
    assert {r["status"] for r in rows} == {"shown"}
    by_sample = {(r["sample"], r["metric"]): r["value"] for r in rows}
    assert all(by_sample[r["sample"], r["metric"]] == r["value"] for r in rows)
    board = results.leaderboard()
    assert {row.protocol for row in board.by_protocol} == {"single_deletion", "deletion[steps=4]"}
    assert "drop_stability" in results.report().read_text()  # on its card


def test_an_engine_shares_the_rows_with_single_deletion():
    batch = batch_of()
    engine = network_engine(as_model(make_net()), batch)
    from assay.units.absent import each

    cells = make_units(batch, {"grid": {"side": 4}})
    engine.respond(cells, each(cells), "zero")
    before = engine.respondent.rows
    engine.respond(cells, each(cells), "zero")
    assert engine.respondent.rows == before


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two models by two seeds, and a network that explains itself."""
    folder = tmp_path_factory.mktemp("models")
    nets = {f"{n}-s{s}": make_net(10 * k + s) for k, n in enumerate("ab") for s in range(2)}
    nets["bag"] = make_bagnet()
    methods = [*METHODS, "occlusion", "bagnet"]
    return assay.benchmark(nets, make_images(14), methods, BOTH, out=folder, progress=False)


def test_models_are_compared_from_python_and_by_command(run):
    (one,) = run.compare(resamples=200).comparisons
    assert one.methods == ("input_x_gradient", "integrated_gradients[steps=4]", "saliency")
    assert {row.model for row in one.models} == {"a-s0", "a-s1", "b-s0", "b-s1", "bag"}
    assert {row.architecture for row in one.architectures} == {"a", "b"}
    assert [(row.model, row.method) for row in one.intrinsic] == [("bag", "bagnet")]
    assert all(0.5 < row.noise.value <= 1 for row in one.models)
    assert all(row.other_fill.value <= row.noise.value for row in one.models)
    assert assay.compare(run.folder, resamples=200).rows == run.compare(resamples=200).rows
    assert "best of 3 common methods" in repr(run.compare(resamples=200))

    told = CliRunner().invoke(app, ["compare", str(run.folder), "--json"])
    assert told.exit_code == 0
    read = json.loads(told.stdout)
    assert [row["model"] for row in read["comparisons"][0]["models"]] == [
        row.model for row in run.compare().comparisons[0].models
    ]
    assert read["refused"][0]["protocol"] == "deletion[steps=4]"
    shown = CliRunner().invoke(app, ["compare", str(run.folder)], env={"COLUMNS": "160"})
    assert "near-circular" in shown.stdout
    assert "Not compared by deletion[steps=4]" in shown.stdout


def test_the_score_of_a_model_is_that_of_the_method_chosen_without_the_sample(run):
    (one,) = run.compare(resamples=200).comparisons
    row = one.models[0]
    scores = {
        (r["method"], r["sample"]): r["value"]
        for r in run.scores.to_pylist()
        if (r["protocol"], r["model"]) == ("single_deletion", row.model)
    }
    means = {m: np.mean([v for (n, _), v in scores.items() if n == m]) for m in one.methods}
    assert row.score.value <= max(means.values()) + 1e-9
    assert set(row.chosen) <= set(one.methods)


def test_mistakes_on_the_command_line(run):
    for arguments, message in (
        (["--protocol", "deletion[steps=4]"], "the scale|size of the output"),
        (["--protocol", "nothing"], "nothing"),
        (["--architecture", "a-s0"], "MODEL=NAME"),
        (["--architecture", "a-s0=x", "--replicates", "-s"], "got both"),
        (["--architecture", "zebra=x"], "zebra"),
    ):
        with pytest.raises(assay.InputError, match=message):
            CliRunner().invoke(
                app, ["compare", str(run.folder), *arguments], catch_exceptions=False,
                standalone_mode=False,
            )  # fmt: skip


def test_architectures_given_by_name(run):
    command = ["compare", str(run.folder), "--json"]
    for name in ("a-s0", "b-s0", "bag"):
        command += ["--architecture", f"{name}=first"]
    read = json.loads(CliRunner().invoke(app, command).stdout)
    (row,) = read["comparisons"][0]["architectures"]
    assert row["models"] == ["a-s0", "b-s0", "bag"]


class Scaled(nn.Module):
    """A network with its logits multiplied and shifted."""

    def __init__(self, net: nn.Module, scale: float) -> None:
        """Wrap a network."""
        super().__init__()
        self.net, self.scale = net, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The changed logits."""
        return self.scale * self.net(x) + 3


def test_a_comparison_does_not_change_with_the_scale_of_the_logits():
    net, data = make_net(), make_images(12)
    nets = {"plain": net, "sharp": Scaled(net, 16.0), "flat": Scaled(net, 0.25)}
    results = assay.benchmark(nets, data, METHODS[:2], BOTH[:2], progress=False)
    (one,) = results.compare(resamples=200).comparisons
    assert len({row.score.value for row in one.models}) == 1
    assert {row.rank for row in one.models} == {1}
    assert [pair.verdict for pair in one.pairs] == ["unclear"] * 3
