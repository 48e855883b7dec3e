"""The file from which an interrupted training continues: safetensors, replaced as a whole."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from assay.errors import InputError
from assay.training.trained_weights import copy_weights, write_whole


class Resumable:
    """Weights, the optimizer's state and the losses of the epochs that are done, in one file."""

    def __init__(self, path: Path | None, key: str) -> None:
        """Set the file and what identifies the training; without a path nothing is stored."""
        self.path = path
        self.key = key

    def load(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        """Put the network and its optimizer where the file left off; gives the losses so far."""
        if self.path is None or not self.path.is_file():
            return []
        tensors, about = _read(self.path)
        if about.get("key") != self.key:
            raise InputError(
                f"Expected `{self.path}` to be a checkpoint of this training, but it belongs to "
                f"another network, data, recipe or seed. Choose another folder, or delete the file."
            )
        net.load_state_dict(
            {name.removeprefix("net."): t for name, t in tensors.items() if name.startswith("net.")}
        )
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, position, part = name.split(".", 2)
                state.setdefault(int(position), {})[part] = tensor
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})
        return [float(loss) for loss in json.loads(about["losses"])]

    def save(self, net: nn.Module, optimizer: torch.optim.Optimizer, losses: list[float]) -> None:
        """Replace the file."""
        if self.path is None:
            return
        tensors = {f"net.{name}": weight for name, weight in copy_weights(net).items()}
        for position, parts in optimizer.state_dict()["state"].items():
            for part, value in parts.items():
                if isinstance(value, Tensor):
                    own = value.detach().to("cpu", copy=True).contiguous()
                    tensors[f"optimizer.{position}.{part}"] = own
        write_whole(save(tensors, {"key": self.key, "losses": json.dumps(losses)}), self.path)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"Expected `{path}` to be a checkpoint of a training, but it cannot be read ({error}). "
            f"Delete it to start again."
        ) from error
