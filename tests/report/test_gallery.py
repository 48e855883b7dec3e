"""The gallery: colours mean what the page says they mean."""

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from assay.report import gallery
from assay.results import Results
from assay.store import RunFiles, SettingKey

PHOTOS = SettingKey("photos", "net", "final")


def decode(uri: str) -> np.ndarray:
    """The pixels of a data URI as RGB."""
    kind, data = uri.split(",", 1)
    assert kind.endswith(";base64")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")).astype(int)


def test_zero_is_neutral_and_signs_are_opposite():
    values = np.array([[0.0, 1.0], [-1.0, 0.5]])
    pixels = decode(gallery.map_uri(values))
    red, green, blue = pixels[0, 0]
    assert red == green == blue
    assert red > 235
    assert pixels[0, 1, 0] > pixels[0, 1, 2] + 50  # positive: red over blue
    assert pixels[1, 0, 2] > pixels[1, 0, 0] + 50  # negative: blue over red
    assert pixels[1, 1, 1] > pixels[0, 1, 1]  # weaker is paler


def test_the_scale_is_symmetric():
    values = np.random.default_rng(0).normal(size=(40, 40))
    one, other = gallery.colour_index(values), gallery.colour_index(-values)
    assert np.array_equal(one.astype(int) - gallery.LEVELS, gallery.LEVELS - other.astype(int))
    assert one.min() == 0
    assert one.max() == 2 * gallery.LEVELS


def test_one_outlier_does_not_wash_out_the_map():
    values = np.ones((50, 50))
    values[0, 0] = 1e6
    assert gallery.colour_index(values)[25, 25] == 2 * gallery.LEVELS
    assert gallery.colour_index(values * 1e-12)[25, 25] == 2 * gallery.LEVELS


def test_an_empty_map_is_neutral():
    pixels = decode(gallery.map_uri(np.zeros((224, 224))))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) == 1
    assert pixels.min() > 235


def test_a_single_lit_pixel_is_seen():
    values = np.zeros((60, 60))
    values[3, 3] = -1e-3
    assert gallery.colour_index(values)[3, 3] == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_has_its_own_colour(bad: float):
    values = np.full((8, 8), 0.5)
    values[:4] = bad
    index = gallery.colour_index(values)
    assert (index[:4] == gallery.MISSING).all()
    assert (index[4:] == 2 * gallery.LEVELS).all()
    everything = decode(gallery.map_uri(np.full((8, 8), bad)))
    assert (everything == gallery.palette()[gallery.MISSING]).all()


def test_large_maps_are_averaged_and_keep_their_shape():
    values = np.zeros((448, 224))
    values[:224] = 1.0
    index = gallery.colour_index(values)
    assert index.shape == (gallery.SIDE, gallery.SIDE // 2)
    assert (index[: gallery.SIDE // 2] == 2 * gallery.LEVELS).all()
    assert (index[gallery.SIDE // 2 :] == gallery.LEVELS).all()


def test_samples_are_evenly_spread():
    names = [str(i) for i in range(46)]
    chosen = [int(i) for i in gallery.spread(names, 12)]
    assert len(chosen) == 12
    assert (chosen[0], chosen[-1]) == (0, 45)
    assert set(np.diff(chosen)) <= {4, 5}
    assert gallery.spread(names[:3], 12) == names[:3]


def test_many_settings_share_the_page():
    assert gallery.per_setting(1, 14) == gallery.PER_SETTING
    assert gallery.AT_LEAST <= gallery.per_setting(4, 14) < gallery.PER_SETTING


def build(results: Results, setting: SettingKey) -> gallery.Gallery | None:
    """The gallery of a setting with the suite's methods and no scores."""
    entries = results.entries
    return gallery.build(results.files, setting, lambda _: {}, 5, list(entries.methods))


def test_vectors_have_no_gallery(small: Results):
    assert build(small, SettingKey("vectors", "mlp", "final")) is None


def test_rows_and_columns(small: Results):
    found = build(small, PHOTOS)
    assert found is not None
    assert found.methods == (
        "gradcam",
        "ig[steps=5]",
        '<b>&"x',
        "random",
        "edge",
    )  # no maps: left out
    assert [r.sample for r in found.rows] == [f"photos-{i:03d}" for i in (0, 3, 6, 8, 11)]
    maps = small.maps("edge", "photos", "net")
    assert maps["photos-003"].shape == (32, 32)
    assert found.rows[0].label == '<b>&"x'
    assert found.rows[0].predicted == "class 1"
    assert found.rows[0].probability == pytest.approx(0.25)
    assert decode(found.rows[0].photo).shape == (gallery.SIDE, gallery.SIDE, 3)


def test_a_map_that_is_gone_leaves_a_gap(small: Results):
    first = next(shard for shard in small.entries.shards if shard.dataset == "photos")
    missing = replace(first, id="elsewhere", samples=["photos-011"])  # its files do not exist
    manifest = replace(small.entries, shards=[first, missing])
    found = gallery.build(RunFiles(small.store, manifest), PHOTOS, lambda _: {}, 3, ["edge"])
    assert found is not None
    assert all(row.tiles[0].uri for row in found.rows)
    manifest = replace(small.entries, shards=[missing])
    assert gallery.build(RunFiles(small.store, manifest), PHOTOS, lambda _: {}, 3, ["edge"]) is None


def test_predictions_of_unknown_models_are_not_shown(small: Results):
    shards = small.entries.shards
    twin = replace(shards[0], id="twin", model="other net")
    manifest = replace(small.entries, shards=[*shards, twin])
    found = gallery.build(RunFiles(small.store, manifest), PHOTOS, lambda _: {}, 3, ["edge"])
    assert found is not None
    assert {(r.predicted, r.probability) for r in found.rows} == {("", None)}
    assert found.rows[0].label == '<b>&"x'
