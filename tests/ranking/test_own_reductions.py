"""A user's own set-level reduction: run, ranked with intervals, read where its code is gone."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.plugins import registry
from assay.protocols.soundness import soundness as soundness_protocol
from assay.ranking import leaderboard, reductions, resampling
from assay.ranking.reduce_soundness import soundness
from assay.ranking.reductions import Reduction
from assay.ranking.set_intervals import set_interval
from assay.report.page import render
from assay.run import run as run_suite
from assay.store import ShardLog, Store
from assay.store.cell_records import CELLS, cells_record, read_cells
from assay.suite.spec import choose_one, make_suite
from reader import blocks

PAGE = Path(__file__).parents[2] / "docs" / "how_to" / "own_protocol.md"
METHODS = ["input_x_gradient", "saliency", "random"]
SAMPLES = 40


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A folder with the file that the docs show, and a registry that forgets what a test adds."""
    monkeypatch.chdir(tmp_path)
    shown = next(block for block in blocks(PAGE) if block.title == "half_life.py")
    Path("half_life.py").write_text(shown.text)
    registry.names("protocol")  # what is built in is there before the copy is made
    known = dict(registry._REGISTERED["protocol"])
    yield tmp_path
    registry._REGISTERED["protocol"].clear()
    registry._REGISTERED["protocol"].update(known)


def linear_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 5))


def make_data(net: nn.Module, samples: int = SAMPLES) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(samples, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    return x, net(x).argmax(1)


def run(protocols, out=None, *, data=None, methods=METHODS, **options):
    net = linear_net()
    data = make_data(net) if data is None else data
    return assay.benchmark(
        net, data, methods, protocols, out=out, progress=False, **options, controls="off"
    )


def run_with_seeds(protocols, out, data):
    fields = {"models": [assay.model(linear_net())], "datasets": [data], "methods": METHODS}
    spec = make_suite({**fields, "protocols": protocols, "seeds": [0, 1]})
    return run_suite(spec, out, progress=False)


def rows_of(results, label: str, **options) -> list[dict]:
    """The rows of a protocol, without what its name and options say."""
    rows = [row for row in results.leaderboard(**options) if row["protocol"] == label]
    return [{k: v for k, v in r.items() if not k.startswith("protocol")} for r in rows]


def changed_by_hand(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> np.ndarray:  # [n, 21]
    """Whether a prediction changes without the share of pixels with the largest w x."""
    weight = net[1].weight.detach().reshape(5, 3, 8, 8)
    changed = []
    for image, label in zip(x, y, strict=True):
        order = (weight[label] * image).sum(0).flatten().argsort(descending=True)
        for step in range(21):
            cut = image.flatten(1).clone()
            cut[:, order[: int(step / 20 * 64 + 0.5)]] = 0
            changed.append(bool(net(cut.reshape(1, 3, 8, 8)).argmax() != label))
    return np.array(changed).reshape(len(x), 21)


def test_the_number_is_the_one_by_hand():
    results = run(["./half_life.py:half_life", {"./half_life.py:half_life": {"level": 0.9}}])
    net = linear_net()
    share = changed_by_hand(net, *make_data(net)).mean(0)
    numbers = {
        row["protocol"]: row["mean"]
        for row in results.leaderboard()
        if row["method"] == "input_x_gradient"
    }
    assert numbers == {
        "half_life": pytest.approx(np.flatnonzero(share >= 0.5)[0] / 20),
        "half_life[level=0.9]": pytest.approx(np.flatnonzero(share >= 0.9)[0] / 20),
    }
    assert numbers["half_life"] < numbers["half_life[level=0.9]"]


READ = """
import json, sys
class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "half_life") or name.startswith("assay_file_"):
            raise ModuleNotFoundError(f"{name} must not be imported")
sys.meta_path.insert(0, Forbidden())
import assay
results = assay.load("run")
results.report("elsewhere.html")
rows = [results.leaderboard().rows, results.leaderboard().overall, results.against("random")]
print(json.dumps([*rows, results.scores["value"].to_pylist()]))
"""


def test_the_run_is_read_where_the_code_is_gone(home):
    results = run(["./half_life.py:half_life", "deletion"], "run")
    board = results.leaderboard()
    rows = rows_of(results, "half_life")
    assert rows[0]["method"] == "input_x_gradient"
    assert all(row["low"] < row["mean"] < row["high"] for row in rows)
    assert rows[0]["minus_random_low"] < rows[0]["minus_random"] < rows[0]["minus_random_high"]
    (home / "half_life.py").unlink()
    read = subprocess.run([sys.executable, "-c", READ], check=True, capture_output=True, text=True)
    here = [board.rows, board.overall, results.against("random")]
    values = results.scores["value"].to_pylist()
    assert json.loads(read.stdout) == json.loads(json.dumps([*here, values]))
    page = (home / "elsewhere.html").read_text()
    assert page.startswith(render(results).rstrip())  # a checksum follows
    assert "half_life" in page


def first_known(curves, x, weights):
    """A ratio of means: not a mean of ratios, and so a number of the set."""
    return (weights @ curves["first"][:, 0]) / (weights @ curves["last"][:, 0])


def plain_mean(curves, x, weights):
    return (weights @ curves["first"][:, 0]) / weights.sum(1)


def register(name: str, reduce) -> None:
    @assay.protocol(name, higher_is_better=True, metric="ratio", reduce=reduce)
    def protocol(case: assay.Case, *, seeded: bool = True) -> assay.Scores:
        """Two positive numbers of each sample that depend on its map and the seed."""
        noise = case.batch.draw("own", (1,)).double().reshape(-1, 1) if seeded else 0.0
        first = case.attribution.flatten(1)[:, :5].abs().sum(1, keepdim=True).double() + noise
        curves = {"first": first, "last": first.square() + 1}
        return assay.Scores(first[:, 0] - 7, curves, torch.zeros(1, dtype=torch.float64))


def stored_reductions(folder: str) -> set[str]:
    content = ShardLog(Path(folder) / "reductions.log").read()
    return {record.key for record in content.records.values()}


def grouped(samples: int = SAMPLES):
    """Samples of which every three belong together, the last ones alone."""
    data = as_dataset(make_data(linear_net(), samples))
    return replace(data, groups={s: f"g{min(i // 3, 9)}" for i, s in enumerate(data.ids)})


def test_stored_numbers_equal_those_of_a_reduction_that_rank_knows(monkeypatch):
    """With two seeds and with groups: in the order, against a control, and of each sample."""
    monkeypatch.setitem(reductions.REDUCTIONS, "known", Reduction(first_known))
    register("own", first_known)
    register("named", "known")
    results = run_with_seeds(["own", "named"], "run", grouped())
    assert results.manifest["protocols"]["own"]["reduce"] == f"{__name__}:first_known"
    assert rows_of(results, "own") == rows_of(results, "named")
    assert rows_of(results, "own", level=0.8) == rows_of(results, "named", level=0.8)
    assert rows_of(results, "own", level=0.8) != rows_of(results, "own")
    few = {"resamples": 100}
    assert rows_of(results, "own", **few) == rows_of(results, "named", **few)
    against = results.against("random")
    assert [{**row, "protocol": "own"} for row in against if row["protocol"] == "named"] == [
        row for row in against if row["protocol"] == "own"
    ]
    parts = results.query("select protocol, sample, seed, method, value from scores").to_pylist()
    own = {tuple(r.values())[1:]: r["value"] for r in parts if r["protocol"] == "own"}
    assert own == {tuple(r.values())[1:]: r["value"] for r in parts if r["protocol"] == "named"}
    assert {sample for sample, *_ in own} == set(grouped().ids)


def test_soundness_as_a_users_own_ranks_as_the_built_in(monkeypatch):
    """The built-in has parts of its own; the numbers and intervals are the same."""

    @assay.protocol("mine", higher_is_better=True, range=(0, 1), metric="share", reduce=soundness)
    def mine(
        case: assay.Case, *, epsilon: float = 0.5, levels: tuple[float, ...] = (0.5, 0.9)
    ) -> assay.Scores:
        """Soundness under another name."""
        return soundness_protocol(case, fill="zero", epsilon=epsilon, levels=levels)

    built_in = {"soundness": {"fill": "zero", "epsilon": 0.5, "levels": (0.5, 0.9), "label": "s"}}
    results = run(["mine", built_in])
    metric = {"metric": "share"}
    assert rows_of(results, "mine") == [{**row, **metric} for row in rows_of(results, "s")]
    assert {row["method"]: row["rank"] for row in rows_of(results, "mine")}


def test_the_plain_mean_has_the_scores_of_its_samples_as_parts():
    register("own", plain_mean)
    results = run(["own"])
    rows = results.query(
        "select s.sample, s.value as part, c.value as score from scores s join curves c "
        "on s.cell = c.cell and s.sample = c.sample where c.name = 'first' and s.method = 'random' "
        "order by s.sample"
    ).to_pylist()
    scores = np.array([row["score"] for row in rows])
    assert len(scores) == SAMPLES
    assert [row["part"] for row in rows] == pytest.approx(scores, rel=1e-9)
    (row,) = [row for row in rows_of(results, "own") if row["method"] == "random"]
    expected = set_interval(
        lambda weights: weights @ scores[:, None] / weights.sum(1, keepdims=True),
        [row["sample"] for row in rows],
    )
    assert row["mean"] == pytest.approx(scores.mean())
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))


def test_parts_have_the_number_as_their_mean_and_rise_with_what_a_sample_adds():
    generator = np.random.default_rng(0)
    curves = {"first": generator.random((9, 1)), "last": generator.random((9, 1)) + 1}
    x, reduction = np.zeros(1), Reduction(first_known)
    parts = reduction.parts(curves, x)
    assert parts.mean() == pytest.approx(curves["first"].sum() / curves["last"].sum())
    excess = curves["first"] - parts.mean() * curves["last"]  # to first order, a sample adds this
    assert (np.argsort(parts) == np.argsort(excess[:, 0])).all()
    one = {name: curve[:1] for name, curve in curves.items()}
    assert reduction.parts(one, x) == pytest.approx(one["first"][0] / one["last"][0])


def test_parts_of_many_samples_are_computed_piece_by_piece(monkeypatch):
    curves = {"first": np.random.default_rng(0).random((50, 1))}
    whole = Reduction(plain_mean).parts(curves, np.zeros(1))
    monkeypatch.setattr(reductions, "BLOCK", 120)
    assert Reduction(plain_mean).parts(curves, np.zeros(1)) == pytest.approx(whole, rel=1e-12)


# --- what is stored, and when it is computed again -----------------------------------------------


def test_more_samples_are_judged_anew(home):
    register("own", first_known)
    run(["own"], "run", limit=16)
    small = stored_reductions("run")
    grown = run(["own"], "run", limit=32)
    assert len(small) == len(METHODS)
    assert rows_of(grown, "own") == rows_of(run(["own"], "fresh", limit=32), "own")
    assert stored_reductions("run") == small | stored_reductions("fresh")


def test_a_new_method_changes_the_samples_in_common():
    """A method that fails on a sample takes it from the comparisons of all others."""
    register("own", first_known)
    x, y = make_data(linear_net())
    maps = x.sum(1)
    maps[3] = torch.nan
    before = run(["own"], "run", data=(x, y))
    with pytest.warns(RuntimeWarning, match="failed"):
        after = run(["own"], "run", data=(x, y), methods=[*METHODS, {"holes": maps}])
    assert {row["n_common"] for row in before.leaderboard()} == {SAMPLES}
    assert {row["n_common"] for row in after.leaderboard()} == {SAMPLES - 1}
    assert {row["method"]: row["n"] for row in after.leaderboard()}["holes"] == SAMPLES - 1
    assert len(after.against("random")) == len(METHODS)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_what_is_missing_is_said_and_computed_by_the_next_run(home, damage):
    register("own", first_known)
    rows = rows_of(run(["own", "deletion"], "run"), "own")
    damage(home / "run" / "reductions.log")
    with pytest.warns(RuntimeWarning, match="no scores of protocol `own` yet.*Run the suite again"):
        halted = assay.load("run").leaderboard()
    assert {r["status"] for r in halted if r["protocol"] == "own"} == {"failed"}
    assert {r["status"] for r in halted if r["protocol"] == "deletion"} == {"ok"}
    assert rows_of(run(["own", "deletion"], "run"), "own") == rows


def test_what_was_stored_for_other_curves_is_not_read(home):
    register("own", first_known)
    run(["own"], "run")
    log = Store("run").log(assay.load("run").entries.shards[0].id)
    (cell, *_) = (cell for record in log.read().of_kind(CELLS) for cell in read_cells(record))
    curves = {**cell.curves, "first": 2 * cell.curves["first"]}
    log.append(cells_record([replace(cell, curves=curves)]))
    with pytest.warns(RuntimeWarning, match="no scores of protocol `own` yet"):
        rows = assay.load("run").leaderboard().rows
    assert sorted(row["status"] for row in rows) == ["failed", "ok", "ok"]


def test_resamples_do_not_depend_on_how_many_are_drawn_at_a_time(monkeypatch):
    """Numbers are stored by resample, so a run stays readable if that choice changes."""
    whole = np.concatenate(list(resampling.resample_counts(7, 50, 0)))
    monkeypatch.setattr(resampling, "BLOCK", 40)
    pieces = list(resampling.resample_counts(7, 50, 0))
    assert len(pieces) == 10
    assert (np.concatenate(pieces) == whole).all()


def test_other_resamples_are_refused_and_fewer_methods_are_not():
    register("own", first_known)
    results = assay.load(run(["own"], "run").folder)
    for options in ({"seed": 1}, {"resamples": 2001}):
        with pytest.raises(assay.InputError, match="Leave `seed` at its default, and do"):
            results.leaderboard(**options)
    chosen = results.query("select * from scores where method <> 'saliency'")
    fewer = leaderboard(chosen, controls={"random": "random"}, outcomes=results.outcomes).rows
    means = {row["method"]: (row["mean"], row["low"], row["high"]) for row in results.leaderboard()}
    assert {row["method"]: (row["mean"], row["low"], row["high"]) for row in fewer} == {
        method: numbers for method, numbers in means.items() if method != "saliency"
    }


# --- what a reduction may be ----------------------------------------------------------------------


def test_the_code_of_the_reduction_is_part_of_the_protocols_key(home):
    def keys() -> tuple[dict, dict]:
        return choose_one("protocol", "own").key, choose_one("protocol", "by_address").key

    text = "def ratio(curves, x, weights):\n    return weights @ curves['first'][:, 0] / {}\n"
    (home / "ratios.py").write_text(text.format(2))
    register("own", first_known)
    register("by_address", "./ratios.py:ratio")
    first = keys()
    assert first == keys()
    register("own", plain_mean)
    (home / "ratios.py").write_text(text.format(3))
    second = keys()
    assert first[0] != second[0]
    assert first[1] != second[1]
    built_in = choose_one("protocol", "soundness").key
    assert set(built_in) == {"name", "version", "options", "nested"}


def test_a_reduction_by_address_is_run(home):
    (home / "ratios.py").write_text(
        "def ratio(curves, x, weights):\n"
        "    return (weights @ curves['first'][:, 0]) / (weights @ curves['last'][:, 0])\n"
    )
    register("own", first_known)
    register("by_address", "./ratios.py:ratio")
    results = run(["own", "by_address"])
    assert rows_of(results, "own") == rows_of(results, "by_address")
    assert results.manifest["protocols"]["by_address"]["reduce"] == "./ratios.py:ratio"


@pytest.mark.parametrize(
    ("reduce", "message"),
    [
        ("sondness", "Unknown set-level reduction `sondness`. Did you mean `soundness`"),
        (7, "Expected `reduce` to be a function .*got 7"),
        (lambda curves, x: x, "to take `.curves, x, weights.` and.*too many positional"),
        (lambda curves, x, weights, *, share: x, "options of its protocol .seeded.*'share'"),
    ],
)
def test_a_wrong_reduction_is_found_before_any_work(home, reduce, message):
    register("own", reduce)
    with pytest.raises(assay.InputError, match=message):
        run(["own"], "run")
    assert not (home / "run").exists()


def test_a_number_too_many_or_too_few_is_said():
    register("own", lambda curves, x, weights: curves["first"][:, 0])
    with pytest.raises(assay.InputError, match=r"one number for each row.*\(1,\), got shape"):
        run(["own"])


def test_an_error_in_the_reduction_names_it_and_leaves_the_other_scores():
    register("own", lambda curves, x, weights: weights @ curves["frist"][:, 0])
    with pytest.raises(assay.InputError, match=r"protocol `own` failed: KeyError: 'frist' \(test_"):
        run(["own", "deletion"], "run")
    with pytest.warns(RuntimeWarning, match="no scores of protocol `own` yet"):
        rows = assay.load("run").leaderboard().rows
    assert {(row["protocol"], row["status"]) for row in rows} == {
        ("deletion", "ok"),
        ("own", "failed"),
    }


def test_without_curves_a_cell_fails_and_says_why():
    @assay.protocol("bare", higher_is_better=True, reduce=first_known)
    def bare(case: assay.Case) -> assay.Scores:
        """Gives no curves."""
        return assay.Scores(torch.zeros(len(case.batch)))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        results = run(["bare"])
    assert "its reduction computes the score of the set from them" in results.failures[0]["message"]
    assert {row["status"] for row in results.leaderboard()} == {"failed"}


def test_curves_taken_at_different_points_are_refused():
    @assay.protocol("uneven", higher_is_better=True, reduce=first_known)
    def uneven(case: assay.Case) -> assay.Scores:
        """Takes the curves of each shard elsewhere."""
        values = torch.ones(len(case.batch), 1)
        x = case.attribution.flatten()[:1].double()
        return assay.Scores(values[:, 0], {"first": values, "last": values}, x)

    with pytest.raises(assay.InputError, match="`uneven` to take the curves of all samples at the"):
        run(["uneven"])


def test_score_gives_the_parts():
    net = linear_net()
    x, y = make_data(net)
    parts = assay.score(net, x, y, x.sum(1), "./half_life.py:half_life")
    assert len(parts) == SAMPLES
    results = run(["./half_life.py:half_life"], methods=[{"sum": x.sum(1)}])
    assert float(parts.mean()) == pytest.approx(results.leaderboard()[0]["mean"])
