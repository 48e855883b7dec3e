"""Training a small network on samples made as they are asked for; kept for the next time."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load, save, save_file
from torch import Tensor, nn

from assay.models.weights import load_weights
from assay.progress import bar
from assay.types import Model
from assay.types.model import log_probabilities

RATE = 1e-2  # the highest learning rate of the cycle, unless told otherwise

# (how many, generator) -> inputs [B, ...] and labels [B]
Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]

Trained = dict[str, dict[str, Tensor]]  # weights by what they were trained as
_TRAINED: Trained = {}  # in this process
_NOTED: ContextVar[Trained | None] = ContextVar("noted", default=None)


def train_once(key: str, net: nn.Module, train: Callable[[], None], cache: Path | None) -> None:
    """Bring a network to its trained weights: known here, kept in `cache`, or by training.

    Args:
        key: What identifies the result: the untrained network, the data, the settings.
        net: The network, changed in place.
        train: Trains it.
        cache: A folder where weights are looked for and left; None: they live in this process.
    """
    path = None if cache is None else cache / f"{key}.safetensors"
    if key in _TRAINED:
        net.load_state_dict(_TRAINED[key])
    elif path is not None and path.is_file():
        load_weights(net, path)
    else:
        train()
    net.eval()  # weights that were loaded leave the network as it was made
    _TRAINED[key] = {name: value.detach().clone() for name, value in net.state_dict().items()}
    if path is not None and not path.is_file():
        _write(_TRAINED[key], path)
    noted = _NOTED.get()
    if noted is not None:
        noted[key] = _TRAINED[key]


@contextlib.contextmanager
def noting() -> Iterator[Trained]:
    """The weights of every network that is brought to them inside."""
    found: Trained = {}
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def packed(found: Trained) -> dict[str, bytes]:
    """Weights for another process to `know`: the number of threads decides about their bits."""
    return {key: save(_contiguous(weights)) for key, weights in found.items()}


def know(kept: Mapping[str, bytes]) -> None:
    """Take over what another process trained; what is not whole counts as not there."""
    for key, weights in kept.items():
        with contextlib.suppress(SafetensorError):
            _TRAINED[key] = load(weights)


def train(
    model: Model,
    draw: Draw,
    *,
    steps: int,
    batch: int = 64,
    rate: float = RATE,
    seed: int = 0,
    what: str = "training",
    progress: bool = True,
) -> None:
    """Cross-entropy on fresh samples at every step, AdamW, one cycle of the learning rate.

    With the same seed, samples and number of threads the weights are the same. Weights that take no
    gradient stay; the network is left in eval mode.
    """
    net = model.net
    weights = [p for p in net.parameters() if p.requires_grad]
    if not weights or steps < 1:
        net.eval()
        return
    optimiser = torch.optim.AdamW(weights, lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    generator = torch.Generator().manual_seed(seed)
    net.train()
    with torch.enable_grad(), bar(what, steps, progress) as done:
        for _ in range(steps):
            inputs, labels = draw(batch, generator)
            logits, binary = model.read(inputs.to(model.device))
            loss = F.nll_loss(log_probabilities(logits, binary), labels.to(model.device))
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            done(1)
    net.eval()


def _write(weights: dict[str, Tensor], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(f".{os.getpid()}.part")
    save_file(_contiguous(weights), new)
    new.replace(path)


def _contiguous(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.contiguous() for name, value in weights.items()}
