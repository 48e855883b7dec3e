"""The table of all scores from the records of the jobs, and from an older table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from safetensors.numpy import load_file

from assay.store import StoredObject
from assay.studies.idsds.likeness import compare
from assay.studies.idsds.paper_methods import CONVOLUTIONAL, LOOK
from assay.studies.idsds.runs import StoredNetwork, stored_networks
from assay.studies.idsds.score_table import NAME, ScoreTable, merged, read_scores, rows_of
from assay.studies.idsds.scoring_records import ScoringSetting, seen_file, weights_of


def collect(setting: ScoringSetting, older: Path | None = None) -> tuple[Path, list[str]]:
    """Write the compact table from the records in the folder; also gives what to know about it.

    Records of other weights than those in the zoo's folder are left out.

    Args:
        setting: Where the files are.
        older: An older table, of which the networks stay that have no scores here.
    """
    older_table = None if older is None else read_scores(older)
    networks = {n.stem: n for n in stored_networks(setting.zoo)}
    weights = {stem: weights_of(setting, network) for stem, network in networks.items()}
    records, notes = _current(setting, weights)
    rows = [row for record in records for row in rows_of(record)]
    masks = {k: of for record in records for k, of in record.get("masks", {}).items()}
    looks = {_stem(record): record["facts"] for record in records if record["suite"] == LOOK}
    facts = {stem: {**_facts(n, setting), **looks.get(stem, {})} for stem, n in networks.items()}
    seen = [networks[stem] for stem in looks]
    pairs = [{**pair, "overlap": _overlap(facts, pair)} for pair in _pairs(seen, setting)]
    table = ScoreTable(tuple(rows), facts, tuple(pairs), masks)
    if older_table is not None:
        table = merged(table, older_table)
        notes.append(f"Kept of `{older}`: {', '.join(table.older) or 'nothing'}.")
    path = setting.out / NAME
    table.write(path)
    return path, [*notes, *_differing(records)]


def _current(
    setting: ScoringSetting, weights: Mapping[str, str]
) -> tuple[list[StoredObject], list[str]]:
    """The records of the weights in the zoo's folder, and a note about the others."""
    records, others = [], []
    for path in sorted((setting.out / "records").glob("*.json")):
        record: StoredObject = json.loads(path.read_text(encoding="utf-8"))
        scored = record.get("asked", {})
        if record["arm"] and scored.get("weights") != weights.get(_stem(record), ""):
            others.append(path.stem)
        else:
            records.append(record)
    if not others:
        return records, []
    return records, [
        f"{len(others)} records are left out: of other weights than those in `{setting.zoo}`, or "
        f"of networks that are not there. {', '.join(others)}"
    ]


def _stem(record: StoredObject) -> str:
    parts = (record["network"], record["seed"], record["arm"], record["epoch"])
    return StoredNetwork(*parts).stem


def _differing(records: Iterable[StoredObject]) -> Iterator[str]:
    """A note for every suite whose networks were scored on different numbers of images."""
    numbers: dict[str, set[int]] = {}
    for record in records:
        if "images" in record.get("asked", {}):
            numbers.setdefault(record["suite"], set()).add(record["asked"]["images"])
    for suite, of in numbers.items():
        if len(of) > 1:
            yield f"The suite `{suite}` has records of {', '.join(map(str, sorted(of)))} images."


def _facts(network: StoredNetwork, setting: ScoringSetting) -> dict[str, object]:
    """The design of a network and what its training recorded."""
    design, kind = network.design, network.kind
    trained = json.loads((setting.zoo / f"{network.stem}.json").read_text(encoding="utf-8"))
    card = trained.get("card") or _card(setting.zoo / f"{network.stem}.card.json")
    return {
        "network": network.name, "seed": network.seed, "arm": network.arm, "epoch": network.epoch,
        "family": design.family, "depth": design.depth, "width": design.width,
        "norm": design.norm, "bias": design.bias, "receptive_field": design.receptive_field,
        "kind": kind.kind, "share": kind.share, "epochs": kind.epochs, "grid": kind.grid,
        "fill": kind.fill, "accuracy": trained.get("accuracy"), "card": card,
        "weights_hash": trained.get("weights_hash"),
    }  # fmt: skip


def _card(path: Path) -> Mapping[str, object] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _pairs(
    networks: Sequence[StoredNetwork], setting: ScoringSetting
) -> Iterator[dict[str, object]]:
    """Pairs of networks: base and tuned, base and placebo, two seeds, two architectures."""
    seen = {(n.name, n.seed, n.arm): n for n in networks if n.epoch is None}
    for (name, seed, arm), network in seen.items():
        if arm != "base":
            continue
        others = {
            "tuned": (name, seed, "tuned"),
            "placebo": (name, seed, "placebo"),
            "seed": (name, seed + 1, "base"),
        }
        one, other = CONVOLUTIONAL
        if name == one:
            others["architecture"] = (other, seed, "base")
        elif name == other:  # of the next seed, so that no pair counts twice
            others["architecture"] = (one, seed + 1 if (one, seed + 1, arm) in seen else 0, "base")
        for kind, place in others.items():
            if place in seen:
                looks = [load_file(seen_file(setting, n)) for n in (network, seen[place])]
                if len(looks[0]["right"]) == len(looks[1]["right"]):  # seen on the same images
                    about = {"kind": kind, "network": name, "other": place[0], "seed": seed}
                    yield {**about, **compare(*looks)}


def _overlap(
    networks: Mapping[str, Mapping[str, object]], pair: Mapping[str, object]
) -> object | None:
    """The overlap of the channels' top images of a pair, as the card of its network says."""
    arm = "placebo" if pair["kind"] == "placebo" else "tuned"
    card = networks.get(f"{pair['network']}-s{pair['seed']}-{arm}", {}).get("card")
    names = {"tuned": "overlap", "placebo": "overlap", "seed": "seeds_overlap"}
    name = names.get(str(pair["kind"]))
    return card.get(name) if isinstance(card, Mapping) and name else None
