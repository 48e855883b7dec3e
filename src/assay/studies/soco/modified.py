"""A method's maps changed on purpose, named in a suite by its address.

It has no name of its own among the methods, for it explains nothing.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from assay.engine.engine import Engine
from assay.methods.attribution import attribute
from assay.plugins.identity import identity
from assay.plugins.registry import Method, Nested, Passes
from assay.studies.soco import value
from assay.suite.spec import choose_one
from assay.types import Batch, Model


def modified(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    of: Annotated[Any, Nested("method")] = "saliency",
    scheme: Literal["original", "ranks", "constant", "random", "partial"] = "original",
    way: Literal["remove", "introduce"] = "remove",
) -> Tensor:
    """A method's maps in [0, 1], as they are or changed by a scheme of `studies.soco.value`."""
    scaled = value.unit_range(_explained(model, batch, engine, of))  # [B, *map_shape]
    scaled = scaled.astype(np.float32).astype(np.float64)  # what a map can hold
    if scheme == "ranks":
        changed = value.by_rank(scaled)
    elif scheme == "original":
        changed = scaled
    else:
        uniform = batch.draw(f"{way} at random", batch.map_shape).double().cpu().numpy()
        changed = value.modify(scaled, scheme, way, uniform)
    return torch.from_numpy(changed).to(batch.inputs.device, batch.dtype)


# What each network was explained by: many changes are made of the same maps.
KEPT = 64  # batches of maps
_EXPLAINED: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()


def _explained(model: Model, batch: Batch, engine: Engine, of: Any) -> Any:  # [B, *map_shape]
    """A method's maps of a batch, taken once however often they are changed."""
    choice = choose_one("method", of)
    known = _EXPLAINED.setdefault(model.net, {})
    weights = list(model.net.state_dict().values())
    key = identity([choice.key, list(batch.ids), batch.seed, batch.inputs, batch.targets, weights])
    if key not in known:
        while len(known) >= KEPT:
            del known[next(iter(known))]
        known[key] = attribute(model, batch, choice, engine).cpu().numpy()
    return known[key]


def _needs(options: Mapping[str, Any]) -> set[str]:
    choice = choose_one("method", options["of"])
    return set(choice.plugin.required(choice.options))


def _passes(options: Mapping[str, Any]) -> Passes:
    return choose_one("method", options["of"]).passes


def _passes_on(model: Model, batch: Batch, options: Mapping[str, Any]) -> Passes:
    return choose_one("method", options["of"]).passes_on(model, batch)


vars(modified)["__assay__"] = Method(
    "modified", modified, needs=_needs, passes=_passes, passes_on=_passes_on, control="other",
    family="controls",
)  # fmt: skip
