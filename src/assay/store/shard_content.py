"""What is finished of one shard: its samples, cells, summary, promises and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assay.errors import InputError
from assay.store.all_absent import ALL_ABSENT, AllAbsent, read_all_absent
from assay.store.cell_records import CELLS, StoredCell, read_cells, read_provenance
from assay.store.files import FileCheck, Store
from assay.store.shard_log import LogContent, LogRecord
from assay.store.shard_records import ShardSummary
from assay.store.tables import Array

SAMPLES, SUMMARY, GAPS, FILE = "samples", "summary", "gaps", "file"  # kinds of records


@dataclass(frozen=True, eq=False)
class StoredGaps:
    """How far each map deviates from what its method promises.

    Attributes:
        promise: Name of the promise.
        values: One number per sample; 0 is perfect.
    """

    promise: str
    values: Array


@dataclass(frozen=True, eq=False)
class ShardContent:
    """The whole records of a shard.

    Attributes:
        samples: Ids of its samples; empty if the record is missing.
        groups: The group of each sample.
        cells: The cells by key, in the order in which they were computed.
        summary: Facts about the samples, and the cost so far.
        gaps: The gaps between maps and promises, by key.
        absent: The answers when everything is absent, by key.
        files: The files that belong to the shard by path, with their checksums.
        damaged: Bytes of the log that belong to no whole record.
    """

    samples: Sequence[str] = ()
    groups: Sequence[str] = ()
    cells: Mapping[str, StoredCell] = field(default_factory=dict)
    summary: ShardSummary | None = None
    gaps: Mapping[str, StoredGaps] = field(default_factory=dict)
    absent: Mapping[str, AllAbsent] = field(default_factory=dict)
    files: Mapping[str, FileCheck] = field(default_factory=dict)
    damaged: int = 0


def read_shard(store: Store, shard: str, with_curves: bool = True) -> ShardContent:
    """What the log of a shard holds; what is damaged counts as missing."""
    return shard_content(store.log(shard).read(), with_curves)


def shard_content(content: LogContent, with_curves: bool = True) -> ShardContent:
    """The content of a log, by kinds of records."""
    samples = content.get(SAMPLES)
    summary = content.get(SUMMARY)
    return ShardContent(
        samples=samples.facts["samples"] if samples else (),
        groups=(samples.facts.get("groups") or samples.facts["samples"]) if samples else (),
        cells={
            cell.cell: cell
            for record in content.of_kind(CELLS)
            for cell in read_cells(record, with_curves)
        },
        summary=None if summary is None else read_summary(summary),
        gaps=_gaps(content),
        absent=_absent(content),
        files=file_checks(content),
        damaged=content.damaged,
    )


def progress_of(content: LogContent) -> ShardContent:
    """The content of a log without any numbers of its cells."""
    samples, summary = content.get(SAMPLES), content.get(SUMMARY)
    cells = (cell for record in content.of_kind(CELLS) for cell in read_provenance(record))
    return ShardContent(
        samples=samples.facts["samples"] if samples else (),
        cells={cell.cell: cell for cell in cells},
        summary=None if summary is None else read_summary(summary),
        gaps=_gaps(content),
        absent=_absent(content),
        files=file_checks(content),
        damaged=content.damaged,
    )


def _gaps(content: LogContent) -> dict[str, StoredGaps]:
    return {
        record.key: StoredGaps(record.facts["promise"], record.arrays()["gaps"])
        for record in content.of_kind(GAPS)
    }


def _absent(content: LogContent) -> dict[str, AllAbsent]:
    return {record.key: read_all_absent(record) for record in content.of_kind(ALL_ABSENT)}


def file_checks(content: LogContent) -> dict[str, FileCheck]:
    """The files that belong to a shard by path, with their checksums."""
    return {
        record.key: FileCheck(record.facts["size"], record.facts["crc32"])
        for record in content.of_kind(FILE)
    }


def samples_record(samples: Sequence[str], groups: Sequence[str]) -> LogRecord:
    """The record of a shard's samples, with their groups where these say more."""
    facts: dict[str, object] = {"samples": list(samples)}
    if list(groups) != list(samples):
        facts["groups"] = list(groups)
    return LogRecord.make(SAMPLES, "", facts)


def summary_record(summary: ShardSummary) -> LogRecord:
    """The record of a shard's summary."""
    return LogRecord.make(SUMMARY, "", {"summary": summary.to_json()})


def gaps_record(key: str, gaps: StoredGaps) -> LogRecord:
    """The record of the gaps between maps and what their method promises."""
    return LogRecord.make(GAPS, key, {"promise": gaps.promise}, {"gaps": gaps.values})


def file_record(path: str, check: FileCheck) -> LogRecord:
    """The record that a file was written."""
    return LogRecord.make(FILE, path, {"size": check.size, "crc32": check.crc32})


def read_summary(record: LogRecord) -> ShardSummary | None:
    """The summary in a record; None where another version wrote it."""
    try:
        return ShardSummary.from_json(record.facts["summary"])
    except InputError:
        return None
