"""The curves behind the scores: means and bands per method, drawn once where they are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from assay.report import charts
from assay.store import Array, Manifest, ProtocolEntry, SettingKey
from assay.store.run_arrays import CurveKey, CurvePart, RunArrays

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
    curves of some samples are in memory at a time.
    """
    moments: dict[CurveKey, dict[str, _Moments]] = {}
    for chunk in arrays.curves():
        for key, parts in chunk.items():
            _add(moments.setdefault(key, {}), parts)
    by_setting: dict[SettingKey, SettingCurves] = {}
    for (*setting, protocol, method), by_name in moments.items():
        for name, points in by_name.items():
            if (curve := points.curve()) is not None:
                here = by_setting.setdefault(SettingKey(*setting), {})
                here.setdefault((protocol, name), {})[method] = curve
    return by_setting


def _add(moments: dict[str, _Moments], parts: Sequence[CurvePart]) -> None:
    """Add the curves of some samples; samples that several seeds have count once."""
    one_seed = len({part.seed for part in parts}) < 2
    for name in dict.fromkeys(name for part in parts for name in part.curves):
        mine = [part for part in parts if name in part.curves]
        points = moments.setdefault(name, _Moments())
        if one_seed:
            for part in mine:
                points.add(part.curves[name], np.broadcast_to(part.x, part.curves[name].shape))
        else:
            points.add(*_over_seeds(mine, name))


def _over_seeds(parts: Sequence[CurvePart], name: str) -> tuple[Array, Array]:
    """The curve and x of every sample, averaged over the seeds that have it [n, K]."""
    samples = np.unique(np.concatenate([part.rows for part in parts]))
    steps = max(len(part.x) for part in parts)
    total, x, count = (np.zeros((len(samples), steps)) for _ in range(3))
    for part in parts:
        curve = part.curves[name]
        known = np.isfinite(curve)
        fields = np.searchsorted(samples, part.rows)[:, None], np.arange(len(part.x))
        total[fields] += np.where(known, curve, 0.0)
        x[fields] += np.where(known, part.x, 0.0)
        count[fields] += known
    with np.errstate(invalid="ignore"):
        return total / count, x / count


class _Moments:
    """Number, mean and squared deviations of the finite values of each step."""

    def __init__(self) -> None:
        """Begin with no values."""
        self.count, self._mean, self._squares, self._x = np.zeros((4, 0))

    def add(self, values: Array, x: Array) -> None:
        """Add curves [n, K], and where they were taken [n, K]."""
        more = max(0, values.shape[1] - len(self.count))
        if more:
            known_steps = (self.count, self._mean, self._squares, self._x)
            longer = (np.append(numbers, np.zeros(more)) for numbers in known_steps)
            self.count, self._mean, self._squares, self._x = longer
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
