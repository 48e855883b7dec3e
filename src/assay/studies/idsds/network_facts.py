r"""Describe the networks of a score table: accuracy, recipe, card and hash of each.

    python -m assay.studies.idsds.network_facts --zoo ZOO --table OUT/idsds_scores.parquet \
        --with results/zoo/networks.json --out results/zoo/networks.json

The facts come from the folder in which the networks were trained; of networks that the table keeps
of an older one, from the older description. Each must be of the weights that were scored.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from assay.errors import InputError, PrerequisiteError
from assay.store import StoredObject
from assay.studies.idsds.runs import StoredNetwork
from assay.studies.idsds.score_table import ScoreTable, read_scores

CURVES = ("losses", "painting_errors")  # one number for each epoch; left out


def stem_of(facts: StoredObject) -> str:
    """The stem of a network's files."""
    return StoredNetwork(facts["name"], facts["seed"], facts["arm"], facts.get("epoch")).stem


def trained_in(zoo: Path) -> Iterator[StoredObject]:
    """What was recorded of every network in a folder."""
    for path in sorted(zoo.glob("*.json")):
        if path.name.endswith(".card.json"):
            continue
        facts = json.loads(path.read_text(encoding="utf-8"))
        kept = {name: value for name, value in facts.items() if name not in CURVES}
        if "card" in kept:
            kept["card"] = {k: v for k, v in kept["card"].items() if k != "origin"}
        yield kept


def described_in(path: Path) -> Iterator[StoredObject]:
    """What an earlier description says about its networks."""
    described = json.loads(path.read_text(encoding="utf-8"))
    for facts in described["networks"]:
        yield {**facts, "pixels": described["pixels"][facts["pixels"]]}


def description(
    table: ScoreTable, trained: Mapping[str, StoredObject], older: Mapping[str, StoredObject]
) -> StoredObject:
    """The facts of all networks of a table, and the files of pixels they were trained on.

    Raises:
        InputError: A network is described nowhere, or only with other weights.
    """
    pixels: dict[str, int] = {}
    networks = []
    for stem, scored in sorted(table.networks.items()):
        facts = next(
            (
                source[stem]
                for source in (trained, older)
                if stem in source and source[stem]["weights_hash"] == scored.get("weights_hash")
            ),
            None,
        )
        if facts is None:
            raise InputError(
                f"Expected facts of `{stem}` with the weights {scored.get('weights_hash')} of the "
                f"table, found none. Give the folder in which it was trained, or with `--with` a "
                f"description that has it."
            )
        place = pixels.setdefault(facts["pixels"], len(pixels))
        networks.append({**facts, "pixels": place})
    return {"pixels": list(pixels), "networks": networks}


def write_description(described: StoredObject, path: Path) -> None:
    """One line for each network."""
    lines = ",\n".join(json.dumps(facts) for facts in described["networks"])
    pixels = json.dumps(described["pixels"], indent=1)
    path.write_text(f'{{"pixels": {pixels},\n "networks": [\n{lines}\n]}}\n', encoding="utf-8")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Describe the networks of a score table.")
    parser.add_argument("--zoo", type=Path, required=True, help="the trained networks")
    parser.add_argument("--table", type=Path, required=True, help="the scores")
    parser.add_argument("--with", dest="older", type=Path, help="an older description")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    trained = {stem_of(facts): facts for facts in trained_in(options.zoo)}
    older = {stem_of(f): f for f in described_in(options.older)} if options.older else {}
    try:
        write_description(description(read_scores(options.table), trained, older), options.out)
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")


if __name__ == "__main__":
    main()
