"""The training script, on colours that are easily told apart."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from benchmarks import train_small
from PIL import Image

import assay
from assay.plugins import registry

COLOURS = ((200, 40, 40), (40, 200, 40), (40, 40, 200))


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """Sixty noisy images of three colours, lossless."""
    generator = torch.Generator().manual_seed(0)
    rows, labels = [], []
    for n in range(60):
        noise = torch.randint(-30, 30, (32, 32, 3), generator=generator)
        pixels = (torch.tensor(COLOURS[n % 3]) + noise).clamp(0, 255).byte().numpy()
        kept = io.BytesIO()
        Image.fromarray(pixels).save(kept, "PNG")
        rows.append({"bytes": kept.getvalue(), "path": None})
        labels.append(n % 3)
    path = tmp_path_factory.mktemp("data") / "colours.parquet"
    pq.write_table(pa.table({"image": rows, "label": labels}), path)
    return str(path)


@pytest.mark.parametrize(
    ("name", "options", "epochs"),
    [
        ("bcos_resnet", '{"depth": 8, "width": 3, "classes": 3}', 4),
        ("bagnet", '{"field": 5, "width": 2, "classes": 3}', 12),
        ("small_vit", '{"width": 16, "depth": 2, "heads": 2, "classes": 3}', 8),
    ],
)
def test_it_learns_and_keeps_what_it_learned(name, options, epochs, colours, tmp_path, capsys):
    out = tmp_path / "trained.safetensors"
    right = train_small.main(
        ["--model", name, "--options", options, "--train", colours, "--test", colours,
         "--out", str(out), "--epochs", str(epochs), "--batch", "12", "--device", "cpu",
         "--lr", "0.02"]
    )  # fmt: skip
    said = capsys.readouterr().out
    losses = [float(line.split("loss ")[1].split(",")[0]) for line in said.splitlines()[:epochs]]
    assert losses[-1] < 0.7 * losses[0]
    assert right > 0.9
    made = registry.get("model", name).function(
        **{**train_small.json.loads(options), "weights": str(out)}
    )
    data = registry.get("dataset", "parquet").function(path=colours)
    batch = data.batch(data.ids, made.prepare)
    with torch.no_grad():
        found = made.logits(batch.inputs).argmax(1) == batch.labels
    assert found.float().mean().item() == pytest.approx(right)
    assert out.stat().st_size < 40_000


def test_a_model_that_needs_weights_is_refused():
    with pytest.raises(assay.InputError, match="without weights, got `cifar_resnet20`"):
        train_small.build("cifar_resnet20", {})


def test_what_is_too_large_is_refused(tmp_path):
    model = train_small.build("bagnet", {"width": 64})
    with pytest.raises(assay.InputError, match="at most 2,000,000 bytes"):
        train_small.save(model, tmp_path / "large.safetensors")
