"""Protocols that train networks: retraining without the ranked units, and what masks give away."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import InputError, NotApplicable
from assay.plugins.option_types import Count, InnerShare, Options, Positive
from assay.plugins.registry import Trainings, protocol
from assay.protocols.curves import Order
from assay.protocols.table_one import MASKS, RETRAINED
from assay.removal import FillChoice, make_removal
from assay.types import Batch, Scores, Trial
from assay.units.absent import by_rank
from assay.units.features import Features, UnitsChoice, make_units

ROWS = 256  # samples whose units are removed at once
RECIPE = ("epochs", "batch", "rate", "augment")  # the options that say how a network is trained

Fractions = Annotated[tuple[InnerShare, ...], Field(min_length=1)]


def _trainings(options: Options, networks: int) -> Trainings:
    """So many networks with the recipe of a protocol."""
    return Trainings(networks, {name: options[name] for name in RECIPE})


def _retrainings(options: Options) -> Trainings:
    return _trainings(options, len(options["fractions"]) * options["retrainings"])


def _names(options: Options) -> list[str]:
    """The metric of each retraining."""
    return [f"retraining_{seed}" for seed in range(options["retrainings"])]


def _retrained(
    trial: Trial,
    order: Order,
    fractions: Fractions,
    retrainings: int,
    epochs: int,
    batch: int,
    rate: float,
    augment: bool,
    fill: FillChoice,
    units: UnitsChoice,
) -> Scores:
    """Correctness of networks that were trained and are tested without the first units."""
    if list(fractions) != sorted(set(fractions)):
        raise InputError(f"Expected `fractions` that rise, got {list(fractions)}.")
    train, scored = _splits(trial)
    labels, truth = train.labels, scored.labels
    if labels is None or truth is None:
        raise NotApplicable("Retraining needs labels of the training and the scored samples.")
    removed = zip(
        _removed(train, trial.maps("train"), order, fractions, fill, units),
        _removed(scored, trial.maps("scored"), order, fractions, fill, units),
        strict=True,
    )
    correct = []  # per fraction: [retrainings, N]
    for seen, asked in removed:
        rows = []
        for seed in range(retrainings):
            network = trial.fit(
                seen, labels, epochs=epochs, seed=seed, batch=batch, rate=rate, augment=augment
            )
            rows.append((trial.predict(network, asked) == truth).double())
        correct.append(torch.stack(rows))
    right = torch.stack(correct).cpu()  # [K, retrainings, N]
    each = {f"retraining_{seed}": right[:, seed].mean(0) for seed in range(retrainings)}
    x = torch.tensor(fractions, dtype=torch.float64)
    return Scores(right.mean((0, 1)), {"correct": right.mean(1).T.contiguous()}, x, each)


def _splits(trial: Trial) -> tuple[Batch, Batch]:
    """Training and scored samples; fills that use other samples take training samples for both."""
    train, scored = trial.batch("train"), trial.batch("scored")
    return train, replace(scored, dataset=train.dataset)


def _removed(
    batch: Batch,
    maps: Tensor,
    order: Order,
    fractions: Fractions,
    fill: FillChoice,
    units: UnitsChoice,
) -> Iterator[Tensor]:
    """The inputs without the first units of their maps, for one fraction after the other."""
    features = make_units(batch, units)
    values = features.sum(maps)
    first = order == "most_relevant_first"
    absent = by_rank(batch, features, values, fractions, descending=first)
    removal = make_removal(batch, fill)
    for row in range(len(fractions)):
        parts = []
        for samples in torch.split(torch.arange(len(batch), device=values.device), ROWS):
            gone = absent.make(samples, torch.full_like(samples, row))
            parts.append(removal(features, gone, samples))
        yield torch.cat(parts)


@protocol(
    "roar",
    scope="set",
    higher_is_better=False,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["training", "labels", "gradients", "classes"],
    metric="accuracy",
    family="retraining",
    question="retraining, necessity",
    cite="hooker2019",
    title="ROAR",
    version=2,
    trains=_retrainings,
    replicates=_names,
    properties=RETRAINED,
)
def roar(
    trial: Trial,
    *,
    fractions: Fractions = (0.1, 0.3, 0.5, 0.7, 0.9),
    retrainings: Count = 5,
    epochs: Count = 30,
    batch: Count = 128,
    rate: Positive = 0.1,
    augment: bool = True,
    fill: FillChoice = "mean",
    units: UnitsChoice = "elements",
) -> Scores:
    """Accuracy of networks trained and tested without the most relevant units: remove and retrain.

    Formula: the mean over fractions t and retrainings s of [g_ts(x without its first t) = label].
    g_ts has the model's architecture and new random weights, and is trained on the training
    samples, from which the first t of their units are removed too.

    The order of the units is that of the method's maps of training and scored samples. Networks
    are trained once for equal inputs, also for two methods with equal orders. The scores of each
    retraining are the metrics `retraining_0`, ... . Intervals are over the scored samples and over
    the retrainings. Methods are ranked from 5 retrainings on: fewer show too little of the spread
    between them. Retrainings of two methods with one seed start from the same weights, so they are
    compared in pairs; all retrainings share the training samples. With `target: label`, the
    default of suites, a map may tell the label, which the network learns to read from what is
    missing; the paper explains the predicted class.

    Differs from the paper: the units are pixels, with the map reduced over channels as the method's
    `reduce` says; the paper ranks each channel by its squared values. Equal values are in seeded
    random order, and the random control removes exact shares. The score is the mean over the
    fractions; the paper shows curves. The training is shorter, with SGD and one cosine. With
    `fill: noisy_linear` this is ROAD's design with retraining.
    """
    return _retrained(
        trial, "most_relevant_first", fractions, retrainings, epochs, batch, rate, augment, fill,
        units,
    )  # fmt: skip


@protocol(
    "kar",
    scope="set",
    higher_is_better=True,
    range=(0, 1),
    uses="order",
    sign_sensitive=True,
    needs=["training", "labels", "gradients", "classes"],
    metric="accuracy",
    family="retraining",
    question="retraining, sufficiency",
    cite="hooker2019",
    title="KAR",
    version=2,
    trains=_retrainings,
    replicates=_names,
    properties=RETRAINED,
)
def kar(
    trial: Trial,
    *,
    fractions: Fractions = (0.1, 0.3, 0.5, 0.7, 0.9),
    retrainings: Count = 5,
    epochs: Count = 30,
    batch: Count = 128,
    rate: Positive = 0.1,
    augment: bool = True,
    fill: FillChoice = "mean",
    units: UnitsChoice = "elements",
) -> Scores:
    """Accuracy of networks trained and tested without the least relevant units: keep and retrain.

    Formula: the mean over fractions t and retrainings s of [g_ts(x without its last t) = label],
    with g_ts as in `roar`.

    Differs from the paper: as `roar`. The fraction is the share removed, as in every protocol.
    """
    return _retrained(
        trial, "least_relevant_first", fractions, retrainings, epochs, batch, rate, augment, fill,
        units,
    )  # fmt: skip


@protocol(
    "mask_leakage",
    scope="set",
    higher_is_better=False,
    range=(-1, 1),
    uses="order",
    sign_sensitive=True,
    needs=["training", "labels", "gradients", "classes"],
    metric="excess_accuracy",
    family="retraining",
    question="leakage",
    cite="rong2022",
    title="Mask leakage",
    version=2,
    trains=lambda options: _trainings(options, options["trainings"]),
    replicates=lambda options: [f"training_{seed}" for seed in range(options["trainings"])],
    unranked=lambda options: (
        "class information in a mask is a fault of protocols that retrain, not of a method."
    ),
    properties=MASKS,
)
def mask_leakage(
    trial: Trial,
    *,
    fraction: InnerShare = 0.3,
    masks: Literal["map", "random"] = "map",
    trainings: Count = 1,
    epochs: Count = 30,
    batch: Count = 128,
    rate: Positive = 0.1,
    augment: bool = False,
    units: UnitsChoice = "elements",
) -> Scores:
    """Accuracy, above chance, of a network that sees only which units would be removed.

    Formula: the mean over trainings s of [g_s(m - mean of m) = label] minus the share of scored
    samples in the most frequent class of the training samples. m is 1 where a unit is among the
    first `fraction` and 0 elsewhere, in every channel; g_s has the model's architecture.

    Above 0, the shape of the mask alone tells the class, and retraining without these units can
    read it. `masks: random` draws the units at random instead, the same for all methods: with
    `units: {grid: {side: 4}}` and `fraction: 0.0625` these are the masks of in-domain single
    deletion, which must be at 0; with `units: slic` the borders of segments show. The scores are
    shown and not ranked. From 2 trainings on, intervals are over the scored samples and over the
    trainings, whose scores are the metrics `training_0`, ... ; with 1 they are over samples only.

    Differs from the paper: the paper gives the accuracy itself, for seven fractions.
    """
    train, scored = _splits(trial)
    labels, truth = train.labels, scored.labels
    if labels is None or truth is None or trial.model.tokens is not None:
        raise NotApplicable("Masks are classified on images and vectors with labels only.")
    seen = _masks(train, trial, "train", masks, fraction, units)
    asked = _masks(scored, trial, "scored", masks, fraction, units)
    rows = []
    for seed in range(trainings):
        network = trial.fit(
            seen, labels, epochs=epochs, seed=seed, batch=batch, rate=rate, augment=augment
        )
        rows.append((trial.predict(network, asked) == truth).double())
    usual = labels.mode().values
    chance = (truth == usual).double().mean()
    right = torch.stack(rows).cpu()  # [trainings, N]
    each = {f"training_{seed}": right[seed] - chance.cpu() for seed in range(trainings)}
    accuracy = right.mean(0)
    return Scores(accuracy - chance.cpu(), extra={"accuracy": accuracy, **each})


def _masks(
    batch: Batch,
    trial: Trial,
    split: Literal["scored", "train"],
    masks: str,
    fraction: float,
    units: UnitsChoice,
) -> Tensor:
    """The masks of a split as inputs of the network: like the samples, each with mean 0."""
    features = make_units(batch, units)
    if masks == "map":
        values = features.sum(trial.maps(split))
    else:
        values = batch.draw("mask leakage", (features.count,))
    gone = _first(batch, features, values, fraction)  # [N, *map_shape]
    shape = (len(gone), *[1] * (batch.inputs.ndim - gone.ndim), *gone.shape[1:])
    return (
        (gone - gone.flatten(1).mean(1).reshape(-1, *[1] * (gone.ndim - 1)))
        .reshape(shape)
        .expand_as(batch.inputs)
        .contiguous()
    )


def _first(batch: Batch, features: Features, values: Tensor, fraction: float) -> Tensor:
    """1 where a position belongs to the first units by value, else 0."""
    absent = by_rank(batch, features, values, [fraction], descending=True)
    samples = torch.arange(len(batch), device=values.device)
    gone = absent.make(samples, torch.zeros_like(samples))
    return features.spread(gone, samples).to(batch.dtype)
