"""Image classifiers that transformers saved: the network's own logits and preprocessing."""

import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

from assay.errors import InputError
from assay.plan.resolving import build_one
from assay.results import load

transformers = pytest.importorskip("transformers")
SIZES = {
    "squashed": {"size": {"height": 16, "width": 16}, "resample": 2},
    "cropped": {
        "size": {"shortest_edge": 20}, "do_center_crop": True, "resample": 3,
        "crop_size": {"height": 16, "width": 16},
    },
}  # fmt: skip


@pytest.fixture
def photo() -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 255, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((54, 36), Image.Resampling.BICUBIC)


@pytest.fixture(params=SIZES)
def folder(request, tmp_path):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        image_size=16, patch_size=4, num_labels=3, id2label={0: "cat", 1: "dog", 2: "owl"},
        label2id={"cat": 0, "dog": 1, "owl": 2},
    )  # fmt: skip
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path)
    kind = {
        "squashed": transformers.ViTImageProcessor, "cropped": transformers.CLIPImageProcessor
    }[request.param]  # fmt: skip
    kind(**SIZES[request.param]).save_pretrained(tmp_path)
    return tmp_path


def test_inputs_and_logits_are_those_of_transformers(folder, photo):
    model = build_one("model", f"hf:{folder}")
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    theirs = processor(photo, return_tensors="pt")["pixel_values"]
    ours = model.prepare(photo)[None]
    assert ours.shape == theirs.shape
    # A crop of an odd margin may lie one pixel aside; here margins are even.
    assert (ours - theirs).abs().max() < 0.02  # one level of 255
    with torch.no_grad():
        assert torch.equal(model(ours), model.net(ours).logits)
    assert model.classes == ("cat", "dog", "owl")


def test_it_runs(folder, photo, tmp_path_factory, call, monkeypatch):
    place = tmp_path_factory.mktemp("owls and cats")
    monkeypatch.chdir(place)
    for i, name in enumerate(("owl", "cat")):
        (place / "val" / name).mkdir(parents=True)
        for j in range(3):
            photo.rotate(30 * i + 7 * j).save(place / "val" / name / f"{j}.png")
    code, _, errors = call(
        "run", "--model", f"hf:{folder}", "--data", "val", "--out", "run", "--methods",
        "saliency,occlusion,gradcam,rollout,random", "--protocols", "deletion",
    )  # fmt: skip
    assert code == 0, errors
    previews = load(place / "run").files.previews("val")
    assert {preview.label_name for _, preview in previews} == {"owl", "cat"}


def test_code_in_the_folder_never_runs(tmp_path, monkeypatch):
    """`auto_map` names Python files of the folder; transformers would ask, and "y" would run it."""
    mark = tmp_path / "it-ran"
    (tmp_path / "code.py").write_text(f"open({str(mark)!r}, 'w').close()\nclass Config: pass\n")
    config = {
        "model_type": "unknown_to_transformers",
        "architectures": ["OwnForImageClassification"],
        "auto_map": {
            "AutoConfig": "code.Config",
            "AutoModelForImageClassification": "code.Model",
            "AutoModelForSequenceClassification": "code.Model",
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\ny\n"))
    with pytest.raises(InputError, match=r"brings Python code of its own"):
        build_one("model", f"hf:{tmp_path}")
    assert not mark.exists()
