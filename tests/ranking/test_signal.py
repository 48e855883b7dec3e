"""Is there anything to rank: networks near chance, answers that stand still, controls."""

import math
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy
import torch
from torch import nn

import assay
from assay.plugins import registry
from assay.ranking.moved_answers import LEAST_PROBABILITY, MovedSamples, movement
from assay.store.all_absent import AllAbsent, read_all_absent
from assay.store.shard_log import LogRecord
from old_runs import ARCHIVE, continue_run
from small_worlds import make_images, make_net

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
METHODS = ["saliency", "input_x_gradient"]
PROTOCOLS = [{"deletion": {"steps": 4}}, "single_deletion", {"infidelity": {"stride": 0.25}}]


def linear_data(n: int = 60) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    net = nn.Sequential(nn.Linear(10, 3)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.randn(3, 10, generator=generator))
    x = torch.randn(n, 10, generator=generator)
    return net, x, net(x).argmax(1)


def run(net: nn.Module, data: Any, **changes: Any) -> Any:
    told = {"methods": METHODS, "protocols": PROTOCOLS, "progress": False, **changes}
    return assay.benchmark(net, data, **told)


def by_protocol(results: Any) -> dict[str, dict[str, Any]]:
    return {row["protocol"].partition("[")[0]: row for row in results.signals()}


def test_a_network_that_is_right_has_signal_and_its_answers_are_its_own() -> None:
    net, x, y = linear_data()
    rows = by_protocol(run(net, (x, y)))
    assert set(rows) == {"deletion", "single_deletion", "infidelity"}
    with torch.no_grad():
        clean, absent = net(x).double(), net(torch.zeros_like(x)).double()
    at = y[:, None]
    moved = {
        "logit": (clean - absent).gather(1, at).abs().mean(),
        "probability": (clean.softmax(1) - absent.softmax(1)).gather(1, at).abs().mean(),
    }
    for row in rows.values():
        assert row["has_signal"]
        assert row["answers_move"]
        assert row["controls_apart"]
        assert row["moved"] == pytest.approx(float(moved[row["output"]]), rel=1e-5)
        assert row["moved_low"] < row["moved"] < row["moved_high"]
        assert row["n"] == len(x)
        assert row["near_chance"] is False
    assert rows["deletion"]["output"] == "probability"
    logit = rows["infidelity"]
    assert logit["spread"] == pytest.approx(float(clean.gather(1, at).std()), rel=1e-5)
    assert logit["least"] == pytest.approx(0.01 * logit["spread"])


def test_shuffled_labels_leave_nothing_to_rank() -> None:
    net, x, y = linear_data(200)
    generator = torch.Generator().manual_seed(1)
    results = run(net, (x, y[torch.randperm(len(y), generator=generator)]))
    for row in results.signals():
        right, n = round(row["accuracy"] * len(y)), len(y)
        low = scipy.stats.binomtest(right, n).proportion_ci(0.95, "exact").low
        assert low <= 1 / 3
        assert row["near_chance"]
        assert not row["has_signal"]
        assert row["sentence"].startswith("The network is right on")


def test_a_network_that_ignores_its_input_hardly_moves() -> None:
    net, x, y = linear_data()
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.copy_(torch.tensor([3.0, 0.0, 0.0]))
    rows = by_protocol(run(net, (x, torch.zeros_like(y))))
    assert rows["deletion"]["accuracy"] == 1
    for row in rows.values():
        assert row["moved"] == 0
        assert row["share_moved"] == 0
        assert row["answers_move"] is False
        assert not row["has_signal"]
        assert "too little to rank methods" in row["sentence"]


def test_without_labels_the_network_is_not_judged() -> None:
    net, x, _ = linear_data()
    for row in run(net, (x, None)).signals():
        assert row["near_chance"] is None
        assert row["accuracy"] is None
        assert row["has_signal"]


def test_methods_like_random_are_not_told_apart() -> None:
    net, x, y = linear_data()

    def noise(model: Any, batch: Any) -> torch.Tensor:
        return batch.draw("another noise", batch.map_shape)

    rows = by_protocol(run(net, (x, y), methods=[noise]))
    assert rows["single_deletion"]["controls_apart"] is False
    assert rows["single_deletion"]["sentence"].endswith("No method differs clearly from random.")
    few = by_protocol(run(net, (x[:6], y[:6])))
    assert few["single_deletion"]["controls_apart"] is None
    alone = by_protocol(run(net, (x, y), controls="off"))
    assert alone["single_deletion"]["controls_apart"] is None
    assert "no random control" in alone["single_deletion"]["sentence"]


def test_a_method_must_differ_from_shuffled_too() -> None:
    """A map that is the same for all samples beats noise, and is its own shuffled map."""
    net = nn.Sequential(nn.Linear(10, 2)).eval()
    weights = torch.arange(10.0)
    with torch.no_grad():
        net[0].weight.copy_(torch.stack([weights, -weights]))
    x = torch.rand(60, 10, generator=torch.Generator().manual_seed(0))

    def fixed(model: Any, batch: Any) -> torch.Tensor:
        return weights.expand(len(batch), 10).clone()

    data, told = (x, torch.zeros(60, dtype=torch.long)), {"protocols": ["single_deletion"]}
    (alone,) = run(net, data, methods=[fixed], **told).signals()
    assert alone["controls_apart"] is True
    assay.method("fixed_map")(fixed)
    try:
        methods = ["fixed_map", {"shuffled": {"of": "fixed_map"}}]
        (beside,) = run(net, data, methods=methods, **told).signals()
    finally:
        registry._REGISTERED["method"].pop("fixed_map")
    assert beside["controls_apart"] is False
    assert beside["sentence"].endswith(
        "No method differs clearly from every one of shuffled[of=fixed_map] and random."
    )


def test_the_rule_of_probabilities() -> None:
    """Answers that move by less than .01, and by more, with certainty."""
    generator = np.random.default_rng(0)
    clean = generator.uniform(0.2, 0.8, 100)
    names = tuple(f"s{i}" for i in range(100))
    for size, hardly in ((0.5 * LEAST_PROBABILITY, True), (2 * LEAST_PROBABILITY, False)):
        change = size * generator.uniform(0.9, 1.1, 100)
        pairs = {"probability": (clean, clean - change)}
        found = movement(MovedSamples(names, names, pairs), "probability", {})
        assert found is not None
        assert found.hardly is hardly
        assert found.mean == pytest.approx(change.mean())
        assert found.share == (0.0 if hardly else 1.0)


def test_seeds_are_averaged_and_broken_answers_left_out() -> None:
    clean = np.array([1.0, 1.0, 3.0, 3.0, math.inf])
    absent = np.array([0.0, 0.5, 0.0, 1.0, 0.0])
    names = ("a", "a", "b", "b", "c")
    found = movement(MovedSamples(names, names, {"logit": (clean, absent)}), "logit", {})
    assert found is not None
    assert found.n == 2
    assert found.mean == pytest.approx((0.75 + 2.5) / 2)


@pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
def test_outputs_of_stored_answers(output: str) -> None:
    p, q = np.array([0.25, 1.0]), np.array([0.5, 0.5])
    stored = AllAbsent('"zero"', np.array([1.0, 2]), np.log(p), np.array([3.0, 4]), np.log(q))
    record = LogRecord.make(
        "all_absent",
        "k",
        {"fill": stored.fill},
        {k: v for k, v in vars(stored).items() if k != "fill"},
    )
    clean, absent = read_all_absent(record).output(output)
    expected = {
        "logit": ([1, 2], [3, 4]),
        "probability": (p, q),
        "log_odds": ([math.log(1 / 3), math.log(1e16)], [0, 0]),
    }[output]
    assert clean == pytest.approx(expected[0])
    assert absent == pytest.approx(expected[1])


def test_a_resumed_run_asks_only_for_what_is_missing(tmp_path: Any) -> None:
    net, data = make_net(), make_images(6)
    one = run(net, data, out=tmp_path, protocols=["single_deletion"])
    forwards = one.manifest["forwards"]
    again = run(net, data, out=tmp_path, protocols=["single_deletion"])
    assert again.manifest["forwards"] == forwards
    more = run(net, data, out=tmp_path, protocols=["single_deletion", {"lerf": {"fill": "blur"}}])
    assert all(row["moved"] is not None for row in more.signals())
    assert len(more.signals()) == 2


def test_nan_without_everything_breaks_no_protocol_that_never_asks(tmp_path: Any) -> None:
    class Fragile(nn.Module):
        """Divides by the mean of its input."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(10, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x) + 0 / x.abs().sum(1, keepdim=True)

    _, x, y = linear_data(12)
    results = run(Fragile().eval(), (x, y), protocols=["single_deletion"])
    assert not results.failures
    (row,) = results.signals()
    assert row["moved"] is None
    assert row["answers_move"] is None


def test_runs_of_an_older_assay_say_that_it_was_not_measured(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    rows = assay.load(tmp_path / "torch_alone").signals()
    assert len(rows) == 3
    for row in rows:
        assert row["moved"] is None
        assert "was not measured" in row["sentence"]
    continued = continue_run("torch_alone", tmp_path, protocols=[*PROTOCOLS[1:], "lerf"])
    moved = {row["protocol"]: row["moved"] for row in continued.signals()}
    assert all(value is not None for value in moved.values())


def test_a_protocol_that_does_not_apply_has_no_row() -> None:
    net, x, y = linear_data()
    results = run(net, (x, y), protocols=["single_deletion", "part_deletion", "drop_stability"])
    assert [row["protocol"] for row in results.signals()] == ["single_deletion"]


def test_signals_are_on_the_page(tmp_path: Any) -> None:
    net, x, y = linear_data()
    page = run(net, (x, y), out=tmp_path).report().read_text()
    assert "Is there anything to rank?" in page
    assert "differs clearly from random" in page
