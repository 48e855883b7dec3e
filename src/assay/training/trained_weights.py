"""Trained weights by what was trained: a value that is passed to whatever may train a network."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from assay.models.weights import load_weights
from assay.store.files import CHECKSUM, array_checksum


class TrainedWeights:
    """The weights of networks that were trained, each under a key that says what was trained.

    A run, a study and a call of `assay.environment` each have their own and pass it on. Within one,
    nothing is trained twice, and no weights come from anywhere else.
    """

    def __init__(self, packed: Mapping[str, bytes] | None = None) -> None:
        """Start with nothing, or with what another store's `packed` returned."""
        self._weights: dict[str, dict[str, Tensor]] = {}
        self._used: set[str] = set()
        self.add(packed or {})

    def add(self, packed: Mapping[str, bytes]) -> None:
        """Take over weights in packed form; damaged ones are left out, and so trained again."""
        for key, content in packed.items():
            weights = unpacked_weights(content)
            if weights is not None:
                self._weights[key] = weights

    def packed(self) -> dict[str, bytes]:
        """The weights that `train_once` used, as safetensors, for files and for worker processes.

        Workers need them because training again could give other bits: the number of threads
        decides the order of summation.
        """
        return {key: packed_weights(self._weights[key]) for key in sorted(self._used)}

    def train_once(
        self, key: str, net: nn.Module, train: Callable[[], None], cache: Path | None = None
    ) -> None:
        """Give a network its trained weights: from here, from `cache`, or by training it.

        Args:
            key: Identifies the result: the untrained network, the data and the settings.
            net: The network, changed in place and left in eval mode.
            train: Trains it.
            cache: A folder where the weights are looked for and stored; None stores no file.
        """
        path = None if cache is None else cache / f"{key}.safetensors"
        stored = None
        if key in self._weights:
            net.load_state_dict(self._weights[key])
        elif path is not None and path.is_file():
            stored = unpacked_weights(path.read_bytes())
            if stored is not None:
                load_weights(net, path)
        if key not in self._weights and stored is None:
            train()
        net.eval()  # loading weights leaves the mode as it was
        self._weights[key] = copy_weights(net)
        self._used.add(key)
        if path is not None and (stored is None or not path.is_file()):
            write_whole(packed_weights(self._weights[key]), path)


def packed_weights(weights: Mapping[str, Tensor]) -> bytes:
    """The bytes of a safetensors file of these weights, with their checksum."""
    _, checksum = array_checksum(save(dict(weights)))
    content: bytes = save(dict(weights), {CHECKSUM: checksum})
    return content


def unpacked_weights(content: bytes) -> dict[str, Tensor] | None:
    """The weights in the bytes of a safetensors file; None if they are damaged.

    Older versions stored no checksum.
    """
    try:
        weights: dict[str, Tensor] = load(content)
        stated, checksum = array_checksum(content)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return weights if stated in (None, checksum) else None


def copy_weights(net: nn.Module) -> dict[str, Tensor]:
    """The weights as tensors of their own: safetensors takes neither shared nor strided memory."""
    weights: dict[str, Tensor] = net.state_dict()
    return {name: w.detach().to("cpu", copy=True).contiguous() for name, w in weights.items()}


def write_whole(data: bytes, path: Path) -> None:
    """Write a file under another name first, so that no other process reads a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)
