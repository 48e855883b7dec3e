"""The page of a run: gathers what the parts made and fills the template."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup, escape

from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.sets import Variation, variations
from assay.report import board, facts, gallery, traces, verdict
from assay.report import known_truth as truth
from assay.report import promise_table as checks
from assay.report.board import Board, Key, Panel
from assay.report.charts import shown

if TYPE_CHECKING:
    from assay.results import Results


@dataclass(frozen=True)
class Section:
    """Everything the page says about one dataset, model and checkpoint."""

    anchor: str
    name: str
    board: board.Board
    verdict: verdict.Verdict
    curves: tuple[traces.Panel, ...]
    variations: tuple[Variation, ...]
    gallery: gallery.Gallery | None
    checks: tuple[checks.CheckLine, ...]
    truth: truth.Truth | None

    @property
    def panels(self) -> tuple[Panel, ...]:
        """One per protocol, but for those that the part on the truth shows."""
        apart = self.truth.panels if self.truth else ()
        return tuple(panel for panel in self.board.panels if panel not in apart)

    @property
    def traced(self) -> list[str]:
        """The methods that have a curve somewhere in this section."""
        present = {m for panel in self.curves for m in panel.methods}
        return [line.method for line in self.board.lines if line.method in present]


def render(results: "Results") -> str:
    """The run as one HTML file that needs nothing else.

    Args:
        results: A finished or half-finished run with at least one score.

    Returns:
        The page; it loads nothing from anywhere and can be read without JavaScript.
    """
    manifest, cells = results.manifest, results.cells
    sections = list(_sections(results))
    planned, done = _progress(results)
    spec = results.store.path("spec.yaml")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["soft"] = _soft
    return environment.get_template("page.html.j2").render(
        manifest=manifest,
        title=manifest.get("title") or "Which attribution method can you trust here?",
        sections=sections,
        overview=_overview(sections),
        planned=planned,
        done=done,
        failures=facts.troubles(cells, "failed"),
        failed=sum(c["status"] == "failed" for c in cells),
        unsuited=facts.troubles(cells, "n/a"),
        styles=traces.styles(manifest["methods"]),
        controls={m for m, about in manifest["methods"].items() if about.get("control")},
        protocols=facts.protocols(manifest),
        methods=facts.methods(manifest, cells),
        models=facts.models(manifest),
        datasets=facts.datasets(manifest),
        setup=facts.setup(manifest, cells),
        few=FEWEST_GROUPS,
        side=gallery.SIDE,
        words=gallery.WORDS,
        scale=Markup(_scale()),
        suite=spec.read_text(encoding="utf-8") if spec.is_file() else "",
    )


def _overview(sections: Sequence[Section]) -> Markup:
    """The answer for the networks that were asked about; environments where there are no others.

    An environment is there to tell what protocols are worth; nobody wants its network explained.
    """
    asked = [s for s in sections if not s.board.environment]
    if asked:
        firsts = [(s.name, s.verdict.first) for s in asked]
        return verdict.overview(firsts, len(sections) - len(asked))
    true = [(s.name, s.truth.first) for s in sections if s.truth and s.truth.first]
    if len(true) == len(sections):
        return verdict.overview(true, by="By the truth, ")
    return verdict.overview([(s.name, s.verdict.first) for s in sections])


def _sections(results: "Results") -> Iterator[Section]:
    manifest = results.manifest
    ranked = results.leaderboard()
    present = {board.key_of(r) for r in ranked.rows}
    shards = {s["id"]: board.key_of(s) for s in manifest["shards"]}
    keys = [k for k in dict.fromkeys(shards.values()) if k in present]
    reasons = {
        (shards[c["shard"]], c["method"], c["protocol"]): str(c["message"])
        for c in results.cells
        if c.get("message") and c["shard"] in shards
    }
    beside = _beside(results.scores)
    curves = traces.average(results.curves, results.scores)
    style = traces.styles(manifest["methods"])
    count = gallery.per_section(len(keys), len(manifest["methods"]))
    checked = checks.lines(results.checks)
    trust = results.trust(quiet=True) if results.knowing else []
    several = len({k[:2] for k in keys}) < len(keys)
    for i, key in enumerate(keys):
        one = board.build(key, ranked, manifest, reasons, beside)
        lines = [line.method for line in one.lines]
        intervened, true_panels = truth.split(one, results.knowing)
        found = verdict.judge(intervened, manifest["methods"], _accuracy(manifest, one))
        yield Section(
            f"s{i}",
            verdict.setting(one, several),
            one,
            found,
            traces.panels(curves.get(key, {}), lines, manifest["protocols"], style),
            tuple(variations(results.outcomes, key, lines)),
            gallery.build(results.store, manifest, key, _tips(results, key), count, lines),
            checks.of(checked, key),
            truth.of(one, true_panels, trust, manifest["methods"], found.first),
        )


def _beside(scores: pa.Table) -> dict[tuple[Key, str, str], str]:
    """The means of what protocols give beside their score, by (key, method, protocol)."""
    known = scores.filter(pc.and_(pc.invert(scores["headline"]), pc.is_finite(scores["value"])))
    by = ["dataset", "model", "checkpoint", "method", "protocol", "metric"]
    means = (
        known.group_by(by).aggregate([("value", "mean")]).sort_by([(n, "ascending") for n in by])
    )
    found: dict[tuple[Key, str, str], list[str]] = {}
    for row in means.to_pylist():
        place = board.key_of(row), row["method"], row["protocol"]
        found.setdefault(place, []).append(f"{row['metric']} {shown(row['value_mean'])}")
    return {place: ", ".join(numbers) for place, numbers in found.items()}


def _tips(results: "Results", key: Key) -> gallery.Tips:
    """A function from samples to the headline score of each (method, sample) per protocol."""

    def tips(samples: Sequence[str]) -> Mapping[tuple[str, str], Mapping[str, float]]:
        table = results.scores
        keep = pc.and_(
            table["headline"], pc.is_in(table["sample"], value_set=pa.array(samples, pa.string()))
        )
        for name, value in zip(("dataset", "model", "checkpoint"), key, strict=True):
            keep = pc.and_(keep, pc.equal(table[name], value))
        by = ["method", "sample", "protocol"]
        means = table.filter(keep).group_by(by).aggregate([("value", "mean")])
        found: dict[tuple[str, str], dict[str, float]] = {}
        for row in means.to_pylist():
            if row["value_mean"] is not None:
                place = found.setdefault((row["method"], row["sample"]), {})
                place[row["protocol"]] = row["value_mean"]
        order = list(results.manifest["protocols"])
        return {k: {p: v[p] for p in order if p in v} for k, v in found.items()}

    return tips


def _progress(results: "Results") -> tuple[int, int]:
    """How many pieces were planned, and how many have scores."""
    pieces = [f"{c}-{s['id']}" for s in results.manifest["shards"] for c in s["cells"]]
    there = (results.store.path("scores", f"{p}.parquet").exists() for p in pieces)
    return len(pieces), sum(there)


def _soft(text: str) -> Markup:
    """A name that may break after its underscores and brackets."""
    return Markup(re.sub(r"([_\[,])(?=[^<>&;]{3})", r"\1<wbr>", str(escape(text))))


def _scale() -> str:
    """The colours of the gallery as a CSS gradient."""
    colours = gallery.palette()[: gallery.MISSING : 3]
    return ", ".join(f"rgb({r} {g} {b})" for r, g, b in colours.tolist())


def _accuracy(manifest: Mapping[str, Any], section: Board) -> float | None:
    """How often the network is right on the section's untouched samples, where labels say."""
    dataset, model, _ = section.key
    rows = manifest.get("clean") or []
    found = [r["accuracy"] for r in rows if (r["dataset"], r["model"]) == (dataset, model)]
    return found[0] if found else None
