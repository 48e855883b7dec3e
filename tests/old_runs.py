"""The toy runs in `archives/runs_identity_1.tar.gz`, which an older assay made.

They were made by the commit before identity 2 (cd1b507), with its worktree in OLD:

    PYTHONPATH=OLD/src python tests/old_runs.py tests/archives/runs_identity_1.tar.gz

Weights and samples are fixed by arithmetic, so that a test can make them again.
"""

import platform
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import assay

ARCHIVE = Path(__file__).parent / "archives" / "runs_identity_1.tar.gz"
METHODS = ["saliency", {"integrated_gradients": {"steps": 4}}, "occlusion", "random"]
PROTOCOLS = [{"deletion": {"steps": 4}}, {"sensitivity_n": {"subsets": 4}}, "soundness"]
# The same with the units of that time, which are no longer the defaults.
SAME = [
    {"deletion": {"steps": 4, "units": "elements", "as": "deletion[steps=4]"}},
    {"sensitivity_n": {"subsets": 4, "grid": 8, "as": "sensitivity_n[subsets=4]"}},
    "soundness",
]


def numbers(*shape: int, step: int = 37) -> Tensor:
    """Numbers in [-1, 1) without an order, the same on every machine."""
    count = torch.tensor(shape).prod().item()
    return (torch.arange(count) * step % 101 / 50.5 - 1).reshape(shape)


def filled(net: nn.Module) -> nn.Module:
    """The network with such numbers as its weights."""
    with torch.no_grad():
        for i, weight in enumerate(net.parameters()):
            weight.copy_(numbers(*weight.shape, step=7 + 2 * i) / 2)
    return net.eval()


def torch_net() -> nn.Module:
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)]
    return filled(nn.Sequential(*layers))


class Own(nn.Module):
    """A network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch_net()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def samples(n: int = 12) -> tuple[Tensor, Tensor]:
    return numbers(n, 3, 8, 8), torch.arange(n) % 3


def bright(model: Any, batch: Any) -> Tensor:
    """A method of the user's own."""
    return batch.inputs.sum(1)


def continue_run(name: str, folder: Path, **changes: Any) -> Any:
    """The call that made the run of this name, or continues it."""
    net = Own() if name == "own_network" else torch_net()
    methods = ["random", bright] if name == "own_method" else METHODS
    model = assay.model(net, mean=0.5, std=[0.25] * 3, name="toy")
    told = {"methods": methods, "protocols": SAME, "progress": False, **changes}
    return assay.benchmark(model, samples(), out=folder / name, **told)


def main() -> None:
    platform.platform = lambda: "some machine"  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder, tarfile.open(sys.argv[1], "w:gz") as archive:
        for name in ("torch_alone", "own_network", "own_method"):
            continue_run(name, Path(folder), protocols=PROTOCOLS)
            archive.add(Path(folder) / name, name)


if __name__ == "__main__":
    main()
