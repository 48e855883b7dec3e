"""Methods and protocols as they are written in Python: names, options, maps, functions."""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from assay.errors import InputError
from assay.methods.attribution import given, reduce_map, wrong_shape
from assay.methods.attributors import attributor, is_attributor, parameters_of
from assay.models.wrap import layer_name
from assay.plugins import registry
from assay.plugins.display_names import take_display_name
from assay.plugins.option_types import Options
from assay.suite.spec import Choice, choose_one
from assay.types import Dataset, Model
from assay.types.dense import dense


def fits_data(choice: Choice, item: object, dataset: Dataset) -> Choice:
    """Reject maps that do not fit the data, before anything is computed."""
    value = next(iter(item.values())) if isinstance(item, Mapping) and len(item) == 1 else None
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        maps = dense(value, f"maps `{choice.label}`")
        if len(maps) != len(dataset.ids):
            raise InputError(
                f"Expected `{choice.label}` to hold a map for each of {len(dataset.ids)} samples, "
                f"got {len(maps)}."
            )
        if dataset.modality != "text":  # the model determines the length of texts
            first = dataset.batch(dataset.ids[:1])
            try:
                reduce_map(maps[:1], first, choice.label)
            except InputError:
                raise wrong_shape(maps, first, choice.label, len(maps)) from None
    return choice


def listed(choices: object) -> list[object]:
    """A list of choices from one name, a list, or a mapping by name."""
    if isinstance(choices, str) or callable(choices) or is_attributor(choices):
        return [choices]
    if isinstance(choices, Mapping):
        return [{name: value} for name, value in choices.items()]
    if not isinstance(choices, Iterable):
        raise InputError(f"Expected a list of names, got {type(choices).__name__}.")
    return list(choices)


def protocol_of(item: object, options: Options) -> Choice:
    """Resolve one protocol as written in Python."""
    if isinstance(item, Choice):
        return item
    name, written = registry.pick(item)
    return choose_one("protocol", {name: {**written, **options}})


def method_of(item: object, options: Options, model: Model) -> Choice:
    """Resolve one method as written in Python: a name, options, maps or a callable."""
    if isinstance(item, Choice):
        return item
    label, value = "", None
    if isinstance(item, Mapping) and len(item) == 1:
        label, value = next(iter(item.items()))
    if is_attributor(value):
        return attributor(value, options, model, label)
    if is_attributor(item) or is_attributor(label):
        source, written = (item, {}) if is_attributor(item) else (label, dict(value or {}))
        own = take_display_name(written, parameters_of(source))
        return attributor(source, {**written, **options}, model, own or "")
    if callable(item):
        label, value = getattr(item, "__name__", type(item).__name__), item
    if isinstance(value, Tensor) or callable(value) or hasattr(value, "__array__"):
        if options:
            raise InputError(f"Expected no options with `{label}`, got {', '.join(options)}.")
        return given(label, value)
    name, written = registry.pick(item)
    merged = {**written, **options}
    if isinstance(merged.get("layer"), nn.Module):
        merged["layer"] = layer_name(model.net, merged["layer"], "layer")
    return choose_one("method", {name: merged})
