"""Select the methods and protocols that apply to a model and a dataset."""

from collections.abc import Iterable, Sequence

from assay.plan.resolving import build_one
from assay.plugins.option_types import Item
from assay.plugins.origins import TYPED, Origin
from assay.suite.spec import Spec, choose_one
from assay.types import Dataset, Model


def applicable(
    kind: str, items: Iterable[Item], model: Model, dataset: Dataset, origin: Origin = TYPED
) -> list[Item]:
    """The methods or protocols whose needs the model and the dataset meet."""
    available = model.capabilities | dataset.has | {dataset.modality}
    choices = [(item, choose_one(kind, item, origin)) for item in items]
    return [item for item, choice in choices if choice.plugin.required(choice.options) <= available]


def applicable_to_any(
    kind: str, items: Sequence[Item], models: Sequence[Model], dataset: Dataset
) -> list[Item]:
    """The methods or protocols that apply to at least one of the models."""
    useful = [item for model in models for item in applicable(kind, items, model, dataset)]
    return [item for item in items if item in useful]


def only_applicable(spec: Spec, *, methods: bool, protocols: bool) -> Spec:
    """A suite of one model and one dataset, with only the methods or protocols that apply.

    The model and the dataset are built here and again by the run: a suite holds only their names.
    """
    if not methods and not protocols:
        return spec
    (dataset_item,), (model_item,) = spec.datasets, spec.models
    dataset = build_one("dataset", dataset_item, spec.origin)
    model = build_one("model", model_item, spec.origin)
    lists = {"methods": methods, "protocols": protocols}
    filtered_lists = {
        field: applicable(
            field.removesuffix("s"), getattr(spec, field), model, dataset, spec.origin
        )
        for field, filtered in lists.items()
        if filtered
    }
    return spec.model_copy(update=filtered_lists)
