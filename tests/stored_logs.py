"""The logs of a run folder, as tests compare them before and after another run."""

from pathlib import Path

from assay.store.cell_records import CELLS, read_cells
from assay.store.shard_log import LogRecord, ShardLog


def logs(folder: Path) -> dict[Path, bytes]:
    """The content of every log of finished work."""
    return {path: path.read_bytes() for path in sorted((folder / "shards").glob("*.log"))}


def records(folder: Path, kind: str) -> list[LogRecord]:
    """All whole records of a kind."""
    return [
        record
        for path in sorted((folder / "shards").glob("*.log"))
        for record in ShardLog(path).read().of_kind(kind)
    ]


def stored_cells(folder: Path) -> set[tuple[str, str]]:
    """The shard and the key of every stored cell."""
    return {
        (path.stem, cell.cell)
        for path in sorted((folder / "shards").glob("*.log"))
        for record in ShardLog(path).read().of_kind(CELLS)
        for cell in read_cells(record)
    }


def only_grown(before: dict[Path, bytes]) -> bool:
    """Whether every log still begins with what it held: nothing was computed again."""
    return all(path.read_bytes().startswith(content) for path, content in before.items())


def unchanged(before: dict[Path, bytes]) -> bool:
    """Whether every log is as it was."""
    return all(path.read_bytes() == content for path, content in before.items())
