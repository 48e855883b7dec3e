"""Maps of a file: exactly the scores of the method that made them, known by their content."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import assay
from assay.answers.picture import explain_picture
from assay.conformance.methods import RULES, WORLDS, explain, its_promise_is_whole
from assay.errors import InputError, PrerequisiteError
from assay.run import dry_run, run
from assay.suite.from_options import ModelOptions, own_suite
from assay.suite.spec import choose_one, make_suite
from reader import typed
from small_worlds import make_images, make_net
from toy_run import toy_images, toy_net

QUIET = {"progress": False, "micro_batch": 4}
PROTOCOLS = ["single_deletion", {"abpc": {"steps": 3}}]
IDS = [f"{i:04d}" for i in range(6)]


@pytest.fixture(scope="module")
def made():
    """A run of a method, and the maps it made."""
    net, data = make_net(), make_images(6)
    results = assay.benchmark(net, data, ["saliency"], PROTOCOLS, **QUIET, controls="off")
    return net, data, results, results.maps("saliency")


def written(kind, found, folder):
    """The maps in every form they may have."""
    stacked, path = np.stack(list(found.values())), folder / "mine.npz"
    mixed = list(found)[::-1]
    if kind == "npy":
        path = folder / "mine.npy"
        np.save(path, stacked)
    elif kind == "npz by id":
        np.savez(path, **{i: found[i] for i in mixed})
    elif kind == "npz with ids":
        np.savez(path, maps=np.stack([found[i] for i in mixed]), ids=np.array(mixed))
    elif kind == "npz in order":
        np.savez(path, maps=stacked)
    elif kind == "safetensors by id":
        path = folder / "mine.safetensors"
        save_file({i: found[i] for i in mixed}, path)
    elif kind == "safetensors with ids":
        path = folder / "mine.safetensors"
        whole = np.stack([found[i] for i in mixed])
        save_file({"maps": whole}, path, {"ids": json.dumps(mixed)})
    elif kind == "safetensors in order":
        path = folder / "mine.safetensors"
        save_file({"maps": stacked}, path)
    return path


KINDS = [
    "npy", "npz by id", "npz with ids", "npz in order", "safetensors by id",
    "safetensors with ids", "safetensors in order",
]  # fmt: skip


def numbers(results) -> list[tuple[object, ...]]:
    columns = ("protocol", "sample", "metric", "value", "status")
    return [tuple(row[c] for c in columns) for row in results.scores.to_pylist()]


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_those_of_the_method(kind, made, tmp_path):
    net, data, results, found = made
    path = written(kind, found, tmp_path)
    item = {"maps": {"path": str(path)}}
    again = assay.benchmark(net, data, [item], PROTOCOLS, **QUIET, controls="off")
    assert list(again.manifest["methods"]) == ["mine"]
    assert numbers(again) == numbers(results)
    x, y = data
    mine = assay.explain(net, x, y, item)
    assert torch.equal(mine, torch.from_numpy(np.stack(list(found.values()))))


def test_what_a_run_stored_can_be_read(made, tmp_path):
    """The file of a shard is a file of maps."""
    net, data, results, found = made
    stored = results.store.path("attributions").glob("*/*.safetensors")
    (path,) = [p for p in stored if safe_open(p, "np").metadata()["method"] == "saliency"]
    mine = assay.explain(net, *data, "maps", path=str(path))
    assert torch.equal(mine, torch.from_numpy(np.stack(list(found.values()))))


def test_channels_are_reduced_as_always(made, tmp_path):
    net, (x, y), _, _ = made
    np.save(tmp_path / "all.npy", -x.numpy())
    item = {"maps": {"path": str(tmp_path / "all.npy"), "reduce": "sum_abs"}}
    assert choose_one("method", item).label == "all[reduce=sum_abs]"
    assert torch.allclose(assay.explain(net, x, y, item), x.abs().sum(1), rtol=1e-6)


class TestKeys:
    def test_another_content_is_another_method(self, made, tmp_path):
        net, data, _, found = made
        path = written("npy", found, tmp_path)
        item, out = {"maps": {"path": str(path)}}, tmp_path / "run"
        first = assay.benchmark(net, data, [item], PROTOCOLS, out=out, **QUIET, controls="off")
        key = choose_one("method", item).key
        assert assay.dry_run(net, data, [item], PROTOCOLS, out=out, controls="off").forwards == 0
        np.save(path, -np.load(path))
        assert choose_one("method", item).key != key
        second = assay.benchmark(net, data, [item], PROTOCOLS, out=out, **QUIET, controls="off")
        assert numbers(second) != numbers(first)
        assert np.array_equal(second.maps("mine")["0000"], -found["0000"])

    def test_a_hash_that_was_said_is_kept_to(self, made, tmp_path):
        path = written("npy", made[3], tmp_path)
        known = choose_one("method", {"maps": {"path": str(path)}}).options["maps_hash"]
        item = {"maps": {"path": str(path), "maps_hash": known}}
        assert choose_one("method", item).options["maps_hash"] == known
        np.save(path, np.zeros(3))
        with pytest.raises(InputError, match=rf"with the hash {known}.*the file changed"):
            choose_one("method", item)


WORLD = """
from small_worlds import make_images, make_net


def build():
    return make_net()


def data():
    return make_images(20)
"""


class TestInARun:
    @pytest.fixture
    def suite(self, tmp_path):
        data = toy_images()
        noise = np.random.default_rng(0)
        found = {i: noise.normal(size=(8, 8)).astype("float32") for i in data.ids}
        np.savez(tmp_path / "mine.npz", **found)
        return {
            "datasets": ["toy_images"], "models": ["toy_net"], "limit": 20,
            "methods": [{"maps": {"path": str(tmp_path / "mine.npz")}}, "saliency"],
            "protocols": ["single_deletion"],
        }  # fmt: skip

    def test_it_costs_nothing_and_resumes(self, suite, tmp_path):
        assert toy_net is not None
        spec = make_suite({**suite, "controls": "off"})
        expected = dry_run(spec, tmp_path / "run", time_it=False)
        assert expected.method_rows == {"mine": 0, "saliency": 20}
        assert expected.unknown == []
        results = run(spec, tmp_path / "run", progress=False)
        assert results.complete
        assert results.spec.methods[0] == suite["methods"][0]
        assert dry_run(results.spec, tmp_path / "run", time_it=False).forwards == 0

    def test_workers_find_the_file(self, tmp_path):
        """Spawned processes build everything anew from the suite, the maps too."""
        (tmp_path / "world.py").write_text(WORLD)
        maps = np.random.default_rng(0).normal(size=(20, 16, 16)).astype("float32")
        np.save(tmp_path / "mine.npy", maps)
        suite = {
            "datasets": [f"{tmp_path}/world.py:data"], "models": [f"{tmp_path}/world.py:build"],
            "methods": [{"maps": {"path": str(tmp_path / "mine.npy")}}],
            "protocols": [{"single_deletion": {"grid": 2}}],
        }  # fmt: skip
        tables = []
        for workers in (1, 2):
            out = tmp_path / f"run{workers}"
            results = run(make_suite(suite), out, workers=workers, progress=False)
            assert results.complete
            tables.append(numbers(results))
        assert tables[0] == tables[1]
        assert {row[-1] for row in tables[0]} == {"ok"}

    def test_a_protocol_that_explains_again_does_not_apply(self, made, tmp_path):
        net, data, _, found = made
        item = {"maps": {"path": str(written("npy", found, tmp_path))}}
        updated = {"incremental_deletion": {"attribution": "updated", "steps": 2}}
        results = assay.benchmark(net, data, [item], [updated], **QUIET, controls="off")
        assert {c["status"] for c in results.cells} == {"n/a"}

    def test_nan_is_a_failed_sample(self, made, tmp_path):
        net, data, _, found = made
        broken = {**found, "0002": found["0002"] * np.nan}
        item = {"maps": {"path": str(written("npy", broken, tmp_path))}}
        with pytest.warns(RuntimeWarning, match="cells failed"):
            results = assay.benchmark(
                net, data, [item], ["single_deletion"], **QUIET, controls="off"
            )
        status = {row["sample"]: row["status"] for row in results.scores.to_pylist()}
        assert status == {**dict.fromkeys(IDS, "ok"), "0002": "failed"}


class TestMistakes:
    """Each stops the run before anything is computed, and names the thing."""

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("short.npy", np.zeros((5, 16, 16)), "a map for each of 6 samples, got 5"),
            ("small.npy", np.zeros((6, 4, 4)), r"shape \(6, 16, 16\).*got \(6, 4, 4\)"),
            ("some.npz", {i: np.zeros((16, 16)) for i in IDS[:4]}, "of sample `0004` and 1 more"),
            ("ids.npz", {"maps": np.zeros((6, 16, 16)), "ids": IDS[:5]}, "each of 5 ids, got 6"),
            ("twice.npz", {"maps": np.zeros((2, 4, 4)), "ids": ["a", "a"]}, "`a` twice"),
            ("words.npy", np.array([["a"] * 16] * 6), "Expected numbers.*`0000`"),
            ("objects.npy", np.array([None] * 6), "complete file of maps"),
            (
                "ragged.npz",
                {i: np.zeros((16, 16 + (i == "0003"))) for i in IDS},
                r"one shape, got \(16, 16\) for `0000` and \(16, 17\) for `0003`",
            ),
        ],
    )
    def test_what_does_not_fit_is_said(self, name, content, said, made, tmp_path):
        net, data, *_ = made
        path = tmp_path / name
        np.savez(path, **content) if isinstance(content, dict) else np.save(path, content)
        item = {"maps": {"path": str(path)}}
        with pytest.raises(InputError, match=said):
            assay.dry_run(net, data, [item], ["single_deletion"], time_it=False, controls="off")
        with pytest.raises(InputError, match=said):
            assay.benchmark(net, data, [item], ["single_deletion"], **QUIET, controls="off")

    def test_no_such_file(self, made, tmp_path):
        with pytest.raises(
            PrerequisiteError,
            match=r"file `.*none\.npy`, but there is no such file",
        ):
            choose_one("method", {"maps": {"path": str(tmp_path / "none.npy")}})

    def test_another_ending(self):
        with pytest.raises(InputError, match=r"\.safetensors, \.npz, \.npy.*got `maps\.pt`"):
            choose_one("method", {"maps": {"path": "maps.pt"}})

    def test_a_file_that_is_none(self, made, tmp_path):
        net, (x, y), *_ = made
        for name in ("torn.safetensors", "torn.npz", "torn.npy"):
            (tmp_path / name).write_bytes(b"PK not whole")
            with pytest.raises(InputError, match="complete file of maps"):
                assay.explain(net, x, y, "maps", path=str(tmp_path / name))

    def test_without_a_path(self, capsys):
        with pytest.raises(InputError, match="method `maps` to be given `path`"):
            choose_one("method", "maps")
        assert typed(["doctor", "maps"]) == 2
        assert "given `path`" in capsys.readouterr().err.replace("\n", " ")

    def test_one_picture_has_no_maps(self, tmp_path):
        from PIL import Image

        Image.new("RGB", (40, 40)).save(tmp_path / "cat.png")
        with pytest.raises(InputError, match="explain a new picture"):
            explain_picture(tmp_path / "cat.png", "efficientnet_lite0", "maps", None)


def nothing(model, batch):
    batch.inputs.sum(1)


def a_word(model, batch):
    return "saliency"


def a_ragged_list(model, batch):
    return [[1.0], [1.0, 2.0]]


WRONG = [
    (nothing, r"`nothing` to be numbers, got None\. Does the function return them\?"),
    (a_word, r"`a_word` to be numbers, got str\."),
    (a_ragged_list, r"`a_ragged_list` to be numbers, got list\."),
]


class TestWhatAFunctionReturns:
    @pytest.mark.parametrize(("function", "said"), WRONG, ids=["None", "str", "list"])
    def test_what_is_no_map_is_named(self, function, said, made):
        net, (x, y), *_ = made
        with pytest.raises(InputError, match=said):
            assay.explain(net, x, y, function)
        with pytest.warns(RuntimeWarning, match="cells failed") as warned:
            results = assay.benchmark(
                net, (x, y), [function], ["single_deletion"], **QUIET, controls="off"
            )
        assert re.search(said, results.failures[0]["message"])
        (failed,) = [w for w in warned if "cells failed" in str(w.message)]
        assert failed.filename == __file__  # the line that called it

    def test_at_an_address_too(self, made, tmp_path):
        net, (x, y), *_ = made
        (tmp_path / "own.py").write_text("def nothing(model, batch):\n    batch.inputs.sum(1)\n")
        with pytest.raises(InputError, match=WRONG[0][1]):
            assay.explain(net, x, y, f"{tmp_path / 'own.py'}:nothing")

    def test_an_array_is_as_good_as_a_tensor(self, made, tmp_path):
        net, (x, y), *_ = made
        text = "def back(model, batch):\n    return batch.inputs.sum(1).numpy()[:, ::-1]\n"
        (tmp_path / "own.py").write_text(text)
        maps = assay.explain(net, x, y, f"{tmp_path / 'own.py'}:back")
        assert maps.dtype == x.dtype
        assert torch.equal(maps, x.sum(1).flip(1))


def test_the_shape_of_maps_is_said_as_it_was_given(made):
    net, (x, y), *_ = made
    said = r"`mine` to have shape \(6, 16, 16\) or \(6, 3, 16, 16\), got \(6, 4, 4\)"
    with pytest.raises(InputError, match=said):
        assay.benchmark(
            net, (x, y), {"mine": torch.rand(6, 4, 4)}, ["single_deletion"], **QUIET, controls="off"
        )


def test_the_command_line_knows_a_file_of_maps():
    suite = own_suite("m", "photos", ModelOptions(), "saliency, ./mine.npz")
    assert suite.methods == ["saliency", {"maps": {"path": "./mine.npz"}}]


def test_the_rules_of_methods(tmp_path):
    """In every world that is not there for what a method needs; a file promises nothing."""
    rules = [check for check in RULES if check is not its_promise_is_whole]
    for world in [world for world in (make() for make in WORLDS) if not world.made_for]:
        np.save(tmp_path / "mine.npy", explain(world, "random").numpy())
        for rule in rules:
            rule(world, {"maps": {"path": str(tmp_path / "mine.npy")}})
