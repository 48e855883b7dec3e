"""The page: complete, harmless, and equal to the tables it shows."""

import html
import math
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest
from synthetic_run import NASTY, Plan, Setting, small_plan, write

import assay
from assay.ranking.table_arrays import TableArrays
from assay.report.charts import shown
from assay.report.page import render
from assay.results import Results
from small_worlds import make_images, make_net

LOADING = {"src", "href", "srcset", "data", "action", "poster", "background", "xlink:href"}


class Reader(HTMLParser):
    """Collects the elements of a page and checks that they are closed."""

    VOID = frozenset({"meta", "link", "br", "img", "wbr", "input", "hr"})

    def __init__(self, page: str) -> None:
        """Read the page."""
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        """Note the text."""
        self.text.append(data)


def table_cells(page: str, method: str) -> list[list[str]]:
    """The fields of a method's line in each matrix, as text."""
    found = []
    for row in re.findall(r'<th scope="row"><span class="place">(.*?)</tr>', page, re.S):
        name = re.sub(r"<span class=\"tag\">.*?</span>|<wbr>", "", row.split("</th>")[0])
        if html.unescape(name.split("</span>", 1)[1]).strip() == method:
            fields = re.findall(r'<td class="field [^>]*>(.*?)</td>', row, re.S)
            found.append([html.unescape(re.sub("<[^>]+>", " ", f)).split() for f in fields])
    return found


def test_the_page_is_well_formed(page: str):
    reader = Reader(page)
    assert not reader.open
    assert page.lstrip().startswith("<!DOCTYPE html>")


def test_nothing_is_loaded(page: str):
    for tag, attributes in Reader(page).found:
        for name in LOADING & attributes.keys():
            value = attributes[name] or ""
            assert value.startswith(("data:", "#")), f"<{tag} {name}={value[:60]!r}>"
        assert "url(" not in (attributes.get("style") or "")
    for css in re.findall(r"<style>(.*?)</style>", page, re.S):
        assert "@import" not in css
        assert "url(" not in css
    for script in re.findall(r"<script>(.*?)</script>", page, re.S):
        assert not re.search(r"fetch\(|XMLHttpRequest|import\(|WebSocket|https?:", script)
    assert "default-src 'none'" in page


def test_what_users_wrote_is_escaped(page: str):
    assert NASTY not in page
    assert '<b>&amp;"x' not in page
    assert "<i>small" not in page
    assert "&lt;b&gt;&amp;&#34;x" in page
    reader = Reader(page)
    text = "".join(reader.text)
    assert f"Run of {NASTY}" in text
    assert "demo settings: <i>small</i>" in text
    assert f"{NASTY} went wrong" in text
    assert "# <script>" in text  # of the suite
    assert sum(tag == "script" for tag, _ in reader.found) == 1


def test_numbers_and_ranks_equal_the_leaderboard(small: Results, page: str):
    board = small.leaderboard()
    sections = list(dict.fromkeys((s["dataset"], s["model"]) for s in small.manifest["shards"]))
    checked = 0
    for method in small.manifest["methods"]:
        lines = table_cells(page, method)
        assert len(lines) == len(sections)
        for (dataset, model), line in zip(sections, lines, strict=True):
            for protocol, field in zip(small.manifest["protocols"], line, strict=True):
                rows = [r for r in board.rows if r["method"] == method
                        and r["protocol"] == protocol and r["dataset"] == dataset
                        and r["model"] == model]  # fmt: skip
                if not rows:
                    assert field == ["·"]
                    continue
                (row,) = rows
                if row["mean"] is None:
                    assert field == [{"n/a": "n/a", "failed": "✕"}[row["status"]]]
                    continue
                assert field[0] == f"{row['mean']:.3f}"
                same = [r for r in board.rows if r["rank"] == row["rank"] and all(
                    r[k] == row[k] for k in ("dataset", "model", "protocol"))]  # fmt: skip
                if row["rank"] is None:
                    assert not re.match(r"\d", field[1])
                else:
                    assert field[1] == f"{row['rank']}{'=' if len(same) > 1 else ''}"
                marks = set(field[1:])
                assert ("▼" in marks) == bool(row["clearly_below"])
                assert ("▽" in marks) == bool(row["below_control"] and not row["clearly_below"])
                assert ("↻" in marks) == (row["status"] == "circular")
                assert ("∅" in marks) == bool(row["degenerate"])
                assert ("✕" in marks) == bool(row["failed"])
                checked += 1
    assert checked > 40


def test_forest_charts_equal_the_leaderboard(small: Results, page: str):
    board = small.leaderboard()
    rows = [r for r in board.rows if r["dataset"] == "photos" and r["protocol"] == "deletion"]
    drawn = next(
        ET.fromstring(svg)
        for svg in re.findall(r'<svg class="forest".*?</svg>', page, re.S)
        if 'aria-label="deletion: ' in svg
    )
    ticks = [(float(t.text or ""), float(t.get("x", ""))) for t in drawn.iter("text")
             if t.get("class") == "tick"]  # fmt: skip
    (v0, x0), (v1, x1) = ticks[0], ticks[-1]

    def value(x: str | None) -> float:
        return v0 + (float(x or "") - x0) / (x1 - x0) * (v1 - v0)

    seen = []
    for group in drawn.iter("g"):
        row = next(r for r in rows if r["method"] == group.get("data-method"))
        bar = next(e for e in group if e.get("class") == "interval")
        dot = next(e for e in group if e.get("class") == "dot")
        assert value(bar.get("x1")) == pytest.approx(row["low"], abs=1e-3)
        assert value(bar.get("x2")) == pytest.approx(row["high"], abs=1e-3)
        assert value(dot.get("cx") or dot.get("data-x")) == pytest.approx(row["mean"], abs=1e-3)
        seen.append(row["mean"])
    assert len(seen) == 5
    assert seen == sorted(seen)  # lower is better: best first
    mark = next(e for e in drawn.iter("line") if e.get("class") == "mark control")
    best = next(r for r in rows if r["method"] == rows[0]["best_control"])
    assert value(mark.get("x1")) == pytest.approx(best["mean"], abs=1e-3)


def test_the_top_says_what_is_wrong_with_the_run(page: str):
    header = page.split("</header>")[0]
    assert "142 of 144 cells" in header
    assert "6 of 144 cells failed" in header
    assert "6 independent samples: too few to separate methods" in header


def test_a_whole_run_gives_no_alarm(tmp_path: Path):
    plan = small_plan()
    plan.skip, plan.statuses, plan.notes = 0, {}, ""
    plan.settings = plan.settings[:1]
    found = render(write(tmp_path, plan))
    assert 'class="notice' not in found
    assert 'id="failures"' not in found
    assert 'class="tab"' not in found
    assert "<b>gradcam</b> is the best of" in found
    nasty = html.escape(NASTY).replace("&quot;", "&#34;")
    assert f"Worse than a control that ignores the network: {nasty}" in found


def test_equals_are_not_called_first(tmp_path: Path):
    methods = {"one": (0.5, ""), "two": (0.5, ""), "lowest": (0.1, ""), "random": (0.3, "random")}
    plan = Plan([Setting("photos", "net")], methods, {"morf": True, "deletion": False})
    found = render(write(tmp_path, plan))  # equal lengths of name: equal noise, equal scores
    assert "<b>one</b> is the best of 2 methods" in found
    assert "The same scores: <b>two</b> = <b>one</b>." in found


def test_a_control_that_wins_is_named(tmp_path: Path):
    methods = {"one": (0.3, ""), "three": (0.2, ""), "edge": (0.8, "model_free")}
    methods["random"] = (0.1, "random")
    plan = Plan([Setting("photos", "net")], methods, {"morf": True})
    found = render(write(tmp_path, plan))
    assert "But it is worse than the control <b>edge</b> under necessity." in found


def test_no_control_no_floor(tmp_path: Path):
    plan = Plan([Setting("photos", "net")], {"one": (0.3, ""), "three": (0.2, "")}, {"morf": True})
    found = render(write(tmp_path, plan))
    assert "the run has no control `random` to compare with" in found
    assert "mark control" not in found


def test_methods_without_a_place_are_named(page: str):
    header = html.unescape(page.split("</header>")[0])
    assert "ig[steps=5] (failed under infidelity)" in header
    assert "absent (n/a under 4 protocols)" in header


def test_equal_curves_are_drawn_once(page: str):
    first = page.split('id="s1"')[0]
    captions = re.findall(r"<figcaption><b>(.*?)</b> <span class=\"quiet\">probability", first)
    assert captions == ["morf, deletion", "&lt;b&gt;&amp;&#34;x"]


def test_curves_are_the_mean_over_samples(small: Results, page: str):
    wanted = small.query(
        "select avg(c.value) as v, c.step from curves c join (select distinct cell, method, "
        "protocol, dataset from scores) s using (cell) where s.method = 'gradcam' and "
        "s.protocol = 'morf' and s.dataset = 'photos' group by c.step order by c.step"
    )["v"].to_pylist()
    svg = next(s for s in re.findall(r'<svg class="curves".*?</svg>', page, re.S)
               if 'aria-label="probability under morf' in s)  # fmt: skip
    drawn = ET.fromstring(svg)
    ticks = {float(t.text or ""): float(t.get("y", "")) - 4 for t in drawn.iter("text")
             if t.get("text-anchor") == "end"}  # fmt: skip
    group = next(g for g in drawn.iter("g") if g.get("data-method") == "gradcam")
    points = next(e for e in group if e.get("class") == "line").get("points", "").split()
    heights = [(float(p.split(",")[1]) - ticks[0.0]) / (ticks[1.0] - ticks[0.0]) for p in points]
    assert heights == pytest.approx(wanted, abs=2e-3)


def test_tooltips_hold_the_scores_of_the_sample(small: Results, page: str):
    table = small.query(
        "select protocol, avg(value) as v from scores where headline and method = 'edge' and "
        "sample = 'photos-003' group by protocol"
    ).to_pylist()
    titles = [html.unescape(a["title"] or "") for tag, a in Reader(page).found
              if tag == "img" and a.get("alt") == "edge of photos-003"]  # fmt: skip
    assert len(titles) == 1
    for row in table:
        if math.isfinite(row["v"]):
            assert f"{row['protocol']}: {row['v']:.3g}" in titles[0].splitlines()


def test_vectors_have_no_gallery_but_all_else(page: str):
    vectors = page.split('id="s2"')[1].split('id="measured"')[0]
    assert 'class="matrix"' in vectors
    assert 'class="forest"' in vectors
    assert 'class="gallery' not in vectors
    assert 'class="gallery' in page.split('id="s1"')[0]


def test_provenance_is_there(small: Results, page: str):
    text = "".join(Reader(page).text)
    for wanted in ("4,652,008", "87.5 % of 12", "someone2024", "other2023", "two noisy cores",
                   "assay run DIR/spec.yaml --out DIR2", '"sigma": 10', "abab", "10.0 min",
                   f"{100 * len(small.cells):,}", "bootstrap-t"):  # fmt: skip
        assert wanted in text


def test_an_open_range_is_readable(page: str):
    assert "-∞ to 1" in page
    assert "nan" not in "".join(Reader(page).text).lower().split()


def test_a_sparse_manifest_is_enough(tmp_path: Path):
    plan = Plan([Setting("photos", "net")], {"one": (0.3, ""), "three": (0.2, "")}, {"morf": True})
    results = write(tmp_path, plan)
    for name in ("notes", "title", "clean", "hardware", "versions", "seconds", "models", "created"):
        del results.manifest[name]
    results.store.path("spec.yaml").unlink()
    assert "Leaderboard" in render(results)


def test_two_checkpoints_have_two_sections(tmp_path: Path):
    plan = Plan([Setting("photos", "net")], {"one": (0.3, ""), "three": (0.2, "")}, {"morf": True})
    results = write(tmp_path, plan)
    page = render(results)
    assert "photos · net (final)" not in page
    second = {**results.manifest["shards"][0], "checkpoint": "early", "id": "early"}
    results.manifest["shards"].append(second)
    del results.entries  # read anew from the changed manifest
    table = results.scores
    column = pa.array(["early"] * table.num_rows)
    twin = table.set_column(table.schema.get_field_index("checkpoint"), "checkpoint", column)
    results.__dict__["arrays"] = TableArrays(pa.concat_tables([table, twin]), results.curves)
    results._leaderboards.clear()
    page = render(results)
    assert "photos · net (final)" in page
    assert "photos · net (early)" in page


def test_what_a_protocol_gives_beside_its_score_is_among_its_numbers(tmp_path: Path):
    protocols = [{"infidelity": {"stride": 0.25}}, "single_deletion"]
    methods = ["saliency", "random"]
    results = assay.benchmark(make_net(), make_images(4), methods, protocols, progress=False)
    text = results.report(tmp_path / "page.html").read_text()
    assert text.count("other metrics (mean)") == 1  # only one of the protocols gives more
    means = results.query(
        "select method, avg(value) as mean from scores where metric = 'relative' group by method"
    ).to_pylist()
    assert {row["method"] for row in means} == set(methods)
    for row in means:
        assert f"<td>relative {shown(row['mean'])}</td>" in text


def test_the_page_stays_small(tmp_path: Path):
    methods = {f"method_{i:02d}": (0.3 + 0.02 * i, "") for i in range(14)}
    plan = Plan([Setting("photos", "net", n=46, groups=46, side=224)], methods, {"morf": True})
    page = render(write(tmp_path, plan))
    assert 'alt="method_13 of photos-045"' in page
    assert len(page.encode()) < 4_000_000


def test_report_writes_the_file(small: Results, tmp_path: Path):
    path = small.report(tmp_path / "page.html")
    assert path.read_text(encoding="utf-8").lstrip().startswith("<!DOCTYPE html>")


def test_rendering_needs_no_torch(small: Results):
    code = (
        "import sys\n"
        "from assay.report.page import render\n"
        "from assay.results import load\n"
        "assert 'Leaderboard' in render(load(sys.argv[1]))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(small.folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
