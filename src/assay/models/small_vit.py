"""A small vision transformer for 32 x 32 images: patches of four pixels, a class token."""

from pathlib import Path
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from assay.errors import InputError
from assay.models.cifar_resnet import CLASSES
from assay.models.weights import load_weights
from assay.plugins.registry import model
from assay.types import Model, Pixels, Preprocess

PIXELS = Pixels(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
Pool = Literal["class", "mean"]


class Attention(nn.Module):
    """Self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        """Heads of `width / heads` numbers each."""
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, s, D] to [B, s, D]."""
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1))  # [B, s, 3, H, d]
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, s, d]
        mixed = F.scaled_dot_product_attention(query, key, value)
        projected: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return projected


class TransformerBlock(nn.Module):
    """Attention, then two linear layers, each on the normalised stream and added to it."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        """A block that keeps the shape."""
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.shrink = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, s, D] to [B, s, D]."""
        x = x + self.dropout(self.attention(self.norm1(x)))
        added: Tensor = self.shrink(self.gelu(self.grow(self.norm2(x))))
        result: Tensor = x + self.dropout(added)
        return result


class SmallViT(nn.Module):
    """A class token and one token per patch, blocks, and a linear layer on the class token.

    With `pool="mean"` the linear layer takes the mean of the patches instead.
    """

    def __init__(
        self,
        classes: int = 10,
        size: int = 32,
        patch: int = 4,
        width: int = 96,
        depth: int = 7,
        heads: int = 4,
        pool: Pool = "class",
        dropout: float = 0.0,
    ) -> None:
        """Random weights; 0.8 million of them by default."""
        super().__init__()
        if width % heads or size % patch:
            raise InputError(
                f"Expected `width` to be a multiple of `heads` and `size` of `patch`, got "
                f"{width} and {heads}, {size} and {patch}."
            )
        self.pool = pool
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, width))
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, dropout) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        for weight in self.parameters():
            if weight.ndim > 1:
                nn.init.trunc_normal_(weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.patches(x).flatten(2).transpose(1, 2)  # [B, s - 1, D]
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
        x = self.norm(self.blocks(x))
        logits: Tensor = self.head(x[:, 0] if self.pool == "class" else x[:, 1:].mean(1))
        return logits


@model("small_vit", title="Small ViT (CIFAR-10)", cite="dosovitskiy2021")
def small_vit(
    *,
    weights: str | None = None,
    width: Annotated[int, Field(ge=1)] = 96,
    depth: Annotated[int, Field(ge=1)] = 7,
    heads: Annotated[int, Field(ge=1)] = 4,
    pool: Pool = "class",
    classes: Annotated[int, Field(ge=2)] = 10,
    seed: int = 0,
) -> Model:
    """A vision transformer with patches of 4 x 4 pixels, for the ten classes of CIFAR-10 or others.

    Without `weights` it is untrained, with random weights drawn by `seed`;
    `benchmarks/train_small.py` trains it.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = SmallViT(classes, width=width, depth=depth, heads=heads, pool=pool)
    if weights:
        load_weights(net, weights)
    return Model(
        net=net.eval(),
        name="small_vit",
        checkpoint=Path(weights).stem if weights else "untrained",
        prepare=Preprocess(size=32, pixels=PIXELS),
        pixels=PIXELS,
        classes=CLASSES if classes == len(CLASSES) else tuple(map(str, range(classes))),
        card={
            "title": f"ViT of {depth} blocks",
            "parameters": sum(p.numel() for p in net.parameters()),
            "input": "RGB 32 x 32",
            "cite": "dosovitskiy2021",
        },
    )
