"""What was measured and with what: the run's provenance as rows of (term, value)."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.report.charts import NOTHING, shown

About = Mapping[str, Any]
Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Card:
    """One method, protocol, model or dataset."""

    label: str
    title: str
    summary: str
    tags: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True)
class Trouble:
    """Pieces that failed with the same message."""

    where: str
    count: int
    message: str


def protocols(manifest: About) -> list[Card]:
    """A card per protocol."""
    cards = []
    for label, about in manifest["protocols"].items():
        better = "higher is better" if about.get("higher_is_better") else "lower is better"
        low, high = (_plain(v) for v in about.get("range") or (None, None))
        rows = [
            ("metric", _plain(about.get("metric"))),
            ("direction", better),
            ("range", f"{low} to {high}"),
            ("chance", _plain(about.get("chance"))),
            ("reads", _plain(about.get("uses"))),
            ("sign", "matters" if about.get("sign_sensitive") else "does not matter"),
            *_common(about),
        ]
        cards.append(_card(label, about, (about.get("family"),), rows))
    return cards


def methods(manifest: About, cells: Sequence[About]) -> list[Card]:
    """A card per method, with what its cells cost."""
    cards = []
    for label, about in manifest["methods"].items():
        mine = [c for c in cells if c["method"] == label]
        seconds = sum(float(c.get("seconds") or 0) for c in mine)
        forwards = sum(int(c.get("forwards") or 0) for c in mine)
        forward, backward = (
            _plain(about.get("by") if about.get(way) is None else about[way])
            for way in ("forward", "backward")
        )
        once = f" and {about['once']:,} once" if about.get("once") else ""
        passes = f"{forward}{once} forward, {backward} backward"
        rows = [
            ("passes per sample", passes),
            ("explaining", _explaining(mine, manifest)),
            ("scoring", f"{duration(seconds)}, {forwards:,} forwards" if mine else NOTHING),
            *_common(about),
        ]
        control = about.get("control")
        tags = (about.get("family"), f"control: {control}" if control else "")
        cards.append(_card(label, about, tags, rows))
    return cards


def models(manifest: About) -> list[Card]:
    """A card per model."""
    cards = []
    for name, about in manifest.get("models", {}).items():
        clean = [c for c in manifest.get("clean") or [] if c["model"] == name]
        count = about.get("parameters")
        rows = [
            ("checkpoint", _plain(about.get("checkpoint"))),
            ("weights", _hash(about.get("weights_hash"))),
            *_said("weights file", about.get("card", {}).get("weights")),
            ("parameters", f"{count:,}" if isinstance(count, int) else _plain(count)),
            ("micro-batch", _plain(about.get("micro_batch"))),
            ("prepared", _plain(about.get("prepared"))),
            ("device", _plain(about.get("device"))),
            *((f"accuracy on {c['dataset']}", _accuracy(c)) for c in clean),
        ]
        cards.append(Card(name, "", "", (), tuple(rows)))
    return cards


def datasets(manifest: About) -> list[Card]:
    """A card per dataset."""
    cards = []
    for name, about in manifest.get("datasets", {}).items():
        rows = (
            ("samples", _plain(about.get("n"))),
            ("fingerprint", _hash(about.get("fingerprint"))),
            *_said("read", about.get("note")),
        )
        cards.append(Card(name, "", "", tuple(t for t in (about.get("modality"),) if t), rows))
    return cards


def _said(term: str, value: str | None) -> Rows:
    """A row where there is something to say."""
    return ((term, value),) if value else ()


def setup(manifest: About, cells: Sequence[About]) -> Rows:
    """Versions, hardware, seeds, time."""
    counted = sum(int(c.get("forwards") or 0) for c in cells)
    forwards = int(manifest.get("forwards") or counted)
    rows = [
        ("assay", _plain(manifest.get("assay"))),
        ("started", _plain(manifest.get("created"))),
        ("finished", _plain(manifest.get("finished"))),
        ("wall time", duration(manifest.get("seconds"))),
        ("forwards", f"{forwards:,}"),
        ("class explained", _plain(manifest.get("target"))),
        ("seeds", ", ".join(map(str, manifest.get("seeds") or [])) or NOTHING),
        *((str(k), _plain(v)) for k, v in (manifest.get("hardware") or {}).items()),
        *((str(k), _plain(v)) for k, v in (manifest.get("versions") or {}).items()),
    ]
    return tuple(rows)


def troubles(cells: Sequence[About], status: str) -> list[Trouble]:
    """The pieces with this status, gathered by method and message."""
    found: dict[tuple[str, str], list[About]] = {}
    for cell in cells:
        if cell["status"] == status:
            message = str(cell.get("message") or "no message")
            found.setdefault((str(cell["method"]), message), []).append(cell)
    return [
        Trouble(
            f"{method} · {_some(sorted({str(c['protocol']) for c in group}))}", len(group), text
        )
        for (method, text), group in found.items()
    ]


def duration(seconds: object) -> str:
    """Seconds for people."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return NOTHING
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _card(label: str, about: About, tags: Sequence[Any], rows: Sequence[tuple[str, str]]) -> Card:
    title = str(about.get("title") or "")
    shown_title = "" if title == label else title
    summary = str(about.get("summary") or "")
    return Card(label, shown_title, summary, tuple(str(t) for t in tags if t), tuple(rows))


def _common(about: About) -> list[tuple[str, str]]:
    options = about.get("options") or {}
    written = ", ".join(f"{k} = {_plain(v)}" for k, v in options.items())
    name = f"{about.get('name', '')}, version {about.get('version', NOTHING)}"
    rows = [("options", written or "none"), ("plug-in", name)]
    return [*rows, ("cite", str(about["cite"]))] if about.get("cite") else rows


def _explaining(cells: Sequence[About], manifest: About) -> str:
    """The time the maps took; each cell of a shard repeats that of the shard."""
    spent: dict[str, float] = {}
    for cell in cells:
        if cell.get("explain_seconds") is not None:
            before = spent.get(cell["shard"], 0.0)
            spent[cell["shard"]] = max(before, float(cell["explain_seconds"]))
    samples = sum(len(s["samples"]) for s in manifest["shards"] if s["id"] in spent)
    if not samples:
        return NOTHING
    total = sum(spent.values())
    return f"{duration(total)}, {1000 * total / samples:.0f} ms per sample"


def _accuracy(entry: About) -> str:
    value = entry.get("accuracy")
    return NOTHING if value is None else f"{100 * value:.1f} % of {entry.get('n', '?')}"


def _hash(value: object) -> str:
    """The start of a hash; the manifest has the rest."""
    text = _plain(value)
    return f"{text[:16]}…" if len(text) > 24 else text


def _plain(value: object) -> str:
    if value is None or value == "":
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}" if math.isfinite(value) else shown(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)


def _some(items: Sequence[str], limit: int = 6) -> str:
    rest = len(items) - limit
    return ", ".join(items[:limit]) + (f" and {rest} more" if rest > 0 else "")
