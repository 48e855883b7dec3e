"""`assay demo`: the suite inside the package."""

from pathlib import Path

from assay.commands.arguments import (
    BudgetOption,
    DeviceOption,
    DryOption,
    LimitOption,
    OutOption,
    WorkersOption,
)

SUITE = "demo"


def demo(
    out: OutOption = Path("assay-demo"),
    workers: WorkersOption = 2,
    device: DeviceOption = None,
    limit: LimitOption = None,
    budget: BudgetOption = None,
    dry_run: DryOption = False,
) -> None:
    """Rank methods on an ImageNet network and photographs. Write an HTML report in minutes."""
    from assay.commands.run import run_spec
    from assay.suite.spec import read_suite

    run_spec(read_suite(SUITE), out, workers, device, limit, budget, dry_run=dry_run)
