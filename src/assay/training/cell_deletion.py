"""Training images without one cell of a grid."""

import torch
from torch import Tensor

from assay.errors import InputError
from assay.plugins.registry import get, pick
from assay.removal import FillChoice, make_removal
from assay.training.fitting import Change
from assay.types import Batch, Dataset, Model
from assay.units.features import grid as grid_cells


def without_a_cell(
    model: Model,
    grid: int,
    fill: FillChoice,
    probability: float,
    *,
    samples: Dataset | None = None,
    placebo: bool = False,
) -> Change:
    """A change of training batches: with this probability one cell of an image is filled.

    The cell is drawn uniformly, for each image by itself. With a probability of one half, an image
    is seen whole as often as without any of its cells, as `single_deletion` uses it. Cells and
    fills are those of the protocol. A fill that is drawn at random is drawn anew for each batch.

    Args:
        model: The model, for the normalisation of its inputs.
        grid: Cells per side. Where it does not divide the side, pixel i of n is in row (or column)
            i * grid // n.
        fill: What stands where the cell was.
        probability: The share of the images that lose a cell.
        samples: The training samples, for fills that need others of them.
        placebo: Draw the same random numbers and remove nothing.
    """
    _check(grid, fill, probability)
    fixed = not isinstance(fill, Tensor) and get("fill", pick(fill)[0]).constant is not None

    def change(x: Tensor, generator: torch.Generator) -> Tensor:
        device, n = generator.device, len(x)
        cells = torch.randint(grid * grid, (n,), generator=generator, device=device)
        chosen = torch.rand(n, generator=generator, device=device) < probability
        seed = 0
        if not fixed:  # reading it makes a GPU wait
            seed = int(torch.randint(2**62, (1,), generator=generator, device=device).item())
        if placebo:
            return x
        batch = Batch(
            ids=tuple(map(str, range(n))),
            contents=tuple(map(str, range(n))),  # every step has a seed of its own
            inputs=x,
            targets=torch.zeros(n, dtype=torch.long, device=x.device),
            seed=seed,
            pixels=model.pixels,
            dataset=samples,
            prepare=model.prepare,
        )
        units = grid_cells(batch, side=grid)
        numbers = torch.arange(units.count, device=device)
        absent = (cells[:, None] == numbers) & chosen[:, None]  # [n, P]
        rows = torch.arange(n, device=x.device)
        return make_removal(batch, fill)(units, absent.to(x.device), rows)

    return change


def _check(grid: int, fill: FillChoice, probability: float) -> None:
    if isinstance(grid, bool) or not isinstance(grid, int) or grid < 2:
        raise InputError(f"Expected `grid` to be a whole number from 2 on, got {grid!r}.")
    if not 0 < probability <= 1:
        raise InputError(f"Expected `probability` to be above 0 and at most 1, got {probability}.")
    if not isinstance(fill, Tensor) and get("fill", pick(fill)[0]).natural:
        raise InputError(
            f"Expected a fill of pixels to fine-tune with, got `{pick(fill)[0]}`: images that are "
            f"painted anew are in domain without fine-tuning."
        )
