"""A network prepared for fast forward passes: rows per call, folded batch-norms, layout."""

import contextlib
import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from assay.models.network_state import Structure, copied, copied_weights, rewritten
from assay.types import Model, Observation


def choose_micro_batch(example: Tensor) -> int:
    """Rows per call: small enough for caches on a CPU, large enough to fill a GPU."""
    numbers = math.prod(example.shape[1:])
    if example.device.type == "cuda":
        return int(min(1024, max(8, 2 ** round(math.log2(2**25 / numbers)))))
    return int(min(32, max(4, 2 ** round(math.log2(4 * 3 * 224 * 224 / numbers)))))


CHANNELS_LAST = "channels last"  # a name in `Prepared.changes`
DRAWS, INPUT = "random numbers", "its input"  # what a forward pass may use up or change
LOOK = 2  # rows of the first forward pass: a single row can hide effects of larger batches


@dataclass(frozen=True)
class Prepared:
    """A network as the engine runs it: the model with its observation, and the changes made."""

    model: Model
    net: nn.Module
    changes: tuple[str, ...]

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits of inputs, in the memory layout in which the network runs fastest."""
        return self.model.logits(self.model.laid_out(inputs), net=self.net)


def observe(model: Model, example: Tensor) -> Model:
    """The model with what one forward pass shows: its classes and its last spatial layer."""
    return model if model.observed is not None else _look(model, _doubled(example))[0]


def prepare_network(model: Model, example: Tensor) -> Prepared:
    """Observe the network once: fold batch-norms, choose the layout, find the last spatial layer.

    Folding and the channels-last layout are used only if the logits stay within 1e-5 of those of
    the original network. A network with hooks is not changed: a copy could lose their effect.
    """
    example = _doubled(example)
    hooked = any(m._forward_hooks or m._forward_pre_hooks for m in model.net.modules())
    seen, plain = _look(model, example)
    prepared = Prepared(seen, model.net, ())
    if not hooked and example.is_floating_point():
        prepared = _improve(prepared, "batch-norm folded", _fuse, example, plain)
    if (
        not hooked and example.ndim == 4 and not example.is_cuda
    ):  # there 3x slower in full precision
        prepared = _improve(prepared, CHANNELS_LAST, _lay_out, channels_last(example), plain)
    if CHANNELS_LAST not in prepared.changes or seen.observed is None:
        return prepared
    return replace(
        prepared, model=replace(seen, observed=replace(seen.observed, channels_last=True))
    )


def _doubled(example: Tensor) -> Tensor:
    return example[:1].expand(LOOK, *example.shape[1:]).contiguous()


def _look(model: Model, example: Tensor) -> tuple[Model, Tensor]:
    """The model with its observation on an example, and the logits of the example."""
    with last_spatial(model) as spatial, _side_effects(model.net, example) as changes:
        plain, binary = model.read(example)
    layer = spatial[-1] if spatial else None
    if model.cam_reshape is not None:
        layer = _last_tokens(model, example)
    seen = Observation(plain.shape[1], binary, layer, changes=frozenset(changes))
    return replace(model, observed=seen), plain


@contextlib.contextmanager
def _side_effects(net: nn.Module, example: Tensor) -> Iterator[list[str]]:
    """Collect in words what a forward pass inside changes."""
    structure, stream, changes = Structure(net), torch.get_rng_state(), list[str]()
    copies = [*copied_weights(net), *copied(INPUT, example, "")]
    yield changes
    changes += [change.what for change in (*structure.changed(), *rewritten(copies))]
    changes += [DRAWS] * (not torch.equal(stream, torch.get_rng_state()))


def _improve(
    before: Prepared,
    what: str,
    change: Callable[[nn.Module], nn.Module | None],
    example: Tensor,
    plain: Tensor,
) -> Prepared:
    """Use a changed copy of the network if it works and its logits stay within 1e-5."""
    try:
        changed = change(copy.deepcopy(before.net))
        if changed is None:
            return before
        logits = before.model.logits(example, net=changed)
    except Exception:  # a user's network: copying, tracing or another layout may fail
        return before
    scale = plain.abs().max().clamp(min=1.0)
    agree = bool((logits - plain).abs().max() <= 1e-5 * scale)
    return Prepared(before.model, changed, (*before.changes, what)) if agree else before


def _lay_out(net: nn.Module) -> nn.Module:
    changed: nn.Module = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return changed


@contextlib.contextmanager
def last_spatial(model: Model) -> Iterator[list[str]]:
    """Collect the names of the modules with a spatial output, in order, while the network runs.

    For a transformer the list is empty: its only spatial layer cuts the image into patches.
    """
    names: list[str] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if not isinstance(output, Tensor):
                return
            if output.is_nested:  # tokens of texts of different lengths
                names.clear()
            elif output.ndim == 4 and min(output.shape[2:]) > 1:
                names.append(name)
            elif output.ndim == 3 and output.shape[1] > 1:
                names.clear()  # tokens: spatial layers before them are far from the output

        return hook

    handles = [m.register_forward_hook(note(n)) for n, m in model.net.named_modules()]
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()


def _last_tokens(model: Model, example: Tensor) -> str | None:
    """The last normalisation of tokens whose patches affect the output; without one, any layer.

    If the output is read from a class token, the last outputs of the patches are not used. The last
    ones that matter are those that the last attention layer reads.
    """
    seen: list[tuple[str, Tensor]] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tokens = output[0] if isinstance(output, tuple | list) and output else output
            with contextlib.suppress(Exception):  # an output that the reshape does not fit
                if model.places(output).requires_grad:
                    seen.append((name, tokens))

        return hook

    handles = [m.register_forward_hook(note(n)) for n, m in model.net.named_modules() if n]
    try:
        with torch.enable_grad():
            logits = model.logits(example.detach().clone().requires_grad_(True))
            weights = torch.linspace(1, 2, logits.shape[1], device=logits.device)
            answer = (logits * weights).sum()
    finally:
        for handle in handles:
            handle.remove()
    if not seen:
        return None
    gradients = torch.autograd.grad(answer, [tensor for _, tensor in seen], allow_unused=True)
    reaching = [
        name
        for (name, _), gradient in zip(seen, gradients, strict=True)
        if gradient is not None and bool(model.places(gradient).any())
    ]
    kinds = {name: type(module).__name__.lower() for name, module in model.net.named_modules()}
    norms = [name for name in reaching if "norm" in kinds[name]]
    return next(reversed(norms or reaching), None)


def channels_last(images: Tensor) -> Tensor:
    """The same images in channels-last memory format."""
    return images.contiguous(memory_format=torch.channels_last)


def _fuse(net: nn.Module) -> nn.Module | None:
    """Fold every batch-norm that directly follows a convolution; None if there is none."""
    graph = torch.fx.symbolic_trace(net).graph
    modules = dict(net.named_modules())
    calls = [node.target for node in graph.nodes if node.op == "call_module"]
    folded = False
    for node in graph.nodes:
        if node.op != "call_module" or not isinstance(modules[node.target], nn.BatchNorm2d):
            continue
        before = node.args[0]
        if not isinstance(before, torch.fx.Node) or before.op != "call_module":
            continue
        convolution, norm = modules[str(before.target)], modules[node.target]
        once = (
            len(before.users) == 1 and calls.count(before.target) == calls.count(node.target) == 1
        )
        if once and isinstance(convolution, nn.Conv2d) and norm.track_running_stats:
            fused = torch.nn.utils.fuse_conv_bn_eval(convolution, norm)
            convolution.weight, convolution.bias = fused.weight, fused.bias
            parent, _, name = str(node.target).rpartition(".")
            setattr(modules[parent], name, nn.Identity())
            folded = True
    return net.requires_grad_(False) if folded else None
