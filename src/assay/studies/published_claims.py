"""The papers whose claims are tested, and the published results in the package."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from types import ModuleType

from assay.errors import InputError, PrerequisiteError, unknown
from assay.studies.claim import Claim, ClaimRow, judge, open_row

# The key of a paper and the module that holds its claims.
PAPERS = {
    "m4": "assay.studies.m4.study",
    "idsds": "assay.studies.idsds.study",
    "soco": "assay.studies.soco.study",
    "attributionlab": "assay.studies.attributionlab.study",
    "metarank": "assay.studies.metarank.study",
}


def module_of(paper: str) -> ModuleType:
    """The module that holds a paper's claims."""
    if paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    return importlib.import_module(PAPERS[paper])


def claims_of(paper: str) -> tuple[Claim, ...]:
    """All claims of a paper, in the paper's order."""
    claims: tuple[Claim, ...] = module_of(paper).CLAIMS
    return claims


def chosen(name: str) -> tuple[str, list[Claim]]:
    """The paper and the claims that `soco` or `soco.12` names."""
    paper = name.partition(".")[0]
    claims = claims_of(paper)
    if name == paper:
        return paper, list(claims)
    matches = [claim for claim in claims if claim.id == name]
    if not matches:
        raise unknown("claim", name, [claim.id for claim in claims])
    return paper, matches


def published(paper: str) -> list[ClaimRow]:
    """The published rows of every claim of a paper; a claim that was not run has an open row."""
    if paper not in PAPERS:
        raise unknown("paper", paper, PAPERS)
    file = resources.files("assay") / "studies" / "published" / f"{paper}.json"
    stored = parse(file.read_text(encoding="utf-8"), file.name) if file.is_file() else []
    return complete(claims_of(paper), stored)


def complete(claims: Iterable[Claim], stored: Sequence[ClaimRow]) -> list[ClaimRow]:
    """Rows in the order of the claims; a claim without results gets an open row."""
    rows = []
    for claim in claims:
        mine = [row for row in stored if row.claim == claim.id]
        rows += mine or [open_row(claim)]
    return rows


def parse(text: str, where: str) -> list[ClaimRow]:
    """The rows in the text of a results file."""
    try:
        return [ClaimRow(**row) for row in json.loads(text)["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"Expected the rows of claims in `{where}`, got {type(error).__name__}: {error}. "
            f"Remove the file and run the claims again."
        ) from None


def write(paper: str, rows: Sequence[ClaimRow], folder: Path, about: Mapping[str, object]) -> Path:
    """Add rows to the results in a folder, judge all of them together, and write the file."""
    path = folder / f"{paper}.json"
    earlier = parse(path.read_text(encoding="utf-8"), str(path)) if path.exists() else []
    again, run = {row.id for row in rows}, {row.claim for row in rows}
    # A claim that was run on one network keeps its rows of other networks.
    now = {row.claim: row.definition for row in rows}
    others = [
        row
        for row in earlier
        if row.id not in again
        and (row.claim not in run or (row.n and row.definition == now[row.claim]))
    ]
    claims = claims_of(paper)
    order = {claim.id: place for place, claim in enumerate(claims)}
    judged = judge(sorted([*others, *rows], key=lambda row: order[row.claim]), claims)
    content = {"paper": paper, **about, "rows": [asdict(row) for row in judged]}
    part = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        part.replace(path)
    except OSError as error:
        raise PrerequisiteError(f"Cannot write `{path}`: {error.strerror or error}.") from None
    return path
