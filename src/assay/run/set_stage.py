"""Set protocols of a run: after all shards, one cell after the other in this process."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from assay.errors import InputError, warn
from assay.plan.cells import CellOutcome, stored_cell
from assay.plan.plan import Plan, Shard
from assay.plan.scoring import checked_scores, replicates_of, standing
from assay.plan.set_cells import SetCell, unmet
from assay.plan.trainings import trains
from assay.progress import bar
from assay.ranking.reductions import reduction_of
from assay.run.failures import outcome_of
from assay.run.shard import ShardTask, finite
from assay.run.started import Step
from assay.run.trials import BatchCache, TrialMaker
from assay.store import Array
from assay.store.pieces import CellsPiece
from assay.types import Scores


def run_sets(task: ShardTask, progress: bool = True) -> None:
    """Compute the missing cells of set protocols. Finished cells are not computed again.

    Args:
        task: The task of any shard: says where pieces go, and what is not tried again.
        progress: Whether to show bars.
    """
    finished = task.finished
    cells, batches = finished.unfinished_sets(), BatchCache()
    _warn_of_labels(finished.plan, cells)
    sizes = [_steps(cell) for cell in cells]
    with bar("set protocols", sum(sizes), progress) as done:
        for cell, size in zip(cells, sizes, strict=True):
            left = CellSteps(size, done)
            outcome = _outcome(TrialMaker(finished, task, batches, left.one), cell)
            for shard, part in _by_shard(finished.plan, cell, outcome):
                stored = stored_cell(finished.plan, shard, cell.method, cell.protocol, part)
                task.put(CellsPiece(shard.id, [stored]))
            left.rest()


def _warn_of_labels(plan: Plan, cells: Sequence[SetCell]) -> None:
    """Warn where maps of the label may tell the class to the networks that are trained on them."""
    named = {
        cell.protocol.label
        for cell in cells
        if cell.protocol.plugin.trains and plan.target(cell.dataset, cell.model) == "label"
    }
    if named:
        warn(
            f"{', '.join(sorted(named))}: the maps explain the label, so what they remove can tell "
            f"the class to the trained networks. Use `target: predicted`."
        )


def _steps(cell: SetCell) -> int:
    """The steps of a cell in the bar: itself, and the networks that it says it trains."""
    trained = trains(cell.protocol)
    return 1 + (0 if trained is None else trained.networks)


@dataclass
class CellSteps:
    """Moves the bar for one cell: once per trained network, the rest at its end."""

    left: int
    done: Callable[[int], None]

    def one(self) -> None:
        """Move by one, unless only the end of the cell is left."""
        if self.left > 1:
            self.left -= 1
            self.done(1)

    def rest(self) -> None:
        """Move to the end of the cell."""
        self.done(self.left)


def _outcome(maker: TrialMaker, cell: SetCell) -> CellOutcome:
    """The outcome of one cell. Whatever goes wrong becomes its message."""
    plan = maker.finished.plan
    missing = unmet(plan, cell)
    if missing:
        return CellOutcome("n/a", f"Needs {plan.say_missing(cell.model, missing)}")
    step = step_of(cell)
    if step in maker.task.given_up:
        return CellOutcome("failed", maker.task.given_up[step])
    maker.task.begin(step)
    began = time.monotonic()
    try:
        maps, lost = finite(maker.maps(cell, "scored", None))
        broken, flat = lost.numpy(), _constant(maps)  # [N]
        with _lent(maker, cell):
            raw = cell.protocol.plugin.function(maker.trial(cell), **cell.protocol.options)
        scores = _checked(cell, raw, len(broken))
        whole = _standing(maker, cell)
    except BaseException as error:
        return outcome_of(error)
    return replace(_scored(cell, scores, broken, flat, whole), seconds=time.monotonic() - began)


@contextmanager
def _lent(maker: TrialMaker, cell: SetCell) -> Iterator[None]:
    """Lend networks to a protocol inside. Code of a user may not change them for others.

    Raises:
        HarmError: It changed something, which is as before.
    """
    plan, protocol = maker.finished.plan, cell.protocol
    with ExitStack() as stack:
        stack.enter_context(plan.models[cell.model].evaluating())
        if protocol.own:
            shard = maker.shards(cell, "scored")[0]
            first = plan.batch(shard, shard.samples[:1])
            for name in plan.pool(cell.dataset, cell.model, protocol):
                model = plan.models[name]
                stack.enter_context(model.evaluating())
                guard = plan.networks.guard(name, model)
                stack.enter_context(
                    guard.watch(model, first, protocol.label, numbers=True, result="score")
                )
        yield


def step_of(cell: SetCell) -> Step:
    """The step of a set cell, which names its samples."""
    return Step(cell.method.label, f"{cell.protocol.label} on {cell.place}")


def _standing(maker: TrialMaker, cell: SetCell) -> str:
    return standing(cell.method, cell.protocol, maker.batch(cell, "scored"))


def _checked(cell: SetCell, scores: object, size: int) -> Scores:
    """The scores of a protocol, on the CPU; one value per scored sample."""
    scores = checked_scores(cell.protocol.label, scores, size)
    value = scores.value.detach().double().cpu()
    _check_replicates(cell, scores, value)
    if reduction_of(cell.protocol) is not None:  # computed later from the curves of the whole set
        value = torch.full_like(value, torch.nan)
    return replace(scores, value=value)


def _check_replicates(cell: SetCell, scores: Scores, value: Tensor) -> None:
    """Check that a score is the mean of the replicates that the protocol declares."""
    names = replicates_of(cell.protocol)
    if not names:
        return
    listed = ", ".join(f"`{name}`" for name in names)
    for name in names:
        if name not in scores.extra or scores.extra[name].shape != value.shape:
            raise InputError(
                f"Expected `{cell.protocol.label}` to return one value for each of {len(value)} "
                f"scored samples in `extra` under {listed}, as it declares by `replicates`; "
                f"`{name}` is missing or has another shape."
            )
    mean = torch.stack([scores.extra[name].detach().double().cpu() for name in names]).mean(0)
    if not torch.allclose(mean, value, rtol=1e-5, atol=1e-6, equal_nan=True):
        raise InputError(
            f"Expected the value of `{cell.protocol.label}` to be the mean of its replicates "
            f"{listed}, got values that differ by up to {float((mean - value).abs().max()):.3g}."
        )


def _constant(maps: Tensor) -> Array:  # [N]
    """Which maps are constant."""
    flat = maps.flatten(1)
    constant: Array = (flat.amax(1) == flat.amin(1)).numpy()
    return constant


def _scored(cell: SetCell, scores: Scores, broken: Array, flat: Array, whole: str) -> CellOutcome:
    """The outcome of a scored cell, with one status per sample."""
    plugin = cell.protocol.plugin
    value = np.where(broken, np.nan, scores.value.numpy())
    empty = flat.copy()
    if scores.degenerate is not None:
        empty |= scores.degenerate.cpu().numpy()
    if reduction_of(cell.protocol) is None:
        empty |= scores.value.isnan().numpy()
    statuses = np.where(broken, "failed", np.where(empty, "degenerate", whole))
    metrics = {plugin.metric: value}
    for name, extra in scores.extra.items():
        metrics[name] = np.where(broken, np.nan, extra.detach().double().cpu().numpy())
    lost = f"{int(broken.sum())} of {len(value)} maps hold NaN or inf." if broken.any() else ""
    return CellOutcome("failed" if broken.any() else "ok", lost, metrics, statuses, scores)


def _by_shard(plan: Plan, cell: SetCell, outcome: CellOutcome) -> list[tuple[Shard, CellOutcome]]:
    """The outcome cut into the shards of the run, whose files hold the scores of their samples."""
    shards = plan.shards_of(*cell.place)
    ends = np.cumsum([len(shard.samples) for shard in shards])
    return [
        (shard, _rows(outcome, slice(end - len(shard.samples), end), len(shard.samples) / ends[-1]))
        for shard, end in zip(shards, ends.tolist(), strict=True)
    ]


def _rows(outcome: CellOutcome, rows: slice, share: float) -> CellOutcome:
    """The part of an outcome for these samples, with its share of the time."""
    if outcome.scores is None or outcome.statuses is None or outcome.seconds is None:
        return outcome
    scores, statuses = outcome.scores, outcome.statuses[rows]
    curves = {name: curve[rows] for name, curve in scores.curves.items()}
    return replace(
        outcome,
        status="failed" if "failed" in statuses else "ok",
        metrics={name: values[rows] for name, values in outcome.metrics.items()},
        statuses=statuses,
        scores=Scores(scores.value[rows], curves, scores.x),
        seconds=share * outcome.seconds,
    )
