"""Training a small network on samples that are drawn anew at every step."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.progress import bar
from assay.types import Model
from assay.types.model import log_probabilities

RATE = 1e-2  # the highest learning rate of the cycle, by default

# (number of samples, generator) -> inputs [B, ...] and labels [B]
Draw = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]


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
    """Train with cross-entropy on fresh samples at every step: AdamW, one cycle of learning rates.

    The same seed, samples and number of threads give the same weights. Weights that take no
    gradient stay as they are. The network is left in eval mode.
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
