"""A file or a text explained alone has the map that a run over it has."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.answers import picture
from assay.answers.best import explain_best
from assay.answers.picture import explain_picture, read_picture
from assay.plan.resolving import build_one
from assay.results import Results
from assay.suite.spec import choose_one
from small_texts import bag_of_words, make_texts, save_bert

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
NET = """
from small_worlds import make_net

def build():
    return make_net()
"""
MODEL = {"./net.py:build": {"size": 16, "mean": [0.5] * 3, "std": [0.25] * 3}}
METHODS: list[Any] = ["smoothgrad", "random", {"rise": {"masks": 20}}, {"lime": {"samples": 30}},
           {"occlusion": {"fill": "uniform"}}]  # fmt: skip
PROTOCOLS = [{"deletion": {"steps": 4}}, {"deletion": {"steps": 4, "fill": "second"}},
             {"sensitivity_n": {"subsets": 4}}]  # fmt: skip
LABELS = [choose_one("method", item).label for item in METHODS]
FILES = {"a/0.png": 0, "a/palette.png": 0, "b/grey.png": 1, "b/photo.jpg": 1}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Results]:
    """A run over a folder of images in several modes."""
    home, draw = tmp_path_factory.mktemp("home"), np.random.default_rng(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        Path("net.py").write_text(NET)
        for name in (*FILES, *(f"{'ab'[i % 2]}/more{i}.png" for i in range(12))):
            Path("images", name).parent.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(draw.integers(0, 256, (20, 24, 3), dtype=np.uint8))
            kinds = {"palette": lambda i: i.quantize(16), "grey": lambda i: i.convert("L")}
            kinds.get(Path(name).stem, lambda i: i)(image).save(Path("images", name))
        model = build_one("model", MODEL)
        yield assay.benchmark(model, "images", METHODS, PROTOCOLS, out="run", progress=False)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The maps that were drawn over a picture."""
    maps: list[torch.Tensor] = []
    overlay = picture.overlay

    def record(pixels: torch.Tensor, values: torch.Tensor) -> Image.Image:
        maps.append(values)
        return overlay(pixels, values)

    monkeypatch.setattr(picture, "overlay", record)
    return maps


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_maps_of_the_run(
    images: Results, shown: list[torch.Tensor], name: str
) -> None:
    for item, label in zip(METHODS, LABELS, strict=True):
        explain_picture(Path("images", name), MODEL, item, FILES[name])
        assert torch.equal(shown[-1], torch.from_numpy(images.maps(label)[name])), label


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_the_scores_of_the_run(images: Results, name: str) -> None:
    one = read_picture(Path("images", name), MODEL, FILES[name])
    maps = torch.from_numpy(images.maps("smoothgrad")[name])[None]
    rows = [r for r in images.scores.to_pylist() if r["headline"]]
    for item in PROTOCOLS:
        protocol = choose_one("protocol", item)
        (value,) = [
            row["value"]
            for row in rows
            if (row["sample"], row["method"], row["protocol"])
            == (name, "smoothgrad", protocol.label)
        ]
        assert assay.score(one.model, one.sample, None, maps, protocol).item() == value


def test_the_best_method_draws_as_in_the_run(
    images: Results, shown: list[torch.Tensor], tmp_path: Path
) -> None:
    model, item = build_one("model", MODEL), {"smoothgrad": {"as": "mine"}}
    results = assay.benchmark(
        model, "images", [item, "random"], PROTOCOLS[:1], out=tmp_path, progress=False
    )
    for name, label in FILES.items():
        sentences, _ = explain_best(Path("images", name), MODEL, tmp_path, label)
        assert torch.equal(shown[-1], torch.from_numpy(results.maps("mine")[name]))
        value = next(
            row["value"]
            for row in results.scores.to_pylist()
            if (row["sample"], row["method"]) == (name, "mine") and row["headline"]
        )
        assert any(f"Here it scores {value:.3f} under deletion" in s for s in sentences)
    assert torch.equal(torch.from_numpy(images.maps("random")["a/0.png"]),
                       torch.from_numpy(results.maps("random")["a/0.png"]))  # fmt: skip


@pytest.mark.parametrize("kind", ["bag", "bert"])
def test_a_text_has_the_maps_of_the_run(kind: str, tmp_path: Path) -> None:
    """Up to rounding: the texts of a run are padded to one length."""
    texts, labels = make_texts(8)
    net: Any = bag_of_words(hidden=4)
    if kind == "bert":
        pytest.importorskip("transformers")
        net = build_one("model", f"hf:{save_bert(tmp_path / 'bert')}")
    methods: list[Any] = [
        "random",
        {"smoothgrad": {"noise": {"samples": 8}, "reduce": "square"}},
        {"lime": {"samples": 40}},
    ]
    results = assay.benchmark(
        net, (texts, labels), methods, ["single_deletion"], out=tmp_path / "run", progress=False,
        groups="none",
    )  # fmt: skip
    for item in methods:
        maps = results.maps(choose_one("method", item).label)
        for place, text in enumerate(texts):
            _, words = explain_picture(text, net, item, labels[place])
            alone = words.values
            inside = torch.from_numpy(maps[results.entries.shards[0].samples[place]])
            close = {"rtol": 1e-4, "atol": 1e-6}
            torch.testing.assert_close(alone, inside[: len(alone)], **close)


def test_a_dataset_has_its_own_labels(images: Results) -> None:
    one = read_picture("images/a/0.png", MODEL, 0)
    with pytest.raises(assay.InputError, match="y to be None with dataset `data`"):
        assay.explain(one.model, one.sample, [0], "saliency")
