"""Class numbers: the classes of a dataset matched by name with those of a model."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from assay.errors import InputError, unknown
from assay.types import Dataset, Model, Sample

CURE = (
    "Class numbers begin at 0. Give the classes in the order of the model's outputs: `classes` of "
    "the model or the folder, on the command line `--classes`."
)


def agree(dataset: Dataset, models: Mapping[str, Model]) -> Dataset:
    """The dataset with its classes numbered as the models number them.

    Numbers that the data give stay. Names are looked up among the class names of the models; where
    no model names its classes, they are numbered in alphabetical order, or as the dataset declares
    them. `note` says which.

    Raises:
        InputError: A name is not among the model's, fits two classes, or two models disagree.
    """
    if dataset.numbering == "given" or not dataset.classes:
        return dataset
    numberings: dict[str, dict[int, int]] = {}  # by model: from the dataset's numbers to its own
    for name, model in models.items():
        if model.classes and not _only_numbers(model.classes):
            places = _places(dataset, name, model.classes)
            if places is not None:
                numberings[name] = places
    for name, places in numberings.items():
        first = next(iter(numberings))
        if places != numberings[first]:
            raise InputError(
                f"Models `{first}` and `{name}` have the classes of `{dataset.name}` in different "
                f"orders, but its labels can follow only one. Run them one by one."
            )
    if numberings:
        names = " and ".join(f"`{name}`" for name in numberings)
        return renumber(dataset, next(iter(numberings.values())), f"by the names in model {names}")
    return _unmatched(dataset)


def renumber(dataset: Dataset, places: Mapping[int, int], note: str) -> Dataset:
    """The same samples with other class numbers; where they differ, with another fingerprint."""
    noted = replace(dataset, note=f"class numbers: {note}", numbering="given")
    if all(old == new for old, new in places.items()):
        return noted
    inner = dataset.fetch

    def fetch(sample: str) -> Sample:
        before = inner(sample)
        return before if before.label is None else replace(before, label=places[before.label])

    order = hashlib.sha256(f"{dataset.fingerprint}{sorted(places.items())}".encode())
    return replace(
        noted,
        fetch=fetch,
        classes={places[number]: name for number, name in dataset.classes.items()},
        labels={sample: places[label] for sample, label in dataset.labels.items()},
        fingerprint=order.hexdigest()[:16],
    )


def look_up(names: Sequence[str], classes: Sequence[str], whose: str) -> list[set[int]]:
    """For each name its possible classes: those of equal spelling, else those that share a synonym.

    Case is ignored; blanks, underscores and hyphens are equal. Commas separate synonyms, and the
    first synonym decides before the others.

    Raises:
        InputError: Two names mean the same class.
    """
    whole, first, parts = (_index(classes, how) for how in (_whole, _first, _parts))
    meant = []
    for name in names:
        together: set[int] = set().union(*(parts.get(part, set()) for part in _parts(name)))
        exact = whole.get(_key(name)) or first.get(_first(name)[0], set()) & together
        meant.append(exact or together)
    taken: dict[int, str] = {}
    for name, numbers in zip(names, meant, strict=True):
        for number in numbers if len(numbers) == 1 else ():
            if number in taken:
                raise InputError(
                    f"Expected each class once, but `{taken[number]}` and `{name}` both mean "
                    f"`{classes[number]}` of {whose}. Put them together."
                )
            taken[number] = name
    return meant


def one_each(names: Sequence[str], classes: Sequence[str], whose: str) -> list[int]:
    """The number of every name among `classes`.

    Raises:
        InputError: A name is not among them, or fits several.
    """
    meant = look_up(names, classes, whose)
    unknown_names = [name for name, numbers in zip(names, meant, strict=True) if not numbers]
    if unknown_names:
        known = len(names) - len(unknown_names)
        raise InputError(
            f"Expected the classes {_some(names)} to be among those of {whose} "
            f"({_some(classes)}): {known or 'none'} of {len(names)} are, `{unknown_names[0]}` is "
            f"not. {CURE}"
        )
    for name, numbers in zip(names, meant, strict=True):
        if len(numbers) > 1:
            several = " or ".join(f"{n} (`{classes[n]}`)" for n in sorted(numbers))
            raise InputError(f"`{name}` may be class {several} of {whose}. Rename it to one.")
    return [next(iter(numbers)) for numbers in meant]


def class_number(name: str, dataset: Dataset, model: Model) -> int:
    """The number of the class that a suite explains by name, as the model or the data name it.

    Raises:
        InputError: Neither names classes, no class has the name, or several have it.
    """
    known = dict(enumerate(model.classes)) if model.classes else dict(dataset.classes)
    if not known:
        raise InputError(
            f"Expected `target` to be `label`, `predicted` or the number of a class, got `{name}`: "
            f"neither model `{model.name}` nor dataset `{dataset.name}` names its classes."
        )
    numbers, names = list(known), list(known.values())
    (places,) = look_up([name], names, f"model `{model.name}`")
    if not places:
        raise unknown("class to explain", name, ["label", "predicted", *names])
    if len(places) > 1:
        several = " or ".join(f"{numbers[p]} (`{names[p]}`)" for p in sorted(places))
        raise InputError(f"`target: {name}` may be class {several}. Give its number.")
    return numbers[next(iter(places))]


def check_target(target: int | str, model: str, outputs: int) -> None:
    """Refuse to explain a class that the model has no output for.

    Raises:
        InputError: The number is not below the number of outputs.
    """
    if isinstance(target, int) and target >= outputs:
        raise InputError(
            f"Expected `target` to be below {outputs}, the number of classes of model `{model}`, "
            f"got {target}. Class numbers begin at 0."
        )


def check_labels(dataset: Dataset, model: str, outputs: int) -> None:
    """Refuse labels that the model has no output for.

    Raises:
        InputError: A label is not below the number of outputs.
    """
    wrong = next(((s, n) for s, n in dataset.labels.items() if n >= outputs), None)
    if wrong is None:
        return
    sample, number = wrong
    name = f" (`{dataset.classes[number]}`)" if number in dataset.classes else ""
    lowest, highest = min(dataset.labels.values()), max(dataset.labels.values())
    cure = CURE if dataset.classes else "Class numbers begin at 0."
    if (lowest, highest) == (1, outputs):
        cure = "Class numbers begin at 0: subtract 1."
    raise InputError(
        f"Expected labels below {outputs}, the number of classes of model `{model}`, got "
        f"{number}{name} for sample `{sample}` of `{dataset.name}`, whose labels go from {lowest} "
        f"to {highest}. {cure}"
    )


def check_names(classes: Sequence[str] | None, model: str, outputs: int) -> None:
    """Refuse names of classes that are not one for each output.

    Raises:
        InputError: There are more or fewer.
    """
    if classes is not None and len(classes) != outputs:
        raise InputError(
            f"Expected `classes` of model `{model}` to name each of its {outputs} outputs, got "
            f"{len(classes)}: {_some(classes)}. Give the names in the order of the outputs."
        )


def _places(dataset: Dataset, model: str, classes: Sequence[str]) -> dict[int, int] | None:
    """From the dataset's numbers to the model's; None where the names do not decide it."""
    numbers, names = list(dataset.classes), list(dataset.classes.values())
    whose = f"model `{model}`"
    if dataset.numbering == "sorted":
        return dict(zip(numbers, one_each(names, classes, whose), strict=True))
    meant = [
        {number} if number in fits else fits  # two classes of one name: the number decides
        for number, fits in zip(numbers, look_up(names, classes, whose), strict=True)
    ]
    if all(len(fits) == 1 for fits in meant):
        return {number: next(iter(fits)) for number, fits in zip(numbers, meant, strict=True)}
    moved = [name for n, name, fits in zip(numbers, names, meant, strict=True) if fits - {n}]
    if moved:
        unclear = next(name for name, fits in zip(names, meant, strict=True) if len(fits) != 1)
        raise InputError(
            f"Dataset `{dataset.name}` and {whose} order their classes differently (`{moved[0]}`), "
            f"and the number of `{unclear}` is unclear. {CURE}"
        )
    return None


def _unmatched(dataset: Dataset) -> Dataset:
    names = list(dataset.classes.values())
    if dataset.numbering == "declared":
        return replace(dataset, note="class numbers: as the dataset declares them")
    if all(name.isdecimal() for name in names):
        own = {number: int(name) for number, name in dataset.classes.items()}
        return renumber(dataset, own, "the names are numbers")
    if len(names) == 1:
        raise InputError(
            f"Expected several classes in `{dataset.name}`, found only `{names[0]}`: its number "
            f"is unclear. {CURE}"
        )
    return replace(dataset, note=f"class numbers: alphabetical order ({_some(names)})")


def _only_numbers(classes: Sequence[str]) -> bool:
    """Whether the names are only the numbers, as where only the count was given."""
    return all(name == str(number) for number, name in enumerate(classes))


def _index(classes: Sequence[str], how: Callable[[str], list[str]]) -> dict[str, set[int]]:
    index: dict[str, set[int]] = {}
    for number, name in enumerate(classes):
        for key in how(name):
            index.setdefault(key, set()).add(number)
    return index


def _key(text: str) -> str:
    return re.sub(r"[\s_-]+", " ", text).strip().casefold()


def _whole(name: str) -> list[str]:
    return [_key(name)]


def _first(name: str) -> list[str]:
    return [_key(name.split(",")[0])]


def _parts(name: str) -> list[str]:
    return [key for key in map(_key, name.split(",")) if key]


def _some(names: Iterable[str], shown: int = 5) -> str:
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
