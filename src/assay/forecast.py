"""What a run will cost, before it runs: every protocol is rehearsed without a network."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache, partial
from statistics import fmean

import torch
from torch import Tensor

from assay.absent import Absent
from assay.checking import check_passes
from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.features import Features, elements
from assay.interventions import Arrays, Columns, Engine, Shelf
from assay.methods import MAPS_HASH, attribute, explain_again, forward_passes, other_maps, raw_map
from assay.methods.gradients import gradients
from assay.models.prepare import LOOK, prepare_network
from assay.plan import Plan, Shard
from assay.registry import canonical, identity, pick
from assay.removal import FillChoice, make_removal
from assay.scoring import dealt
from assay.spec import Choice
from assay.types import Batch, Case, Model, Response

IMPUTING = "noisy_linear"  # the fill that solves for pixels: it costs as much as a small network


@dataclass
class Forecast:
    """Network passes of a run. Rows are samples through the network, padding not counted."""

    rows: dict[str, int] = field(default_factory=dict)  # by protocol
    shared: dict[str, int] = field(default_factory=dict)  # of these, what serves all methods
    method_rows: dict[str, int] = field(default_factory=dict)  # by method
    forward_calls: dict[str, int] = field(default_factory=dict)  # by model, in micro-batches
    gradient_calls: dict[str, int] = field(default_factory=dict)
    imputed_calls: dict[str, int] = field(default_factory=dict)  # of the forward ones
    unknown: list[str] = field(default_factory=list)  # methods whose cost nobody can foretell
    looks: int = 0  # each process looks at each network once
    work: int = 0  # rows, backward passes counted double: the progress bar's total
    seconds: float | None = None

    def add(self, part: "Forecast") -> None:
        """Take in what another part of the run costs."""
        for name in (
            "rows", "shared", "method_rows", "forward_calls", "gradient_calls", "imputed_calls",
        ):  # fmt: skip
            mine = getattr(self, name)
            for key, count in getattr(part, name).items():
                mine[key] = mine.get(key, 0) + count
        self.unknown = list(dict.fromkeys([*self.unknown, *part.unknown]))
        self.work += part.work

    @property
    def forwards(self) -> int:
        """All samples that will pass through the network, forward."""
        return sum(self.rows.values()) + sum(self.method_rows.values()) + LOOK * self.looks

    @property
    def calls(self) -> int:
        """How often the network will be called."""
        return sum(self.forward_calls.values()) + sum(self.gradient_calls.values()) + self.looks

    def __str__(self) -> str:
        """The sums, in one line."""
        time = "" if self.seconds is None else f", about {self.seconds:.0f} s"
        shared = sum(self.shared.values())
        rest = f", and what {', '.join(self.unknown)} will need" if self.unknown else ""
        return (
            f"{self.forwards:,} forward passes in {self.calls:,} calls, "
            f"{shared:,} of them shared by all methods{time}{rest}"
        )


class Rehearsal(Engine):
    """The engine without a network: answers are made up, rows are counted."""

    def __post_init__(self) -> None:
        """Begin with nothing asked."""
        self.asked: list[int] = []  # forward passes, question by question
        self.imputed: list[int] = []  # of these, whose inputs are solved for
        self.shared = 0  # of all of them, what serves all methods
        self.ragged = False  # whether one sample cannot stand for the others
        self._costs: list[int] = []  # of rows that are asked but not remembered yet
        super().__post_init__()

    def respond(self, features: Features, absent: Absent, fill: FillChoice) -> Response:
        """Answers as the engine's, made up."""
        self.ragged = self.ragged or features.ragged
        before = len(self.asked)
        made_up = super().respond(features, absent, fill)
        self.imputed += self.asked[before:] if _imputes(fill) else []
        return made_up

    def answers(self, rows: int, make: Callable[[Tensor, Tensor], Tensor]) -> Response:
        """Answers that nobody remembers."""
        made_up = super().answers(rows, make)
        self._costs = []
        return made_up

    def fork(self, batch: Batch) -> "Rehearsal":
        """A rehearsal on other inputs; what it asks counts here."""
        other = Rehearsal(self.model, batch, self.forward, self.counter)
        self.asked += other.asked
        other.asked, other.imputed = self.asked, self.imputed
        return other

    def _ask(
        self, rows: int, make: Callable[[Tensor, Tensor], Tensor], valid: Tensor | None = None
    ) -> list[Columns]:
        everyone = [len(self.batch)] * rows
        self._costs = everyone if valid is None else valid.sum(0).tolist()
        self.asked.append(sum(self._costs))
        made_up = self.batch.draw(f"rehearsal {len(self.asked)}", [rows]).double()  # [B, K]
        classes = torch.zeros(len(self.batch), dtype=torch.long, device=self._device)
        return [(column, -column, classes) for column in made_up.unbind(1)]

    def _remember(self, group: str, row: str, column: Columns) -> None:
        super()._remember(group, row, column)
        cost = self._costs.pop(0) if self._costs else 0  # from the shelf it costs nothing
        self.shared += cost if group in self._shared else 0


@dataclass(frozen=True)
class _FirstOf:
    """The first samples' part of what is on a shelf; nothing is put there."""

    shelf: Shelf
    samples: int

    def load(self, group: str) -> tuple[Arrays, dict[str, str]] | None:
        found = self.shelf.load(group)
        return found and ({name: a[: self.samples] for name, a in found[0].items()}, found[1])

    def save(self, group: str, arrays: Arrays, about: dict[str, str]) -> None:
        return


def forecast(
    plan: Plan,
    shards: Sequence[Shard],
    done: Callable[[Shard, Choice, Choice], bool],
    explained: Callable[[Shard, Choice], bool],
    checked: Callable[[Shard, Choice], bool],
    shelf: Callable[[Shard], Shelf],
) -> Forecast:
    """Rehearse these shards; what is finished or on the shelf costs nothing.

    One sample stands for all of its shard, unless samples differ in their number of units.

    Raises:
        InputError: A protocol cannot take its options here.
        PrerequisiteError: A fill lacks something. Nothing has been computed yet.
    """
    total = Forecast()
    for shard in shards:
        wanted = {
            m.label: [p for p in plan.protocols if not done(shard, m, p)] for m in plan.methods
        }
        if any(wanted.values()):
            everyone = len(shard.samples)
            first = 1 if plan.models[shard.model].tokens is None else everyone
            working = [m for m in plan.methods if wanted[m.label] and not explained(shard, m)]
            asked = {m.label for m in working}
            due = {m.label for m in working if not checked(shard, m)}
            part, ragged = _rehearse(plan, shard, first, wanted, asked, due, shelf(shard))
            if ragged and first < everyone:
                part, _ = _rehearse(plan, shard, everyone, wanted, asked, due, shelf(shard))
            total.add(part)
    return total


def _rehearse(
    plan: Plan,
    shard: Shard,
    samples: int,
    wanted: dict[str, list[Choice]],
    unexplained: set[str],
    unchecked: set[str],
    shelf: Shelf,
) -> tuple[Forecast, bool]:
    """What a shard costs, from its first samples, and whether others may cost more or less."""
    total = Forecast()
    model, size = plan.models[shard.model], len(shard.samples)
    batch = plan.batch(shard, shard.samples[:samples])
    engine = Rehearsal(model, batch, _no_network, shelf=_FirstOf(shelf, samples))
    times, taken = size // samples, 0

    def take(name: str, counts: dict[str, int]) -> None:
        nonlocal taken
        counts.setdefault(name, 0)
        for rows in engine.asked:
            counts[name] += rows * times
            _calls(total.forward_calls, shard.model, rows * times, model)
            total.work += rows * times
        for rows in engine.imputed:
            _calls(total.imputed_calls, shard.model, rows * times, model)
        engine.asked.clear()
        engine.imputed.clear()
        total.shared[name] = total.shared.get(name, 0) + (engine.shared - taken) * times
        taken = engine.shared

    take("clean", total.rows)
    formula = ""  # the last method's: its neighbours that only reduce it differently are free
    checks: set[str] = set()
    for method in plan.methods:
        if not wanted[method.label] or plan.missing(shard, method):
            continue
        for option, kind in method.plugin.nested().items():
            if kind == "fill" and method.options[option] is not None:
                with contextlib.suppress(NotApplicable):
                    make_removal(engine.batch, method.options[option])
        if MAPS_HASH in method.options:  # maps that do not fit the data stop the run now
            everyone = batch.inputs[:1].expand(size, *batch.inputs.shape[1:])
            whole = replace(batch, ids=shard.samples, inputs=everyone)
            _try(partial(attribute, model, whole, method))
        if method.label in unchecked and method.formula_key not in checks:
            checks.add(method.formula_key)
            _checking(total, method, shard, model)
        if method.label in unexplained and method.formula_key != formula:
            formula = method.formula_key
            if method.intervening:
                _try(partial(raw_map, model, engine.lent(), method))
                take(method.label, total.method_rows)
            else:
                _explaining(total, method, shard, model)
        engine.forget()
        noise = engine.batch.draw("rehearsal map", engine.batch.map_shape)
        count = partial(_explaining, total, method, shard, model)
        groups = plan.datasets[shard.dataset].groups
        free = dealt([groups.get(s, s) for s in shard.samples]) is not None
        partner = _partner(engine, model, method, None if free else count)
        case = Case(engine.batch, noise, engine.respond, engine.clean, partner=partner)
        if explain_again(model, engine.batch, method) is not None:
            again = _Again(engine, model, method, count)
            case = replace(case, explain=again, explain_passes=forward_passes(method))
        for protocol in wanted[method.label]:
            if not plan.missing(shard, protocol):
                _try(partial(protocol.plugin.function, case, **protocol.options))
                take(protocol.label, total.rows)
    return total, engine.ragged


@dataclass(frozen=True)
class _Again:
    """A method without a network, for protocols that explain changed inputs: it only counts."""

    engine: Rehearsal
    model: Model
    method: Choice
    count: Callable[[], None]

    def __call__(self, inputs: Tensor) -> Tensor:
        """A map that is made up, the same for the same inputs: rows are shared by their maps."""
        batch = self.engine.lent()
        if self.method.intervening:
            raw_map(self.model, replace(batch, inputs=inputs), self.method)
        else:
            self.count()
        return batch.draw(f"map {identity(canonical(inputs))}", batch.map_shape)


def _partner(
    engine: Rehearsal, model: Model, method: Choice, count: Callable[[], None] | None
) -> Callable[[], Tensor]:
    """A method without a network, for protocols that ask for maps of other samples, once.

    Without a `count` they are at hand.
    """

    @cache
    def maps() -> Tensor:
        batch = engine.lent()
        if count is not None and method.intervening:
            other_maps(model, batch, method)
        elif count is not None:
            count()
        return batch.draw("partner map", batch.map_shape)

    return maps


def _explaining(total: Forecast, method: Choice, shard: Shard, model: Model) -> None:
    """All samples of a shard are explained once."""
    passes, size = method.passes, len(shard.samples)
    if forward_passes(method) is None and method.label not in total.unknown:
        total.unknown.append(method.label)
    rows = (passes.forward or 0) * size
    total.method_rows[method.label] = total.method_rows.get(method.label, 0) + rows
    _calls(total.gradient_calls, shard.model, rows, model)
    total.work += rows + 2 * (passes.backward or 0) * size


def _checking(total: Forecast, method: Choice, shard: Shard, model: Model) -> None:
    """All maps of a shard are held against what their formula promises, once."""
    passes, size = check_passes(method), len(shard.samples)
    total.method_rows[method.label] = total.method_rows.get(method.label, 0) + passes * size
    for _ in range(passes):
        _calls(total.forward_calls, shard.model, size, model)
    total.work += passes * size


def _calls(calls: dict[str, int], name: str, rows: int, model: Model) -> None:
    calls[name] = calls.get(name, 0) + -(-rows // model.micro_batch)


def _try(rehearse: Callable[[], object]) -> None:
    """Rehearse a method or protocol; what cannot be prepared stops the run now, not in an hour."""
    try:
        rehearse()
    except NotApplicable:
        return
    except (InputError, PrerequisiteError):
        raise
    except Exception:  # a plug-in's own fault: the run records it as a failed cell
        return


def _no_network(inputs: Tensor) -> Tensor:
    raise InputError("A rehearsal has no network.")


@dataclass(frozen=True)
class Seconds:
    """What one micro-batch of a model takes."""

    forward: float
    gradient: float
    imputing: float = 0.0  # before it is run forward, where a suite imputes

    @classmethod
    def mean(cls, several: "Sequence[Seconds]") -> "Seconds":
        """The mean over processes."""
        return cls(*(fmean(each) for each in zip(*map(astuple, several), strict=True)))

    def of(self, name: str, found: Forecast) -> float:
        """What the calls of a forecast take."""
        return (
            found.forward_calls.get(name, 0) * self.forward
            + found.gradient_calls.get(name, 0) * self.gradient
            + found.imputed_calls.get(name, 0) * self.imputing
        )


def measure(plan: Plan, name: str) -> Seconds:
    """The seconds of an engine call, a gradient call and an imputation, on real samples."""
    model = plan.models[name]
    shard = next(s for s in plan.shards if s.model == name)
    with model.evaluating(), torch.no_grad():
        batch = plan.batch(shard, shard.samples[: model.micro_batch])
        network = prepare_network(model, batch.inputs[:1]).net
        rows = torch.arange(model.micro_batch, device=batch.inputs.device) % len(batch)
        inputs = model.laid_out(batch.inputs[rows])
        targets = torch.where(batch.targets < 0, 0, batch.targets)
        full = replace(
            batch, inputs=inputs, targets=targets[rows], ids=tuple(map(str, range(len(rows))))
        )
        forward = _time(lambda: model.logits(inputs, net=network))
        imputing = _time(_imputation(batch, rows)) if _needs_imputation(plan, batch) else 0.0
        if "gradients" not in model.has:
            return Seconds(forward, forward, imputing)
        points = model.continuous(inputs)
        gradient = _time(lambda: list(gradients(model, full, 1, lambda s, _: points[s], "logit")))
        return Seconds(forward, gradient, imputing)


def _imputation(batch: Batch, samples: Tensor) -> Callable[[], object]:
    """Impute these samples, each at another share of its pixels."""
    removal, features = make_removal(batch, IMPUTING), elements(batch)
    shares = torch.linspace(0, 1, len(samples), device=samples.device)[:, None]
    uniform = batch.draw("pixels to impute", (features.valid.shape[1],))[samples]
    return partial(removal, features, uniform < shares, samples)


def _needs_imputation(plan: Plan, batch: Batch) -> bool:
    if batch.inputs.ndim != 4:
        return False
    return any(
        kind == "fill" and _imputes(choice.options[option])
        for choice in (*plan.methods, *plan.protocols)
        for option, kind in choice.plugin.nested().items()
    )


def _imputes(fill: FillChoice | None) -> bool:
    return fill is not None and not isinstance(fill, Tensor) and pick(fill)[0] == IMPUTING


def _time(call: Callable[[], object], least: float = 1.0) -> float:
    """Seconds per call, over about a second, the first call left out."""
    call()
    started, calls = time.perf_counter(), 0
    while time.perf_counter() - started < least or calls < 3:
        call()
        calls += 1
    return (time.perf_counter() - started) / calls
