"""Training on images that fit several classes, because the parts that differ are not shown."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from assay.progress import bar


def fitting(classes: Tensor, labels: Tensor, absent: Tensor) -> Tensor:  # [N, classes] bool
    """The classes that agree with each sample's own class in all parts that are shown.

    Args:
        classes: The variant of each part for every class `[classes, parts]`.
        labels: Each sample's class `[N]`.
        absent: Which parts are not shown `[N, parts]`.
    """
    agree = classes[None] == classes[labels][:, None]  # [N, classes, parts]
    return (agree | absent[:, None]).all(2)


def several_targets_loss(logits: Tensor, fits: Tensor) -> Tensor:
    """The mean cross-entropy with all classes that fit, averaged over samples."""
    shares = fits / fits.sum(1, keepdim=True)
    return F.cross_entropy(logits, shares.to(logits.dtype))


def fit(
    net: nn.Module,
    images: Tensor,
    fits: Tensor,
    *,
    epochs: int,
    seed: int,
    rate: float = 0.01,
    batch: int = 64,
    progress: bool = True,
) -> nn.Module:
    """Train a network on the CPU, starting from its weights; the same seed gives the same result.

    Args:
        net: The network, changed in place.
        images: 8 bits per channel `[N, 3, H, W]`; the network sees them in [0, 1].
        fits: The classes that fit each image `[N, classes]`.
        epochs: How often each image is seen.
        seed: The seed of the order of the images.
        rate: The highest learning rate of a cycle.
        batch: Images per step.
        progress: Whether to show a bar.
    """
    generator = torch.Generator().manual_seed(seed)
    steps = len(images) // batch
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=epochs * steps, pct_start=0.2
    )
    net.train()
    with bar("training", epochs * steps, progress) as listen, torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(images), generator=generator)
            for step in range(steps):
                rows = order[step * batch : (step + 1) * batch]
                loss = several_targets_loss(net(images[rows] / 255), fits[rows])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                listen(1)
    return net.eval()
