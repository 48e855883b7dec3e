"""Which samples of a dataset belong together: groups that are given, or near-duplicates."""

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from dataclasses import replace

from assay.errors import InputError
from assay.types import Dataset

Groups = Sequence[object] | Mapping[str, object]  # one label per sample, or by id


def with_groups(dataset: Dataset, groups: Groups) -> Dataset:
    """The dataset with these groups; a sample that is alone in its group needs none.

    Raises:
        InputError: There is not one label for each sample.
    """
    if isinstance(groups, str) or not isinstance(groups, Sized):
        raise InputError(
            f"Expected `groups` to be one label per sample, got {type(groups).__name__}."
        )
    if isinstance(groups, Mapping):
        missing = [sample for sample in dataset.ids if sample not in groups]
        if missing or len(groups) != len(dataset.ids):
            one = f"none for `{missing[0]}`" if missing else f"{len(groups)} labels"
            raise InputError(
                f"Expected `groups` to name the group of each of the {len(dataset.ids)} samples of "
                f"`{dataset.name}`, got {one}."
            )
        labels = [str(groups[sample]) for sample in dataset.ids]
    else:
        labels = [str(label) for label in groups]
    if len(labels) != len(dataset.ids):
        raise InputError(
            f"Expected `groups` to hold one label for each of the {len(dataset.ids)} samples of "
            f"`{dataset.name}`, got {len(labels)}."
        )
    return replace(dataset, groups=_shared(dict(zip(dataset.ids, labels, strict=True))))


def with_alike(dataset: Dataset, firsts: Sequence[int]) -> Dataset:
    """The dataset with its near-duplicates in groups, which its note counts.

    Args:
        dataset: Samples without groups.
        firsts: For each sample, the number of the first one that is nearly the same.
    """
    ids = dataset.ids
    groups = _shared({ids[i]: ids[first] for i, first in enumerate(firsts)})
    if not groups:
        return dataset
    text = (
        f"{len(groups)} samples are nearly the same as others: intervals resample their "
        f"{len(set(groups.values()))} groups"
    )
    return replace(dataset, groups=groups, note="; ".join(filter(None, [dataset.note, text])))


def _shared(groups: Mapping[str, str]) -> dict[str, str]:
    """The groups that have more than one sample."""
    sizes = Counter(groups.values())
    return {sample: group for sample, group in groups.items() if sizes[group] > 1}
