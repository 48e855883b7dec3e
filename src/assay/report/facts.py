"""What was measured and with what: the run's provenance as rows of (term, value)."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assay.report.cell_totals import CellTotals, MethodTotals
from assay.report.charts import NOTHING, shown
from assay.store import CleanAccuracy, Manifest, MethodEntry, PluginEntry, ProtocolEntry

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Facts:
    """One method, protocol, model or dataset."""

    label: str
    title: str
    summary: str
    tags: tuple[str, ...]
    rows: Rows


@dataclass(frozen=True)
class Trouble:
    """Cells that have the same message."""

    where: str
    count: int
    message: str


def protocols(manifest: Manifest) -> list[Facts]:
    """A card per protocol."""
    cards = []
    for label, protocol in manifest.protocols.items():
        low, high = (_plain(end) for end in protocol.range)
        rows = [
            *_where_known("question", protocol.question),
            ("metric", _plain(protocol.metric)),
            ("direction", f"{'higher' if protocol.higher_is_better else 'lower'} is better"),
            ("range", f"{low} to {high}"),
            ("chance", _plain(protocol.chance)),
            ("reads", _plain(protocol.uses)),
            ("sign", "matters" if protocol.sign_sensitive else "does not matter"),
            *_properties(protocol),
            *_where_known("not ranked", protocol.unranked),
            *_where_known("mean of", _replicates(protocol)),
            *_common(protocol),
        ]
        cards.append(_card(label, protocol, (protocol.family,), rows))
    return cards


def _replicates(protocol: ProtocolEntry) -> str:
    """The replicates of which a score is the mean; empty where there are none."""
    names = protocol.replicates
    if not names:
        return ""
    last = f" to {names[-1]}" if len(names) > 1 else ""
    over = "samples and replicates" if len(names) > 1 else "samples only"
    return f"{names[0]}{last}; intervals are over {over}"


def _properties(protocol: ProtocolEntry) -> Rows:
    """What the protocol guarantees; nothing where the run did not store it."""
    words = {"True": "yes", "False": "no", "None": "not applicable"}
    return tuple(
        ("why", str(value)) if name == "reason" else (name.replace("_", " "), words[str(value)])
        for name, value in protocol.properties.items()
    )


def methods(manifest: Manifest, totals: CellTotals) -> list[Facts]:
    """A card per method, with the costs of its cells."""
    cards = []
    for label, method in manifest.methods.items():
        mine = totals.methods.get(label, MethodTotals())
        scoring = f"{duration(mine.seconds)}, {mine.forwards:,} forward passes"
        rows = [
            ("passes per sample", _passes(method)),
            ("explaining", _explaining(mine)),
            ("scoring", scoring if mine.cells else NOTHING),
            *_common(method),
        ]
        tags = (method.family, f"control: {method.control}" if method.control else "")
        cards.append(_card(label, method, tags, rows))
    return cards


def models(manifest: Manifest) -> list[Facts]:
    """A card per model."""
    cards = []
    for name, model in manifest.models.items():
        count = model.parameters
        clean = [entry for entry in manifest.clean if entry.model == name]
        rows = (
            ("checkpoint", _plain(model.checkpoint)),
            ("weights", _hash(model.weights_hash)),
            *_where_known("weights file", model.weights_file),
            ("parameters", NOTHING if count is None else f"{count:,}"),
            ("micro-batch", _plain(model.micro_batch)),
            ("prepared", _plain(model.prepared)),
            ("device", _plain(model.device)),
            *((f"accuracy on {entry.dataset}", _accuracy(entry)) for entry in clean),
        )
        cards.append(Facts(name, "", "", (), rows))
    return cards


def datasets(manifest: Manifest) -> list[Facts]:
    """A card per dataset."""
    cards = []
    for name, dataset in manifest.datasets.items():
        rows = (
            ("samples", _plain(dataset.n)),
            ("fingerprint", _hash(dataset.fingerprint)),
            *_where_known("training samples", _plain(dataset.n_train) if dataset.n_train else ""),
            *_where_known("read", dataset.note),
        )
        cards.append(Facts(name, "", "", _present([dataset.modality]), rows))
    return cards


def setup(manifest: Manifest, totals: CellTotals) -> Rows:
    """Versions, hardware, seeds, time."""
    forwards = manifest.forwards or totals.forwards
    return (
        ("assay", _plain(manifest.assay)),
        ("started", _plain(manifest.created)),
        ("finished", _plain(manifest.finished)),
        ("wall time", duration(manifest.seconds)),
        ("forward passes", f"{forwards:,}"),
        ("explained class", _plain(manifest.target)),
        ("seeds", ", ".join(map(str, manifest.seeds)) or NOTHING),
        *((name, _plain(value)) for name, value in manifest.hardware.items()),
        *((name, _plain(value)) for name, value in manifest.versions.items()),
    )


def troubles(totals: CellTotals, status: str) -> list[Trouble]:
    """The cells with this status, grouped by method and message."""
    return [
        Trouble(f"{method} · {_some(sorted(group.protocols))}", group.cells, message)
        for (one, method, message), group in totals.troubles.items()
        if one == status
    ]


def duration(seconds: float | None) -> str:
    """Seconds for people."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _card(
    label: str, plugin: PluginEntry, tags: Iterable[str], rows: Iterable[tuple[str, str]]
) -> Facts:
    title = "" if plugin.title == label else plugin.title
    return Facts(label, title, plugin.summary, _present(tags), tuple(rows))


def _present(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(tag for tag in tags if tag)


def _common(plugin: PluginEntry) -> list[tuple[str, str]]:
    written = ", ".join(f"{name} = {_plain(value)}" for name, value in plugin.options.items())
    version = NOTHING if plugin.version is None else plugin.version
    rows = [("options", written or "none"), ("plug-in", f"{plugin.name}, version {version}")]
    return [*rows, *_where_known("cite", plugin.cite)]


def _where_known(term: str, value: str) -> Rows:
    """A row where there is something to say."""
    return ((term, value),) if value else ()


def _passes(method: MethodEntry) -> str:
    """The passes per sample; where the sample or the network decides, what decides."""
    forward, backward = (
        _plain(method.by if count is None else count) for count in (method.forward, method.backward)
    )
    once = f" and {method.once:,} once" if method.once else ""
    return f"{forward}{once} forward, {backward} backward"


def _explaining(mine: MethodTotals) -> str:
    """The time to compute the maps."""
    if not mine.explained:
        return NOTHING
    each = 1000 * mine.explaining / mine.explained
    return f"{duration(mine.explaining)}, {each:.0f} ms per sample"


def _accuracy(entry: CleanAccuracy) -> str:
    return f"{100 * entry.accuracy:.1f} % of {entry.n}"


def _hash(value: str) -> str:
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
