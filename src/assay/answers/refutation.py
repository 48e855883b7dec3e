"""The refutation of a method: does a network with a known true attribution show it to be wrong?

A method is refuted where its F1 with the truth stays below gamma, and clearly below the ceiling of
its own resolution: the F1 of the truth as a map of that resolution. A method that is not refuted
may still be wrong on other networks; one that is refuted can be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.answers.resolution import NativeGrid, ceilings, native_grid
from assay.answers.truth_comparison import MARGIN, RefutationResult, TruthComparison
from assay.environments.environment import build
from assay.errors import InputError
from assay.plugins.display_names import AS, take_display_name
from assay.plugins.registry import get, pick
from assay.protocols.agreement import TruthSide, soft_scores
from assay.ranking.intervals import mean_interval
from assay.report.overlay import overlay
from assay.results import Results
from assay.run import run
from assay.suite.spec import Choice, choose_one, make_suite

SuiteItem = dict[str, dict[str, object]]  # a plug-in as a suite writes it: {name: options}
# In multiples of 9 pixels, two stages of 3 x 3 windows tile the image, so that the layer which
# class activation maps read lies where its enlarged map says.
SIZES, COLORS = (36, 72), (2, 4, 6)
SIDES: tuple[TruthSide, ...] = ("overall", "positive", "negative", "positive_smooth")
CONTROLS = ("random", "constant", "oracle")
# Options that say what stands for "absent": each method is also tried with the environment's own.
BASELINES = ("baseline", "fill")
# Segments that methods with image segments as feature units are tried with as well.
SEGMENTS = ("felzenszwalb", "quickshift")
# Occlusion's window and step in AttributionLab, as shares of the side.
OCCLUSION = {"windows": {"sizes": (5 / 224,), "stride": 3 / 224}}
FAINT = 1e-6  # of a map's largest value: negative values below are rounding, not signs
TILE = 256  # pixels along one picture of a strip


@dataclass(frozen=True, eq=False)
class Evidence:
    """The run of a refutation, read by method and environment."""

    results: Results
    variants: Mapping[str, Sequence[tuple[str, str]]]  # by method: changed option, label
    controls: Mapping[str, str]  # their labels
    coarse: Collection[str] = ()  # methods that enlarge their maps

    @functools.cached_property
    def numbers(self) -> dict[tuple[str, str, str, str], float]:
        """The means over the images by method, environment, side and metric."""
        rows = self.results.query(
            "select method, dataset, protocol, metric, avg(value) as value from scores "
            "where not isnan(value) group by all"
        ).to_pylist()
        return {(r["method"], r["dataset"], r["protocol"], r["metric"]): r["value"] for r in rows}

    def f1(self, method: str, environment: str, side: str) -> float:
        """The mean F1; NaN where there is none."""
        return self.numbers.get((method, environment, side, "f1"), float("nan"))

    def maps(self, method: str, environment: str) -> Tensor:  # [n, H, W]
        """A method's maps, in the order of the samples' names."""
        maps = self.results.maps(method, environment)
        return torch.from_numpy(np.stack([maps[sample] for sample in sorted(maps)]))

    def judge(self, method: str, gamma: float, margin: float = MARGIN) -> RefutationResult:
        """Compare signed maps with the truth of each sign, others with the smooth truth."""
        environments = self.results.entries.datasets
        tried = [e for e in environments if (method, e, "overall", "f1") in self.numbers]
        mine = [record for record in self.results.records if record.method == method]
        failed = next((record.message for record in mine if record.status == "failed"), "")
        refused = next((record.message for record in mine if record.status == "n/a"), "")
        signed = any(_signed(self.maps(method, e)) for e in tried)
        rows = [
            self._compare(method, e, side, gamma, margin)
            for e in tried
            for side in _sides(signed, true_signs=_signed(self.truth(e)))
        ]
        return RefutationResult(method, tuple(rows), len(environments), failed or refused, failed)

    def truth(self, environment: str) -> Tensor:  # [n, H, W]
        """What is truly relevant in each sample."""
        return self.maps(self.controls["oracle"], environment)

    def _compare(
        self, method: str, environment: str, side: TruthSide, gamma: float, margin: float
    ) -> TruthComparison:
        precision, recall = (
            self.numbers[method, environment, side, metric] for metric in ("precision", "recall")
        )
        f1, random, constant = (
            self.f1(label, environment, side)
            for label in (method, self.controls["random"], self.controls["constant"])
        )
        maps, truth = self.maps(method, environment), self.truth(environment)
        grid = native_grid(maps) if method in self.coarse else None
        highest = ceilings(truth, grid, side)
        short = (highest - soft_scores(maps, truth, side)[2]).round(decimals=6)  # not its rounding
        row = TruthComparison(
            method, environment, side, precision, recall, f1, float(highest.nanmean()),
            _lower_end(short[~short.isnan()]), "" if grid is None else str(grid),
            random, constant, gamma, margin,
        )  # fmt: skip
        return replace(row, reason=self._reason(row, grid)) if row.refuted else row

    def _reason(self, row: TruthComparison, grid: NativeGrid | None) -> str:
        """What went wrong, as far as other maps and other numbers of the same maps show it."""
        for option, label in self.variants.get(row.method, ()):
            if self.f1(label, row.environment, row.truth) >= row.passing:
                return "wrong baseline" if option in BASELINES else f"wrong {option}"
        maps, truth = self.maps(row.method, row.environment), self.truth(row.environment)
        if not bool((maps != 0).any()):
            return "empty maps"
        if grid is not None and _best_moved(maps, truth, row.truth, grid) >= row.passing:
            return "shifted"
        if grid is None and (cells := native_grid(maps)) is not None:
            reachable = float(ceilings(truth, cells, row.truth).nanmean())
            if row.f1 >= min(row.gamma, reachable - row.margin):
                return "too coarse"
        if row.truth in ("positive", "negative"):
            if float(soft_scores(-maps, truth, row.truth)[2].nanmean()) >= row.passing:
                return "signs flipped"
            if not bool((maps < 0).any() if row.truth == "negative" else (maps > 0).any()):
                return f"no {row.truth} values"
            if self.f1(row.method, row.environment, "overall") >= row.passing:
                return "right places, wrong signs or weights"
        if row.precision < row.recall:
            return "marks what is not relevant"
        return "misses what is relevant"

    def picture(self, row: TruthComparison) -> Image.Image:
        """An image, its truth and the map next to each other, where the map is worst."""
        maps, truth = self.maps(row.method, row.environment), self.truth(row.environment)
        worst = int(soft_scores(maps, truth, row.truth)[2].nan_to_num(2.0).argmin())
        sample = sorted(self.results.maps(row.method, row.environment))[worst]
        image = _image(self.results, row.environment, sample)
        tiles = [image, overlay(image, truth[worst]), overlay(image, maps[worst])]
        strip = Image.new("RGB", (len(tiles) * (TILE + 8) - 8, TILE), "white")
        for i, tile in enumerate(tiles):
            strip.paste(tile.resize((TILE, TILE), Image.Resampling.NEAREST), (i * (TILE + 8), 0))
        return strip


def _lower_end(gaps: Tensor) -> float:  # [n]
    """The lower end of the interval of a mean; numbers that are all equal are their mean."""
    if len(gaps) and bool((gaps == gaps[0]).all()):
        return float(gaps[0])
    return mean_interval(gaps.numpy()).within(-1, 1).low


def _signed(maps: Tensor) -> bool:
    return bool(-maps.min() > FAINT * maps.abs().max())


def _best_moved(maps: Tensor, truth: Tensor, side: TruthSide, grid: NativeGrid) -> float:
    """The highest mean F1 of the maps moved by up to one cell, in half cells."""
    height, width = (
        max(2, n // cells)
        for n, cells in zip(maps.shape[1:], (grid.rows, grid.columns), strict=True)
    )
    moves = [(i * height // 2, j * width // 2) for i in range(-2, 3) for j in range(-2, 3)]
    moved = (maps.roll(move, (1, 2)) for move in moves)
    return max(float(soft_scores(one, truth, side)[2].nanmean()) for one in moved)


def _sides(signed: bool, true_signs: bool) -> tuple[TruthSide, ...]:
    """The sides of the truth a method is compared with; a truth without signs has one side."""
    if not true_signs:
        return ("overall",)
    return ("overall", "positive", "negative") if signed else ("positive_smooth",)


def _image(results: Results, environment: str, sample: str) -> Image.Image:
    """A sample of the run as a picture, drawn again."""
    items = (pick(item) for item in results.spec.environments)
    origin = results.spec.origin
    name, options = next(
        (name, options)
        for name, options in items
        if take_display_name(options, get("environment", name, origin).options) == environment
    )
    made = build(name, options, origin=origin)
    batch = made.dataset.batch([sample])
    pixels = made.model.pixels
    if pixels is None:
        raise InputError(f"Expected environment `{environment}` to say what its pixels are.")
    picture = pixels.to_pixels(batch.inputs[0]).expand(3, -1, -1)
    return overlay(picture, torch.zeros(picture.shape[1:]))


def refute(
    methods: Sequence[object],
    out: str | Path,
    *,
    gamma: float = 0.5,
    margin: float = MARGIN,
    samples: int = 10,
    sizes: Sequence[int] = SIZES,
    progress: bool = True,
    workers: int = 1,
) -> tuple[list[RefutationResult], Evidence]:
    """Try methods on all designed environments.

    Args:
        methods: As a suite writes them, or `Choice`s. Methods with a baseline are also tried with
            the environment's own, those with feature units on other segments.
        out: The folder of the run.
        gamma: The F1 below which a method is refuted, if it is also below its ceiling.
        margin: How far below the ceiling of its resolution it may stay.
        samples: Images of each environment.
        sizes: Sides of the images.
        progress: Whether to show a bar.
        workers: Processes.

    Returns:
        The result of each method and of its variants, and the run behind them.

    Raises:
        InputError: `gamma` is not above 0 and at most 1, `margin` not from 0 to 1, or a method
            explains a probability.
    """
    if not 0 < gamma <= 1:
        raise InputError(f"Expected `gamma` to be above 0 and at most 1, got {gamma}.")
    if not 0 <= margin < 1:
        raise InputError(f"Expected `margin` to be at least 0 and below 1, got {margin}.")
    tried: dict[str, object] = {}
    labels: dict[str, list[tuple[str, str]]] = {}
    for item in methods:
        plain = _with_study_windows(_explaining_logits(item))
        variants = [(option, _with(plain, option, value)) for option, value in _variants(plain)]
        labels[_label(plain)] = [(option, _label(variant)) for option, variant in variants]
        tried |= {_label(one): one for one in (plain, *(variant for _, variant in variants))}
    coarse = [label for label, item in tried.items() if _coarse(choose_one("method", item))]
    controls = {name: _control(name, tried.values()) for name in CONTROLS}
    added = [{name: {AS: label}} for name, label in controls.items() if label not in tried]
    spec = make_suite(
        {
            "environments": environments(samples, sizes),
            "methods": [*added, *tried.values()],
            "protocols": [{"truth_f1": {"truth": side, AS: side}} for side in SIDES],
        }
    )
    results = run(spec, out, progress=progress, workers=workers)
    evidence = Evidence(results, labels, controls, coarse)
    return [evidence.judge(label, gamma, margin) for label in tried], evidence


def _label(item: object) -> str:
    return choose_one("method", item).label


def _coarse(choice: Choice) -> bool:
    declared = choice.plugin.coarse
    return bool(declared(choice.options) if callable(declared) else declared)


def _control(name: str, tried: Iterable[object]) -> str:
    """The label of a control; a user's method may already have the usual one."""
    key = choose_one("method", name).key
    same = (choose_one("method", item) for item in tried)
    return next((choice.label for choice in same if choice.key == key), f"control {name}")


def environments(samples: int, sizes: Sequence[int] = SIZES) -> list[SuiteItem]:
    """The designed environments of the test, as a suite writes them."""
    grid: list[tuple[str, dict[str, object]]] = []
    for size in sizes:
        grid.append(("single_color_modulo", {"size": size}))
        for colors in COLORS:
            for unseen in (True, False):
                grid.append(("multi_color_sum", {"size": size, "colors": colors, "unseen": unseen}))
    return [
        {name: {**options, "samples": samples, AS: _environment_label(name, options)}}
        for name, options in grid
    ]


def _environment_label(name: str, options: Mapping[str, object]) -> str:
    return f"{name}[{','.join(f'{option}={value}' for option, value in options.items())}]"


def _explaining_logits(item: object) -> object:
    """The method with `output: logit`: the truth is that of a count; a probability saturates."""
    choice = choose_one("method", item)
    if choice.options.get("output", "logit") == "logit":
        return item
    if isinstance(item, Choice) or "output" in pick(item)[1]:
        raise InputError(
            f"Expected method `{choice.label}` to explain `output: logit`, got "
            f"`{choice.options['output']}`: the truth is that of a count."
        )
    return _with(item, "output", "logit")


def _with_study_windows(item: object) -> object:
    """Occlusion with the windows of AttributionLab, unless the user chose units."""
    if isinstance(item, Choice) or choose_one("method", item).plugin.name != "occlusion":
        return item
    name, options = pick(item)
    if "units" in options:
        return item
    own = take_display_name(options, get("method", name).options)
    label = own or _label({name: options} if options else name)
    return {name: {**options, "units": OCCLUSION, AS: label}}


def _variants(item: object) -> Iterator[tuple[str, str]]:
    """Options that may repair a method, each with its new value."""
    choice = choose_one("method", item)
    if isinstance(item, Choice):
        return  # it exists in this process only, as it is
    for option in BASELINES:
        if option in choice.options and choice.options[option] != "given":
            yield option, "given"
    if "units" in choice.options and choice.plugin.family == "perturbation":
        yield from (("units", units) for units in SEGMENTS if choice.options["units"] != units)


def _with(item: object, option: str, value: str) -> SuiteItem:
    """The same method with another option, which its label names."""
    name, options = pick(item)
    own = take_display_name(options, get("method", name).options)
    changed = {**options, option: value}
    label = f"{own}[{option}={value}]" if own else _label({name: changed})
    return {name: {**changed, AS: label}}
