"""Packaged photographs: labels, names, and mosaics whose truth is where the target's pixels are."""

import importlib.util
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image

from assay.data import photos as module
from assay.errors import PrerequisiteError
from assay.plugins import registry
from assay.types import Dataset, Pixels, Preprocess
from beside import beside

HERE = all(importlib.util.find_spec(package) for package in ("foolbox", "skimage"))
demo = pytest.mark.skipif(not HERE, reason='needs pip install "assay[demo]"')
PREPARE = Preprocess(224, Pixels((0.5,) * 3, (0.5,) * 3), resize=256)


@pytest.fixture(scope="module")
def photos() -> Dataset:
    """The photographs."""
    data: Dataset = registry.get("dataset", "photos").function()
    return data


@pytest.fixture(scope="module")
def mosaics() -> Dataset:
    """The mosaics."""
    data: Dataset = registry.get("dataset", "photo_mosaics").function()
    return data


@demo
def test_the_photographs(photos: Dataset) -> None:
    assert len(photos.ids) == 23
    assert photos.modality == "image"
    labels = {i: photos.fetch(i).label for i in photos.ids}
    assert labels["imagenet_00_243"] == 243
    assert labels["coffee"] == 967
    assert all(label == int(i.split("_")[2]) for i, label in labels.items() if "imagenet" in i)
    assert set(labels.values()) == set(photos.classes)
    batch = photos.batch(photos.ids, PREPARE)
    assert batch.inputs.shape == (23, 3, 224, 224)
    assert batch.groups == photos.ids
    assert batch.inputs.flatten(1).std(1).min() > 0.05  # no blank picture


@demo
def test_class_names_are_those_of_the_imagenet_sample(photos: Dataset) -> None:
    path = beside("imagenet-sample/imagenet_sample_1000.parquet")
    names = registry.get("dataset", "parquet").function(path=str(path)).classes
    assert dict(photos.classes) == {label: names[label] for label in photos.classes}


@demo
def test_the_truth_is_where_the_targets_pixels_are(photos: Dataset, mosaics: Dataset) -> None:
    assert len(mosaics.ids) == 23
    assert mosaics.has == {"labels", "truth"}
    for sample in mosaics.ids:
        target = mosaics.groups[sample]
        assert sample == f"mosaic_{target}"
        mosaic, photo = mosaics.fetch(sample), photos.fetch(target)
        assert mosaic.label == photo.label
        assert isinstance(mosaic.input, Image.Image)
        assert isinstance(mosaic.truth, Image.Image)
        assert isinstance(photo.input, Image.Image)
        assert mosaic.truth.size == mosaic.input.size == (512, 512)
        mask = np.asarray(mosaic.truth) > 0
        assert mask.mean() == 0.25
        rows, columns = mask.any(1).nonzero()[0], mask.any(0).nonzero()[0]
        inside = np.asarray(mosaic.input)[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        side = min(photo.input.size)
        left, top = ((length - side) // 2 for length in photo.input.size)
        small = photo.input.resize(
            (256, 256), Image.Resampling.BICUBIC, (left, top, left + side, top + side)
        )
        assert np.abs(inside.astype(int) - np.asarray(small).astype(int)).mean() < 1.0


@demo
def test_quadrants_survive_the_networks_crop(mosaics: Dataset) -> None:
    for size in (224, 240, 260):
        prepare = Preprocess(size, PREPARE.pixels, resize=size + 32)
        truth = mosaics.batch(mosaics.ids[:4], prepare).truth
        assert truth is not None
        half = size // 2
        quadrants = truth.reshape(4, 2, half, 2, half).mean((2, 4)).flatten(1)  # [4, quadrant]
        assert torch.equal(quadrants.sort(1).values, torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 4))


@demo
def test_mosaics_are_balanced_seeded_and_of_four_classes(mosaics: Dataset) -> None:
    album = module._album()
    layouts = {photo: module._layout(photo, album, 0) for photo in album}
    places = Counter(layout.index(photo) for photo, layout in layouts.items())
    assert sorted(places.values()) == [5, 6, 6, 6]
    for layout in layouts.values():
        assert len({album[photo].label for photo in layout}) == 4
    make = registry.get("dataset", "photo_mosaics").function
    assert make(seed=0).fingerprint == mosaics.fingerprint
    assert make(seed=1).fingerprint != mosaics.fingerprint
    first, again = (make().fetch(mosaics.ids[3]).input for _ in range(2))
    assert first.tobytes() == again.tobytes()


@demo
def test_the_packages_are_not_imported() -> None:
    code = (
        "import sys; from assay import registry; d = registry.get('dataset', 'photos').function();"
        "d.fetch(d.ids[0]); print([m for m in ('foolbox', 'skimage') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["foolbox", "skimage"])
def test_a_missing_package_names_the_cure(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    if package == "skimage" and not HERE:
        pytest.skip("needs foolbox")
    real = module.find_spec
    monkeypatch.setattr(module, "find_spec", lambda n: None if n == package else real(n))
    module._album.cache_clear()
    with pytest.raises(PrerequisiteError, match=r'pip install "assay\[demo\]"'):
        module.photos()
    module._album.cache_clear()
