"""Training samples of a suite: attached to the datasets whose samples are scored."""

from collections.abc import Mapping, Sequence

from assay.data.classes import agree
from assay.errors import InputError
from assay.types import Dataset, Model


def with_training(
    datasets: Mapping[str, Dataset], train: Sequence[Dataset], models: Mapping[str, Model]
) -> dict[str, Dataset]:
    """The datasets with classes numbered as the models number them, and with training samples.

    Args:
        datasets: The scored samples by label.
        train: Nothing, training samples for all datasets, or for each in its order.
        models: The models by label.

    Raises:
        InputError: Training and scored samples do not belong together.
    """
    scored = {name: agree(dataset, models) for name, dataset in datasets.items()}
    if not train:
        return scored
    each = list(train) * len(scored) if len(train) == 1 else train
    return {
        name: _attached(dataset, agree(samples, models))
        for (name, dataset), samples in zip(scored.items(), each, strict=True)
    }


def _attached(dataset: Dataset, train: Dataset) -> Dataset:
    """A dataset with its training samples; both must number their classes alike."""
    shared = dataset.classes.keys() & train.classes.keys()
    wrong = [n for n in sorted(shared) if dataset.classes[n] != train.classes[n]]
    if wrong:
        number = wrong[0]
        raise InputError(
            f"Expected class {number} of `{dataset.name}` and of its training samples to be the "
            f"same, got `{dataset.classes[number]}` and `{train.classes[number]}`. Give `classes` "
            f"to the model or to both, in one order."
        )
    return dataset.with_train(train)
