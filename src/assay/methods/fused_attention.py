"""Fused attention kernels, written out step by step so that each operation is visible."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from assay.errors import NotApplicable
from assay.methods.call_types import Operator


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention`, by its definition."""
    if enable_gqa:
        shared = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(shared, -3), value.repeat_interleave(shared, -3)
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    blind = scores.isneginf().all(-1, keepdim=True)
    if not bool(blind.any()):
        return functional.softmax(scores, -1) @ value
    scores = scores.masked_fill(blind, 0)  # fully masked rows get zeros
    return functional.softmax(scores, -1).masked_fill(blind, 0) @ value


def _multi_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    width: int,
    heads: int,
    in_weight: Tensor | None,
    in_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero: bool,
    dropout: float,
    out_weight: Tensor,
    out_bias: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function behind `nn.MultiheadAttention`, by its definition; the first axis is tokens."""
    if in_weight is None or bias_k is not None or add_zero:
        raise NotApplicable(
            "Its `nn.MultiheadAttention` has keys or values of another width (`kdim`, `vdim`) or "
            "adds tokens to them (`add_bias_kv`, `add_zero_attn`), which is not supported."
        )
    biases = [None] * 3 if in_bias is None else in_bias.chunk(3)
    queries, keys, values = (
        functional.linear(x.transpose(0, 1), weight, bias)
        .reshape(*x.transpose(0, 1).shape[:2], heads, -1)
        .transpose(1, 2)  # [n, H, s, d]
        for x, weight, bias in zip((query, key, value), in_weight.chunk(3), biases, strict=True)
    )
    scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
    hidden, mask = options.get("key_padding_mask"), options.get("attn_mask")
    if mask is not None and mask.ndim == 3:  # samples and heads in one axis
        mask = mask.unflatten(0, (-1, heads))
    for absent in (mask, None if hidden is None else hidden[:, None, None]):
        if absent is not None and absent.dtype == torch.bool:
            scores = scores.masked_fill(absent, -torch.inf)
        elif absent is not None:
            scores = scores + absent
    attention = functional.softmax(scores, -1)
    mixed = (attention @ values).transpose(1, 2).flatten(2)
    result = functional.linear(mixed, out_weight, out_bias).transpose(0, 1)
    if not options.get("need_weights", True):
        return result, None
    return result, attention.mean(1) if options.get("average_attn_weights", True) else attention


FUSED: dict[str, Operator] = {
    "scaled_dot_product_attention": _fused,
    "multi_head_attention_forward": _multi_head,
}
