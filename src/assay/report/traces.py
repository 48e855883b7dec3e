"""The curves behind the scores: means and bands per method, drawn once where they are equal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from assay.report import charts
from assay.store import Array, Manifest, ProtocolEntry, SettingKey
from assay.store.run_arrays import CurvePart, RunArrays

Curve = tuple[Array, Array, Array]  # x, mean, half-width of the band
SettingCurves = dict[tuple[str, str], dict[str, Curve]]  # (protocol, curve name), then method
COLOURS, GREYS = 14, 8


@dataclass(frozen=True)
class CurvePanel:
    """One set of curves and the protocols that read it."""

    protocols: tuple[str, ...]
    name: str
    chart: Markup
    methods: tuple[str, ...]


def styles(manifest: Manifest) -> dict[str, str]:
    """A CSS class per method: colours for methods, greys for controls."""
    classes, plain, grey = {}, 0, 0
    for label in manifest.methods:
        if label in manifest.controls:
            classes[label] = f"grey g{grey % GREYS}"
            grey += 1
        else:
            classes[label] = f"s{plain % COLOURS}"
            plain += 1
    return classes


def average(arrays: RunArrays) -> dict[SettingKey, SettingCurves]:
    """Mean curves by setting, then (protocol, curve name), then method.

    Seeds are averaged within a sample first; the band is 1.96 standard errors over samples. The
    curves of one method under one protocol are in memory at a time.
    """
    by_setting: dict[SettingKey, SettingCurves] = {}
    for block in arrays.scores():
        setting = SettingKey(block.dataset, block.model, block.checkpoint)
        for method in block.methods:
            for name, points in _moments(arrays.curves(block, method)).items():
                if (curve := points.curve()) is not None:
                    here = by_setting.setdefault(setting, {})
                    here.setdefault((block.protocol, name), {})[method] = curve
    return by_setting


def _moments(parts: Iterable[CurvePart]) -> dict[str, _Moments]:
    """The means and spreads of curves by name; samples that several seeds have count once."""
    by_seed: dict[int, list[CurvePart]] = {}
    for part in parts:
        by_seed.setdefault(part.seed, []).append(part)
    every = [part for some in by_seed.values() for part in some]
    moments: dict[str, _Moments] = {}
    for name in dict.fromkeys(name for part in every for name in part.curves):
        mine = [part for part in every if name in part.curves]
        points = moments[name] = _Moments(max(len(part.x) for part in mine))
        if len(by_seed) == 1:
            for part in mine:
                points.add(part.curves[name], np.broadcast_to(part.x, part.curves[name].shape))
        else:
            points.add(*_over_seeds(mine, name, len(points.count)))
    return moments


def _over_seeds(parts: Sequence[CurvePart], name: str, steps: int) -> tuple[Array, Array]:
    """The curve and x of every sample, averaged over the seeds that have it [n, K]."""
    rows = 1 + max(int(part.rows.max(initial=-1)) for part in parts)
    total, x, count = (np.zeros((rows, steps)) for _ in range(3))
    for part in parts:
        curve = part.curves[name]
        known = np.isfinite(curve)
        fields = part.rows[:, None], np.arange(len(part.x))
        total[fields] += np.where(known, curve, 0.0)
        x[fields] += np.where(known, part.x, 0.0)
        count[fields] += known
    with np.errstate(invalid="ignore"):
        return total / count, x / count


class _Moments:
    """Number, mean and squared deviations of the finite values of each step."""

    def __init__(self, steps: int) -> None:
        """Begin with no values."""
        self.count, self._mean, self._squares, self._x = np.zeros((4, steps))

    def add(self, values: Array, x: Array) -> None:
        """Add curves [n, K], and where they were taken [n, K]."""
        here = slice(values.shape[1])
        known = np.isfinite(values)
        count = known.sum(axis=0)
        some = np.maximum(count, 1)
        mean = np.where(known, values, 0.0).sum(axis=0) / some
        squares = np.square(np.where(known, values - mean, 0.0)).sum(axis=0)
        before, both = self.count[here], np.maximum(self.count[here] + count, 1)
        apart = mean - self._mean[here]
        self._squares[here] += squares + np.square(apart) * before * count / both
        self._mean[here] += apart * count / both
        self._x[here] += np.where(known, x, 0.0).sum(axis=0)
        self.count[here] += count

    def curve(self) -> Curve | None:
        """x, mean and half-width of the band where there are values; None where there are none."""
        there = self.count > 0
        if not there.any():
            return None
        count = self.count[there]
        with np.errstate(invalid="ignore", divide="ignore"):
            spread = np.sqrt(self._squares[there] / (count - 1))  # of one sample it is unknown
        return self._x[there] / count, self._mean[there], 1.96 * spread / np.sqrt(count)


def panels(
    curves: SettingCurves,
    methods: Sequence[str],
    protocols: Mapping[str, ProtocolEntry],
    style: Mapping[str, str],
) -> tuple[CurvePanel, ...]:
    """One chart per different set of curves, in the suite's order of protocols."""
    order = {p: i for i, p in enumerate(protocols)}
    shared: list[tuple[list[str], str, dict[str, Curve]]] = []
    for (protocol, name), lines in sorted(
        curves.items(), key=lambda item: (order.get(item[0][0], len(order)), item[0][1])
    ):
        for names, other, same in shared:
            if other == name and _equal(lines, same):
                names.append(protocol)
                break
        else:
            shared.append(([protocol], name, lines))
    drawn_panels = []
    for names, name, lines in shared:
        present = tuple(m for m in methods if m in lines)
        title = f"{name} under {', '.join(names)}"
        drawn = [charts.CurveLine(m, style[m], *lines[m]) for m in present]
        drawn.sort(key=lambda line: not line.style.startswith("grey"))  # methods above controls
        unit = all(line.x.min() >= 0 and line.x.max() <= 1 for line in drawn)
        axes = dict.fromkeys(protocols[p].axis for p in names)
        chart = charts.curves(drawn, title=title, xlabel=", ".join(axes) if unit else "x")
        drawn_panels.append(CurvePanel(tuple(names), name, chart, present))
    return tuple(drawn_panels)


def _equal(one: Mapping[str, Curve], other: Mapping[str, Curve]) -> bool:
    if one.keys() != other.keys():
        return False
    return all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
        for method in one
        for a, b in zip(one[method], other[method], strict=True)
    )
