"""Masked pre-training of a vision transformer: the hidden patches are painted from the others."""

import math

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.small_vit import SmallViT, TransformerBlock
from assay.training.augmentation import augment
from assay.training.fitting import Recipe, normalised
from assay.types import Model

HIDDEN = 0.75  # share of the patches that is hidden


class PatchPainter(nn.Module):
    """A transformer that sees a quarter of the patches, and one block that paints the others."""

    def __init__(self, encoder: SmallViT, heads: int) -> None:
        """Only the encoder is kept after the training."""
        super().__init__()
        width = encoder.places.shape[2]
        self.encoder = encoder
        self.side: int = encoder.patches.kernel_size[0]
        self.hidden = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros_like(encoder.places[:, 1:]))
        self.decode = TransformerBlock(width, heads)
        self.norm = nn.LayerNorm(width)
        self.paint = nn.Linear(width, 3 * self.side**2)
        for weight in (self.hidden, self.places):
            nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Tensor, order: Tensor) -> Tensor:
        """The mean squared error of the hidden patches.

        Args:
            x: Images `[B, 3, H, W]`.
            order: The patches of each image in a random order `[B, s]`; the first are shown.
        """
        encoder, shown = self.encoder, round((1 - HIDDEN) * order.shape[1])
        tokens = encoder.patches(x).flatten(2).transpose(1, 2) + encoder.places[:, 1:]  # [B, s, D]
        seen = _rows(tokens, order[:, :shown])
        first = (encoder.first + encoder.places[:, :1]).expand(len(x), -1, -1)
        seen = encoder.norm(encoder.blocks(torch.cat([first, seen], 1)))[:, 1:]
        absent = self.hidden.to(seen.dtype).expand(len(x), order.shape[1] - shown, -1)
        back = order.argsort(1)
        whole = _rows(torch.cat([seen, absent], 1), back) + self.places
        painted = self.paint(self.norm(self.decode(whole)))  # [B, s, 3 side^2]
        error = (painted.float() - _patches(x, self.side)).square().mean(2)
        mean: Tensor = error.gather(1, order[:, shown:]).mean()
        return mean


def pretrain_masked(model: Model, inputs: Tensor, recipe: Recipe, *, seed: int = 0) -> list[float]:
    """Train a `SmallViT` in place to paint hidden patches; gives the mean error of each epoch.

    Three quarters of the patches of each image are hidden. The transformer sees the others, and
    one further block paints the hidden patches from its outputs. The optimizer is AdamW; on a GPU
    the forward passes are in bfloat16.

    Args:
        model: The network, changed in place.
        inputs: Images of 8 bits `[N, 3, H, W]`, or as the network takes them.
        recipe: Epochs, batch, rate and decay.
        seed: The seed of the order, the crops and the hidden patches.
    """
    net, device = model.net, model.device
    if not isinstance(net, SmallViT):
        raise InputError(
            f"Expected a network of `small_vit` for masked pre-training, got {type(net).__name__}."
        )
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        painter = PatchPainter(net, _heads(net)).to(device).train()
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.AdamW(painter.parameters(), lr=recipe.rate, weight_decay=recipe.decay)
    size = min(recipe.batch, len(inputs))
    steps = len(inputs) // size
    patches, means = net.places.shape[1] - 1, []
    inputs = inputs.to(device)
    for epoch in range(recipe.epochs):
        errors = []
        shuffled = torch.randperm(len(inputs), generator=generator, device=device)[: steps * size]
        for number, rows in enumerate(torch.split(shuffled, size)):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate_at(epoch * steps + number, steps)
            x = normalised(model, augment(inputs[rows], generator))
            noise = torch.rand(len(x), patches, generator=generator, device=device)
            order = noise.argsort(1)
            with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                error = painter(x, order)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(error)
            optimizer.step()
            errors.append(error.detach())
        means.append(torch.stack(errors).mean().item())
        if not math.isfinite(means[-1]):
            raise InputError(
                f"Expected a finite error of the painted patches, got {means[-1]} in epoch "
                f"{epoch + 1} at the rate {recipe.rate:g}. Choose a smaller rate."
            )
    net.eval()
    return means


def _heads(net: SmallViT) -> int:
    first = net.blocks[0]
    return first.attention.heads if isinstance(first, TransformerBlock) else 1


def _rows(tokens: Tensor, order: Tensor) -> Tensor:
    """The tokens `[B, s, D]` at these positions `[B, k]`."""
    return tokens.gather(1, order[:, :, None].expand(-1, -1, tokens.shape[2]))


def _patches(x: Tensor, side: int) -> Tensor:
    """[B, 3, H, W] to [B, s, 3 side^2], row by row."""
    return nn.functional.unfold(x.float(), side, stride=side).transpose(1, 2)
