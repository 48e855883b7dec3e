"""Draw the map of the source tree, `docs/images/rooms.svg`: which folder imports which.

`make rooms` runs it; a test says when the picture is out of date. Everything is read from the code:
the folders, what their first line says of them, and their imports.
"""

import ast
from collections.abc import Iterator
from html import escape
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "assay"
PICTURE = Path(__file__).parent / "images" / "rooms.svg"
# From data to page: each may import only those above it.
ORDER = [
    "errors",
    "progress",
    "paths",
    "processes",
    "plugins",
    "suite",
    "store",
    "ranking",
    "report",
    "results",
    "aggregation",
    "types",
    "data",
    "models",
    "units",
    "removal",
    "engine",
    "methods",
    "training",
    "environments",
    "protocols",
    "plan",
    "run",
    "api",
    "answers",
    "conformance",
    "studies",
    "commands",
    "cli",
]
WITHOUT_TORCH = ORDER.index("types")  # the rows above need no torch

ROW, LEFT, TOP, NAME = 24, 650, 150, 118
INK, SOFT, LINE, DOT = "#1f2933", "#52606d", "#d9e2ec", "#0f766e"


def room(module: str) -> str:
    """The folder, or file of the root, that a module is in."""
    return (*module.split("."), "")[1]


def imports() -> dict[str, set[str]]:
    """What each room imports from other rooms, also inside functions and for types only."""
    found: dict[str, set[str]] = {name: set() for name in ORDER}
    for path in SOURCE.rglob("*.py"):
        mine = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if mine in found:
            found[mine] |= {name for name in _imported(path) if name in found and name != mine}
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "assay":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("assay."):
            yield room(str(node.module))
        elif isinstance(node, ast.Import):
            yield from (room(alias.name) for alias in node.names if alias.name[:6] == "assay.")


def about(name: str) -> str:
    """The first line of a room's docstring."""
    file = SOURCE / f"{name}.py"
    source = file if file.is_file() else SOURCE / name / "__init__.py"
    text = ast.get_docstring(ast.parse(source.read_text())) or ""
    return text.split("\n")[0]


def draw() -> str:
    """The picture: one row a room, a dot where it imports the room of that column."""
    graph, width = imports(), LEFT + ROW * len(ORDER) + 24
    height = TOP + ROW * len(ORDER) + 40
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(12, 28, "The rooms of src/assay", size=18, weight=600),
        _text(12, 52, "A dot: the row's folder imports the column's. All dots lie left of the"),
        _text(12, 68, "diagonal: a folder imports only what stands above it."),
    ]
    for place, name in enumerate(ORDER):
        y, x = TOP + ROW * place, LEFT + ROW * place
        parts += [
            f'<line x1="8" y1="{y + ROW}" x2="{width - 12}" y2="{y + ROW}" stroke="{LINE}"/>',
            _text(12, y + 16, name, weight=600),
            _text(NAME, y + 16, about(name), colour=SOFT, size=11),
            f'<text transform="translate({x + 16} {TOP - 8}) rotate(-60)">{name}</text>',
            f'<rect x="{x + 4}" y="{y + 4}" width="16" height="16" rx="3" fill="{LINE}"/>',
        ]
        parts += [
            f'<circle cx="{LEFT + ROW * ORDER.index(other) + 12}" cy="{y + 12}" r="4.5" '
            f'fill="{DOT}"/>'
            for other in sorted(graph[name])
        ]
    border = TOP + ROW * WITHOUT_TORCH
    parts += [
        f'<line x1="8" y1="{border}" x2="{width - 12}" y2="{border}" stroke="{INK}" '
        f'stroke-dasharray="4 3"/>',
        _text(12, height - 14, "The rows above the dashed line work without torch.", colour=SOFT),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(
    x: int, y: int, text: str, *, size: int = 12, weight: int = 400, colour: str = INK
) -> str:
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(draw())
    print(PICTURE)
