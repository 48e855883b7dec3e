"""What identifies the content of datasets and models in keys, independent of their names."""

from collections.abc import Mapping

from assay.plugins import registry
from assay.types import Dataset, Model


def data_content(dataset: Dataset) -> list[object]:
    """What identifies the samples of a dataset."""
    return [dataset.fingerprint, registry.identity(dict(dataset.groups))]


def split_contents(datasets: Mapping[str, Dataset]) -> dict[tuple[str, str], list[object]]:
    """What identifies the splits of datasets, by dataset and split."""
    return {
        (name, part): data_content(split)
        for name, dataset in datasets.items()
        for part, split in dataset.splits.items()
    }


def model_content(model: Model, identity: int) -> list[object]:
    """What identifies a model, under keys of this version."""
    return [model.weights_hash, model.checkpoint, *_reading(model, identity)]


def reading_key(model: Model, identity: int) -> str:
    """The identity of how a network is read, whatever its weights: inputs, layers, output."""
    return registry.identity(_reading(model, identity))


def _reading(model: Model, identity: int) -> list[object]:
    output = model.output
    return [
        _described_by_repr(model) if identity == 1 else _described(model),
        registry.code_identity(output) if callable(output) else output,
        *_reshape(model),
    ]


def _described(model: Model) -> dict[str, object]:
    """The description of a model's inputs and layers, hashed by content."""
    return {
        "prepare": model.prepare,
        "pixels": model.pixels,
        "cam_layer": model.cam_layer,
        "tokens": model.tokens,
    }


def _described_by_repr(model: Model) -> str:
    """The same for runs of identity 1: the fields of these dataclasses must not change."""
    return repr((model.prepare, model.pixels, model.cam_layer, model.tokens))


def _reshape(model: Model) -> list[object]:
    """How a model arranges its tokens in space; empty if it declares nothing."""
    reshape = model.cam_reshape
    if reshape is None:
        return []
    return [{"reshape": registry.code_identity(reshape) if callable(reshape) else list(reshape)}]
