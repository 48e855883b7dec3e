"""A run that fits a time: fewer samples first, then fewer steps and sets, and it says which."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.errors import InputError
from assay.plan.plan import Plan
from assay.plugins import registry
from assay.run.suite_run import estimate, prepare, timings
from assay.store import Store
from assay.suite.spec import Choice, Cut, Spec, choose, choose_one, parse_suite, usual_label
from assay.training.trained_weights import TrainedWeights

COPIES = "noise samples"  # of the option `noise`
UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}
FEWEST = 25  # samples: below, intervals are too wide to tell methods apart
# What may be halved, and the least of each that still means something.
FLOORS = {
    "method": {"steps": 10, "samples": 5, "masks": 100, "subsets": 50},
    "protocol": {"steps": 5, "samples": 5, "masks": 100, "subsets": 10},
}


def fit(
    spec: Spec,
    out: str | Path,
    budget: str | float,
    *,
    workers: int = 1,
    device: str | None = None,
    micro_batch: int | None = None,
) -> tuple[Spec, str, TrainedWeights]:
    """Cut a suite so that what is missing of it in `out` is expected to take no longer.

    Samples go first, balanced over the classes, down to 25; then `steps`, `subsets`, `masks` and
    `samples` of methods and protocols are halved. A run that the same call began is cut alike, so
    that it goes on with the same numbers.

    Args:
        spec: The suite.
        out: The run's folder.
        budget: Seconds, or a text such as `90s`, `10min`, `1.5h`.
        workers: As for the run.
        device: As for the run.
        micro_batch: As for the run.

    Returns:
        The suite as it will be run, with the cut in its notes; the cut in words; and what was
        trained to time it, for the run to use.

    Raises:
        InputError: The budget is no time.
    """
    seconds = seconds_of(budget)
    store = Store(out)
    asked = registry.identity(spec.dump())
    earlier = _earlier(store)
    plan, settings = prepare(spec, store, device, micro_batch)
    expected: float | None = None
    if earlier is not None and (earlier.asked, earlier.seconds) == (asked, seconds):
        cut = earlier
    else:
        times = timings(plan, store, settings, workers)

        def cost(cut: Cut) -> float:
            return estimate(_cut_plan(plan, cut), store, workers, times).seconds or 0.0

        cut, expected = _find(plan, Cut(seconds=seconds, asked=asked, limit=spec.limit), cost)
        cut = cut.model_copy(update={"over": expected > seconds})
    words = _words(plan, cut)
    said = f"budget {duration(seconds)}: {words or 'nothing had to be cut'}"
    fitted = _cut_suite(spec, cut)
    missed = ", and even so it is expected to take longer" if cut.over else ""
    notes = f"{spec.notes} {said}{missed}.".strip() if words else spec.notes
    told = "as before" if expected is None else f"estimated {duration(expected)}"
    if expected is not None and expected > seconds:
        told += ", longer than that: this is the least"
    return fitted.model_copy(update={"notes": notes}), f"{said} ({told}).", plan.trained


def seconds_of(budget: str | float) -> float:
    """A time in seconds.

    Raises:
        InputError: It is none, or not above 0.
    """
    if isinstance(budget, float):
        budget = f"{budget:f}"
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(budget))
    unit = found and (found[2] or "s")
    if not found or unit not in UNITS or not 0 < float(found[1]) < math.inf:
        raise InputError(
            f"Expected `budget` to be a time such as `90s`, `10min` or `2h`, got {budget!r}."
        )
    return float(found[1]) * UNITS[str(unit)]


def duration(seconds: float) -> str:
    """A time as people say it."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest if not hours else 0, "s")]
    return " ".join(f"{n} {unit}" for n, unit in parts if n)


def _earlier(store: Store) -> Cut | None:
    """The cut of the run that lies in the folder."""
    path = store.path("spec.yaml")
    return parse_suite(path.read_text(), f"`{path}`").budget if path.is_file() else None


def _find(plan: Plan, whole: Cut, cost: Any) -> tuple[Cut, float]:
    """The least cut that fits, or the most there is; and what it is expected to take."""
    most = max(len(plan.samples(name)) for name in plan.datasets)
    full = cost(whole)
    if full <= whole.seconds:
        return whole, full
    fewest = min(FEWEST, most)
    cut = whole.model_copy(update={"limit": fewest if fewest < most else whole.limit})
    least = cost(cut)
    if least <= whole.seconds and least < full:  # time grows evenly with the samples
        share = (whole.seconds - least) / (full - least)
        limit = fewest + math.floor(share * (most - fewest))
        while limit > fewest:
            tried = whole.model_copy(update={"limit": limit})
            expected = cost(tried)
            if expected <= whole.seconds:
                return tried, expected
            limit = math.floor(0.95 * limit)
        return cut, least
    while least > whole.seconds:
        smaller = cut.model_copy(update={"halvings": cut.halvings + 1})
        if _words(plan, smaller) == _words(plan, cut):  # everything is at its least
            break
        cut, least = smaller, cost(smaller)
    return cut, least


def _cut_plan(plan: Plan, cut: Cut) -> Plan:
    spec = _cut_suite(plan.spec, cut)
    methods, protocols = choose("method", spec.methods), choose("protocol", spec.protocols)
    return replace(plan, spec=spec, methods=tuple(methods), protocols=tuple(protocols))


def _cut_suite(spec: Spec, cut: Cut) -> Spec:
    """The suite with fewer samples, steps and sets."""
    changes: dict[str, Any] = {"limit": cut.limit, "budget": cut}
    for kind, items in (("method", spec.methods), ("protocol", spec.protocols)):
        smaller = _smaller(kind, items, cut.halvings)
        changes[f"{kind}s"] = [
            _changed(kind, item, new) for item, new in zip(items, smaller, strict=True)
        ]
    return spec.model_copy(update=changes)


def _smaller(kind: str, items: Sequence[Any], halvings: int) -> list[dict[str, int]]:
    """For each item the options that are cut; what a suite compares on purpose is left alone."""
    choices = [choose_one(kind, item) for item in items]
    values: dict[tuple[str, str], set[str]] = {}
    for choice in choices:
        for option in FLOORS[kind].keys() & choice.options.keys():
            shown = registry.describe(choice.options[option])
            values.setdefault((choice.plugin.name, option), set()).add(shown)
        if choice.noise is not None:
            values.setdefault((_base(choice), COPIES), set()).add(str(choice.noise.samples))
    found = []
    for choice in choices:
        cut: dict[str, int] = {}
        for option, floor in FLOORS[kind].items():
            value = choice.options.get(option)
            alone = len(values.get((choice.plugin.name, option), ())) == 1
            if halvings and alone and type(value) is int and value > floor:
                cut[option] = max(floor, value >> halvings)
        copies = choice.noise.samples if choice.noise else 0
        same = len(values.get((_base(choice), COPIES), ())) == 1
        if halvings and same and copies > FLOORS[kind]["samples"]:
            cut[COPIES] = max(FLOORS[kind]["samples"], copies >> halvings)
        found.append(cut)
    return found


def _base(choice: Choice) -> str:
    """The method a preset is made of, or the method itself."""
    return str(choice.plugin.formula or choice.plugin.name)


def _changed(kind: str, item: Any, options: dict[str, int]) -> Any:
    if not options:
        return item
    own = {name: value for name, value in options.items() if name != COPIES}
    copies = {"samples": options[COPIES]} if COPIES in options else {}
    label = _relabelled(choose_one(kind, item), own)
    if not isinstance(item, Choice):
        name, written = registry.pick(item)
        noise = {"noise": {**(written.get("noise") or {}), **copies}} if copies else {}
        named = {"label": label} if "label" in written else {}
        return {name: {**written, **own, **noise, **named}}
    changed = replace(
        item,
        options={**item.options, **own},
        noise=item.noise and item.noise.model_copy(update=copies),
    )
    usual = item.label == usual_label(item)
    return replace(changed, label=usual_label(changed) if usual else label)


def _relabelled(choice: Choice, options: dict[str, int]) -> str:
    """A label of the user's stays, but does not go on naming a number that was cut."""
    label = choice.label
    for option, value in options.items():
        label = re.sub(rf"\b{option}={choice.options[option]}\b", f"{option}={value}", label)
    return label


def _now(choice: Choice, option: str) -> int:
    if option == COPIES and choice.noise is not None:
        return choice.noise.samples
    return int(choice.options[option])


def _words(plan: Plan, cut: Cut) -> str:
    """What was cut: `64 of 200 samples, integrated_gradients steps 50 -> 25`."""
    parts = []
    for name in plan.datasets:
        there, taken = len(plan.samples(name)), min(len(plan.samples(name)), cut.limit or math.inf)
        if taken < there:
            of = f" of {name}" if len(plan.datasets) > 1 else ""
            parts.append(f"{taken} of {there} samples{of}")
    for kind, choices in (("method", plan.methods), ("protocol", plan.protocols)):
        for choice, new in zip(choices, _smaller(kind, choices, cut.halvings), strict=True):
            parts += [
                f"{choice.plugin.name} {option} {_now(choice, option)} -> {value}"
                for option, value in new.items()
            ]
    return ", ".join(dict.fromkeys(parts))
