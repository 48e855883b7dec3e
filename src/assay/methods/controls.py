"""Controls: maps that ignore the model, or know the truth, to compare methods with."""

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from assay.engine.engine import Engine
from assay.errors import InputError, NotApplicable
from assay.methods.attribution import other_maps
from assay.methods.cam import enlarge
from assay.plugins.option_types import Options
from assay.plugins.registry import Nested, Passes, method
from assay.suite.spec import choose_one
from assay.types import Batch, Model

MethodChoice = Annotated[Any, Nested("method")]


def _grid_needs(options: Options) -> set[str]:
    return set() if options["grid"] == "pixel" else {"image"}


def needs_of(options: Options) -> set[str]:
    """What the method in the option `of` needs."""
    choice = choose_one("method", options["of"])
    return set(choice.plugin.required(choice.options))


@method(
    "random",
    control="random",
    needs=_grid_needs,
    coarse=lambda options: options["grid"] != "pixel",
    family="controls",
    title="Random",
)
def random(
    model: Model, batch: Batch, *, grid: Literal["pixel"] | Annotated[int, Field(ge=1)] = "pixel"
) -> Tensor:
    """Uniform noise per pixel, or on a coarse grid enlarged to the image."""
    if grid == "pixel":
        return batch.draw("random pixel", batch.map_shape)
    return enlarge(batch.draw(f"random {grid}", (grid, grid)), batch.map_shape)


@method("constant", control="model_free", family="controls", title="Constant")
def constant(model: Model, batch: Batch) -> Tensor:
    """The same value everywhere: a map without information."""
    return batch.inputs.new_ones(len(batch), *batch.map_shape, dtype=batch.dtype)


@method("centre", control="model_free", needs=["image"], family="controls", title="Centre")
def centre(model: Model, batch: Batch) -> Tensor:
    """A Gaussian in the middle, a quarter of the image wide: objects are often in the centre."""
    height, width = batch.map_shape
    # Whole numbers first, so that positions equally far from the middle tie on every device.
    y, x = (2 * torch.arange(n) - (n - 1) for n in (height, width))
    far = (y / max(1, height - 1)).square()[:, None] + (x / max(1, width - 1)).square()
    return torch.exp(-2 * far).to(batch.inputs).expand(len(batch), height, width).clone()


@method("edge", control="model_free", needs=["image"], family="controls", title="Edges")
def edge(model: Model, batch: Batch) -> Tensor:
    """The magnitude of the brightness gradient (Sobel): an edge detector, not an explanation."""
    grey = functional.pad(batch.inputs.mean(1, keepdim=True), (1, 1, 1, 1), mode="replicate")
    sobel = grey.new_tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    both = torch.stack([sobel, sobel.T])[:, None]
    return functional.conv2d(grey, both).square().sum(1).sqrt()


@method("oracle", control="other", needs=["truth"], family="controls", title="Oracle")
def oracle(model: Model, batch: Batch) -> Tensor:
    """The ground truth itself, where there is one: for a linear model w(x - baseline)."""
    if batch.truth is None:
        raise NotApplicable("The control `oracle` needs ground truth; these samples have none.")
    return batch.truth.to(batch.inputs.device, batch.dtype)


def passes_of(options: Options) -> Passes:
    """The cost of the method in the option `of`."""
    return choose_one("method", options["of"]).passes


def passes_on_of(model: Model, batch: Batch, options: Options) -> Passes:
    """The same for a model and a batch."""
    return choose_one("method", options["of"]).passes_on(model, batch)


@method(
    "shuffled",
    control="other",
    needs=needs_of,
    passes=passes_of,
    passes_on=passes_on_of,
    family="controls",
    title="Shuffled",
)
def shuffled(
    model: Model, batch: Batch, engine: Engine, *, of: MethodChoice = "saliency"
) -> Tensor:
    """A method's own maps dealt to other images: keeps resolution, sparsity and centre bias.

    Each sample gets the map of one fixed partner from another group, explained for the partner's
    own label. With only one group it does not apply.
    """
    choice = choose_one("method", of)
    if choice.plugin.name == "shuffled":
        raise InputError("Expected `of` to be a method other than `shuffled`, got `shuffled`.")
    return other_maps(model, batch, choice, engine)
