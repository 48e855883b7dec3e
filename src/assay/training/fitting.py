"""Training a network by a recipe: resumable after every epoch, the same result for a seed."""

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError
from assay.plugins.identity import code_identity
from assay.progress import bar
from assay.training.augmentation import augment
from assay.training.resuming import Resumable
from assay.training.streaming import Inputs, in_batches, inputs_hashes
from assay.training.trained_weights import copy_weights
from assay.types import Model
from assay.types.model import log_probabilities

CHECKED = 50  # steps between two looks at the loss; each look makes a GPU wait
SHARE = 0.5  # of the free memory of a GPU that the data may take

# (inputs [B, ...], generator on their device) -> inputs [B, ...]
Change = Callable[[Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    epochs: int
    batch: int = 256
    optimizer: Literal["sgd", "adamw"] = "sgd"  # SGD has momentum 0.9
    rate: float = 0.1
    decay: float = 5e-4
    schedule: Literal["cosine", "steps"] = "cosine"  # cosine: after a rise
    rise: float = 0.05  # the share of the steps over which the rate of `cosine` rises
    every: int = 10  # the schedule `steps` multiplies the rate by 0.1 after each so many epochs
    augment: bool = True  # images are moved by up to an eighth of the side and mirrored
    nesterov: bool = True

    def __post_init__(self) -> None:
        """Reject numbers that no training can have."""
        for name in ("epochs", "batch", "every"):
            if getattr(self, name) < 1:
                raise InputError(f"Expected `{name}` to be at least 1, got {getattr(self, name)}.")
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"Expected `rate` to be a number above 0, got {self.rate}.")
        if not 0 <= self.rise <= 1:
            raise InputError(f"Expected `rise` to be a share from 0 to 1, got {self.rise}.")
        if not (math.isfinite(self.decay) and self.decay >= 0):
            raise InputError(f"Expected `decay` to be a number from 0 on, got {self.decay}.")

    def rate_at(self, step: int, steps: int) -> float:
        """The learning rate of a step (counted over all epochs), with `steps` in an epoch."""
        if self.schedule == "steps":
            return self.rate * 0.1 ** (step // steps // self.every)
        total = self.epochs * steps
        rise = max(1, int(self.rise * total))
        return self.rate * min((step + 1) / rise, 0.5 * (1 + math.cos(math.pi * step / total)))


def fit_network(
    model: Model,
    inputs: Inputs,
    labels: Tensor,
    recipe: Recipe,
    *,
    seed: int = 0,
    change: Change | None = None,
    checkpoint: Path | None = None,
    each_epoch: Callable[[int], str | None] | None = None,
    what: str = "training",
    progress: bool = True,
    about: str = "",
) -> list[float]:
    """Train a network in place and leave it in eval mode; gives the mean loss of each epoch.

    On a GPU: bfloat16 autocast, channels-last, and the data stay on the device where they fit. On
    the CPU, seed and thread count determine the weights, also after an interruption.

    Args:
        model: The network, changed in place.
        inputs: The samples `[N, ...]` as the network takes them, or images of 8 bits
            `[N, 3, H, W]`, which are normalised as `model.pixels` says. Streamed ones give the
            same weights.
        labels: Their classes `[N]`.
        recipe: How to train.
        seed: The seed of the order, the crops and the mirrors; each epoch has its own stream.
        change: Changes each batch after the crops and mirrors, in input space, on the device.
        checkpoint: A safetensors file that is written after each epoch. If it is there, training
            continues from it; a finished one is only loaded.
        each_epoch: Called with 1, 2, ... after each epoch that is trained here, in eval mode. What
            it returns is shown beside the bar.
        what: The title of the progress bar.
        progress: Whether to show the bar.
        about: What `change` does. A checkpoint of another text, recipe, seed, network or data is
            refused.

    Raises:
        InputError: The data do not fit, the checkpoint belongs to another training, or the loss is
            not finite. In the last case network and checkpoint stay as after the last good epoch.
    """
    weights = trainable(model)
    check_samples(model, inputs, labels)
    device, net = model.device, model.net
    key = "" if checkpoint is None else _key(model, inputs, labels, recipe, seed, about)
    saved = Resumable(checkpoint, key)
    optimizer = _optimizer(weights, recipe)
    losses = saved.load(net, optimizer)
    size = min(recipe.batch, len(inputs))
    steps = len(inputs) // size
    shown = [""]
    with _laid_out(net, device, inputs), torch.enable_grad():
        data, targets = _resident(inputs, device), labels.to(device)
        with bar(what, recipe.epochs * steps, progress, lambda: shown[0]) as done:
            done(len(losses) * steps)
            for epoch in range(len(losses), recipe.epochs):
                good = copy_weights(net)
                try:
                    losses.append(
                        _one_epoch(
                            model, data, targets, recipe, optimizer, epoch, seed, change, done
                        )
                    )
                except FloatingPointError:
                    net.load_state_dict(good)
                    net.eval()
                    raise _diverged(recipe, epoch, checkpoint) from None
                net.eval()
                saved.save(net, optimizer, losses)
                note = each_epoch(epoch + 1) if each_epoch is not None else None
                shown[0] = note or f"loss {losses[-1]:.3f}"
                done(0)  # draws the note, also that of the last epoch
    net.eval()
    return losses


def loss_of(model: Model, logits: Tensor, labels: Tensor, binary: bool = False) -> Tensor:
    """Cross-entropy; for B-cos networks the sum over classes of each one's own yes or no.

    Args:
        model: The network.
        logits: Its class scores `[B, C]`.
        labels: The classes `[B]`.
        binary: Whether the scores are the pair (-z, z) of a single score z.
    """
    if "bcos" in model.capabilities:
        target = functional.one_hot(labels, logits.shape[1]).to(logits.dtype)
        each = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return each.sum(1).mean()
    return functional.nll_loss(log_probabilities(logits, binary), labels)


def normalised(model: Model, inputs: Tensor) -> Tensor:
    """Images of 8 bits as the network takes them; other inputs in the network's number type."""
    if inputs.dtype != torch.uint8:
        return inputs.to(model.dtype)
    if model.pixels is None:
        raise InputError(
            "Expected the normalisation of the model for images of 8 bits. Pass `mean=` and `std=` "
            "to `assay.model`, or give the inputs as the network takes them."
        )
    pixels, (mean, std) = inputs.float() / 255, (model.pixels.mean, model.pixels.std)
    channels = pixels.shape[1]
    mean, std = (values * channels if len(values) == 1 else values for values in (mean, std))
    # By numbers, one channel after the other: a tensor of them would make a GPU wait for its copy.
    scaled = [(pixels[:, c] - mean[c]) / std[c] for c in range(channels)]
    return torch.stack(scaled, 1).to(model.dtype)


def _one_epoch(
    model: Model,
    inputs: Inputs,
    labels: Tensor,
    recipe: Recipe,
    optimizer: torch.optim.Optimizer,
    epoch: int,
    seed: int,
    change: Change | None,
    done: Callable[[int], None],
) -> float:
    """Train one epoch; a short rest is left out. Gives the mean loss."""
    device = model.device
    # On the device of the network, so that no step waits for a copy of random numbers.
    generator = torch.Generator(device).manual_seed(_stream(seed, epoch))
    size = min(recipe.batch, len(inputs))
    steps = len(inputs) // size
    order = torch.randperm(len(inputs), generator=generator, device=device)[: steps * size]
    losses: list[Tensor] = []
    model.net.train()
    with _global_stream(_stream(seed, epoch), device):  # dropout draws from the global stream
        batches = torch.split(order, size)
        for number, (rows, x) in enumerate(zip(batches, in_batches(inputs, batches), strict=True)):
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate_at(epoch * steps + number, steps)
            x = x.to(device)
            if recipe.augment and x.ndim == 4:
                x = augment(x, generator)
            x = normalised(model, x)
            if change is not None:
                x = change(x, generator)
            if device.type == "cuda" and x.ndim == 4:
                x = x.contiguous(memory_format=torch.channels_last)
            with torch.autocast(device.type, torch.bfloat16, device.type == "cuda"):
                logits, binary = model.read(x)
            loss = loss_of(model, logits.float(), labels[rows], binary)
            optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            optimizer.step()
            losses.append(loss.detach())
            if number % CHECKED == 0 and not math.isfinite(losses[-1].item()):
                raise FloatingPointError
            done(1)
    state = model.net.state_dict().values()
    finite = [torch.isfinite(w).all() for w in state if w.is_floating_point()]
    mean = torch.stack(losses).mean().item()
    if not math.isfinite(mean) or not bool(torch.stack(finite).all()):
        raise FloatingPointError
    return mean


def _optimizer(weights: list[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            weights, lr=recipe.rate, momentum=0.9, weight_decay=recipe.decay,
            nesterov=recipe.nesterov,
        )  # fmt: skip
    return torch.optim.AdamW(weights, lr=recipe.rate, weight_decay=recipe.decay)


def trainable(model: Model) -> list[nn.Parameter]:
    """The weights that take gradients.

    Raises:
        InputError: There are none.
    """
    weights = [p for p in model.net.parameters() if p.requires_grad]
    if not weights or "gradients" not in model.has:
        raise InputError(
            f"Expected model `{model.name}` to have weights that take gradients, got "
            f"{'none' if not weights else 'a model without gradients'}. Give a torch network "
            f"whose parameters have `requires_grad=True`."
        )
    return weights


def check_samples(model: Model, inputs: Inputs, labels: Tensor) -> None:
    """Reject samples that the network cannot be trained or measured on.

    Raises:
        InputError: The inputs or labels do not fit the network.
    """
    if labels.ndim != 1 or labels.is_floating_point() or len(labels) != len(inputs):
        raise InputError(
            f"Expected `labels` to be one class number per sample ({len(inputs)}), got shape "
            f"{tuple(labels.shape)} of {labels.dtype}."
        )
    if len(inputs) < 2:
        raise InputError(f"Expected at least 2 samples to train on, got {len(inputs)}.")
    classes = count_classes(model, inputs)
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise InputError(
            f"Expected `labels` from 0 to {classes - 1}, the classes of model `{model.name}`, got "
            f"{int(labels.min())} to {int(labels.max())}."
        )


def count_classes(model: Model, inputs: Inputs) -> int:
    """The number of classes of the network, from its answer to the first of these inputs.

    Raises:
        InputError: The network cannot run on them.
    """
    was = [(module, module.training) for module in model.net.modules()]
    model.net.eval()
    try:
        with torch.no_grad():
            return model.logits(normalised(model, inputs[:1].to(model.device))).shape[1]
    except RuntimeError as error:
        raise InputError(
            f"Model `{model.name}` cannot run on inputs of shape {tuple(inputs.shape[1:])}: {error}"
        ) from error
    finally:
        for module, training in was:
            module.training = training


def _key(
    model: Model, inputs: Inputs, labels: Tensor, recipe: Recipe, seed: int, about: str
) -> str:
    """Identifies a training: the network and how it is read, the data, the recipe and the seed."""
    output = code_identity(model.output) if callable(model.output) else repr(model.output)
    read = f"{model.pixels} {output}"
    digest = hashlib.sha256(f"{model.weights_hash} {read} {asdict(recipe)} {seed} {about}".encode())
    for numbers in (inputs_hashes(inputs, model), labels.detach().cpu().long()):
        digest.update(numbers.numpy().tobytes())
    return digest.hexdigest()[:32]


def _stream(seed: int, epoch: int) -> int:
    """The seed of one epoch's random numbers."""
    digest = hashlib.sha256(f"{seed}\0{epoch}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


@contextlib.contextmanager
def _global_stream(seed: int, device: torch.device) -> Iterator[None]:
    """Torch's global random numbers from a seed inside; as before afterwards."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _laid_out(net: nn.Module, device: torch.device, inputs: Inputs) -> Iterator[None]:
    """Channels-last inside, where a GPU is twice as fast; the usual layout afterwards."""
    if device.type != "cuda" or inputs.ndim != 4:
        yield
        return
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        yield
    finally:
        net.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _resident(inputs: Inputs, device: torch.device) -> Inputs:
    """The data on the device, if it has room for them."""
    if not isinstance(inputs, Tensor):
        return inputs
    if device.type == "cuda" and inputs.device.type == "cpu":
        free, _ = torch.cuda.mem_get_info(device)
        if inputs.numel() * inputs.element_size() > SHARE * free:
            return inputs
    return inputs.to(device)


def _diverged(recipe: Recipe, epoch: int, checkpoint: Path | None) -> InputError:
    """The error of a loss that is not finite."""
    state, again = "The network has the weights from before this epoch.", ""
    if checkpoint is not None and epoch:
        state = f"`{checkpoint}` holds the weights after epoch {epoch}."
        again = ", and another folder (`--out`)"
    return InputError(
        f"Expected a finite loss, got NaN or infinity in epoch {epoch + 1} of {recipe.epochs} at "
        f"the learning rate {recipe.rate:g}. Training stopped. {state} Choose a smaller rate, such "
        f"as {recipe.rate / 10:g}{again}."
    )
