"""What a fill or units stand for: it is part of keys, and it has its own name in answers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import assay
from assay.data.memory import as_dataset
from assay.plugins import registry
from assay.ranking.declared import fills_of
from assay.results import Results
from assay.run import run
from assay.store import Store
from assay.suite.spec import choose_one, make_suite
from small_texts import bag_of_words, make_texts
from small_worlds import make_images, make_net

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
PLAIN = {"deletion": {"steps": 4}}
SECOND = {"deletion": {"steps": 4, "fill": "second"}}


def key(item: Any) -> str:
    return registry.identity(choose_one("protocol", item).key)


@pytest.mark.parametrize(
    ("kind", "name", "item"),
    [
        *(("fill", name, SECOND) for name in ("noisy_linear", "mean", "mask")),
        ("fill", "pad", {"single_deletion": {"fill": "zero"}}),
        ("fill", "pad", {"deletion": {"fill": {"shaken": {"fill": "zero"}}}}),
        *(("units", name, "deletion") for name in ("shifted_grid", "elements")),
    ],
)
def test_a_key_changes_with_what_it_may_stand_for(
    monkeypatch: pytest.MonkeyPatch, kind: str, name: str, item: Any
) -> None:
    before, other = key(item), key({"deletion": {"fill": "black", "units": {"grid": {}}}})
    plugin = registry.get(kind, name)
    raised = replace(plugin, version=plugin.version + 1)
    monkeypatch.setitem(registry._REGISTERED[kind], name, raised)
    assert key(item) != before
    assert key({"deletion": {"fill": "black", "units": {"grid": {}}}}) == other


def test_methods_and_answers_with_everything_absent_have_such_keys_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keys() -> list[str]:
        choices = (
            choose_one("method", {"occlusion": {"fill": "second"}}),
            choose_one("fill", "second"),
        )
        return [registry.identity(choice.key) for choice in choices]

    before = keys()
    raised = replace(registry.get("fill", "noisy_linear"), version=3)
    monkeypatch.setitem(registry._REGISTERED["fill"], "noisy_linear", raised)
    assert all(new != old for new, old in zip(keys(), before, strict=True))


def linear(n: int = 24) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)).eval(), torch.randn(n, 6)
    return net, x + 1, net(x + 1).argmax(1)


def ig(baseline: str) -> dict[str, Any]:
    return {"integrated_gradients": {"steps": 4, "baseline": baseline, "as": f"from {baseline}"}}


def aligned(results: Results, dataset: str = "") -> set[tuple[str, str]]:
    rows = [r for r in results.leaderboard().rows if dataset in ("", r["dataset"])]
    return {(row["method"], row["protocol"]) for row in rows if row["aligned"]}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Results:
    net, x, y = linear()
    protocols = [SECOND, {"deletion": {"steps": 4, "fill": "mean"}}, PLAIN]
    return assay.benchmark(
        net, (x, y), [ig("mean"), ig("zero"), ig("second"), "random"], protocols,
        out=tmp_path_factory.mktemp("run"), progress=False,
    )  # fmt: skip


def test_a_fill_and_what_it_stands_for_are_one(vectors: Results) -> None:
    """On vectors `second` is `mean`: the scores say so, and so does the answer."""
    label = choose_one("protocol", SECOND).label
    rows = {(r["method"], r["protocol"]): r["mean"] for r in vectors.leaderboard().rows}
    for method in ("from mean", "from zero"):
        assert rows[method, label] == rows[method, "deletion[steps=4,fill=mean]"]
    (answer,) = vectors.answers
    assert set(answer.fills) == {"mean", "zero"}
    both = {label, "deletion[steps=4,fill=mean]"}
    assert aligned(vectors) == {
        ("from zero", "deletion[steps=4]"),
        *((method, one) for method in ("from mean", "from second") for one in both),
    }


@pytest.mark.parametrize("fill", ["noisy_linear", "second"])
def test_sentences_name_the_resolved_fill(fill: str) -> None:
    net, (x, _) = make_net(), make_images(24)
    y = net(x).argmax(1)
    methods = ["saliency", "input_x_gradient", "random"]
    protocols = [{"deletion": {"steps": 3, "fill": fill}}]
    results = assay.benchmark(net, (x, y), methods, protocols, progress=False)
    (answer,) = results.answers
    assert answer.fills == ("noisy_linear",)
    assert "second" not in results.answer


def test_on_texts_zero_is_padding() -> None:
    methods = [{"occlusion": {"fill": "pad"}}, "random"]
    results = assay.benchmark(
        bag_of_words(hidden=4), make_texts(24), methods, [{"deletion": {"steps": 3}}],
        progress=False, groups="none",
    )  # fmt: skip
    assert aligned(results) == {("occlusion[fill=pad]", "deletion[steps=3]")}
    assert fills_of(results.entries, "text") == {"deletion[steps=3]": "pad"}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Vectors, whose mean is `second`, and images of an environment, which it imputes."""
    net, x, y = linear()
    spec = make_suite(
        {
            "datasets": [as_dataset((x, y), "numbers")],
            "models": [replace(assay.model(net, name="linear"), modality="vector")],
            "environments": [{"multi_color_sum": {"size": 16, "samples": 16, "as": "sums"}}],
            "methods": [ig("mean"), ig("noisy_linear"), "random"],
            "protocols": [SECOND, PLAIN],
        }
    )
    return run(spec, tmp_path_factory.mktemp("mixed"), progress=False)


def test_data_of_several_modalities_are_not_mixed_up(mixed: Results) -> None:
    label = choose_one("protocol", SECOND).label
    fills = {answer.setting.dataset: set(answer.fills) for answer in mixed.answers}
    assert fills == {"numbers": {"mean", "zero"}, "sums": {"noisy_linear", "zero"}}
    assert aligned(mixed, "numbers") == {("from mean", label)}
    assert aligned(mixed, "sums") == {("from noisy_linear", label)}


def test_a_mixed_run_is_listed_as_any_other(mixed: Results) -> None:
    """Settings in order, each with all its rows."""
    board = mixed.leaderboard()
    for rows in (board.by_protocol, board.over_protocols, board.without_place, board.answers):
        assert [row.setting for row in rows] == sorted(row.setting for row in rows)
    assert len(board) == 2 * 2 * 3
    net, x, y = linear()
    methods, protocols = [ig("mean"), ig("noisy_linear"), "random"], [SECOND, PLAIN]
    alone = assay.benchmark(net, (x, y), methods, protocols, progress=False)
    numbers = ("protocol", "method", "mean", "low", "high", "rank", "aligned")
    mine = [[r[n] for n in numbers] for r in board.rows if r["dataset"] == "numbers"]
    assert mine == [[r[n] for n in numbers] for r in alone.leaderboard().rows]


def test_runs_that_did_not_store_it_keep_the_text(vectors: Results, tmp_path: Path) -> None:
    store = Store(vectors.folder)
    manifest = store.read_json(store.path("manifest.json"))
    plugins = [*manifest["methods"].values(), *manifest["protocols"].values()]
    units = {"units": "elements"}
    assert [p["resolved"] for p in plugins if "resolved" in p] == [
        {"vector": {"baseline": "mean"}},
        {"vector": {"fill": "mean", **units}},
        {"vector": units},
        {"vector": units},
    ]
    entries = vectors.entries
    older = {label: replace(entry, resolved={}) for label, entry in entries.protocols.items()}
    old = Results(vectors.folder)
    vars(old)["entries"] = replace(entries, protocols=older)
    assert set(old.answers[0].fills) == {"second", "mean", "zero"}
