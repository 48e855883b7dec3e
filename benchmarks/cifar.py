"""All methods under all protocols on ResNet-20 and CIFAR-10, each held against two controls.

    python -m benchmarks.cifar --data ../shared/data --out cifar-run

The data folder holds `cifar10/cifar10_test_lossless.parquet` and
`weights/cifar10-resnet/cifar10_resnet20.safetensors`.
"""

import argparse
from pathlib import Path
from typing import Any

from assay.plugins import registry
from assay.results import Results
from assay.run import run
from assay.suite.spec import Spec, make_suite

CONTROLS = ("random", "edge")


def suite(data: Path, limit: int) -> Spec:
    """Every registered method and protocol, at its defaults."""
    return make_suite(
        {
            "title": "Every method under every protocol: ResNet-20 on CIFAR-10",
            "datasets": [
                {"parquet": {"path": str(data / "cifar10" / "cifar10_test_lossless.parquet")}}
            ],
            "models": [
                {
                    "cifar_resnet20": {
                        "weights": str(
                            data / "weights" / "cifar10-resnet" / "cifar10_resnet20.safetensors"
                        )
                    }
                }
            ],
            "methods": registry.names("method"),
            "protocols": registry.names("protocol"),
            "limit": limit,
        }
    )


def table(results: Results) -> str:
    """Each method minus each control, paired, as Markdown; what is clearly below is marked."""
    lines = []
    for control in CONTROLS:
        rows = results.against(control)
        protocols = list(dict.fromkeys(r["protocol"] for r in rows))
        found = {(r["method"], r["protocol"]): r for r in rows}
        lines += [
            f"## minus {control}",
            "",
            "Mean difference with its 95 % interval, turned so that positive is better. "
            "▼ clearly below, ▲ clearly above, ↻ circular.",
            "",
            f"| method | {' | '.join(protocols)} |",
            f"|---|{'---|' * len(protocols)}",
        ]
        for method in dict.fromkeys(r["method"] for r in rows):
            cells = [_cell(found.get((method, p))) for p in protocols]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "n/a"
    sign = {"above": "▲", "below": "▼", "unclear": ""}[row["verdict"]]
    sign += "↻" if row["status"] == "circular" else ""
    return f"{row['difference']:+.3g} [{row['low']:.3g}, {row['high']:.3g}] {sign}".strip()


def main() -> None:
    """Run, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("cifar-run"))
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    results = run(suite(given.data, given.limit), given.out, workers=given.workers)
    (given.out / "against_controls.md").write_text(table(results), encoding="utf-8")
    print(table(results))
    print(f"The page: {results.report()}")


if __name__ == "__main__":
    main()
