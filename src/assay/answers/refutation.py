"""The faithfulness test: does a designed network, whose true attribution is known, refute a method?

A method is refuted where its F1 against the truth stays below gamma. That it is not refuted says
nothing of other networks; that it is refuted says that it can be wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from assay.environments.environment import build
from assay.errors import InputError
from assay.plugins.registry import pick
from assay.protocols.agreement import TruthSide, soft_scores
from assay.report.overlay import overlay
from assay.results import Results
from assay.run import run
from assay.suite.spec import Choice, choose_one, make_suite

SIZES, COLORS = (32, 64), (2, 4, 6)
SIDES: tuple[TruthSide, ...] = ("overall", "positive", "negative", "positive_smooth")
CONTROLS = ("random", "constant", "oracle")
# Options that say what stands for nothing: each method is also tried with the environment's own.
BASELINES = ("baseline", "fill")
# What methods that take segments of the image as units are tried with as well.
SEGMENTS = ("felzenszwalb", "quickshift")
FAINT = 1e-6  # of a map's largest value: negative values below are rounding, not signs
TILE = 256  # pixels along one picture of a strip


@dataclass(frozen=True)
class Judged:
    """One method against one side of the truth of one environment."""

    method: str
    environment: str
    truth: TruthSide
    precision: float
    recall: float
    f1: float
    f1_random: float
    f1_constant: float
    gamma: float
    refuted: bool = False
    reason: str = ""

    @property
    def counts(self) -> bool:
        """Whether this environment can refute anything: it does refute maps without information."""
        return max(self.f1_random, self.f1_constant) < self.gamma


@dataclass(frozen=True)
class Verdict:
    """What the designed environments say of a method."""

    method: str
    rows: tuple[Judged, ...]
    asked: int  # environments there are
    missing: str = ""  # why it was not tried on some of them
    failed: str = ""  # its first error, where it failed

    @property
    def refuted(self) -> bool:
        """Whether some environment refutes it."""
        return any(row.refuted for row in self.rows)

    @property
    def decided(self) -> int:
        """On how many environments it could have been refuted."""
        return len({row.environment for row in self.rows if row.counts})

    @property
    def worst(self) -> Judged:
        """Where its F1 is lowest, of the environments that count."""
        return min(self.rows, key=lambda row: (not row.counts, row.f1))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The run of a faithfulness test, read by method and environment."""

    results: Results
    cures: Mapping[str, Sequence[tuple[str, str]]]  # method -> options changed, its labels then
    controls: Mapping[str, str]  # their labels

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
        found = self.results.maps(method, environment)
        return torch.from_numpy(np.stack([found[sample] for sample in sorted(found)]))

    def verdict(self, method: str, gamma: float) -> Verdict:
        """Signed maps are held against the truth of each sign, others against the smooth one."""
        everywhere = self.results.manifest["datasets"]
        tried = [e for e in everywhere if (method, e, "overall", "f1") in self.numbers]
        mine = [c for c in self.results.cells if c["method"] == method]
        failed = next((c["message"] for c in mine if c["status"] == "failed"), "")
        missing = failed or next((c["message"] for c in mine if c["status"] == "n/a"), "")
        signed = any(_signed(self.maps(method, e)) for e in tried)
        rows = [
            self._judge(method, e, side, gamma)
            for e in tried
            for side in _sides(signed, true_signs=_signed(self.truth(e)))
        ]
        return Verdict(method, tuple(rows), len(everywhere), missing, failed)

    def truth(self, environment: str) -> Tensor:  # [n, H, W]
        """What is truly relevant in each sample."""
        return self.maps(self.controls["oracle"], environment)

    def _judge(self, method: str, environment: str, side: TruthSide, gamma: float) -> Judged:
        precision, recall = (
            self.numbers[method, environment, side, metric] for metric in ("precision", "recall")
        )
        f1, random, constant = (
            self.f1(who, environment, side)
            for who in (method, self.controls["random"], self.controls["constant"])
        )
        row = Judged(method, environment, side, precision, recall, f1, random, constant, gamma)
        if not row.counts or f1 >= gamma:
            return row
        return replace(row, refuted=True, reason=self._reason(row))

    def _reason(self, row: Judged) -> str:
        """What went wrong, as far as other maps and other numbers of the same maps tell it."""
        for option, label in self.cures.get(row.method, ()):
            if self.f1(label, row.environment, row.truth) >= row.gamma:
                return "wrong baseline" if option in BASELINES else f"wrong {option}"
        maps, truth = self.maps(row.method, row.environment), self.truth(row.environment)
        if not bool((maps != 0).any()):
            return "empty maps"
        if row.truth in ("positive", "negative"):
            if float(soft_scores(-maps, truth, row.truth)[2].nanmean()) >= row.gamma:
                return "signs flipped"
            if not bool((maps < 0).any() if row.truth == "negative" else (maps > 0).any()):
                return f"no {row.truth} values"
            if self.f1(row.method, row.environment, "overall") >= row.gamma:
                return "right places, wrong signs or weights"
        if row.precision < row.recall:
            return "marks what is not relevant"
        return "misses what is relevant"

    def picture(self, row: Judged) -> Image.Image:
        """An image, its truth and the map beside each other, where the map is worst."""
        maps, truth = self.maps(row.method, row.environment), self.truth(row.environment)
        worst = int(soft_scores(maps, truth, row.truth)[2].nan_to_num(2.0).argmin())
        sample = sorted(self.results.maps(row.method, row.environment))[worst]
        image = _image(self.results, row.environment, sample)
        tiles = [image, overlay(image, truth[worst]), overlay(image, maps[worst])]
        strip = Image.new("RGB", (len(tiles) * (TILE + 8) - 8, TILE), "white")
        for i, tile in enumerate(tiles):
            strip.paste(tile.resize((TILE, TILE), Image.Resampling.NEAREST), (i * (TILE + 8), 0))
        return strip


def _signed(maps: Tensor) -> bool:
    return bool(-maps.min() > FAINT * maps.abs().max())


def _sides(signed: bool, true_signs: bool) -> tuple[TruthSide, ...]:
    """The truth a method is held against: where it has no signs, those of maps say nothing."""
    if not true_signs:
        return ("overall",)
    return ("overall", "positive", "negative") if signed else ("positive_smooth",)


def _image(results: Results, environment: str, sample: str) -> Image.Image:
    """A sample of the run as a picture, drawn again."""
    written = next(
        item for item in results.spec.environments if pick(item)[1].get("label") == environment
    )
    name, told = pick(written)
    made = build(name, {option: v for option, v in told.items() if option != "label"})
    batch = made.dataset.batch([sample])
    pixels = made.model.pixels
    if pixels is None:
        raise InputError(f"Expected environment `{environment}` to say what its pixels are.")
    shown = pixels.to_pixels(batch.inputs[0]).expand(3, -1, -1)
    return overlay(shown, torch.zeros(shown.shape[1:]))


def refute(
    methods: Sequence[Any],
    out: str | Path,
    *,
    gamma: float = 0.5,
    samples: int = 10,
    sizes: Sequence[int] = SIZES,
    progress: bool = True,
    workers: int = 1,
) -> tuple[list[Verdict], Evidence]:
    """Try methods on all designed environments.

    Args:
        methods: As a suite writes them, or `Choice`s. Methods with a baseline are also tried with
            the environment's own, those with units on other segments.
        out: The folder of the run.
        gamma: The F1 below which a method is refuted.
        samples: Images of each environment.
        sizes: Sides of the images.
        progress: Whether a bar is shown.
        workers: Processes.
    """
    if not 0 < gamma <= 1:
        raise InputError(f"Expected `gamma` to be above 0 and at most 1, got {gamma}.")
    tried: dict[str, Any] = {}
    cures: dict[str, list[tuple[str, str]]] = {}
    for item in methods:
        written = _explaining_counts(item)
        label = choose_one("method", written).label
        variants = [
            (option, _labelled(written, option, value)) for option, value in _cures(written)
        ]
        cures[label] = [(option, choose_one("method", one).label) for option, one in variants]
        for one in (written, *(one for _, one in variants)):
            tried[choose_one("method", one).label] = one
    controls = {name: _control(name, tried.values()) for name in CONTROLS}
    added = [{name: {"label": at}} for name, at in controls.items() if at not in tried]
    spec = make_suite(
        {
            "environments": environments(samples, sizes),
            "methods": [*added, *tried.values()],
            "protocols": [{"truth_f1": {"truth": side, "label": side}} for side in SIDES],
        }
    )
    evidence = Evidence(run(spec, out, progress=progress, workers=workers), cures, controls)
    return [evidence.verdict(label, gamma) for label in tried], evidence


def _control(name: str, tried: Iterable[Any]) -> str:
    """The label of a control: its own, whatever a user's method is called."""
    key = choose_one("method", name).key
    same = (choose_one("method", item) for item in tried)
    return next((choice.label for choice in same if choice.key == key), f"control {name}")


def environments(samples: int, sizes: Sequence[int] = SIZES) -> list[dict[str, Any]]:
    """The designed environments of the test, as a suite writes them."""
    grid: list[tuple[str, dict[str, Any]]] = []
    for size in sizes:
        grid.append(("single_color_modulo", {"size": size}))
        for colors in COLORS:
            for unseen in (True, False):
                told = {"size": size, "colors": colors, "unseen": unseen}
                grid.append(("multi_color_sum", told))
    return [
        {name: {**told, "samples": samples, "label": _label(name, told)}} for name, told in grid
    ]


def _label(name: str, told: Mapping[str, Any]) -> str:
    return f"{name}[{','.join(f'{option}={value}' for option, value in told.items())}]"


def _explaining_counts(item: Any) -> Any:
    """The truth is that of a count, not of a probability, which saturates."""
    choice = choose_one("method", item)
    if choice.options.get("output", "logit") == "logit":
        return item
    told = {} if isinstance(item, Choice) else pick(item)[1]
    if "output" in told or isinstance(item, Choice):
        raise InputError(
            f"Expected method `{choice.label}` to explain `output: logit`, got "
            f"`{choice.options['output']}`: the truth is that of a count."
        )
    return _labelled(item, "output", "logit")


def _cures(item: Any) -> Iterator[tuple[str, str]]:
    """Options that may cure a method, with what they become."""
    choice = choose_one("method", item)
    if isinstance(item, Choice):
        return  # it exists in this process only, as it is
    for option in BASELINES:
        if option in choice.options and choice.options[option] != "given":
            yield option, "given"
    if "units" in choice.options and choice.plugin.family == "perturbation":
        yield from (("units", units) for units in SEGMENTS if choice.options["units"] != units)


def _labelled(item: Any, option: str, value: str) -> dict[str, Any]:
    """The same method with another option, and labelled so."""
    name, told = pick(item)
    own = told.pop("label", None)
    changed = {name: {**told, option: value}}
    label = f"{own}[{option}={value}]" if own else choose_one("method", changed).label
    return {name: {**told, option: value, "label": label}}
