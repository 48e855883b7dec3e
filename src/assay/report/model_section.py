"""Models side by side: score against accuracy, where protocols may compare models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from assay.errors import InputError
from assay.ranking.compared_runs import compare_runs, refusals_of
from assay.ranking.model_rows import Bounded, ModelComparison, ModelRow, Refusal, in_text
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
    methods: tuple[str, ...]
    lines: tuple[ModelLine, ...]
    architectures: tuple[ModelLine, ...]
    intrinsic: tuple[ModelLine, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ModelSection:
    """All comparisons of a run, and the protocols that may not compare models."""

    panels: tuple[ModelPanel, ...]
    refused: tuple[Refusal, ...]


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
    try:
        compared = compare_runs([results])
    except InputError:  # no protocol may compare models
        return ModelSection((), tuple(refusals_of(manifest)))
    return ModelSection(tuple(map(_panel, compared.comparisons)), compared.refused)


def _panel(one: ModelComparison) -> ModelPanel:
    architectures = [
        ModelLine(
            _rank(row.rank),
            row.architecture,
            in_text(row.score),
            "" if row.accuracy is None else f"{row.accuracy:.3f}",
            (str(len(row.models)), f"{row.deviation:.3f}"),
        )
        for row in one.architectures
    ]
    maps = [
        ModelLine("", row.model, in_text(row.score), "", (row.method, str(row.n)))
        for row in one.intrinsic
    ]
    lines = [
        ModelLine(
            _rank(row.rank),
            row.model,
            in_text(row.score),
            in_text(row.accuracy),
            (*map(in_text, (row.noise, row.other_fill)), _chosen(row), str(row.n)),
        )
        for row in one.models
    ]
    return ModelPanel(
        one.dataset,
        one.protocol,
        _answer(one),
        _chart(one),
        one.methods,
        tuple(lines),
        tuple(architectures),
        tuple(maps),
        one.notes,
    )


def _rank(rank: int | None) -> str:
    return "–" if rank is None else str(rank)


def _chosen(row: ModelRow) -> str:
    return " / ".join(dict.fromkeys(row.chosen))


def _answer(one: ModelComparison) -> str:
    """Which model comes first, in words."""
    first = [row.model for row in one.models if row.rank == 1]
    if not first:
        return "There are too few samples for an order of the models."
    if len(first) == len(one.models):
        return "No model is clearly better than another."
    if len(first) == 1:
        return f"{first[0]} can be explained best."
    if len(first) > 3:
        return f"{len(first)} of {len(one.models)} models tie for first."
    return f"{', '.join(first[:-1])} and {first[-1]} tie for first."


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


def shown_refusals(refused: Sequence[Refusal]) -> list[tuple[str, str]]:
    """Each reason once, with the protocols that it is about."""
    reasons = dict.fromkeys(one.reason for one in refused)
    return [
        (", ".join(one.protocol for one in refused if one.reason == reason), reason)
        for reason in reasons
    ]
