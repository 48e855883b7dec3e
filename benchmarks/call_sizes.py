"""Which sizes of a call give a row the same bits on a CPU? `python -m benchmarks.call_sizes`.

Outputs and gradients of 32 rows at once are compared with those of the same rows in smaller calls.
For each network and memory layout, the sizes are printed whose bits differ.
"""

import argparse

import torch
from torch import Tensor, nn

ROWS, SIZES = 32, (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32)


def networks() -> dict[str, tuple[nn.Module, tuple[int, ...]]]:
    """Small networks of each kind, with the shape of an input."""

    def deep() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(128, 128, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1, groups=128),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100),
        )  # fmt: skip

    small = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )  # fmt: skip
    words = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return {
        "linear 5": (nn.Linear(5, 3), (5,)),
        "perceptron 64": (nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (64,)),
        "perceptron 768": (
            nn.Sequential(nn.Linear(768, 768), nn.GELU(), nn.Linear(768, 10)),
            (768,),
        ),
        "convolutions 16": (small, (3, 16, 16)),
        "convolutions 64": (deep(), (3, 64, 64)),
        "convolutions 224": (deep(), (3, 224, 224)),
        "transformer": (nn.Sequential(words, nn.Flatten(), nn.Linear(2560, 5)), (20, 128)),
    }


def answers(net: nn.Module, rows: Tensor, layout: torch.memory_format) -> tuple[Tensor, Tensor]:
    """The outputs for some rows, and the gradients of one of them."""
    rows = rows.clone()
    x = rows.contiguous(memory_format=layout) if rows.ndim == 4 else rows
    x.requires_grad_(True)
    output = net(x)
    return output.detach(), torch.autograd.grad(output[:, 1].sum(), x)[0]


def different(net: nn.Module, x: Tensor, layout: torch.memory_format) -> list[int]:
    """The sizes of calls in which some row has other bits than in a call of all rows."""
    whole, found = answers(net, x, layout), []
    for size in SIZES:
        starts = range(0, ROWS - size + 1, size)
        parts = [answers(net, x[start : start + size], layout) for start in starts]
        for kind, one in zip(whole, zip(*parts, strict=True), strict=True):
            rows = torch.cat(one)
            if not torch.equal(rows, kind[: len(rows)]):
                found.append(size)
                break
    return found


def main() -> None:
    """Print the sizes that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    torch.manual_seed(0)
    for name, (net, shape) in networks().items():
        net.eval()
        x = torch.randn(ROWS, *shape)
        for layout in (torch.contiguous_format, torch.channels_last)[: 2 if x.ndim == 4 else 1]:
            net = net.to(memory_format=layout) if x.ndim == 4 else net
            print(f"{name:18s} {str(layout)[6:]:18s} {different(net, x, layout)}", flush=True)


if __name__ == "__main__":
    main()
