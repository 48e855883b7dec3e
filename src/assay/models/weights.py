"""Weights from a file into a network: tensors only, every key accounted for."""

import pickle
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError


def load_weights(
    net: nn.Module, path: str | Path, *, rename: Callable[[str], str] | None = None
) -> str:
    """Load safetensors or a `torch.save`d state dict into the network; every key must fit.

    Args:
        net: The network; its values are replaced in place.
        path: A `.safetensors` file or a checkpoint that holds nothing but tensors.
        rename: From a key of the file to the network's own name for it.

    Returns:
        What was taken off before the keys did fit, in words; nothing where nothing was.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: The file cannot be read, or its tensors do not fit the network.
    """
    named, taken_off = _unwrapped(path)
    given, stripped = _unprefixed(named, net)
    taken_off += stripped
    if rename:
        given = {rename(key): tensor for key, tensor in given.items()}
    expected = net.state_dict()
    for key in expected.keys() - given.keys():  # a counter of training steps, often left out
        if key.endswith("num_batches_tracked"):
            given[key] = expected[key]
    faults = _faults(expected, given)
    if faults:
        raise InputError(
            f"The weights in `{path}` do not fit `{type(net).__name__}`: {'; '.join(faults)}. "
            f"Give the weights of this architecture; where only the last layer differs, say "
            f"`classes`, so that it has as many outputs."
        )
    net.load_state_dict(given)
    return f"weights of {Path(path).name}: {', '.join(taken_off)}" if taken_off else ""


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a file by name, out of the wrappings training scripts put around them."""
    return _unwrapped(path)[0]


def _unwrapped(path: str | Path) -> tuple[dict[str, Tensor], list[str]]:
    path = Path(path).expanduser()
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected weights at `{path}`, found no such file. Check the path or fetch the file."
        )
    return _state(_read(path), path)


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise InputError(
                f"Expected `{path}` to be a safetensors file, but it cannot be read ({error}). "
                f"It may be truncated; fetch it again."
            ) from error
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputError(
            f"Expected `{path}` to be a checkpoint that holds nothing but tensors, but it cannot "
            f"be read ({reason}). Save `net.state_dict()`, not the network."
        ) from error


def _state(loaded: Any, path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The state dict, out of the wrappings training scripts put around it, and what these were."""
    taken_off = []
    for wrapping in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, Mapping) and isinstance(loaded.get(wrapping), Mapping):
            rest = [f"`{key}`" for key in loaded if key != wrapping]
            ignored = f" ({_some(rest)} not used)" if rest else ""
            loaded = loaded[wrapping]
            taken_off.append(f"taken from `{wrapping}`{ignored}")
    if not isinstance(loaded, Mapping) or not loaded:
        raise InputError(
            f"Expected `{path}` to hold tensors by name, got {type(loaded).__name__}. "
            f"Save `net.state_dict()`."
        )
    for key, tensor in loaded.items():
        if not isinstance(tensor, Tensor):
            raise InputError(
                f"Expected `{path}` to hold tensors by name, got {type(tensor).__name__} at "
                f"`{key}`. Save `net.state_dict()`."
            )
    return dict(loaded), taken_off


def _unprefixed(named: dict[str, Tensor], net: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors without the prefixes that wrappers put before all of their names, and these."""
    taken_off = []
    for prefix in ("module.", "model."):  # of wrappers that training scripts use
        own = all(key.startswith(prefix) for key in net.state_dict())
        if not own and all(key.startswith(prefix) for key in named):
            named = {key.removeprefix(prefix): tensor for key, tensor in named.items()}
            taken_off.append(f"`{prefix}` stripped from the keys")
    return named, taken_off


def _faults(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> list[str]:
    shapes = [
        f"`{key}` expected {list(expected[key].shape)}, got {list(given[key].shape)}"
        for key in expected
        if key in given and given[key].shape != expected[key].shape
    ]
    found = {
        "missing": [f"`{key}`" for key in expected if key not in given],
        "unexpected": [f"`{key}`" for key in given if key not in expected],
        "of another shape": shapes,
    }
    return [f"{what} {_some(which)}" for what, which in found.items() if which]


def _some(items: Iterable[str], shown: int = 3) -> str:
    items = list(items)
    more = f" and {len(items) - shown} more" if len(items) > shown else ""
    return ", ".join(items[:shown]) + more
