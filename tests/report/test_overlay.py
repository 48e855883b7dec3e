"""A map over a picture."""

import numpy as np
import pytest
import torch
from PIL import Image

import assay

GREY = Image.new("RGB", (8, 6), (120, 120, 120))


def pixels(*arguments, **options) -> np.ndarray:
    return np.asarray(assay.overlay(*arguments, **options), dtype=int)


def test_zero_leaves_the_picture():
    assert (pixels(GREY, np.zeros((6, 8))) == 120).all()


def test_signs_have_opposite_colours():
    values = np.zeros((6, 8))
    values[0, 0], values[5, 7] = 2.0, -2.0
    seen = pixels(GREY, values, strength=1.0)
    red, blue = seen[0, 0], seen[5, 7]
    assert red[0] > 150 > red[2]
    assert blue[2] > 150 > blue[0]
    assert (seen[2, 3] == 120).all()


def test_scale_does_not_matter():
    values = np.random.default_rng(0).normal(size=(6, 8))
    assert (pixels(GREY, values) == pixels(GREY, 1000 * values)).all()


@pytest.mark.parametrize(
    "image",
    [
        np.full((6, 8, 3), 120, np.uint8),
        np.full((6, 8, 3), 120 / 255),
        torch.full((3, 6, 8), 120 / 255),
    ],
    ids=["bytes", "floats", "tensor"],
)
def test_pictures_come_in_every_form(image):
    values = torch.randn(6, 8)
    assert (pixels(image, values) == pixels(GREY, values)).all()


def test_coarse_maps_are_enlarged():
    assert assay.overlay(GREY, np.ones((2, 2))).size == (8, 6)


@pytest.mark.parametrize(
    ("image", "values", "message"),
    [
        (GREY, np.zeros((2, 6, 8)), "a map"),
        (GREY, np.full((6, 8), np.nan), "finite"),
        (np.zeros((4, 4)), np.zeros((4, 4)), "picture"),
        (np.full((6, 8, 3), 3.0), np.zeros((6, 8)), "pixels in"),
    ],
)
def test_mistakes_are_named(image, values, message):
    with pytest.raises(assay.InputError, match=message):
        assay.overlay(image, values)
