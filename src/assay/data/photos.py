"""Labelled photographs from two installed packages, alone and as mosaics of four."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from PIL import Image

from assay.data.pictures import open_picture
from assay.errors import PrerequisiteError
from assay.plugins.registry import dataset
from assay.types import Dataset, Sample

TILE = 256  # pixels along one photograph of a mosaic
CORNERS = ((0, 0), (TILE, 0), (0, TILE), (TILE, TILE))  # left, top of each quadrant
SCENES = {"coffee": 967, "camera": 872, "motorcycle_right": 665}  # of scikit-image
CLASSES = {
    22: "bald eagle",
    99: "goose",
    129: "spoonbill",
    243: "bull mastiff",
    251: "dalmatian",
    305: "dung beetle",
    317: "leafhopper",
    438: "beaker",
    455: "bottlecap",
    471: "cannon",
    541: "drum",
    559: "folding chair",
    609: "jeep",
    630: "Loafer",
    665: "moped",
    741: "prayer rug",
    853: "thatch",
    872: "tripod",
    915: "yurt",
    949: "strawberry",
    967: "espresso",
    990: "buckeye",
}


@dataclass(frozen=True)
class Photo:
    """A photograph on disk with its ImageNet class."""

    id: str
    path: Path
    label: int


@dataset("photos", title="23 photographs")
def photos() -> Dataset:
    """Labelled photographs: 20 of ImageNet's classes from foolbox, 3 scenes from scikit-image."""
    album = _album()

    def fetch(sample: str) -> Sample:
        photo = album[sample]
        return Sample(input=_open(photo.path), label=photo.label)

    return Dataset(
        name="photos",
        modality="image",
        ids=tuple(album),
        fetch=fetch,
        fingerprint=_fingerprint(album),
        groups={photo: photo for photo in album},
        classes=CLASSES,
    )


@dataset("photo_mosaics", title="23 mosaics of four photographs")
def photo_mosaics(*, seed: int = 0) -> Dataset:
    """Each photograph once as the target, in one quadrant of a mosaic with three of other classes.

    The truth is the target's quadrant. The quadrants are used equally often. A network that crops
    the centre cuts the outer edges of the mosaic, and the truth is cut with it.

    Args:
        seed: Decides the neighbours and the quadrant of each target.
    """
    album = _album()
    layouts = {f"mosaic_{photo}": _layout(photo, album, seed) for photo in album}
    targets = {f"mosaic_{photo}": photo for photo in album}

    @functools.cache
    def tile(photo: str) -> Image.Image:
        return _square(_open(album[photo].path))

    def fetch(sample: str) -> Sample:
        return _mosaic(layouts[sample], targets[sample], album[targets[sample]].label, tile)

    layout = repr((TILE, sorted(layouts.items())))
    return Dataset(
        name="photo_mosaics",
        modality="image",
        ids=tuple(layouts),
        fetch=fetch,
        fingerprint=hashlib.sha256((_fingerprint(album) + layout).encode()).hexdigest(),
        has=frozenset({"labels", "truth"}),
        groups=targets,
        classes=CLASSES,
    )


def _layout(target: str, album: dict[str, Photo], seed: int) -> tuple[str, ...]:
    """The photographs of the four quadrants, of four different classes."""
    place = _shuffled(album, f"place\0{seed}").index(target) % len(CORNERS)
    chosen = [target]
    for other in _shuffled(album, f"neighbour\0{seed}\0{target}"):
        if len(chosen) < len(CORNERS) and album[other].label not in {
            album[photo].label for photo in chosen
        }:
            chosen.append(other)
    around = chosen[1:]
    return (*around[:place], target, *around[place:])


def _shuffled(album: dict[str, Photo], purpose: str) -> list[str]:
    return sorted(album, key=lambda photo: hashlib.sha256(f"{purpose}\0{photo}".encode()).digest())


def _mosaic(
    layout: tuple[str, ...], target: str, label: int, tile: Callable[[str], Image.Image]
) -> Sample:
    canvas = Image.new("RGB", (2 * TILE, 2 * TILE))
    mask = Image.new("L", canvas.size)
    for photo, (left, top) in zip(layout, CORNERS, strict=True):
        canvas.paste(tile(photo), (left, top))
        if photo == target:
            mask.paste(255, (left, top, left + TILE, top + TILE))
    return Sample(input=canvas, label=label, truth=mask)


def _square(image: Image.Image) -> Image.Image:
    """The largest centred square, resized to a tile."""
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    square = image.crop((left, top, left + side, top + side))
    return square.resize((TILE, TILE), Image.Resampling.BICUBIC)


def _open(path: Path) -> Image.Image:
    with open_picture(path, f"`{path}`") as image:
        return image.convert("RGB")


@functools.cache
def _album() -> dict[str, Photo]:
    """The photographs by id."""
    album = {}
    for path in sorted(_folder("foolbox").glob("imagenet_[0-9][0-9]_*.jpg")):
        album[path.stem] = Photo(path.stem, path, int(path.stem.split("_")[2]))
    if not album:
        raise _missing("foolbox", "imagenet_NN_LABEL.jpg")
    for name, label in SCENES.items():
        path = _folder("skimage") / f"{name}.png"
        if not path.is_file():
            raise _missing("scikit-image", path.name)
        album[name] = Photo(name, path, label)
    return album


def _folder(package: str) -> Path:
    """The folder `data` of an installed package, found without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = {"skimage": "scikit-image"}.get(package, package)
        raise PrerequisiteError(
            f"The photographs are in the package `{distribution}`, which is not installed. "
            f'Run `pip install "assay[demo]"`.'
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def _missing(package: str, file: str) -> PrerequisiteError:
    return PrerequisiteError(
        f"Expected the installed package `{package}` to contain `{file}`, found no such file. "
        f'Run `pip install --force-reinstall "assay[demo]"`.'
    )


def _fingerprint(album: dict[str, Photo]) -> str:
    digest = hashlib.sha256()
    for photo in album.values():
        digest.update(f"{photo.id}\0{photo.label}\0".encode())
        digest.update(photo.path.read_bytes())
    return digest.hexdigest()
