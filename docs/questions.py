"""The tables and the picture of `explanation/questions.md` from the published matrix.

python docs/questions.py
"""

import html
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
MATRIX = ROOT / "results" / "questions" / "matrix.json"
PAGE = ROOT / "docs" / "explanation" / "questions.md"
PICTURE = ROOT / "docs" / "images" / "questions.svg"
MARKED = r"(<!-- {name} -->\n).*?(\n<!-- /{name} -->)"

CELL, LEFT, TOP, RIGHT = 34, 190, 176, 90  # of the picture, in pixels
POSITIVE, NEGATIVE, INK, LINE = (0, 121, 107), (230, 81, 0), "#222", "#777"

Study = Mapping[str, Any]


def published() -> Study:
    """The published numbers."""
    study: Study = json.loads(MATRIX.read_text(encoding="utf-8"))
    return study


def with_tables(text: str, study: Study) -> str:
    """The page with the tables of these numbers between its markers."""
    tables = {
        "networks": _networks(study),
        "members": _members(study),
        "pairs": _pairs(study),
        "proposed": _proposed(study),
    }
    for name, lines in tables.items():
        body = "\n".join(lines)
        pattern = re.compile(MARKED.format(name=name), flags=re.S)
        text = pattern.sub(lambda found, body=body: f"{found[1]}{body}{found[2]}", text)
    return text


def _networks(study: Study) -> Iterator[str]:
    yield "| network | images | methods | least reliable protocol |"
    yield "|---|---|---|---|"
    for one in study["networks"]:
        label, value = min(one["reliability"].items(), key=lambda item: item[1])
        yield (
            f"| `{one['network']}` | {one['images']} | {len(one['methods'])} "
            f"| `{label}` {value:.2f} |"
        )


def _members(study: Study) -> Iterator[str]:
    yield (
        "| protocol | declared question | own | nearest other question | difference "
        "| networks against | verdict |"
    )
    yield "|---|---|---|---|---|---|---|"
    for row in study["declared"]["members"]:
        yield (
            f"| `{row['protocol']}` | {row['question']} | {_number(row['own']['value'])} "
            f"| {row['nearest']} {_number(row['between']['value'])} "
            f"| {_interval(row['difference'])} "
            f"| {study['against_declared'].get(row['protocol'], '')} | {row['verdict']} |"
        )


def _pairs(study: Study) -> Iterator[str]:
    yield "| questions | between | own minus between | verdict |"
    yield "|---|---|---|---|"
    for row in study["declared"]["pairs"]:
        yield (
            f"| {row['one']}, {row['other']} | {_interval(row['between'])} "
            f"| {_interval(row['difference'])} | {row['verdict']} |"
        )


def _proposed(study: Study) -> Iterator[str]:
    yield "| question | protocols |"
    yield "|---|---|"
    for question, labels in study["proposed"]["mapping"].items():
        yield f"| {question} | {', '.join(f'`{label}`' for label in labels)} |"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _interval(row: Mapping[str, float | None]) -> str:
    if row["value"] is None:
        return ""
    return f"{_number(row['value'])} [{_number(row['low'])}, {_number(row['high'])}]"


def picture(study: Study) -> str:
    """A heat map of the corrected correlations, protocols of a question side by side."""
    labels, means = study["protocols"], study["corrected"]["mean"]
    side = CELL * len(labels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + side + RIGHT} '
        f'{TOP + side + 20}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row, label in enumerate(labels):
        y = TOP + CELL * row + CELL / 2 + 4
        x = LEFT + CELL * row + CELL / 2
        name = html.escape(label)
        parts.append(f'<text x="{LEFT - 8}" y="{y}" text-anchor="end" fill="{INK}">{name}</text>')
        parts.append(
            f'<text transform="translate({x + 4},{TOP - 8}) rotate(-60)" fill="{INK}">{name}</text>'
        )
        parts += [
            part
            for column, value in enumerate(means[row])
            for part in _cell(LEFT + CELL * column, TOP + CELL * row, value)
        ]
    return "\n".join([*parts, *_borders(study), "</svg>", ""])


def _cell(x: int, y: int, value: float | None) -> Iterator[str]:
    if value is None:
        yield f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="#eee"/>'
        return
    strength = min(abs(value), 1.0)
    colour = POSITIVE if value > 0 else NEGATIVE
    red, green, blue = (round(255 - strength * (255 - part)) for part in colour)
    ink = "white" if strength > 0.7 else INK
    shown = f"{value:.2f}".replace("0.", ".")
    yield (
        f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="rgb({red},{green},{blue})"/>'
    )
    yield (
        f'<text x="{x + CELL / 2}" y="{y + CELL / 2 + 4}" text-anchor="middle" fill="{ink}" '
        f'font-size="11">{shown}</text>'
    )


def _borders(study: Study) -> Iterator[str]:
    """Lines around the protocols of each declared question."""
    start = 0
    for declared in study["declared"]["mapping"].values():
        count = sum(label in study["protocols"] for label in declared)
        yield (
            f'<rect x="{LEFT + CELL * start}" y="{TOP + CELL * start}" width="{CELL * count}" '
            f'height="{CELL * count}" fill="none" stroke="{LINE}" stroke-width="2"/>'
        )
        start += count


def main() -> None:
    """Rewrite the tables and the picture."""
    study = published()
    PICTURE.write_text(picture(study), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), study), encoding="utf-8")


if __name__ == "__main__":
    main()
