"""The page of a run: collects what the parts made and fills the template."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup, escape

from assay.ranking.orders import FEWEST_GROUPS
from assay.ranking.sets import Variation, variations
from assay.report import board, facts, gallery, known_truth, traces, verdict
from assay.report.cell_totals import CellTotals
from assay.report.model_section import model_section
from assay.report.promise_table import PromiseLine, promise_lines
from assay.report.protocol_panels import ProtocolPanel
from assay.report.sample_numbers import TipScores, sample_numbers
from assay.report.shown_run import ShownRun
from assay.report.signal_section import SignalSection, signal_section
from assay.store import Manifest


@dataclass(frozen=True)
class Section:
    """Everything the page says about one setting."""

    anchor: str
    name: str
    board: board.Board
    verdict: verdict.Verdict
    curves: tuple[traces.CurvePanel, ...]
    variations: tuple[Variation, ...]
    gallery: gallery.Gallery | None
    promises: tuple[PromiseLine, ...]
    signal: SignalSection
    truth: known_truth.Truth | None

    @property
    def panels(self) -> tuple[ProtocolPanel, ...]:
        """One per protocol, except those that the part on the truth shows."""
        apart = self.truth.panels if self.truth else ()
        return tuple(panel for panel in self.board.panels if panel not in apart)

    @property
    def traced(self) -> list[str]:
        """The methods that have a curve somewhere in this section."""
        present = {m for panel in self.curves for m in panel.methods}
        return [line.method for line in self.board.lines if line.method in present]


def render(results: ShownRun) -> str:
    """The run as one HTML file that needs nothing else.

    Args:
        results: A finished or half-finished run with at least one score.

    Returns:
        The page; it loads nothing from elsewhere and can be read without JavaScript.
    """
    manifest, totals = results.entries, CellTotals.of(results.files)
    sections = list(_sections(results, manifest, totals))
    compared = model_section(results)
    planned = sum(len(shard.cells) for shard in manifest.shards)
    spec = results.files.store.path("spec.yaml")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            manifest=manifest,
            title=manifest.title or "Which attribution method can you trust here?",
            sections=sections,
            headline=verdict.bold(results.answer, manifest.methods),
            compared=compared,
            planned=planned,
            done=totals.finished,
            failures=facts.troubles(totals, "failed"),
            failed=totals.failed,
            unsuited=facts.troubles(totals, "n/a"),
            styles=traces.styles(manifest),
            controls=manifest.controls,
            protocols=facts.protocols(manifest),
            methods=facts.methods(manifest, totals),
            models=facts.models(manifest),
            datasets=facts.datasets(manifest),
            setup=facts.setup(manifest, totals),
            few=FEWEST_GROUPS,
            side=gallery.SIDE,
            words=gallery.WORDS,
            scale=Markup(_scale()),
            suite=spec.read_text(encoding="utf-8", errors="replace") if spec.is_file() else "",
        )
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["soft"] = _soft
    return environment


def _sections(results: ShownRun, manifest: Manifest, totals: CellTotals) -> Iterator[Section]:
    ranked = results.leaderboard()
    present = {row.setting for row in ranked.by_protocol}
    settings = [setting for setting in manifest.settings if setting in present]
    curves = traces.average(results.arrays)
    style = traces.styles(manifest)
    count = gallery.per_setting(len(settings), len(manifest.methods))
    shown = {s: gallery.shown_samples(results.files, s, count) for s in settings}
    numbers = sample_numbers(results.arrays, results.outcomes, shown)
    promises = promise_lines(results.checks)
    truths = manifest.truth_protocols
    trust = results.trust_rows() if truths else []
    several = len({setting[:2] for setting in settings}) < len(settings)
    for i, setting in enumerate(settings):
        one = board.build(setting, ranked, manifest, totals.messages, numbers.others)
        methods = [line.method for line in one.lines]
        clean = manifest.accuracy(*setting)
        without_truth, truth_panels = known_truth.split(one, truths)
        accuracy = clean.accuracy if clean else None
        answer = verdict.judge(without_truth, one.answer, manifest.methods, accuracy)
        tips = _tips(numbers.tips.get(setting, {}), list(manifest.protocols))
        yield Section(
            f"s{i}",
            verdict.setting_name(one, several),
            one,
            answer,
            traces.panels(curves.get(setting, {}), methods, manifest.protocols, style),
            tuple(variations(results.outcomes, setting, methods)),
            gallery.build(results.files, setting, tips, count, methods),
            tuple(line for line in promises if line.setting == setting),
            signal_section(setting, results.signal_rows, results.validation_rows),
            known_truth.describe_truth(one, truth_panels, trust, answer.first),
        )


def _tips(scores: TipScores, protocols: Sequence[str]) -> gallery.Tips:
    """A function from samples to the score of each (method, sample) per protocol, in order."""

    def tips(samples: Sequence[str]) -> Mapping[tuple[str, str], Mapping[str, float]]:
        return {k: {p: v[p] for p in protocols if p in v} for k, v in scores.items()}

    return tips


def _soft(text: str) -> Markup:
    """A name that may break after its underscores and brackets."""
    return Markup(re.sub(r"([_\[,])(?=[^<>&;]{3})", r"\1<wbr>", str(escape(text))))


def _scale() -> str:
    """The colours of the gallery as a CSS gradient."""
    colours = gallery.palette()[: gallery.MISSING : 3]
    return ", ".join(f"rgb({r} {g} {b})" for r, g, b in colours.tolist())
