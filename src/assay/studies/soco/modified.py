"""A method's maps changed on purpose; a suite names it by its address.

It is not registered among the methods, because it explains nothing.
"""

from typing import Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from assay.engine.engine import Engine
from assay.methods.attribution import attribute
from assay.methods.controls import MethodChoice
from assay.plugins.identity import identity
from assay.plugins.option_types import Item, Options
from assay.plugins.registry import Method, Passes
from assay.store import Array
from assay.studies.soco import value
from assay.suite.spec import choose_one
from assay.types import Batch, Model


def modified(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    of: MethodChoice = "saliency",
    scheme: Literal["original", "ranks", "constant", "random", "partial"] = "original",
    way: Literal["remove", "introduce"] = "remove",
) -> Tensor:
    """A method's maps in [0, 1], unchanged or changed by a scheme of `studies.soco.value`."""
    scaled = value.unit_range(_explained(model, batch, engine, of))  # [B, *map_shape]
    scaled = scaled.astype(np.float32).astype(np.float64)  # the precision of a map
    if scheme == "ranks":
        changed = value.by_rank(scaled)
    elif scheme == "original":
        changed = scaled
    else:
        uniform = batch.draw(f"{way} at random", batch.map_shape).double().cpu().numpy()
        changed = value.modify(scaled, scheme, way, uniform)
    return torch.from_numpy(changed).to(batch.inputs.device, batch.dtype)


# The latest maps of each network, because many changes start from the same maps.
MOST_BATCHES = 64
_EXPLAINED: WeakKeyDictionary[nn.Module, dict[str, Array]] = WeakKeyDictionary()


def _explained(model: Model, batch: Batch, engine: Engine, of: Item) -> Array:  # [B, *map_shape]
    """A method's maps of a batch, computed once however often they are changed."""
    choice = choose_one("method", of)
    known = _EXPLAINED.setdefault(model.net, {})
    weights = list(model.net.state_dict().values())
    key = identity([choice.key, list(batch.ids), batch.seed, batch.inputs, batch.targets, weights])
    if key not in known:
        while len(known) >= MOST_BATCHES:
            del known[next(iter(known))]
        known[key] = attribute(model, batch, choice, engine).cpu().numpy()
    return known[key]


def _needs(options: Options) -> set[str]:
    choice = choose_one("method", options["of"])
    return set(choice.plugin.required(choice.options))


def _passes(options: Options) -> Passes:
    return choose_one("method", options["of"]).passes


def _passes_on(model: Model, batch: Batch, options: Options) -> Passes:
    return choose_one("method", options["of"]).passes_on(model, batch)


vars(modified)["__assay__"] = Method(
    "modified", modified, needs=_needs, passes=_passes, passes_on=_passes_on, control="other",
    family="controls",
)  # fmt: skip
