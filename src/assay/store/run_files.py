"""The files of a run as its readers see them, whatever version wrote them."""

import functools
import json
from collections.abc import Iterator, Mapping, Sequence

from assay.errors import PrerequisiteError
from assay.store.all_absent import ALL_ABSENT, AllAbsent, read_all_absent
from assay.store.cell_records import CELLS, StoredCell, read_provenance
from assay.store.dosed_run import with_doses
from assay.store.files import FileCheck, Store, file_name, unpacked_arrays
from assay.store.json_records import StoredObject
from assay.store.manifest_entries import Manifest, ShardEntry
from assay.store.old_layout import is_old, read_old_shard, unreadable_old_files
from assay.store.shard_content import (
    SAMPLES,
    SUMMARY,
    ShardContent,
    file_checks,
    read_summary,
    shard_content,
)
from assay.store.shard_log import LogContent
from assay.store.shard_records import CellRecord, Preview
from assay.store.tables import Array

CellLabels = tuple[str, str]  # protocol and method


class RunFiles:
    """Reads the shards of a run. Nothing that is damaged is read as if it were whole."""

    def __init__(self, store: Store, manifest: Manifest) -> None:
        """Set the folder and its manifest; nothing is read yet."""
        self.store = store
        self.manifest = manifest
        self.old = manifest.layout < 2 and is_old(store)

    @property
    def with_doses(self) -> "RunFiles":
        """The same files, read as if mixed maps were methods of the run."""
        return RunFiles(self.store, with_doses(self.manifest))

    def log(self, shard: ShardEntry) -> LogContent:
        """The records of a shard.

        Raises:
            PrerequisiteError: The log is damaged.
        """
        content = self.store.log(shard.id).read()
        if content.damaged:
            raise self._damaged(self.store.log(shard.id).path)
        return content

    def shard(self, shard: ShardEntry, with_curves: bool = True) -> ShardContent:
        """What is finished of a shard.

        Raises:
            PrerequisiteError: A file is damaged.
        """
        if not self.old:
            return shard_content(self.log(shard), with_curves)
        for path in unreadable_old_files(self.store, shard):
            raise self._damaged(path)
        return read_old_shard(self.store, shard)

    def planned(self, shard: ShardEntry) -> Iterator[tuple[CellLabels, str]]:
        """The protocol, the method and the key of each cell, in the order of the suite."""
        labels = [(p, m) for p in self.manifest.protocols for m in self.manifest.methods]
        return zip(labels, shard.cells, strict=True)

    def cells(
        self, shard: ShardEntry, with_curves: bool = True
    ) -> Iterator[tuple[CellLabels, StoredCell]]:
        """The finished cells of a shard, with their labels in this suite."""
        stored = self.shard(shard, with_curves).cells
        for labels, key in self.planned(shard):
            if key in stored:
                yield labels, stored[key]

    def provenance(self, shard: ShardEntry) -> Iterator[tuple[CellLabels, StoredCell]]:
        """The finished cells of a shard without any numbers, with their labels in this suite."""
        if self.old:
            yield from self.cells(shard, with_curves=False)
            return
        records = self.log(shard).of_kind(CELLS)
        stored = {cell.cell: cell for record in records for cell in read_provenance(record)}
        for labels, key in self.planned(shard):
            if key in stored:
                yield labels, stored[key]

    def records(self) -> Iterator[CellRecord]:
        """How each finished cell was computed, shard by shard."""
        for shard in self.manifest.shards:
            for (protocol, method), cell in self.provenance(shard):
                yield CellRecord(
                    cell=cell.cell,
                    shard=shard.id,
                    dataset=shard.dataset,
                    model=self.manifest.name_of(shard.model, shard.checkpoint),
                    method=method,
                    protocol=protocol,
                    status=cell.status,
                    message=cell.message,
                    seconds=cell.seconds,
                    explain_seconds=cell.explain_seconds,
                    forwards=cell.forwards,
                )

    @functools.cached_property
    def any_cells(self) -> bool:
        """Whether a planned cell is finished."""
        return any(self._finished(shard) for shard in self.manifest.shards)

    @functools.cached_property
    def progress(self) -> tuple[int, int]:
        """How many cells, counted per shard, have scores, and how many are planned."""
        shards = self.manifest.shards
        done = sum(len(self._finished(shard)) for shard in shards)
        return done, sum(len(shard.cells) for shard in shards)

    def _finished(self, shard: ShardEntry) -> set[str]:
        """The keys of the planned cells that are finished."""
        if self.old:
            return set(self.shard(shard).cells).intersection(shard.cells)
        records = self.log(shard).of_kind(CELLS)
        stored = {cell["cell"] for record in records for cell in record.facts["cells"]}
        return stored.intersection(shard.cells)

    def all_absent(self, shard: ShardEntry) -> Mapping[str, AllAbsent]:
        """The answers when everything is absent, by fill; empty in runs that did not store them."""
        if self.old:
            return {}
        stored = (read_all_absent(record) for record in self.log(shard).of_kind(ALL_ABSENT))
        return {answers.fill: answers for answers in stored}

    def groups(self, shard: ShardEntry) -> Sequence[str]:
        """The group of each sample of a shard."""
        if self.old:
            return self.shard(shard, with_curves=False).groups or shard.samples
        record = self.log(shard).get(SAMPLES)
        return shard.samples if record is None else record.facts.get("groups") or shard.samples

    def maps(self, shard: ShardEntry, method: str) -> Mapping[str, Array]:
        """The stored maps of a method by sample id; empty where none are stored.

        Raises:
            PrerequisiteError: The file is damaged.
        """
        path = shard.maps_path(method)
        content = None if path is None else self.content(shard, path)
        if content is None:
            return {}
        arrays = unpacked_arrays(content)
        if arrays is None:
            raise self._damaged(self.store.path(str(path)))
        return dict(zip(shard.samples, arrays[0]["maps"], strict=True))

    def content(self, shard: ShardEntry, path: str) -> bytes | None:
        """The bytes of a file that belongs to a shard; None if there is none.

        Raises:
            PrerequisiteError: The file is damaged.
        """
        place = self.store.path(path)
        check = None if self.old else self._file_checks(shard.id).get(path)
        if not place.is_file() or (check is None and not self.old):
            return None
        content = self.store.read_checked(place, check)
        if content is None:
            raise self._damaged(place)
        return content

    @functools.cache  # noqa: B019  # as long as the run is read
    def _file_checks(self, shard: str) -> Mapping[str, FileCheck]:
        return file_checks(self.store.log(shard).read())

    @functools.cache  # noqa: B019  # as long as the run is read
    def previews(self, dataset: str) -> list[tuple[ShardEntry, Preview]]:
        """The samples of a dataset that the page shows, with the shard that holds their files."""
        shards = [shard for shard in self.manifest.shards if shard.dataset == dataset]
        if self.old:
            return [(shards[0], preview) for preview in self._old_previews(dataset)]
        summaries = ((shard, self._summary(shard)) for shard in shards)
        return [(shard, preview) for shard, previews in summaries for preview in previews]

    def _summary(self, shard: ShardEntry) -> list[Preview]:
        record = self.log(shard).get(SUMMARY)
        summary = None if record is None else read_summary(record)
        return [] if summary is None else list(summary.previews)

    def _old_previews(self, dataset: str) -> list[Preview]:
        path = self.store.path("previews", f"{file_name(dataset)}.json")
        try:
            stored: list[StoredObject] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return [Preview.from_json(one) for one in stored]

    def _damaged(self, path: object) -> PrerequisiteError:
        folder = self.store.folder
        return PrerequisiteError(
            f"`{path}` is damaged or incomplete. Run `assay run {folder}/spec.yaml --out {folder}` "
            f"again: it computes what is missing and keeps the rest."
        )
