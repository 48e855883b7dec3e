"""Set protocols in a run: keys, resuming, sharing, failures, forecasts, pools."""

import json
import signal
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import assay
from assay.conformance.set_protocols import planted_block
from assay.data.memory import as_dataset
from assay.plan import trainings
from assay.plan.trainings import TrainingCost
from assay.plugins import registry
from assay.ranking import leaderboard as ranked
from assay.ranking.ranked_run import ranges_of
from assay.run import suite_run, trials
from assay.run.suite_run import run_suite
from assay.store.cell_records import CELLS
from assay.store.shard_log import ShardLog
from assay.suite.spec import make_suite, read_suite
from assay.training.fresh import fresh_copy
from stored_logs import logs

ROAR = {"roar": {"fractions": (0.1, 0.5), "retrainings": 2, "epochs": 2, "augment": False}}
QUIET = {"progress": False}


@pytest.fixture(scope="module")
def exam():
    return planted_block()


@pytest.fixture
def fits(monkeypatch):
    """The trainings that were made, as a list of seeds."""
    made, real = [], trials.fit_network

    def counted(*args, **options):
        made.append(options["seed"])
        return real(*args, **options)

    monkeypatch.setattr(trials, "fit_network", counted)
    return made


def exact(exam):
    return {"exact": exam.exact}


def values(results, method="exact", protocol="roar"):
    rows = [
        r
        for r in results.scores.to_pylist()
        if r["headline"] and r["method"] == method and r["protocol"].startswith(protocol)
    ]
    return [row["value"] for row in rows]


def test_without_training_samples_it_does_not_apply_and_says_the_cure(exam):
    results = assay.benchmark(exam.net, exam.scored, exact(exam), ["roar"], **QUIET, controls="off")
    (reason,) = {row["reason"] for row in results.not_applicable}
    assert "train=(X, y)" in reason
    assert "--train" in reason


def test_training_data_change_the_keys_of_set_cells_only(exam, tmp_path):
    protocols = ["single_deletion", ROAR]
    other = (exam.train[0] * 2, exam.train[1])
    cells = []
    for number, train in enumerate((None, exam.train, other)):
        out = tmp_path / str(number)
        results = assay.benchmark(
            exam.net,
            exam.scored,
            exact(exam),
            protocols,
            train=train,
            out=out,
            **QUIET,
            controls="off",
        )
        cells.append(results.entries.shards[0].cells)
    batch, whole = zip(*cells, strict=True)
    assert len(set(batch)) == 1
    assert len(set(whole)) == 3


def test_finished_cells_and_networks_are_not_made_again(exam, tmp_path, fits):
    first = assay.benchmark(
        exam.net,
        exam.scored,
        exact(exam),
        [ROAR],
        train=exam.train,
        out=tmp_path,
        **QUIET,
        controls="off",
    )
    assert len(fits) == 4
    both = {**exact(exam), "twin": lambda model, batch: 2 * exam.exact(model, batch)}
    second = assay.benchmark(
        exam.net, exam.scored, both, [ROAR], train=exam.train, out=tmp_path, **QUIET, controls="off"
    )
    assert len(fits) == 4  # the twin has the same order, up to ties drawn by the same seed
    assert values(first) == values(second) == values(second, "twin")


def test_a_killed_run_goes_on_where_it_stopped(exam, tmp_path, fits, monkeypatch):
    counted = trials.fit_network

    def killed(*args, **options):
        if len(fits) == 2:
            signal.raise_signal(signal.SIGINT)
        return counted(*args, **options)

    call = {"train": exam.train, "out": tmp_path, **QUIET}
    with monkeypatch.context() as patched:
        patched.setattr(trials, "fit_network", killed)
        with pytest.raises(KeyboardInterrupt):
            assay.benchmark(exam.net, exam.scored, exact(exam), [ROAR], **call, controls="off")
    results = assay.benchmark(exam.net, exam.scored, exact(exam), [ROAR], **call, controls="off")
    assert len(fits) == 4
    whole = assay.benchmark(
        exam.net, exam.scored, exact(exam), [ROAR], train=exam.train, **QUIET, controls="off"
    )
    assert values(results) == values(whole)


def test_one_failing_cell_leaves_its_message(exam, recwarn):
    def broken(model, batch):
        if batch.ids[0].startswith("train/"):
            raise ValueError("no maps of these")
        return exam.exact(model, batch)

    methods = {**exact(exam), "broken": broken}
    results = assay.benchmark(
        exam.net,
        exam.scored,
        methods,
        [ROAR, "single_deletion"],
        train=exam.train,
        **QUIET,
        controls="off",
    )
    assert {f["method"] for f in results.failures} == {"broken"}
    assert "no maps of these" in results.failures[0]["message"]
    assert len(values(results)) == len(values(results, "broken", "single")) == 40


def test_maps_computed_elsewhere_have_none_of_the_training_samples(exam):
    maps = {"given": torch.rand(40, 8, 8)}
    results = assay.benchmark(
        exam.net, exam.scored, maps, [ROAR], train=exam.train, **QUIET, controls="off"
    )
    (row,) = results.not_applicable
    assert "computed elsewhere" in row["reason"]


def test_a_method_that_needs_truth_lacks_it_on_the_training_samples(exam):
    x, y = exam.scored
    truth = torch.rand(40, 8, 8)
    results = assay.benchmark(
        exam.net, (x, y, truth), ["oracle"], [ROAR], train=exam.train, **QUIET, controls="off"
    )
    (row,) = results.not_applicable
    assert "maps of the training samples" in row["reason"]


def test_a_time_budget_says_that_training_is_not_counted(exam, capsys):
    call = (exam.net, exam.scored, exact(exam), [ROAR])
    assay.benchmark(*call, train=exam.train, budget="1h", controls="off")
    assert "without the networks that are trained" in capsys.readouterr().err


def test_few_retrainings_give_scores_and_no_order(exam, tmp_path):
    methods = {**exact(exam), "random": {}, "constant": {}}
    results = assay.benchmark(
        exam.net,
        exam.scored,
        methods,
        [ROAR],
        train=exam.train,
        out=tmp_path,
        **QUIET,
        controls="off",
    )
    rows = list(results.leaderboard())
    assert {row["rank"] for row in rows} == {None}
    assert all(row["mean"] is not None for row in rows)
    assert not results.leaderboard().overall
    entry = next(iter(results.entries.protocols.values()))
    assert "A ranking needs at least 5" in entry.unranked
    page = results.report(tmp_path).read_text()
    assert "A ranking needs at least 5" in page
    assert "intervals are over samples and replicates" in page


def test_five_retrainings_give_an_order(exam):
    roar = {"roar": {"fractions": (0.1,), "retrainings": 5, "epochs": 2, "augment": False}}
    methods = {**exact(exam), "random": {}, "constant": {}}
    results = assay.benchmark(
        exam.net, exam.scored, methods, [roar], train=exam.train, **QUIET, controls="off"
    )
    rows = {row["method"]: row for row in results.leaderboard()}
    assert rows["exact"]["rank"] == 1
    assert rows["random"]["rank"] == rows["constant"]["rank"] == 2
    assert results.entries.protocols[rows["exact"]["protocol"]].unranked == ""
    assert results.leaderboard().overall[0]["method"] == "exact"
    # The interval of the difference is wider than that over the samples alone.
    names = [f"retraining_{s}" for s in range(5)]
    table = results.scores.to_pylist()
    for name in names:
        assert len([r for r in table if r["metric"] == name]) == 3 * 40
    alone = ranked(
        results.scores, controls=results.entries.controls, ranges=ranges_of(results.entries)
    )
    widths = [
        row["minus_random_high"] - row["minus_random_low"]
        for row in (next(r for r in alone if r["method"] == "exact"), rows["exact"])
    ]
    assert widths[0] < widths[1]


@pytest.fixture
def own_protocol():
    """Registers a protocol of a test's own and removes it afterwards."""
    added = []

    def add(function, **facts):
        added.append(function.__name__)
        return assay.protocol(function.__name__, range=(0, 1), **facts)(function)

    yield add
    for name in added:
        registry._REGISTERED["protocol"].pop(name, None)


def drawn(option):
    """The names of as many replicates as an option says."""
    return lambda options: [f"draw_{i}" for i in range(options[option])]


def test_ones_own_protocol_is_ranked_by_its_replicates(exam, own_protocol):
    """All methods are worth the same; each replicate moves each of them by chance."""

    def coin(trial: assay.Trial, *, draws: int = 5) -> assay.Scores:
        """A number per method and replicate, the same for all samples up to little noise."""
        batch = trial.batch()
        maps = int(trial.maps().double().sum().item() * 1000) % 1000
        little = 0.01 * batch.draw(f"little {maps}", (1,)).double().flatten()
        seeds = [torch.Generator().manual_seed(1000 * maps + i) for i in range(draws)]
        each = {
            f"draw_{i}": 0.9 * torch.rand(1, generator=seed).double() + little
            for i, seed in enumerate(seeds)
        }
        return assay.Scores(torch.stack(list(each.values())).mean(0), extra=each)

    own_protocol(coin, scope="set", replicates=drawn("draws"))
    methods = ["saliency", "input_x_gradient", "occlusion", "random"]
    call = (exam.net, exam.scored, methods)
    for draws, ranks in ((5, {1}), (4, {None})):
        results = assay.benchmark(*call, [{"coin": {"draws": draws}}], **QUIET, controls="off")
        assert not results.failures
        assert {row["rank"] for row in results.leaderboard()} == ranks
    results = assay.benchmark(*call, ["coin"], **QUIET, controls="off")
    means = [row["mean"] for row in results.leaderboard()]
    assert max(means) - min(means) > 0.1
    by_samples = ranked(results.scores, controls={})  # as if nothing were repeated
    assert len({row["rank"] for row in by_samples}) > 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "`draw_0` is missing or has another shape"),
        ({"draw_0": 0.0, "draw_1": 0.5}, "to be the mean of its replicates `draw_0`, `draw_1`"),
    ],
)
def test_replicates_that_are_not_as_declared_fail_the_cell(exam, own_protocol, given, message):
    def pair(trial: assay.Trial, *, draws: int = 2) -> assay.Scores:
        """Half a point for every sample."""
        ones = torch.ones(len(trial.batch()), dtype=torch.float64)
        return assay.Scores(0.5 * ones, extra={name: v * ones for name, v in given.items()})

    own_protocol(pair, scope="set", replicates=drawn("draws"))
    with pytest.warns(RuntimeWarning):
        results = assay.benchmark(
            exam.net, exam.scored, ["random"], ["pair"], **QUIET, controls="off"
        )
    assert message in results.failures[0]["message"]


def test_replicates_that_cannot_be_declared_are_refused_before_the_run(exam, own_protocol):
    def one(case: assay.Case) -> assay.Scores:
        """Nothing."""
        return assay.Scores(torch.zeros(len(case.batch)))

    call = (exam.net, exam.scored, ["random"])
    own_protocol(one, replicates=lambda options: ["a", "b"])
    with pytest.raises(assay.InputError, match=r"`one`.*scope='set'.*scope `batch`"):
        assay.benchmark(*call, ["one"], **QUIET, controls="off")
    for names in (["a", "a"], ["a", "value"]):
        own_protocol(one, scope="set", replicates=lambda options, names=names: names)
        with pytest.raises(assay.InputError, match="name each metric once"):
            assay.benchmark(*call, ["one"], **QUIET, controls="off")


def test_broken_maps_of_training_samples_fail_the_cell(exam):
    def broken(model, batch):
        maps = torch.rand(len(batch), *batch.map_shape)
        is_training = torch.tensor([i.startswith("train/") for i in batch.ids])
        return torch.where(is_training[:, None, None], torch.nan, maps)

    results = assay.benchmark(
        exam.net, exam.scored, [broken], [ROAR], train=exam.train, **QUIET, controls="off"
    )
    assert results.failures
    assert all("maps of the training samples" in f["message"] for f in results.failures)


def test_maps_of_the_label_are_warned_of(exam):
    call = (exam.net, exam.scored, ["saliency"], [ROAR])
    with pytest.warns(RuntimeWarning, match="target: predicted"):
        assay.benchmark(*call, train=exam.train, **QUIET, controls="off")


def test_the_dry_run_counts_the_maps_of_the_training_samples(exam, tmp_path):
    call = (exam.net, exam.scored, ["saliency"], [ROAR])
    before = assay.dry_run(*call, train=exam.train, out=tmp_path, time_it=False, controls="off")
    assert before.method_rows == {"saliency": 40 + 160}
    ((label, cost),) = before.trainings.items()
    # Of 160 samples an epoch uses the one whole batch of 128.
    assert cost == TrainingCost(networks=4, epochs=2, passes=4 * 2 * 128)
    assert f"{label} trains at most 4 networks on 160 samples for 2 epochs" in str(before)
    assert "1,024 forward and backward passes whose time was not measured" in str(before)
    assay.benchmark(*call, train=exam.train, out=tmp_path, **QUIET, controls="off")
    after = assay.dry_run(*call, train=exam.train, out=tmp_path, time_it=False, controls="off")
    assert (after.method_rows, after.trainings) == ({}, {})


@pytest.fixture
def brief(monkeypatch):
    """A dry run that times little."""
    monkeypatch.setattr(trainings, "LEAST", 0.01)
    monkeypatch.setattr(suite_run, "timings", lambda *args: {})


def test_the_dry_run_measures_a_training_step(exam, fits, brief, monkeypatch):
    call = (exam.net, exam.scored, ["saliency", "random"], [ROAR, "mask_leakage"])
    before = assay.model(exam.net).weights_hash
    expected = assay.dry_run(*call, train=exam.train, controls="off")
    assert assay.model(exam.net).weights_hash == before
    assert not fits  # `fits` counts the trainings of runs
    assert expected.training_seconds > 0
    assert "passes that take about" in str(expected)
    monkeypatch.setattr(trainings.StepClock, "_measure", lambda clock, cell, recipe: 0.5)
    roar, leakage = assay.dry_run(*call, train=exam.train, controls="off").trainings.values()
    assert roar.seconds == 2 * 4 * 2 * 0.5  # methods, networks, epochs of one step
    assert leakage.seconds == 2 * 1 * 30 * 0.5


def test_a_training_step_that_fails_has_no_time(exam, brief, monkeypatch):
    def failing(*args, **options):
        raise RuntimeError("no")

    monkeypatch.setattr(trainings, "fit_network", failing)
    expected = assay.dry_run(
        exam.net, exam.scored, ["random"], [ROAR], train=exam.train, controls="off"
    )
    assert expected.training_seconds is None
    assert "whose time was not measured" in str(expected)


def test_what_ones_own_protocol_trains(exam, own_protocol):
    def trained(trial: assay.Trial, *, epochs: int = 3) -> assay.Scores:
        """Nothing."""
        return assay.Scores(torch.zeros(len(trial.batch()), dtype=torch.float64))

    def lines(trains):
        own_protocol(trained, scope="set", needs=["training"], trains=trains)
        call = (exam.net, exam.scored, ["random"], ["trained"])
        return str(assay.dry_run(*call, train=exam.train, time_it=False, controls="off"))

    assert "at most 2 networks on 160 samples, which takes a time" in lines(lambda options: 2)
    recipe = {"epochs": 3, "batch": 50}
    assert "at most 900 forward" in lines(lambda options: assay.Trainings(2, recipe))
    with pytest.raises(assay.InputError, match=r"`trained`.*settings among epochs.*got epoch"):
        lines(lambda options: assay.Trainings(2, {"epochs": 3, "epoch": 3}))


def test_training_maps_are_stored_by_chunk_and_read_back(exam, tmp_path):
    explained = []

    def method(model, batch):
        explained.extend(batch.ids)
        return exam.exact(model, batch)

    call = {"train": exam.train, "out": tmp_path, **QUIET}
    assay.benchmark(exam.net, exam.scored, {"mine": method}, [ROAR], **call, controls="off")
    assert len(explained) == len(set(explained)) == 200
    files = sorted((tmp_path / "attributions").glob("*/*.safetensors"))
    chunk = next(f for f in files if f.stat().st_size > 64 * 256)
    chunk.unlink()
    for path in logs(tmp_path):  # the cells are forgotten, the files are not
        content = ShardLog(path).read()
        path.unlink()
        for record in content.records.values():
            if record.kind != CELLS:
                ShardLog(path).append(record)
    explained.clear()
    assay.benchmark(exam.net, exam.scored, {"mine": method}, [ROAR], **call, controls="off")
    assert len(explained) in (8, 16, 64)


def test_a_pool_protocol_reads_the_maps_of_all_models(exam, tmp_path):
    @assay.protocol("agreement_for_this_test", scope="set", models="pool", range=(-1, 1))
    def agreement(trial: assay.Trial) -> assay.Scores:
        """The mean cosine with the maps of the other models."""
        own = trial.maps().flatten(1)
        others = [trial.maps("scored", name).flatten(1) for name in trial.models]
        cosines = [torch.cosine_similarity(own, other) for other in others]
        return assay.Scores(torch.stack(cosines).mean(0).double())

    nets = [nn.Sequential(nn.Flatten(), nn.Linear(64, 2)) for _ in range(2)]
    try:
        spec = make_suite(
            {
                "datasets": [as_dataset(exam.scored)],
                "models": [
                    assay.model(net, name=name) for net, name in zip(nets, "ab", strict=True)
                ],
                "methods": ["input_x_gradient"],
                "protocols": ["agreement_for_this_test"],
                "controls": "off",
            }
        )
        rows = run_suite(spec, tmp_path, **QUIET).scores.to_pylist()
    finally:
        del registry._REGISTERED["protocol"]["agreement_for_this_test"]
    by_model = {m: [r["value"] for r in rows if r["model"] == m] for m in "ab"}
    assert len(by_model["a"]) == 40
    assert by_model["a"] == pytest.approx(by_model["b"])
    assert max(by_model["a"]) < 1


SUITE = """
datasets: ["./data.py:scored"]
train: "./data.py:train"
models: ["./data.py:net"]
methods: [saliency, random]
protocols: [single_deletion, {roar: {fractions: [0.3], retrainings: 2, epochs: 2}}]
"""
DATA = """
    import torch
    from assay.conformance.set_protocols import planted_block

    def scored():
        return planted_block().scored

    def train():
        return planted_block().train

    def net():
        return planted_block().net
"""


def test_two_workers_give_the_same_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.py").write_text(textwrap.dedent(DATA))
    Path("suite.yaml").write_text(SUITE)
    one = run_suite(read_suite("suite.yaml"), "one", **QUIET)
    two = run_suite(read_suite("suite.yaml"), "two", workers=2, **QUIET)
    assert one.scores.to_pylist() == two.scores.to_pylist()
    assert one.curves.to_pylist() == two.curves.to_pylist()
    assert one.complete
    assert two.complete
    assert one.report().stat().st_size > 10_000
    assert json.loads(Path("one/manifest.json").read_text())["datasets"]["scored"]["n_train"] == 160


def test_more_scored_samples_train_nothing_again(exam, tmp_path, fits):
    call = {"train": exam.train, "out": tmp_path, **QUIET}
    assay.benchmark(exam.net, exam.scored, exact(exam), [ROAR], limit=20, **call, controls="off")
    assert len(fits) == 4
    results = assay.benchmark(exam.net, exam.scored, exact(exam), [ROAR], **call, controls="off")
    assert (len(values(results)), len(fits)) == (40, 4)


def test_the_command_takes_training_samples(exam, tmp_path, call, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("data.py").write_text(textwrap.dedent(DATA))
    own = '@assay.protocol("seen", scope="set", needs=["training"], range=(0, 1))\n'
    body = "    return assay.Scores(torch.ones(len(trial.batch()), dtype=torch.float64))\n"
    Path("mine.py").write_text(f"import assay, torch\n{own}def seen(trial):\n{body}")
    words = ("run", "--model", "./data.py:net", "--data", "./data.py:scored", "--methods", "random")
    more = ("--protocols", "./mine.py:seen", "--out", "out")
    code, out, _ = call(*words, *more)
    assert (code, "needs training" in out.lower()) == (0, True)
    code, out, _ = call(*words, *more, "--train", "./data.py:train", "--dry-run")
    assert (code, "unknown number of networks" in " ".join(out.split())) == (0, True)
    code, out, _ = call(*words, *more, "--train", "./data.py:train")
    assert (code, "Not applicable" in out) == (0, False)
    code, _, errors = call("run", "out/spec.yaml", "--train", "./data.py:train")
    assert (code, "--train" in errors) == (2, True)


class TestSplits:
    def test_a_split_has_ids_of_its_own(self, exam):
        data = as_dataset(exam.scored).with_train(as_dataset(exam.train))
        train = data.split("train")
        assert not set(train.ids) & set(data.ids)
        batch = train.batch(train.ids[:3])
        assert torch.equal(batch.inputs, exam.train[0][:3])
        assert "training" in data.has
        first = data.batch(data.ids[:3])
        assert not torch.equal(batch.draw("x", (5,)), first.draw("x", (5,)))

    def test_wrong_training_samples_are_refused(self, exam):
        data = as_dataset(exam.scored)
        with pytest.raises(assay.PrerequisiteError, match="no split `train`"):
            data.split("train")
        with pytest.raises(assay.InputError, match="other than the scored"):
            data.with_train(as_dataset(exam.scored))
        with pytest.raises(assay.InputError, match="labels"):
            data.with_train(as_dataset((exam.train[0], None)))
        with pytest.raises(assay.InputError, match="to be images"):
            data.with_train(as_dataset((exam.train[0].flatten(1), exam.train[1])))
        with pytest.raises(assay.InputError, match="one for each of 1 datasets"):
            make_suite(
                {
                    "datasets": ["a"], "train": ["b", "c"], "models": ["d"], "methods": ["random"],
                    "protocols": ["roar"],
                }
            )  # fmt: skip

    def test_scored_samples_among_the_training_samples_are_refused(self, exam, tmp_path):
        """By content, before anything is computed."""
        call = {"out": tmp_path / "run", **QUIET}
        data, train = as_dataset(exam.scored), (exam.train[0].clone(), exam.train[1])
        first, second = [int(i) for i in data.ids if i not in data.drawn(8)][:2]
        train[0][[9, 30]] = exam.scored[0][[second, first]]
        shared = rf"2 of \d+ .*: `{first:04d}`, `{second:04d}`\. Leave them out of `data`"
        with pytest.raises(assay.InputError, match=shared):
            assay.benchmark(
                exam.net, exam.scored, exact(exam), [ROAR], train=train, **call, controls="off"
            )
        assert not (tmp_path / "run").exists()
        assay.benchmark(
            exam.net, exam.scored, exact(exam), [ROAR], train=train, limit=8, **call, controls="off"
        )
        call["out"] = tmp_path / "other"  # protocols that train nothing do not read them
        assay.benchmark(
            exam.net,
            exam.scored,
            exact(exam),
            ["single_deletion"],
            train=train,
            **call,
            controls="off",
        )

    def test_labels_without_an_output_are_refused(self, exam):
        train = (exam.train[0], exam.train[1] + 1)
        with pytest.raises(assay.InputError, match="below 2"):
            assay.benchmark(
                exam.net, exam.scored, exact(exam), [ROAR], train=train, **QUIET, controls="off"
            )


class TestFreshCopy:
    def test_new_weights_by_seed_and_the_original_stays(self):
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
        with torch.no_grad():
            net(torch.randn(8, 3, 3, 3))  # moves the statistics of batch-norm
        model = assay.model(net)
        before = model.weights_hash
        first, same, other = (fresh_copy(model, seed) for seed in (0, 0, 1))
        assert first.weights_hash == same.weights_hash != other.weights_hash
        assert model.weights_hash == before
        assert torch.equal(first.net[1].running_mean, torch.zeros(4))

    def test_weights_without_a_reset_keep_only_their_size(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(3 + torch.randn(1000))

            def forward(self, x):
                return x

        trained = Scaled()
        fresh = fresh_copy(assay.model(trained), 0).net
        assert abs(fresh.weight.mean() - 3) < 0.2
        assert abs(torch.corrcoef(torch.stack([fresh.weight, trained.weight]))[0, 1]) < 0.1


def test_a_set_protocol_does_not_score_single_maps(exam):
    x, y = exam.scored
    with pytest.raises(assay.InputError, match=r"train=\(X, y\)"):
        assay.score(exam.net, x, y, torch.rand(40, 8, 8), "roar")
