"""Forecast the cost of a run: rehearse every protocol without a network."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from assay.methods.attribution import says_nothing
from assay.models.prepare import LOOK
from assay.plan.finished import Finished
from assay.plan.plan import Shard
from assay.plan.shard_cost import (
    EngineRows,
    Explanation,
    MissingCells,
    PromiseCheck,
    ShardCost,
    Uncounted,
    check_given_maps,
    kind_of,
    rehearse,
)
from assay.plan.trainings import TrainingCost, training_costs
from assay.types import Model


@dataclass
class Forecast:
    """Network passes of a run. Rows are samples through the network, padding not counted."""

    rows: dict[str, int] = field(default_factory=dict)  # by protocol
    shared: dict[str, int] = field(default_factory=dict)  # of these, the rows shared by all methods
    method_rows: dict[str, int] = field(default_factory=dict)  # by method
    backward_rows: dict[str, int] = field(default_factory=dict)  # by method
    once_rows: dict[str, int] = field(default_factory=dict)  # by method, for all samples at once
    forward_calls: dict[str, int] = field(default_factory=dict)  # by model, in micro-batches
    gradient_calls: dict[str, int] = field(default_factory=dict)
    imputed_calls: dict[str, int] = field(default_factory=dict)  # of the forward ones
    unknown: list[str] = field(default_factory=list)  # methods whose cost is unknown in advance
    uncounted: bool = False  # some of these make passes that are not in `work`: they were not run
    trainings: dict[str, TrainingCost] = field(default_factory=dict)  # at most, by protocol
    train_samples: int = 0  # on so many samples, the most of any dataset
    looks: int = 0  # warm-up calls: one per process and network
    repeated: int = 0  # passes that ask samples twice, to see whether the outputs are equal
    repeated_calls: int = 0
    rehearsed: int = 0  # samples run one by one before a run, to measure the size of a layer
    work: int = 0  # rows, backward passes counted double: the progress bar's total
    seconds: float | None = None

    @property
    def forwards(self) -> int:
        """The number of forward passes, in samples."""
        counts = (self.rows, self.method_rows, self.once_rows)
        return sum(sum(count.values()) for count in counts) + self.looked

    @property
    def looked(self) -> int:
        """The number of these that are warm-up passes."""
        return LOOK * self.looks + self.rehearsed + self.repeated

    @property
    def backwards(self) -> int:
        """The number of backward passes, in samples."""
        return sum(self.backward_rows.values())

    @property
    def calls(self) -> int:
        """The number of calls of the networks."""
        explaining = sum(self.forward_calls.values()) + sum(self.gradient_calls.values())
        return explaining + self.looks + self.rehearsed + self.repeated_calls

    def __str__(self) -> str:
        """The totals, in one line."""
        time = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        shared = sum(self.shared.values())
        rest = f", and what {', '.join(self.unknown)} will need" if self.unknown else ""
        training = "".join(f"; {line}" for line in self.training_lines)
        return (
            f"{self.forwards:,} forward passes in {self.calls:,} calls, "
            f"{shared:,} of them shared by all methods{time}{rest}{training}"
        )

    @property
    def training_lines(self) -> list[str]:
        """What is trained, one sentence per protocol, with its time where that is known."""
        return [
            f"{protocol} {cost.in_words(self.train_samples)}"
            for protocol, cost in self.trainings.items()
        ]

    @property
    def training_seconds(self) -> float | None:
        """The most seconds of all trainings; None where there are none, or not all are known."""
        seconds = [cost.seconds for cost in self.trainings.values()]
        known = [each for each in seconds if each is not None]
        return sum(known) if known and len(known) == len(seconds) else None


ENOUGH = 3  # shards of a kind and size that stand for the others, where samples differ


def forecast(
    finished: Finished,
    shards: Sequence[Shard],
    processes: int = 1,
    exact: bool = True,
    users: bool = True,
) -> Forecast:
    """Count the passes that these shards need. Finished cells and stored answers cost nothing.

    One sample of one shard represents all shards that differ only in their samples. Where samples
    differ in their number of units, every shard is rehearsed whole, or only a few of them if the
    result need not be exact. Every process that explains repeats what a method estimates once
    over the data. With `users=False` no code of users runs here, and its cost is unknown.

    Raises:
        InputError: The options of a protocol do not fit the data, as far as the rehearsed samples
            and protocols show it.
        PrerequisiteError: A fill lacks a prerequisite. Nothing has been computed yet.
    """
    plan = finished.plan
    total = Forecast()
    estimates: dict[str, _Estimate] = {}
    known = _KnownCosts(finished, exact, users)
    cells = finished.computable_sets()
    for shard in shards:
        missing = MissingCells(finished.missing(shard), finished.unexplained(shard, cells))
        if missing:
            check_given_maps(plan, shard, missing)
            _add(total, known.cost(shard, missing), shard, plan.models[shard.model], estimates)
    total.rehearsed = known.made
    total.trainings = training_costs(plan, cells, timed=False)
    sizes = [len(train.ids) for d in plan.datasets.values() for train in d.splits.values()]
    total.train_samples = max(sizes, default=0)
    for estimate in estimates.values():
        method, model, rows = estimate.method, estimate.model, estimate.rows
        for _ in range(min(processes, len(estimate.shards))):
            _count(total.once_rows, method, rows)
            _count_calls(total.forward_calls, model, rows, plan.models[model])
            total.work += rows
    return total


@dataclass
class _Estimate:
    """What a method estimates once over the data: its cost, and the shards that need it."""

    method: str
    model: str
    rows: int
    shards: set[str] = field(default_factory=set)


@dataclass
class _KnownCosts:
    """The costs of shards. Those that are like a rehearsed one are not rehearsed."""

    finished: Finished
    exact: bool
    users: bool
    made: int = 0  # passes through the network, to measure the size of a layer
    _of_one: dict[tuple[object, ...], ShardCost] = field(default_factory=dict)
    _of_all: dict[tuple[object, ...], list[ShardCost]] = field(default_factory=dict)

    def cost(self, shard: Shard, missing: MissingCells) -> ShardCost:
        """The cost of a shard, from one sample or from all."""
        kind, size = kind_of(self.finished, shard, missing), len(shard.samples)
        if self.finished.plan.models[shard.model].tokens is None:  # texts differ in length
            if kind not in self._of_one:
                self._of_one[kind] = self._rehearse(shard, 1, missing)
            if not self._of_one[kind].ragged or size == 1:
                return self._of_one[kind]
        if self.exact:
            return self._rehearse(shard, size, missing)
        alike = self._of_all.setdefault((*kind, size), [])
        if len(alike) < ENOUGH:
            alike.append(self._rehearse(shard, size, missing))
        return alike[-1]

    def _rehearse(self, shard: Shard, samples: int, missing: MissingCells) -> ShardCost:
        cost = rehearse(self.finished, shard, samples, missing, self.users)
        self.made += cost.made
        return cost


def _add(
    total: Forecast,
    cost: ShardCost,
    shard: Shard,
    model: Model,
    estimates: dict[str, _Estimate],
) -> None:
    """Add the cost of a shard to the total."""
    for part in cost.parts:
        if isinstance(part, EngineRows):
            _add_engine_rows(total, part, len(shard.samples) // cost.samples, shard.model, model)
        elif isinstance(part, PromiseCheck):
            _add_promise(total, part, shard, model)
        elif isinstance(part, Uncounted):
            total.uncounted = True
            if part.name not in total.unknown:
                total.unknown.append(part.name)
        else:
            _add_explanation(total, part, shard, model)
            if once := part.passes.once:
                key = f"{shard.model} {shard.dataset} {part.passes.finding}"
                estimate = _Estimate(part.method.label, shard.model, once)
                estimates.setdefault(key, estimate).shards.add(shard.id)


def _add_engine_rows(
    total: Forecast, part: EngineRows, times: int, name: str, model: Model
) -> None:
    """Add the rows that the engine asks for, for so many times the rehearsed samples."""
    _count(total.method_rows if part.explains else total.rows, part.name, sum(part.asked) * times)
    _count(total.shared, part.name, part.shared * times)
    for rows in part.asked:
        _count_calls(total.forward_calls, name, rows * times, model)
    for rows in part.imputed:
        _count_calls(total.imputed_calls, name, rows * times, model)
    total.work += sum(part.asked) * times


def _add_explanation(total: Forecast, part: Explanation, shard: Shard, model: Model) -> None:
    """Add the cost of explaining all samples of a shard once."""
    label, size, passes = part.method.label, len(shard.samples), part.passes
    if (passes.forward is None or says_nothing(part.method)) and label not in total.unknown:
        total.unknown.append(label)
    rows, back = (passes.forward or 0) * size, (passes.backward or 0) * size
    _count(total.method_rows, label, rows)
    _count(total.backward_rows, label, back)
    both = min(rows, back)  # additional shorter backward passes are not timed
    _count_calls(total.gradient_calls, shard.model, both, model)
    _count_calls(total.forward_calls, shard.model, rows - both, model)
    total.work += rows + 2 * back


def _add_promise(total: Forecast, part: PromiseCheck, shard: Shard, model: Model) -> None:
    """Add the cost of comparing all maps of a shard with what their formula promises."""
    size = len(shard.samples)
    _count(total.method_rows, part.method, part.passes * size)
    for _ in range(part.passes):
        _count_calls(total.forward_calls, shard.model, size, model)
    total.work += part.passes * size


def _count(counts: dict[str, int], name: str, rows: int) -> None:
    counts[name] = counts.get(name, 0) + rows


def _count_calls(calls: dict[str, int], name: str, rows: int, model: Model) -> None:
    _count(calls, name, -(-rows // model.micro_batch))
