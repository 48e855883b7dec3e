"""Photos beside the signed maps of every method, as small images; texts with coloured words."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from assay.store import Store, file_name

Array = np.ndarray[Any, Any]
Section = tuple[str, str, str]  # dataset, model, checkpoint
Tips = Callable[[Sequence[str]], Mapping[tuple[str, str], Mapping[str, float]]]

TRUTH = "the truth"  # the column of the true maps
SIDE = 112  # pixels of a map or photo on the page, at most
PER_SECTION, IN_ALL, AT_LEAST = 12, 360, 4  # samples; maps on the whole page; samples
WORDS = 80  # of a text on the page, at most
LEVELS = 31  # shades on either side of zero
MISSING = 2 * LEVELS + 1  # palette index of values that are not numbers
_WARM = ((0.0, (247, 247, 247)), (0.3, (244, 165, 130)), (0.65, (214, 69, 65)), (1.0, (128, 0, 32)))
_COOL = (
    (0.0, (247, 247, 247)),
    (0.3, (146, 197, 222)),
    (0.65, (50, 120, 190)),
    (1.0, (5, 40, 105)),
)


@dataclass(frozen=True)
class Tile:
    """One method's map of one sample; no `uri` where there is no map."""

    method: str
    uri: str
    title: str
    coarse: bool = False
    colours: tuple[str, ...] = ()  # styles of a text's words


@dataclass(frozen=True)
class Row:
    """One sample: its photo, what it is and what the model said, and the maps."""

    sample: str
    photo: str
    label: str
    predicted: str
    probability: float | None
    tiles: tuple[Tile, ...]
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """The rows of one section, how many samples have a preview and how many there are."""

    methods: tuple[str, ...]
    rows: tuple[Row, ...]
    available: int
    samples: int


def palette() -> Array:  # [2 * LEVELS + 2, 3] uint8
    """Blue over neutral to red; the last colour is for values that are not numbers."""
    t = np.linspace(0, 1, LEVELS + 1)

    def ramp(stops: Sequence[tuple[float, tuple[int, int, int]]]) -> Array:
        where = [s[0] for s in stops]
        return np.stack([np.interp(t, where, [s[1][c] for s in stops]) for c in range(3)], axis=1)

    colours = np.concatenate([ramp(_COOL)[:0:-1], ramp(_WARM), [[255, 214, 10]]])
    return colours.round().astype(np.uint8)


def colour_index(values: Array) -> Array:  # [H, W] uint8 into `palette()`
    """Shrink a map to the page and scale it by the 99.5th percentile of its absolute value."""
    values = np.asarray(values, dtype=np.float32)
    bad = ~np.isfinite(values)
    return _levels(_shrink(np.where(bad, 0, values)), _shrink(bad.astype(np.float32)) > 0)


def word_colours(values: Array, special: Sequence[bool] = ()) -> tuple[str, ...]:  # [T]
    """The style of each word, scaled as maps are; light letters on strong colours.

    Special tokens, which nothing removes, are grey and do not take part in the scale.
    """
    aside = np.zeros(len(values), dtype=bool)
    aside[: len(special)] = special[: len(values)]
    values = np.where(aside, 0.0, values)
    bad = ~np.isfinite(values)
    levels = _levels(np.where(bad, 0, values), bad)
    strong = (np.abs(levels.astype(int) - LEVELS) > LEVELS // 2) & ~bad
    return tuple(
        "color: #999"
        if grey
        else f"background: #{bytes(colour).hex()}" + ("; color: #fff" if light else "")
        for colour, light, grey in zip(palette()[levels], strong, aside, strict=True)
    )


def _levels(small: Array, holes: Array) -> Array:
    size = np.abs(small[~holes])
    scale = float(np.percentile(size, 99.5)) if size.size else 0.0
    if scale == 0.0 and size.size:
        scale = float(size.max())  # a map with a single lit pixel
    steps = np.zeros(small.shape) if scale == 0.0 else np.rint(small / scale * LEVELS)
    index = LEVELS + np.clip(steps, -LEVELS, LEVELS)
    return np.where(holes, MISSING, index).astype(np.uint8)


def map_uri(values: Array) -> str:
    """A signed map as a PNG of 8 bits per pixel in a data URI."""
    image = Image.fromarray(colour_index(values), mode="P")
    image.putpalette(palette().tobytes())
    return _uri(image, "PNG", optimize=True)


def photo_uri(path: Path) -> str:
    """A preview as a small JPEG in a data URI; empty where it cannot be read."""
    try:
        with Image.open(path) as image:
            small = image.convert("RGB")
            small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            return _uri(small, "JPEG", quality=82)
    except OSError:
        return ""


def spread(items: Sequence[str], count: int) -> list[str]:
    """At most `count` items, evenly spaced in their order, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).round().astype(int)]


def per_section(sections: int, methods: int) -> int:
    """How many samples each section may show so that the page stays small."""
    return max(AT_LEAST, min(PER_SECTION, IN_ALL // max(1, sections * methods)))


def build(
    store: Store,
    manifest: Mapping[str, Any],
    section: Section,
    tips: Tips,
    count: int,
    methods: Sequence[str],
) -> Gallery | None:
    """The gallery of one section.

    Args:
        store: The run's folder.
        manifest: Its manifest.
        section: Dataset, model and checkpoint.
        tips: Gives, for some samples, the scores of each (method, sample) per protocol.
        count: At most this many samples, evenly spaced.
        methods: The columns, in order; those without maps are left out.

    Returns:
        None where there are no previews or no maps that can be shown.
    """
    previews = _previews(store, manifest, section)
    shards = [s for s in manifest["shards"] if _section(s) == section]
    first = [s for s in shards if s["seed"] == shards[0]["seed"]]
    known = list(dict.fromkeys(i for s in first for i in s["samples"] if i in previews))
    chosen = spread(known, count)
    maps = {m: _maps(store, first, m, chosen) for m in methods}
    columns = [m for m in methods if maps[m]]
    if not chosen or not columns:
        return None
    maps[TRUTH] = _truths(store, previews, chosen)
    columns = [TRUTH, *columns] if maps[TRUTH] else columns
    scores = tips(chosen)
    rows = []

    for sample in chosen:
        tiles = tuple(
            _tile(m, sample, maps[m].get(sample), scores.get((m, sample), {}), previews[sample])
            for m in columns
        )
        rows.append(_row(store, sample, previews[sample], tiles))
    everyone = {i for s in first for i in s["samples"]}
    return Gallery(tuple(columns), tuple(rows), len(known), len(everyone))


def _previews(
    store: Store, manifest: Mapping[str, Any], section: Section
) -> dict[str, dict[str, Any]]:
    """By sample. A prediction is kept only where it is known whose it is."""
    found = Store.read_json(store.path("previews", f"{file_name(section[0])}.json")) or []
    models = {s["model"] for s in manifest["shards"] if s["dataset"] == section[0]}
    previews = {}
    for entry in found:
        if entry.get("model", section[1]) != section[1]:
            continue
        if "model" not in entry and len(models) > 1:
            entry = {k: entry.get(k) for k in ("sample", "label", "label_name", "image")}
        previews[str(entry["sample"])] = entry
    return previews


def _maps(
    store: Store, shards: Sequence[Mapping[str, Any]], method: str, chosen: Sequence[str]
) -> dict[str, Array]:
    """The maps of the chosen samples; only the shards that hold them are read."""
    wanted, found = set(chosen), {}
    for shard in shards:
        if method not in shard["maps"] or not wanted.intersection(shard["samples"]):
            continue
        path = store.path("attributions", shard["maps"][method], f"{shard['id']}.safetensors")
        read = Store.read_arrays(path)
        if read is not None and read[0]["maps"].ndim in (2, 3):
            pairs = zip(shard["samples"], read[0]["maps"], strict=True)
            found.update({sample: a.copy() for sample, a in pairs if sample in wanted})
    return found


def _truths(
    store: Store, previews: Mapping[str, Mapping[str, Any]], chosen: Sequence[str]
) -> dict[str, Array]:
    """The true maps of the chosen samples, where they are known."""
    files = {sample: previews[sample].get("truth") for sample in chosen}
    read = {s: Store.read_arrays(store.path("previews", f)) for s, f in files.items() if f}
    return {sample: arrays[0]["truth"] for sample, arrays in read.items() if arrays is not None}


def _tile(
    method: str,
    sample: str,
    values: Array | None,
    scores: Mapping[str, float],
    preview: Mapping[str, Any],
) -> Tile:
    lines = [f"{method} · {sample}", *(f"{p}: {v:.3g}" for p, v in scores.items())]
    if values is None:
        return Tile(method, "", "\n".join([*lines, "no map"]))
    if values.ndim == 1:
        length = len((preview.get("words") or ())[:WORDS])
        colours = word_colours(values[:length], preview.get("special") or ())
        return Tile(method, "", "\n".join(lines), colours=colours)
    return Tile(method, map_uri(values), "\n".join(lines), max(values.shape) < SIDE // 2)


def _row(store: Store, sample: str, entry: Mapping[str, Any], tiles: tuple[Tile, ...]) -> Row:
    def name(kind: str) -> str:
        best = entry.get(f"{kind}_name")
        value = entry.get(kind) if best in (None, "") else best
        return "" if value is None else str(value)

    image = entry.get("image")
    photo = photo_uri(store.path("previews", str(image))) if image else ""
    words = tuple(map(str, (entry.get("words") or ())[:WORDS]))
    return Row(
        sample, photo, name("label"), name("predicted"), entry.get("probability"), tiles, words
    )


def _section(shard: Mapping[str, Any]) -> Section:
    return shard["dataset"], shard["model"], shard["checkpoint"]


def _shrink(values: Array) -> Array:
    """Average boxes of pixels until the longer side is at most `SIDE`."""
    height, width = values.shape
    factor = SIDE / max(height, width)
    if factor >= 1:
        return values
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    return np.asarray(Image.fromarray(values.astype(np.float32)).resize(size, Image.Resampling.BOX))


def _uri(image: Image.Image, kind: str, **options: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
