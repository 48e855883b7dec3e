"""Run any attribution method, and reduce its output to one number per position."""

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from assay.engine.engine import Engine, network_engine
from assay.engine.guard import Guard
from assay.errors import InputError, NotApplicable
from assay.methods.copies import Moments as Moments
from assay.methods.copies import noisy_moments
from assay.models.prepare import observe
from assay.plugins.registry import Method, code_identity, identity
from assay.suite.fields import REDUCTION
from assay.suite.spec import MAPS_HASH as MAPS_HASH
from assay.suite.spec import Choice
from assay.types import Batch, Model
from assay.types.dense import dense


def attribute(
    model: Model, batch: Batch, choice: Choice, engine: Engine | None = None
) -> Tensor:  # [B, *map_shape]
    """Run a method and reduce what its formula gives to one signed number per position.

    A method that asks an engine shares the answers of the one given; else it gets one of its own.
    """
    return finish(raw_map(model, batch, choice, engine), batch, choice)


def finish(raw: "Tensor | Moments", batch: Batch, choice: Choice) -> Tensor:
    """From a formula's output to the map: read the kind of noise, then reduce the channels."""
    if isinstance(raw, Moments):
        raw = raw.read(choice.noise.kind if choice.noise else "smoothgrad")
    return reduce_map(raw, batch, choice.label, **choice.reduction)


def explain_again(engine: Engine, choice: Choice) -> Callable[[Tensor], Tensor] | None:
    """The method on changed inputs of the same samples; None where the maps came ready-made."""
    if MAPS_HASH in choice.options:
        return None

    def explain(inputs: Tensor) -> Tensor:
        return attribute(engine.model, replace(engine.batch, inputs=inputs), choice, engine)

    return explain


def forward_passes(model: Model, batch: Batch, choice: Choice) -> int | None:
    """Forward passes per sample; None where they are unknown, as for a user's function.

    Passes that a method makes once for all samples are left out.
    """
    return None if says_nothing(choice) else choice.passes_on(model, batch).forward


def says_nothing(choice: Choice) -> bool:
    """Whether it is a user's function that does not declare its cost."""
    plugin = choice.plugin
    if MAPS_HASH in choice.options:
        return False
    return plugin.passes is Method.passes and (plugin.own or plugin.family == "given")


def raw_map(
    model: Model, batch: Batch, choice: Choice, engine: Engine | None = None
) -> "Tensor | Moments":
    """The output of the method's formula with channels; under noise, of all copies together."""
    model = model if model.observed is not None else _observed(model, batch)
    shared = None if engine is None else engine.guard
    guard = shared if shared is not None and shared.net is model.net else Guard(model.net)
    users = _is_users(choice)
    lent = engine.lent(choice.label) if users and engine is not None else contextlib.nullcontext()
    with lent, guard.watch(model, batch, choice.label, numbers=users):
        batch = batch.aliased() if users else batch
        if choice.noise is None:
            return _run(model, batch, choice, engine)
        return noisy_moments(
            model, batch, choice.noise, lambda copies: _run(model, copies, choice, engine)
        )


def _is_users(choice: Choice) -> bool:
    """Whether a method runs code of a user, which may change anything."""
    given_code = choice.plugin.family == "given" and MAPS_HASH not in choice.options
    return choice.own or given_code


def _observed(model: Model, batch: Batch) -> Model:
    with model.evaluating(), torch.no_grad():
        return observe(model, batch.inputs[:1])


def _run(model: Model, batch: Batch, choice: Choice, engine: Engine | None) -> Tensor:
    plugin = choice.plugin
    asked: tuple[Engine, ...] = ()
    if plugin.takes_engine:
        asked = (network_engine(model, batch) if engine is None else engine.at(batch),)
    while True:
        try:
            # A method of the user's own may take gradients as it likes.
            with torch.set_grad_enabled(plugin.own):
                raw = plugin.function(model, batch, *asked, **choice.options)
            return _as_tensor(raw, batch, choice.label)
        except torch.cuda.OutOfMemoryError:
            if model.micro_batch == 1:
                raise
        # Outside the handler, which holds on to what did not fit.
        torch.cuda.empty_cache()
        model = replace(model, micro_batch=model.micro_batch // 2)
        if engine is not None:  # what follows begins smaller
            engine.respondent.shrink()


def _as_tensor(maps: object, batch: Batch, name: str) -> Tensor:
    """A function's maps as a tensor; an array becomes a tensor like the inputs.

    Raises:
        InputError: They are neither, for example if the function does not return anything.
    """
    if maps is None:
        raise InputError(
            f"Expected maps of `{name}` to be numbers, got None. Does the function return them?"
        )
    tensor = dense(maps, f"maps of `{name}`")
    return tensor if isinstance(maps, Tensor) else tensor.to(batch.inputs.device, batch.dtype)


def other_maps(model: Model, batch: Batch, choice: Choice, engine: Engine | None = None) -> Tensor:
    """The method's maps of each sample's partner: another sample, explained for its own label.

    Raises:
        NotApplicable: There is no other sample.
    """
    if batch.dataset is not None:
        groups = batch.dataset.groups
        for sample in batch.ids:
            other = batch.dataset.partner(sample)
            if groups.get(other, other) == groups.get(sample, sample):
                raise NotApplicable(
                    "Maps of other samples need at least two samples of different groups; there is "
                    "only one sample, or only one group."
                )
    return attribute(model, batch.partners(), choice, engine)


def reduce_map(
    raw: Tensor, batch: Batch, name: str, *, reduce: str = "sum", abs: bool = False
) -> Tensor:
    """Check the shape of a method's output and reduce its channels."""
    if raw.dtype in (torch.float16, torch.bfloat16):
        raw = raw.float()  # sums and files need more than half precision
    shape = (len(batch), *batch.map_shape)
    if tuple(raw.shape) == (len(batch), 1, *batch.map_shape) != tuple(batch.inputs.shape):
        raw = raw[:, 0]
    channels = _channels(raw, batch)
    if channels == -1 and reduce in ("sum", "abs_sum"):
        _check_sum(raw, name)
    if channels is not None:
        raw = {
            "sum": lambda: raw.sum(channels),
            "abs_sum": lambda: raw.sum(channels).abs(),
            "sum_abs": lambda: raw.abs().sum(channels),
            "square": lambda: raw.square().sum(channels),
            "none": lambda: raw,
        }[reduce]()
    elif tuple(raw.shape) == shape:
        elementwise = {"abs_sum": torch.abs, "sum_abs": torch.abs, "square": torch.square}
        raw = elementwise.get(reduce, torch.clone)(raw)
    else:
        raise wrong_shape(raw, batch, name)
    return raw.abs() if abs else raw


def wrong_shape(maps: Tensor, batch: Batch, name: str, n: int | None = None) -> InputError:
    """The error for maps that fit neither positions nor inputs; `n` defaults to the batch's."""
    samples = len(batch) if n is None else n
    shapes = ((samples, *each) for each in (batch.map_shape, tuple(batch.inputs.shape[1:])))
    expected = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
    return InputError(
        f"Expected maps of `{name}` to have shape {expected}, got {tuple(maps.shape)}."
    )


def _check_sum(raw: Tensor, name: str) -> None:
    """Refuse sums that are only rounding errors.

    A network that normalises its embeddings ignores their mean, so the gradient's sum over a
    word's embedding is zero for every word.
    """
    parts = raw.abs().sum(-1).max()
    if bool(parts > 0) and bool(raw.sum(-1).abs().max() < 1e-5 * parts):
        raise NotApplicable(
            f"The sum of `{name}` over a word's embedding is zero here, because the network "
            f"normalises its embeddings. Use `reduce: square` or `reduce: sum_abs`."
        )


def _channels(raw: Tensor, batch: Batch) -> int | None:
    """The axis of a method's output to reduce: an image's channels, a word's embedding."""
    if batch.tokens is not None:
        return -1 if tuple(raw.shape[:-1]) == (len(batch), *batch.map_shape) else None
    whole = tuple(raw.shape) == tuple(batch.inputs.shape)
    return 1 if whole and raw.ndim == len(batch.map_shape) + 2 else None


def rows_of(batch: Batch, count: int, whose: str, ids: Sequence[str] | None = None) -> list[int]:
    """The rows of a batch among `count` maps in the order of `ids`, or of the dataset.

    Raises:
        InputError: There are more or fewer maps than samples, or a sample has no map.
    """
    everyone = ids if ids is not None else batch.dataset.ids if batch.dataset else batch.ids
    if count != len(everyone):
        samples = "samples" if ids is None else "ids"
        raise InputError(
            f"Expected `{whose}` to hold a map for each of {len(everyone)} {samples}, got {count}."
        )
    place = {sample: row for row, sample in enumerate(everyone)}
    missing = [sample for sample in batch.ids if sample not in place]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise InputError(
            f"Expected `{whose}` to hold a map of sample `{missing[0]}`{more}, got none; it has "
            f"{count} maps of other samples, first `{everyone[0]}`."
        )
    return [place[sample] for sample in batch.ids]


def given(label: str, source: object) -> Choice:
    """Maps computed elsewhere (one per sample of the dataset), or a callable, as a method.

    A callable runs with gradients enabled and may return a tensor or an array.
    """
    if callable(source) and not isinstance(source, Tensor):
        _check_call(source, label)

        def run(model: Model, batch: Batch, *, source_hash: str = "") -> Tensor:
            with torch.enable_grad():
                maps = source(model, batch)
            return _as_tensor(maps, batch, label).to(batch.inputs.device, batch.dtype)

        plugin = Method(label, run, family="given", title=label)
        return Choice(label, plugin, {"source_hash": code_identity(source)}, dict(REDUCTION))
    maps = dense(source, f"maps `{label}`")
    if not maps.ndim:
        raise InputError(f"Expected `{label}` to hold a map for each sample, got a single number.")

    def look_up(model: Model, batch: Batch, *, maps_hash: str = "") -> Tensor:
        rows = rows_of(batch, len(maps), label)
        return maps[rows].to(batch.inputs.device, batch.dtype)

    plugin = Method(label, look_up, family="given", title=label)
    return Choice(label, plugin, {MAPS_HASH: identity(maps)}, dict(REDUCTION))


def _check_call(source: Callable[..., object], label: str) -> None:
    """Refuse a function that cannot be called with a model and a batch."""
    try:
        inspect.signature(source).bind(None, None)
    except TypeError as error:
        raise InputError(
            f"Expected method `{label}` to be a function `(model, batch) -> Tensor`, got one that "
            f"cannot be called so: {error}."
        ) from None
    except ValueError:  # compiled code may have no signature
        return
