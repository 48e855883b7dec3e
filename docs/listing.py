"""The packaged table that `assay list` prints: `make listing` writes it from the code."""

import json
from pathlib import Path

from assay.commands.listing import KINDS, SUITES, TABLE, Listed, rows_from_code
from assay.plugins import registry

PATH = Path(__file__).parents[1] / "src" / "assay" / "commands" / TABLE


def main() -> None:
    """Rewrite the table if it is out of date."""
    if not PATH.exists() or PATH.read_text(encoding="utf-8") != table():
        PATH.write_text(table(), encoding="utf-8")
        print(f"Updated {PATH.name}")


def table() -> str:
    """The table as JSON, with one plug-in per line."""
    kinds = [
        f"{json.dumps(what)}: [\n" + ",\n".join(map(json.dumps, rows)) + "\n]"
        for what, rows in built_in().items()
    ]
    return "{\n" + ",\n".join(kinds) + "\n}\n"


def built_in() -> dict[str, list[Listed]]:
    """The rows of everything built in, by kind, without those of other packages."""
    by_kind = {what: rows_from_code(what) for what in (*KINDS, SUITES)}
    for what, kind in KINDS.items():
        own = {plugin.name for plugin in registry.everything(kind) if plugin.own}
        by_kind[what] = [row for row in by_kind[what] if row["name"] not in own]
    return by_kind


if __name__ == "__main__":
    main()
