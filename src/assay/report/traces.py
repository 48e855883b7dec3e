"""The curves behind the scores: means and bands per method, drawn once where they are equal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from assay.report import charts
from assay.store import Array, Manifest, ProtocolEntry, SettingKey

Curve = tuple[Array, Array, Array]  # x, mean, half-width of the band
SettingCurves = dict[tuple[str, str], dict[str, Curve]]  # (protocol, curve name), then method
COLOURS, GREYS = 14, 8
_LABELS = ["dataset", "model", "checkpoint", "method", "protocol"]


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


def average(curves: pa.Table, scores: pa.Table) -> dict[SettingKey, SettingCurves]:
    """Mean curves by setting, then (protocol, curve name), then method.

    Seeds are averaged within a sample first; the band is 1.96 standard errors over samples.
    """
    if not curves.num_rows:
        return {}
    who = scores.group_by(["cell", *_LABELS]).aggregate([])
    index = pc.index_in(curves["cell"], value_set=who["cell"].combine_chunks())
    known = pc.and_(pc.is_valid(index), pc.is_finite(curves["value"]))
    table = curves.select(["sample", "name", "step", "x", "value"]).filter(known)
    for name in _LABELS:
        table = table.append_column(name, who[name].take(index.filter(known)))
    line = [*_LABELS, "name", "step"]
    per_sample = table.group_by([*line, "sample"]).aggregate([("value", "mean"), ("x", "mean")])
    spread = pc.VarianceOptions(ddof=1)
    points = per_sample.group_by(line).aggregate(
        [
            ("value_mean", "mean"),
            ("value_mean", "stddev", spread),
            ("value_mean", "count"),
            ("x_mean", "mean"),
        ]
    ).sort_by([(name, "ascending") for name in line])  # fmt: skip
    by_setting: dict[SettingKey, SettingCurves] = {}
    collected: dict[tuple[str, ...], list[tuple[float, float, float]]] = {}
    for row in points.to_pylist():
        error = row["value_mean_stddev"]
        half = np.nan if error is None else 1.96 * error / np.sqrt(row["value_mean_count"])
        group = tuple(row[c] for c in [*_LABELS, "name"])
        collected.setdefault(group, []).append((row["x_mean_mean"], row["value_mean_mean"], half))
    for (dataset, model, checkpoint, method, protocol, name), values in collected.items():
        x, mean, half = np.asarray(values, dtype=float).T
        here = by_setting.setdefault(SettingKey(dataset, model, checkpoint), {})
        here.setdefault((protocol, name), {})[method] = (x, mean, half)
    return by_setting


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
