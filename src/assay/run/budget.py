"""Cut a suite to fit a time budget: fewer samples first, then fewer steps and subsets."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.plan.plan import Plan
from assay.plugins import registry
from assay.plugins.display_names import name_key
from assay.run.durations import duration as duration
from assay.run.durations import seconds_of as seconds_of
from assay.run.suite_run import estimate, prepare, timings
from assay.store import Store
from assay.suite.fields import Cut
from assay.suite.spec import Choice, Spec, choose, choose_one, read_suite, usual_label
from assay.training.trained_weights import TrainedWeights

COPIES = "noise samples"  # of the option `noise`
FEWEST = 25  # samples: with fewer, intervals are too wide to separate methods
# The options that may be halved, and the smallest useful value of each.
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
    timeout: float | str | None = None,
) -> tuple[Spec, str, TrainedWeights]:
    """Cut a suite so that its missing part in `out` is expected to fit the budget.

    Samples are cut first, balanced over the classes, down to 25. Then `steps`, `subsets`, `masks`
    and `samples` of methods and protocols are halved. A run that the same call started gets the
    same cut again, so that it can be resumed.

    Args:
        spec: The suite.
        out: The run's folder.
        budget: Seconds, or a text such as `90s`, `10min`, `1.5h`.
        workers: As for the run.
        device: As for the run.
        micro_batch: As for the run.
        timeout: As for the run. Under one, plug-ins of users do not run to count their passes.

    Returns:
        The suite as it will be run, with the cut in its notes; a sentence that describes the cut;
        and the weights that were trained for the timing, for use in the run.

    Raises:
        InputError: The budget is not a time.
    """
    seconds = seconds_of(budget)
    store = Store(out)
    suite_key = registry.identity(spec.dump())
    earlier = _earlier(store)
    plan, settings = prepare(spec, store, device, micro_batch)
    expected: float | None = None
    if earlier is not None and (earlier.asked, earlier.seconds) == (suite_key, seconds):
        cut = earlier
    else:
        times = timings(plan, store, settings, workers)

        def cost(cut: Cut) -> float:
            smaller = _cut_plan(plan, cut)
            return estimate(smaller, store, workers, times, timeout is None).seconds or 0.0

        cut, expected = _find(plan, Cut(seconds=seconds, asked=suite_key, limit=spec.limit), cost)
        cut = cut.model_copy(update={"over": expected > seconds})
    words = _words(plan, cut)
    summary = f"budget {duration(seconds)}: {words or 'nothing had to be cut'}"
    fitted = _cut_suite(spec, cut)
    exceeded = ", and even so it is expected to take longer" if cut.over else ""
    notes = f"{spec.notes} {summary}{exceeded}.".strip() if words else spec.notes
    estimated = "as before" if expected is None else f"estimated {duration(expected)}"
    if plan.set_protocols:
        estimated += ", without the networks that are trained"
    if expected is not None and expected > seconds:
        estimated += ", longer than that: this is the least"
    return fitted.model_copy(update={"notes": notes}), f"{summary} ({estimated}).", plan.trained


def _earlier(store: Store) -> Cut | None:
    """The cut of the run in the folder; None if there is none."""
    path = store.path("spec.yaml")
    return read_suite(path).budget if path.is_file() else None


def _find(plan: Plan, whole: Cut, cost: Any) -> tuple[Cut, float]:
    """The smallest cut that fits, else the largest possible one, and its expected seconds."""
    most = max(len(plan.samples(name)) for name in plan.datasets)
    full = cost(whole)
    if full <= whole.seconds:
        return whole, full
    fewest = min(FEWEST, most)
    cut = whole.model_copy(update={"limit": fewest if fewest < most else whole.limit})
    least = cost(cut)
    if least <= whole.seconds and least < full:  # time is linear in the number of samples
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
        if _words(plan, smaller) == _words(plan, cut):  # every option is at its minimum
            break
        cut, least = smaller, cost(smaller)
    return cut, least


def _cut_plan(plan: Plan, cut: Cut) -> Plan:
    spec = _cut_suite(plan.spec, cut)
    methods = choose("method", spec.methods, spec.origin)
    protocols = choose("protocol", spec.protocols, spec.origin)
    return replace(plan, spec=spec, methods=tuple(methods), protocols=tuple(protocols))


def _cut_suite(spec: Spec, cut: Cut) -> Spec:
    """The suite with fewer samples, steps and subsets."""
    changes: dict[str, Any] = {"limit": cut.limit, "budget": cut}
    for kind, items in (("method", spec.methods), ("protocol", spec.protocols)):
        smaller = _smaller(kind, items, cut.halvings)
        changes[f"{kind}s"] = [
            _changed(kind, item, new) for item, new in zip(items, smaller, strict=True)
        ]
    return spec.model_copy(update=changes)


def _smaller(kind: str, items: Sequence[Any], halvings: int) -> list[dict[str, int]]:
    """The cut options of each item. Options whose values a suite compares are not cut."""
    choices = [choose_one(kind, item) for item in items]
    values: dict[tuple[str, str], set[str]] = {}
    for choice in choices:
        for option in FLOORS[kind].keys() & choice.options.keys():
            shown = registry.describe(choice.options[option])
            values.setdefault((choice.plugin.name, option), set()).add(shown)
        if choice.noise is not None:
            values.setdefault((_base(choice), COPIES), set()).add(str(choice.noise.samples))
    cuts = []
    for choice in choices:
        cut: dict[str, int] = {}
        for option, floor in FLOORS[kind].items():
            value = choice.options.get(option)
            uniform = len(values.get((choice.plugin.name, option), ())) == 1
            if halvings and uniform and type(value) is int and value > floor:
                cut[option] = max(floor, value >> halvings)
        copies = choice.noise.samples if choice.noise else 0
        same = len(values.get((_base(choice), COPIES), ())) == 1
        if halvings and same and copies > FLOORS[kind]["samples"]:
            cut[COPIES] = max(FLOORS[kind]["samples"], copies >> halvings)
        cuts.append(cut)
    return cuts


def _base(choice: Choice) -> str:
    """The method on which a preset is based, or the method itself."""
    return str(choice.plugin.formula or choice.plugin.name)


def _changed(kind: str, item: Any, options: dict[str, int]) -> Any:
    if not options:
        return item
    plain = {name: value for name, value in options.items() if name != COPIES}
    copies = {"samples": options[COPIES]} if COPIES in options else {}
    label = _relabelled(choose_one(kind, item), plain)
    if not isinstance(item, Choice):
        name, written = registry.pick(item)
        noise = {"noise": {**(written.get("noise") or {}), **copies}} if copies else {}
        key = name_key(written, registry.get(kind, name).option_names)
        named = {key: label} if key else {}
        return {name: {**written, **plain, **noise, **named}}
    changed = replace(
        item,
        options={**item.options, **plain},
        noise=item.noise and item.noise.model_copy(update=copies),
    )
    usual = item.label == usual_label(item)
    return replace(changed, label=usual_label(changed) if usual else label)


def _relabelled(choice: Choice, options: dict[str, int]) -> str:
    """The user's label, with the numbers that were cut replaced."""
    label = choice.label
    for option, value in options.items():
        label = re.sub(rf"\b{option}={choice.options[option]}\b", f"{option}={value}", label)
    return label


def _current_value(choice: Choice, option: str) -> int:
    if option == COPIES and choice.noise is not None:
        return choice.noise.samples
    return int(choice.options[option])


def _words(plan: Plan, cut: Cut) -> str:
    """The cut in words: `64 of 200 samples, integrated_gradients steps 50 -> 25`."""
    parts = []
    for name in plan.datasets:
        available = len(plan.samples(name))
        used = min(available, cut.limit or math.inf)
        if used < available:
            of = f" of {name}" if len(plan.datasets) > 1 else ""
            parts.append(f"{used} of {available} samples{of}")
    for kind, choices in (("method", plan.methods), ("protocol", plan.protocols)):
        for choice, new in zip(choices, _smaller(kind, choices, cut.halvings), strict=True):
            parts += [
                f"{choice.plugin.name} {option} {_current_value(choice, option)} -> {value}"
                for option, value in new.items()
            ]
    return ", ".join(dict.fromkeys(parts))
