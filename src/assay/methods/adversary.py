"""A mask of the input, fitted against a critic: the start of InputIBA."""

import math

import torch
from torch import Tensor, nn

from assay.engine.respondent import micro_batches
from assay.methods.call_types import Keywords, Operator
from assay.types import Batch, Model
from assay.types.tokens import hooked

TOGETHER = 32  # examples per step of the critic
EVERY = 5  # steps of the critic for one step of the mask
GROUPS = 10  # of examples, each with its own mean and spread of noise
CLIP = 0.01  # bound on the critic's weights
WIDTH = 32  # channels of the critic


def adversary_rows(synthetic: int, epochs: int) -> tuple[int, int]:
    """The numbers of forward and of backward passes."""
    back = sum(
        min(TOGETHER, synthetic - start)
        for start in range(0, synthetic, TOGETHER)
        if start // TOGETHER % EVERY == 0
    )
    return synthetic * epochs, back * epochs


def generated_mask(
    model: Model,
    batch: Batch,
    module: nn.Module,
    output: Tensor,
    passed: Tensor,
    first: Tensor,
    epochs: int,
    synthetic: int,
) -> Tensor:  # [B, C, H, W]
    """Masks in (0, 1) under which the layer's outputs look like what passes its bottleneck.

    `first` `[B, H, W]` is their start, before the sigmoid. The noise that replaces masked pixels is
    fitted with them, a mean and a spread for each channel. Every sample has its own critic and all
    losses are sums over samples, so the samples are independent.
    """
    x = batch.inputs.to(output.dtype)
    mask = first[:, None].expand_as(x).clone().requires_grad_(True)
    shift = torch.zeros_like(x[:, :, :1, :1]).requires_grad_(True)
    scale = torch.ones_like(x[:, :, :1, :1]).requires_grad_(True)
    real = _examples(batch, output, passed, synthetic) if epochs else output[:, None]
    critics = _critics(batch, output)
    judge = torch.optim.RMSprop(critics.parameters(), lr=5e-5, foreach=False)
    forger = torch.optim.RMSprop(
        [
            {"params": [shift], "lr": 0.1},
            {"params": [scale], "lr": 0.05},
            {"params": [mask], "lr": 0.003},
        ],
        foreach=False,
    )
    everyone = torch.arange(len(batch), device=x.device)[:, None]
    for epoch in range(epochs):
        order = batch.draw(f"input_iba order {epoch}", (synthetic,)).argsort(1)
        for step, chosen in enumerate(torch.split(order, TOGETHER, dim=1)):
            noise = batch.draw(
                f"input_iba critic {epoch} {step}", (chosen.shape[1], *x.shape[1:]), normal=True
            ).to(x.dtype)
            deceive = step % EVERY == 0
            with torch.set_grad_enabled(deceive):
                share = torch.sigmoid(mask)
                forged = (1 - share)[:, None] * (scale[:, None] * noise + shift[:, None])
                seen = (share * x)[:, None] + forged  # [B, T, C, H, W]
            fake = _layer_answers(model, batch, module, seen)
            with torch.enable_grad():
                gap = _judged(critics, fake.detach()) - _judged(critics, real[everyone, chosen])
                judge.zero_grad()
                torch.autograd.backward(gap.sum())
            judge.step()
            with torch.no_grad():
                for weight in critics.parameters():
                    weight.clamp_(-CLIP, CLIP)
            if deceive:
                with torch.enable_grad():
                    doubt = -_judged(critics, fake).sum()
                    torch.autograd.backward(doubt, inputs=[mask, shift, scale])
                forger.step()
                forger.zero_grad()
    return torch.sigmoid(mask.detach())


def _layer_answers(
    model: Model, batch: Batch, module: nn.Module, seen: Tensor
) -> Tensor:  # [B, T, C, h, w]
    """The layer's outputs for these inputs, with gradients if the inputs have them."""
    parts: list[Tensor] = []
    outputs: list[Tensor] = []

    def keep(_: nn.Module, __: object, output: Tensor) -> None:
        outputs.append(output.clone())  # what follows may work in place

    many, times = seen.shape[:2]
    with torch.set_grad_enabled(seen.requires_grad), hooked(module, keep):
        for samples, rows, asked in micro_batches(many, times, model.micro_batch, seen.device):
            shown = model.laid_out(seen[samples, rows].to(batch.dtype))
            model.logits(batch.inputs[samples], at=shown)
            parts.append(outputs[-1][:asked].to(seen.dtype))
            outputs.clear()
        together = torch.cat(parts)
        return together.reshape(many, times, *together.shape[1:])


def _examples(batch: Batch, output: Tensor, passed: Tensor, synthetic: int) -> Tensor:
    """What passes the layer's bottleneck, mixed with noise of several means and spreads."""
    noise = batch.draw("input_iba examples", (synthetic, *output.shape[1:]), normal=True)
    settings = batch.draw("input_iba settings", (2, GROUPS))
    group = torch.arange(synthetic, device=output.device) * GROUPS // synthetic
    std, mean = (5 * settings[:, 0])[:, group], (4 * settings[:, 1] - 2)[:, group]  # [B, examples]
    noise = noise.to(output.dtype)  # the largest tensor here: changed in place
    noise.mul_(std[..., None, None, None]).add_(mean[..., None, None, None])
    return noise.mul_((1 - passed)[:, None]).add_((passed * output)[:, None])


def _critics(batch: Batch, output: Tensor) -> nn.Sequential:
    """One small network per sample that separates real outputs of a layer from generated ones.

    All run as one network with a separate group of channels and random start for each sample.
    """
    many, channels, height, width = output.shape
    made: Keywords = {"device": output.device, "dtype": output.dtype}
    skip: Operator = torch.nn.utils.skip_init  # leaves the caller's random numbers alone

    def convolution(inside: int, outside: int, kernel: tuple[int, int], **more: int) -> nn.Conv2d:
        layer: nn.Conv2d = skip(
            nn.Conv2d, many * inside, many * outside, kernel, groups=many, **more, **made
        )
        return layer

    halved: dict[str, int] = {"stride": 2, "padding": 1}
    critics = nn.Sequential(
        convolution(channels, WIDTH, (3, 3), **halved),
        nn.GroupNorm(many, many * WIDTH, **made),
        nn.LeakyReLU(0.2),
        convolution(WIDTH, 2 * WIDTH, (3, 3), **halved),
        nn.GroupNorm(many, many * 2 * WIDTH, **made),
        nn.LeakyReLU(0.2),
        convolution(2 * WIDTH, 1, (-(-height // 4), -(-width // 4))),
    )
    for name, layer in critics.named_children():
        if isinstance(layer, nn.Conv2d):
            reach = 1 / math.sqrt(layer.weight[0].numel())
            for kind, weight in layer.named_parameters():
                shape = (weight.shape[0] // many, *weight.shape[1:])
                drawn = batch.draw(f"input_iba start {name} {kind}", shape)
                weight.data.copy_(((2 * drawn.to(weight.dtype) - 1) * reach).flatten(0, 1))
    return critics


def _judged(critics: nn.Sequential, outputs: Tensor) -> Tensor:  # [B]
    """Each critic's mean output for its sample's `[B, T, C, h, w]`."""
    scores: Tensor = critics(outputs.transpose(0, 1).flatten(1, 2))  # [T, B, 1, 1]
    return scores.mean((0, 2, 3))
