"""Class numbers by name: whose order a dataset's classes are in, and when that cannot be told."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

import assay
from assay.data.classes import agree, check_labels, one_each
from assay.data.folders import image_folder
from assay.types import Dataset, Model, Sample


def data(*names: str, numbering: str = "sorted") -> Dataset:
    """One sample of each class, called by the class's name."""
    places = {name: number for number, name in enumerate(names)}
    return Dataset(
        "val", "vector", names, lambda i: Sample(i, places[i]), "abc",
        classes=dict(enumerate(names)), labels=places, numbering=numbering,
    )  # fmt: skip


def named(*classes: str) -> Model:
    return assay.model(nn.Linear(2, max(1, len(classes))), classes=classes or None)


def numbers(dataset: Dataset) -> dict[str, int]:
    found = {sample: dataset.fetch(sample).label for sample in dataset.ids}
    assert found == dict(dataset.labels)
    return found


@pytest.mark.parametrize(
    ("names", "classes", "expected"),
    [
        (["cat", "dog"], ["dog", "bird", "cat"], [2, 0]),
        (["Tiger_Cat", "polar-bear"], ["polar bear", "tiger cat"], [1, 0]),
        (["tench"], ["goldfish, Carassius", "tench, Tinca tinca"], [1]),
        (["Tinca tinca"], ["goldfish", "tench, Tinca tinca"], [1]),
        (["tench, Tinca tinca"], ["goldfish", "tench"], [1]),
        (["n01443537", "n01440764"], ["n01440764", "n01443537"], [1, 0]),
        (["crane"], ["crane, bird", "machine, crane"], [0]),  # the first synonym counts most
        (["bug"], ["bug, insect", "bug"], [1]),  # spelled in full counts more than that
    ],
)
def test_names_are_found_however_they_are_spelled(names, classes, expected):
    assert one_each(names, classes, "it") == expected


@pytest.mark.parametrize(
    ("names", "classes", "message"),
    [
        (["crane"], ["crane", "heron", "crane"], r"0 \(`crane`\) or 2 \(`crane`\)"),
        (["cat", "Cat"], ["cat", "dog"], "`cat` and `Cat` both mean `cat`"),
        (["x", "y"], ["cat", "dog"], r"\(cat, dog\): none of 2 are, `x` is not.*--classes"),
        (["cat", "y"], ["cat", "dog"], "1 of 2 are, `y` is not"),
    ],
)
def test_what_cannot_be_told_is_said(names, classes, message):
    with pytest.raises(assay.InputError, match=message):
        one_each(names, classes, "it")


def test_folders_follow_the_model_and_say_so():
    found = agree(data("cat", "dog"), {"m": named("dog", "cat"), "other": named()})
    assert numbers(found) == {"cat": 1, "dog": 0}
    assert dict(found.classes) == {1: "cat", 0: "dog"}
    assert "by the names in model `m`" in found.note
    assert found.fingerprint != data("cat", "dog").fingerprint


def test_the_same_order_is_the_same_data():
    found = agree(data("cat", "dog"), {"m": named("cat", "dog", "emu")})
    assert found.fingerprint == data("cat", "dog").fingerprint
    assert numbers(found) == {"cat": 0, "dog": 1}


def test_without_names_the_order_is_alphabetical_and_said():
    for model in (named(), assay.model(nn.Linear(2, 2), classes=2)):
        found = agree(data("cat", "dog"), {"m": model})
        assert numbers(found) == {"cat": 0, "dog": 1}
        assert "alphabetical order (cat, dog)" in found.note


def test_folders_that_are_numbers_are_those_numbers():
    found = agree(data("10", "2", "9"), {"m": named()})
    assert numbers(found) == {"10": 10, "2": 2, "9": 9}


def test_two_models_must_agree():
    with pytest.raises(assay.InputError, match="`a` and `b` have the classes of `val` in diff"):
        agree(data("cat", "dog"), {"a": named("cat", "dog"), "b": named("dog", "cat")})


def test_numbers_that_were_given_are_left_alone():
    given = data("cat", "dog", numbering="given")
    assert agree(given, {"m": named("dog", "cat")}) is given


class TestDeclared:
    """Names and numbers of the data's own, as Hugging Face writes them."""

    def test_names_decide_where_both_have_them(self):
        found = agree(data("cat", "dog", numbering="declared"), {"m": named("dog", "cat")})
        assert numbers(found) == {"cat": 1, "dog": 0}

    def test_two_classes_of_one_name_keep_their_numbers(self):
        twins = data("crane", "heron", numbering="declared")
        found = agree(twins, {"m": named("crane", "heron", "crane")})
        assert numbers(found) == {"crane": 0, "heron": 1}

    def test_other_words_in_the_same_places_are_no_contradiction(self):
        found = agree(data("cat", "hound", numbering="declared"), {"m": named("cat", "dog")})
        assert numbers(found) == {"cat": 0, "hound": 1}
        assert "declares" in found.note

    def test_half_an_order_is_refused(self):
        with pytest.raises(assay.InputError, match=r"differently \(`cat`\).*`hound` is unclear"):
            agree(data("cat", "hound", numbering="declared"), {"m": named("dog", "cat")})


def test_more_classes_than_outputs():
    with pytest.raises(
        assay.InputError, match=r"below 2, .* got 2 \(`emu`\) .* labels go from 0 to 2"
    ):
        check_labels(data("cat", "dog", "emu"), "m", 2)


@pytest.fixture
def val(tmp_path: Path) -> Path:
    """Folders with blanks and hyphens in their names, three pictures each."""
    noise = np.random.default_rng(0)
    for label in ("tiger cat", "polar-bear"):
        (tmp_path / "my data" / label).mkdir(parents=True)
        for i in range(3):
            pixels = noise.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "my data" / label / f"{i} a.png")
    return tmp_path / "my data"


def test_a_run_follows_the_model_and_keeps_what_it_said(val, tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    pixels = assay.types.Pixels((0.5,) * 3, (0.5,) * 3)
    model = assay.model(
        net, classes=["tiger_cat", "emu", "Polar Bear"], prepare=assay.Preprocess(8, pixels)
    )
    results = assay.benchmark(
        model, image_folder(path=str(val)), ["random"], ["deletion"], out=tmp_path / "a b/c",
        progress=False,
    )  # fmt: skip
    about = results.manifest["datasets"]["my data"]
    assert "by the names in model `sequential`" in about["note"]
    labels = {p.sample: p.label for _, p in results.files.previews("my data")}
    assert labels["tiger cat/0 a.png"] == 0
    assert labels["polar-bear/0 a.png"] == 2
    assert "by the names in model" in results.report().read_text()


def test_more_folders_than_outputs_stop_before_anything_is_written(val, tmp_path):
    pixels = assay.types.Pixels((0.5,) * 3, (0.5,) * 3)
    net = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    model = assay.model(net, prepare=assay.Preprocess(8, pixels))
    for name in ("a", "b"):
        (val / name).mkdir()
        Image.new("RGB", (8, 8)).save(val / name / "0.png")
    for target in ("label", "predicted"):
        with pytest.raises(assay.InputError, match="Expected labels below 3"):
            assay.benchmark(
                model, image_folder(path=str(val)), ["random"], ["deletion"],
                out=tmp_path / "run", progress=False, target=target,
            )  # fmt: skip
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            [1, 2, 3],
            r"got 3 for sample `0002` .*go from 1 to 3\. Class .* 0: subtract 1\.$",
        ),
        ([0, 3, 1], r"got 3 for sample `0001` .*go from 0 to 3\. Class numbers begin at 0\.$"),
    ],
    ids=str,
)
def test_labels_beyond_the_outputs_say_how_they_count(labels, said):
    with pytest.raises(assay.InputError, match=said):
        assay.benchmark(
            nn.Linear(4, 3), (np.eye(3, 4), np.array(labels)), ["random"], ["single_deletion"],
            progress=False,
        )  # fmt: skip
