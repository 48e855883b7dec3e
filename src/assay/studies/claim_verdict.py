"""One verdict for each claim, by a stated rule from the verdicts of its rows. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.studies.claim import (
    FAILS,
    HOLDS,
    NOT_CARRIED,
    NOT_RUN,
    NOT_TESTABLE,
    RUN_AGAIN,
    UNDECIDED,
    ClaimRow,
    again_text,
)

MIXED = "mixed"  # rows of one claim that are decided differently
RULE = (
    "Rows that are decided differently make the claim mixed. Otherwise, a row that is to be run "
    "again makes it to be run again, and an open row makes it undecided. If all rows agree, "
    "theirs is the verdict."
)
AGAINST = (FAILS, NOT_CARRIED)
DECIDED = (HOLDS, *AGAINST)
WEAKEST_FIRST = ("stand-in", "scaled", "exact")
WHERE = {
    "exact": "in the paper's setting",
    "scaled": "at another size",
    "stand-in": "on a stand-in",
}


@dataclass(frozen=True)
class ClaimVerdict:
    """What the rows of a claim say together.

    Attributes:
        claim: The claim's id.
        paper: The key of the paper.
        statement: The claim in one sentence.
        verdict: The verdict by `RULE`.
        setting: The setting of the rows, of several the one farthest from the paper's.
        why: The rows that decide otherwise, or why they decide nothing; empty where all agree.
        rows: The rows.
    """

    claim: str
    paper: str
    statement: str
    verdict: str
    setting: str
    why: str
    rows: tuple[ClaimRow, ...]

    @property
    def text(self) -> str:
        """The verdict with its setting, such as `holds on a stand-in`."""
        decided = self.verdict in (HOLDS, FAILS, UNDECIDED, MIXED)
        where = f" {WHERE[self.setting]}" if decided and self.setting else ""
        return f"{self.verdict}{where}"


def verdict_of(rows: Sequence[ClaimRow]) -> ClaimVerdict:
    """The verdict of one claim from its rows."""
    first = rows[0]
    verdict = _together([row.verdict for row in rows])
    settings = {row.setting for row in rows}
    setting = next((name for name in WEAKEST_FIRST if name in settings), "")
    why = _why(rows, verdict)
    return ClaimVerdict(
        first.claim, first.paper, first.statement, verdict, setting, why, tuple(rows)
    )


def verdicts_of(rows: Sequence[ClaimRow]) -> list[ClaimVerdict]:
    """One verdict for each claim, in the order of the rows."""
    claims = dict.fromkeys(row.claim for row in rows)
    return [verdict_of([row for row in rows if row.claim == claim]) for claim in claims]


def _together(verdicts: Sequence[str]) -> str:
    against = any(verdict in AGAINST for verdict in verdicts)
    if against and HOLDS in verdicts:
        return MIXED
    if RUN_AGAIN in verdicts:
        return RUN_AGAIN
    if len(set(verdicts)) == 1:
        return verdicts[0]
    if all(verdict in AGAINST for verdict in verdicts):
        return FAILS
    if set(verdicts) <= {NOT_RUN, NOT_TESTABLE}:
        return NOT_RUN
    return UNDECIDED


def _why(rows: Sequence[ClaimRow], verdict: str) -> str:
    """What a reader needs beyond the verdict: rows by name, or the reason of an open claim."""
    if verdict in (NOT_RUN, NOT_TESTABLE):
        return rows[0].note
    if len(rows) == 1:
        return again_text(rows[0])
    if len({row.verdict for row in rows}) == 1 and verdict != RUN_AGAIN:
        return ""
    return "; ".join(f"{_name(row)}: {_said(row)}" for row in rows)


def _name(row: ClaimRow) -> str:
    return row.id.partition("@")[2] or row.id


def _said(row: ClaimRow) -> str:
    return f"{row.verdict}, {again_text(row)}" if row.again else row.verdict
