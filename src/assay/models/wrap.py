"""A torch network as a model, with what assay must know about it."""

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from assay.errors import InputError, unknown
from assay.models.carded import with_card
from assay.plugins.display_names import display_name
from assay.plugins.options import refuse_deep
from assay.types import Card, Model, Pixels, Prepare, Preprocess, Tokenize, Tokens
from assay.types.hashing import is_quantised
from assay.types.model import Reshape

MOST_CLASSES = 1_000_000
TOKENIZER = (
    "A network of transformers comes with its tokenizer by name, `hf:FOLDER`. For another network "
    "give `prepare=assay.Tokenize(encode, assay.Tokens(pad=...), longest=...)`"
)


def model(
    net: nn.Module | Model,
    *,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    size: int | None = None,
    resize: int | None = None,
    classes: int | Sequence[str] | None = None,
    cam_layer: str | nn.Module | None = None,
    cam_reshape: Reshape | Sequence[int] | None = None,
    output: str | int | Callable[[Any], Tensor] | None = None,
    name: str | None = None,
    prepare: Prepare | None = None,
    tokens: Tokens | None = None,
    card: Card | str | Path | None = None,
    regression: bool = False,
    stochastic: bool = False,
    **others: object,
) -> Model:
    """A network as assay takes it; a `Model` passes through.

    Args:
        net: The network, from a batch of inputs to logits `[batch, classes]`.
        mean: What is subtracted from pixels in [0, 1], per channel or one number for all.
        std: What they are then divided by.
        size: The input's height and width in pixels. Needed where the data are image files, with
            `mean` and `std`; not where the data are inputs already.
        resize: The image's shorter side before the crop to `size`; by default `size`.
        classes: The names of the classes, or how many there are.
        cam_layer: The layer that CAM methods read, or its name; by default the last with a
            spatial output.
        cam_reshape: Where a vision transformer's tokens are in the image: rows and columns of its
            patches, or a function from a layer's output to `[batch, channels, height, width]`.
        output: Where the logits are in what the network returns: a key, a position, a function.
        name: The model's name in tables; by default the network's class.
        prepare: A `Preprocess` or a `Tokenize`, from an image file or a text to the input, where
            `size`, `mean` and `std` cannot describe it.
        tokens: What token ids mean to a network of texts; a `Tokenize` contains it.
        card: The card of its fine-tuning, or the file that `assay finetune` wrote.
        regression: Whether the network gives one number that is no logit; it is then explained
            itself, and protocols that need classes do not apply.
        stochastic: Whether its outputs may differ for the same input, as with dropout that stays
            on. Without this, a run refuses such a network.
        **others: None: any other name is an error that lists these.

    Raises:
        InputError: An argument is not what was expected.
    """
    _refuse(others)
    flags = {"stochastic": stochastic, "regression": regression}
    refuse_deep(flags, "the arguments of a model")
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise InputError(f"Expected `{flag}` to be true or false, got {value!r}.")
    arguments = {
        "mean": mean, "std": std, "size": size, "resize": resize, "classes": classes,
        "cam_layer": cam_layer, "cam_reshape": cam_reshape, "output": output, "name": name,
        "prepare": prepare, "tokens": tokens, "regression": regression or None,
        "stochastic": stochastic or None,
    }  # fmt: skip
    refuse_deep(arguments, "the arguments of a model")
    if isinstance(net, Model):
        extra = [name for name, value in arguments.items() if value is not None]
        if extra:
            raise InputError(
                f"Expected no `{extra[0]}` for `{net.name}`, which is already a `Model`. Give its "
                f"network, `model.net`, or change the model with `dataclasses.replace`."
            )
        return net if card is None else with_card(net, card)
    if not isinstance(net, nn.Module):
        raise InputError(f"Expected a torch.nn.Module or a `Model`, {_got(net)}.")
    if any(weight.is_inference() for weight in net.parameters()):
        raise InputError(
            f"Expected `{type(net).__name__}` to be made outside `torch.inference_mode()`, got "
            f"weights without gradients. Make or load the network outside it."
        )
    if prepare is not None and not isinstance(prepare, Preprocess | Tokenize):
        cure = "Give tensors as data where the network prepares its inputs in another way"
        raise InputError(
            f"Expected `prepare` to be a `Preprocess` or a `Tokenize`, got "
            f"{type(prepare).__name__}. {TOKENIZER if hasattr(prepare, 'encode') else cure}."
        )
    if any(weight.is_meta for weight in net.state_dict().values() if isinstance(weight, Tensor)):
        raise InputError(
            f"Expected `{type(net).__name__}` to have weights, got a network on the device `meta`, "
            f"which has none. Load its weights on the CPU first."
        )
    if size is not None or resize is not None:
        prepare, mean, std = _preprocess(size, resize, mean, std, prepare), None, None
    if tokens is not None and not isinstance(tokens, Tokens):
        raise InputError(
            f"Expected `tokens` to be `assay.Tokens(pad=...)`, got {type(tokens).__name__}."
        )
    if isinstance(prepare, Tokenize):
        tokens = tokens or prepare.tokens
    if tokens is not None:
        tokens = _embedded(net, tokens)
    key = isinstance(output, str | int) and not isinstance(output, bool)
    if not (output is None or callable(output) or key):
        raise InputError(
            f"Expected `output` to be a key, a position or a function, got {type(output).__name__}."
        )
    described = Model(
        net=net,
        name=display_name(name, "`name`") if name else type(net).__name__.lower(),
        modality="image" if tokens is None else "text",
        cam_layer=None if cam_layer is None else layer_name(net, cam_layer),
        cam_reshape=_reshape(cam_reshape),
        prepare=prepare,
        pixels=None if isinstance(prepare, Tokenize) else _pixels(mean, std, prepare),
        tokens=tokens,
        classes=_classes(classes),
        output=output,
        stochastic=stochastic,
        has=_capabilities(net, regression),
    )
    return described if card is None else with_card(described, card)


def _capabilities(net: nn.Module, regression: bool) -> frozenset[str]:
    whole = {"regression" if regression else "classes"}
    return frozenset(whole if any(map(is_quantised, net.modules())) else {"gradients", *whole})


def _refuse(others: Mapping[str, object]) -> None:
    """Refuse arguments that do not exist."""
    for name in others:
        if name == "tokenizer":
            raise InputError(f"Expected no `tokenizer`. {TOKENIZER}.")
        known = inspect.signature(model).parameters
        raise unknown("argument of `assay.model`:", name, [n for n in known if n != "others"])


def _reshape(value: Reshape | Sequence[int] | None) -> Reshape | None:
    if value is None or callable(value):
        return value
    counts = tuple(value) if isinstance(value, Sequence) else ()
    if len(counts) != 2 or not all(type(n) is int and n > 0 for n in counts):
        raise InputError(
            f"Expected `cam_reshape` to be the rows and columns of the patches, such as (14, 14), "
            f"or a function, got {value!r}."
        )
    return int(counts[0]), int(counts[1])


def _embedded(net: nn.Module, tokens: Tokens) -> Tokens:
    """The tokens with the embedding of words: the one named, or the network's first."""
    if tokens.embedding:
        layer_name(net, tokens.embedding, "embedding")
        return tokens
    for name, module in net.named_modules():
        if isinstance(module, nn.Embedding):
            return replace(tokens, embedding=name)
    raise InputError(
        f"Expected `{type(net).__name__}` to have an nn.Embedding of words, found none. "
        f"Name the layer with `Tokens(embedding=...)`. {_children(net)}"
    )


def _got(net: object) -> str:
    """What came instead of a network, and what to give."""
    if inspect.isclass(net) and issubclass(net, nn.Module):
        return f"got the class `{net.__name__}` itself. Give an instance, with its weights"
    if isinstance(getattr(net, "model", None), Model):  # an `Environment`
        return f"got {net!r}. Give its model and its samples, `env.model, env.dataset`"
    hint = ". Wrap it in a module" if callable(net) else ""
    return f"got {type(net).__name__}{hint}"


def _preprocess(
    size: int | None,
    resize: int | None,
    mean: float | Sequence[float] | None,
    std: float | Sequence[float] | None,
    prepare: Prepare | None,
) -> Preprocess:
    """From image files to inputs, where size, mean and std are all known."""
    if prepare is not None:
        raise InputError("Expected `size` or `prepare`, not both: each describes the input.")
    pixels = _pixels(mean, std, None)
    if size is None:
        raise InputError("Expected `size` with `resize`: the input's height and width in pixels.")
    if pixels is None:
        raise InputError("Expected `mean` and `std` with `size`: images are normalised by them.")
    if len(pixels.mean) == 1:  # image files are read as RGB
        pixels = Pixels(pixels.mean * 3, pixels.std * 3)
    return Preprocess(size, pixels, resize)


def _pixels(
    mean: float | Sequence[float] | None,
    std: float | Sequence[float] | None,
    prepare: Preprocess | None,
) -> Pixels | None:
    if mean is None and std is None:
        return prepare.pixels if prepare else None
    if mean is None or std is None:
        here, absent = ("std", "mean") if mean is None else ("mean", "std")
        raise InputError(f"Expected `mean` and `std` together, got `{here}` without `{absent}`.")
    means, stds = _numbers("mean", mean), _numbers("std", std)
    if isinstance(mean, int | float):
        means *= len(stds)
    if isinstance(std, int | float):
        stds *= len(means)
    if len(means) != len(stds):
        raise InputError(
            f"Expected `mean` and `std` to be of one length, got {len(means)} and {len(stds)}."
        )
    if min(stds) <= 0:
        raise InputError(f"Expected every `std` to be above 0, got {list(stds)}.")
    pixels = Pixels(means, stds)
    if prepare and prepare.pixels != pixels:
        raise InputError(
            f"Expected `mean` and `std` to be those of `prepare`, {prepare.pixels}, got {pixels}. "
            f"Leave them out: `prepare` contains them."
        )
    return pixels


def _numbers(what: str, value: float | Sequence[float]) -> tuple[float, ...]:
    values = [value] if isinstance(value, int | float) else value
    try:
        numbers = tuple(float(number) for number in values)
    except (TypeError, ValueError, OverflowError):
        numbers = ()
    plain = not isinstance(value, str | Mapping) and not any(type(v) is bool for v in values)
    if not numbers or not plain or not all(map(math.isfinite, numbers)):
        raise InputError(f"Expected `{what}` to be one number per channel, got {value!r}.")
    return numbers


def _classes(classes: int | Sequence[str] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if type(classes) is int and 0 < classes <= MOST_CLASSES:
        return tuple(str(number) for number in range(classes))
    if isinstance(classes, Sequence) and not isinstance(classes, str) and len(classes):
        return tuple(display_name(label, "a name in `classes`") for label in classes)
    raise InputError(
        f"Expected `classes` to be a count of at most {MOST_CLASSES:,} or the names of the "
        f"classes, got {classes!r}."
    )


def layer_name(net: nn.Module, layer: str | nn.Module, what: str = "cam_layer") -> str:
    """The name of a layer of the network."""
    layers: dict[str, nn.Module] = dict(net.named_modules(remove_duplicate=False))
    layers.pop("", None)
    if isinstance(layer, nn.Module):
        for name, module in layers.items():
            if module is layer:
                return name
        raise InputError(
            f"Expected `{what}` to be a layer of `{type(net).__name__}`, got a "
            f"{type(layer).__name__} that is not in it. {_children(net)}"
        )
    if not isinstance(layer, str):
        raise InputError(
            f"Expected `{what}` to be a module or its name, got {type(layer).__name__}."
        )
    if layer not in layers:
        near = difflib.get_close_matches(layer, layers, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
        raise InputError(
            f"Expected `{what}` to be a layer of `{type(net).__name__}`, got `{layer}`. "
            f"{hint}{_children(net)}"
        )
    return layer


def _children(net: nn.Module) -> str:
    return f"Its layers: {', '.join(name for name, _ in net.named_children()) or 'none'}."
