"""Dose-response: maps mixed with maps of other samples, on the user's own network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.conformance.worlds import bag_of_words, make_texts
from assay.plan.dosed import DOSES, mixed
from assay.plugins import registry
from assay.ranking.dose_response import dose_responses
from assay.suite.spec import parse_suite
from assay.types import Batch
from small_worlds import make_images, make_net

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
QUIET = {"progress": False}
PROTOCOLS = [{"deletion": {"steps": 5}}, "single_deletion", {"infidelity": {"subsets": 10}}]


def additive(n: int = 60) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A linear network: the exact map of a class is its weights times the input."""
    generator = torch.Generator().manual_seed(5)
    net = nn.Sequential(nn.Linear(10, 3)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.randn(3, 10, generator=generator))
    x = torch.randn(n, 10, generator=generator)
    return net, x, net(x).argmax(1)


def exact(model: Any, batch: Any) -> torch.Tensor:
    return model.net[0].weight.detach()[batch.targets] * batch.inputs


def noise(model: Any, batch: Any) -> torch.Tensor:
    return batch.draw("a noise of its own", batch.map_shape)


def rows_of(methods: list[Any], n: int = 60, **how: Any) -> list[dict[str, Any]]:
    net, x, y = additive(n)
    told = {"validate": True, **QUIET, **how}
    return assay.benchmark(net, (x, y), methods, PROTOCOLS, **told).validation()


# --- mixing -------------------------------------------------------------------------------------


def test_the_doses_lead_from_the_own_map_to_the_other() -> None:
    own, others = torch.randn(4, 5, 5), 100 * torch.randn(4, 5, 5)
    batch = Batch(tuple("abcd"), torch.randn(4, 3, 5, 5), torch.zeros(4, dtype=torch.long))
    assert torch.equal(mixed(own, others, batch, 0.0), own)
    last = mixed(own, others, batch, 1.0)
    lengths = own.flatten(1).norm(dim=1)
    assert torch.allclose(last.flatten(1).norm(dim=1), lengths, rtol=1e-5)
    directions = torch.cosine_similarity(last.flatten(1), others.flatten(1))
    assert torch.allclose(directions, torch.ones(4), atol=1e-5)
    half = mixed(own, others, batch, 0.5)
    assert torch.allclose(half, (own + last) / 2, rtol=1e-4, atol=1e-5)
    scaled = mixed(own, 7 * others, batch, 0.5)
    assert torch.allclose(half, scaled, rtol=1e-4, atol=1e-5)  # the length of the other is no part


def test_empty_maps_mix_without_nan() -> None:
    own, none = torch.randn(2, 5), torch.zeros(2, 5)
    batch = Batch(("a", "b"), torch.randn(2, 5), torch.zeros(2, dtype=torch.long))
    assert torch.allclose(mixed(own, none, batch, 0.25), 0.75 * own)
    assert not mixed(none, own, batch, 0.25).any()


# --- responses ----------------------------------------------------------------------------------


def test_scores_of_exact_maps_fall_with_every_dose() -> None:
    rows = rows_of([exact])
    assert len(rows) == len(PROTOCOLS)
    for row in rows:
        assert row["falls"]
        assert row["slope_high"] < 0
        assert row["monotone"] == 1
        assert row["smallest_dose"] == DOSES[0]
        assert row["methods"] == 1
        assert row["n"] == 60
    (single,) = (row for row in rows if row["protocol"] == "single_deletion")
    assert single["means"][0] == pytest.approx(1)  # exact maps order the drops exactly


def test_scores_of_noise_do_not_respond() -> None:
    for row in rows_of([noise], n=120):
        assert not row["falls"]
        assert row["smallest_dose"] is None
        assert row["slope_low"] < 0 < row["slope_high"]
        assert abs(row["slope"]) < 0.5


def test_the_slope_is_that_of_a_line_through_the_means() -> None:
    """Against NumPy's line of least squares, from the table of the stored scores."""
    (row, *_) = rows_of([exact, "saliency"])
    line = np.polyfit(row["doses"], row["means"], 1)[0]
    sign = -1 if row["protocol"].startswith(("deletion", "infidelity")) else 1
    assert row["slope"] * row["scale"] == pytest.approx(sign * line)


def test_a_circular_cell_is_left_out() -> None:
    net, data = make_net(), make_images(24)
    methods = [{"occlusion": {"units": {"grid": {"side": 4}}}}, "saliency"]
    results = assay.benchmark(net, data, methods, ["single_deletion"], validate=True, **QUIET)
    statuses = {(r["method"], r["status"]) for r in results.leaderboard()}
    if any(status == "circular" for _, status in statuses):
        assert [row["methods"] for row in results.validation()] == [1]
    else:
        raise AssertionError(statuses)


def test_few_samples_tell_no_dose_apart() -> None:
    for row in rows_of([exact], n=6):
        assert row["smallest_dose"] is None
        assert not row["falls"]


# --- in a run -----------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch", [1, 7])
def test_its_passes_are_foretold_exactly(micro_batch: int) -> None:
    methods = ["saliency", {"occlusion": {"units": {"grid": {"side": 2}}}}, "random", exact]
    net, x, y = additive(40)
    images = make_net(), make_images(12)
    for network, data, chosen in ((net, (x, y), ["saliency", exact]), (*images, methods[:3])):
        protocols = [*PROTOCOLS, "soundness", "completeness", "drop_stability"]
        told = (network, data, chosen, protocols)
        how = {"validate": True, "micro_batch": micro_batch}
        expected = assay.dry_run(*told, **how, time_it=False)
        results = assay.benchmark(*told, **how, **QUIET)
        assert results.manifest["forwards"] == expected.forwards - expected.looked
        plain = assay.dry_run(*told, micro_batch=micro_batch, time_it=False)
        assert plain.forwards < expected.forwards


def test_one_group_in_a_shard_costs_maps_of_other_samples(tmp_path: Path) -> None:
    """The first shard holds one group, so partners come from elsewhere: explained once more."""
    net, x, y = additive(20)
    groups = ["same"] * 8 + [str(i) for i in range(12)]
    told = (net, (x, y), ["saliency", "input_x_gradient"], PROTOCOLS)
    how = {"validate": True, "groups": groups}
    expected = assay.dry_run(*told, **how, time_it=False)
    results = assay.benchmark(*told, **how, **QUIET)
    assert results.manifest["forwards"] == expected.forwards - expected.looked
    assert expected.method_rows["saliency"] == 20 + 8


def test_with_one_sample_there_is_no_other_map() -> None:
    net, x, y = additive(1)
    results = assay.benchmark(net, (x, y), ["saliency"], PROTOCOLS, validate=True, **QUIET)
    assert results.validation() == []
    assert not results.failures


def test_it_can_be_added_to_a_finished_run_and_changes_nothing_else(tmp_path: Path) -> None:
    net, x, y = additive(30)
    told = (net, (x, y), ["saliency", exact], PROTOCOLS)
    before = assay.benchmark(*told, out=tmp_path, **QUIET)
    assert before.validation() == []
    board, scores = before.leaderboard().rows, before.scores
    after = assay.benchmark(*told, out=tmp_path, validate=True, **QUIET)
    assert len(after.validation()) == 3
    assert after.scores.equals(scores)
    assert after.leaderboard().rows == board
    assert list(after.entries.methods) == list(before.entries.methods)
    assert after.complete
    assert len(after.entries.doses) == 8
    forwards = after.manifest["forwards"]
    again = assay.benchmark(*told, out=tmp_path, validate=True, **QUIET)
    assert again.manifest["forwards"] == forwards
    assert again.validation() == after.validation()
    assert assay.load(tmp_path).validation() == after.validation()
    page = after.report().read_text()
    assert "Do scores fall when maps get worse?" in page
    assert "dose 0.25" not in page


def test_a_failing_dose_is_a_failure_of_the_run() -> None:
    net, x, y = additive(12)

    @assay.protocol("moody", higher_is_better=True)
    def moody(case: Any) -> Any:
        if case.explain is None:
            raise RuntimeError("not with mixed maps")
        return assay.Scores(case.attribution.sum(1))

    with pytest.warns(RuntimeWarning, match="cells failed"):
        results = assay.benchmark(net, (x, y), ["saliency"], ["moody"], validate=True, **QUIET)
    registry._REGISTERED["protocol"].pop("moody")
    assert {f["method"] for f in results.failures} == {f"saliency, dose {d:g}" for d in DOSES}


def test_texts_mix_where_words_are() -> None:
    model, data = bag_of_words(), make_texts(24)
    told = (model, data, ["input_x_gradient"], ["single_deletion", "deletion"])
    expected = assay.dry_run(*told, validate=True, time_it=False)
    results = assay.benchmark(*told, validate=True, **QUIET)
    assert results.manifest["forwards"] == expected.forwards - expected.looked
    assert len(results.validation()) == 2


def test_a_suite_may_ask_for_it() -> None:
    text = "environments: [modulo]\nmethods: [saliency]\nprotocols: [deletion]\n"
    assert parse_suite(text + "validate: true\n", "text").dose_response
    assert "validate: true" in parse_suite(text + "validate: true\n", "text").dump()
    assert "validate" not in parse_suite(text, "text").dump()
    with pytest.raises(assay.InputError, match=r"Wrong `validate`.*expected true or false"):
        parse_suite(text + "validate: 3\n", "text")
    with pytest.raises(assay.InputError, match="Did you mean"):
        parse_suite(text + "validat: true\n", "text")


def test_nothing_is_made_of_no_blocks() -> None:
    assert dose_responses([], {}, {}) == []
