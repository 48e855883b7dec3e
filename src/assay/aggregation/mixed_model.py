"""The Gaussian mixed model of methods over tasks, questions and model families.

A value is `level of the cell + method + method x source + method x question + method x family +
method x task + residual + sampling error`. What methods have in common in a cell, the level, is
free: it holds how hard the task is and how the control `random` did. Methods and sources are fixed;
the other interactions are random with one variance each, for all methods alike, fitted by REML.

A method's mean is its mean over the questions and families of the data, for a new task of one of
these sources. In a complete design the estimate is a plain mean, the variances are those of the
analysis of variance, and the intervals of differences are exact. Their degrees of freedom are those
of tasks within sources times methods less one; tasks are what varies, not cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy

from assay.aggregation.mixed_fit import FEWEST_TASKS, MixedFit, SourceMeans
from assay.aggregation.restricted_likelihood import (
    ContrastSystem,
    alike_methods,
    fitted_variances,
)
from assay.aggregation.task_cells import TaskCells, numbered
from assay.errors import InputError
from assay.ranking.resampling import Codes, Floats


def fit_mixed_model(
    cells: TaskCells, *, level: float = 0.95, shares: Mapping[str, float] | None = None
) -> MixedFit:
    """Fit the model and give each method's mean in a new task.

    Methods with the same values count once. With fewer than 10 tasks there is no interval, but the
    range of the estimates without each source, or without each task of a single source.

    Args:
        cells: The values.
        level: Coverage of each interval.
        shares: The probability that a new task is of each source; by default its share of the
            tasks.
    """
    if not 0 < level < 1:
        raise InputError(f"Expected `level` to lie between 0 and 1, got {level}.")
    compared = (~np.isnan(cells.values)).sum(axis=0) > 1
    if not compared.any():
        raise InputError("No cell holds two methods, so no two can be compared.")
    if not compared.all():
        rest = cells.only(compared)
        alone = sorted(set(cells.methods) - set(rest.methods))
        if alone:
            raise InputError(f"Methods that share no cell with another one: {', '.join(alone)}.")
        return fit_mixed_model(rest, level=level, shares=shares)
    fit = _fit(cells, level, shares)
    if fit.tasks >= FEWEST_TASKS:
        return fit
    left_out, notes = _left_out(cells, fit, level), list(fit.notes)
    if fit.tasks == 1:
        notes.append("One task: nothing can be said of a new task.")
    else:
        notes.append(
            f"{fit.tasks} tasks: fewer than {FEWEST_TASKS} carry no confidence level; the range is"
            " over leaving one source out."
        )
    nothing = np.full(len(fit.methods), np.nan)
    return replace(fit, low=nothing, high=nothing, left_out=left_out, notes=tuple(notes))


def _left_out(cells: TaskCells, fit: MixedFit, level: float) -> dict[str, Floats]:
    """The estimates without each source, or each task where there is one source."""
    labels = np.array([cells.sources[task] for task in cells.tasks])
    if len(set(labels.tolist())) == 1:
        labels = np.asarray(cells.tasks)
    estimates: dict[str, Floats] = {}
    for name in np.unique(labels).tolist() if len(set(labels.tolist())) > 1 else []:
        rest = cells.only(labels != name)
        if rest.methods == fit.methods:
            estimates[name] = _fit(rest, level, None).estimate
    return estimates


def _fit(cells: TaskCells, level: float, shares: Mapping[str, float] | None) -> MixedFit:
    identical = _identical(cells.values)
    values = cells.values[np.unique(identical, return_index=True)[1]]
    n, size = values.shape
    names, task = numbered(cells.tasks)
    homes, home, notes = _sources(cells, names, values)
    weights = _weights(homes, home, shares)
    design = np.eye(len(homes))[home[task]]  # [C, S]
    freedom = (n - 1) * (len(names) - len(homes))
    terms = _terms(cells) if freedom else {}
    alike = alike_methods(values)
    noise = np.zeros((size, size)) if cells.noise is None else cells.noise
    fitted = fitted_variances(values, alike, design, list(terms.values()), noise)
    variances = dict(zip(terms, fitted.tolist(), strict=True))
    covariance = sum((v * terms[k] for k, v in variances.items()), noise.copy())
    scale = float(np.trace(covariance)) / size
    covariance = covariance + (1e-6 * scale or 1.0) * np.eye(size)
    system = ContrastSystem(values, alike, design, covariance)
    # The mean of the interactions with these questions and families belongs to what is estimated.
    included = sum(
        variances.get(kind, 0.0) / len(set(labels))
        for kind, labels in (("question", cells.questions), ("family", cells.families))
    )
    scaled = 0.0 if not scale else 1.0

    def errors(wanted: Floats) -> Floats:
        raw = system.errors(wanted) - included * np.eye(n)
        return np.asarray(scaled * raw[np.ix_(identical, identical)], np.float64)

    centre = system.means.mean(axis=0)  # [S]
    of_tasks = _task_levels(system.levels + design @ centre, cells)  # [T]
    sizes = np.bincount(home).astype(np.float64)
    of_sources = np.bincount(home, of_tasks) / sizes
    means = (system.means - centre + of_sources)[identical]  # [N, S]
    every = errors(weights)
    estimate = means @ weights
    half = _half_widths(
        every, identical, freedom, level,
        float(((of_tasks - of_sources[home]) ** 2).sum()) / max(1, len(names) - len(homes))
        * float((weights**2 / sizes).sum()),
        len(names) - len(homes),
    )  # fmt: skip
    by_source = tuple(
        SourceMeans(name, float(weights[i]), means[:, i], errors(np.eye(len(homes))[i]))
        for i, name in enumerate(homes)
    )
    parts = {**_fixed_parts(means, weights, by_source, every), **variances}
    if cells.noise is not None:
        parts["sampling"] = float(np.trace(noise)) / size
    sum_of_parts = sum(parts.values())
    residual = variances.get("residual", 0.0) if cells.noise is not None else 0.0
    return MixedFit(
        cells.methods, estimate, estimate - half, estimate + half, level, every, float(freedom),
        parts, {k: v / sum_of_parts if sum_of_parts else 0.0 for k, v in parts.items()},
        variances.get("task", 0.0) + residual * len(names) / size,
        by_source, len(names), identical, notes=notes,
    )  # fmt: skip


def _identical(values: Floats) -> Codes:
    """Number the methods; those with the same values in all cells share a number."""
    filled = np.where(np.isnan(values), np.inf, values)
    return np.unique(filled, axis=0, return_inverse=True)[1].ravel().astype(np.int64)


def _sources(
    cells: TaskCells, names: list[str], values: Floats
) -> tuple[list[str], Codes, tuple[str, ...]]:
    """The sources whose means are kept apart, the source of each task [T], and notes."""
    homes, home = numbered([cells.sources[name] for name in names])
    one = ["all sources"], np.zeros(len(names), np.int64)
    if len(homes) == 1:
        return homes, home, ()
    if len(homes) == len(names):
        return *one, ("Each source has one task, so sources count as tasks do.",)
    of_cells = home[numbered(cells.tasks)[1]]
    there = [(~np.isnan(values[:, of_cells == s])).any(axis=1).all() for s in range(len(homes))]
    if not all(there):
        return *one, ("A method is missing on a whole source, so sources are not kept apart.",)
    return homes, home, ()


def _weights(homes: list[str], home: Codes, shares: Mapping[str, float] | None) -> Floats:
    if shares is None or len(homes) == 1:
        return np.bincount(home) / len(home)
    weights = np.array([shares.get(name, math.nan) for name in homes])
    if not (weights >= 0).all() or not weights.sum() > 0:
        raise InputError(f"Expected `shares` to give each of {homes} a share of at least 0.")
    return np.asarray(weights / weights.sum(), np.float64)


def _terms(cells: TaskCells) -> dict[str, Floats]:
    """The covariance over cells [C, C] that each variance multiplies."""
    tasks = np.asarray(cells.tasks)
    terms = {"task": (tasks[:, None] == tasks).astype(np.float64)}
    for kind, labels in (("question", cells.questions), ("family", cells.families)):
        names = np.asarray(labels)
        if len(set(labels)) > 1:
            terms[kind] = (names[:, None] == names).astype(np.float64)
    if terms["task"].sum() > len(tasks):  # else a task has one cell, and is its own residual
        terms["residual"] = np.eye(len(tasks))
    return terms


def _task_levels(levels: Floats, cells: TaskCells) -> Floats:  # [C] -> [T]
    """What all methods share in a task, as if each question and family were asked of each task."""
    columns = []
    for labels in (cells.tasks, cells.questions, cells.families):
        names, index = numbered(labels)
        columns.append(np.eye(len(names))[index])
    fitted = np.linalg.lstsq(np.hstack(columns), levels)[0]
    tasks, questions, _ = np.cumsum([part.shape[1] for part in columns])
    rest = fitted[tasks:questions].mean() + fitted[questions:].mean()
    return np.asarray(fitted[:tasks] + rest, np.float64)


def _half_widths(
    errors: Floats, identical: Codes, freedom: int, level: float, shared: float, between: int
) -> Floats:
    """Half the width of each mean's interval [n], with Satterthwaite's degrees of freedom.

    A mean has the error of the method's difference from all methods' mean, and the error of that
    mean, whose variance `shared` comes from `between` degrees of freedom.
    """
    if between < 1:
        return np.full(len(errors), np.nan)
    first = np.unique(identical, return_index=True)[1]
    n = len(first)
    centre = np.eye(n) - 1 / n
    own = np.diag(centre @ errors[np.ix_(first, first)] @ centre)[identical]
    small = np.where(own > 0, own**2 / max(1, freedom), 0.0) + shared**2 / between
    df = np.divide((own + shared) ** 2, small, out=np.full(len(own), np.inf), where=small > 0)
    return np.asarray(scipy.stats.t.ppf((1 + level) / 2, df) * np.sqrt(own + shared), np.float64)


def _fixed_parts(
    means: Floats, weights: Floats, by_source: tuple[SourceMeans, ...], errors: Floats
) -> dict[str, float]:
    """The spread of the means over methods, and over sources within methods, less their errors."""
    overall = means @ weights
    error = float(np.diag(errors).mean())
    parts = {"method": max(0.0, float(overall.var(ddof=1)) - error)}
    if len(by_source) > 1:
        apart = means - overall[:, None]
        apart = apart - apart.mean(axis=0)
        spread = float((apart**2 @ weights).sum()) / (len(means) - 1)
        noise = sum(s.share * float(np.diag(s.errors).mean()) for s in by_source) - error
        parts["source"] = max(0.0, spread - noise)
    return parts
