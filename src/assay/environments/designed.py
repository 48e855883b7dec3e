"""Networks whose weights are set by hand, so that what they compute is known exactly.

Every intermediate number is a multiple of a power of two below 2^24, so single precision makes no
rounding error, in any order of summation: counts and colours are exact.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError

Color = tuple[int, int, int]
FINEST = 6  # weights are multiples of 2^-6, so that sums of 2^16 pixels need 22 of 24 bits
KERNELS = 3  # per block whose weights are not uniform
SIDE = 3  # pixels a side of every window


class ExactNetwork(nn.Module):
    """A network that refuses to be run where its numbers would be rounded."""

    def refuse_rounding(self, x: Tensor) -> None:
        """Say so instead of giving a count that is nearly right."""
        if torch.is_autocast_enabled(x.device.type):
            raise PrerequisiteError(
                f"`{type(self).__name__}` counts exactly, which autocast would round. Call it "
                f"outside `torch.autocast`."
            )
        tf32 = torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
        if x.is_cuda and tf32:
            raise PrerequisiteError(
                f"`{type(self).__name__}` counts exactly, which TF32 would round. Set "
                f"`torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = "
                f"False`, or use `Model.evaluating()`."
            )
        if x.dtype not in (torch.float32, torch.float64):
            raise InputError(
                f"Expected inputs of `{type(self).__name__}` in single or double precision, got "
                f"{x.dtype}: it counts exactly."
            )


class ColorCounter(ExactNetwork):
    """How many pixels of each colour an image of integers from 0 to 255 has.

    The detector tells each pixel's colour, the accumulator adds them up, the head divides by the
    temperature. Redundant channels of the detector answer to every colour that the network was not
    made for; where they have weights, such colours disturb the counts.
    """

    def __init__(
        self,
        colors: Sequence[Color],
        background: Color,
        size: int,
        *,
        uniform: bool = False,
        unseen: bool = True,
        redundant: int = 2,
        strength: float = 0.25,
        temperature: float = 1.0,
        reach: int = 1,
        seed: int = 0,
    ) -> None:
        """Write all weights; `seed` draws those that are free."""
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.detector = color_detector([*colors, background], redundant, reach)
        disturbance = _disturbance(len(colors), redundant, strength * unseen, random)
        self.layers = _accumulator(len(colors), size, uniform, random, disturbance)
        self.head = nn.Linear(len(colors), len(colors))
        _write(self.head, torch.eye(len(colors)) / temperature)

    def forward(self, images: Tensor) -> Tensor:
        """The counts over the temperature, `[B, colours]`."""
        self.refuse_rounding(images)
        logits: Tensor = self.head(self.layers(self.detector(images)).flatten(1))
        return logits


class ModuloCounter(ExactNetwork):
    """The number of white pixels modulo N, of images of zeros and ones `[B, 1, H, W]`."""

    def __init__(
        self, size: int, modulus: int, most: int, *, uniform: bool = False, seed: int = 0
    ) -> None:
        """Write all weights; counts are right up to `most`, rounded up to a multiple of N."""
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.layers = _accumulator(1, size, uniform, random)
        self.modulo = modulo_network(modulus, -(-most // modulus))

    def forward(self, images: Tensor) -> Tensor:
        """The remainder, `[B, 1]`."""
        self.refuse_rounding(images)
        remainder: Tensor = self.modulo(self.layers(images).flatten(1))
        return remainder


def color_detector(colors: Sequence[Color], redundant: int, reach: int = 1) -> nn.Sequential:
    """Layers that give a map for each colour but the last, which is the background.

    Each channel has a hat function max(0, 1 - |x - v| / r) with r = `reach`, a power of two. It is
    written as ReLU(G(v-r) - G(v)) with G(i) = clip((x - i) / r, 0, 1); a pixel has a colour where
    all three hats are 1. The last layer drops the background and adds `redundant` maps that are 1
    where a pixel has none of the colours.
    """
    n = len(colors)
    first = torch.zeros(n, 3, 3, 3)  # colour, channel, one of three units; input channel
    bias = torch.zeros(n, 3, 3)
    for i, color in enumerate(colors):
        for channel, value in enumerate(color):
            first[i, channel, :, channel] = 1 / reach
            bias[i, channel] = -torch.tensor([value - reach, value, value + reach]) / reach
    steps = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    all_three = _repeated(torch.ones(1, 3), n)
    last = torch.cat([torch.eye(n)[:-1], -torch.ones(redundant, n)])
    return nn.Sequential(
        _pixelwise(first.reshape(9 * n, 3), bias.flatten()),
        nn.ReLU(),
        _pixelwise(_repeated(steps, 3 * n)),
        nn.ReLU(),
        _pixelwise(_repeated(torch.tensor([[1.0, -1.0]]), 3 * n)),
        nn.ReLU(),
        _pixelwise(all_three, torch.full((n,), -2.0)),
        nn.ReLU(),
        _pixelwise(last, torch.cat([torch.zeros(n - 1), torch.ones(redundant)])),
        nn.ReLU(),
    )


def stages(size: int) -> list[tuple[int, int]]:
    """Side and padding of each stage of 3 x 3 windows without overlap, down to a single window.

    The padding is such that every place lies in exactly one window.
    """
    sides = []
    while size > 1:
        padding = (0, 2, 1)[size % SIDE]
        sides.append((size, padding))
        size = (size + 2 * padding) // SIDE
    return sides


def _accumulator(
    maps: int,
    size: int,
    uniform: bool,
    random: torch.Generator,
    disturbance: Tensor | None = None,
) -> nn.Sequential:
    """Layers that sum each map: `[B, maps + redundant, H, W]` to `[B, maps, 1, 1]`.

    Redundant maps, if there are any, enter the first stage with the weights `disturbance`.
    """
    layers: list[nn.Module] = []
    sides = stages(size)
    if disturbance is not None:
        _, padding = sides.pop(0)
        weight = torch.cat([_diagonal(torch.ones(maps, 1, SIDE, SIDE)), disturbance], 1)
        layers += [_windows(weight, padding), nn.ReLU()]
    for _, padding in sides:
        if uniform:
            layers += [_windows(_diagonal(torch.ones(maps, 1, SIDE, SIDE)), padding), nn.ReLU()]
            continue
        taps = torch.stack([_taps(random) for _ in range(maps)])  # [maps, KERNELS, 3, 3]
        together = _repeated(torch.ones(1, KERNELS), maps)
        layers += [_windows(_diagonal(taps), padding), nn.ReLU(), _pixelwise(together), nn.ReLU()]
    return nn.Sequential(*layers)


def _disturbance(
    maps: int, redundant: int, strength: float, random: torch.Generator
) -> Tensor | None:
    """Normal weights of the redundant maps, rounded so that sums of them are exact too."""
    if redundant == 0:
        return None
    drawn = torch.randn(maps, redundant, SIDE, SIDE, generator=random) * strength
    rounded: Tensor = (drawn * 2**FINEST).round() / 2**FINEST
    return rounded


def _taps(random: torch.Generator) -> Tensor:  # [KERNELS, 3, 3]
    """Positive weights that sum to 1 over the kernels at each tap, as multiples of 2^-FINEST.

    With negative weights the inner ReLU would cut off a part of the sum.
    """
    whole = 2**FINEST
    taps = []
    for _ in range(SIDE * SIDE):
        cuts = torch.randperm(whole - 1, generator=random)[: KERNELS - 1].sort().values + 1
        edges = torch.cat([cuts.new_zeros(1), cuts, cuts.new_full((1,), whole)])
        taps.append(edges.diff())
    weights: Tensor = torch.stack(taps, 1).reshape(KERNELS, SIDE, SIDE) / whole
    return weights


def modulo_network(modulus: int, multiples: int) -> nn.Sequential:
    """Seven linear layers that compute x modulo N for integers from 0 to N times `multiples`.

    The differences of units ReLU(x - kN) are how much of each multiple is filled. A filled
    multiple, which the hat function at N detects, is set to zero; the rest is the remainder.
    """
    n, b = float(modulus), multiples
    differences = torch.eye(b, b + 1) - torch.eye(b + 1)[1:]
    hat_offsets = torch.tensor([0.0, -(n - 1), -n, -(n + 1)])
    steps = torch.tensor([[1.0, 0, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]])
    hat = torch.tensor([[1.0, 0, 0], [0, 1, -1]])
    return nn.Sequential(
        _dense(torch.ones(b + 1, 1), -n * torch.arange(b + 1)),
        nn.ReLU(),
        _dense(differences),
        nn.ReLU(),
        _dense(_repeated(torch.ones(4, 1), b), hat_offsets.repeat(b)),
        nn.ReLU(),
        _dense(_repeated(steps, b)),
        nn.ReLU(),
        _dense(_repeated(hat, b)),
        nn.ReLU(),
        _dense(_repeated(torch.tensor([[1.0, -n]]), b)),
        nn.ReLU(),
        _dense(torch.ones(1, b)),
        nn.ReLU(),
    )


def _repeated(block: Tensor, times: int) -> Tensor:
    """The same weights along the diagonal: each copy has inputs of its own."""
    return torch.kron(torch.eye(times), block)


def _diagonal(taps: Tensor) -> Tensor:  # [maps, k, 3, 3] -> [maps * k, maps, 3, 3]
    """Kernels that each read their own map only."""
    maps, kernels = taps.shape[:2]
    weight = torch.zeros(maps, kernels, maps, SIDE, SIDE)
    for i in range(maps):
        weight[i, :, i] = taps[i]
    return weight.flatten(0, 1)


def _windows(weight: Tensor, padding: int) -> nn.Conv2d:
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], SIDE, stride=SIDE, padding=padding)
    _write(layer, weight)
    return layer


def _pixelwise(weight: Tensor, bias: Tensor | None = None) -> nn.Conv2d:
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], 1)
    _write(layer, weight[:, :, None, None], bias)
    return layer


def _dense(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    _write(layer, weight, bias)
    return layer


def _write(layer: nn.Conv2d | nn.Linear, weight: Tensor, bias: Tensor | None = None) -> None:
    if layer.bias is None:
        raise TypeError("Expected a layer with a bias.")
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(torch.zeros_like(layer.bias) if bias is None else bias)
