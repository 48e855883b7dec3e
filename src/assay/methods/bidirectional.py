"""Bidirectional attribution in transformers: attention forwards times gradients backwards."""

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import NotApplicable
from assay.methods.attending import Attended, Attending, Resize, attend, attended, to_map
from assay.methods.attention import Start, beside_itself, carried, transformer
from assay.methods.call_types import Arguments, Keywords, Operator, Returned
from assay.methods.entering import Entering, Scaled
from assay.methods.gradients import Output
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes
from assay.types import Batch, Model

TwoOrMore = Annotated[int, Field(ge=2)]


def _steps_and(more: int) -> Callable[[Options], Passes]:
    """A pass forward and backward per step, and `more` backward: to read tokens, to all heads."""
    return lambda options: Passes(forward=options["steps"], backward=options["steps"] + more)


@transformer("bt_head", passes=_steps_and(2), cite="chen2023", title="Bidirectional, head-wise")
def bt_head(
    model: Model,
    batch: Batch,
    *,
    start: Start | None = None,
    steps: TwoOrMore = 20,
    resize: Resize = "nearest",
    output: Output = "logit",
) -> Tensor:
    """Attention through the layers, heads weighted by their gradients, times integrated gradients.

    Formula: the mean of the read tokens' rows of R W elementwise. R = I, then R + B_l R for layers
    l from `start` up; B_l = sum_h w_h A_h, w_h the mean of |A_h^T G_h| as a share of all heads',
    G = df/dA. W = mean_h max(G', 0), G' the last layer's G averaged over inputs a x, a in `steps`
    equal steps from 0 to 1; for texts the input of the first block is scaled, with its position
    embeddings.

    Differs from the paper: heads count equally if none has a gradient. `start` defaults to a third
    of the layers, near M4's settings; the paper starts at the fourth of twelve for images and at
    the last for texts. M4 explains the probability of images: `output: probability`.
    """

    def perceive(seen: Attended, watch: Attending) -> list[Tensor]:
        pairs = zip(seen.heads(seen.maps), seen.gradients(output), strict=True)
        return [_weigh_heads(a, g) for a, g in pairs]

    kind = Attending if model.tokens is None else Entering
    return _both_ways(model, batch, start, steps, resize, output, perceive, kind)


@transformer("bt_token", passes=_steps_and(1), cite="chen2023", title="Bidirectional, token-wise")
def bt_token(
    model: Model,
    batch: Batch,
    *,
    start: Start | None = None,
    steps: TwoOrMore = 20,
    resize: Resize = "nearest",
    output: Output = "logit",
) -> Tensor:
    """Attention through the layers, tokens weighted by their values, times integrated gradients.

    Formula: that of `bt_head` with B_l = mean_h A_h diag(d), d_t = |O v_t| / |z_t|: v the values of
    all heads, O the layer's output projection without bias, z the input of the block.

    Differs from the paper: nothing; M4 takes z after the attention in networks that normalise after
    it. `start` defaults to a third of the layers, near M4's settings; the paper starts at the
    seventh of twelve for images and at the last four for texts.
    """

    def perceive(seen: Attended, watch: Attending) -> list[Tensor]:
        passed = watch.passed if isinstance(watch, Streams) else []
        if len(passed) != seen.depth:
            raise NotApplicable(
                f"`bt_token` needs attentions whose values are projected and added to the input of "
                f"their block; {seen.depth - len(passed)} attentions of this network are not."
            )
        pairs = zip(seen.heads(seen.maps), passed[-len(seen.maps) :], strict=True)
        return [a.mean(1) * d[:, None] for a, d in pairs]

    return _both_ways(model, batch, start, steps, resize, output, perceive, Streams)


def _weigh_heads(attention: Tensor, gradient: Tensor) -> Tensor:  # [n, H, s, s] -> [n, s, s]
    weight = (attention.transpose(-2, -1) @ gradient).abs().mean((-2, -1))  # [n, H]
    total = weight.sum(1, keepdim=True)
    weight = torch.where(
        total == 0, 1 / weight.shape[1], weight / torch.where(total == 0, 1, total)
    )
    return (weight[:, :, None, None] * attention).sum(1)


def _both_ways(
    model: Model,
    batch: Batch,
    start: int | None,
    steps: int,
    resize: Resize,
    output: Output,
    perceive: Callable[[Attended, Attending], list[Tensor]],
    kind: type[Attending],
) -> Tensor:
    """The read tokens' rows of attention forwards times gradients backwards."""
    rows: list[Tensor] = []
    grid: tuple[int, ...] = ()
    only_last = kind is Streams
    entry = 0
    for samples, at, asked, seen, watch in attended(
        model, batch, start, only_last=only_last, kind=kind
    ):
        layers, read = perceive(seen, watch), seen.read()
        if model.tokens is not None and isinstance(watch, Entering):
            entry = watch.entry(seen.logits)
        (total,) = seen.gradients(output, seen.maps[-1:])  # at the input itself, where a = 1
        seen.release()
        for share in torch.linspace(0, 1, steps)[:-1].tolist():
            last = Scaled(len(samples), seen.depth - 1, entry, share)
            total = total + attend(model, batch, samples, at, last).gradients(output)[0]
        feedback = (total / steps).clamp(min=0).mean(1)
        identity = torch.eye(seen.tokens).to(feedback).expand_as(feedback)
        perception = carried(identity, [beside_itself(layer) for layer in layers])
        rows.append((read[:, None] @ (perception * feedback))[:asked, 0])
        grid = seen.grid
    return to_map(batch, torch.cat(rows), grid, resize)


class Streams(Entering):
    """Watch a running network: also collect |O v| / |z| of every token in each layer, `[n, s]`.

    The values v are what an attention is multiplied with; the next linear layer O projects them;
    its result is added to z, the input of the block, from which the attention was computed.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """`rows` is the number of samples in a pass."""
        super().__init__(rows, start, leaf)
        self.passed: list[Tensor] = []
        self._awaited = ""  # which of the three operations comes next
        self._values = self._projected = self._branch = torch.empty(0)
        self._turned = False  # whether the branch is [s, n, D]

    def take(self, attention: Tensor) -> Tensor:
        """Record an attention; its values come next."""
        self._awaited = "values"
        return super().take(attention)

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """The result of an operation; the three that matter are recorded."""
        result = super().operate(name, func, args, kwargs)
        if self._awaited == "sum" and any(a is self._branch for a in args):
            others = [a for a in args if a is not self._branch]
            if name in ("add", "add_") and self.attends_to(others[0]):
                self._join(others[0])
            else:
                self._branch = result
                self._turned ^= name == "transpose"
            return result
        if self._awaited == "values" and name in ("matmul", "bmm"):
            self._values, self._awaited = args[1].detach(), "projection"
        elif self._awaited == "projection" and name == "linear":
            self._project(args[1].detach())
            self._branch, self._turned, self._awaited = result, False, "sum"
        return result

    def _project(self, weight: Tensor) -> None:
        by_head = self._values.reshape(self.rows, -1, *self._values.shape[-2:])
        joined = by_head.transpose(1, 2).flatten(2)  # [n, s, H d]
        if joined.shape[-1] != weight.shape[1]:
            raise NotApplicable(
                "`bt_token` needs an output projection after each attention; the layer after one "
                "of this network's attentions is not."
            )
        self._projected = joined @ weight.T

    def _join(self, entered: Tensor) -> None:
        entered = entered.detach().transpose(0, 1) if self._turned else entered.detach()
        if entered.shape != self._projected.shape:
            raise NotApplicable(
                "`bt_token` needs attentions whose result is added to the input of their block; "
                "one of this network's is not."
            )
        norm = entered.norm(dim=-1)
        share = self._projected.norm(dim=-1) / torch.where(norm == 0, 1.0, norm)
        self.passed.append(share)
        self._awaited = ""
