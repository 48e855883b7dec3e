"""The compact table of all scores, from which every claim and plot is computed. No torch.

One row for each suite, network, protocol and method, with the mean over images and the means of
blocks of images. The facts of networks, of pairs of networks and of masks are JSON in its metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assay.errors import InputError, PrerequisiteError
from assay.ranking.resampling import Floats
from assay.store import StoredObject
from assay.studies.idsds.paper_methods import VGG

NAME = "idsds_scores.parquet"
SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("network", pa.string()),
        ("seed", pa.int32()),
        ("arm", pa.string()),
        ("epoch", pa.int32()),
        ("temperature", pa.float32()),
        ("protocol", pa.string()),
        ("method", pa.string()),
        ("status", pa.string()),
        ("n", pa.int32()),
        ("degenerate", pa.int32()),
        ("mean", pa.float32()),
        ("sd", pa.float32()),
        ("blocks", pa.list_(pa.float32())),
    ]
)


@dataclass(frozen=True)
class PanelScore:
    """The scores of one method on one network under one protocol."""

    suite: str
    network: str
    seed: int
    arm: str
    protocol: str
    method: str
    mean: float
    blocks: tuple[float, ...] = ()
    epoch: int | None = None
    temperature: float = 1.0
    status: str = "ok"
    n: int = 0
    degenerate: int = 0
    sd: float | None = None

    @property
    def stem(self) -> str:
        """The stem of the network's files."""
        epoch = "" if self.epoch is None else f"-e{self.epoch}"
        return f"{self.network}-s{self.seed}-{self.arm}{epoch}"


@dataclass(frozen=True)
class ScoreTable:
    """All scores of the study.

    Attributes:
        rows: One for each suite, network, protocol and method that was scored.
        networks: The facts of each network, by the stem of its files.
        pairs: How far pairs of networks are apart.
        masks: The accuracy of a network that sees only masks, by kind: one number a seed.
        older: What was kept of an older table: names of networks, some with the only suite.
    """

    rows: tuple[PanelScore, ...] = ()
    networks: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pairs: tuple[Mapping[str, object], ...] = ()
    masks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    older: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of all networks with a score or a fact."""
        known = {str(facts["network"]) for facts in self.networks.values()}
        return frozenset(known | {row.network for row in self.rows})

    def select(
        self, suite: str, protocol: str | None = None, arm: str | None = None,
        network: str | None = None, temperature: float | None = None,
        where: Callable[[PanelScore], bool] = lambda row: True,
    ) -> list[PanelScore]:  # fmt: skip
        """The rows of a suite, at the end of training."""
        wanted = {"protocol": protocol, "arm": arm, "network": network, "temperature": temperature}
        fixed = {name: value for name, value in wanted.items() if value is not None}
        return [
            row
            for row in self._by_suite.get(suite, ())
            if row.epoch is None
            and all(getattr(row, name) == value for name, value in fixed.items())
            and where(row)
        ]

    @cached_property
    def _by_suite(self) -> dict[str, list[PanelScore]]:
        groups: dict[str, list[PanelScore]] = {}
        for row in self.rows:
            groups.setdefault(row.suite, []).append(row)
        return groups

    def write(self, path: Path) -> None:
        """Write it as one parquet file."""
        columns = [[getattr(row, name) for row in self.rows] for name in SCHEMA.names]
        facts = {
            "networks": self.networks, "pairs": self.pairs, "masks": self.masks,
            "older": self.older,
        }  # fmt: skip
        metadata = {name: json.dumps(value) for name, value in facts.items()}
        table = pa.table(columns, schema=SCHEMA.with_metadata(metadata))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        pq.write_table(table, part, compression="zstd")
        part.replace(path)


def read_scores(path: Path) -> ScoreTable:
    """The table in a file.

    Raises:
        PrerequisiteError: There is no such file.
        InputError: It is not such a table.
    """
    if path.is_dir():
        path = path / NAME
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected the scores of the study at `{path}`, found none. Run "
            f"`python -m assay.studies.idsds.jobs --zoo DIR --data DIR --out DIR` first."
        )
    return _parsed(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=2)  # every claim reads the same table
def _parsed(path: Path, changed: int) -> ScoreTable:
    """The table in a file that was last written at this time."""
    try:
        table = pq.read_table(path)
        metadata = table.schema.metadata or {}
        facts = {k: json.loads(metadata[k.encode()]) for k in ("networks", "pairs", "masks")}
        rows = tuple(
            PanelScore(**{**row, "blocks": tuple(row["blocks"] or ())}) for row in table.to_pylist()
        )
    except (pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"Expected the scores of the study in `{path}`, got {type(error).__name__}: {error}. "
            f"Run the jobs again."
        ) from None
    older = tuple(json.loads(metadata.get(b"older", b"[]")))
    return ScoreTable(rows, facts["networks"], tuple(facts["pairs"]), facts["masks"], older)


def merged(table: ScoreTable, older: ScoreTable) -> ScoreTable:
    """A table completed by an older one.

    An older score stays where the newer table lacks that suite of that network. If any weights of
    an architecture have changed, and the newer table has scores of it, only older scores of equal
    weights stay: two seeds, or a network before and after tuning, must come from one training.
    Weights that changed but have no scores replace nothing. Of a suite that the newer table has on
    another number of images, no older score stays: the two could not be compared.
    """
    same = _same_weights(table, older)
    both = set(table.networks) & set(older.networks)
    changed = {str(table.networks[stem]["network"]) for stem in both - same}
    scored = {row.network for row in table.rows}
    replaced, unscored = changed & scored, changed - scored
    rows = _kept_rows(table, older, replaced, same)
    labels = {f"{r.network} ({r.suite})" if r.network in scored else r.network for r in rows}
    facts = {
        stem: of
        for stem, of in older.networks.items()
        if of["network"] not in replaced or stem in same
    }
    for stem, of in table.networks.items():
        if of["network"] not in unscored or stem not in facts:
            facts[stem] = {**facts.get(stem, {}), **of} if stem in same else of
    return ScoreTable(
        (*table.rows, *rows),
        facts,
        _merged_pairs(table, older, replaced, unscored),
        {**older.masks, **table.masks},
        tuple(sorted(labels)),
    )


def _kept_rows(
    table: ScoreTable, older: ScoreTable, replaced: set[str], same: set[str]
) -> list[PanelScore]:
    """The older scores that complete the newer table."""
    there = {(row.suite, row.stem) for row in table.rows}
    images: dict[str, set[int]] = {}
    for row in table.rows:
        images.setdefault(row.suite, set()).add(row.n)
    return [
        row
        for row in older.rows
        if (row.network not in replaced or row.stem in same)
        and (row.suite, row.stem) not in there
        and row.n in images.get(row.suite, {row.n})
    ]


def _merged_pairs(
    table: ScoreTable, older: ScoreTable, replaced: set[str], unscored: set[str]
) -> tuple[Mapping[str, object], ...]:
    """The pairs of both tables, each once; which networks count is as for their other facts."""
    newer = [pair for pair in table.pairs if not unscored & _networks_of(pair)]
    known = {_place(pair) for pair in newer}
    kept = [
        pair
        for pair in older.pairs
        if _place(pair) not in known and not replaced & _networks_of(pair)
    ]
    return (*newer, *kept)


def _networks_of(pair: Mapping[str, object]) -> set[str]:
    return {str(pair["network"]), _other(pair)}


def _place(pair: Mapping[str, object]) -> tuple[object, ...]:
    """What tells one pair from another."""
    return pair["kind"], pair["network"], _other(pair), pair["seed"]


def _same_weights(table: ScoreTable, older: ScoreTable) -> set[str]:
    """The networks that have the same weights in both tables, by stem."""
    hashes = {stem: facts.get("weights_hash") for stem, facts in table.networks.items()}
    return {
        stem
        for stem, facts in older.networks.items()
        if facts.get("weights_hash") and facts["weights_hash"] == hashes.get(stem)
    }


def _other(pair: Mapping[str, object]) -> str:
    """The second network of a pair; some tables give only the kind of the pair."""
    usual = VGG if pair["kind"] == "architecture" else pair["network"]
    return str(pair.get("other", usual))


def rows_of(record: StoredObject) -> list[PanelScore]:
    """The rows of a job's record; methods that do not apply have none."""
    of = {name: record[name] for name in ("suite", "network", "seed", "arm", "epoch")}
    kept = []
    for row in record["rows"]:
        if row["mean"] is None:
            continue
        blocks = tuple(np.nan if b is None else float(b) for b in row["blocks"])
        fields = {name: row[name] for name in row if name not in ("message", "blocks")}
        kept.append(PanelScore(**of, **fields, blocks=blocks))
    return kept


def block_matrix(rows: Iterable[PanelScore]) -> Floats:  # [rows, blocks]
    """The block means of some rows, one row each."""
    return np.array([row.blocks for row in rows], dtype=np.float64)
