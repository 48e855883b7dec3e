"""A run that fits a time, with made-up seconds a call: no test looks at the clock."""

from dataclasses import replace

import pytest
import torch
import yaml
from torch import nn

import assay
import toy_run  # noqa: F401 - registers toy_images and toy_net
from assay.plan.timing import Seconds
from assay.run import budget
from assay.run.budget import duration, fit, seconds_of
from assay.run.suite_run import estimate, prepare
from assay.store import NOWHERE
from assay.suite.spec import make_suite, read_suite
from stored_logs import logs, unchanged

CALL, GRADIENT = 0.25, 0.5  # seconds


@pytest.fixture(autouse=True)
def made_up_seconds(monkeypatch):
    def timings(plan, store, settings, workers):
        return dict.fromkeys(plan.models, Seconds(CALL, GRADIENT))

    monkeypatch.setattr(budget, "timings", timings)


def suite(n: int = 200, **changes: object):
    torch.manual_seed(0)
    data = assay.Dataset(
        "data", "vector", tuple(f"{i:04d}" for i in range(n)),
        lambda i: assay.types.Sample(torch.full((6,), float(i)), int(i) % 3), "fixed",
        labels={f"{i:04d}": i % 3 for i in range(n)},
    )  # fmt: skip
    model = replace(assay.model(nn.Linear(6, 3), name="m"), modality="vector")
    fields = {
        "datasets": [data], "models": [model], "methods": ["integrated_gradients", "random"],
        "protocols": ["sensitivity_n", {"deletion": {"steps": (0, 0.5, 1)}}], **changes,
    }  # fmt: skip
    return make_suite(fields)


def cost(spec) -> float:
    plan, _ = prepare(spec, NOWHERE)
    return estimate(plan, NOWHERE, 1, {"m": Seconds(CALL, GRADIENT)}).seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        (2.5, 2.5),
        ("90s", 90),
        ("10min", 600),
        ("1.5 h", 5400),
        ("2m", 120),
        (".5h", 1800),
    ],
)
def test_times(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["soon", "", "10 days", "-5min", "0", "min", "nan", "1e3", "5 5s"])
def test_what_is_no_time_is_said(text):
    with pytest.raises(assay.InputError, match="`10min`"):
        seconds_of(text)


def test_durations_read_well():
    said = [duration(s) for s in (0.5, 59, 60, 90, 3600, 5430)]
    assert said == ["0.5 s", "59 s", "1 min", "1 min 30 s", "1 h", "1 h 30 min"]


def test_nothing_is_cut_where_all_fits(tmp_path):
    whole = suite()
    fitted, said, _ = fit(whole, tmp_path / "run", cost(whole) + 1)
    assert "nothing had to be cut" in said
    assert (fitted.limit, fitted.methods, fitted.notes) == (None, whole.methods, "")


def test_samples_go_first_and_as_few_as_needed(tmp_path):
    whole = suite()
    time = cost(whole) / 2
    fitted, said, _ = fit(whole, tmp_path / "run", time)
    assert 25 < fitted.limit < 200
    assert cost(fitted) <= time < cost(fitted.model_copy(update={"limit": fitted.limit + 20}))
    assert fitted.methods == whole.methods
    assert f"{fitted.limit} of 200 samples" in said
    assert f"{fitted.limit} of 200 samples" in fitted.notes


def test_then_steps_and_sets_are_halved(tmp_path):
    floor = cost(suite(limit=25))
    fitted, said, _ = fit(suite(), tmp_path / "run", 0.6 * floor)
    assert fitted.limit == 25
    assert fitted.methods == [{"integrated_gradients": {"steps": 25}}, "random"]
    assert fitted.protocols[0] == {"sensitivity_n": {"subsets": 25}}
    assert fitted.protocols[1] == {"deletion": {"steps": (0, 0.5, 1)}}  # shares: left alone
    assert cost(fitted) <= 0.6 * floor
    for part in ("25 of 200 samples", "integrated_gradients steps 50 -> 25"):
        assert part in said


def test_what_cannot_fit_is_run_at_its_least_and_said_beforehand(tmp_path):
    fitted, said, _ = fit(suite(), tmp_path / "run", "1s")
    assert fitted.methods[0] == {"integrated_gradients": {"steps": 10}}
    assert fitted.protocols[0] == {"sensitivity_n": {"subsets": 10}}
    assert "longer than that: this is the least" in said
    assert f"estimated {duration(cost(fitted))}" in said


def test_few_samples_are_kept(tmp_path):
    fitted, _, _ = fit(suite(12), tmp_path / "run", "1s")
    assert fitted.limit is None
    limited, _, _ = fit(suite(200, limit=20), tmp_path / "run", "1s")
    assert limited.limit == 20


def test_what_a_suite_compares_is_left_alone(tmp_path):
    compared = [{"integrated_gradients": {"steps": 20}}, {"integrated_gradients": {"steps": 40}}]
    both = {"integrated_gradients": {"steps": 40, "abs": True}}
    fitted, _, _ = fit(suite(methods=compared), tmp_path / "run", "1s")
    assert fitted.methods == compared
    fitted, _, _ = fit(suite(methods=[compared[1], both]), tmp_path / "run", "1s")
    assert [next(iter(m.values()))["steps"] for m in fitted.methods] == [10, 10]


def test_the_same_call_goes_on_with_the_same_cut(tmp_path, monkeypatch):
    torch.manual_seed(0)
    net, x = nn.Linear(6, 3), torch.randn(90, 6)
    y = net(x).argmax(1)
    call = {"methods": ["integrated_gradients", "random"], "protocols": ["single_deletion"],
            "out": tmp_path / "run", "budget": "40s", "progress": False}  # fmt: skip
    first = assay.benchmark(net, (x, y), **call)
    limit = first.manifest["datasets"]["data"]["n"]
    assert 25 <= limit < 90
    assert f"{limit} of 90 samples" in first.manifest["notes"]
    assert f"{limit} of 90 samples" in first.report().read_text()
    before = logs(tmp_path / "run")
    monkeypatch.setattr(budget, "timings", None)  # nothing is measured again
    again = assay.benchmark(net, (x, y), **call)
    assert unchanged(before)
    assert again.manifest["notes"] == first.manifest["notes"]


def test_labels_of_methods_given_from_python_follow(tmp_path):
    net, x = nn.Linear(6, 3), torch.randn(30, 6)
    methods = ["integrated_gradients", {"integrated_gradients": {"abs": True, "label": "mine"}}]
    results = assay.benchmark(
        net, (x, net(x).argmax(1)), methods, ["single_deletion"], budget="1s", progress=False
    )
    assert list(results.manifest["methods"]) == ["integrated_gradients[steps=10]", "mine", "random"]
    assert results.manifest["methods"]["mine"]["options"]["steps"] == 10


def test_a_label_does_not_go_on_naming_what_was_cut(tmp_path):
    written = {"sensitivity_n": {"label": "mine[subsets=50]", "subsets": 50}}
    fitted, _, _ = fit(suite(protocols=[written]), tmp_path / "run", "1s")
    assert fitted.protocols == [{"sensitivity_n": {"label": "mine[subsets=10]", "subsets": 10}}]


def test_the_command_line(call, tmp_path):
    path = tmp_path / "suite.yaml"
    fields = {
        "datasets": ["toy_images"], "models": ["toy_net"], "notes": "As I said.",
        "methods": ["integrated_gradients", "random"], "protocols": ["single_deletion"],
    }  # fmt: skip
    path.write_text(yaml.safe_dump(fields))
    out = tmp_path / "run"
    code, output, _ = call("run", str(path), "--out", str(out), "--budget", "20s")
    assert code == 0
    assert "budget 20 s: 25 of 150 samples, integrated_gradients steps 50 -> " in output
    written = read_suite(out / "spec.yaml")
    assert written.limit == 25
    assert written.notes.startswith("As I said. budget 20 s: 25 of 150")
    before = assay.load(out).scores
    code, output, _ = call("run", str(out / "spec.yaml"), "--out", str(tmp_path / "again"))
    assert code == 0
    assert assay.load(tmp_path / "again").scores.equals(before)
    code, _, errors = call("run", str(path), "--out", str(tmp_path / "no"), "--budget", "soon")
    assert code == 2
    assert "Expected `budget` to be a time" in errors
