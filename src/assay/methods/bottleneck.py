"""Information bottlenecks: how much of a layer, or of the input, the output needs."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from assay.engine.engine import Engine
from assay.engine.respondent import micro_batches
from assay.errors import NotApplicable
from assay.methods.adversary import TOGETHER, adversary_rows, generated_mask
from assay.methods.cam import LayerChoice, enlarge, find_layer, outputs
from assay.methods.outputs import answers
from assay.methods.statistics import usual, usual_passes
from assay.plugins.option_types import Count, NonNegative, Options, Positive, ShareBelowOne
from assay.plugins.registry import Passes, method
from assay.types import Batch, Model
from assay.types.tokens import hooked


def _iba_passes(options: Options) -> Passes:
    rows = options["steps"] * options["samples"]
    return Passes(forward=1 + rows, backward=rows, once=options["estimate"])


def _on_data(passes: Callable[[Options], Passes]) -> Callable[[Model, Batch, Options], Passes]:
    """The same passes, with those of the statistics of this network and these data."""

    def passes_on(model: Model, batch: Batch, options: Options) -> Passes:
        _check_places(model)
        once, finding = usual_passes(model, batch, options["layer"], options["estimate"])
        cost = passes(options)
        forward = (cost.forward or 0) + _regression(model)
        return replace(cost, forward=forward, once=once, finding=finding)

    return passes_on


@method(
    "iba",
    needs=["gradients", "image", "spatial"],
    passes=_iba_passes,
    passes_on=_on_data(_iba_passes),
    coarse=True,
    family="bottleneck",
    cite="schulz2020",
    title="IBA",
)
def iba(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    layer: LayerChoice = None,
    beta: NonNegative = 10.0,
    steps: Count = 10,
    samples: Count = 10,
    sigma: NonNegative = 1.0,
    lr: Positive = 1.0,
    alpha0: float = 5.0,
    min_std: Positive = 0.01,
    active: ShareBelowOne = 0.01,
    estimate: Annotated[int, Field(ge=2)] = 1000,
) -> Tensor:
    """The bits of a layer that pass a bottleneck of noise, as narrow as the output allows.

    Formula: Z = l R + (1 - l) (m + s e), l the blurred sigmoid of a, minimises over a the cross
    entropy plus `beta` times the mean of KL(N(l R + (1 - l) m, (1 - l)^2 s^2) || N(m, s^2)); the
    map is that KL in bits, summed over channels and enlarged, so that its sum is that of the layer.

    R is the layer's output, m and s its mean and standard deviation over `estimate` samples of the
    data. Only units that are nonzero in more than `active` of them pass. a starts at `alpha0` and
    takes `steps` steps of Adam, each with `samples` draws of e.

    Differs from the paper: the settings are those of the authors' code, which, as here, reads the
    map before the last step. Without classes the loss is the squared distance from the clean
    output. The layer is the last with a spatial output, unless `layer` is set; the paper uses one
    in the middle. 1 - l is computed as the sigmoid of -a, so that nothing is infinite where l
    rounds to 1, and small layers repeat their border where they cannot mirror it.
    """
    prior = _prior(model, batch, engine, layer, estimate, min_std, active)
    _, capacity = fits(
        model, batch, layer, layer_outputs(model, batch, layer), prior, beta=beta, steps=steps,
        samples=samples, sigma=sigma, lr=lr, alpha0=alpha0,
    )  # fmt: skip
    return spread(capacity.sum(1) / math.log(2), batch).to(batch.dtype)


def groups(model: Model, batch: Batch, rows: int) -> Iterator[tuple[Batch, list[int], int]]:
    """Groups of samples that fill a micro-batch with `rows` passes each, with their indices.

    Groups have equal size: the last sample is repeated, and the number of real samples is given.
    """
    size, last = max(1, model.micro_batch // rows), len(batch) - 1
    for start in range(0, len(batch), size):
        chosen = [min(b, last) for b in range(start, start + size)]
        yield batch.select(chosen), chosen, min(size, len(batch) - start)


def layer_outputs(
    model: Model, batch: Batch, layer: str | nn.Module | None
) -> Tensor:  # [B, C, h, w]
    """The layer's output, at least in single precision, because the fit takes small steps.

    Raises:
        NotApplicable: It runs several times, or returns more than one tensor.
    """
    calls: list[int] = []

    def look(_: nn.Module, __: object, output: object) -> None:
        calls.append(1)
        if not isinstance(output, Tensor):
            raise NotApplicable(
                f"The information bottleneck needs a layer that returns one tensor; this one "
                f"returns a {type(output).__name__}. Choose another with `layer=`."
            )

    with hooked(find_layer(model, layer), look):
        parts = [a[:asked] for a, _, _, asked in outputs(model, batch, layer)]
    if len(calls) > len(parts):
        raise NotApplicable(
            "The information bottleneck needs a layer that runs once in a pass; this one runs "
            "several times. Choose the block it belongs to with `layer=`."
        )
    return torch.cat(parts).contiguous().to(precise(batch))


def precise(batch: Batch) -> torch.dtype:
    """The precision of the fit: optimisers square small numbers, which half precision loses."""
    return torch.promote_types(batch.dtype, torch.float32)


def _regression(model: Model) -> bool:
    return "classes" not in model.has


def _check_places(model: Model) -> None:
    if model.cam_reshape is not None:
        raise NotApplicable(
            "The information bottleneck needs a spatial layer; a transformer's class token would "
            "bypass it."
        )


def spread(coarse: Tensor, batch: Batch) -> Tensor:
    """The layer's map enlarged to the input's size, with the same sum up to its border."""
    height, width = batch.map_shape
    return enlarge(coarse * (coarse[0].numel() / (height * width)), batch.map_shape)


@dataclass(frozen=True)
class Prior:
    """What replaces a layer's output where nothing passes, each `[C, h, w]`."""

    mean: Tensor
    std: Tensor
    active: Tensor


def _prior(
    model: Model,
    batch: Batch,
    engine: Engine,
    layer: str | nn.Module | None,
    estimate: int,
    min_std: float,
    active: float,
) -> Prior:
    _check_places(model)
    known = usual(model, batch, engine, layer, estimate)
    mean, std, used = known.mean, known.std.clamp(min=min_std), known.active > active
    kind = precise(batch)
    return Prior(mean.to(kind), std.to(kind), used.to(kind))


def fits(
    model: Model, batch: Batch, layer: str | nn.Module | None, output: Tensor, prior: Prior,
    *, beta: float, steps: int, samples: int, sigma: float, lr: float, alpha0: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`fit` by groups of samples that fill a micro-batch."""
    passed, capacity = [], []
    for group, at, asked in groups(model, batch, samples):
        share, nats = fit(
            model, group, layer, output[at], prior, beta=beta, steps=steps, samples=samples,
            sigma=sigma, lr=lr, alpha0=alpha0,
        )  # fmt: skip
        passed.append(share[:asked])
        capacity.append(nats[:asked])
    return torch.cat(passed), torch.cat(capacity)


def fit(
    model: Model,
    batch: Batch,
    layer: str | nn.Module | None,
    output: Tensor,
    prior: Prior,
    *,
    beta: float,
    steps: int,
    samples: int,
    sigma: float,
    lr: float,
    alpha0: float,
) -> tuple[Tensor, Tensor]:  # each [B, C, h, w]
    """Fit a bottleneck for each sample: the share that passes, and its nats.

    The loss is a sum over samples and Adam treats each number separately, so a sample's result does
    not depend on the others.
    """
    module = find_layer(model, layer)
    clean = answers(model, batch, batch.inputs, "logit") if _regression(model) else None
    alpha = torch.full_like(output, alpha0).requires_grad_(True)
    optimiser = torch.optim.Adam([alpha], lr=lr, foreach=False)
    passed = capacity = output
    for step in range(steps):
        noise = batch.draw(f"iba {step}", (samples, *output.shape[1:]), normal=True)
        noise = prior.mean + prior.std * noise.to(output.dtype)  # [B, S, C, h, w]
        with torch.enable_grad():
            passed, held = gate(alpha, sigma)
            capacity = information(passed, held, (output - prior.mean) / prior.std) * prior.active
            cost = beta * capacity.mean((1, 2, 3)).sum()
        mixed = torch.lerp(noise, output[:, None], passed.detach()[:, None]) * prior.active
        slope = loss_gradient(model, batch, module, mixed, clean)
        slope = (slope * (output[:, None] - noise) * prior.active).sum(1) / samples
        (alpha.grad,) = torch.autograd.grad([passed, cost], alpha, [slope, torch.ones_like(cost)])
        optimiser.step()
    return passed.detach(), capacity.detach()


def gate(alpha: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
    """The shares that pass and that are held back: smoothed sigmoids of alpha and of -alpha."""
    return blur(torch.sigmoid(alpha), sigma), blur(torch.sigmoid(-alpha), sigma)


def information(passed: Tensor, held: Tensor, standard: Tensor) -> Tensor:
    """KL(N(l r, (1 - l)^2) || N(0, 1)) in nats, r the output in units of its prior."""
    small = held.clamp(min=torch.finfo(held.dtype).tiny)
    return 0.5 * ((passed * standard) ** 2 + held**2 - 1) - torch.log(small)


def blur(images: Tensor, sigma: float) -> Tensor:  # [..., h, w]
    """Blur each channel with a Gaussian cut off at two sigma, with mirrored borders."""
    reach = round(2 * sigma)
    if sigma == 0 or reach == 0:
        return images
    offsets = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    line = torch.exp(-(offsets**2) / (2 * sigma**2))
    kernel = torch.outer(line, line)
    mode = "reflect" if min(images.shape[-2:]) > reach else "replicate"
    padded = functional.pad(images.flatten(0, -3)[:, None], [reach] * 4, mode=mode)
    return functional.conv2d(padded, (kernel / kernel.sum())[None, None]).reshape(images.shape)


def loss_gradient(
    model: Model,
    batch: Batch,
    module: nn.Module | None,
    mixed: Tensor,
    clean: Tensor | None = None,
) -> Tensor:  # like mixed: [B, S, C, h, w]
    """The gradient of the cross entropy at each noisy copy of the layer's output or the input.

    Without classes the loss is the squared distance from the clean output.
    """
    parts, (many, times) = [], mixed.shape[:2]
    for samples, rows, asked in micro_batches(many, times, model.micro_batch, mixed.device):
        noisy = model.laid_out(mixed[samples, rows].to(batch.dtype)).requires_grad_(True)
        inputs = model.laid_out(batch.inputs[samples])
        with torch.enable_grad():
            if module is None:
                logits = model.logits(inputs, at=noisy.clone())  # it may work in place
            else:
                with _replaced(module, noisy):
                    logits = model.logits(inputs)
            targets = batch.targets[samples, None]
            if clean is None:
                loss = -model.log_probs(logits).gather(1, targets)
            else:
                loss = (logits.gather(1, targets) - clean[samples, None]) ** 2
            (slope,) = torch.autograd.grad(loss.sum(), noisy)
        parts.append(slope[:asked].to(mixed.dtype))
    return torch.cat(parts).reshape(mixed.shape)


def _replaced(module: nn.Module, instead: Tensor) -> AbstractContextManager[None]:
    """Replace a layer's output."""
    return hooked(module, lambda _, __, ___: instead.clone())


def _input_passes(options: Options) -> Passes:
    fits = (options["feature_steps"] + options["steps"]) * options["samples"]
    seen, back = adversary_rows(options["synthetic"], options["epochs"])
    return Passes(forward=1 + fits + seen, backward=fits + back, once=options["estimate"])


@method(
    "input_iba",
    needs=["classes", "gradients", "image", "spatial"],
    passes=_input_passes,
    passes_on=_on_data(_input_passes),
    family="bottleneck",
    cite="zhang2021",
    title="InputIBA",
)
def input_iba(
    model: Model,
    batch: Batch,
    engine: Engine,
    *,
    layer: LayerChoice = None,
    beta: NonNegative = 20.0,
    steps: Count = 60,
    samples: Count = 10,
    sigma: NonNegative = 1.0,
    lr: Positive = 1.0,
    alpha0: float = 5.0,
    feature_beta: NonNegative = 20.0,
    feature_steps: Count = 10,
    epochs: Annotated[int, Field(ge=0)] = 20,
    synthetic: Annotated[int, Field(ge=1)] = 200,
    min_std: Positive = 0.01,
    active: ShareBelowOne = 0.01,
    estimate: Annotated[int, Field(ge=2)] = 1000,
    variant: Literal["paper", "code"] = "paper",
) -> Tensor:
    """The share of each pixel that passes a bottleneck on the input, fitted to one on a layer.

    Formula: the mean over channels of sigmoid(a), where z = l x + (1 - l) e, l the blurred sigmoid
    of a, e standard normal, minimises the cross entropy plus `beta` times the mean of KL(N(m, v) ||
    N(0, 1)), m = l x (1 - g) / (1 - g l), v = (1 - l)^2 / (1 - g l)^2.

    g is a mask of the input, fitted against a critic so that the layer's outputs for g x + (1 - g)
    e look like what passes the bottleneck of `iba` there, in `epochs` epochs over `synthetic`
    examples; with 0 epochs g keeps its start. The default takes about 4,700 passes per sample.

    Differs from the paper: settings are those of the authors' code for ImageNet, but the critic is
    narrower and normalises each example by itself. Examples are mixed by the share that passes;
    `variant: code` mixes by its nats, which are not a share. Noise is standard normal in the units
    of the network's input, so inputs should be normalised. As in the code, a is read after the last
    step.
    """
    prior = _prior(model, batch, engine, layer, estimate, min_std, active)
    output = layer_outputs(model, batch, layer)
    passed, capacity = fits(
        model, batch, layer, output, prior, beta=feature_beta, steps=feature_steps,
        samples=samples, sigma=sigma, lr=lr, alpha0=alpha0,
    )  # fmt: skip
    first = spread(capacity.sum(1) / math.log(2), batch)
    shown = passed if variant == "paper" else capacity
    module = find_layer(model, layer)
    generated = torch.cat(
        [
            generated_mask(
                model, group, module, output[at], shown[at], first[at], epochs, synthetic
            )[:asked]
            for group, at, asked in groups(model, batch, TOGETHER)
        ]
    )
    maps = [
        _fit_input(model, group, generated[at], beta, steps, samples, sigma, lr, alpha0)[:asked]
        for group, at, asked in groups(model, batch, samples)
    ]
    return torch.cat(maps).to(batch.dtype)


def _fit_input(
    model: Model,
    batch: Batch,
    generated: Tensor,
    beta: float,
    steps: int,
    samples: int,
    sigma: float,
    lr: float,
    alpha0: float,
) -> Tensor:  # [B, H, W]
    """Fit a bottleneck on each input, given its generated mask."""
    x = batch.inputs.to(generated.dtype)
    alpha = torch.full_like(x, alpha0).requires_grad_(True)
    optimiser = torch.optim.Adam([alpha], lr=lr, foreach=False)
    for step in range(steps):
        noise = batch.draw(f"input_iba {step}", (samples, *x.shape[1:]), normal=True).to(x.dtype)
        with torch.enable_grad():
            passed, held = gate(alpha, sigma)
            left = (1 - generated) + generated * held  # 1 - g l, without cancellation
            nats = information(passed, held / left, x * (1 - generated) / left)
            cost = beta * nats.mean((1, 2, 3)).sum()
        mixed = torch.lerp(noise, x[:, None], passed.detach()[:, None])
        slope = loss_gradient(model, batch, None, mixed)
        slope = (slope * (x[:, None] - noise)).sum(1) / samples
        (alpha.grad,) = torch.autograd.grad([passed, cost], alpha, [slope, torch.ones_like(cost)])
        optimiser.step()
    return torch.sigmoid(alpha.detach()).mean(1)
