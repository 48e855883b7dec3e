"""Networks of other libraries: `timm:resnet18`, `torchvision:resnet18`, `hf:FOLDER`."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import nn

from assay.errors import PrerequisiteError, unknown
from assay.models.factory import DESCRIPTION, describe
from assay.models.huggingface import hugging_face
from assay.models.shim import ensure_torchvision as ensure_torchvision
from assay.plugins.option_types import Options
from assay.types import Model
from assay.types.pixels import Pixels, Preprocess

Built = tuple[nn.Module, Preprocess | None, list[str]]  # with the class names, where known


def is_hub_name(name: str) -> bool:
    """Whether a name names a network of another library."""
    return name.partition(":")[0] in (*_LIBRARIES, "hf")


def hub_model(name: str, options: Options, label: str) -> Model:
    """A network of another library, with that library's own preprocessing.

    Args:
        name: `timm:NAME`, `torchvision:NAME` or `hf:FOLDER`.
        options: Those of any network (`weights`, `classes`, ...), and `pretrained`, which downloads
            the library's weights.
        label: The model's name in tables.
    """
    library, _, own_name = name.partition(":")
    if library == "hf":
        return hugging_face(own_name, options, label)
    for option in options:
        if option not in (*DESCRIPTION, "pretrained"):
            raise unknown(f"option of model `{name}`:", option, [*DESCRIPTION, "pretrained"])
    ensure_torchvision()
    pretrained = bool(options.get("pretrained", False))
    outputs = None if pretrained else _count(options.get("classes"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # without weights the network is random, but always the same
        net, prepare, names = _LIBRARIES[library](own_name, pretrained, outputs)
    if pretrained and names and "weights" not in options:  # other weights may have other classes
        options = {"classes": names, **options}
    described = describe(net, options, label, prepare)
    if pretrained or options.get("weights"):
        return described
    return replace(described, card={**described.card, "weights": "random weights: none were given"})


def _count(classes: int | Sequence[str] | None) -> int | None:
    """The number of the network's outputs: that of the classes."""
    return classes if classes is None or isinstance(classes, int) else len(classes)


def _timm(name: str, pretrained: bool, outputs: int | None) -> Built:
    try:
        import timm
    except ModuleNotFoundError:
        raise PrerequisiteError('timm is missing: pip install "assay[vision]".') from None
    if not timm.is_model(name):
        raise unknown("timm model", name, timm.list_models())
    head = {} if outputs is None else {"num_classes": outputs}
    net = _fetch(f"timm:{name}", lambda: timm.create_model(name, pretrained=pretrained, **head))
    config = timm.data.resolve_model_data_config(net)
    size = int(config["input_size"][-1])
    pixels = Pixels(tuple(config["mean"]), tuple(config["std"]))
    prepare = Preprocess(
        size,
        pixels,
        resize=int(size / config.get("crop_pct", 1.0)),
        squash=config.get("crop_mode") == "squash",
        resample=config.get("interpolation", "bicubic"),
    )
    return net, prepare, list(getattr(net, "pretrained_cfg", {}).get("label_names") or ())


def _torchvision(name: str, pretrained: bool, outputs: int | None) -> Built:
    from torchvision import models

    if name not in models.list_models():
        raise unknown("torchvision model", name, models.list_models())
    weights = models.get_model_weights(name).DEFAULT
    head = {} if outputs is None else {"num_classes": outputs}
    net = _fetch(
        f"torchvision:{name}",
        lambda: models.get_model(name, weights=weights if pretrained else None, **head),
    )
    transforms = weights.transforms()
    if not hasattr(transforms, "crop_size"):  # detection and video networks take other inputs
        return net, None, []
    pixels = Pixels(tuple(transforms.mean), tuple(transforms.std))
    prepare = Preprocess(
        int(transforms.crop_size[0]),
        pixels,
        resize=int(transforms.resize_size[0]),
        resample=transforms.interpolation.value,
    )
    return net, prepare, list(weights.meta.get("categories", ()))


def _fetch(name: str, build: Callable[[], nn.Module]) -> nn.Module:
    try:
        return build()
    except OSError as error:
        raise PrerequisiteError(
            f"The weights of `{name}` cannot be downloaded ({error}). Give a file with `weights`."
        ) from error


_LIBRARIES: dict[str, Callable[[str, bool, int | None], Built]] = {
    "timm": _timm,
    "torchvision": _torchvision,
}
