"""What is stored belongs to what made it: code, tokenizers, nested plug-ins, shares."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import assay
from assay.data.memory import as_dataset
from assay.engine.engine import network_engine
from assay.plan import plan as plan_module
from assay.plan.resolving import build_one, resolve
from assay.run import run
from assay.suite.spec import choose_one, make_suite
from assay.units.features import make_units
from small_texts import bag_of_words, make_texts
from small_worlds import make_images, make_net

PLAIN = {"deletion": {"steps": 4}}


def scores(results, label: str) -> list[float]:
    return [r["value"] for r in results.scores.to_pylist() if r["method"] == label]


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def method_file(body: str) -> str:
    return f"def mine(model, batch):\n    return {body}\n"


def test_two_methods_of_one_name_keep_their_own_maps(home):
    (home / "a.py").write_text(method_file("batch.inputs.sum(1)"))
    (home / "b.py").write_text(method_file("-batch.inputs.sum(1)"))
    net, data = make_net(), make_images(6)
    items = [{"./a.py:mine": {"label": "A"}}, {"./b.py:mine": {"label": "B"}}]
    both = assay.benchmark(net, data, items, [PLAIN], progress=False)
    for item, label in zip(items, "AB", strict=True):
        alone = assay.benchmark(net, data, [item], [PLAIN], progress=False)
        assert scores(both, label) == scores(alone, label)
    assert scores(both, "A") != scores(both, "B")


def test_another_tokenizer_is_another_key(home):
    texts, labels = make_texts(8)
    model = bag_of_words()
    backwards = replace(
        model.prepare, identity="", encode=lambda text: model.prepare.encode(text)[::-1]
    )
    other = assay.model(model.net, prepare=backwards, name="bag")
    maps = ["input_x_gradient"]
    first = assay.benchmark(model, (texts, labels), maps, [PLAIN], out="run", progress=False)
    second = assay.benchmark(other, (texts, labels), maps, [PLAIN], out="run", progress=False)
    shards = [r.entries.shards[0].cells for r in (first, second)]
    assert shards[0] != shards[1]


@pytest.mark.parametrize("kind", ["fill", "units"])
def test_code_inside_options_is_part_of_the_key(home, kind):
    texts = {
        "fill": "def mine(batch):\n    return batch.inputs.new_full([1, 1, 1, 1], {value})\n",
        "units": "from assay.units.features import grid\n"
        "def mine(batch):\n    return grid(batch, side=2 + {value})\n",
    }
    option = {kind: "./own.py:mine"}
    found = []
    for value in (0, 2):
        (home / "own.py").write_text(texts[kind].format(value=value))
        found.append(choose_one("protocol", {"deletion": option}).key)
        net, data = make_net(), make_images(4)
        results = assay.benchmark(
            net, data, ["saliency"], [{"deletion": {"steps": 4, **option}}], out="run",
            progress=False,
        )  # fmt: skip
        fresh = assay.benchmark(
            net, data, ["saliency"], [{"deletion": {"steps": 4, **option}}], progress=False
        )
        assert scores(results, "saliency") == scores(fresh, "saliency")
    assert found[0] != found[1]


def test_the_order_of_protocols_changes_nothing():
    """0.1 and 1 - 0.9 are one share: who asks first must not matter."""
    torch.manual_seed(0)
    net, x = torch.nn.Linear(5, 3), torch.randn(6, 5)
    items = [{"lerf": {"steps": 10}}, {"sufficiency": {"shares": (0.9,)}}]
    forth = assay.benchmark(net, (x, [0] * 6), ["saliency"], items, progress=False)
    back = assay.benchmark(net, (x, [0] * 6), ["saliency"], items[::-1], progress=False)
    for protocol in ("lerf[steps=10]", "sufficiency[shares=0.9]"):
        values = [
            [r["value"] for r in results.scores.to_pylist() if r["protocol"] == protocol]
            for results in (forth, back)
        ]
        assert values[0] == values[1]


@pytest.mark.parametrize("n", [7, 10])
def test_what_sufficiency_keeps_is_what_comprehensiveness_removes(n):
    """f is the number of entries left; the map is a ramp."""
    count = torch.nn.Linear(n, 1, bias=False)
    torch.nn.init.ones_(count.weight)
    x, ramp = torch.ones(1, n), torch.arange(n)[None].float()
    for share in (0.05, 0.1, 0.25, 0.5, 0.75, 0.9):
        options = {"shares": (share,), "output": "logit"}
        removed = assay.score(count, x, [1], ramp, "comprehensiveness", **options)
        lost = assay.score(count, x, [1], ramp, "sufficiency", **options)
        assert removed.item() == pytest.approx(n - lost.item())


def test_ties_do_not_depend_on_neighbours_with_more_units():
    pytest.importorskip("skimage")
    photo = torch.zeros(3, 24, 24)
    photo[:, :, 12:] = 1
    busy = torch.nn.functional.interpolate(torch.rand(1, 3, 6, 6), (24, 24))[0]
    net = make_net()
    options = {"units": {"felzenszwalb": {"scale": 1, "sigma": 0, "min_size": 4}}, "steps": 4}
    flat = torch.ones(2, 24, 24)
    together = assay.score(net, torch.stack([photo, busy]), [0, 1], flat, "deletion", **options)
    alone = assay.score(net, photo[None], [0], flat[:1], "deletion", **options)
    assert together[0] == alone[0]


class TestTexts:
    def test_zero_and_pad_are_one_fill(self):
        """So occlusion by the one is circular under the other."""
        texts, labels = make_texts(12)
        results = assay.benchmark(
            bag_of_words(), (texts, labels),
            [{"occlusion": {"fill": "pad"}}, "occlusion", "random"],
            ["single_deletion", {"single_deletion": {"fill": "mask"}}], progress=False,
        )  # fmt: skip
        found = {(r["method"], r["protocol"]): r["status"] for r in results.scores.to_pylist()}
        assert found["occlusion[fill=pad]", "single_deletion"] == "circular"
        assert found["occlusion", "single_deletion"] == "circular"
        assert found["occlusion", "single_deletion[fill=mask]"] == "ok"

    def test_a_map_that_is_flat_on_all_words_says_nothing(self):
        texts, labels = make_texts(8)
        model = bag_of_words()
        longest = max(len(model.prepare.encode(t)) for t in texts)
        maps = torch.zeros(8, longest)
        maps[:, 1:] = 1  # the beginning, which is never removed, differs
        results = assay.benchmark(
            model,
            (texts, labels),
            [{"flat": maps}],
            ["single_deletion"],
            controls="off",
            progress=False,
        )
        assert set(results.scores["status"].to_pylist()) == {"degenerate"}

    def test_the_time_of_a_run_is_estimated(self):
        said = assay.dry_run(bag_of_words(), make_texts(8), ["saliency"], [PLAIN])
        assert said.seconds > 0


UPDATED = {"incremental_deletion": {"attribution": "updated", "force": True, "steps": 4}}


@pytest.mark.parametrize("method", ["occlusion", {"shuffled": {"of": "occlusion"}}], ids=str)
def test_rows_of_methods_that_intervene_are_counted_whoever_asks(tmp_path, method):
    """Explained anew on changed inputs, or on partners: predicted = made = written down."""
    net, data = make_net(), make_images(6)
    said = assay.dry_run(net, data, [method], [UPDATED], micro_batch=1, time_it=False)
    rows = []
    net.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    spec = make_suite(
        {"datasets": [as_dataset(data)], "models": [assay.model(net)], "methods": [method],
         "protocols": [UPDATED]}
    )  # fmt: skip
    results = run(spec, tmp_path, micro_batch=1, progress=False)
    assert sum(rows) == said.forwards
    assert results.manifest["forwards"] == said.forwards - said.looked


def test_an_order_where_everyone_is_circular_somewhere():
    """A protocol in which no method has a place does not stop the leaderboard."""
    net, (x, _) = make_net(), make_images(12)
    maps = {"given": torch.rand(12, 16, 16)}
    methods, protocols = ["occlusion", maps, "random"], ["single_deletion", UPDATED]
    results = assay.benchmark(net, (x, net(x).argmax(1)), methods, protocols, progress=False)
    overall = {r["method"]: r for r in results.leaderboard().overall}
    assert overall["occlusion"]["protocols"] == 1


def test_an_option_that_says_nothing_beside_units_is_refused():
    net, (x, y) = make_net(), make_images(2)
    for protocol, extra in (("single_deletion", {"grid": 7}), ("sensitivity_n", {"grid": 7})):
        with pytest.raises(assay.InputError, match="`grid` or `units`, not both"):
            assay.score(net, x, y, torch.rand(2, 16, 16), protocol, units="elements", **extra)
    with pytest.raises(assay.InputError, match="name or one"):
        assay.score(net, x, y, torch.rand(2, 16, 16), "single_deletion", units=torch.ones(3))


def test_positions_outside_all_windows_are_exactly_zero():
    net, (x, y) = make_net(), make_images(2)
    units = {"windows": {"sizes": [0.375], "stride": 0.375}}
    maps = assay.explain(net, x, y, "occlusion", units=units)
    dataset = as_dataset((x, y))
    features = make_units(dataset.batch(dataset.ids), units)
    covered = features.paint(torch.ones(2, features.count)) > 0
    assert not covered.all()
    assert (maps[~covered] == 0).all()


def test_an_engine_for_other_inputs_counts_where_it_came_from():
    net, (x, y) = make_net(), make_images(3)
    dataset = as_dataset((x, y))
    batch = dataset.batch(dataset.ids)
    model = assay.model(net)
    with torch.no_grad():
        engine = network_engine(model, batch, model.logits)
        other = engine.at(replace(batch, inputs=x + 1))
        assert other is not engine
        assert engine.clean.logit.shape == other.clean.logit.shape == (3, 1)
        assert not torch.equal(engine.clean.logit, other.clean.logit)
    assert engine.asked == other.asked == 6


def test_a_network_is_its_weights_and_code_wherever_the_file_lies(home):
    """The same file in two folders, or imported, is the same network; other code is another."""
    made = "def build():\n    return Net(3, 2)\n"
    code = f"from torch import nn\n\nclass Net(nn.Linear):\n    k = 1\n\n{made}"
    hashes = []
    for folder, text in (("one", code), ("two", code), ("three", code.replace("k = 1", "k = 2"))):
        (home / folder).mkdir()
        (home / folder / "net.py").write_text(text)
        torch.manual_seed(0)
        hashes.append(build_one("model", f"./{folder}/net.py:build").weights_hash)
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_version_of_random_numbers_is_part_of_every_key(monkeypatch):
    spec = make_suite(
        {
            "datasets": [as_dataset(make_images(4))],
            "models": [assay.model(make_net(), name="net")],
            "methods": ["saliency"], "protocols": ["deletion"],
        }
    )  # fmt: skip

    def keys() -> list[str]:
        plan = resolve(spec)
        shard, method, protocol = plan.shards[0], plan.methods[0], plan.protocols[0]
        return [
            plan.cell(shard, method, protocol), plan.maps_key(shard, method),
            plan.checks_key(shard, method), plan.responses_key(shard, "clean"),
        ]  # fmt: skip

    before = keys()
    assert keys() == before
    monkeypatch.setattr(plan_module, "DRAWS", 99)
    assert not set(keys()) & set(before)
