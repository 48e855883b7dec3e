"""The code in the README and the docs runs as it stands."""

import re
from pathlib import Path

import pytest

from assay import registry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.S)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_code_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for kind in registry.TYPES:
        registry.names(kind)  # what is built in is there before we look
    before = {kind: dict(plugins) for kind, plugins in registry._REGISTERED.items()}
    space = {"__name__": f"docs_{page.stem}"}
    try:
        for block in blocks(page):
            exec(compile(block, str(page), "exec"), space)
    finally:
        for kind, plugins in before.items():
            registry._REGISTERED[kind].clear()
            registry._REGISTERED[kind].update(plugins)
    assert "random" in capsys.readouterr().out
    if page.name == "README.md":
        assert (tmp_path / "report.html").stat().st_size > 10_000


def code_lines(block: str) -> int:
    """Lines of a block that are code: imports, blanks and the docstring left out."""
    lines = [line for line in block.splitlines() if line.strip()]
    return len([x for x in lines if not x.startswith(("import", "from")) and '"""' not in x])


@pytest.mark.parametrize(("page", "most"), [("new_method.md", 12), ("new_protocol.md", 15)])
def test_a_plugin_is_as_short_as_promised(page, most):
    assert code_lines(blocks(ROOT / "docs" / page)[0]) <= most


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
