"""`assay.rank` and `assay.consistency` on runs: what they combine, refuse and say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import assay
from assay.aggregation.rank_rules import RULES
from assay.aggregation.rank_runs import NAMES, rank_settings
from assay.aggregation.row_samples import row_samples
from assay.aggregation.run_settings import RunSettings, VoteRow, read_settings
from assay.errors import InputError
from assay.store import SettingKey
from report.synthetic_run import Plan, Setting
from report.synthetic_run import write as write_synthetic

GOOD = {"best": (0.8, ""), "middle": (0.6, ""), "worst": (0.2, ""), "random": (0.1, "random")}


def plan(*datasets: str, methods: dict | None = None, protocols: dict | None = None) -> Plan:
    settings = [Setting(name, "net-s0", n=16, groups=16) for name in datasets]
    return Plan(settings, methods or GOOD, protocols or {"deletion": True, "single_deletion": True})


def write(folder: Path, synthetic: Plan) -> assay.Results:
    """The run, with samples of its own in every dataset."""
    store = write_synthetic(folder, synthetic).store
    manifest = store.read_json(store.path("manifest.json"))
    for name, entry in manifest["datasets"].items():
        entry["fingerprint"] = name
    store.write_json(store.path("manifest.json"), manifest)
    return assay.load(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> assay.Results:
    return write(tmp_path_factory.mktemp("run"), plan("cats", "dogs", "cars"))


@pytest.fixture(scope="module")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> assay.Results:
    names = [f"task{i}" for i in range(12)]
    return write(tmp_path_factory.mktemp("twelve"), plan(*names))


@pytest.mark.parametrize("rule", NAMES)
def test_every_rule_finds_the_planted_order(run: assay.Results, rule: str) -> None:
    ranking = assay.rank(run, rule, resamples=200)
    assert ranking.order == ["best", "middle", "worst"]
    assert ranking.ties[0][0] == "best"
    assert ranking.verdict.startswith("best is ")
    assert sum(ranking.p_best.values()) == pytest.approx(1)
    assert max(ranking.p_best, key=ranking.p_best.__getitem__) == "best"
    assert "random" not in ranking.order
    assert json.loads(json.dumps(ranking.as_dict()))["order"] == ranking.order


def test_few_tasks_carry_no_confidence_level(run: assay.Results) -> None:
    ranking = assay.rank(run)
    assert "on 3 tasks, without a confidence level; it is first without any one" in ranking.verdict
    assert not ranking.pairs
    first = ranking.rows[0]
    assert first.low is not None
    assert first.best_place is None
    assert first.low - 1e-9 <= first.strength <= (first.high or 0) + 1e-9


def test_many_tasks_give_intervals_and_verdicts(twelve: assay.Results) -> None:
    ranking = assay.rank([twelve], sources={f"task{i}": "one" for i in range(12)})
    assert ranking.verdict.startswith("best is first of 3 methods on 12 tasks of 1 source. best is")
    assert [row.place for row in ranking.rows] == [1, 2, 3]
    assert {pair.verdict for pair in ranking.pairs} == {"better"}
    assert any("All tasks come from one" in line for line in ranking.recommendation)
    assert (ranking.rows[0].best_place, ranking.rows[0].worst_place) == (1, 1)


def test_one_setting_says_that_nothing_is_known_of_others(tmp_path: Path) -> None:
    ranking = assay.rank(write(tmp_path, plan("cats")))
    assert ranking.order[0] == "best"
    assert "cats alone; other datasets may order them differently" in ranking.verdict
    assert ranking.basis == "other images of the same dataset"


def test_a_clone_counts_once(tmp_path: Path) -> None:
    """The synthetic scores depend on the length of a name, so this one is a copy of `best`."""
    names = {**GOOD, "same": (0.8, "")}
    alone = assay.rank(write(tmp_path / "a", plan("cats", "dogs")), "borda", resamples=100)
    both = assay.rank(
        write(tmp_path / "b", plan("cats", "dogs", methods=names)), "borda", resamples=100
    )
    rows = {row.method: row for row in both.rows}
    assert rows["same"].same_as == "best"
    assert both.ties[0] == ["best", "same"]
    assert rows["best"].p_best == pytest.approx((alone.p_best["best"]) / 2)
    strengths = {row.method: row.strength for row in alone.rows}
    assert {m: rows[m].strength for m in strengths} == pytest.approx(strengths)


def test_a_method_that_is_missing_in_some_settings_is_named(tmp_path: Path) -> None:
    more = {**GOOD, "elsewhere": (0.5, "")}
    first = write(tmp_path / "a", plan("cats", "dogs"))
    second = write(tmp_path / "b", plan("cars", "bikes", methods=more))
    ranking = assay.rank([first, second])
    assert set(ranking.order) == {"best", "middle", "worst", "elsewhere"}
    assert any("Missing in some settings: elsewhere" in line for line in ranking.recommendation)


def test_the_same_setting_in_two_runs_counts_once(tmp_path: Path, run: assay.Results) -> None:
    again = write(tmp_path, plan("cats", "dogs", "cars"))
    one = assay.rank(run, "borda", resamples=50)
    two = assay.rank([run.folder, again.folder], "borda", resamples=50)
    assert two.settings == one.settings == 3
    assert [row.strength for row in two.rows] == [row.strength for row in one.rows]


def test_runs_without_random_only_order(tmp_path: Path) -> None:
    bare = {name: of for name, of in GOOD.items() if name != "random"}
    results = write(tmp_path, plan("cats", "dogs", methods=bare))
    with pytest.raises(InputError, match="Run the suite again without `controls: off`"):
        assay.rank(results)
    ranking = assay.rank(results, "borda", resamples=50)
    assert ranking.order[0] == "best"
    assert any("only their order counts" in line for line in ranking.recommendation)


def test_other_options_under_one_name_are_refused(tmp_path: Path, run: assay.Results) -> None:
    other = write(tmp_path, plan("birds"))
    manifest = other.store.read_json(other.store.path("manifest.json"))
    manifest["protocols"]["deletion"]["options"]["grid"] = 7
    other.store.write_json(other.store.path("manifest.json"), manifest)
    with pytest.raises(InputError, match=r"`deletion` is not the same in .*`grid` is 4 and 7"):
        assay.rank([run, assay.load(other.folder)])


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        (
            {"best": (0.8, ""), "random": (0.1, "random")},
            "2 different methods .* got none.*fewer than",
        )
    ],
)
def test_one_method_is_refused(tmp_path: Path, methods: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        assay.rank(write(tmp_path, plan("cats", methods=methods)))


def test_wrong_arguments_are_named(run: assay.Results) -> None:
    with pytest.raises(InputError, match="borda"):
        assay.rank(run, "bordo")
    with pytest.raises(InputError, match="two_stage"):
        assay.rank(run, "borda", weights="twostage")
    with pytest.raises(InputError, match="at least one run"):
        assay.rank([])


@pytest.mark.parametrize("weights", ["equal", "dataset", "two_stage"])
def test_weights_keep_an_order_that_all_settings_share(run: assay.Results, weights: str) -> None:
    for rule in RULES:
        ranking = assay.rank(run, rule, weights=weights, resamples=20)
        assert ranking.order == ["best", "middle", "worst"]


def test_consistency_of_planted_orders(run: assay.Results) -> None:
    found = assay.consistency(run, splits=20)
    assert found.tau.shape == (6, 6)
    assert np.nanmin(found.tau) > 0.9
    assert found.concordance.w > 0.9
    assert found.flips.share == 0
    assert set(found.skills) == {"dataset", "protocol"}
    assert found.ceiling is not None
    assert found.sentences[0].startswith("6 settings order 3 methods")
    plain = json.loads(json.dumps(found.as_dict()))
    assert plain["methods"] == list(found.methods)


def test_consistency_needs_two_settings(tmp_path: Path) -> None:
    results = write(tmp_path, plan("cats", protocols={"deletion": True}))
    with pytest.raises(InputError, match="at least 2 settings"):
        assay.consistency(results)


def test_ranking_and_consistency_need_no_torch(run: assay.Results, tmp_path: Path) -> None:
    code = f"""
import sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("no torch here")
sys.meta_path.insert(0, NoTorch())
import assay
folder = {str(run.folder)!r}
assert assay.rank([folder]).order[0] == "best"
assert assay.rank(folder, "kemeny", resamples=20).order[0] == "best"
assert assay.consistency([folder], splits=10).sentences
assay.load(folder).report({str(tmp_path / "page.html")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_commands_print_and_write(run: assay.Results, tmp_path: Path, capsys) -> None:
    from assay.commands.consistency import consistency
    from assay.commands.rank import rank

    rank([run.folder], "borda")
    assert "best" in capsys.readouterr().out
    rank([run.folder], source=["cats=pets", "dogs=pets"], as_json=True)
    assert json.loads(capsys.readouterr().out)["sources"]["cats"] == "pets"
    consistency([run.folder], diagram=tmp_path / "ranks.svg")
    assert "Kendall's tau between settings" in capsys.readouterr().out
    assert (tmp_path / "ranks.svg").read_text().startswith("<svg")
    with pytest.raises(InputError, match="DATASET=SOURCE"):
        rank([run.folder], source=["cats"])


def noisy(tasks: int, seed: int = 0) -> RunSettings:
    """Three nearly equal methods on tasks that differ."""
    generator = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        scores = dict(zip("abc", generator.normal([0.50, 0.51, 0.49], 0.1), strict=True))
        setting = SettingKey(f"task{task}", "net", "")
        rows.append(VoteRow(setting, "necessity", ("deletion",), "net", scores, 1.0, True, ()))
    return RunSettings(("a", "b", "c"), tuple(rows), {f"task{t}": f"task{t}" for t in range(tasks)})


def test_tasks_of_their_own_sources_are_resampled_together() -> None:
    ranking = rank_settings(noisy(12), "borda", resamples=300)
    assert max(ranking.p_best.values()) < 0.95
    for row in ranking.rows:
        assert row.low is not None
        assert row.high is not None
        assert row.high - row.low > 0.05
    assert ranking.ties[0] == ranking.order


def test_places_and_their_range_come_from_one_relation() -> None:
    for seed in range(5):
        ranking = rank_settings(noisy(12, seed), "borda", resamples=300)
        for row in ranking.rows:
            assert row.best_place is not None
            assert row.worst_place is not None
            assert row.best_place <= row.place <= row.worst_place


def test_two_stages_claim_no_level() -> None:
    ranking = rank_settings(noisy(12), "borda", weights="two_stage", resamples=20)
    assert any(note.startswith("Two stages carry no confidence level") for note in ranking.notes)
    assert ranking.p_best == {}  # single samples are not known here


def test_the_mean_of_the_samples_of_a_row_is_its_score(run: assay.Results) -> None:
    """Resamples must answer what the order answers, in the same units."""
    read = read_settings([run])
    for row in read.rows:
        samples = row_samples(read, row)
        assert samples is not None
        expected = [row.scores[method] for method in read.methods]
        assert np.allclose(samples.values.mean(axis=0), expected)


def test_folders_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for place, name in (("x", "cats"), ("y", "dogs")):
        folder = tmp_path / place / "run"
        store = write(folder, plan("data")).store
        manifest = store.read_json(store.path("manifest.json"))
        manifest["datasets"]["data"]["fingerprint"] = name
        store.write_json(store.path("manifest.json"), manifest)
    ranking = assay.rank([tmp_path / "x" / "run", tmp_path / "y" / "run"], "borda", resamples=20)
    assert set(ranking.tasks) == {"x/run/data", "y/run/data"}


def test_an_unknown_source_is_named(run: assay.Results) -> None:
    with pytest.raises(InputError, match="cats"):
        assay.rank(run, sources={"cat": "pets"})


def test_a_diagram_that_cannot_be_written_is_an_error_after_the_answer(
    run: assay.Results, tmp_path: Path, capsys
) -> None:
    from assay.commands.consistency import consistency

    with pytest.raises(InputError, match="Give another `--diagram`"):
        consistency([run.folder], diagram=tmp_path / "nowhere" / "x.svg")
    assert "settings order 3 methods" in capsys.readouterr().out
