"""One protocol on one case: its scores, the maps without information, the cells not ranked."""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay.engine.engine import Engine
from assay.errors import InputError
from assay.models.network_state import Copied, copied
from assay.plugins.display_names import display_name
from assay.ranking.reductions import reduction_of
from assay.ranking.replicates import too_few
from assay.suite.spec import Choice
from assay.types import UPPER_BOUND, Batch, Case, Scores


def score_case(protocol: Choice, case: Case, engine: Engine | None = None) -> Scores:
    """Run a protocol. A map without information gets the chance score if that is known.

    Raises:
        HarmError: The protocol runs code of a user, which changed what the engine's other methods
            and protocols read, or the case itself. It is as before.
    """
    returned = run_protocol(protocol, case, engine)
    scores = checked_scores(protocol.label, returned, len(case.batch))
    if protocol.plugin.reduce != "mean":
        return _judged_together(protocol, scores)
    value = scores.value.double().cpu()
    if isinstance(protocol.plugin.chance, int | float):
        chance = float(protocol.plugin.chance)
        value = torch.where(case.constant.cpu() & ~value.isnan(), chance, value)
    return replace(scores, value=value)


def checked_scores(label: str, returned: object, size: int) -> Scores:
    """What a protocol returned.

    Raises:
        InputError: It is no `Scores`, or a part of it is not a tensor of that many real numbers.
    """
    if not isinstance(returned, Scores):
        raise InputError(
            f"Expected `{label}` to return Scores with one value per sample, got "
            f"{type(returned).__name__}."
        )
    each = {"value": returned.value}
    if returned.degenerate is not None:
        each["degenerate"] = returned.degenerate
    each |= {f"extra['{display_name(n, 'a key')}']": part for n, part in returned.extra.items()}
    for name, part in each.items():
        _check_part(label, name, part, (size,), "one number per sample")
    if returned.x is not None:
        steps = (len(returned.x),) if isinstance(returned.x, Tensor) and returned.x.ndim else (0,)
        _check_part(label, "x", returned.x, steps, "one number per point of the curves")
    for name, curve in returned.curves.items():
        if returned.x is None:
            raise InputError(f"Expected the Scores of `{label}` to have `x`, the points of curves.")
        what = f"curves['{display_name(name, 'a key')}']"
        _check_part(label, what, curve, (size, len(returned.x)), "one number per sample and `x`")
    return returned


def _check_part(label: str, name: str, part: object, shape: tuple[int, ...], what: str) -> None:
    if not isinstance(part, Tensor) or tuple(part.shape) != shape or part.is_complex():
        got: object = type(part).__name__
        if isinstance(part, Tensor):
            got = f"{part.dtype} of shape {tuple(part.shape)}"
        raise InputError(
            f"Expected `{name}` of the Scores of `{label}` to be a tensor of real numbers of shape "
            f"{shape}, {what}, got {got}."
        )


def run_protocol(protocol: Choice, case: Case, engine: Engine | None) -> object:
    """What a protocol returns. Code of a user may change nothing that others read."""
    if engine is None or engine.guard is None or not protocol.own:
        return protocol.plugin.function(case, **protocol.options)
    label = protocol.label
    watched = engine.guard.watch(
        engine.model, case.batch, label, numbers=True, result="score", more=list(_held(case))
    )
    with engine.lent(label, "score"), watched:
        clean = {part.name: getattr(case.clean, part.name).detach() for part in fields(case.clean)}
        lent = replace(
            case,
            batch=case.batch.aliased(),
            attribution=case.attribution.detach(),
            clean=replace(case.clean, **clean),
        )
        return protocol.plugin.function(lent, **protocol.options)


def _held(case: Case) -> Iterator[Copied]:
    """The tensors of a case that the other protocols of its method read, too."""
    cure = "Work on a clone of it, such as `case.attribution.clone()`."
    yield from copied("`case.attribution`", case.attribution, cure)
    for part in fields(case.clean):
        yield from copied(f"`case.clean.{part.name}`", getattr(case.clean, part.name), cure)


def _judged_together(protocol: Choice, scores: Scores) -> Scores:
    """Scores without values: these are computed later from the curves of the whole set."""
    size = (len(scores.value), 0 if scores.x is None else len(scores.x))
    whole = [tuple(curve.shape) == size for curve in scores.curves.values()]
    if scores.x is None or not whole or not all(whole) or "x" in scores.curves:
        raise InputError(
            f"Expected `{protocol.label}` to return `Scores` with `curves` {{name: [B, K]}} over "
            f"`x` [K], none of them named `x`: its reduction computes the score of the set from "
            f"them."
        )
    return replace(scores, value=torch.full((size[0],), torch.nan, dtype=torch.float64))


def dealt(groups: Sequence[str]) -> list[int] | None:
    """For each sample the next one of another group; None if a sample has none.

    The samples of a shard exchange their maps in this way. It costs nothing, and the result does
    not depend on how a run is split.
    """
    size = len(groups)
    partners = [
        next((j % size for j in range(i + 1, i + size) if groups[j % size] != group), None)
        for i, group in enumerate(groups)
    ]
    return None if None in partners else [j for j in partners if j is not None]


def settled(protocol: Choice, parts: Sequence[Scores]) -> Tensor:  # [B]
    """The scores of all samples, computed together if the protocol has a set-level reduction."""
    reduction = reduction_of(protocol)
    if reduction is None:
        return torch.cat([part.value for part in parts])
    curves = {
        name: torch.cat([part.curves[name] for part in parts]).cpu().numpy()
        for name in parts[0].curves
    }
    x = next(part.x for part in parts if part.x is not None)
    return torch.from_numpy(reduction.parts(curves, x.numpy()))


def empty_maps(protocol: Choice, case: Case, scores: Scores) -> np.ndarray[Any, Any]:  # [B]
    """The samples whose maps hold no information, or none that this protocol can use."""
    empty = case.constant.cpu()
    if scores.degenerate is not None:
        empty = empty | scores.degenerate.cpu()
    if protocol.plugin.reduce == "mean":
        empty = empty | scores.value.isnan()
    return empty.numpy()


def circular(method: Choice, protocol: Choice, batch: Batch) -> bool:
    """Whether a method is computed from the same answers that the protocol compares it with."""
    asked, judged = method.plugin.intervenes, protocol.plugin.intervenes
    if asked is None or judged is None:
        return False
    return bool(asked(batch, method.options) == judged(batch, protocol.options))


def standing(method: Choice, protocol: Choice, batch: Batch) -> str:
    """The status of a scored cell: ok, or the reason why it is shown and not ranked."""
    if circular(method, protocol, batch):
        return "circular"
    available = batch.dataset.has if batch.dataset is not None else frozenset()
    if protocol.plugin.whole_truth and UPPER_BOUND in available:
        return "upper_bound"
    return "shown" if unranked(protocol) else "ok"


def replicates_of(protocol: Choice) -> list[str]:
    """The metrics of which a protocol's score is the mean, one for each replicate.

    Raises:
        InputError: The protocol cannot have replicates, or names one twice or like its score.
    """
    plugin = protocol.plugin
    names = list(plugin.replicates(protocol.options))
    if names and (plugin.scope != "set" or plugin.reduce != "mean"):
        raise InputError(
            f"Expected protocol `{protocol.label}`, which declares `replicates`, to have "
            f"`scope='set'` and the mean as its score; got scope `{plugin.scope}`"
            f"{'' if plugin.reduce == 'mean' else ' and its own `reduce`'}."
        )
    if len({*names, plugin.metric}) <= len(names):
        raise InputError(
            f"Expected `replicates` of protocol `{protocol.label}` to name each metric once, and "
            f"not `{plugin.metric}`, the name of its score; got {', '.join(names)}."
        )
    return names


def unranked(protocol: Choice) -> str:
    """Why the scores of a protocol are shown and not ranked; empty where they are ranked."""
    return protocol.plugin.unranked(protocol.options) or too_few(replicates_of(protocol))
