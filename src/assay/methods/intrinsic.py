"""Networks that explain themselves: B-cos and BagNet."""

import contextlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.engine.respondent import micro_batches
from assay.errors import InputError
from assay.methods.copies import points
from assay.methods.gradients import Output, explained, one_pass
from assay.plugins.registry import Passes, method
from assay.types import Batch, Model
from assay.types.model import EXPLANATION_MODES
from assay.types.tokens import hooked


def explanation_mode(net: nn.Module) -> contextlib.AbstractContextManager[object]:
    """The network's own mode in which autograd sees it as linear.

    Raises:
        InputError: It has none, or it is not a context manager.
    """
    for name in EXPLANATION_MODES:
        mode = getattr(net, name, None)
        if callable(mode):
            entered = mode()
            if hasattr(entered, "__enter__"):
                return entered  # type: ignore[no-any-return]
    names = " or ".join(f"`{name}()`" for name in EXPLANATION_MODES)
    raise InputError(
        f"Expected `{type(net).__name__}` to have a method {names} that returns a context manager "
        f"(`with net.{EXPLANATION_MODES[0]}():`), in which the scaling of its B-cos layers is "
        f"detached. Decorate it with `contextlib.contextmanager`."
    )


@method(
    "bcos",
    needs=["gradients", "image", "bcos"],
    noise=True,
    passes=one_pass,
    family="intrinsic",
    cite="bohle2022",
    title="B-cos",
)
def bcos(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """Each pixel's contribution to a B-cos network's output: its linear map times the input.

    Formula: sum over channels of z df/dz, z the encoded input [x, 1 - x], the cosines of all layers
    held constant. For a network without biases it sums to the logit minus the constant that the
    network adds.

    Differs from the paper: nothing. It works for every network with a context manager `explaining`
    or `explanation_mode`; z is the output of its module `encode`, or its input if there is none.
    """
    encode = getattr(model.net, "encode", None)
    at, leaves, maps = points(model, batch), [], []

    def cut(values: Tensor) -> Tensor:
        leaves.append(values.detach().requires_grad_(True))
        return leaves[-1].clone()  # what follows may work in place

    for samples, _, asked in micro_batches(len(batch), 1, model.micro_batch, batch.inputs.device):
        x = model.laid_out(at[samples])
        with contextlib.ExitStack() as inside:
            inside.enter_context(torch.enable_grad())
            inside.enter_context(explanation_mode(model.net))
            if isinstance(encode, nn.Module):
                inside.enter_context(hooked(encode, lambda _, __, encoded: cut(encoded)))
            else:
                x = cut(x)
            logits = model.logits(batch.inputs[samples], at=x)
            scalar = explained(model, logits, batch.targets[samples], output).sum()
            (gradient,) = torch.autograd.grad(scalar, leaves[-1])
        maps.append((leaves.pop().detach() * gradient).sum(1)[:asked])
    return torch.cat(maps)


@method(
    "bagnet",
    needs=["image", "bagnet"],
    noise=True,
    passes=lambda options: Passes(forward=None, by="stride²"),
    passes_on=lambda model, batch, options: Passes(forward=int(model.net.stride) ** 2),
    family="intrinsic",
    cite="brendel2019",
    title="BagNet",
)
def bagnet(model: Model, batch: Batch, *, output: Output = "logit") -> Tensor:
    """A BagNet's output for the patch around each pixel alone.

    Formula: f(patch of x centred at the pixel), x with zeros around it. The network runs once for
    each shift of x by less than its stride in both directions, without its mean over positions.

    Differs from the paper: nothing; the paper runs the network once for every pixel. It works for
    every network with `patch_logits`, from images to [B, classes, h, w], and the attributes
    `receptive_field` and `stride`. The mean over patches inside the image at multiples of the
    stride is the logit; the mean of the whole map is not.
    """
    net: Any = model.net
    field, stride = int(net.receptive_field), int(net.stride)
    height, width = batch.map_shape
    rows, columns = -(-height // stride), -(-width // stride)  # patches of one shift
    before, after = (field - 1) // 2, field // 2
    padded = functional.pad(
        points(model, batch),
        (before, after + columns * stride - width, before, after + rows * stride - height),
    )
    tall, wide = (rows - 1) * stride + field, (columns - 1) * stride + field
    parts = []
    for samples, shift, asked in micro_batches(
        len(batch), stride**2, model.micro_batch, batch.inputs.device
    ):
        corners = torch.stack([samples, shift // stride, shift % stride], 1).tolist()
        x = torch.stack([padded[b, :, i : i + tall, j : j + wide] for b, i, j in corners])
        logits = net.patch_logits(model.laid_out(x))
        if tuple(logits.shape[2:]) != (rows, columns):
            raise InputError(
                f"Expected `patch_logits` of {tall} x {wide} pixels to return {rows} x {columns} "
                f"patches, for a receptive field of {field} and stride {stride}, got "
                f"{tuple(logits.shape)}. Check `receptive_field`, `stride` and padding."
            )
        flat = logits.movedim(1, -1).flatten(0, 2)  # [n rows columns, classes]
        if flat.shape[1] == 1:
            flat = torch.cat([-flat, flat], 1)  # as in `Model.logits`
        targets = batch.targets[samples].repeat_interleave(rows * columns)
        parts.append(explained(model, flat, targets, output).reshape(-1, rows, columns)[:asked])
    shifted = torch.cat(parts).reshape(len(batch), stride, stride, rows, columns)
    dense = shifted.permute(0, 3, 1, 4, 2).reshape(len(batch), rows * stride, columns * stride)
    return dense[:, :height, :width].contiguous()
