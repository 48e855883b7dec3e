"""Bidirectional attribution in transformers: what a token was told, times what it is asked for."""

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
    """Forward and back for each step; beside that back to the read tokens, and to all heads."""
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
    equal steps from 0 to 1; of texts what enters the first block is scaled, places and all.

    Beside the paper: heads without any gradient count alike. `start` is a third of the layers
    unless given, near M4's settings; the paper starts at the fourth of twelve for images and at the
    last for texts. M4 explains the probability of images: `output: probability`.
    """

    def perceive(found: Attended, watch: Attending) -> list[Tensor]:
        pairs = zip(found.heads(found.maps), found.gradients(output), strict=True)
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
    """Attention through the layers, tokens weighted by what they tell, times integrated gradients.

    Formula: that of `bt_head` with B_l = mean_h A_h diag(d), d_t = |O v_t| / |z_t|: v the values of
    all heads, O the layer's output projection without bias, z what enters the block.

    Beside the paper: nothing; M4 takes z behind the attention in networks that normalise after
    it. `start` is a third of the layers unless given, near M4's settings; the paper starts at the
    seventh of twelve for images and at the last four for texts.
    """

    def perceive(found: Attended, watch: Attending) -> list[Tensor]:
        passed = watch.passed if isinstance(watch, Streams) else []
        if len(passed) != found.depth:
            raise NotApplicable(
                f"The values of {found.depth - len(passed)} attentions are not projected and "
                f"added to what came into their block."
            )
        pairs = zip(found.heads(found.maps), passed[-len(found.maps) :], strict=True)
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
    """The read tokens' rows of perception times feedback."""
    rows: list[Tensor] = []
    grid: tuple[int, ...] = ()
    only_last = kind is Streams
    entry = 0
    for samples, at, asked, found, watch in attended(
        model, batch, start, only_last=only_last, kind=kind
    ):
        layers, read = perceive(found, watch), found.read()
        if model.tokens is not None and isinstance(watch, Entering):
            entry = watch.entry(found.logits)
        (total,) = found.gradients(output, found.maps[-1:])  # at the input itself, where a = 1
        found.release()
        for share in torch.linspace(0, 1, steps)[:-1].tolist():
            last = Scaled(len(samples), found.depth - 1, entry, share)
            total = total + attend(model, batch, samples, at, last).gradients(output)[0]
        feedback = (total / steps).clamp(min=0).mean(1)
        everyone = torch.eye(found.tokens).to(feedback).expand_as(feedback)
        perception = carried(everyone, [beside_itself(layer) for layer in layers])
        rows.append((read[:, None] @ (perception * feedback))[:asked, 0])
        grid = found.grid
    return to_map(batch, torch.cat(rows), grid, resize)


class Streams(Entering):
    """While a network runs: also |O v| / |z| of every token in each layer, `[n, s]`.

    The values v are what an attention is multiplied with; the next linear layer O projects them;
    what its result is added to, z, came into the block: the attention was computed from it.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """For a network that is given so many samples."""
        super().__init__(rows, start, leaf)
        self.passed: list[Tensor] = []
        self._awaited = ""  # which of the three comes next
        self._values = self._projected = self._branch = torch.empty(0)
        self._turned = False  # whether the branch is [s, n, D]

    def take(self, attention: Tensor) -> Tensor:
        """The next layer begins."""
        self._awaited = "values"
        return super().take(attention)

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """What an operation gives; the three that matter are noted."""
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
            raise NotApplicable("The layer behind an attention is not its output projection.")
        self._projected = joined @ weight.T

    def _join(self, entered: Tensor) -> None:
        entered = entered.detach().transpose(0, 1) if self._turned else entered.detach()
        if entered.shape != self._projected.shape:
            raise NotApplicable("What an attention gives is not added to what came into its block.")
        norm = entered.norm(dim=-1)
        said = self._projected.norm(dim=-1) / torch.where(norm == 0, 1.0, norm)
        self.passed.append(said)
        self._awaited = ""
