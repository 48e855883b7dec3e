"""DeepLIFT: the difference from a baseline, distributed operator by operator."""

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

INCOMPLETE = 1e-3  # the error of the sum of shares that is allowed, relative to the outputs
ROUNDED = 1e-2  # the most that rounding of large shares may add to it, relative to the logits


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
        raise NotApplicable(
            "The network runs more operators at the baseline than at the sample, so differences "
            "between the runs are not defined."
        )
    (multiplier,) = torch.autograd.grad(total, x)
    shares = (x - start).detach() * multiplier
    # The error of a probability scales with its size; that of a logit scales with all logits.
    exact = (before.abs() + after.abs()).detach()
    scale = exact if output == "probability" else logits.detach().abs().amax(1)
    _check_complete(shares, before.detach(), after.detach(), scale)
    return shares


def _check_complete(shares: Tensor, before: Tensor, after: Tensor, scale: Tensor) -> None:
    """Refuse shares that do not add up, or are so large that their sum is mostly rounding.

    `scale` is the size of the numbers from which the outputs were computed.
    """
    flat = shares.flatten(1)
    gap = (flat.sum(1) - (after - before)).abs()
    rounding = ROUNDING * torch.finfo(flat.dtype).eps * flat.abs().sum(1)
    allowed = INCOMPLETE * (before.abs() + after.abs()) + rounding.clamp(max=ROUNDED * scale)
    if bool((gap <= allowed).all()):  # NaN is not complete either
        return
    worst = int((gap - allowed).argmax())
    missed = (
        f"The shares add up to {float(flat.sum(1)[worst]):.4g}, but the outputs differ by "
        f"{float((after - before)[worst]):.4g}"
    )
    if float(gap[worst]) <= float(rounding[worst]) or not bool(gap[worst].isfinite()):
        raise NotApplicable(
            f"{missed}. The absolute shares add up to {float(flat.abs().sum(1)[worst]):.4g}, too "
            f"much for {flat.dtype}; a norm of a signal that is zero at the baseline is that "
            f"steep. Use another `baseline` (uniform, blur, a tensor), or the network and its "
            f"inputs in double precision."
        )
    raise NotApplicable(
        f"{missed}: the network branches on its values in a way that DeepLIFT has no rule for."
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
    """A pass for each baseline, one for the sample by the rules, and one to check its logits."""
    rows = _count(options)
    return Passes(forward=3 * rows, backward=rows)


def _count(options: Options) -> int:
    return options.get("baselines") or 1


def _baselines(model: Model, batch: Batch, options: Options) -> Iterator[Tensor]:
    """The baselines, one after the other."""
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
    """Each input's share in f(x) - f(b), distributed backwards by differences, not gradients.

    Formula: (x - b) m, where y = g(x) element by element passes back (g(x) - g(b)) / (x - b) and
    linear operators pass back their weights; sum of the map = f(x) - f(b).

    Differs from the paper: the rescale rule is implemented; reveal-cancel is not. Where the two
    runs differ only by rounding, the gradient replaces the ratio. The change of a maximum goes to
    the largest input: the one at x if the maximum rose, otherwise the one at b. Where several tie,
    as in all pools at a baseline of one colour, rounding decides which, here and in captum; the
    shares add up in any case. Products distribute evenly between their factors. Layer norms and
    attention are written out as products and elementwise functions, a softmax as exp(x - log sum
    exp x), whose shares do not change when all scores are shifted. Inputs that are masked in both
    runs get nothing.
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
    """DeepLIFT averaged over baselines: Shapley values combined operator by operator.

    Formula: mean_k DeepLIFT(x, b_k); sum of the map = f(x) - mean_k f(b_k).

    Differs from the paper: `baselines` is the number of dataset samples used as baselines, the same
    for all inputs; by default there is one baseline, chosen by `baseline`, as in SoCo and
    AttributionLab, and the map is that of `deeplift`. Maxima follow the largest input instead of an
    exact game.
    """
    if baselines == 0:
        shares: Tensor = deeplift(model, batch, baseline=baseline, output=output)
        return shares
    references = model.continuous(batch.reference(baselines))
    if len(references) < baselines:
        raise NotApplicable(
            f"`deepshap` takes {baselines} samples as baselines; the dataset has only "
            f"{len(references)}. Lower `baselines`."
        )
    return _mean_shares(model, batch, output, baselines, lambda _, rows: references[rows])
