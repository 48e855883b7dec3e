"""Transformers in miniature, with random weights."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import assay
from assay.data.memory import as_dataset
from assay.models.prepare import observe
from assay.models.small_vit import SmallViT
from assay.types import Batch, Model, Tokens

PAD, BEGIN, END = 0, 1, 2


def make_vit(depth: int = 3, heads: int = 2, pool: Any = "class", width: int = 12) -> SmallViT:
    """A vision transformer for 16 x 16 images whose attention is not flat."""
    torch.manual_seed(0)
    net = SmallViT(classes=4, size=16, width=width, depth=depth, heads=heads, pool=pool)
    with torch.no_grad():
        for weight in net.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 0.2) + 0.1)
    return net.eval()


def hf_vit(attention: str = "sdpa", **options: Any) -> nn.Module:
    """The same of transformers."""
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=48,
        image_size=16, patch_size=4, num_labels=4, initializer_range=0.3, **options,
    )  # fmt: skip
    config._attn_implementation = attention
    return transformers.ViTForImageClassification(config).eval()


def hf_bert(attention: str = "sdpa") -> Model:
    """A classifier of texts of transformers, as a model."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=32, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=48, max_position_embeddings=20, num_labels=3, initializer_range=0.3,
    )  # fmt: skip
    config._attn_implementation = attention
    net = transformers.BertForSequenceClassification(config).eval()
    tokens = Tokens(
        PAD, special=frozenset({BEGIN, END}), embedding="bert.embeddings.word_embeddings",
        named=True, first_position=0,
    )  # fmt: skip
    return assay.model(net, tokens=tokens)


def make_ids(lengths: tuple[int, ...] = (9, 5, 7), padded: int = 9) -> Tensor:  # [B, T]
    """Texts of different lengths, begun, ended and padded."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.full((len(lengths), padded), PAD)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(3, 30, (length,), generator=generator)
        row[0], row[length - 1] = BEGIN, END
    return ids


def make_batch(model: Model, x: Tensor, y: Tensor) -> tuple[Model, Batch]:
    """The model, looked at once and without padding, and a batch, as methods take them."""
    model.net.requires_grad_(False)
    dataset = as_dataset((x, y), tokens=model.tokens is not None)
    batch = dataset.batch(dataset.ids, tokens=model.tokens)
    with model.evaluating(), torch.no_grad():
        return observe(replace(model, micro_batch=len(x)), batch.inputs), batch


class OneHead(nn.Module):
    """f_k(x) = u_k sum_j A_0j v_j, A = softmax(q k / sqrt 2), of tokens h_j = x_j e + p_j."""

    def __init__(self, tokens: int = 5) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.e = nn.Parameter(torch.randn(3))
        self.p = nn.Parameter(torch.randn(tokens, 3))
        self.q, self.k, self.v = (nn.Linear(3, 2) for _ in range(3))
        self.out = nn.Linear(2, 3, bias=False)
        self.u = nn.Parameter(torch.randn(2, 3))

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tokens, attention and values."""
        h = x[:, :, None] * self.e + self.p
        scores = self.q(h) @ self.k(h).transpose(1, 2) * 2**-0.5
        return h, torch.softmax(scores, -1), self.v(h)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T] to logits [B, 2]."""
        h, attention, values = self.parts(x)
        return (self.out(attention @ values) + h)[:, 0] @ self.u.T
