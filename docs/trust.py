"""The plot of `explanation/trust.md` from the published correlations.

    python docs/trust.py [DIR]

DIR holds the runs of `assay claims --run attributionlab`; with it the correlations are made anew.
Rows that do not say how many methods are distinct have intervals over the images alone: they are
drawn with Fisher's interval over the methods instead.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.ranking.association import spearman_ends

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "results" / "attributionlab" / "trust.json"
PLOT = ROOT / "docs" / "images" / "trust.svg"

TRUTH = "overall"
COLOURS = {"seen-nonuniform": "#00796b", "unseen-nonuniform": "#e65100"}
WORDS = {"seen-nonuniform": "no unseen effect", "unseen-nonuniform": "unseen effect"}
STORED = ("setting", "protocol", "truth", "correlation", "low", "high", "distinct", "n")
LOWEST = 0.8  # below zero, of the axis
METHODS = 16  # that AttributionLab's study compares
LEFT, WIDTH, STEP, TOP = 210, 430, 24, 56  # of the plot, in pixels


def published() -> list[dict[str, Any]]:
    """The correlations of every protocol with the truth, by setting."""
    rows: list[dict[str, Any]] = json.loads(ROWS.read_text(encoding="utf-8"))
    return rows


def plot(rows: Sequence[Mapping[str, Any]]) -> str:
    """Correlations as dots with their intervals, one line per protocol."""
    shown = [row for row in rows if row["truth"] == TRUTH and row["setting"] in COLOURS]
    effect = {r["protocol"]: r["correlation"] for r in shown if r["setting"].startswith("unseen")}
    order = sorted(effect, key=lambda name: -effect[name])
    height = TOP + STEP * len(order) + 36
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
            'font-family="sans-serif" font-size="13">',
            f'<rect width="100%" height="{height}" fill="white"/>',
            *_axis(height),
            *(
                line
                for place, name in enumerate(order)
                for line in _protocol(name, TOP + STEP * place + STEP / 2, shown)
            ),
            *_legend(),
            "</svg>",
            "",
        ]
    )


def _x(value: float) -> float:
    return round(LEFT + WIDTH * (value + LOWEST) / (1 + LOWEST), 1)


def _axis(height: int) -> Iterator[str]:
    for tick in (-0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0):
        x = _x(tick)
        colour = "#777" if tick == 0 else "#ddd"
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{height - 34}" stroke="{colour}"/>'
        yield f'<text x="{x}" y="{height - 18}" text-anchor="middle" fill="#444">{tick:g}</text>'
    middle = LEFT + WIDTH / 2
    yield (
        f'<text x="{middle}" y="{height - 3}" text-anchor="middle" fill="#444">rank correlation '
        "with the truth over 16 methods</text>"
    )


def _protocol(name: str, y: float, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f'<text x="{LEFT - 10}" y="{y + 4}" text-anchor="end" fill="#222">{name}</text>'
    for row in rows:
        if row["protocol"] == name and row["correlation"] is not None:
            colour = COLOURS[row["setting"]]
            low, high = (_x(end) for end in _ends(row))
            yield (
                f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" '
                'stroke-width="3" stroke-opacity="0.4"/>'
            )
            yield f'<circle cx="{_x(row["correlation"])}" cy="{y}" r="5" fill="{colour}"/>'


def _ends(row: Mapping[str, Any]) -> tuple[float, float]:
    """The interval over methods; one that leaves them out is replaced."""
    if "distinct" in row:
        return row["low"], row["high"]
    return spearman_ends(row["correlation"], METHODS, 0.95)


def _legend() -> Iterator[str]:
    for place, (setting, colour) in enumerate(COLOURS.items()):
        x = LEFT + 150 * place
        yield f'<circle cx="{x}" cy="24" r="5" fill="{colour}"/>'
        yield f'<text x="{x + 12}" y="28" fill="#222">{WORDS[setting]}</text>'


def main() -> None:
    """Write the correlations, where runs are given, and the plot."""
    if len(sys.argv) > 1:
        from assay.studies.attributionlab.paper_tables import metrics_folders, page, trust_rows

        out = Path(sys.argv[1])
        rows = [
            {key: row[key] for key in STORED}
            for truth in ("overall", "positive")
            for row in trust_rows(metrics_folders(out), truth)
        ]
        ROWS.parent.mkdir(parents=True, exist_ok=True)
        ROWS.write_text(json.dumps(rows, indent=0) + "\n", encoding="utf-8")
        tables = "\n".join(page(out))
        (ROWS.parent / "tables.md").write_text(f"# AttributionLab's tables\n\n{tables}\n")
    PLOT.write_text(plot(published()), encoding="utf-8")


if __name__ == "__main__":
    main()
