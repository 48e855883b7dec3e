"""What set protocols will train: how many networks, with how many passes, for how long."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from assay.errors import InputError
from assay.plan.plan import Plan
from assay.plan.set_cells import SetCell
from assay.plugins.registry import Trainings
from assay.suite.spec import Choice
from assay.training.fitting import Recipe, fit_network
from assay.training.fresh import fresh_copy

MEASURED = 4  # steps of the epoch that is timed
LEAST = 1.0  # seconds of training that are timed


@dataclass(frozen=True)
class TrainingCost:
    """What all cells of one protocol train, at most: equal inputs share their networks.

    Attributes:
        networks: The number of networks; None where the protocol does not say it.
        epochs: How often each network sees its samples; None where the protocol does not say it.
        passes: Samples that pass forward and backward in training, over all networks and epochs.
        seconds: The time of the trainings; None where it was not measured.
    """

    networks: int | None = None
    epochs: int | None = None
    passes: int | None = None
    seconds: float | None = None

    def in_words(self, samples: int) -> str:
        """A predicate, where the largest training split has so many samples."""
        networks = "an unknown number of" if self.networks is None else f"at most {self.networks:,}"
        line = f"trains {networks} networks on {samples:,} samples"
        if self.passes is None:
            return f"{line}, which takes a time that is unknown in advance"
        line += f" for {self.epochs:,} epochs, at most {self.passes:,} forward and backward passes"
        if self.seconds is None:
            return f"{line} whose time was not measured"
        return f"{line} that take about {in_minutes(self.seconds)}"


def in_minutes(seconds: float) -> str:
    """A time as seconds, or as minutes where it is longer than two."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    return f"{seconds / 60:.0f} min"


def trains(protocol: Choice) -> Trainings | None:
    """What a protocol trains for one cell; None where it does not say it."""
    if protocol.plugin.trains is None:
        return None
    trained = protocol.plugin.trains(protocol.options)
    return trained if isinstance(trained, Trainings) else Trainings(trained)


def training_costs(plan: Plan, cells: Sequence[SetCell], *, timed: bool) -> dict[str, TrainingCost]:
    """The most that these cells train, by protocol.

    A set protocol without `trains` that needs training samples does not say how much.

    Args:
        plan: The plan of the run.
        cells: Its cells that are missing and apply.
        timed: Whether to measure how long a training step takes.
    """
    by_protocol: dict[str, list[SetCell]] = {}
    for cell in cells:
        needs = cell.protocol.plugin.required(cell.protocol.options)
        if cell.protocol.plugin.trains is not None or "training" in needs:
            by_protocol.setdefault(cell.protocol.label, []).append(cell)
    clock = StepClock(plan)
    return {
        label: _cost(plan, several, clock if timed else None)
        for label, several in by_protocol.items()
    }


def _cost(plan: Plan, cells: Sequence[SetCell], clock: "StepClock | None") -> TrainingCost:
    """The cost of all cells of one protocol."""
    trained = trains(cells[0].protocol)
    if trained is None:
        return TrainingCost()
    networks = trained.networks * len(cells)
    splits = [plan.datasets[cell.dataset].splits.get("train") for cell in cells]
    if "epochs" not in trained.recipe or None in splits:
        return TrainingCost(networks)
    recipe = _recipe(cells[0].protocol, trained)
    passes, seconds = 0, 0.0
    for cell in cells:
        size, steps = _epoch(plan, cell, recipe)
        steps *= trained.networks * recipe.epochs
        passes += steps * size
        seconds += steps * (math.nan if clock is None else clock.seconds(cell, recipe))
    return TrainingCost(networks, recipe.epochs, passes, None if math.isnan(seconds) else seconds)


def _recipe(protocol: Choice, trained: Trainings) -> Recipe:
    try:
        return Recipe(**trained.recipe)  # type: ignore[arg-type]
    except TypeError:
        known = ", ".join(Recipe.__dataclass_fields__)
        raise InputError(
            f"Expected the recipe that `trains` of protocol `{protocol.label}` gives to have "
            f"settings among {known}, got {', '.join(trained.recipe)}."
        ) from None


def _epoch(plan: Plan, cell: SetCell, recipe: Recipe) -> tuple[int, int]:
    """The samples of a step, and the steps of an epoch over all training samples."""
    count = len(plan.datasets[cell.dataset].split("train").ids)
    size = min(recipe.batch, count)
    return size, count // size


class StepClock:
    """Measures the seconds of a training step on real samples, once for each model and recipe."""

    def __init__(self, plan: Plan) -> None:
        """Start with nothing measured."""
        self._plan = plan
        self._seconds: dict[tuple[str, str, Recipe], float] = {}

    def seconds(self, cell: SetCell, recipe: Recipe) -> float:
        """The seconds of a step of a cell's trainings, with all threads as in a run.

        NaN where the training fails: the run records its message for the cell.
        """
        place = (cell.dataset, cell.model, recipe)
        if place not in self._seconds:
            try:
                self._seconds[place] = self._measure(cell, recipe)
            except Exception:
                self._seconds[place] = math.nan
        return self._seconds[place]

    def _measure(self, cell: SetCell, recipe: Recipe) -> float:
        plan = self._plan
        size, steps = _epoch(plan, cell, recipe)
        first = plan.shards_of(*cell.place, "train")[0]
        ids = plan.datasets[cell.dataset].split("train").ids[: size * min(MEASURED, steps)]
        inputs = plan.batch(first, ids).inputs
        labels = torch.zeros(len(ids), dtype=torch.long)
        model = fresh_copy(plan.models[cell.model], 0)
        # The rate does not change the time, and at this one nothing diverges.
        one_epoch = replace(recipe, epochs=1, rate=1e-6)

        def train(count: int) -> None:
            fit_network(model, inputs[:count], labels[:count], one_epoch, progress=False)

        train(2)  # what the first step alone pays for
        alone = _seconds(lambda: train(size))
        if alone >= LEAST:
            return alone
        spent, epochs = 0.0, 0
        while spent < LEAST:
            spent, epochs = spent + _seconds(lambda: train(len(ids))), epochs + 1
        return spent / epochs / (len(ids) // size)


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
