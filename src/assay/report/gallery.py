"""Photos next to the signed maps of every method, as small images; texts with coloured words."""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from assay.store import Array, Manifest, Preview, RunFiles, SettingKey, ShardEntry
from assay.store.files import unpacked_arrays

ShownSample = tuple[ShardEntry, Preview]  # a preview, and the shard that holds its files
Tips = Callable[[Sequence[str]], Mapping[tuple[str, str], Mapping[str, float]]]

TRUTH = "the truth"  # the column of the true maps
SIDE = 112  # pixels of a map or photo on the page, at most
PREVIEW_PIXELS = 2**24  # of a stored preview, at most: larger than the input of any network
PER_SETTING, IN_ALL, AT_LEAST = 12, 360, 4  # samples; maps on the whole page; samples
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
class GalleryRow:
    """One sample: its photo, its class, what the model predicts, and the maps."""

    sample: str
    photo: str
    label: str
    predicted: str
    probability: float | None
    tiles: tuple[Tile, ...]
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """The rows of one setting, how many samples have a preview and how many there are."""

    methods: tuple[str, ...]
    rows: tuple[GalleryRow, ...]
    available: int
    samples: int


def palette() -> Array:  # [2 * LEVELS + 2, 3] uint8
    """Blue through neutral to red; the last colour is for values that are not numbers."""
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

    Special tokens, which nothing removes, are grey and are left out of the scale.
    """
    never_removed = np.zeros(len(values), dtype=bool)
    never_removed[: len(special)] = special[: len(values)]
    values = np.where(never_removed, 0.0, values)
    bad = ~np.isfinite(values)
    levels = _levels(np.where(bad, 0, values), bad)
    strong = (np.abs(levels.astype(int) - LEVELS) > LEVELS // 2) & ~bad
    return tuple(
        "color: #999"
        if grey
        else f"background: #{bytes(colour).hex()}" + ("; color: #fff" if light else "")
        for colour, light, grey in zip(palette()[levels], strong, never_removed, strict=True)
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


def photo_uri(content: bytes) -> str:
    """A preview as a small JPEG in a data URI; empty where it cannot be read, or is too large."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            if image.width * image.height > PREVIEW_PIXELS:
                return ""
            small = image.convert("RGB")
            small.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
            return _uri(small, "JPEG", quality=82)
    except (OSError, Image.DecompressionBombError):
        return ""


def spread(items: Sequence[str], count: int) -> list[str]:
    """At most `count` items, evenly spaced in their order, the first and the last among them."""
    if len(items) <= count:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, count).round().astype(int)]


def per_setting(settings: int, methods: int) -> int:
    """How many samples each setting may show so that the page stays small."""
    return max(AT_LEAST, min(PER_SETTING, IN_ALL // max(1, settings * methods)))


def build(
    files: RunFiles,
    setting: SettingKey,
    tips: Tips,
    count: int,
    methods: Sequence[str],
) -> Gallery | None:
    """The gallery of one setting.

    Args:
        files: The files of the run.
        setting: The setting.
        tips: Gives, for some samples, the scores of each (method, sample) per protocol.
        count: The largest number of samples; they are evenly spaced.
        methods: The columns, in order; those without maps are left out.

    Returns:
        None where there are no previews or no maps that can be shown.
    """
    previews = _previews(files, setting)
    one_seed = _one_seed(files.manifest, setting)
    samples = {sample for shard in one_seed for sample in shard.samples}
    available = _available(one_seed, previews)
    chosen = spread(available, count)
    maps = {method: _maps(files, one_seed, method, chosen) for method in methods}
    columns = [method for method in methods if maps[method]]
    if not chosen or not columns:
        return None
    maps[TRUTH] = _truths(files, previews, chosen)
    columns = [TRUTH, *columns] if maps[TRUTH] else columns
    scores = tips(chosen)
    rows = []
    for sample in chosen:
        tiles = tuple(
            _tile(m, sample, maps[m].get(sample), scores.get((m, sample), {}), previews[sample][1])
            for m in columns
        )
        rows.append(_row(files, previews[sample], tiles))
    return Gallery(tuple(columns), tuple(rows), len(available), len(samples))


def shown_samples(files: RunFiles, setting: SettingKey, count: int) -> Sequence[str]:
    """The samples that `build` shows: at most so many, evenly spaced."""
    previews = _previews(files, setting)
    return spread(_available(_one_seed(files.manifest, setting), previews), count)


def _one_seed(manifest: Manifest, setting: SettingKey) -> list[ShardEntry]:
    """The shards of a setting's first seed."""
    shards = [shard for shard in manifest.shards if shard.setting == setting]
    return [shard for shard in shards if shard.seed == shards[0].seed]


def _available(shards: Sequence[ShardEntry], previews: Mapping[str, ShownSample]) -> list[str]:
    """The samples that have a preview, in the order of the run."""
    return list(dict.fromkeys(s for shard in shards for s in shard.samples if s in previews))


def _previews(files: RunFiles, setting: SettingKey) -> dict[str, ShownSample]:
    """Previews by sample. A prediction is shown only where its model is known."""
    mine = files.manifest.name_of(setting.model, setting.checkpoint)
    models = {s.setting for s in files.manifest.shards if s.dataset == setting.dataset}
    previews = {}
    for shard, stored in files.previews(setting.dataset):
        unknown = stored.model is None and len(models) > 1
        preview = stored.without_prediction() if unknown else stored
        if preview.model in (None, mine):
            previews[str(preview.sample)] = shard, preview
    return previews


def _maps(
    files: RunFiles, shards: Sequence[ShardEntry], method: str, chosen: Sequence[str]
) -> dict[str, Array]:
    """The maps of the chosen samples; only the shards that hold them are read."""
    maps: dict[str, Array] = {}
    for shard in shards:
        here = set(chosen).intersection(shard.samples)
        stored = files.maps(shard, method) if here else {}
        # A copy, so that the rest of the shard is not held in memory.
        maps |= {s: stored[s].copy() for s in here if s in stored and stored[s].ndim in (1, 2)}
    return maps


def _truths(
    files: RunFiles, previews: Mapping[str, ShownSample], chosen: Sequence[str]
) -> dict[str, Array]:
    """The true maps of the chosen samples, where they are known."""
    truths = {}
    for sample in chosen:
        shard, preview = previews[sample]
        content = files.content(shard, f"previews/{preview.truth}") if preview.truth else None
        arrays = None if content is None else unpacked_arrays(content)
        if arrays is not None:
            truths[sample] = arrays[0]["truth"]
    return truths


def _tile(
    method: str,
    sample: str,
    values: Array | None,
    scores: Mapping[str, float],
    preview: Preview,
) -> Tile:
    lines = [f"{method} · {sample}", *(f"{p}: {v:.3g}" for p, v in scores.items())]
    if values is None:
        return Tile(method, "", "\n".join([*lines, "no map"]))
    if values.ndim == 1:
        length = len(preview.words[:WORDS])
        colours = word_colours(values[:length], preview.special)
        return Tile(method, "", "\n".join(lines), colours=colours)
    return Tile(method, map_uri(values), "\n".join(lines), max(values.shape) < SIDE // 2)


def _row(files: RunFiles, shown: ShownSample, tiles: tuple[Tile, ...]) -> GalleryRow:
    shard, preview = shown
    photo = files.content(shard, f"previews/{preview.image}") if preview.image else None
    return GalleryRow(
        sample=str(preview.sample),
        photo="" if photo is None else photo_uri(photo),
        label=preview.label_text,
        predicted=preview.predicted_text,
        probability=preview.probability,
        tiles=tiles,
        words=tuple(map(str, preview.words[:WORDS])),
    )


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
