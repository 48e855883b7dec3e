"""A second fill for any data, to see whether an answer survives another fill."""

from assay.plugins.registry import fill
from assay.removal import Removal, make_removal
from assay.types import Batch
from assay.units.usual import SECOND_FILL, kind_of


@fill(
    "second",
    title="Second fill: imputation on images, mean in vectors, mask in texts",
    stands_for=SECOND_FILL,
)
def second(batch: Batch) -> Removal:
    """The fill to compare `zero` with: `noisy_linear`, in vectors `mean`, in texts `mask`."""
    return make_removal(batch, SECOND_FILL[kind_of(batch)])
