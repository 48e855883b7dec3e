"""`assay zoo`: the networks of the zoo, and their training."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from assay.commands.arguments import JsonOption
from assay.commands.terminal import FAILED, console, print_json, say
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.training.zoo import ZooNetwork

zoo_app = typer.Typer(
    help="List and train small networks for CIFAR-10 that differ in one design choice each.",
    no_args_is_help=True,
)
FACTS = ("name", "family", "depth", "width", "norm", "bias", "parameters", "recipe", "trained")
HEADINGS = {"parameters": "size", "recipe": "epochs, rate"}


@zoo_app.command("list")
def list_zoo(
    out: Annotated[
        Path | None, typer.Option(help="A folder of trained networks: count its files.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the networks with their design, recipe and trained files."""
    from assay.training.zoo import GROUPS, ZOO

    rows = [_row(network, out) for network in ZOO.values()]
    if as_json:
        return print_json(rows)
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    columns = FACTS if out else FACTS[:-1]
    for column in columns:
        number = column in ("depth", "width", "parameters", "trained")
        table.add_column(
            HEADINGS.get(column, column),
            justify="right" if number else "left",
            no_wrap=True,
            min_width=18 if column == "name" else None,
        )
    for row in rows:
        table.add_row(*(_cell(column, row) for column in columns))
    console.print(table, highlight=False)
    for name, group in GROUPS.items():
        say(
            f"{name}: {len(group.networks)} networks, seeds {group.seeds[0]}-{group.seeds[-1]}, "
            f"arms {', '.join(group.arms)}",
            style="dim",
        )
    return None


@zoo_app.command("train")
def train(
    names: Annotated[list[str], typer.Argument(help="Networks or groups of `assay zoo list`.")],
    data: Annotated[
        Path, typer.Option(help="The folder that holds cifar10/ with lossless parquet files.")
    ],
    out: Annotated[Path, typer.Option(help="The folder of networks. Stored ones are kept.")],
    seeds: Annotated[
        str | None, typer.Option(help="0-4 or 0,2,5. A group has its own by default.")
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="base, tuned, placebo, tuned-g8-blur, base-d25, ... with commas."),
    ] = None,
    device: Annotated[str, typer.Option(help="The device, such as cuda.")] = "cpu",
    processes: Annotated[
        int, typer.Option(min=1, help="How many networks are trained at a time.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option(min=10, help="Only so many images, for a quick try.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs instead of the recipe's, for a quick try.")
    ] = None,
    tuning_epochs: Annotated[
        int | None, typer.Option(min=1, help="The same for the fine-tuning.")
    ] = None,
    mps: Annotated[
        bool, typer.Option("--mps", help="Start NVIDIA's multi-process service.")
    ] = False,
) -> None:
    """Train networks of the zoo. Networks that are already stored are not trained again."""
    from assay.training.zoo import plan_jobs
    from assay.training.zoo_processes import train_zoo

    chosen = None if arms is None else [arm.strip() for arm in arms.split(",")]
    jobs = plan_jobs(names, parse_seeds(seeds), chosen)
    outcomes = train_zoo(
        jobs, data, out, device=device, processes=processes, epochs=epochs,
        tuning_epochs=tuning_epochs, limit=limit, mps=mps, say=say,
    )  # fmt: skip
    failed = [outcome for outcome in outcomes if outcome.error]
    say(f"{len(outcomes) - len(failed)} networks in {out}")
    if failed:
        say(f"{len(failed)} failed: {', '.join(outcome.file for outcome in failed)}")
        for outcome in failed:
            if outcome.error_file:
                say(f"The whole error of {outcome.file} is in {out / outcome.error_file}")
        raise typer.Exit(FAILED)


def parse_seeds(text: str | None) -> list[int] | None:
    """The seeds of `0-4` or `0,2,5`; None where there is no text."""
    if text is None:
        return None
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None or (match[2] is not None and int(match[2]) < int(match[1])):
            raise InputError(f"Expected `--seeds` like 0-4 or 0,2,5, got `{text}`.")
        seeds += range(int(match[1]), int(match[2] or match[1]) + 1)
    return list(dict.fromkeys(seeds))


def _row(network: ZooNetwork, out: Path | None) -> dict[str, object]:
    from assay.training.zoo import zoo_model

    row: dict[str, object] = asdict(network)
    row["parameters"] = zoo_model(network.name).card["parameters"]
    files = sorted(out.glob(f"{network.name}-s*.safetensors")) if out else []
    row["trained"] = [path.name for path in files]
    return row


def _cell(column: str, row: dict[str, object]) -> str:
    value = row[column]
    if isinstance(value, dict):  # a recipe
        return f"{value['epochs']} {value['optimizer']} {value['rate']:g}"
    if isinstance(value, list):
        return str(len(value)) if value else ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if column == "parameters" and isinstance(value, int):
        return f"{value / 1e6:.2f} M"
    return f"{value or ''}"
