"""The Python interface: benchmark, dry_run, explain, score."""

import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.data.grouping import Groups
from assay.data.memory import as_dataset
from assay.engine.engine import Engine
from assay.errors import InputError, NotApplicable, unknown, warn
from assay.methods.attribution import attribute, given, other_maps
from assay.plan.applicable import applicable_to_any
from assay.plan.class_checks import check_classes
from assay.plan.forecast import Forecast
from assay.plan.model_choices import (
    Network,
    SeveralNetworks,
    check_shared,
    models_of,
    one_model,
)
from assay.plan.plan import Plan
from assay.plan.python_items import fits_data, listed, method_of, protocol_of
from assay.plan.repeats import check_repeats
from assay.plan.resolving import build_one
from assay.plan.scoring import dealt, score_case, settled
from assay.plan.trained_on import warn_of_tuned_samples
from assay.plugins.options import refuse_deep
from assay.results import Results
from assay.run import dry_run as run_dry
from assay.run import run
from assay.run.budget import fit
from assay.run.shard import make_engine
from assay.run.suite_run import ending_in_order, prepare
from assay.store import NOWHERE, CleanAccuracy, Store
from assay.store.data_facts import DataFacts, knowing
from assay.suite.defaults import METHODS, MODEL_PROTOCOLS, PROTOCOLS
from assay.suite.from_options import dataset_item
from assay.suite.spec import Choice, Spec, make_suite
from assay.suite.written import with_fields
from assay.types import Case, Dataset, Model, Scores

Target = int | str  # `label`, `predicted`, or a class by its number or name


@torch.inference_mode(False)  # gradients are needed, also when called in inference mode
def benchmark(
    net: SeveralNetworks,
    data: object,
    methods: Sequence[object] | Mapping[str, object] | None = None,
    protocols: Sequence[object] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    train: object = None,
    target: Target = "label",
    limit: int | None = None,
    budget: str | float | None = None,
    groups: Groups | Literal["none"] | None = None,
    controls: Literal["on", "off"] = "on",
    validate: bool = False,
    **run_options: Any,
) -> Results:
    """Score attribution methods on your model and data.

    Args:
        net: A network, a `Model` from `assay.model`, or a name as on the command line, such as
            `hf:FOLDER`. A dict of these by name scores several models in one run. Also models as
            a suite lists them, `[{name: options}]`, with `checkpoints` or without.
        data: `(X, y)` with X as the network takes it; `y=None` explains the predicted class. Also a
            torch dataset, a `Dataset`, or a path or name as on the command line.
        methods: Names, `{name: options}`, `{"label": tensor of maps}`, callables
            `(model, batch) -> Tensor`, or objects with captum's `attribute(inputs, target=...)`,
            also as `{"label": object}` or `{object: options}`. By default a fast set of those that
            apply.
        protocols: Names or `{name: options}`. By default a fast set of those that apply.
        seed: The seed of all random numbers.
        out: The folder of the run, from which it can be resumed; by default a temporary one.
        train: Training samples, in the same forms as `data`, for protocols that train networks.
        target: The class that is explained: `label`, `predicted`, or one class by its number or
            name.
        limit: The largest number of samples.
        budget: A time, `"10min"` or seconds. The run uses fewer samples, then fewer steps and sets,
            until it is expected to fit; the notes of the results list the reductions.
        groups: What intervals resample together, one label per sample or by its id. By default
            images and texts that are nearly the same, where `data` is not read from files; `none`
            searches for none.
        controls: `on` adds the control `random` to a run that ranks methods; `off` leaves it out.
        validate: Whether maps mixed with shuffled ones are scored too: see `Results.validation`.
        **run_options: `device`, `micro_batch`, `keep_maps`, `progress`, `one_thread`
            (False lets one large network use all cores; True, the default, is faster for most
            networks and equals the command line bit for bit), `workers`.
    """
    _check_known(run_options, run)
    progress, keep = run_options.get("progress", True), None
    if out is None:
        keep = tempfile.TemporaryDirectory(prefix="assay-")
        out = keep.name
    with knowing(DataFacts.read(Store(out), progress)):
        spec = _spec(net, data, methods, protocols, seed, target, limit, train, groups)
        spec = with_fields(spec, controls=controls, validate=validate)
        _say_notes(spec, progress)
        if budget is not None:
            shared = ("workers", "device", "micro_batch", "timeout")
            how = {n: run_options[n] for n in shared if n in run_options}
            spec, message, _ = fit(spec, out, budget, **how)
            if progress:
                print(message, file=sys.stderr)
        clean = partial(_say_clean, aloud=progress)
        results = run(spec, out, keep=keep, clean=clean, **run_options)
    if results.failures:
        cells = [f"{f['method']} x {f['protocol']}: {f['message']}" for f in results.failures]
        text = f"{len(cells)} cells failed, see `results.failures`. The first is {cells[0]}"
        warn(text)
    return results


def _say_notes(spec: Spec, aloud: bool) -> None:
    """Print what was found in the data, such as near-duplicates."""
    for dataset in spec.datasets if aloud else ():
        if isinstance(dataset, Dataset) and dataset.note:
            print(f"{dataset.name}: {dataset.note}.", file=sys.stderr)


def _say_clean(row: CleanAccuracy, aloud: bool) -> None:
    """Print the accuracy of a network; warn if it is hardly above chance."""
    samples = f"{row.accuracy:.1%} of {row.n} samples of"
    if row.hardly_above_chance:
        warn(
            f"`{row.model}` is right on only {samples} `{row.dataset}`, hardly above chance: "
            f"labels or normalisation probably do not fit the model."
        )
    elif aloud:
        print(f"{row.model} is right on {samples} {row.dataset}.", file=sys.stderr)


@torch.inference_mode(False)
def dry_run(
    net: SeveralNetworks,
    data: object,
    methods: Sequence[object] | Mapping[str, object] | None = None,
    protocols: Sequence[object] | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    *,
    train: object = None,
    target: Target = "label",
    limit: int | None = None,
    groups: Groups | Literal["none"] | None = None,
    controls: Literal["on", "off"] = "on",
    validate: bool = False,
    **options: Any,
) -> Forecast:
    """The cost of `benchmark` with these arguments: exact forward passes, estimated time.

    The cost of a method that is a plain function is unknown and not counted.
    """
    _check_known(options, run_dry)
    with knowing(DataFacts.read(NOWHERE if out is None else Store(out))):
        spec = _spec(net, data, methods, protocols, seed, target, limit, train, groups)
        spec = with_fields(spec, controls=controls, validate=validate)
        return run_dry(spec, out, **options)


def _check_known(options: Mapping[str, object], function: Callable[..., object]) -> None:
    """Refuse options that the function behind a call does not have."""
    own = {"spec", "out", "keep", "clean", "trained"}  # set by the call itself
    for name in options:
        if name not in (allowed := inspect.signature(function).parameters.keys() - own):
            raise unknown("run option", name, allowed)
    refuse_deep(options, "the options of a run")


@ending_in_order()
@torch.inference_mode(False)
def explain(
    net: Network,
    X: object,
    y: object,
    method: object,
    *,
    seed: int = 0,
    **options: Any,
) -> Tensor:
    """A method's maps, reduced to one signed number per position: `[B, H, W]` for images.

    `y` is the class explained for each sample, or None for the predicted one. X may be a `Dataset`
    with y None: its labels are explained, and an image or text in it has the map that it has in a
    run.
    """
    explained = one_model(net)
    choice = method_of(method, options, explained)
    # A suite requires a protocol; none is run here.
    data = _samples(X, y)
    spec = _spec(explained, data, [choice], PROTOCOLS[:1], seed, "label", None, groups="none")
    maps = []
    with _engines(spec) as engines:
        for plan, engine in engines:
            model = next(iter(plan.models.values()))
            missing = plan.missing(plan.shards[0], choice)
            if missing:
                raise NotApplicable(
                    f"Method `{choice.label}` needs {plan.say_missing(model.name, missing)}"
                )
            try:
                maps.append(attribute(engine.model, engine.batch, choice, engine))
            except NotApplicable as reason:
                raise NotApplicable(f"Method `{choice.label}` does not apply: {reason}") from None
    return torch.cat(maps)


@ending_in_order()
@torch.inference_mode(False)
def score(
    net: Network,
    X: object,
    y: object,
    maps: Tensor,
    protocol: object,
    *,
    seed: int = 0,
    **options: Any,
) -> Tensor:  # [B]
    """A protocol's score of each sample's map.

    X may be a `Dataset` with y None: it has its own labels, and truth for protocols that need it.
    For a protocol that judges the whole set (soundness), the result is each sample's contribution.
    """
    data = _samples(X, y)
    chosen = protocol_of(protocol, options)
    if chosen.plugin.scope == "set":
        raise InputError(
            f"Expected a protocol that scores single maps, got `{chosen.label}`, which needs a "
            f"method and a whole data set. Use `assay.benchmark(..., train=(X, y))`."
        )
    choice = given("maps", maps)
    spec = _spec(one_model(net), data, [choice], [chosen], seed, "label", None, groups="none")
    scores: list[Scores] = []
    with _engines(spec) as engines:
        for plan, engine in engines:
            model = next(iter(plan.models.values()))
            missing = plan.missing(plan.shards[0], chosen)
            if missing:
                raise NotApplicable(
                    f"Protocol `{chosen.label}` needs {plan.say_missing(model.name, missing)}"
                )
            attribution = attribute(engine.model, engine.batch, choice, engine)
            broken = ~torch.isfinite(attribution).flatten(1).all(1)
            if bool(broken.any()):
                first = engine.batch.ids[int(broken.int().argmax())]
                raise InputError(
                    f"Expected finite maps, got NaN or inf in the map of sample `{first}`."
                )
            partner = _partner(engine, choice, attribution)
            case = Case(engine.batch, attribution, engine.verb, engine.clean, partner=partner)
            scores.append(score_case(chosen, case, engine))
            engine.forget()
    return settled(chosen, scores)


def _samples(X: object, y: object) -> object:
    """The samples of a call: a data set, or inputs with their classes."""
    if not isinstance(X, Dataset):
        return X, y
    if y is not None:
        raise InputError(
            f"Expected y to be None with dataset `{X.name}`, which has its own labels."
        )
    return X


def _partner(engine: Engine, choice: Choice, maps: Tensor) -> Callable[[], Tensor]:
    """The maps of other samples, one per sample; from this batch if all have a partner in it."""
    order = dealt(engine.batch.groups or engine.batch.ids)
    if order is not None:
        return lambda: maps[order]
    return lambda: other_maps(engine.model, engine.batch, choice, engine)


@contextmanager
def _engines(spec: Spec) -> Iterator[Iterator[tuple[Plan, Engine]]]:
    plan, _ = prepare(spec, NOWHERE)
    check_classes(plan, plan.shards)
    warn_of_tuned_samples(plan, plan.pairs)
    check_repeats(plan, plan.shards[0])
    (model,) = plan.models.values()
    with model.evaluating(), torch.no_grad():
        yield ((plan, make_engine(plan, shard)) for shard in plan.shards)


def _spec(
    net: SeveralNetworks,
    data: object,
    methods: Sequence[object] | Mapping[str, object] | None,
    protocols: Sequence[object] | None,
    seed: int,
    target: Target,
    limit: int | None,
    train: object = None,
    groups: Groups | Literal["none"] | None = None,
) -> Spec:
    models = models_of(net)
    dataset = _dataset(data, models, groups)
    for model in models:
        _warn_of_another_output(model, dataset)
    models = [replace(model, modality=dataset.modality) for model in models]
    if methods is not None and len(models) > 1:
        check_shared(listed(methods))
    usual = PROTOCOLS + (MODEL_PROTOCOLS if len(models) > 1 else ())
    return make_suite(
        {
            "datasets": [dataset],
            "train": [] if train is None else [_dataset(train, models, "none")],
            "models": models,
            "methods": applicable_to_any("method", METHODS, models, dataset)
            if methods is None
            else [fits_data(method_of(m, {}, models[0]), m, dataset) for m in listed(methods)],
            "protocols": applicable_to_any("protocol", usual, models, dataset)
            if protocols is None
            else listed(protocols),
            "controls": "off",
            "target": "predicted" if target == "label" and "labels" not in dataset.has else target,
            "seeds": [seed],
            "limit": limit,
        }
    )


def _dataset(
    data: object, models: Sequence[Model], groups: Groups | Literal["none"] | None
) -> Dataset:
    if isinstance(data, str | Path):
        dataset: Dataset = build_one("dataset", dataset_item(str(data)))
        return as_dataset(dataset, groups=groups)
    tokens = {model.tokens is not None for model in models}
    if len(tokens) > 1:
        names = ", ".join(model.name for model in models if model.tokens is None)
        raise InputError(
            f"Expected networks that all take tokens or all take numbers, got both: {names} "
            f"have no tokens. Run them apart."
        )
    embeds = any(isinstance(part, nn.Embedding) for m in models for part in m.net.modules())
    return as_dataset(data, tokens=tokens.pop(), embeds=embeds, groups=groups)


def _warn_of_another_output(model: Model, dataset: Dataset) -> None:
    """Warn if another output is read than the one that an environment's truth describes."""
    whose, mine = dataset.truth_of, model.output_read
    if whose is None or "truth" not in dataset.has or whose.weights_hash != mine.weights_hash:
        return
    if whose != mine:
        warn(
            f"The truth of `{dataset.name}` is that of its environment's model; `{model.name}` is "
            f"the same network, but another of its outputs is read. Pass "
            f"`env.model, env.dataset`.",
        )
