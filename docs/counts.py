"""The numbers of built-in plug-ins on the first pages: `make counts` writes them."""

import re
from pathlib import Path

from assay.plugins import registry

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
MARKED = re.compile(r"(<!-- counts -->).*?(<!-- /counts -->)", flags=re.S)


def main() -> None:
    """Rewrite the pages whose numbers are out of date."""
    for page in PAGES:
        text = page.read_text()
        if text != with_counts(text):
            page.write_text(with_counts(text))
            print(f"Updated {page.relative_to(ROOT)}")


def with_counts(text: str) -> str:
    """The text with the right numbers between its markers."""
    return MARKED.sub(rf"\g<1>{counts()}\g<2>", text)


def counts() -> str:
    """How many plug-ins of each kind the package has."""
    methods = [plugin for plugin in registry.everything("method") if not plugin.own]
    controls = [plugin for plugin in methods if plugin.control]
    protocols, environments = (
        [plugin for plugin in registry.everything(kind) if not plugin.own]
        for kind in ("protocol", "environment")
    )
    return (
        f"{len(methods) - len(controls)} methods, {len(controls)} controls, "
        f"{len(protocols)} protocols, {len(environments)} environments"
    )


if __name__ == "__main__":
    main()
