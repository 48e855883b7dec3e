"""Scored samples that a network was or will be trained on, compared by content."""

from collections.abc import Iterable

from torch import Tensor

from assay.data.sample_hashes import check_apart, hash_samples, shared_ids, some_ids
from assay.errors import warn
from assay.plan.plan import Plan
from assay.types import Card, Dataset, Model
from assay.types.card import IN_DOMAIN


def check_train_splits(plan: Plan, datasets: Iterable[str]) -> None:
    """Reject training samples of set protocols that are scored too.

    Rows of a table are not compared: two samples may have equal numbers.

    Raises:
        InputError: A scored sample has the content of a training sample.
    """
    for name in dict.fromkeys(datasets):
        dataset, ids = plan.datasets[name], plan.samples(name)
        train = dataset.splits.get("train")
        if train is None or dataset.modality == "vector":
            continue
        model = next(plan.models[m] for data, m in plan.pairs if data == name)
        check_apart(
            "scored", ids, hash_samples(dataset, ids, model),
            hash_samples(train, train.ids, model),
            f"Leave them out of `{name}` or of its training samples.",
        )  # fmt: skip


def warn_of_tuned_samples(plan: Plan, pairs: Iterable[tuple[str, str]]) -> None:
    """Warn where an in-domain protocol scores samples that the network was fine-tuned on.

    Args:
        plan: The plan of the run.
        pairs: The datasets and models that are scored.
    """
    for data, name in dict.fromkeys(pairs):
        model, ids = plan.models[name], plan.samples(data)
        card = model.card.get(IN_DOMAIN)
        if not isinstance(card, Card) or card.training_hashes is None:
            continue
        if not any(p.plugin.required(p.options) & card.capabilities for p in plan.protocols):
            continue
        hashes = hash_samples(plan.datasets[data], ids, model)
        shared = shared_ids(ids, hashes, card.training_hashes)
        if shared:
            warn(
                f"`{name}` was fine-tuned on {len(shared)} of the {len(ids)} scored samples of "
                f"`{data}` ({len(shared) / len(ids):.0%}): {some_ids(shared)}. Score on other "
                f"samples."
            )


def check_scored(dataset: Dataset, model: Model, training: Tensor, limit: int | None) -> None:
    """Reject samples to score that a network is fine-tuned on.

    Args:
        dataset: The samples.
        model: The network.
        training: The hashes of the training samples.
        limit: At most so many of the samples are scored.

    Raises:
        InputError: Some are training samples.
    """
    ids = dataset.drawn(limit)
    check_apart(
        "scored", ids, hash_samples(dataset, ids, model), training,
        "Give other samples to `--score`, or leave these out of `--data`.",
    )  # fmt: skip
