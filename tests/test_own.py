"""One's own model, data and methods, by address and from the command line."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

import assay
from assay.plan.resolving import build_one, resolve
from assay.plugins import registry
from assay.store import CleanAccuracy
from assay.suite.defaults import METHODS, PROTOCOLS
from assay.suite.from_options import dataset_item
from assay.suite.spec import choose_one, make_suite

NET = """
from torch import nn

def build(width=4):
    layers = [nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(16 * width, 2))

def number():
    return 3

def ready():
    import assay
    return assay.model(build())

network = build()
"""
MINE = """
import assay

def attr(model, batch, *, power: float = 1.0):
    import torch
    x = batch.inputs.clone().requires_grad_(True)
    chosen = model(x).gather(1, batch.targets[:, None]).sum()
    return torch.autograd.grad(chosen, x)[0].abs() ** power

@assay.protocol("whole_mass", higher_is_better=True, range=(0, 1e9), cite="x", uses="value")
def whole_mass(case):
    return assay.Scores(case.attribution.flatten(1).sum(1).double())

def undecorated(case):
    return None
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a network, its weights, a method, images of two classes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_net.py").write_text(NET)
    (tmp_path / "mine.py").write_text(MINE)
    net = registry.get("model", "./my_net.py:build").function()
    wrapped = {f"module.{key}": value for key, value in net.state_dict().items()}
    torch.save({"model_state_dict": wrapped, "epoch": 3}, "best.pt")
    noise = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / "val" / label).mkdir(parents=True)
        for i in range(6):
            pixels = noise.integers(0, 255, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "val" / label / f"{i}.png")
    return tmp_path


@pytest.fixture
def call(call):
    """The exit code, and all that was said in one line."""

    def run(*arguments: str) -> tuple[int, str]:
        code, output, errors = call(*arguments)
        return code, (output + errors).replace("\n", " ")

    return run


OWN = [
    "run", "--model", "./my_net.py:build", "--weights", "best.pt", "--data", "val", "--size", "32",
    "--mean", ".5,.5,.5", "--std", ".2,.2,.2", "--protocols", "deletion,./mine.py:whole_mass",
    "--methods", "gradcam,./mine.py:attr,random",
]  # fmt: skip


def test_a_run_without_a_suite_writes_the_suite_it_made(home, call):
    code, output = call(*OWN, "--out", "a")
    assert code == 0
    assert "samples of val" in output
    assert "build: weights of best.pt: taken from `model_state_dict` (`epoch` not used)" in output
    assert "val: class numbers: alphabetical order (cat, dog)." in output
    assert "best.pt" in assay.load(home / "a").manifest["models"]["build"]["card"]["weights"]
    written = yaml.safe_load((home / "a" / "spec.yaml").read_text())
    assert written["models"][0]["./my_net.py:build"]["weights"] == "best.pt"
    again = ["run", "a/spec.yaml", "--out", "b", "--workers", "2"]
    assert call(*again)[0] == 2  # a run folder runs no code by itself
    assert call(*again, "--trust-code")[0] == 0
    first, second = (assay.load(home / x).scores for x in "ab")
    assert first.equals(second)
    assert set(first["method"].to_pylist()) == {"gradcam", "attr", "random"}
    assert set(first["protocol"].to_pylist()) == {"deletion", "whole_mass"}


@pytest.mark.usefixtures("home")
def test_python_takes_paths_and_addresses_and_gives_the_same_numbers(call):
    command = [*OWN[:-1], "saliency,random"]
    command[command.index("--protocols") + 1] = "deletion"
    assert call(*command, "--out", "a")[0] == 0
    state = torch.load("best.pt")["model_state_dict"]
    net = registry.get("model", "./my_net.py:build").function()
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    model = assay.model(net, size=32, mean=0.5, std=0.2, name="build")
    said = assay.benchmark(model, "val", ["saliency", "random"], ["deletion"], progress=False)
    first, second = (r.scores["value"].to_pylist() for r in (assay.load("a"), said))
    assert first == second
    maps = assay.explain("./my_net.py:network", torch.randn(2, 3, 32, 32), [0, 1], "saliency")
    assert maps.shape == (2, 32, 32)


@pytest.mark.usefixtures("home")
def test_without_lists_the_command_line_runs_what_python_runs(call):
    """One list of defaults; what does not apply here, such as the oracle, is left out."""
    plain = OWN[: OWN.index("--protocols")]
    assert call(*plain, "--limit", "4", "--out", "a")[0] == 0
    options = {"weights": "best.pt", "size": 32, "mean": [0.5] * 3, "std": [0.2] * 3}
    model = build_one("model", {"./my_net.py:build": options})
    theirs = assay.benchmark(model, "val", limit=4, progress=False).scores
    ours = assay.load("a").scores
    columns = ["method", "protocol", "sample", "value"]
    assert ours.select(columns).equals(theirs.select(columns))
    applicable = {choose_one("method", item).label for item in METHODS} - {"oracle"}
    assert set(ours["method"].to_pylist()) == applicable
    assert len(set(ours["protocol"].to_pylist())) == len(PROTOCOLS)


@pytest.mark.usefixtures("home")
def test_classes_said_on_the_command_line_decide(call):
    assert call(*OWN, "--classes", "dog,cat", "--out", "a")[0] == 0
    assert assay.load("a").spec.datasets == [
        {"image_folder": {"path": "val", "classes": ["dog", "cat"]}}
    ]
    code, output = call(*OWN, "--classes", "wolf,lynx", "--out", "b")
    assert code == 2
    assert "(wolf, lynx): none of 2 are, `cat` is not" in output


@pytest.mark.usefixtures("home")
def test_an_edited_file_is_another_method(home):
    before = choose_one("method", "./mine.py:attr")
    assert choose_one("method", "./mine.py:attr").key == before.key
    (home / "mine.py").write_text(MINE.replace(".abs()", ".abs().sqrt()"))
    assert choose_one("method", "./mine.py:attr").key != before.key


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("kind", "address", "message"),
    [
        ("method", "./nowhere.py:attr", "no file"),
        ("method", "./mine.py:atr", "Did you mean `attr`"),
        ("method", "./mine.py:not a name", "Expected `package.module:object`"),
        ("method", "no_such_package:attr", "no module `no_such_package`"),
        ("method", "math:pi", "to be a function"),
        ("protocol", "./mine.py:undecorated", "decorated with `@assay.protocol"),
    ],
)
def test_wrong_addresses_are_explained(kind, address, message):
    with pytest.raises((assay.InputError, assay.PrerequisiteError), match=message):
        registry.get(kind, address)


def test_a_file_that_raises_on_import_is_named(home):
    (home / "broken.py").write_text("raise RuntimeError('not today')")
    with pytest.raises(assay.InputError, match=r"broken.py. cannot be imported: .*not today"):
        registry.get("method", "./broken.py:attr")


def suite(model: object, data: object) -> object:
    return resolve(
        make_suite(
            {
                "datasets": [data],
                "models": [model],
                "methods": ["random"],
                "protocols": ["deletion"],
            }
        )
    )


@pytest.mark.usefixtures("home")
class TestModels:
    def test_a_factory_takes_its_own_options_and_the_description(self):
        options = {"width": 2, "size": 24, "mean": 0.5, "std": 0.25, "classes": ["cat", "dog"]}
        plan = suite({"./my_net.py:build": options}, {"image_folder": {"path": "val"}})
        model = plan.models["build"]
        assert model.net[0].out_channels == 2
        assert model.prepare.size == 24
        assert model.classes == ("cat", "dog")
        assert plan.batch(plan.shards[0]).inputs.shape[1:] == (3, 24, 24)

    def test_weights_are_unwrapped(self):
        plan = suite(
            {"./my_net.py:build": {"weights": "best.pt"}}, {"image_folder": {"path": "val"}}
        )
        saved = torch.load("best.pt", weights_only=True)["model_state_dict"]
        assert torch.equal(plan.models["build"].net[0].weight, saved["module.0.weight"])

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"weights": "nowhere.pt"}, "found no such file"),
            ({"widht": 3}, "Did you mean `width`"),
            ({"width": 8, "weights": "best.pt"}, "do not fit"),
            ({"size": 32}, "`mean` and `std` with `size`"),
        ],
    )
    def test_mistakes_are_named(self, options, message):
        with pytest.raises((assay.InputError, assay.PrerequisiteError), match=message):
            suite({"./my_net.py:build": options}, {"image_folder": {"path": "val"}})

    def test_a_factory_that_gives_no_module(self):
        with pytest.raises(assay.InputError, match=r"to return a torch.nn.Module, got int"):
            suite("./my_net.py:number", {"image_folder": {"path": "val"}})

    def test_nothing_said_of_a_model_is_dropped(self):
        data = {"image_folder": {"path": "val"}}
        with pytest.raises(assay.InputError, match="no `weights` for `ready`"):
            suite({"./my_net.py:ready": {"weights": "best.pt"}}, data)
        with pytest.raises(assay.InputError, match="Unknown option of model `network`: `width`"):
            suite({"./my_net.py:network": {"width": 3}}, data)
        assert suite({"./my_net.py:network": {"size": 32, "mean": 0.5, "std": 0.2}}, data).models

    def test_a_pickle_is_refused(self):
        torch.save(registry.get("model", "./my_net.py:build").function(), "whole.pt")
        with pytest.raises(assay.InputError, match="nothing but tensors"):
            suite({"./my_net.py:build": {"weights": "whole.pt"}}, {"image_folder": {"path": "val"}})


@pytest.mark.usefixtures("home")
class TestFolders:
    def folder(self, **options):
        return registry.get("dataset", "image_folder").function(path="val", **options)

    def test_labels_follow_the_folders(self):
        data = self.folder()
        assert len(data.ids) == 12
        assert data.fetch("cat/0.png").label == 0
        assert data.fetch("dog/5.png").label == 1
        assert dict(data.classes) == {0: "cat", 1: "dog"}
        assert self.folder(classes=("dog", "bird", "cat")).fetch("cat/0.png").label == 2

    def test_content_decides_the_fingerprint(self, home):
        before = self.folder().fingerprint
        assert self.folder().fingerprint == before
        Image.new("RGB", (40, 50)).save(home / "val" / "cat" / "0.png")
        assert self.folder().fingerprint != before

    def test_mistakes_are_named(self, home):
        (home / "empty").mkdir()
        for wrong, message in (
            ({"path": "nowhere"}, "no folder"),
            ({"path": "empty"}, "found none"),
            ({"path": "val", "classes": ("cat",)}, "`dog` is not"),
        ):
            with pytest.raises((assay.InputError, assay.PrerequisiteError), match=message):
                registry.get("dataset", "image_folder").function(**wrong)
        Image.new("RGB", (4, 4)).save(home / "val" / "loose.png")
        with pytest.raises(assay.InputError, match=r"loose.png. beside the folders"):
            self.folder()

    def test_a_single_class_needs_the_order(self, home):
        for file in (home / "val" / "dog").iterdir():
            file.unlink()
        with pytest.raises(assay.InputError, match="only `cat`"):
            suite("./my_net.py:build", {"image_folder": {"path": "val"}})
        assert self.folder(classes=("dog", "cat")).fetch("cat/0.png").label == 1

    def test_an_unreadable_image_is_named(self, home):
        (home / "val" / "cat" / "0.png").write_bytes(b"no image")
        with pytest.raises(assay.InputError, match=r"cat/0\.png"):
            self.folder().fetch("cat/0.png")

    def test_csv_with_names_of_classes_is_numbered_as_folders_are(self, home):
        (home / "list.csv").write_text("path,label\nval/dog/1.png,dog\nval/cat/0.png,cat\n")
        model = {
            "./my_net.py:build": {"size": 8, "mean": 0.5, "std": 0.25, "classes": ["dog", "cat"]}
        }
        suite = {"models": [model], "methods": ["saliency"], "protocols": ["deletion"]}
        named = resolve(make_suite({**suite, "datasets": [{"csv": {"path": "list.csv"}}]}))
        folders = resolve(make_suite({**suite, "datasets": [{"image_folder": {"path": "val"}}]}))
        data, like = named.datasets["list"], folders.datasets["val"]
        assert [data.fetch(i).label for i in data.ids] == [0, 1]
        assert {name: number for number, name in like.classes.items()} == {"dog": 0, "cat": 1}

    def test_csv(self, home):
        (home / "list.csv").write_text("path,label\nval/cat/0.png,1\nval/dog/1.png,0\n")
        data = registry.get("dataset", "csv").function(path="list.csv")
        assert [data.fetch(i).label for i in data.ids] == [1, 0]
        for text, message in (
            ("file,label\n", "column `path`"),
            ("path,label\nval/cat/0.png,0.5\n,\n", "in every row of column `label`"),
            ("path,label\nval/cat/99.png,0\n", "no such file"),
            ("path,label\n", "Expected rows"),
        ):
            (home / "list.csv").write_text(text)
            with pytest.raises((assay.InputError, assay.PrerequisiteError), match=message):
                registry.get("dataset", "csv").function(path="list.csv")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--model", "./my_net.py:build"], "`--data` is missing"),
        (["run", "demo", "--model", "x"], "not both"),
        (["run", "idsds_cells"], "`--model` is missing"),
        (["run", "idsds_cells", "--model", "./my_net.py:build"], "`--data` is missing"),
        (["run", "idsds_cells", "--methods", "saliency"], "not both"),
        ([*OWN, "--mean", "a,b"], "`--mean` to be numbers"),
        (["run", "--model", "./my_net.py:build", "--data", "val"], "--size"),
    ],
)
def test_what_is_missing_is_said(call, arguments, message):
    code, output = call(*arguments, "--out", "x")
    assert code == 2
    assert message in output


def test_a_limit_is_balanced_over_labels():
    x, y = torch.randn(40, 6), [0] * 34 + [1] * 3 + [2] * 3
    net = torch.nn.Linear(6, 3)
    results = assay.benchmark(net, (x, y), ["random"], ["deletion"], limit=9, progress=False)
    chosen = {int(sample) for sample in results.scores["sample"].to_pylist()}
    assert sorted(y[i] for i in chosen) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_network_at_chance_is_remarked_upon(home, call):
    code, output = call(*OWN, "--out", "run")
    accuracy = assay.load(home / "run").manifest["clean"][0]
    assert code == 0
    assert accuracy["chance"] == 0.5
    assert ("hardly above chance" in output) == (accuracy["accuracy"] < 0.625)


@pytest.mark.parametrize(
    ("accuracy", "chance", "remarked"),
    [(0.5, 0.5, True), (0.9, 0.5, False), (0.15, 0.1, True), (0.25, 0.1, False),
     (0.0015, 0.001, True), (0.17, 0.001, False)],
)  # fmt: skip
def test_a_good_network_of_two_classes_is_not_remarked_upon(accuracy, chance, remarked):
    clean = CleanAccuracy(dataset="data", model="net", n=9, accuracy=accuracy, chance=chance)
    assert clean.hardly_above_chance == remarked


LOOK = ["--model", "./my_net.py:build", "--size", "32", "--mean", ".5", "--std", ".2"]


def test_one_picture_is_explained(home, call):
    code, output = call("explain", "val/cat/0.png", *LOOK, "--weights", "best.pt", "-o", "map.png")
    assert code == 0
    assert "a probability of 0." in output
    assert Image.open(home / "map.png").size == (256, 256)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["val/cat/99.png", *LOOK], "no file"),
        (["mine.py", *LOOK], "Expected an image"),
        (["val/cat/0.png", "--model", "./my_net.py:build"], "--size"),
        (["val/cat/0.png", *LOOK, "--target", "7"], "class below 2"),
        (["val/cat/0.png", *LOOK, "--method", "gradcm"], "Did you mean `gradcam`"),
    ],
)
def test_what_cannot_be_explained_is_said(call, arguments, message):
    code, output = call("explain", *arguments)
    assert code == 2
    assert message in output


def test_data_that_is_neither_a_name_nor_a_path(home):
    said = r"Unknown dataset `nodir`\. .*\. There is no folder or file `nodir` either\."
    with pytest.raises(assay.InputError, match=said):
        dataset_item("nodir")
    with pytest.raises(assay.InputError, match=said):
        assay.benchmark(torch.nn.Linear(2, 2), "nodir")
    (home / "archive.zip").write_bytes(b"")
    with pytest.raises(assay.InputError, match=r"Unknown dataset `archive\.zip`") as error:
        dataset_item("archive.zip")
    assert "There is no" not in str(error.value)
