"""In-domain fine-tuning: a network learns that one cell of an image may be missing."""

import copy
import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from assay.data.sample_hashes import check_apart
from assay.errors import InputError, warn
from assay.models.wrap import model as as_model
from assay.plugins.registry import canonical, short_item
from assay.removal import FillChoice
from assay.training.cell_deletion import without_a_cell
from assay.training.epochs import accuracy
from assay.training.fitting import (
    Recipe,
    check_samples,
    count_classes,
    fit_network,
    normalised,
    trainable,
)
from assay.training.labelled import Labelled, read_labelled
from assay.training.network_distance import Measured, distance, measure_network
from assay.types import Card, Model
from assay.types.card import IN_DOMAIN, in_domain_need
from assay.types.hashing import hash_numbers
from assay.types.model import usable_device

LARGE = 100_000  # training samples from which on the published schedule is the default
SHOWN = 500  # samples whose accuracy is shown while training
FALLEN = 0.05  # a loss of accuracy that is worth a warning

NetworkOrModel = TypeVar("NetworkOrModel", nn.Module, Model)


def in_domain(
    net: NetworkOrModel,
    data: object,
    *,
    grid: int = 4,
    fill: FillChoice = "zero",
    probability: float = 0.5,
    epochs: int | None = None,
    seed: int = 0,
    placebo: bool = False,
    measure: object = None,
    seeds: nn.Module | Model | None = None,
    rate: float | None = None,
    batch: int | None = None,
    augment: bool = True,
    held_out: float = 0.1,
    half: bool = False,
    device: str | None = None,
    checkpoint: str | Path | None = None,
    progress: bool = True,
) -> tuple[NetworkOrModel, Card]:
    """Fine-tune a copy of a network on images of which half lack one random cell.

    From 100,000 training samples on, the default is the published schedule: 30 epochs of SGD with
    batches of 256 and learning rate 0.001 (B-cos networks: 0.01), a tenth of it after each 10
    epochs. The loss of a B-cos network is a sum over classes here and their mean in the paper. For
    equal steps its rate is divided by the number of classes, and its weight decay multiplied by it.
    For fewer samples it is 5 epochs, with batches of at most 128 and learning rate 0.01 that falls
    to 0 by a cosine. The last epoch is kept; no sample that is measured decides.

    Differs from the paper: images are moved by up to an eighth of the side instead of cropped and
    resized at random, and a GPU computes in bfloat16.

    Args:
        net: The network, which is not changed.
        data: `(X, y)`, with X the network's inputs or pixels of 8 bits, a torch dataset, or a
            `Dataset`.
        grid: Cells per side.
        fill: What stands where a cell was: a registered fill, or a tensor.
        probability: The share of the images that lose a cell. `in_domain_single_deletion` takes
            networks of 0.5 only.
        epochs: How often each image is seen.
        seed: The seed of the order, the crops and the cells.
        placebo: Train in the same way without removing anything.
        measure: Other samples, in the same forms, that the card is measured on. By default a tenth
            of `data` is held out.
        seeds: The network of another training seed, for comparison in the card.
        rate: The highest learning rate.
        batch: Images per step.
        augment: Whether to move images by up to an eighth of the side and to mirror half of them.
        held_out: The share of `data` that is held out where there is no `measure`.
        half: Round the weights to half precision before anything is measured.
        device: Where to train, such as `cuda`; by default where the network is.
        checkpoint: A file from which an interrupted training continues.
        progress: Whether to show bars.

    Returns:
        The fine-tuned copy, and its card. A `Model` comes back as a `Model` that has the card.

    Raises:
        InputError: The data are not labelled images, or too few to hold some out; a sample of
            `measure` is also trained on; or the loss, or a weight in half precision, is not finite.
    """
    task = FineTuning.of(
        net, data, measure=measure, grid=grid, fill=fill, held_out=held_out, device=device,
        progress=progress,
    )  # fmt: skip
    recipe = task.recipe(epochs=epochs, rate=rate, batch=batch, augment=augment)
    tuned, card = task.fit(
        recipe, probability=probability, seed=seed, placebo=placebo, half=half,
        checkpoint=None if checkpoint is None else Path(checkpoint),
    )  # fmt: skip
    if seeds is not None:
        card = task.beside_another_seed(card, as_model(seeds))
    home = as_model(net).device
    tuned.net.to(home)
    return (tuned if isinstance(net, Model) else tuned.net), card  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class FineTuning:
    """A network and its samples: to be trained on, and to be measured on."""

    model: Model
    training: Labelled
    measured: Labelled
    grid: int
    fill: FillChoice
    origin: str
    progress: bool = True

    @classmethod
    def of(
        cls,
        net: nn.Module | Model,
        data: object,
        *,
        measure: object = None,
        grid: int = 4,
        fill: FillChoice = "zero",
        held_out: float = 0.1,
        device: str | None = None,
        limit: int | None = None,
        measure_limit: int | None = None,
        progress: bool = True,
    ) -> "FineTuning":
        """Read the samples and check that they fit the network."""
        model = as_model(net)
        fill = fill if isinstance(fill, Tensor) else short_item("fill", fill)
        without_a_cell(model, grid, fill, 0.5)  # rejects a bad grid or fill before samples are read
        if "regression" in model.has:
            raise InputError(f"Expected model `{model.name}` to output classes, got a regression.")
        trainable(model)
        if device is not None:
            model = _moved(model, device)
        samples = read_labelled(model, data, limit, progress=progress)
        if measure is None:
            training, measured = samples.held_out(held_out)
            measured = measured.limited(measure_limit)
            where = f"{len(measured)} held-out samples of the same data"
        else:
            training = samples
            measured = read_labelled(model, measure, measure_limit, progress=progress)
            check_apart(
                "measured", measured.ids, measured.hashes, training.hashes,
                "Leave them out of one of the two, or leave out `measure` (`--measure`) to hold a "
                "tenth of the data out.",
            )  # fmt: skip
            where = f"{len(measured)} samples of `{measured.name}` ({measured.pixels})"
        for part in (training, measured):
            check_samples(model, part.inputs, part.labels)
        origin = f"trained on {len(training)} samples of `{training.name}` ({training.pixels}), "
        return cls(model, training, measured, grid, fill, f"{origin}measured on {where}", progress)

    @functools.cached_property
    def before(self) -> Measured:
        """The network as it is, measured."""
        return measure_network(
            self.model, self.measured, self.grid, self.fill, what="measuring before",
            progress=self.progress,
        )  # fmt: skip

    def recipe(
        self,
        *,
        epochs: int | None = None,
        rate: float | None = None,
        batch: int | None = None,
        augment: bool = True,
    ) -> Recipe:
        """The published schedule for many samples, a short one for fewer."""
        n, bcos = len(self.training), "bcos" in self.model.capabilities
        large = n >= LARGE
        summed = count_classes(self.model, self.training.inputs) if large and bcos else 1
        usual = (5, max(8, min(128, n // 20)), 1e-2)
        if large:
            usual = (30, 256, 1e-2 / summed if bcos else 1e-3)
        schedule: Literal["steps", "cosine"] = "steps" if large else "cosine"
        return Recipe(
            epochs=usual[0] if epochs is None else epochs,
            batch=usual[1] if batch is None else batch,
            rate=usual[2] if rate is None else rate,
            decay=1e-4 * summed,
            schedule=schedule,
            every=10,
            augment=augment,
            nesterov=False,
        )

    def fit(
        self,
        recipe: Recipe,
        *,
        probability: float = 0.5,
        seed: int = 0,
        placebo: bool = False,
        half: bool = False,
        checkpoint: Path | None = None,
    ) -> tuple[Model, Card]:
        """Fine-tune a copy and measure it; the copy has the card."""
        model = replace(
            self.model, net=copy.deepcopy(self.model.net), observed=None,
            card={k: v for k, v in self.model.card.items() if k != IN_DOMAIN},
        )  # fmt: skip
        change = without_a_cell(
            model, self.grid, self.fill, probability,
            samples=self.training.dataset(model), placebo=placebo,
        )  # fmt: skip
        _ = self.before  # measured first, as a reader expects
        shown = self.measured.select(torch.arange(min(SHOWN, len(self.measured))))
        inputs = normalised(model, shown.inputs[:])
        fit_network(
            model,
            self.training.inputs,
            self.training.labels,
            recipe,
            seed=seed,
            change=change,
            checkpoint=checkpoint,
            each_epoch=lambda epoch: f"accuracy {accuracy(model, inputs, shown.labels):.1%}",
            what="placebo" if placebo else "fine-tuning",
            progress=self.progress,
            about=f"{in_domain_need(self.grid, self.fill)} {probability} {placebo}",
        )
        if half:
            _round(model.net)
        after = measure_network(
            model, self.measured, self.grid, self.fill, what="measuring after",
            progress=self.progress,
        )  # fmt: skip
        card = self._card(model, after, recipe, probability, seed, placebo)
        if card.accuracy_after < card.accuracy_before - FALLEN:
            warn(
                f"Fine-tuning lowered the accuracy from {card.accuracy_before:.1%} to "
                f"{card.accuracy_after:.1%}. Choose a smaller learning rate than {recipe.rate:g}."
            )
        return as_model(model, card=card), card

    def beside_another_seed(self, card: Card, other: Model) -> Card:
        """The card with the distance between the network and one of another seed.

        Raises:
            InputError: The card belongs to another network.
        """
        check_base(card, self.model)
        moved = _moved(other, str(self.model.device))
        far = distance(
            self.before,
            measure_network(
                moved, self.measured, self.grid, self.fill, what="measuring another seed",
                progress=self.progress,
            ),
        )  # fmt: skip
        return replace(
            card, seeds_mad_softmax=far.mad_softmax, seeds_mad_gradcam=far.mad_gradcam,
            seeds_overlap=far.overlap, seeds_sha256=other.weights_hash,
        )  # fmt: skip

    def _card(
        self,
        model: Model,
        after: Measured,
        recipe: Recipe,
        probability: float,
        seed: int,
        placebo: bool,
    ) -> Card:
        before, far = self.before, distance(self.before, after)
        trained_on = torch.unique(self.training.hashes)  # sorted
        return Card(
            grid=self.grid,
            fill=canonical(self.fill) if isinstance(self.fill, Tensor) else self.fill,
            probability=probability,
            epochs=recipe.epochs,
            seed=seed,
            placebo=placebo,
            accuracy_before=before.accuracy,
            accuracy_after=after.accuracy,
            worst_patch_before=before.worst_patch,
            worst_patch_after=after.worst_patch,
            lowest_patch_before=before.lowest_patch,
            lowest_patch_after=after.lowest_patch,
            mad_softmax=far.mad_softmax,
            mad_gradcam=far.mad_gradcam,
            overlap=far.overlap,
            weights_sha256=model.weights_hash,
            base_sha256=self.model.weights_hash,
            origin=self.origin,
            n=len(self.measured),
            rate=recipe.rate,
            batch=recipe.batch,
            training_sha256=hash_numbers(trained_on),
            training_hashes=trained_on,
        )


def beside_placebo(card: Card, placebo: Card) -> Card:
    """The card with the values of a placebo that was made in the same way.

    Raises:
        InputError: It is no placebo, or was made or measured in another way.
    """
    if not placebo.placebo:
        raise InputError("Expected the card of a placebo, got one of a fine-tuned network.")
    for name in ("base_sha256", "grid", "fill", "epochs", "rate", "batch", "n"):
        expected, got = getattr(card, name), getattr(placebo, name)
        if got != expected:
            raise InputError(
                f"Expected the card of a placebo with `{name}` {expected!r}, as the fine-tuned "
                f"network has, got {got!r}. Make the placebo anew."
            )
    return replace(
        card,
        placebo_accuracy=placebo.accuracy_after,
        placebo_worst_patch=placebo.worst_patch_after,
        placebo_lowest_patch=placebo.lowest_patch_after,
        placebo_mad_softmax=placebo.mad_softmax,
        placebo_mad_gradcam=placebo.mad_gradcam,
        placebo_overlap=placebo.overlap,
    )


def check_base(card: Card, model: Model) -> None:
    """Reject a network that a card was not made from.

    Raises:
        InputError: It has other weights.
    """
    given = model.weights_hash
    if given != card.base_sha256:
        raise InputError(
            f"Expected the network that the card was made from (weights {card.base_sha256}), got "
            f"model `{model.name}` with other weights ({given}). Give that network again, or make "
            f"a new card: on the command line with another `--out`."
        )


def _moved(model: Model, device: str) -> Model:
    """The model on this device; another device gets a copy of the network."""
    place = usable_device(device)
    if place == model.device:
        return model
    return replace(model, net=copy.deepcopy(model.net).to(place))


def _round(net: nn.Module) -> None:
    """Round all weights to half precision.

    Raises:
        InputError: A weight is too large for it.
    """
    state = net.state_dict()
    rounded = {k: w.half().to(w.dtype) if w.is_floating_point() else w for k, w in state.items()}
    for name, weight in rounded.items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise InputError(
                f"Expected weights of at most 65504 for half precision, got "
                f"{state[name].abs().max().item():g} in `{name}`. Leave out `half` (`--half`)."
            )
    net.load_state_dict(rounded)
