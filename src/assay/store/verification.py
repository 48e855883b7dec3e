"""Whether the files of a run are whole, and what a next run would compute again."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from assay.errors import InputError
from assay.store.data_facts import FILE, are_damaged
from assay.store.files import Store, array_checksum
from assay.store.manifest_entries import Manifest, ShardEntry, read_manifest
from assay.store.old_layout import is_old
from assay.store.shard_content import read_shard
from assay.store.shard_log import ShardLog


@dataclass(frozen=True)
class Verification:
    """The state of a run folder.

    Attributes:
        damaged: What is wrong with each damaged file, by path inside the folder.
        files: How many files were read.
        cells: How many cells are finished, counted per shard.
        planned: How many cells the manifest plans.
        failed: How many of the finished cells failed; a next run tries them again.
        shards: How many shards a next run would work on.
    """

    damaged: Mapping[str, str]
    files: int
    cells: int
    planned: int
    failed: int
    shards: int

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged, missing or failed."""
        return not self.damaged and self.cells == self.planned and not self.failed


def verify(store: Store) -> Verification:
    """Read every file of a run and compare its checksum.

    Raises:
        InputError: The folder holds no run, or one of an older version.
    """
    path = store.path("manifest.json")
    if not path.exists():
        raise InputError(f"Expected a run in `{store.folder}`, found no `manifest.json` there.")
    if is_old(store):
        raise InputError(
            f"Expected a run with checksums, got one of an older version in `{store.folder}`. "
            f"Continue it once with `assay run`; that converts its files."
        )
    damaged, files = dict(_damaged_descriptions(store)), 3
    manifest = None if "manifest.json" in damaged else read_manifest(store)
    cells = planned = failed = shards = 0
    for shard in () if manifest is None else manifest.shards:
        state = _verify_shard(store, shard)
        damaged |= state.damaged
        files, cells = files + state.files, cells + state.cells
        planned, failed = planned + state.planned, failed + state.failed
        shards += not state.whole  # also if only a file of it is damaged
    for weights in sorted(store.path("trained").rglob("*.safetensors")):
        files += 1
        if not _are_whole(weights):
            damaged[weights.relative_to(store.folder).as_posix()] = "damaged"
    if store.path(FILE).exists():
        files += 1
        if are_damaged(store):
            damaged[FILE] = "damaged"
    for log in _other_logs(store, manifest):
        files += 1
        if log.read().damaged:
            damaged[log.path.relative_to(store.folder).as_posix()] = "damaged"
    return Verification(damaged, files, cells, planned, failed, shards)


def _verify_shard(store: Store, shard: ShardEntry) -> Verification:
    """The state of one shard."""
    content = read_shard(store, shard.id, with_curves=False)
    place = store.log(shard.id).path.relative_to(store.folder).as_posix()
    damaged = {place: f"{content.damaged} bytes are damaged"} if content.damaged else {}
    for path, check in content.files.items():
        if not store.is_whole(store.path(path), check):
            damaged[path] = "damaged" if store.path(path).exists() else "missing"
    planned = [*shard.cells, *(key for key in shard.dosed if key)]
    states = [content.cells[key].status for key in planned if key in content.cells]
    return Verification(
        damaged, 1 + len(content.files), len(states), len(planned), states.count("failed"), 1
    )


def _are_whole(weights: Path) -> bool:
    """Whether a file of weights that a run trained is as it was written."""
    try:
        stated, checksum = array_checksum(weights.read_bytes())
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        return False
    return stated in (None, checksum)


def _damaged_descriptions(store: Store) -> Iterator[tuple[str, str]]:
    """The damaged ones of the files that describe the run as a whole."""
    stored = store.read_json(store.path("manifest.json"), "layout")
    if stored is None or not store.has_checksum(store.path("manifest.json")):
        yield "manifest.json", "damaged"
    for name, signed in (("spec.yaml", True), ("report.html", False)):  # there may be no page
        if store.damaged_text(store.path(name), signed):
            yield name, "damaged, missing, or changed by hand" if signed else "damaged"


def _other_logs(store: Store, manifest: Manifest | None) -> Iterator[ShardLog]:
    """The logs of answers and reductions, and of shards that the manifest does not name."""
    planned = set() if manifest is None else {shard.id for shard in manifest.shards}
    for path in sorted(store.path("shards").glob("*.log")):
        if path.stem not in planned:
            yield ShardLog(path)
    for path in sorted(store.path("answers").glob("*.log")):
        yield ShardLog(path)
    if store.path("reductions.log").exists():
        yield ShardLog(store.path("reductions.log"))
