"""The default units of each kind of data, and the fill that answers are compared with.

Protocols write `units: default`; what it stands for is decided here, once.
`docs/explanation/defaults.md` has the study behind the choice. Keys hold the versions of what
`default` and `second` stand for. Whoever makes them stand for something else raises their own.
"""

from collections.abc import Mapping
from typing import Literal

from assay.plugins.identity import pick
from assay.plugins.option_types import Item
from assay.plugins.registry import units
from assay.types import Batch
from assay.units.features import Features, make_units

DataKind = Literal["image", "vector", "text"]

SIDE = 8  # cells in a row of an image, or as many as it has pixels
SECOND_FILL: Mapping[str, Item] = {
    "image": "noisy_linear", "vector": "mean", "text": "mask",
}  # fmt: skip
USUAL_UNITS: Mapping[str, Item] = {
    "image": {"shifted_grid": {"side": SIDE}}, "vector": "elements", "text": "elements",
}  # fmt: skip


def kind_of(batch: Batch) -> DataKind:
    """What a batch holds: images have a height and a width, texts have tokens."""
    if batch.tokens is not None:
        return "text"
    return "image" if batch.inputs.ndim == 4 else "vector"


@units(
    "default",
    title="Grid of 8 x 8 cells on images, else single entries",
    stands_for=USUAL_UNITS,
)
def default(batch: Batch) -> Features:
    """On images 8 x 8 cells with a random offset; elsewhere the entries, for texts the tokens."""
    name, options = pick(USUAL_UNITS[kind_of(batch)])
    if "side" in options:
        options["side"] = min(options["side"], *batch.map_shape)
    return make_units(batch, {name: options})
