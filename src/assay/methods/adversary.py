"""A mask of the input that is fitted against a critic: what InputIBA starts from."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from assay.interventions import micro_batches
from assay.tokens import hooked
from assay.types import Batch, Model

TOGETHER = 32  # examples the critic sees at once
EVERY = 5  # of its steps, one of the mask's
GROUPS = 10  # of examples, each with noise of its own mean and spread
CLIP = 0.01  # of the critic's weights
WIDTH = 32  # of the critic


def adversary_rows(synthetic: int, epochs: int) -> tuple[int, int]:
    """Network passes forward, and how many of them go backward."""
    back = sum(
        min(TOGETHER, synthetic - start)
        for start in range(0, synthetic, TOGETHER)
        if start // TOGETHER % EVERY == 0
    )
    return synthetic * epochs, back * epochs


def generated_mask(
    model: Model,
    sample: Batch,
    module: nn.Module,
    output: Tensor,
    passed: Tensor,
    first: Tensor,
    epochs: int,
    synthetic: int,
) -> Tensor:  # [C, H, W]
    """A mask in (0, 1) under which the layer's answers look like what passes its bottleneck.

    `first` is where the mask starts, before its sigmoid. The noise that takes the place of what is
    masked is fitted with it, a mean and a spread for each channel.
    """
    x = sample.inputs[0]
    mask = first.expand_as(x).clone().requires_grad_(True)
    shift = torch.zeros_like(x[:, :1, :1]).requires_grad_(True)
    scale = torch.ones_like(x[:, :1, :1]).requires_grad_(True)
    real = _examples(sample, output, passed, synthetic) if epochs else output[None]
    critic = _critic(sample, output)
    judge = torch.optim.RMSprop(critic.parameters(), lr=5e-5, foreach=False)
    forger = torch.optim.RMSprop(
        [
            {"params": [shift], "lr": 0.1},
            {"params": [scale], "lr": 0.05},
            {"params": [mask], "lr": 0.003},
        ],
        foreach=False,
    )
    for epoch in range(epochs):
        order = sample.draw(f"input_iba order {epoch}", (synthetic,))[0].argsort()
        for step, chosen in enumerate(torch.split(order, TOGETHER)):
            noise = sample.draw(
                f"input_iba critic {epoch} {step}", (len(chosen), *x.shape), normal=True
            )[0]
            deceive = step % EVERY == 0
            with torch.set_grad_enabled(deceive):
                share = torch.sigmoid(mask)
                seen = share * x + (1 - share) * (scale * noise + shift)
            fake = _layer_answers(model, sample, module, seen)
            with torch.enable_grad():
                loss = critic(fake.detach()).mean() - critic(real[chosen]).mean()
                judge.zero_grad()
                loss.backward()
            judge.step()
            with torch.no_grad():
                for weight in critic.parameters():
                    weight.clamp_(-CLIP, CLIP)
            if deceive:
                with torch.enable_grad():
                    (-critic(fake).mean()).backward(inputs=[mask, shift, scale])
                forger.step()
                forger.zero_grad()
    return torch.sigmoid(mask.detach())


def _layer_answers(model: Model, sample: Batch, module: nn.Module, seen: Tensor) -> Tensor:
    """What the layer gives for these inputs, with gradients where they have them."""
    parts: list[Tensor] = []
    found: list[Tensor] = []

    def keep(_: nn.Module, __: Any, output: Tensor) -> None:
        found.append(output.clone())  # what follows may work in place

    size = min(model.micro_batch, len(seen))
    with torch.set_grad_enabled(seen.requires_grad), hooked(module, keep):
        for _, rows, asked in micro_batches(1, len(seen), size, seen.device):
            inputs = sample.inputs.expand(len(rows), *sample.inputs.shape[1:])
            model.logits(inputs, at=model.laid_out(seen[rows]))
            parts.append(found[-1][:asked])
            found.clear()
        return torch.cat(parts)


def _examples(sample: Batch, output: Tensor, passed: Tensor, synthetic: int) -> Tensor:
    """What passes the layer's bottleneck, mixed with noise of several means and spreads."""
    noise = sample.draw("input_iba examples", (synthetic, *output.shape), normal=True)[0]
    settings = sample.draw("input_iba settings", (2, GROUPS))[0]
    group = torch.arange(synthetic, device=output.device) * GROUPS // synthetic
    std, mean = (5 * settings[0])[group], (4 * settings[1] - 2)[group]
    noise = noise * std.reshape(-1, 1, 1, 1) + mean.reshape(-1, 1, 1, 1)
    return passed * output + (1 - passed) * noise


def _critic(sample: Batch, output: Tensor) -> nn.Sequential:
    """A small network that tells true outputs of a layer from forged ones; its own random start."""
    channels, height, width = output.shape
    rows, columns = -(-height // 4), -(-width // 4)
    made: dict[str, Any] = {"device": output.device, "dtype": output.dtype}
    skip: Any = torch.nn.utils.skip_init  # leaves the caller's random numbers alone
    critic = nn.Sequential(
        skip(nn.Conv2d, channels, WIDTH, 3, stride=2, padding=1, **made),
        nn.GroupNorm(1, WIDTH, **made),
        nn.LeakyReLU(0.2),
        skip(nn.Conv2d, WIDTH, 2 * WIDTH, 3, stride=2, padding=1, **made),
        nn.GroupNorm(1, 2 * WIDTH, **made),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        skip(nn.Linear, 2 * WIDTH * rows * columns, 1, **made),
    )
    for name, layer in critic.named_children():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            reach = 1 / math.sqrt(layer.weight[0].numel())
            for kind, weight in layer.named_parameters():
                drawn = sample.draw(f"input_iba start {name} {kind}", weight.shape)[0]
                weight.data.copy_((2 * drawn - 1) * reach)
    return critic
