"""Weights from a file into a network: tensors only, every key accounted for."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.paths import user_path


def load_weights(
    net: nn.Module, path: str | Path, *, rename: Callable[[str], str] | None = None
) -> str:
    """Load safetensors or a `torch.save`d state dict into the network; every key must fit.

    Args:
        net: The network; its values are replaced in place.
        path: A `.safetensors` file or a checkpoint that holds nothing but tensors.
        rename: From a key of the file to the network's own name for it.

    Returns:
        How the file's keys were changed until they fitted, in words; empty where they were not.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: The file cannot be read, or its tensors do not fit the network.
    """
    wrapped, changes = _unwrapped(path)
    weights, stripped = _unprefixed(wrapped, net)
    changes += stripped
    if rename:
        weights = {rename(key): tensor for key, tensor in weights.items()}
    expected = net.state_dict()
    for key in expected.keys() - weights.keys():  # a counter of training steps, often left out
        if key.endswith("num_batches_tracked"):
            weights[key] = expected[key]
    faults = _faults(expected, weights)
    if faults:
        raise InputError(
            f"The weights in `{path}` do not fit `{type(net).__name__}`: {'; '.join(faults)}. "
            f"Give the weights of this architecture; where only the last layer differs, give "
            f"`classes`, so that it has as many outputs."
        )
    net.load_state_dict(weights)
    return f"weights of {Path(path).name}: {', '.join(changes)}" if changes else ""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file by name, without the dictionaries that training scripts add."""
    return _unwrapped(path)[0]


def _unwrapped(path: str | Path) -> tuple[dict[str, Tensor], list[str]]:
    path = user_path(path, "`weights`")
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected weights at `{path}`, found no such file. Check the path, or get the file."
        )
    return _state(_read(path), path)


def _read(path: Path) -> object:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise InputError(
                f"Expected `{path}` to be a safetensors file, but it cannot be read ({error}). "
                f"It may be truncated; copy it again."
            ) from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a file holds decides which
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise InputError(
            f"Expected `{path}` to be a checkpoint that holds nothing but tensors, but it cannot "
            f"be read ({reason}). Save `net.state_dict()`, not the network."
        ) from error


def _state(loaded: object, path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The state dict inside what a training script saved, and the keys it was found under."""
    changes = []
    for wrapping in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapping), Mapping):
            rest = [f"`{key}`" for key in loaded if key != wrapping]
            ignored = f" ({_some(rest)} not used)" if rest else ""
            loaded = loaded[wrapping]
            changes.append(f"taken from `{wrapping}`{ignored}")
    if not isinstance(loaded, Mapping) or not loaded:
        raise InputError(
            f"Expected `{path}` to hold tensors by name, got {type(loaded).__name__}. "
            f"Save `net.state_dict()`."
        )
    for key, tensor in loaded.items():
        if not isinstance(key, str):
            raise InputError(
                f"Expected `{path}` to hold tensors by name, got one under {key!r}. "
                f"Save `net.state_dict()`."
            )
        if isinstance(tensor, Tensor) and (tensor.is_meta or tensor.layout != torch.strided):
            kind = "on the device `meta`, without numbers" if tensor.is_meta else "sparse"
            raise InputError(
                f"Expected `{path}` to hold dense tensors, got one that is {kind} at `{key}`. "
                f"Save it with `.to_dense()`, or from a network with its weights loaded."
            )
        if not isinstance(tensor, Tensor):
            raise InputError(
                f"Expected `{path}` to hold tensors by name, got {type(tensor).__name__} at "
                f"`{key}`. Save `net.state_dict()`."
            )
    return dict(loaded), changes


def _unprefixed(weights: dict[str, Tensor], net: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors without a prefix that all names have and the network's have not; the prefixes."""
    changes = []
    for prefix in ("module.", "model."):  # of wrappers that training scripts use
        own = all(key.startswith(prefix) for key in net.state_dict())
        if not own and all(key.startswith(prefix) for key in weights):
            weights = {key.removeprefix(prefix): tensor for key, tensor in weights.items()}
            changes.append(f"`{prefix}` stripped from the keys")
    return weights, changes


def _faults(expected: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> list[str]:
    """How the weights differ from what the network expects, in words."""
    shapes = [
        f"`{key}` expected {list(expected[key].shape)}, got {list(weights[key].shape)}"
        for key in expected
        if key in weights and weights[key].shape != expected[key].shape
    ]
    kinds = [
        f"`{key}` expected {expected[key].dtype}, got {weights[key].dtype}"
        for key in expected
        if key in weights and _kind(weights[key]) != _kind(expected[key])
    ]
    faults = {
        "missing": [f"`{key}`" for key in expected if key not in weights],
        "unexpected": [f"`{key}`" for key in weights if key not in expected],
        "of another shape": shapes,
        "of another kind of number": kinds,
    }
    return [f"{fault} {_some(keys)}" for fault, keys in faults.items() if keys]


def _kind(tensor: Tensor) -> str:
    """Which numbers: copying one kind into another would change them without a word."""
    if tensor.is_complex():
        return "complex"
    return "real" if tensor.is_floating_point() else "whole"


def _some(items: Iterable[str], shown: int = 3) -> str:
    items = list(items)
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more
