"""The zoo: names, arms, jobs, and a training that stores, resumes and survives failures."""

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from assay.cli import app
from assay.commands.terminal import FAILED
from assay.commands.zoo import parse_seeds
from assay.errors import InputError, PrerequisiteError
from assay.models.carded import read_card, with_card
from assay.plugins import registry
from assay.training import zoo, zoo_processes, zoo_training
from assay.training.fitting import Recipe
from assay.training.masked_patches import pretrain_masked
from assay.training.zoo import (
    GROUPS,
    ZOO,
    Job,
    card_file,
    plan_jobs,
    zoo_file,
    zoo_item,
    zoo_model,
)
from assay.training.zoo_arms import Arm, parse_arm
from assay.training.zoo_pixels import PixelFacts, ZooPixels, cache_pixels
from assay.training.zoo_processes import train_zoo
from assay.training.zoo_training import Workshop, load_trained


def write_images(path: Path, n: int, seed: int) -> np.ndarray:
    pixels = np.random.default_rng(seed).integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
    cells = []
    for image in pixels:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    table = pa.table({"image": cells, "label": [i % 10 for i in range(n)]})
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(table, path)
    return pixels


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two training files and a test file of random images."""
    folder = tmp_path_factory.mktemp("data")
    write_images(folder / "cifar10" / "cifar10_train_1_lossless.parquet", 120, 0)
    write_images(folder / "cifar10" / "cifar10_train_2_lossless.parquet", 80, 1)
    write_images(folder / "cifar10" / "cifar10_test_lossless.parquet", 40, 2)
    write_images(folder / "cifar10" / "cifar10_train.parquet", 20, 3)  # must not be used
    return folder


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zoo of one small network."""
    options = {"depth": 8, "width": 1, "norm": "batch"}
    network = replace(
        ZOO["resnet20"], name="tiny", options=options, recipe=Recipe(2, 64), checkpoints=(1,)
    )
    monkeypatch.setitem(zoo.ZOO, "tiny", network)  # type: ignore[arg-type]


class TestNames:
    def test_groups_name_networks(self) -> None:
        assert all(name in ZOO for group in GROUPS.values() for name in group.networks)
        assert len(GROUPS["core"].networks) == 12

    def test_jobs_of_groups_and_networks_are_merged(self) -> None:
        jobs = plan_jobs(["placebo", "resnet20"], arms=None)
        assert len(jobs) == 15
        assert Job("vgg11", 4, ("base", "placebo")) in jobs
        assert plan_jobs(["vgg16"], [2], ["tuned-g8"]) == [Job("vgg16", 2, ("base", "tuned-g8"))]
        assert len(plan_jobs(["core", "checkpoints"])) == 60 + 6

    def test_an_unknown_name_is_an_error(self) -> None:
        with pytest.raises(InputError, match=r"Did you mean .*`resnet20`"):
            plan_jobs(["resnet2O"])

    def test_arms(self) -> None:
        assert parse_arm("base") == Arm("base")
        assert parse_arm("tuned-g8-blur") == Arm("tuned", grid=8, fill="blur")
        assert parse_arm("placebo-d25-t4") == Arm("placebo", "base-d25-t4", share=0.25, epochs=4)

    @pytest.mark.parametrize("text", ["", "tunned", "base-g8", "base-blur", "tuned-d200", "tuned-"])
    def test_what_is_not_an_arm(self, text: str) -> None:
        with pytest.raises(InputError, match="Expected an arm"):
            parse_arm(text)

    def test_files(self) -> None:
        assert zoo_file("out", "vgg11", 2, "tuned").name == "vgg11-s2-tuned.safetensors"
        assert zoo_file("out", "resnet20", 0, epoch=4).name == "resnet20-s0-base-e4.safetensors"
        last = ZOO["resnet20"].recipe.epochs
        assert zoo_file("out", "resnet20", 0, epoch=last) == zoo_file("out", "resnet20", 0)

    @pytest.mark.parametrize(
        ("text", "seeds"), [("0-2", [0, 1, 2]), ("4", [4]), ("1,5-6,1", [1, 5, 6])]
    )
    def test_seeds(self, text: str, seeds: list[int]) -> None:
        assert parse_seeds(text) == seeds

    @pytest.mark.parametrize("text", ["", "a", "3-1", "-1"])
    def test_wrong_seeds(self, text: str) -> None:
        with pytest.raises(InputError, match="--seeds"):
            parse_seeds(text)


class TestPixels:
    def test_they_are_those_of_the_lossless_files(self, data: Path, tmp_path: Path) -> None:
        path = cache_pixels(data, tmp_path)
        pixels = ZooPixels.load(path)
        assert pixels.train.shape == (200, 3, 32, 32)
        expected = write_images(tmp_path / "again.parquet", 120, 0)
        assert np.array_equal(pixels.train[:120].numpy(), expected.transpose(0, 3, 1, 2))
        assert pixels.test_labels.tolist() == [i % 10 for i in range(40)]
        assert "cifar10_train.parquet" not in pixels.origin
        stamp = path.stat().st_mtime_ns
        assert cache_pixels(data, tmp_path).stat().st_mtime_ns == stamp

    def test_without_lossless_files_nothing_is_read(self, data: Path, tmp_path: Path) -> None:
        write_images(tmp_path / "cifar10" / "cifar10_train.parquet", 20, 3)
        with pytest.raises(PrerequisiteError, match="JPEG pixels are never used"):
            cache_pixels(tmp_path, tmp_path)


@pytest.mark.usefixtures("tiny")
class TestTraining:
    def test_what_is_stored_is_what_is_measured(self, data: Path, tmp_path: Path) -> None:
        (outcome,) = train_zoo([Job("tiny", 1)], data, tmp_path, say=str)
        path = zoo_file(tmp_path, "tiny", 1)
        facts = json.loads(path.with_suffix(".json").read_text())
        assert outcome.accuracy == facts["accuracy"]
        assert facts["under_trained"]
        assert facts["bytes"] == path.stat().st_size < 2 * facts["parameters"] + 20_000
        ((name, options),) = zoo_item(tmp_path, "tiny", 1).items()
        options.pop("as")
        plugin = registry.get("model", name)
        loaded = plugin.function(**plugin.configure(options))
        assert loaded.weights_hash == facts["weights_hash"]
        pixels = ZooPixels.load(cache_pixels(data, tmp_path))
        right = zoo_training.accuracy_on(loaded, pixels.test, pixels.test_labels)
        assert right == facts["accuracy"]
        checkpoint = zoo_file(tmp_path, "tiny", 1, epoch=1)
        assert json.loads(checkpoint.with_suffix(".json").read_text())["epoch"] == 1
        assert checkpoint.read_bytes() != path.read_bytes()

    def test_finished_ones_are_skipped_and_damaged_ones_trained_again(
        self, data: Path, tmp_path: Path
    ) -> None:
        jobs = [Job("tiny", 0)]
        lines: list[str] = []
        train_zoo(jobs, data, tmp_path, say=lines.append)
        path = zoo_file(tmp_path, "tiny", 0)
        before = path.read_bytes()
        assert train_zoo(jobs, data, tmp_path, say=lines.append)[0].skipped
        path.with_suffix(".json").unlink()  # as after a kill
        assert not train_zoo(jobs, data, tmp_path, say=lines.append)[0].skipped
        assert path.read_bytes() == before
        assert "already there" in lines[1]

    def test_a_failure_leaves_its_error_and_the_others_go_on(
        self, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fit = zoo_training.fit_network

        def broken(model, *args, seed, **more):
            if seed == 0:
                raise InputError("Expected a finite loss.")
            return fit(model, *args, seed=seed, **more)

        monkeypatch.setattr(zoo_training, "fit_network", broken)
        outcomes = train_zoo([Job("tiny", 0), Job("tiny", 1)], data, tmp_path, say=str)
        assert [bool(o.error) for o in outcomes] == [True, False]
        assert [o.error_file for o in outcomes] == ["tiny-s0-base.error.txt", ""]
        assert "finite loss" in (tmp_path / "tiny-s0-base.error.txt").read_text()
        monkeypatch.undo()

    def test_a_share_of_the_images_and_fewer_epochs(self, data: Path, tmp_path: Path) -> None:
        train_zoo([Job("tiny", 0, ("base-d50-t1",))], data, tmp_path, say=str)
        path = zoo_file(tmp_path, "tiny", 0, "base-d50-t1")
        facts = json.loads(path.with_suffix(".json").read_text())
        assert (facts["images"], facts["recipe"]["epochs"]) == (100, 1)

    def test_the_facts_name_what_was_given(self, data: Path, tmp_path: Path) -> None:
        train_zoo([Job("tiny", 0)], data, tmp_path, epochs=1, tuning_epochs=2, limit=50, say=str)
        facts = json.loads(zoo_file(tmp_path, "tiny", 0).with_suffix(".json").read_text())
        assert facts["command"].endswith("--device cpu --limit 50 --epochs 1 --tuning-epochs 2")
        assert (facts["images"], facts["tested"], facts["pretraining"]) == (50, 40, 0)

    def test_the_epochs_of_the_pretraining_that_were_used(self) -> None:
        network, out = ZOO["vit_mae"], Path("out")
        assert zoo_training.pretraining_epochs(network, Workshop(out)) == 15
        assert zoo_training.pretraining_epochs(network, Workshop(out, epochs=1)) == 1
        assert zoo_training.pretraining_epochs(ZOO["resnet20"], Workshop(out, epochs=1)) == 0


@pytest.mark.usefixtures("tiny")
class TestStored:
    """What is stored counts as finished only if it is what was asked for; it is never replaced."""

    @pytest.fixture
    def out(self, data: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
        made = tmp_path_factory.getbasetemp() / "base-zoo"
        if not made.is_dir():
            train_zoo([Job("tiny", 0)], data, made, say=str)
        return Path(shutil.copytree(made, tmp_path / "zoo"))

    def refused(self, data: Path, out: Path, limit: int | None = None) -> str:
        """The error; neither weights nor facts change, and no file of an error is written."""
        before = {path.name: path.read_bytes() for path in out.glob("tiny-*")}
        job = Job("tiny", 0, ("base", "tuned"))
        base, tuned = train_zoo([job], data, out, limit=limit, say=str)
        assert {path.name: path.read_bytes() for path in out.glob("tiny-*")} == before
        assert base.error in tuned.error
        assert "its base network `tiny-s0-base` cannot be used" in tuned.error
        assert base.error_file == tuned.error_file == ""
        return base.error

    def test_of_fewer_images(self, data: Path, out: Path) -> None:
        assert "images 200 instead of 50" in self.refused(data, out, limit=50)

    def test_of_other_files(self, out: Path, tmp_path: Path) -> None:
        write_images(tmp_path / "other/cifar10/cifar10_train_lossless.parquet", 200, 7)
        write_images(tmp_path / "other/cifar10/cifar10_test_lossless.parquet", 40, 8)
        assert "images of other files" in self.refused(tmp_path / "other", out)

    def test_of_another_model(self, data: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        wider = replace(zoo.ZOO["tiny"], options={"depth": 8, "width": 2, "norm": "batch"})
        monkeypatch.setitem(zoo.ZOO, "tiny", wider)  # type: ignore[arg-type]
        assert "'width': 1" in self.refused(data, out)

    @pytest.mark.parametrize("epoch", [None, 1])
    def test_with_altered_weights(self, data: Path, out: Path, epoch: int | None) -> None:
        path = zoo_file(out, "tiny", 0, epoch=epoch)
        weights = load_file(path)
        name = next(name for name, w in weights.items() if w.is_floating_point())
        save_file({**weights, name: weights[name] + 1}, path)
        error = self.refused(data, out)
        assert f"the weights in `{path.name}` are not those that were stored" in error

    def test_with_damaged_weights(self, data: Path, out: Path) -> None:
        path = zoo_file(out, "tiny", 0)
        path.write_bytes(path.read_bytes()[:1000])
        assert f"the weights in `{path.name}` cannot be used" in self.refused(data, out)

    def test_the_command_names_only_files_of_errors_that_exist(self, data: Path, out: Path) -> None:
        call = ["zoo", "train", "tiny", "--data", str(data), "--out", str(out), "--limit", "50"]
        result = CliRunner().invoke(app, call)
        assert result.exit_code == FAILED
        assert "1 failed: tiny-s0-base" in result.output
        assert "error.txt" not in result.output


def test_masked_pretraining_learns_to_paint() -> None:
    ramp = torch.linspace(0, 255, 32).to(torch.uint8)
    images = ramp.expand(64, 3, 32, 32).clone()
    images[::2] = images[::2].flip(3)
    plugin = registry.get("model", "small_vit")
    model = plugin.function(**plugin.configure({"width": 32, "depth": 2, "heads": 2}))
    before = model.weights_hash
    recipe = Recipe(25, 16, "adamw", rate=5e-3, decay=0.0)
    errors = pretrain_masked(model, images, recipe, seed=0)
    assert errors[-1] < 0.6 * errors[0]
    assert model.weights_hash != before
    with pytest.raises(InputError, match="small_vit"):
        pretrain_masked(zoo_model("resnet20"), images, recipe)


@pytest.mark.usefixtures("tiny")
class TestTuning:
    @pytest.fixture
    def out(self, data: Path, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
        """Two seeds; one has been fine-tuned, with and without deletion. Trained once."""
        made = tmp_path_factory.getbasetemp() / "tuned-zoo"
        if not made.is_dir():
            train_zoo([Job("tiny", 1)], data, made, epochs=1, say=str)
            jobs = [Job("tiny", 0, ("base", "tuned", "placebo", "tuned-g2"))]
            outcomes = train_zoo(jobs, data, made, epochs=1, tuning_epochs=1, say=str)
            assert [o.error for o in outcomes] == [""] * 4
        return Path(shutil.copytree(made, tmp_path / "zoo"))

    def test_cards_belong_to_the_stored_weights(self, out: Path) -> None:
        for arm, grid in (("tuned", 4), ("tuned-g2", 2)):
            path = zoo_file(out, "tiny", 0, arm)
            facts = json.loads(path.with_suffix(".json").read_text())
            base = json.loads(zoo_file(out, "tiny", 0).with_suffix(".json").read_text())
            assert facts["card"]["grid"] == grid
            assert facts["card"]["weights_sha256"] == facts["weights_hash"]
            assert facts["card"]["base_sha256"] == base["weights_hash"]
            assert facts["card"]["accuracy_after"] == facts["accuracy"]  # 40 images in both
            ((_, options),) = zoo_item(out, "tiny", 0, arm).items()
            assert read_card(str(options["card"])).to_json() == facts["card"]
            model = load_trained(path, "tiny")
            assert "in_domain" in with_card(model, str(options["card"])).card
        card = read_card(str(card_file(zoo_file(out, "tiny", 0, "tuned"))))
        assert card.same_network is not None  # placebo and another seed are known

    def test_a_placebo_differs_from_the_tuned_network(self, out: Path) -> None:
        files = [zoo_file(out, "tiny", 0, arm).read_bytes() for arm in ("tuned", "placebo")]
        assert files[0] != files[1]
        assert read_card(str(card_file(zoo_file(out, "tiny", 0, "placebo")))).placebo

    def test_other_settings_are_not_taken_for_finished(self, out: Path, data: Path) -> None:
        job = Job("tiny", 0, ("base", "tuned"))
        outcomes = train_zoo([job], data, out, epochs=1, tuning_epochs=2, say=str)
        assert not outcomes[0].error
        assert "epochs 1 instead of 2" in outcomes[1].error

    def test_a_new_base_is_tuned_again(self, out: Path, data: Path) -> None:
        zoo_file(out, "tiny", 0).with_suffix(".json").unlink()
        card = card_file(zoo_file(out, "tiny", 0, "tuned"))
        before = read_card(str(card))
        job = Job("tiny", 0, ("base-d50", "base", "tuned-d50", "tuned"))
        shutil.copy(zoo_file(out, "tiny", 1), zoo_file(out, "tiny", 0))
        facts = zoo_file(out, "tiny", 1).with_suffix(".json").read_text()
        zoo_file(out, "tiny", 0).with_suffix(".json").write_text(facts)
        outcomes = train_zoo([job], data, out, epochs=1, tuning_epochs=1, say=str)
        assert [o.skipped for o in outcomes] == [False, True, False, False]
        assert read_card(str(card)).base_sha256 != before.base_sha256


def test_the_command_trains_in_two_processes_and_resumes(data: Path, tmp_path: Path) -> None:
    call = [
        "zoo", "train", "resnet20", "--data", str(data), "--out", str(tmp_path), "--seeds", "0-1",
        "--arms", "tuned,placebo", "--processes", "2", "--limit", "10", "--epochs", "1",
        "--tuning-epochs", "1",
    ]  # fmt: skip
    first = CliRunner().invoke(app, call)
    assert first.exit_code == 0, first.output
    assert "6 networks" in first.output
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    assert len(stamps) == 7  # three arms of two seeds, and the pixels
    again = CliRunner().invoke(app, call)
    assert again.output.count("already there") == 6
    assert stamps == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}


def test_a_process_that_dies_is_reported_and_the_others_go_on(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "pixels.safetensors"
    damaged.write_bytes(b"not whole")
    monkeypatch.setattr(zoo_processes, "cache_pixels", lambda data, out: damaged)
    facts = PixelFacts(200, 40, "")
    monkeypatch.setattr(zoo_processes, "read_pixel_facts", lambda path, limit: facts)
    jobs = [Job("resnet20", seed, ("base", "tuned")) for seed in range(2)]
    outcomes = train_zoo(jobs, data, tmp_path, processes=2, say=str)
    assert all("process ended with code 1" in o.error for o in outcomes)
    expected = {f"resnet20-s{seed}-{arm}" for seed in range(2) for arm in ("base", "tuned")}
    assert {o.file for o in outcomes} == expected


def test_the_list(tmp_path: Path) -> None:
    (tmp_path / "vgg11-s0-base.safetensors").touch()
    result = CliRunner().invoke(app, ["zoo", "list", "--json", "--out", str(tmp_path)])
    rows = {row["name"]: row for row in json.loads(result.output)}
    assert rows["vgg11"]["trained"] == ["vgg11-s0-base.safetensors"]
    assert rows["vgg11"]["norm"] == "none"
    assert rows["resnet110"]["parameters"] == 1_727_962
    assert "resnet20_w2_nobias" in CliRunner().invoke(app, ["zoo", "list"]).output
