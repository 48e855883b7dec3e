"""A run on disk: resumed, spread, grown, interrupted and damaged."""

import errno
import json
import math
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import assay
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.plan.plan import SHARDS
from assay.run import run
from assay.store import CURVES, SCORES, Store, file_name
from assay.store.shard_log import ShardLog
from assay.suite.spec import make_suite
from small_worlds import make_images, make_net
from stored_logs import logs, only_grown, stored_cells, unchanged

TOY = Path(__file__).with_name("toy_run.py")
QUIET = {"progress": False}
METHODS = ["saliency", "gradcam", "random"]
PROTOCOLS = [{"abpc": {"steps": 4}}, "single_deletion", {"sensitivity_n": {"subsets": 4}}]


def toy(out: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, str(TOY), str(out), *arguments], check=True, stdout=subprocess.DEVNULL
    )


def table(results: assay.Results, name: str, sort: bool = False) -> list[tuple[object, ...]]:
    """All rows of a table; NaN as text, so that equal means equal in every bit."""
    columns = [c.to_pylist() for c in getattr(results, name).columns]
    rows = [
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in r)
        for r in zip(*columns, strict=True)
    ]
    return sorted(rows, key=str) if sort else rows


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An uninterrupted run with one worker."""
    out = tmp_path_factory.mktemp("whole")
    toy(out, "--slow")
    return out


class TestEqualBitForBit:
    def test_with_two_workers(self, whole, tmp_path):
        toy(tmp_path, "--slow", "--workers", "2")
        for name in ("scores", "curves", "checks"):
            assert table(assay.load(tmp_path), name) == table(assay.load(whole), name)

    def test_in_another_order_of_samples(self, whole, tmp_path):
        """Other neighbours, other shards, other places in the batch: the same rows."""
        toy(tmp_path, "--slow", "--shuffle", "5")
        first, second = assay.load(whole), assay.load(tmp_path)
        assert first.manifest["shards"][0]["samples"] != second.manifest["shards"][0]["samples"]
        for name in ("scores", "curves", "checks"):
            assert table(second, name, sort=True) == table(first, name, sort=True)

    def test_after_a_kill_in_the_middle(self, whole, tmp_path):
        command = [sys.executable, str(TOY), str(tmp_path), "--slow"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and len(stored_cells(tmp_path)) < 40:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        finished, before = stored_cells(tmp_path), logs(tmp_path)
        planned = (len(SHARDS) + 1) * 6 * 6
        assert 40 <= len(finished) < planned
        toy(tmp_path, "--slow")
        for name in ("scores", "curves", "checks"):
            assert table(assay.load(tmp_path), name) == table(assay.load(whole), name)
        assert only_grown(before)
        assert len(stored_cells(tmp_path)) == planned

    def test_running_again_computes_nothing(self, whole):
        before = logs(whole)
        toy(whole, "--slow")
        assert unchanged(before)


class CountingNet:
    """A network with a hook that counts rows and calls."""

    def __init__(self, seed: int = 0) -> None:
        self.net = make_net(seed)
        self.rows = self.calls = 0
        self.net.register_forward_hook(self.count)

    def count(self, module, inputs, output) -> None:
        self.rows += len(inputs[0])
        self.calls += 1

    def take(self) -> int:
        rows, self.rows, self.calls = self.rows, 0, 0
        return rows


class TestForwardsAreShared:
    def test_shared_forwards_do_not_grow_with_methods(self):
        counted, data = CountingNet(), make_images(6)
        shared = [
            "single_deletion",
            {"sensitivity_n": {"subsets": 4}},
            {"infidelity": {"stride": 0.25}},
        ]
        sizes = []
        for methods in (["random"], ["random", "centre", "edge", "constant"]):
            assay.benchmark(counted.net, data, methods, shared, micro_batch=6, **QUIET)
            sizes.append(counted.take())
        assert sizes[0] == sizes[1] > 6 * 16

    def test_adding_a_method_computes_nothing_of_the_others(self, tmp_path):
        counted, data = CountingNet(), make_images(6)
        assay.benchmark(
            counted.net,
            data,
            ["saliency", "random"],
            PROTOCOLS,
            out=tmp_path,
            micro_batch=6,
            **QUIET,
        )
        counted.take()
        grown = assay.benchmark(
            counted.net,
            data,
            ["saliency", "random", "edge"],
            PROTOCOLS,
            out=tmp_path,
            micro_batch=6,
            **QUIET,
        )
        # One look at the network, and the new map's own curve: 3 inner points each way.
        assert counted.take() == 2 + 6 * 2 * 3
        assert set(grown.scores["method"].to_pylist()) == {"saliency", "random", "edge"}

    def test_the_cost_of_a_run_adds_up_over_its_parts(self, tmp_path):
        counted, data = CountingNet(), make_images(6)
        options = {"out": tmp_path, "micro_batch": 6, **QUIET}
        assay.benchmark(counted.net, data, ["saliency"], PROTOCOLS, **options)
        grown = assay.benchmark(counted.net, data, ["saliency", "edge"], PROTOCOLS, **options)
        assert (
            grown.manifest["forwards"] == counted.take() - 2 * 2 - 6
        )  # two looks, samples asked twice

    def test_adding_a_protocol_explains_nothing_again(self, tmp_path):
        counted, data = CountingNet(), make_images(6)
        methods = [{"integrated_gradients": {"steps": 9}}]
        how = {"out": tmp_path, "micro_batch": 6, "controls": "off", **QUIET}
        assay.benchmark(counted.net, data, methods, ["single_deletion"], **how)
        counted.take()
        assay.benchmark(
            counted.net,
            data,
            methods,
            ["single_deletion", {"deletion": {"steps": 2}}],
            **how,
        )
        assert counted.take() == 2 + 6  # a look; half removed: all removed is known

    def test_a_reduction_of_the_same_formula_is_free(self):
        counted, data = CountingNet(), make_images(6)
        ig = {"steps": 4}
        methods = [{"integrated_gradients": ig}, {"integrated_gradients": {**ig, "abs": True}}]
        assay.benchmark(counted.net, data, methods, ["single_deletion"], micro_batch=6, **QUIET)
        # A look, four samples and two of them again, the clean answers and those without anything,
        # the cells, the steps; the check, at both ends of the way.
        assert counted.take() == 2 + (4 + 2) + 6 * 2 + 6 * 16 + 6 * 4 + 6 * 2


class TestForecast:
    @pytest.mark.parametrize("micro_batch", [1, 5, 6])
    def test_forwards_are_predicted_exactly(self, micro_batch):
        counted, data = CountingNet(), make_images(6)
        methods = [
            "saliency",
            {"integrated_gradients": {"steps": 3}},
            "gradcam",
            "random",
            {"shuffled": {"of": "gradcam"}},
        ]
        updated = {"steps": 5, "attribution": "updated"}
        protocols = [
            *PROTOCOLS,
            {"incremental_deletion": updated},
            {"incremental_deletion": {**updated, "output": "logit"}},  # the same rows, explained
            {"incremental_deletion": {**updated, "steps": (0, 0.4, 0.6, 1), "force": True}},
            "comprehensiveness",
            "faithfulness_correlation",
        ]
        expected = assay.dry_run(
            counted.net, data, methods, protocols, micro_batch=micro_batch, time_it=False
        )
        assert counted.take() == 0
        run = assay.benchmark(
            counted.net, data, methods, protocols, micro_batch=micro_batch, **QUIET
        )
        assert counted.calls == expected.calls
        if micro_batch in (1, 6):  # nothing is padded
            assert counted.take() == expected.forwards
        assert run.manifest["forwards"] == expected.forwards - 2 - expected.repeated  # the look

    def test_what_is_finished_costs_nothing(self, tmp_path):
        counted, data = CountingNet(), make_images(6)
        assay.benchmark(counted.net, data, METHODS, PROTOCOLS, out=tmp_path, **QUIET)
        done = assay.dry_run(counted.net, data, METHODS, PROTOCOLS, out=tmp_path, time_it=False)
        assert (done.forwards, done.calls) == (0, 0)
        more = assay.dry_run(
            counted.net, data, [*METHODS, "edge"], PROTOCOLS, out=tmp_path, time_it=False
        )
        assert more.forwards == 2 + 6 * 2 * 3

    def test_time_is_estimated(self):
        found = assay.dry_run(make_net(), make_images(6), METHODS, PROTOCOLS)
        assert found.seconds is not None
        assert found.seconds > 0


class TestTables:
    @pytest.fixture(scope="class")
    @classmethod
    def results(cls):
        return assay.benchmark(make_net(), make_images(12), METHODS, PROTOCOLS, **QUIET)

    def test_have_the_documented_columns(self, results):
        assert isinstance(results.scores, pa.Table)
        assert results.scores.schema.equals(SCORES)
        assert results.curves.schema.equals(CURVES)
        documented = [
            *("cell", "dataset", "model", "checkpoint", "method", "method_version"),
            *("method_options", "protocol", "protocol_version", "protocol_options", "metric"),
            *("target", "sample", "group", "seed", "value", "higher_is_better", "status"),
        ]
        assert set(documented) <= set(results.scores.column_names)

    def test_labels_name_only_what_differs(self, results):
        assert set(results.scores["protocol"].to_pylist()) == {
            "abpc[steps=4]", "single_deletion", "sensitivity_n[subsets=4]",
        }  # fmt: skip
        options = json.loads(results.scores["protocol_options"][0].as_py())
        assert options["steps"] == 4
        assert options["fill"] == "zero"

    def test_leaderboard_rows_are_complete(self, results):
        rows = results.leaderboard().rows
        needed = {
            "protocol", "method", "mean", "low", "high", "rank", "n", "status", "method_options",
            "protocol_options", "metric",
        }  # fmt: skip
        assert all(needed <= set(row) for row in rows)
        assert len(rows) == 9

    def test_scores_equal_the_score_function(self, results):
        net, (x, y) = make_net(), make_images(12)
        maps = assay.explain(net, x, y, "saliency")
        expected = assay.score(net, x, y, maps, "single_deletion")
        chosen = results.query(
            "select value from scores where method = 'saliency' "
            "and protocol = 'single_deletion' order by sample"
        )
        assert chosen["value"].to_numpy() == pytest.approx(expected.numpy(), abs=1e-12)

    def test_a_page_is_written(self, results, tmp_path):
        page = results.report(tmp_path / "page.html")
        assert "saliency" in page.read_text()


class TestBadInput:
    def test_a_method_that_raises_fails_alone(self):
        def broken(model, batch):
            raise ValueError("no luck today")

        results = assay.benchmark(
            make_net(), make_images(4), ["random", broken], PROTOCOLS, **QUIET
        )
        failed = results.query("select distinct method, status from scores where status = 'failed'")
        assert failed["method"].to_pylist() == ["broken"]
        assert len(results.failures) == 3
        assert "no luck today" in results.failures[0]["message"]
        assert (
            results.query(
                "select count(*) as n from scores where method = 'random' and status = 'ok'"
            )["n"][0].as_py()
            == 12
        )

    def test_a_method_that_raises_on_one_shard_loses_only_that(self):
        def moody(model, batch):
            if "0070" in batch.ids:
                raise RuntimeError("not this one")
            return batch.draw("m", batch.map_shape)

        results = assay.benchmark(
            make_net(), make_images(80), [moody], ["single_deletion"], controls="off", **QUIET
        )
        counts = results.query(
            "select status, count(*) as n from scores group by status order by status"
        )
        assert counts.to_pylist() == [{"status": "failed", "n": 32}, {"status": "ok", "n": 48}]

    def test_failed_cells_are_tried_again(self, tmp_path):
        luck = []

        def fickle(model, batch):
            if not luck:
                luck.append(1)
                raise RuntimeError("once")
            return batch.draw("m", batch.map_shape)

        arguments = (make_net(), make_images(4), [fickle], ["single_deletion"])
        assert assay.benchmark(*arguments, out=tmp_path, **QUIET).failures
        assert not assay.benchmark(*arguments, out=tmp_path, **QUIET).failures

    def test_nan_in_a_map_fails_that_sample(self):
        maps = torch.rand(4, 16, 16)
        maps[2, 3, 3] = float("nan")
        results = assay.benchmark(
            make_net(),
            make_images(4),
            [{"mine": maps}],
            ["single_deletion"],
            controls="off",
            **QUIET,
        )
        assert results.scores["status"].to_pylist() == ["ok", "ok", "failed", "ok"]
        assert math.isnan(results.scores["value"][2].as_py())
        assert "1 of 4 maps" in results.failures[0]["message"]
        with pytest.raises(assay.InputError, match="sample `0002`"):
            assay.score(make_net(), *make_images(4), maps, "single_deletion")

    def test_a_map_of_the_wrong_shape_is_refused_with_both_shapes(self):
        maps = torch.rand(4, 7, 7)
        with pytest.raises(assay.InputError, match=r"\(4, 16, 16\).*got \(4, 7, 7\)"):
            assay.benchmark(make_net(), make_images(4), [{"m": maps}], ["deletion"], **QUIET)
        maps = torch.rand(3, 16, 16)
        with pytest.raises(assay.InputError, match="a map for each of 4 samples, got 3"):
            assay.benchmark(make_net(), make_images(4), [{"m": maps}], ["deletion"], **QUIET)
        with pytest.raises(assay.InputError, match=r"\(4, 16, 16\).*got \(4, 7, 7\)"):
            assay.score(make_net(), *make_images(4), torch.rand(4, 7, 7), "single_deletion")

    def test_a_method_that_gives_the_wrong_shape_fails_alone(self):
        def wrong(model, batch):
            return torch.rand(4, 7, 7)

        with pytest.warns(RuntimeWarning, match="1 cells failed"):
            results = assay.benchmark(
                make_net(), make_images(4), [wrong, "random"], ["single_deletion"], **QUIET
            )
        assert "(4, 16, 16)" in results.failures[0]["message"]
        assert "(4, 7, 7)" in results.failures[0]["message"]

    def test_nan_in_an_image_is_named(self):
        x, y = make_images(4)
        x[1, 0, 0, 0] = float("inf")
        with pytest.raises(assay.InputError, match="0001"):
            assay.benchmark(make_net(), (x, y), ["random"], ["deletion"], **QUIET)

    def test_an_empty_dataset_is_refused(self):
        with pytest.raises(assay.InputError, match=r"none|empty|at least"):
            assay.benchmark(make_net(), (torch.zeros(0, 3, 16, 16), []), **QUIET)

    def test_a_label_out_of_range_is_named(self):
        x, _ = make_images(4)
        with pytest.raises(assay.InputError, match=r"below 4.*got 9 for sample `0002`"):
            assay.benchmark(make_net(), (x, [0, 1, 9, 2]), ["random"], ["deletion"], **QUIET)

    def test_inputs_the_network_cannot_take_are_explained(self):
        x = torch.randn(3, 5, 16, 16)
        with pytest.raises(assay.InputError, match=r"cannot run on inputs of shape \(5, 16, 16\)"):
            assay.benchmark(make_net(), (x, [0, 1, 2]), ["random"], ["deletion"], **QUIET)

    def test_changed_weights_stop_the_run(self, tmp_path):
        data = make_images(4)
        assay.benchmark(make_net(0), data, ["random"], ["deletion"], out=tmp_path, **QUIET)
        with pytest.raises(assay.InputError, match="weights of model `smallnet` changed"):
            assay.benchmark(make_net(1), data, ["random"], ["deletion"], out=tmp_path, **QUIET)

    def test_changed_data_stop_the_run(self, tmp_path):
        assay.benchmark(make_net(), make_images(4), ["random"], ["deletion"], out=tmp_path, **QUIET)
        with pytest.raises(assay.InputError, match="data of dataset `data` changed"):
            assay.benchmark(
                make_net(), make_images(4, seed=9), ["random"], ["deletion"], out=tmp_path, **QUIET
            )

    @pytest.mark.parametrize("kind", ["shards", "answers", "attributions", "previews"])
    def test_a_truncated_file_is_computed_again(self, tmp_path, kind):
        arguments = (make_net(), make_images(4), METHODS, PROTOCOLS)
        before = assay.benchmark(*arguments, out=tmp_path, **QUIET)
        expected = table(before, "scores"), table(before, "curves")
        victims = [p for p in (tmp_path / kind).rglob("*") if p.is_file()]
        assert victims
        sizes = {victim: victim.stat().st_size for victim in victims}
        for victim in victims:
            victim.write_bytes(victim.read_bytes()[: victim.stat().st_size // 2])
        if kind == "shards":
            with pytest.raises(assay.PrerequisiteError, match=r"is damaged.*again"):
                assay.load(tmp_path).scores  # noqa: B018
        after = assay.benchmark(*arguments, out=tmp_path, **QUIET)
        assert (table(after, "scores"), table(after, "curves")) == expected
        if kind in ("attributions", "previews"):
            assert {victim: victim.stat().st_size for victim in victims} == sizes

    def test_a_folder_that_cannot_be_written_is_named(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(assay.PrerequisiteError, match=r"Cannot write .*--out"):
            assay.benchmark(
                make_net(),
                make_images(4),
                ["random"],
                ["deletion"],
                out=tmp_path / "file" / "x",
                **QUIET,
            )

    def test_a_full_disk_loses_nothing(self, tmp_path, monkeypatch):
        arguments = (make_net(), make_images(4), METHODS, PROTOCOLS)
        real, written = ShardLog.append, []

        def full(log, record):
            written.append(record)
            if len(written) > 14:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(log, record)

        monkeypatch.setattr(ShardLog, "append", full)
        with pytest.raises(assay.PrerequisiteError, match=r"No space left.*not computed again"):
            assay.benchmark(*arguments, out=tmp_path, **QUIET)
        monkeypatch.undo()
        assert not list(tmp_path.rglob("*.part"))
        before = logs(tmp_path)
        assert stored_cells(tmp_path)
        results = assay.benchmark(*arguments, out=tmp_path, **QUIET)
        assert not results.failures
        assert only_grown(before)

    def test_workers_cannot_have_live_objects(self, tmp_path):
        with pytest.raises(assay.PrerequisiteError, match="objects of this process"):
            assay.benchmark(
                make_net(), make_images(4), ["random"], ["deletion"], out=tmp_path, workers=2
            )

    def test_an_unknown_run_option_gets_a_hint(self):
        with pytest.raises(assay.InputError, match="Did you mean `micro_batch`"):
            assay.benchmark(make_net(), make_images(4), microbatch=3)

    def test_loading_no_run_says_so(self, tmp_path):
        with pytest.raises(assay.InputError, match="Expected a run in"):
            assay.load(tmp_path)

    def test_not_applicable_is_a_status_with_a_reason(self, linear):
        net, x, y, _ = linear
        results = assay.benchmark(
            net, (x, y), ["gradcam", "oracle", "random"], ["single_deletion"], **QUIET
        )
        status = {r["method"]: r["status"] for r in results.scores.to_pylist()}
        assert status == {"gradcam": "n/a", "oracle": "n/a", "random": "ok"}
        assert not results.failures
        reasons = {c["method"]: c["message"] for c in results.cells}
        assert "truth" in reasons["oracle"]
        with pytest.raises(NotApplicable, match="needs image"):
            assay.explain(net, x, y, "gradcam")

    def test_accuracy_needs_labels(self):
        x, _ = make_images(4)
        results = assay.benchmark(
            make_net(), (x, None), ["random"], ["accuracy_morf", "deletion"], **QUIET
        )
        status = {r["protocol"]: r["status"] for r in results.scores.to_pylist()}
        assert status == {"accuracy_morf": "n/a", "deletion": "ok"}


class TestInterface:
    def test_without_methods_and_protocols_what_applies_is_run(self, linear):
        net, x, y, exact = linear
        results = assay.benchmark(net, (x, y, exact), **QUIET)
        assert not results.failures
        assert set(results.scores["status"].to_pylist()) <= {"ok", "degenerate"}
        assert {"saliency", "oracle", "random"} <= set(results.scores["method"].to_pylist())

    def test_methods_come_in_every_form(self, images):
        def mine(model, batch):
            return batch.inputs

        methods = [
            "random",
            {"integrated_gradients": {"steps": 3}},
            {"noise": torch.rand(6, 16, 16)},
            mine,
        ]
        results = assay.benchmark(make_net(), images, methods, ["single_deletion"], **QUIET)
        assert list(dict.fromkeys(results.scores["method"].to_pylist())) == [
            "random", "integrated_gradients[steps=3]", "noise", "mine",
        ]  # fmt: skip

    def test_the_same_thing_twice_is_an_error(self, images):
        for methods in (["saliency", "saliency"], ["saliency", {"saliency": {"label": "again"}}]):
            with pytest.raises(assay.InputError, match="Expected each method once"):
                assay.benchmark(make_net(), images, methods, ["deletion"], **QUIET)

    def test_a_label_of_ones_own_is_kept(self, images):
        methods = [{"integrated_gradients": {"steps": 3, "label": "my ig"}}]
        results = assay.benchmark(make_net(), images, methods, ["single_deletion"], **QUIET)
        assert set(results.scores["method"].to_pylist()) == {"my ig", "random"}

    def test_a_new_label_on_a_finished_run_computes_nothing(self, tmp_path):
        counted, data = CountingNet(), make_images(4)
        assay.benchmark(counted.net, data, ["random"], ["single_deletion"], out=tmp_path, **QUIET)
        counted.take()
        again = assay.benchmark(
            counted.net,
            data,
            [{"random": {"label": "noise"}}],
            [{"single_deletion": {"label": "cells"}}],
            out=tmp_path,
            **QUIET,
        )
        assert counted.take() == 0
        assert set(again.scores["method"].to_pylist()) == {"noise"}
        assert {r["protocol"] for r in again.leaderboard().rows} == {"cells"}

    def test_seeds_change_what_is_random_and_nothing_else(self, images):
        def values(seed):
            found = assay.benchmark(
                make_net(), images, ["saliency", "random"], ["single_deletion"], seed=seed, **QUIET
            )
            return np.array(found.scores["value"]).reshape(2, -1)

        first, again, other = values(0), values(0), values(1)
        assert np.array_equal(first, again)
        assert np.array_equal(first[0], other[0])
        assert not np.array_equal(first[1], other[1])

    def test_models_with_another_output_form_are_read(self, images):
        class Dict(torch.nn.Module):
            def __init__(self, key):
                super().__init__()
                self.inner, self.key = make_net(), key

            def forward(self, x):
                return {self.key: self.inner(x)}

        plain = assay.explain(make_net(), *images, "saliency")
        assert torch.allclose(assay.explain(Dict("logits"), *images, "saliency"), plain, atol=1e-6)
        wrapped = assay.model(Dict("scores"), output="scores")
        assert torch.allclose(assay.explain(wrapped, *images, "saliency"), plain, atol=1e-6)
        with pytest.raises(assay.InputError, match="output="):
            assay.explain(Dict("scores"), *images, "saliency")

    def test_store_reads_nothing_from_nothing(self, tmp_path):
        assert Store.read_json(tmp_path / "no.json") is None
        assert Store.read_table(tmp_path / "no.parquet", SCORES) is None
        assert Store.read_checked(tmp_path / "no.safetensors", None) is None
        assert not ShardLog(tmp_path / "no.log").read().records


def test_labels_with_blanks_slashes_and_dots_stay_inside_the_folder(tmp_path, net, images):
    odd = "../a b/c"
    model = assay.model(net, name="/m 1")
    data = replace(as_dataset(images), name=odd)
    methods = [{"saliency": {"label": "x/../y z"}}, "random"]
    results = assay.benchmark(
        model,
        data,
        methods,
        [{"deletion": {"label": "d / d"}}],
        out=tmp_path / "run",
        progress=False,
    )
    assert [p.name for p in tmp_path.iterdir()] == ["run"]
    assert results.manifest["datasets"].keys() == {odd}
    page = results.report().read_text()
    assert all(name in page for name in (odd, "/m 1", "x/../y z", "d / d"))
    assert "data:image/jpeg" in page  # the pictures were found again


def test_file_names_differ_where_texts_do():
    texts = ["a b", "a_b", "a/b", "..", ".", "/a", "a"]
    names = [file_name(text) for text in texts]
    assert len(set(names)) == len(texts)
    assert not any("/" in name or name.startswith(".") for name in names)


def test_accuracy_is_known_before_anything_is_removed(tmp_path):
    """Reported before the first removal where one shard holds all samples."""
    net, (x, y) = make_net(), make_images(8)
    spec = make_suite(
        {"datasets": [as_dataset((x, y))], "models": [assay.model(net)], "methods": ["random"],
         "protocols": [{"deletion": {"steps": 2}}]}
    )  # fmt: skip
    calls, rows = [], []

    def clean(row):
        calls.append((row, len(rows)))

    net.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    results = run(spec, tmp_path, clean=clean, micro_batch=1, progress=False)
    ((row, asked),) = calls
    right = int((net(x).argmax(1) == y).sum())
    assert row.accuracy == right / 8
    assert asked <= 8 + 2 + 2 + 6  # and the first looks, and samples asked twice
    assert results.manifest["clean"] == [row.to_json()]


def test_a_bad_accuracy_is_reported_before_the_last_shard(tmp_path):
    """After the first 64 samples, and once more when all are known."""
    net, (x, _) = make_net(), make_images(150)
    wrong = (net(x).argmax(1) + 1) % 4
    spec = make_suite(
        {"datasets": [as_dataset((x, wrong))], "models": [assay.model(net)], "methods": ["random"],
         "protocols": ["single_deletion"]}
    )  # fmt: skip
    rows = []
    run(spec, tmp_path, clean=rows.append, progress=False)
    assert [(row.n, row.accuracy) for row in rows] == [(80, 0.0), (150, 0.0)]


def test_a_sample_is_read_once_for_looking_and_scoring(tmp_path):
    """The first of a shard is read more often: it stands for the others in the forecast.

    The first four of a dataset are asked twice before the run.
    """
    reads = Counter()
    x, y = make_images(20)

    def fetch(sample):
        reads[sample] += 1
        return assay.types.Sample(x[int(sample)], int(y[int(sample)]))

    ids = tuple(map(str, range(20)))
    data = assay.Dataset("data", "image", ids, fetch, "fixed")
    assay.benchmark(make_net(), data, ["random", "saliency"], ["single_deletion"], **QUIET)
    firsts = {"0", "1", "2", "3", "8", "16"}
    assert {sample: n for sample, n in reads.items() if sample not in firsts} == {
        sample: 1 for sample in ids if sample not in firsts
    }


def test_python_warns_where_a_network_is_hardly_above_chance():
    net, (x, _) = make_net(), make_images(20)
    wrong = (net(x).argmax(1) + 1) % 4
    with pytest.warns(RuntimeWarning, match="hardly above chance"):
        assay.benchmark(net, (x, wrong), ["random"], ["single_deletion"], progress=False)
