"""Forecast the cost of a run: rehearse every protocol without a network."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from assay.engine.engine import Engine
from assay.errors import HarmError, InputError, NotApplicable, PrerequisiteError
from assay.methods.attribution import (
    MAPS_HASH,
    attribute,
    explain_again,
    forward_passes,
    raw_map,
    says_nothing,
)
from assay.models.prepare import LOOK
from assay.plan.finished import Finished, ResponseShelf
from assay.plan.plan import Plan, Shard
from assay.plan.promised import promise_passes
from assay.plan.rehearsal import FirstOf, Rehearsal, explains_again, made_up_partner
from assay.plan.scoring import dealt
from assay.plan.trainings import TrainingCost, training_costs
from assay.plugins.registry import Passes
from assay.processes import Stopped
from assay.removal import make_removal
from assay.suite.spec import Choice
from assay.types import Batch, Case, Model, Observation


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
    trainings: dict[str, TrainingCost] = field(default_factory=dict)  # at most, by protocol
    train_samples: int = 0  # on so many samples, the most of any dataset
    looks: int = 0  # warm-up calls: one per process and network
    repeated: int = 0  # passes that ask samples twice, to see whether the outputs are equal
    repeated_calls: int = 0
    rehearsed: int = 0  # samples run one by one before a run, to measure the size of a layer
    work: int = 0  # rows, backward passes counted double: the progress bar's total
    seconds: float | None = None

    def add(self, part: "Forecast") -> None:
        """Add the cost of another part of the run."""
        for name in (
            "rows", "shared", "method_rows", "backward_rows", "once_rows", "forward_calls",
            "gradient_calls", "imputed_calls",
        ):  # fmt: skip
            counts = getattr(self, name)
            for key, count in getattr(part, name).items():
                counts[key] = counts.get(key, 0) + count
        self.rehearsed += part.rehearsed
        self.unknown = list(dict.fromkeys([*self.unknown, *part.unknown]))
        self.work += part.work

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


def forecast(finished: Finished, shards: Sequence[Shard], processes: int = 1) -> Forecast:
    """Rehearse these shards. Finished cells and stored answers cost nothing.

    One sample represents its whole shard, unless samples differ in their number of units. Every
    process that explains repeats what a method estimates once over the data.

    Raises:
        InputError: The options of a protocol do not fit the data.
        PrerequisiteError: A fill lacks a prerequisite. Nothing has been computed yet.
    """
    plan = finished.plan
    total = Forecast()
    estimates: dict[str, _Estimate] = {}
    cells = finished.computable_sets()
    for shard in shards:
        missing, maps_only = finished.missing(shard), finished.unexplained(shard, cells)
        if any(missing.values()) or maps_only:
            left = _Missing(missing, maps_only)
            size = len(shard.samples)
            first = 1 if plan.models[shard.model].tokens is None else size
            part, ragged = _rehearse(finished, shard, first, left, estimates)
            if ragged and first < size:
                part, _ = _rehearse(finished, shard, size, left, estimates)
            total.add(part)
    total.trainings = training_costs(plan, cells, timed=False)
    sizes = [len(train.ids) for d in plan.datasets.values() for train in d.splits.values()]
    total.train_samples = max(sizes, default=0)
    for estimate in estimates.values():
        method, model, rows = estimate.method, estimate.model, estimate.rows
        for _ in range(min(processes, len(estimate.shards))):
            total.once_rows[method] = total.once_rows.get(method, 0) + rows
            _calls(total.forward_calls, model, rows, plan.models[model])
            total.work += rows
    return total


@dataclass
class _Estimate:
    """What a method estimates once over the data: its cost, and the shards that need it."""

    method: str
    model: str
    rows: int
    shards: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Missing:
    """What a shard lacks: protocols by method, and methods of which only the maps are needed."""

    protocols: dict[str, list[Choice]]
    maps_only: set[str]

    def __contains__(self, label: str) -> bool:
        return bool(self.protocols[label]) or label in self.maps_only


def _rehearse(
    finished: Finished,
    shard: Shard,
    samples: int,
    missing: _Missing,
    estimates: dict[str, _Estimate],
) -> tuple[Forecast, bool]:
    """The cost of a shard from its first samples, and whether the others may cost differently."""
    total, plan = Forecast(), finished.plan
    explaining_methods = [
        m for m in plan.methods if m.label in missing and not finished.has_maps(shard, m)
    ]
    unexplained = {m.label for m in explaining_methods}
    unpromised = {
        m.label for m in explaining_methods if not shard.split and not finished.promises(shard, m)
    }
    size = len(shard.samples)
    batch = plan.batch(shard, shard.samples[:samples])
    model = _rehearsed_model(plan, shard, batch, explaining_methods)
    rehearsal = Rehearsal(model)
    shelf, guard = ResponseShelf(finished, shard), plan.networks.guard(shard.model, model)
    engine = Engine(batch, rehearsal, FirstOf(shelf, samples), guard)
    times, shared_before = size // samples, 0

    def add_rows(name: str, counts: dict[str, int]) -> None:
        nonlocal shared_before
        counts.setdefault(name, 0)
        for rows in rehearsal.asked:
            counts[name] += rows * times
            _calls(total.forward_calls, shard.model, rows * times, model)
            total.work += rows * times
        for rows in rehearsal.imputed:
            _calls(total.imputed_calls, shard.model, rows * times, model)
        rehearsal.asked.clear()
        rehearsal.imputed.clear()
        shared = (rehearsal.shared - shared_before) * times
        total.shared[name] = total.shared.get(name, 0) + shared
        shared_before = rehearsal.shared

    def count_explaining(method: Choice) -> None:
        passes = method.passes_on(model, engine.batch)
        if passes.once:
            key = f"{shard.model} {shard.dataset} {passes.finding}"
            estimate = _Estimate(method.label, shard.model, passes.once)
            estimates.setdefault(key, estimate).shards.add(shard.id)
        _add_explaining(total, method, passes, shard, model)

    if not shard.split:
        engine.clean  # noqa: B018  # requested first, as in a run
    add_rows("clean", total.rows)
    formula = ""  # of the last method; methods that only reduce it differently cost nothing
    refused: set[str] = set()  # formulas that do not apply here
    promised: set[str] = set()
    for method in plan.methods:
        if method.label not in missing or plan.missing(shard, method):
            continue
        for option, kind in method.plugin.nested().items():
            if kind == "fill" and method.options[option] is not None:
                with contextlib.suppress(NotApplicable):
                    make_removal(engine.batch, method.options[option])
        if MAPS_HASH in method.options:  # maps that do not fit the data stop the run here
            inputs = batch.inputs[:1].expand(size, *batch.inputs.shape[1:])
            full_batch = replace(batch, ids=shard.samples, inputs=inputs)
            _try(partial(attribute, model, full_batch, method))
        if method.label in unexplained and method.formula_key != formula:
            formula = method.formula_key
            if method.intervening:
                applies = _try(partial(raw_map, model, engine.batch, method, engine))
                add_rows(method.label, total.method_rows)
            else:
                applies = _try(partial(count_explaining, method))
            refused |= set() if applies else {formula}
        if method.formula_key in refused:
            continue
        if method.label in unpromised and method.formula_key not in promised:
            promised.add(method.formula_key)
            _add_promise(total, method, shard, model)
        if not missing.protocols[method.label]:
            continue
        engine.forget()
        noise = engine.batch.draw("rehearsal map", engine.batch.map_shape)
        count = partial(count_explaining, method)
        groups = plan.dataset_of(shard).groups
        free = dealt([groups.get(s, s) for s in shard.samples]) is not None
        partner = made_up_partner(engine, method, None if free else count)
        case = Case(engine.batch, noise, engine.verb, engine.clean, partner=partner)
        if explain_again(engine, method) is not None:
            again = explains_again(engine, method, count)
            passes = forward_passes(model, engine.batch, method)
            case = replace(case, explain=again, explain_passes=passes)
        for protocol in missing.protocols[method.label]:
            if not plan.missing(shard, protocol):
                _try(partial(protocol.plugin.function, case, **protocol.options))
                add_rows(protocol.label, total.rows)
    total.rehearsed = sum(rehearsal.made)
    return total, rehearsal.ragged


def _rehearsed_model(plan: Plan, shard: Shard, batch: Batch, methods: Sequence[Choice]) -> Model:
    """The model for the rehearsal. Its network runs only if its layers decide a cost."""
    needs_layer = any(
        "spatial" in m.plugin.required(m.options) and (m.intervening or m.passes_by_network)
        for m in methods
        if not plan.missing(shard, m)
    )
    if needs_layer or shard.model in plan.networks.prepared:
        return plan.ready(shard, batch).model
    return replace(plan.models[shard.model], observed=Observation(outputs=0, binary=False))


def _add_explaining(
    total: Forecast, method: Choice, passes: Passes, shard: Shard, model: Model
) -> None:
    """Add the cost of explaining all samples of a shard once."""
    label, size = method.label, len(shard.samples)
    if (passes.forward is None or says_nothing(method)) and label not in total.unknown:
        total.unknown.append(label)
    rows, back = (passes.forward or 0) * size, (passes.backward or 0) * size
    total.method_rows[label] = total.method_rows.get(label, 0) + rows
    total.backward_rows[label] = total.backward_rows.get(label, 0) + back
    both = min(rows, back)  # additional shorter backward passes are not timed
    _calls(total.gradient_calls, shard.model, both, model)
    _calls(total.forward_calls, shard.model, rows - both, model)
    total.work += rows + 2 * back


def _add_promise(total: Forecast, method: Choice, shard: Shard, model: Model) -> None:
    """Add the cost of comparing all maps of a shard with what their formula promises."""
    passes, size = promise_passes(method), len(shard.samples)
    total.method_rows[method.label] = total.method_rows.get(method.label, 0) + passes * size
    for _ in range(passes):
        _calls(total.forward_calls, shard.model, size, model)
    total.work += passes * size


def _calls(calls: dict[str, int], name: str, rows: int, model: Model) -> None:
    calls[name] = calls.get(name, 0) + -(-rows // model.micro_batch)


def _try(rehearse: Callable[[], object]) -> bool:
    """Rehearse a method or protocol and return whether it applies.

    Wrong input and missing prerequisites raise here, before the run begins.
    """
    try:
        rehearse()
    except NotApplicable:
        return False
    except HarmError:  # the run records a failed cell
        return True
    except (InputError, PrerequisiteError, Stopped):
        raise
    except BaseException:  # an error in the plug-in, or an end: the run records a failed cell
        return True
    return True
