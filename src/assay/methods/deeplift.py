"""DeepLIFT: the difference from a baseline, shared out operator by operator."""

from collections.abc import Callable, Iterator
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from assay.errors import NotApplicable
from assay.methods.copies import points
from assay.methods.differences import ROUNDING, Differences, Tape
from assay.methods.gradients import Output, explained, starting_point
from assay.methods.override import chunks, laid_out, logits_under, refuse_half
from assay.methods.promises import completeness
from assay.plugins.option_types import Options
from assay.plugins.registry import Passes, method
from assay.removal import FillChoice
from assay.types import Batch, Model

INCOMPLETE = 1e-3  # of the answers: how far the shares may be from their difference
ROUNDED = 1e-2  # of the logits: how much more may be put down to the rounding of large shares


def _shares(
    model: Model, inputs: Tensor, targets: Tensor, ends: tuple[Tensor, Tensor], output: Output
) -> Tensor:
    """Each input's share in f(x) - f(b), for rows of pairs (b, x)."""
    start, x = (laid_out(model, end) for end in ends)
    tape: Tape = []
    recording = Differences(tape, recording=True)
    with torch.enable_grad(), recording:
        before = explained(model, recording.newest(model.logits(inputs, at=start)), targets, output)
    mode = Differences(tape)
    logits = logits_under(mode, model, inputs, x)
    with torch.enable_grad(), mode:
        after = explained(model, logits, targets, output)
        total = after.sum()
    if not mode.finished():
        raise NotApplicable("The network takes a longer way at the baseline than at the sample.")
    (multiplier,) = torch.autograd.grad(total, x)
    shares = (x - start).detach() * multiplier
    # A probability is as exact as it is small; a logit, or a difference of logits, is not.
    exact = (before.abs() + after.abs()).detach()
    scale = exact if output == "probability" else logits.detach().abs().amax(1)
    _check_complete(shares, before.detach(), after.detach(), scale)
    return shares


def _check_complete(shares: Tensor, before: Tensor, after: Tensor, scale: Tensor) -> None:
    """Refuse shares that do not add up, or are so large that rounding drowns what they add up to.

    `scale` is the size of the numbers which the answers were made of.
    """
    flat = shares.flatten(1)
    gap = (flat.sum(1) - (after - before)).abs()
    rounding = ROUNDING * torch.finfo(flat.dtype).eps * flat.abs().sum(1)
    allowed = INCOMPLETE * (before.abs() + after.abs()) + rounding.clamp(max=ROUNDED * scale)
    if bool((gap <= allowed).all()):  # NaN is not complete either
        return
    worst = int((gap - allowed).argmax())
    missed = (
        f"The shares add up to {float(flat.sum(1)[worst]):.4g}, the answers differ by "
        f"{float((after - before)[worst]):.4g}"
    )
    if float(gap[worst]) <= float(rounding[worst]) or not bool(gap[worst].isfinite()):
        raise NotApplicable(
            f"{missed}, and without their signs the shares add up to "
            f"{float(flat.abs().sum(1)[worst]):.4g}: too much for {flat.dtype}. A norm of a signal "
            f"that is zero at the baseline is that steep. Take another `baseline` (uniform, blur, "
            f"a given tensor) or the network and its inputs in double precision."
        )
    raise NotApplicable(
        f"{missed}: the network chooses by its values in a way DeepLIFT has no rule for."
    )


def _mean_shares(
    model: Model, batch: Batch, output: Output, rows: int, start: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """The mean of the shares from `rows` baselines, `start(samples, rows)`."""
    refuse_half(model, "DeepLIFT")
    x = points(model, batch)
    mean = torch.zeros_like(x)
    for samples, row, asked in chunks(model, batch, rows):
        ends = start(samples, row), x[samples]
        shares = _shares(model, batch.inputs[samples], batch.targets[samples], ends, output)
        mean.index_add_(0, samples[:asked], shares[:asked] / rows)
    return mean


def _per_baseline(options: Options) -> Passes:
    """Each baseline takes a pass, the sample one by the rules and one to compare it with."""
    rows = _count(options)
    return Passes(forward=3 * rows, backward=rows)


def _count(options: Options) -> int:
    return options.get("baselines") or 1


def _baselines(model: Model, batch: Batch, options: Options) -> Iterator[Tensor]:
    """What the shares add up from, one baseline after the other."""
    x = points(model, batch)
    if not options.get("baselines"):
        yield starting_point(model, batch, options["baseline"], x)
        return
    for reference in model.continuous(batch.reference(_count(options))):
        yield reference.expand_as(x)


@method(
    "deeplift",
    version=2,
    needs=["gradients"],
    noise=True,
    passes=_per_baseline,
    promise=completeness(_baselines, _count),
    family="relevance",
    cite="shrikumar2017",
    title="DeepLIFT",
)
def deeplift(
    model: Model, batch: Batch, *, baseline: FillChoice = "zero", output: Output = "logit"
) -> Tensor:
    """Each input's share in f(x) - f(b), shared out backwards by differences, not by gradients.

    Formula: (x - b) m, where y = g(x) element by element passes back (g(x) - g(b)) / (x - b) and
    linear operators pass back their weights; sum of the map = f(x) - f(b).

    Beside the paper: its rescale rule; reveal-cancel is left out. Where the two runs differ by
    rounding only, the gradient stands for the ratio. The change of a maximum goes to the winner:
    the one at x if it rose, else the one at b; where several tie, as in all pools at a baseline of
    one colour, rounding decides which, here and in captum, and the shares add up all the same.
    Products share theirs evenly between the factors; layer norms and attention are written out in
    products and functions of one number, a softmax as exp(x - log sum exp x), whose shares a shift
    of all scores leaves alone. What is masked in both runs gets nothing.
    """
    x = points(model, batch)
    start = starting_point(model, batch, baseline, x)
    return _mean_shares(model, batch, output, 1, lambda samples, _: start[samples])


@method(
    "deepshap",
    version=2,
    needs=["gradients"],
    noise=True,
    passes=_per_baseline,
    promise=completeness(_baselines, _count),
    family="relevance",
    cite="lundberg2017",
    title="DeepSHAP",
)
def deepshap(
    model: Model,
    batch: Batch,
    *,
    baselines: Annotated[int, Field(ge=0)] = 0,
    baseline: FillChoice = "zero",
    output: Output = "logit",
) -> Tensor:
    """DeepLIFT averaged over baselines: Shapley values put together operator by operator.

    Formula: mean_k DeepLIFT(x, b_k); sum of the map = f(x) - mean_k f(b_k).

    Beside the paper: `baselines` takes so many samples of the dataset, the same for all; by default
    there is one, which `baseline` names, as in SoCo and AttributionLab, and the map is that of
    `deeplift`. Maxima follow the winner instead of an exact game.
    """
    if baselines == 0:
        found: Tensor = deeplift(model, batch, baseline=baseline, output=output)
        return found
    references = model.continuous(batch.reference(baselines))
    if len(references) < baselines:
        raise NotApplicable(
            f"Takes {baselines} samples as baselines; the dataset has {len(references)}."
        )
    return _mean_shares(model, batch, output, baselines, lambda _, rows: references[rows])
