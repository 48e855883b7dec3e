"""Models side by side: score against accuracy, where protocols may compare models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.ranking.compared_runs import compare_where_possible
from assay.ranking.model_rows import (
    Bounded,
    LeftOut,
    ModelComparison,
    ModelRow,
    PairRow,
    Refusal,
    by_reason,
    in_text,
)
from assay.ranking.model_words import RULES, answer, architecture_leads, lead, remarks, with_n
from assay.report.charts import Estimate, forest
from assay.report.row_texts import number
from assay.report.scatter import Point, scatter
from assay.report.shown_run import ShownRun


@dataclass(frozen=True)
class ModelLine:
    """One line of a table, as text."""

    rank: str
    name: str
    score: str
    accuracy: str
    others: tuple[str, ...]


@dataclass(frozen=True)
class ModelPanel:
    """The models of one dataset under one protocol."""

    dataset: str
    protocol: str
    answer: str
    chart: Markup
    lines: tuple[ModelLine, ...]
    architectures: tuple[ModelLine, ...]
    leads: tuple[str, ...]
    pairs: tuple[ModelLine, ...]
    remarks: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RefusedPanel:
    """Protocols that compare no models for one reason, and the reason of each model."""

    protocols: str
    reason: str
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class ModelSection:
    """All comparisons of a run, and the protocols that compare no models."""

    panels: tuple[ModelPanel, ...]
    refused: tuple[RefusedPanel, ...]
    notes: tuple[str, ...]


def model_section(results: ShownRun) -> ModelSection | None:
    """The part of the page that compares models; None where a run has nothing to compare."""
    manifest = results.entries
    settings = manifest.settings
    several = any(
        len({s.model for s in settings if s.dataset == dataset}) > 1
        for dataset in manifest.datasets
    )
    if not several or not any(entry.properties for entry in manifest.protocols.values()):
        return None
    compared = compare_where_possible([results])
    panels = tuple(map(_panel, compared.comparisons))
    return ModelSection(panels, _refused(compared.refused), (*RULES, *compared.notes))


def _panel(one: ModelComparison) -> ModelPanel:
    architectures = [
        ModelLine(
            _rank(row.rank),
            row.architecture,
            in_text(row.score),
            with_n(row.accuracy, row.score.n, 2),
            (str(len(row.models)), f"{row.deviation:.3f}"),
        )
        for row in one.architectures
    ]
    lines = [
        ModelLine(
            _rank(row.rank),
            row.model,
            in_text(row.score),
            with_n(row.accuracy, row.n),
            (
                in_text(lead(one.pairs, one.models[0].model, row.model)),
                with_n(row.noise, row.n),
                with_n(row.other_fill, row.n),
                " / ".join(dict.fromkeys(row.chosen)),
                str(row.n),
            ),
        )
        for row in one.models
    ]
    pairs = [
        ModelLine("", f"{row.first} minus {row.second}", in_text(_difference(row)), "",
                  (row.verdict,))
        for row in (*one.architecture_pairs, *one.pairs)
    ]  # fmt: skip
    return ModelPanel(
        one.dataset,
        one.protocol,
        answer(one),
        _chart(one),
        tuple(lines),
        tuple(architectures),
        tuple(architecture_leads(one)),
        tuple(pairs),
        tuple(remarks(one)),
        tuple(by_reason(one.left_out)),
    )


def _difference(row: PairRow) -> Bounded:
    return Bounded(row.difference, row.low, row.high, row.n)


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _refused(refused: Sequence[Refusal]) -> tuple[RefusedPanel, ...]:
    """Each reason once, with the protocols that it is about."""
    groups: dict[tuple[str, tuple[LeftOut, ...]], list[str]] = {}
    for one in refused:
        groups.setdefault((one.reason, one.left_out), []).append(one.protocol)
    return tuple(
        RefusedPanel(", ".join(protocols), reason, tuple(by_reason(left_out)))
        for (reason, left_out), protocols in groups.items()
    )


def _ends(value: Bounded) -> tuple[float, float]:
    return number(value.low), number(value.high)


def _chart(one: ModelComparison) -> Markup:
    """Score against accuracy; scores alone where an accuracy is not known."""
    rows = [row for row in one.models if math.isfinite(number(row.score.value))]
    title = f"{one.dataset}: score by {one.protocol} of each model"
    direction = "higher is better" if one.higher_is_better else "lower is better"
    if all(row.accuracy.value is not None for row in rows):
        points = [_point(row) for row in rows]
        ylabel = f"score by {one.protocol}, {direction}"
        return scatter(points, title=f"{title} against its accuracy", xlabel="accuracy →",
                       ylabel=ylabel)  # fmt: skip
    return forest([_estimate(row) for row in rows], {}, title=title, direction=direction)


def _point(row: ModelRow) -> Point:
    numbers = f"score {in_text(row.score)}, accuracy {in_text(row.accuracy)}"
    return Point(
        row.model,
        number(row.accuracy.value),
        _ends(row.accuracy),
        number(row.score.value),
        _ends(row.score),
        f"{row.model}: {numbers}",
    )


def _estimate(row: ModelRow) -> Estimate:
    low, high = _ends(row.score)
    text = in_text(row.score)
    return Estimate(row.model, number(row.score.value), low, high, "method", text,
                    f"{row.model}: {text}")  # fmt: skip
