"""A suite out of what the command line says of one's own model and data."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import InputError, PrerequisiteError, unknown
from assay.plugins.addresses import is_address
from assay.plugins.registry import names
from assay.suite.spec import Spec, make_suite

METHODS = "saliency,input_x_gradient,integrated_gradients,gradcam,random,constant,centre,edge"
PROTOCOLS = "abpc,deletion,insertion,single_deletion,sensitivity_n"


def own_suite(told: Mapping[str, Any], target: str = "label") -> Spec:
    """The suite of a run without a suite file; the run writes it down.

    Args:
        told: `model`, `data`, `weights`, `methods`, `protocols`, `size`, `resize`, `mean`, `std`
            and `classes` as the command line has them; None where nothing was said.
        target: The class explained: `label`, `predicted`, or a class by its number or name.

    Raises:
        InputError: Model or data are not said, or an argument is not what was expected.
    """
    model, data, classes = told["model"], told["data"], _words(told["classes"])
    if model is None or data is None:
        missing = "--model" if model is None else "--data"
        raise InputError(f"Expected a suite, or `--model` and `--data`: `{missing}` is missing.")
    return make_suite(
        {
            "datasets": [dataset_item(data, classes)],
            "models": [model_item(model, {**told, "classes": classes})],
            "methods": [method_item(word) for word in _words(told["methods"] or METHODS) or ()],
            "protocols": _words(told["protocols"] or PROTOCOLS),
            "target": int(target) if target.isdecimal() else target,
        },
        "the command",
    )


def model_item(model: str, told: Mapping[str, Any]) -> Any:
    """A model as a suite writes it, with what was said of it."""
    if (Path(model).expanduser() / "config.json").is_file():
        raise InputError(f"Expected `hf:{model}` for a folder of Hugging Face, got `{model}`.")
    if model.endswith(".py"):
        raise InputError(
            f"Expected `./{Path(model).name}:NAME`, the function or class that makes the network, "
            f"got only the file `{model}`."
        )
    described = {
        **{name: told.get(name) for name in ("weights", "size", "resize", "classes")},
        **{name: _numbers(name, told.get(name)) for name in ("mean", "std")},
    }
    options = {name: value for name, value in described.items() if value is not None}
    return {model: options} if options else model


def method_item(word: str) -> Any:
    """A method as a suite writes it; a file of arrays holds maps."""
    holds_maps = Path(word).suffix.lower() in (".npy", ".npz", ".safetensors")
    return {"maps": {"path": word}} if holds_maps else word


def dataset_item(data: str, classes: list[str] | None = None) -> Any:
    """A dataset as a suite writes it: what kind a path holds, by its files, ending and columns."""
    path = Path(data).expanduser()
    if path.is_dir():
        if any((path / file).is_file() for file in ("dataset_info.json", "dataset_dict.json")):
            return {"hf_dataset": {"path": data}}
        return {"image_folder": {"path": data, **({"classes": classes} if classes else {})}}
    ending = path.suffix.lower()
    if ending in (".jsonl", ".tsv"):
        return {"texts": {"path": data}}
    if ending in (".csv", ".parquet"):
        columns = _columns(path)
        texts = "text" in columns and not {"path", "image"} & columns
        return {"texts" if texts else ending[1:]: {"path": data}}
    if ":" not in data and ("/" in data or data.startswith((".", "~"))):
        raise PrerequisiteError(f"There is no folder or file `{data}`.")
    if not is_address(data) and data not in (known := names("dataset")):
        here = "" if path.exists() else f"There is no folder or file `{data}` either."
        raise InputError(f"{unknown('dataset', data, known)} {here}".strip())
    return data


def _columns(path: Path) -> set[str]:
    """The columns of a table; none where it cannot be read, which its reader will say."""
    try:
        if path.suffix.lower() == ".parquet":
            return set(pq.read_schema(path).names)
        with path.open(newline="", encoding="utf-8-sig") as text:
            return set(next(csv.reader(text), ()))
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return set()


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _numbers(name: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(word) for word in text.split(",")]
    except ValueError:
        raise InputError(f"Expected `--{name}` to be numbers by commas, got {text!r}.") from None
