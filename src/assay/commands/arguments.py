"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

OutOption = Annotated[
    Path, typer.Option("--out", help="The run's folder. A run that is already there is resumed.")
]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=1, help="The number of processes, each with one thread.")
]
DeviceOption = Annotated[
    str | None, typer.Option("--device", help="The device the networks run on, such as cuda.")
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, help="At most this many samples per dataset, equally from all classes."
    ),
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        help="The time the run may take, such as 10min or 2h. The number of samples is reduced "
        "first, then the options `steps` and `subsets`.",
    ),
]
TimeoutOption = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        help="The longest time of one method under one protocol on one shard, such as 60s, with "
        "its explanation. What takes longer fails, the rest goes on. The shards then run in worker "
        "processes, also with --workers 1.",
    ),
]
DryOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Count the forward passes and estimate the time. Run nothing."),
]
BatchOption = Annotated[
    int | None, typer.Option("--micro-batch", min=1, help="Inputs in one forward pass.")
]
ControlsOption = Annotated[
    str | None,
    typer.Option(
        "--controls",
        help="`on` adds the control `random` to a run that ranks methods, as by default; `off` "
        "leaves it out.",
    ),
]
ValidateOption = Annotated[
    bool | None,
    typer.Option(
        "--validate",
        help="Also score maps mixed with shuffled ones, and show whether the scores fall. "
        "It takes up to five times as long.",
    ),
]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Run the code that the suite or the run names, also where it is not beside the suite.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

MODEL_HELP = "A name, ./file.py:factory, hf:FOLDER, timm:NAME or torchvision:NAME."
WeightsOption = Annotated[
    str | None,
    typer.Option(help="The model's weights: a .safetensors file or a PyTorch state dict."),
]
CardOption = Annotated[
    str | None,
    typer.Option("--card", help="The card.json that `assay finetune` wrote beside the weights."),
]
SizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="The input's height and width in pixels. Needs --mean and --std."),
]
ResizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="The image's shorter side in pixels, before the crop to --size."),
]
MeanOption = Annotated[
    str | None,
    typer.Option(help="The mean of each channel, for pixels in [0, 1]: .5,.5,.5."),
]
StdOption = Annotated[
    str | None,
    typer.Option(help="The standard deviation of each channel: .25,.25,.25."),
]
