"""Training a network on a fixed set of samples; the weights of the best epoch are kept."""

import torch
import torch.nn.functional as F
from torch import Tensor

from assay.progress import bar
from assay.types import Model
from assay.types.model import log_probabilities

EVALUATED = 1000  # samples per forward pass, outside of training


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
    """Train with Adam and cross-entropy, and keep the epoch with the best held-out accuracy.

    On a GPU the network is trained in bfloat16. It is left in eval mode.

    Args:
        model: The network, changed in place.
        inputs: The samples `[N, ...]` as the network takes them.
        labels: Their classes `[N]`.
        epochs: How often every sample is seen.
        batch: Samples per step; an epoch leaves out the last, smaller batch.
        rate: The learning rate.
        decay: Adam's weight decay.
        halved_after: The learning rate is halved each time so many epochs have passed.
        held_out: The share of the samples, chosen at random, that is used only to select the epoch.
        seed: The seed of the held-out samples and of the order of the others.
        what: The title of the progress bar.
        progress: Whether to show the bar.
    """
    net, device = model.net, model.device
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(inputs), generator=generator)
    cut = max(1, int(held_out * len(order)))
    selection, training = order[:cut].to(device), order[cut:].to(device)
    inputs, labels = inputs.to(device), labels.to(device)
    if device.type == "cuda" and inputs.ndim == 4:  # where convolutions are twice as fast
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, halved_after, gamma=0.5)
    best, weights = -1.0, net.state_dict()
    with bar(what, epochs, progress) as done:
        for _ in range(epochs):
            net.train()
            shuffled = training[torch.randperm(len(training), generator=generator).to(device)]
            for rows in torch.split(shuffled[: max(1, len(shuffled) // batch) * batch], batch):
                with torch.enable_grad():
                    with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                        logits, binary = model.read(inputs[rows])
                    loss = F.nll_loss(log_probabilities(logits.float(), binary), labels[rows])
                    optimiser.zero_grad()
                    torch.autograd.backward(loss)
                optimiser.step()
            schedule.step()
            right = accuracy(model, inputs[selection], labels[selection])
            if right > best:
                best = right
                weights = {name: w.detach().clone() for name, w in net.state_dict().items()}
            done(1)
    net.load_state_dict(weights)
    net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    net.eval()


@torch.no_grad()
def accuracy(model: Model, inputs: Tensor, labels: Tensor) -> float:
    """The share of samples that are classified correctly; the network is left in eval mode."""
    model.net.eval()
    parts = zip(torch.split(inputs, EVALUATED), torch.split(labels, EVALUATED), strict=True)
    device = model.device
    right = sum(int((model.logits(x.to(device)).argmax(1) == y.to(device)).sum()) for x, y in parts)
    return right / len(labels)
