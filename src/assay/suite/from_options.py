"""A suite from command-line options that describe the user's own model and data."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from assay.errors import InputError, PrerequisiteError, unknown
from assay.paths import user_path
from assay.plugins.addresses import is_address
from assay.plugins.option_types import Item
from assay.plugins.registry import Plugin, everything, names
from assay.suite.defaults import METHODS, PROTOCOLS
from assay.suite.spec import Spec, make_suite

LONGEST_NUMBER = 20  # digits of a class that is typed as a number: longer ones have over 64 bits


@dataclass(frozen=True)
class ModelOptions:
    """The command-line options that describe a model; None where an option is not set."""

    weights: str | None = None
    size: int | None = None
    resize: int | None = None
    mean: str | None = None
    std: str | None = None
    classes: str | None = None
    card: str | None = None
    stochastic: bool | None = None


def own_suite(
    model: str | None,
    data: str | None,
    described: ModelOptions,
    methods: str | None = None,
    protocols: str | None = None,
    target: str = "label",
    train: str | None = None,
) -> Spec:
    """The suite of a run without a suite file.

    Args:
        model: A name or an address.
        data: A path or a name.
        described: Further options of the model.
        methods: Names, addresses or files of maps, separated by commas; by default `METHODS`.
        protocols: Names or addresses, separated by commas; by default `PROTOCOLS`.
        target: The class explained: `label`, `predicted`, or a class's number or name.
        train: Training samples, as `data`.

    Raises:
        InputError: Model or data is missing, or an argument is invalid.
    """
    chosen = METHODS if methods is None else [method_item(word) for word in _words(methods)]
    return make_suite(
        {
            **own_fields(model, data, described, train),
            "methods": list(chosen),
            "protocols": list(PROTOCOLS) if protocols is None else _words(protocols),
            "target": _class(target),
        },
        "the command",
    )


def own_fields(
    model: str | None, data: str | None, described: ModelOptions, train: str | None = None
) -> dict[str, list[Item]]:
    """The fields of a suite that say what is explained: data, training samples and model.

    Raises:
        InputError: Model or data is missing, or an argument is invalid.
    """
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise InputError(
            f"Expected `--model` and `--data`, or a suite that contains both: `{missing}` is "
            f"missing."
        )
    classes = None if described.classes is None else _words(described.classes)
    return {
        "datasets": [dataset_item(data, classes)],
        "train": [] if train is None else [dataset_item(train, classes)],
        "models": [model_item(model, described)],
    }


def model_item(model: str, described: ModelOptions) -> Item:
    """A model as a suite writes it, with its options.

    Raises:
        InputError: The model is only a file or a folder, or an option is not a number.
    """
    if (user_path(model, "`--model`") / "config.json").is_file():
        raise InputError(f"Expected `hf:{model}` for a Hugging Face folder, got `{model}`.")
    if model.endswith(".py"):
        raise InputError(
            f"Expected `./{Path(model).name}:NAME`, the function or class that builds the network, "
            f"got only the file `{model}`."
        )
    values = {
        "weights": described.weights,
        "size": described.size,
        "resize": described.resize,
        "classes": None if described.classes is None else _words(described.classes),
        "mean": _numbers("mean", described.mean),
        "std": _numbers("std", described.std),
        "card": described.card,
        "stochastic": described.stochastic,
    }
    options = {name: value for name, value in values.items() if value is not None}
    return {model: options} if options else model


def method_item(word: str) -> Item:
    """A method as a suite writes it; a file becomes the option of the method that reads it."""
    reader = _reader("method", Path(word))
    return word if reader is None else {reader.name: {"path": word}}


def plugin_item(text: str) -> Item:
    """A plug-in as labels write it, `blur(sigma=5)`, as a suite writes it.

    Raises:
        InputError: The options are not `name=value`.
    """
    name, bracket, rest = text.strip().partition("(")
    if not bracket:
        return name
    pairs = [word.partition("=") for word in _words(rest.removesuffix(")"))]
    if not rest.endswith(")") or not all(option and value for option, _, value in pairs):
        raise InputError(f"Expected a name with its options, `blur(sigma=5)`, got {text!r}.")
    return {name: {option.strip(): yaml.safe_load(value) for option, _, value in pairs}}


def dataset_item(data: str, classes: list[str] | None = None) -> Item:
    """A dataset as a suite writes it; a path becomes the option of the dataset that reads it.

    Raises:
        InputError: It is neither a readable path nor the name of a dataset.
        PrerequisiteError: There is no such folder or file.
    """
    path = user_path(data, "the data")
    reader = _reader("dataset", path)
    if reader is not None:
        named = {"classes": classes} if classes and "classes" in reader.options else {}
        return {reader.name: {"path": data, **named}}
    if ":" not in data and ("/" in data or data.startswith((".", "~"))):
        raise PrerequisiteError(f"There is no folder or file `{data}`.")
    if not is_address(data) and data not in (known := names("dataset")):
        absent = "" if path.exists() else f"There is no folder or file `{data}` either."
        raise InputError(f"{unknown('dataset', data, known)} {absent}".strip())
    return data


def _reader(kind: str, path: Path) -> Plugin | None:
    """The plug-in that declares that it reads this path, as its option `path`."""
    plugins: Iterator[Plugin] = everything(kind)
    return next((p for p in plugins if p.reads is not None and p.reads(path)), None)


def _class(target: str) -> int | str:
    """A class as typed: its number, or its name."""
    if target.isdecimal() and len(target) > LONGEST_NUMBER:
        raise InputError(
            f"Expected `--target` to be label, predicted, or the number or name of a class, got a "
            f"number of {len(target)} digits."
        )
    return int(target) if target.isdecimal() else target


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _numbers(name: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError(
            f"Expected `--{name}` to be numbers separated by commas, got {text!r}."
        ) from None
