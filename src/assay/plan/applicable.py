"""Which methods and protocols of a list apply to a model and data."""

from collections.abc import Iterable

from assay.plan.plan import build_one
from assay.plugins.option_types import Item
from assay.suite.spec import Spec, choose_one
from assay.types import Dataset, Model


def applicable(kind: str, items: Iterable[Item], model: Model, dataset: Dataset) -> list[Item]:
    """The methods or protocols whose needs the model and the dataset meet."""
    has = model.capabilities | dataset.has | {dataset.modality}
    choices = [(item, choose_one(kind, item)) for item in items]
    return [item for item, choice in choices if choice.plugin.required(choice.options) <= has]


def only_applicable(spec: Spec, *, methods: bool, protocols: bool) -> Spec:
    """A suite of one model and one dataset, with only the methods or protocols that apply.

    Model and dataset are built for it, and by the run again: a suite holds only their names.
    """
    if not methods and not protocols:
        return spec
    (dataset_item,), (model_item,) = spec.datasets, spec.models
    dataset, model = build_one("dataset", dataset_item), build_one("model", model_item)
    lists = {"methods": methods, "protocols": protocols}
    kept = {
        field: applicable(field.removesuffix("s"), getattr(spec, field), model, dataset)
        for field, filtered in lists.items()
        if filtered
    }
    return spec.model_copy(update=kept)
