"""The content of images: other colours are another content, however an image stores them."""

import pytest
from PIL import Image

from assay.types.sample_content import content_of

PLACES = bytes([0, 1, 2, 1, 0, 2])
RED, GREEN, BLUE, GREY = [200, 0, 0], [0, 200, 0], [0, 0, 200], [9, 9, 9]


def with_palette(*colours: list[int], places: bytes = PLACES) -> Image.Image:
    image = Image.frombytes("P", (3, 2), places)
    image.putpalette([part for colour in colours for part in colour])
    return image


def test_the_palette_is_part_of_an_image() -> None:
    image = with_palette(RED, GREEN, BLUE)
    assert content_of(image) == content_of(with_palette(RED, GREEN, BLUE))
    assert content_of(image) != content_of(with_palette(RED, GREEN, GREY))


def test_the_order_of_the_palette_is_not() -> None:
    moved = with_palette(BLUE, RED, GREEN, places=bytes([1, 2, 0, 2, 1, 0]))
    assert content_of(with_palette(RED, GREEN, BLUE)) == content_of(moved)


def test_what_is_transparent_is_part_of_an_image() -> None:
    for mode in ("P", "L", "RGB"):
        contents = set()
        for transparent in (None, 0, 1):
            image = with_palette([0] * 3, [1] * 3, [2] * 3)
            image = image if mode == "P" else image.convert(mode)
            if transparent is not None:
                image.info["transparency"] = (transparent,) * 3 if mode == "RGB" else transparent
            contents.add(content_of(image))
        assert len(contents) == 3


def test_a_palette_with_alpha() -> None:
    images = []
    for last in (BLUE, GREY):
        image = Image.new("PA", (3, 2))
        image.putpalette([*RED, *GREEN, *last])
        for place, colour in enumerate(PLACES):
            image.putpixel((place % 3, place // 3), (colour, 255))
        images.append(image)
    assert content_of(images[0]) == content_of(with_palette(RED, GREEN, BLUE))
    assert content_of(images[0]) != content_of(images[1])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA"])
def test_an_image_has_one_content_in_all_modes_that_show_it(mode: str) -> None:
    """Readers differ in the mode they leave an image in."""
    pixels = Image.frombytes("L", (3, 2), bytes([0, 255, 255, 0, 0, 255]))
    assert content_of(pixels.convert(mode)) == content_of(pixels.convert("RGB"))


def test_deep_images_differ_by_all_their_bits() -> None:
    contents = {content_of(Image.new("I", (2, 2), value)) for value in (70000, 70001, 255)}
    assert len(contents) == 3
