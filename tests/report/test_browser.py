"""The page in a real browser: no request, no error, tabs and legend work."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.results import Results

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path("/usr/bin/chromium")
if not os.access(CHROMIUM, os.X_OK):
    pytest.skip(f"no browser at {CHROMIUM}: apt-get install chromium", allow_module_level=True)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium under Playwright."""
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def file(small: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The awkward run's page on disk."""
    return small.report(tmp_path_factory.mktemp("page") / "report.html")


def open_page(browser: Any, file: Path, **options: Any) -> tuple[Any, list[str], list[str]]:
    """The page, the addresses it asked for and the complaints it caused."""
    page = browser.new_context(**options).new_page()
    asked: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda r: asked.append(r.url))
    page.on("console", lambda m: complaints.append(m.text))
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.goto(file.as_uri())
    page.wait_for_load_state("networkidle")
    return page, asked, complaints


def test_no_request_and_no_error(browser: Any, file: Path):
    page, asked, complaints = open_page(browser, file)
    assert file.as_uri() in asked
    assert [a[:80] for a in asked if not a.startswith(("file://", "data:"))] == []
    assert complaints == []
    broken = "[...document.images].filter(i => !i.complete || !i.naturalWidth).length"
    assert page.locator("img").count() > 20
    page.evaluate("document.querySelectorAll('.panel').forEach(p => p.classList.remove('off'))")
    assert page.evaluate(broken) == 0


def test_tabs(browser: Any, file: Path):
    page, _, complaints = open_page(browser, file)
    visible = "[...document.querySelectorAll('.panel')].filter(p => p.offsetParent).map(p => p.id)"
    assert page.evaluate(visible) == ["s0"]
    page.locator(".tab").nth(2).click()
    assert page.evaluate(visible) == ["s2"]
    assert page.locator(".tab.on").inner_text() == "vectors · mlp"
    page.locator(".verdicts a").nth(1).click()
    page.wait_for_function("document.querySelector('#s1').offsetParent !== null")
    assert page.evaluate(visible) == ["s1"]
    assert complaints == []


def test_an_address_opens_its_tab(browser: Any, file: Path):
    page, _, _ = open_page(browser, file)
    page.goto(f"{file.as_uri()}#s2")
    page.reload()
    assert page.locator("#s2").is_visible()
    assert not page.locator("#s0").is_visible()


def test_the_legend_hides_curves(browser: Any, file: Path):
    page, _, complaints = open_page(browser, file)
    panel = page.locator("#s0")
    for label in ("gradcam", '<b>&"x'):
        button = panel.locator(".key-button", has_text=label)
        shown = (
            "label => [...document.querySelectorAll('#s0 .series')].filter(g => "
            "g.dataset.method === label && getComputedStyle(g).display !== 'none').length"
        )
        assert page.evaluate(shown, label) == 2
        button.click()
        assert page.evaluate(shown, label) == 0
        assert page.evaluate(shown, "ig[steps=5]") == 2
        button.click()
        assert page.evaluate(shown, label) == 2
    assert complaints == []


def test_without_javascript_everything_is_there(browser: Any, file: Path):
    page, asked, _ = open_page(browser, file, java_script_enabled=False)
    for anchor in ("s0", "s1", "s2", "measured", "failures"):
        assert page.locator(f"#{anchor}").is_visible()
    assert all(a.startswith(("file://", "data:")) for a in asked)


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_sticks_out(browser: Any, file: Path, width: int):
    page, _, _ = open_page(browser, file, viewport={"width": width, "height": 800})
    for tab in range(3):
        page.locator(".tab").nth(tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
