"""The README and the docs: their code runs as it stands, their links lead somewhere."""

import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from assay.plugins import registry
from reader import Block, blocks, follow, furnish

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]

PLUGINS = [p for kind in registry.TYPES for p in registry.everything(kind) if not p.own]


def load_script(name: str) -> ModuleType:
    """A script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    """The script that makes the reference."""
    pytest.importorskip("mkdocs")
    return load_script("reference")


@pytest.fixture(scope="module")
def made(reference) -> dict[str, str]:
    """The pages of the reference by their addresses."""
    return reference.pages()


@pytest.fixture(scope="module")
def furnished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reader")
    furnish(folder)
    return folder


@pytest.fixture
def home(furnished, tmp_path, monkeypatch) -> Iterator[Path]:
    """A reader's folder, and a registry that forgets what the page adds to it."""
    shutil.copytree(furnished, tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.syspath_prepend(tmp_path / "home")
    monkeypatch.delitem(sys.modules, "my_net", raising=False)
    for kind in registry.TYPES:
        registry.names(kind)  # what is built in is there before we look
    before = {kind: dict(plugins) for kind, plugins in registry._REGISTERED.items()}
    yield tmp_path / "home"
    for kind, plugins in before.items():
        registry._REGISTERED[kind].clear()
        registry._REGISTERED[kind].update(plugins)


def runs(block: Block) -> bool:
    return block.language in ("python", "bash") and not block.skipped


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(runs, blocks(p)))], ids=lambda p: p.stem
)
def test_the_page_does_what_it_says(page, home, capsys):
    space: dict[str, object] = {"__name__": f"docs_{page.stem}"}
    for block in blocks(page):
        follow(block, space, page)
    if page.name == "README.md":
        assert "random" in capsys.readouterr().out
        assert (home / "report.html").stat().st_size > 10_000


def test_little_is_left_out_and_it_is_said_why():
    found = [block for page in PAGES for block in blocks(page) if block.language != "text"]
    assert len([b for b in found if b.skipped]) <= 8
    assert len([b for b in found if runs(b)]) >= 40
    for page in PAGES:
        assert page.read_text().count("<!-- not run: ") == sum(
            bool(b.skipped) for b in blocks(page)
        )


def code_lines(text: str) -> int:
    """Lines of a block that are code: imports, blanks and the docstring left out."""
    lines = [line for line in text.splitlines() if line.strip()]
    return len([x for x in lines if not x.startswith(("import", "from")) and '"""' not in x])


@pytest.mark.parametrize(
    ("page", "most"), [("own_method.md", 12), ("own_protocol.md", 15), ("set_protocol.md", 15)]
)
def test_a_plugin_is_as_short_as_promised(page, most):
    first = next(b for b in blocks(DOCS / "how_to" / page) if "@assay." in b.text)
    assert code_lines(first.text) <= most


def test_links_lead_somewhere(made):
    addresses = {(DOCS / address).resolve() for address in made}
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            there = (page.parent / target).resolve()
            assert there.exists() or there in addresses, f"{page.name}: {target}"


def test_the_numbers_of_plugins_are_right():
    counts = load_script("counts")
    for page in counts.PAGES:
        text = page.read_text()
        assert counts.MARKED.search(text), f"{page.name} has no place for the counts."
        assert text == counts.with_counts(text), "Run `make counts`."


def test_the_matrix_of_questions_is_the_published_one():
    script = load_script("questions")
    study, text = script.published(), script.PAGE.read_text()
    assert text == script.with_tables(text, study), "Run `python docs/questions.py`."
    assert script.PICTURE.read_text() == script.picture(study), "Run `python docs/questions.py`."
    for row in study["declared"]["members"]:
        assert f"| `{row['protocol']}` | {row['question']} |" in text


def test_the_verdicts_of_claims_are_those_published():
    table = load_script("claims_table")
    text = table.PAGE.read_text()
    assert table.MARKED.search(text), "The page has no place for the verdicts."
    assert text == table.with_verdicts(text), "Run `make claims`."


# --- the reference --------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: f"{p.kind} {p.name}")
def test_every_plugin_is_in_the_reference(plugin, reference, made):
    group = plugin.kind.removesuffix("s") + "s"
    family = f"{group}/{plugin.family}" if plugin.family else group
    page = made[f"reference/{family}.md"]
    entry = page.partition(f"\n## {plugin.name}\n")[2].partition("\n## ")[0]
    assert " ".join(plugin.summary.split()) in entry
    assert all(f"| `{option}` |" in entry for option in plugin.options)
    for key in reference.keys_of(plugin):
        assert key in reference.REFERENCES, f"Add `{key}` to docs/references.yml."
        assert reference.REFERENCES[key]["title"] in entry or key not in plugin.cite
    if plugin.kind == "protocol":
        assert f"{'higher' if plugin.higher_is_better else 'lower'} is better" in entry


@pytest.mark.parametrize(
    "plugin",
    [
        p
        for p in PLUGINS
        if p.kind == "protocol"
        or (p.kind == "method" and not p.control and p.family != "elsewhere")  # maps of a file
    ],
    ids=lambda p: f"{p.kind} {p.name}",
)
def test_formula_source_and_deviations_are_said(plugin):
    paragraphs = [part.partition(": ")[0] for part in plugin.description.split("\n\n")]
    assert plugin.cite, "Name the paper with `cite=`."
    assert "Formula" in paragraphs, "Say `Formula: ...` in a paragraph of the docstring."
    assert "Differs from the paper" in paragraphs, "Say how it `Differs from the paper: ...`."


@pytest.mark.parametrize(
    "plugin", [p for p in PLUGINS if p.kind == "environment"], ids=lambda p: p.name
)
def test_what_differs_from_the_paper_is_a_heading(plugin, made):
    page = made[f"reference/environments/{plugin.family}.md"]
    entry = page.partition(f"\n## {plugin.name}\n")[2].partition("\n## ")[0]
    assert "\n\n**Differs from the paper:** " in entry


def test_literature_is_whole(reference):
    for key, about in reference.REFERENCES.items():
        assert set(about) == {"authors", "title", "venue", "link"}, key
        assert re.findall(r"\d{4}", key)[0] in about["venue"], key
        first = about["authors"].split(",")[0].split()[-1].lower()
        assert key.startswith(first.replace("ö", "o").replace("ü", "u")), key


def test_every_command_and_option_is_in_the_reference(made):
    from typer.main import get_command

    from assay.cli import app

    page = made["reference/command_line.md"]
    for name, command in get_command(app).commands.items():
        part = page.partition(f"\n## assay {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert (parameter.help or "").replace("|", "/") in part, (name, parameter.name)


def test_the_site_builds_strictly_and_fetches_nothing(reference, tmp_path):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path), strict=True))
    page = (tmp_path / "reference" / "protocols" / "curves.html").read_text()
    assert "incremental_deletion" in page
    loaded = re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page)
    assert not loaded


def test_the_gallery_shows_every_method():
    gallery = load_script("gallery")
    names = [plugin.name for plugin in gallery.drawable()]
    assert len(names) > 40
    missing = [name for name in names if not (gallery.STRIPS / f"{name}.jpg").is_file()]
    assert not missing, f"`make gallery` draws {', '.join(missing)}"


def test_no_line_was_forgotten_when_a_page_was_set_anew():
    """Tables and links apart, prose is broken at about 100 characters."""
    prose = [
        f"{page.relative_to(ROOT)}: {line[:60]}"
        for page in PAGES
        for line in page.read_text().splitlines()
        if len(line) > 120 and not line.lstrip().startswith(("|", "<", "!", "["))
    ]
    assert not prose
