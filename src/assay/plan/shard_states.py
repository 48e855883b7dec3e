"""What the logs of shards say is finished, without any numbers."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from assay.plan.plan import Shard
from assay.store import FileCheck, ShardEntry, ShardSummary, Store, read_manifest
from assay.store.old_layout import convert, is_old, read_old_shard
from assay.store.shard_content import ShardContent, progress_of

Stamp = tuple[int, int, int]  # size, time and inode of a log: when they change, it is read again


@dataclass(frozen=True, eq=False)
class CellStates:
    """The status of each finished cell by key; shards with the same states share one object."""

    by_key: Mapping[str, str]


NO_CELLS = CellStates({})


@dataclass(frozen=True, eq=False)
class ShardState:
    """What is finished of a shard, without any numbers.

    Attributes:
        cells: The status of each cell.
        samples: Whether its samples are stored.
        summary: Facts about the samples, and the cost so far.
        gaps: The keys of the maps that were compared with their promise.
        absent: The keys of the answers when everything is absent.
        files: The files that are whole, by path.
        lost: The files that are missing or damaged, by path.
        damaged: Whether the log is damaged.
    """

    cells: CellStates = NO_CELLS
    samples: bool = False
    summary: ShardSummary | None = None
    gaps: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    files: Mapping[str, FileCheck] = field(default_factory=dict)
    lost: frozenset[str] = frozenset()
    damaged: bool = False

    @property
    def previews(self) -> bool:
        """Whether the files that the page shows are whole."""
        return not any(path.startswith("previews/") for path in self.lost)


NOTHING, NO_LOG = ShardState(), (0, 0, 0)
ReadState = tuple[Stamp, ShardState]  # of a log as it was read


class ShardStates:
    """Reads what is finished of shards. Of a log that has grown only the new part is read."""

    def __init__(self, store: Store) -> None:
        """Set the run folder; nothing is read yet."""
        self.store = store
        self._known: dict[str, ReadState] = {}
        self._shared: dict[frozenset[tuple[str, str]], CellStates] = {}

    def of(self, shard: Shard) -> ShardState:
        """What is finished of a shard."""
        stamp = self._stamp(shard)
        known = self._known.get(shard.id)
        if known is None or known[0] != stamp:
            known = stamp, self._read(shard, stamp, known)
            self._known[shard.id] = known
        return known[1]

    def _stamp(self, shard: Shard) -> Stamp:
        try:
            facts = self.store.log(shard.id).path.stat()
        except OSError:
            return NO_LOG
        return facts.st_size, facts.st_mtime_ns, facts.st_ino

    def _read(self, shard: Shard, stamp: Stamp, known: ReadState | None) -> ShardState:
        old = self._old.get(shard.id)
        if old is not None:
            return self._state(shard, read_old_shard(self.store, old), NOTHING, {})
        before, state = known or (NO_LOG, NOTHING)
        grown = stamp[0] > before[0] and stamp[2] == before[2] and not state.damaged
        start, earlier = (before[0], state) if grown else (0, NOTHING)
        content = progress_of(self.store.log(shard.id).read(start))
        now = self._state(shard, content, earlier, state.files)
        return replace(now, lost=now.lost | (_named_previews(now.summary) - now.files.keys()))

    def _state(
        self,
        shard: Shard,
        content: ShardContent,
        earlier: ShardState,
        known_files: Mapping[str, FileCheck],
    ) -> ShardState:
        """The state after these records, which follow an earlier state."""
        statuses = {cell.cell: cell.status for cell in content.cells.values()}
        checks = {
            path: check
            for path, check in content.files.items()
            if self._is_whole(path, check, known_files)
        }
        lost = content.files.keys() - checks.keys()
        return ShardState(
            self._of_all({**earlier.cells.by_key, **statuses}) if statuses else earlier.cells,
            tuple(content.samples) == shard.samples if content.samples else earlier.samples,
            content.summary or earlier.summary,
            earlier.gaps | frozenset(content.gaps),
            earlier.absent | frozenset(content.absent),
            {**{p: c for p, c in earlier.files.items() if p not in lost}, **checks},
            frozenset(earlier.lost - checks.keys() | lost),
            content.damaged > 0,
        )

    def _of_all(self, statuses: Mapping[str, str]) -> CellStates:
        """The object for these statuses, which all shards in the same state share."""
        return self._shared.setdefault(frozenset(statuses.items()), CellStates(statuses))

    @functools.cached_property
    def _old(self) -> Mapping[str, ShardEntry]:
        """The shards of a run of an older version, by id."""
        manifest = read_manifest(self.store)
        if manifest is None or manifest.layout > 1 or not is_old(self.store):
            return {}
        return {shard.id: shard for shard in manifest.shards}

    def _is_whole(self, path: str, check: FileCheck, known: Mapping[str, FileCheck]) -> bool:
        """Whether a file is whole; the bytes of one that was are not compared again."""
        place = self.store.path(path)
        if known.get(path) != check:
            return self.store.is_whole(place, check)
        return place.is_file() and place.stat().st_size == check.size

    def convert(self) -> bool:
        """Convert the files of a run of an older version, if this is one."""
        manifest = read_manifest(self.store) if self._old else None
        if manifest is not None:
            convert(self.store, manifest)
        return manifest is not None


def _named_previews(summary: ShardSummary | None) -> frozenset[str]:
    """The files that a summary names; their records are written before it."""
    previews = () if summary is None else summary.previews
    files = (file for preview in previews for file in (preview.image, preview.truth))
    return frozenset(f"previews/{file}" for file in files if file)
