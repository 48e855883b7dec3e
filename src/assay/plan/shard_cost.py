"""What the missing cells of a shard cost: its methods and protocols run without a network."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from assay.engine.engine import Engine
from assay.errors import HarmError, InputError, NotApplicable, PrerequisiteError
from assay.methods.attribution import (
    MAPS_HASH,
    attribute,
    explain_again,
    forward_passes,
    raw_map,
)
from assay.plan.dosed import dosed_case
from assay.plan.emptied import emptied_answers, fills_of
from assay.plan.finished import Finished, ResponseShelf
from assay.plan.plan import Plan, Shard
from assay.plan.promised import promise_passes
from assay.plan.rehearsal import FirstOf, Rehearsal, explains_again, made_up_partner
from assay.plan.scoring import dealt, run_protocol
from assay.plugins.registry import Passes
from assay.processes import Stopped
from assay.removal import make_removal
from assay.suite.spec import Choice
from assay.types import Batch, Case, Model, Observation


@dataclass(frozen=True)
class MissingCells:
    """What a shard lacks: protocols by method, and methods of which only the maps are needed."""

    protocols: dict[str, list[Choice]]
    maps_only: set[str]

    def __contains__(self, label: str) -> bool:
        return bool(self.protocols[label]) or label in self.maps_only

    def __bool__(self) -> bool:
        return any(self.protocols.values()) or bool(self.maps_only)


@dataclass(frozen=True)
class EngineRows:
    """Rows that the engine asked for, of the rehearsed samples together.

    Attributes:
        name: The method or protocol that needs them first; `clean` for the samples themselves,
            `all absent` for the samples without any unit.
        explains: Whether it is a method.
        asked: The rows of each question.
        imputed: The rows of each question whose inputs are imputed.
        shared: How many of the rows all methods share.
    """

    name: str
    explains: bool
    asked: Sequence[int]
    imputed: Sequence[int]
    shared: int


@dataclass(frozen=True)
class Explanation:
    """Explaining all samples once with a method that passes through the network itself."""

    method: Choice
    passes: Passes


@dataclass(frozen=True)
class PromiseCheck:
    """Comparing all maps of a method with what its formula promises."""

    method: str
    passes: int  # forward, per sample


@dataclass(frozen=True)
class Uncounted:
    """A method or protocol of a user that was not run to count its passes."""

    name: str


@dataclass(frozen=True)
class ShardCost:
    """What the missing cells of a shard cost, as far as the first samples show it.

    Attributes:
        samples: How many samples were rehearsed.
        parts: The costs in the order of a run.
        made: Passes through the network during the rehearsal, to measure the size of a layer.
        ragged: Whether other samples may cost differently.
    """

    samples: int
    parts: Sequence[EngineRows | Explanation | PromiseCheck | Uncounted]
    made: int
    ragged: bool


def kind_of(finished: Finished, shard: Shard, missing: MissingCells) -> tuple[object, ...]:
    """Shards of one kind differ only in their samples: one sample of each costs the same."""
    plan = finished.plan
    unexplained, unpromised = _unexplained(finished, shard, missing)
    return (
        shard.dataset, shard.model, shard.split,
        id(missing.protocols),  # shards in the same state share it
        frozenset(missing.maps_only), frozenset(unexplained), frozenset(unpromised),
        _free_partners(plan, shard), ResponseShelf(finished, shard).stored_rows(),
        finished.state(shard).absent,
    )  # fmt: skip


def rehearse(
    finished: Finished, shard: Shard, samples: int, missing: MissingCells, users: bool = True
) -> ShardCost:
    """The cost of a shard from its first samples. Wrong input is found before the run begins.

    With `users=False` no code of users runs: it may hang, or end the process. What it finds wrong
    fails its cells during the run.
    """
    plan = finished.plan
    unexplained, unpromised = _unexplained(finished, shard, missing)
    batch = plan.batch(shard, shard.samples[:samples])
    methods = [m for m in plan.methods if m.label in unexplained]
    model = _rehearsed_model(plan, shard, batch, methods)
    rehearsal = Rehearsal(model)
    shelf, guard = ResponseShelf(finished, shard), plan.networks.guard(shard.model, model)
    engine = Engine(batch, rehearsal, FirstOf(shelf, samples), guard)
    parts: list[EngineRows | Explanation | PromiseCheck | Uncounted] = []

    def note_rows(name: str, explains: bool = False) -> None:
        asked, imputed, shared = rehearsal.take()
        parts.append(EngineRows(name, explains, asked, imputed, shared))

    def explain(method: Choice) -> None:
        parts.append(Explanation(method, method.passes_on(model, engine.batch)))

    def score(case: Case, protocols: Sequence[Choice]) -> None:
        for protocol in protocols:
            if plan.missing(shard, protocol):
                continue
            if protocol.own and not users:
                parts.append(Uncounted(protocol.label))
            else:
                _try(partial(run_protocol, protocol, case, engine))
                note_rows(protocol.label)

    if not shard.split:
        engine.clean  # noqa: B018  # requested first, as in a run
    note_rows("clean")
    asked = [p for several in missing.protocols.values() for p in several]
    unmeasured = {} if shard.split else fills_of(plan, shard, asked)
    for key, fill in unmeasured.items():
        if key not in finished.state(shard).absent:
            emptied_answers(plan, shard, engine, fill)
    if rehearsal.asked:
        note_rows("all absent")
    formula = ""  # of the last method; methods that only reduce it differently cost nothing
    refused: set[str] = set()  # formulas that do not apply here
    promised: set[str] = set()
    for method in _applicable(plan, shard, missing):
        closed = method.own and not users
        if not closed:
            _check_fills(batch, method)
        closed = closed and (method.intervening or method.passes_by_network)
        if method.label in unexplained and method.formula_key != formula:
            formula = method.formula_key
            if closed:
                applies = True
                parts.append(Uncounted(method.label))
            elif method.intervening:
                applies = _try(partial(raw_map, model, engine.batch, method, engine))
                note_rows(method.label, explains=True)
            else:
                applies = _try(partial(explain, method))
            refused |= set() if applies else {formula}
        if method.formula_key in refused:
            continue
        if method.label in unpromised and method.formula_key not in promised:
            promised.add(method.formula_key)
            parts.append(PromiseCheck(method.label, promise_passes(method)))
        doses = [d for d in plan.doses.get(method.label, ()) if d.label in missing]
        if not missing.protocols[method.label] and not doses:
            continue
        if closed and method.label not in unexplained:  # protocols may explain again
            parts.append(Uncounted(method.label))
        count = None if closed else partial(explain, method)
        free = _free_partners(plan, shard)
        case = _made_up_case(engine, method, count, free)
        score(case, missing.protocols[method.label])
        if doses and case.partner is not None and _try(case.partner):
            note_rows(method.label, explains=True)
            for dose in doses:
                engine.forget()
                order = [0] * len(engine.batch) if free else None
                score(dosed_case(case, case.attribution, order), missing.protocols[dose.label])
    return ShardCost(samples, parts, sum(rehearsal.made), rehearsal.ragged)


def check_given_maps(plan: Plan, shard: Shard, missing: MissingCells) -> None:
    """Stop where maps that were computed elsewhere do not fit the samples of a shard."""
    given = [m for m in _applicable(plan, shard, missing) if MAPS_HASH in m.options]
    if given:
        batch = plan.batch(shard, shard.samples[:1])
        inputs = batch.inputs.expand(len(shard.samples), *batch.inputs.shape[1:])
        contents = batch.contents * len(shard.samples)
        whole = replace(batch, ids=shard.samples, inputs=inputs, contents=contents)
        model = _without_network(plan.models[shard.model])
        for method in given:
            _try(partial(attribute, model, whole, method))


def _applicable(plan: Plan, shard: Shard, missing: MissingCells) -> Iterator[Choice]:
    """The methods that have something to do."""
    for method in plan.methods:
        if _wanted(plan, method, missing) and not plan.missing(shard, method):
            yield method


def _wanted(plan: Plan, method: Choice, missing: MissingCells) -> bool:
    """Whether the maps of a method are needed, also to mix them."""
    doses = plan.doses.get(method.label, ())
    return any(choice.label in missing for choice in (method, *doses))


def _unexplained(
    finished: Finished, shard: Shard, missing: MissingCells
) -> tuple[set[str], set[str]]:
    """The methods whose maps are not stored, and those whose promise is not compared either."""
    methods = [
        m
        for m in finished.plan.methods
        if _wanted(finished.plan, m, missing) and not finished.has_maps(shard, m)
    ]
    unpromised = {m.label for m in methods if not shard.split and not finished.promises(shard, m)}
    return {m.label for m in methods}, unpromised


def _free_partners(plan: Plan, shard: Shard) -> bool:
    """Whether maps of other samples cost nothing: all have a partner in the shard."""
    groups = plan.dataset_of(shard).groups
    return dealt([groups.get(s, s) for s in shard.samples]) is not None


def _check_fills(batch: Batch, method: Choice) -> None:
    """Make the fills of a method, whose prerequisites may be missing."""
    for option, kind in method.plugin.nested().items():
        if kind == "fill" and method.options[option] is not None:
            with contextlib.suppress(NotApplicable):
                make_removal(batch, method.options[option])


def _made_up_case(
    engine: Engine, method: Choice, count: Callable[[], None] | None, free_partners: bool
) -> Case:
    """What a protocol sees of a method, with made-up maps; without `count` it is never run."""
    engine.forget()
    noise = engine.batch.draw("rehearsal map", engine.batch.map_shape)
    partner = made_up_partner(engine, method, None if free_partners else count)
    case = Case(engine.batch, noise, engine.verb, engine.clean, partner=partner)
    if count is None or explain_again(engine, method) is None:
        return case
    passes = forward_passes(engine.model, engine.batch, method)
    return replace(case, explain=explains_again(engine, method, count), explain_passes=passes)


def _rehearsed_model(plan: Plan, shard: Shard, batch: Batch, methods: Sequence[Choice]) -> Model:
    """The model for the rehearsal. Its network runs only if its layers decide a cost."""
    needs_layer = any(
        "spatial" in m.plugin.required(m.options) and (m.intervening or m.passes_by_network)
        for m in methods
        if not plan.missing(shard, m)
    )
    if needs_layer or shard.model in plan.networks.prepared:
        return plan.ready(shard, batch).model
    return _without_network(plan.models[shard.model])


def _without_network(model: Model) -> Model:
    """A model whose network does not run to see its outputs."""
    return replace(model, observed=Observation(outputs=0, binary=False))


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
