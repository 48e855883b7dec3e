"""Training a network on a fixed set of samples, epoch by epoch; the best one is kept."""

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.progress import bar
from assay.types import Model
from assay.types.model import log_probabilities

ASKED = 1000  # samples at once, where nothing is learned


def train_epochs(
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch: int = 256,
    rate: float = 1e-3,
    decay: float = 1e-4,
    halved_after: int = 10,
    held_out: float = 1 / 8,
    seed: int = 0,
    what: str = "training",
    progress: bool = True,
) -> None:
    """Adam on cross-entropy; the weights are those of the epoch that is best on what is held out.

    On a GPU the network computes in bfloat16 while it learns. It is left in eval mode.

    Args:
        model: The network, changed in place.
        inputs: The samples `[N, ...]` as the network takes them.
        labels: Their classes `[N]`.
        epochs: How often every sample is seen.
        batch: Samples a step; a short rest is left out of an epoch.
        rate: The learning rate.
        decay: Weight decay, as Adam has it.
        halved_after: The rate is halved after so many epochs, again and again.
        held_out: The share of the samples, by lot, that only chooses the epoch.
        seed: What is held out, and the order of the rest.
        what: What the progress is called.
        progress: Show it.
    """
    net, device = model.net, model.device
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(inputs), generator=generator)
    cut = max(1, int(held_out * len(order)))
    chooses, learns = order[:cut].to(device), order[cut:].to(device)
    inputs, labels = inputs.to(device), labels.to(device)
    if device.type == "cuda" and inputs.ndim == 4:  # where convolutions are twice as fast
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, halved_after, gamma=0.5)
    best, kept = -1.0, net.state_dict()
    with bar(what, epochs, progress) as done:
        for _ in range(epochs):
            net.train()
            shuffled = learns[torch.randperm(len(learns), generator=generator).to(device)]
            for rows in torch.split(shuffled[: max(1, len(shuffled) // batch) * batch], batch):
                with torch.enable_grad():
                    with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                        logits, binary = model.read(inputs[rows])
                    loss = F.nll_loss(log_probabilities(logits.float(), binary), labels[rows])
                    optimiser.zero_grad()
                    torch.autograd.backward(loss)
                optimiser.step()
            schedule.step()
            found = accuracy(model, inputs[chooses], labels[chooses])
            if found > best:
                best = found
                kept = {name: value.detach().clone() for name, value in net.state_dict().items()}
            done(1)
    net.load_state_dict(kept)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.eval()


@torch.no_grad()
def accuracy(model: Model, inputs: Tensor, labels: Tensor) -> float:
    """The share of right answers; the network is left in eval mode."""
    model.net.eval()
    parts = zip(torch.split(inputs, ASKED), torch.split(labels, ASKED), strict=True)
    device = model.device
    right = sum(int((model.logits(x.to(device)).argmax(1) == y.to(device)).sum()) for x, y in parts)
    return right / len(labels)
