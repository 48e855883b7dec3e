"""A claim as stated before it is run, and how numbers become a verdict. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import scipy

from assay.errors import InputError
from assay.plugins.identity import DRAWS
from assay.ranking.orders import FEWEST_GROUPS
from assay.studies.effect import ALPHA as ALPHA
from assay.studies.effect import Direction as Direction
from assay.studies.effect import Effect as Effect
from assay.studies.effect import apart as apart
from assay.studies.effect import bootstrap as bootstrap
from assay.studies.effect import replicates as replicates

SettingKind = Literal["exact", "scaled", "stand-in"]

# The verdicts of a claim.
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"
NOT_CARRIED = "does not carry over"  # a failure on a stand-in
NOT_TESTABLE, NOT_RUN = "not testable here", "not run yet"
RUN_AGAIN = "to be run again"  # its command does not give this row, or it has too few units

COLUMNS = (
    "id", "paper", "statement", "setting", "value", "low", "high", "n", "verdict", "note",
    "claim", "unit", "stated_n", "size", "stated_size", "definition", "left_out", "source",
    "command", "draws", "again",
)  # fmt: skip


@dataclass(frozen=True)
class Claim:
    """A statement and the test that decides it, both fixed before anything is run.

    Attributes:
        id: Paper and number, `soco.12`.
        paper: The key of the paper.
        statement: The claim in one sentence.
        statistic: The number that decides.
        direction: Where it must lie for the claim to hold: `above` or `below` the margin, `within`
            plus or minus the margin, or `outside` of that.
        margin: The smallest effect that counts.
        unit: What is replicated: image, trial, network.
        n: How many of them are needed.
        row_units: What rows of parts of the claim may replicate instead.
        definition: Raised when the test changes; rows of an earlier test are to be run again.
        parts: For a claim with several parts, whether `all` must hold or `any` is enough.
        reason: Why it was not run, or cannot be decided here.
        testable: Whether it can be decided here.
    """

    id: str
    paper: str
    statement: str
    statistic: str = ""
    direction: Direction = "above"
    margin: float = 0.0
    unit: str = "image"
    n: int = 2000
    parts: Literal["all", "any"] = "all"
    reason: str = ""
    testable: bool = True
    row_units: tuple[str, ...] = ()
    definition: int = 1


@dataclass(frozen=True)
class ClaimRow:
    """The result of a claim in one setting.

    Attributes:
        id: The claim's id, with `@setting` where there are several rows of one claim.
        claim: The claim's id.
        paper: The key of the paper.
        statement: The claim in one sentence.
        setting: `exact`, `scaled` or `stand-in`; empty where nothing was run.
        value: The number that decides; of several parts, the least clear one.
        low: The lower end of its 95 % interval.
        high: The upper end.
        n: How many units it is based on.
        verdict: The verdict.
        note: What a reader must know about it.
        p_holds: Two-sided p-value against the opposite of the claim.
        p_fails: Two-sided p-value against the claim.
        needed: The standard error divided by the distance from the margin, by part.
        remedy: What would decide an undecided claim; shown at the end of the note.
        unit: What `n` counts.
        stated_n: How many of them the claim states.
        size: Pixels a side of the images; None without images.
        stated_size: Pixels a side that the command gives.
        definition: The claim's definition that was tested.
        left_out: Parts that the command runs and this row lacks.
        source: The file with measurements that the row is computed from, if it runs nothing itself.
        command: The command that gives the row again.
        draws: The version of the random numbers that it was made with.
        again: Why the row is to be run again: `n`, `unit`, `size`, `definition`, `left_out` or
            `draws`.
    """

    id: str
    claim: str
    paper: str
    statement: str
    setting: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    verdict: str = NOT_RUN
    note: str = ""
    p_holds: float | None = None
    p_fails: float | None = None
    needed: dict[str, float] | None = None
    remedy: str = ""
    unit: str = ""
    stated_n: int | None = None
    size: int | None = None
    stated_size: int | None = None
    definition: int = 1
    left_out: list[str] = field(default_factory=list)
    source: str = ""
    command: str = ""
    draws: int = 1
    again: list[str] = field(default_factory=list)

    def shown(self) -> dict[str, object]:
        """The columns of the table."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        return {**columns, "note": f"{self.note} {self.remedy}".strip()}


def make_row(
    claim: Claim, effects: Sequence[Effect], setting: SettingKind, where: str = "", note: str = ""
) -> ClaimRow:
    """A row without its verdict, which depends on the paper's other claims (see `judge`).

    A row with a part that was not tested names it and stays undecided.

    Raises:
        InputError: No part was tested.
    """
    effects = [
        replace(
            e,
            direction=e.direction or claim.direction,
            margin=claim.margin if e.margin is None else e.margin,
        )
        for e in effects
    ]
    missing = [f"{e.name}: {e.absent}" for e in effects if e.absent]
    effects = [e for e in effects if not e.absent]
    if not effects:
        raise InputError(f"Nothing of the claim was tested. {' '.join(missing)}".strip())
    tested = [p_values(e) for e in effects]
    holds, fails = ([t[i] for t in tested] for i in (0, 1))
    if (
        claim.parts == "all"
    ):  # the weakest part decides whether it holds; it fails if any part fails
        p_holds, p_fails = max(holds), min(1.0, len(fails) * min(fails))
        shown = effects[int(np.argmin(fails) if p_fails <= p_holds else np.argmax(holds))]
    else:
        p_holds, p_fails = min(1.0, len(holds) * min(holds)), max(fails)
        shown = effects[int(np.argmin(holds) if p_holds <= p_fails else np.argmax(fails))]
    low, high = shown.interval()
    listed = "; ".join(str(e) for e in effects) if len(effects) > 1 else ""
    untested = f"Not tested, so nothing is decided: {' '.join(missing)}" if missing else ""
    texts = (f"{shown.name}, {_where(shown)}", listed, untested, note)
    return ClaimRow(
        id=f"{claim.id}@{where}" if where else claim.id,
        claim=claim.id,
        paper=claim.paper,
        draws=DRAWS,
        statement=claim.statement,
        setting=setting,
        value=shown.value,
        low=low,
        high=high,
        n=shown.n,
        verdict=UNDECIDED,
        note=" ".join(f"{text.rstrip('.')}." for text in texts if text),
        p_holds=None if missing else p_holds,
        p_fails=None if missing else p_fails,
        # If any part is enough, the part that is shown decides.
        needed={e.name: _distance(e) for e in (effects if claim.parts == "all" else [shown])},
        unit=claim.unit,
        stated_n=claim.n,
        definition=claim.definition,
    )


def p_values(effect: Effect) -> tuple[float, float]:
    """Two-sided p-values: against the opposite of the claim, and against the claim itself.

    The first is at most 0.05 where the whole 95 % interval agrees with the claim, the second where
    the whole interval contradicts it.
    """
    margin = effect.margin or 0.0
    over, under = effect.tails(margin)  # p of "it is not above the margin", "... not below"
    if effect.direction == "above":
        return over, under
    if effect.direction == "below":
        return under, over
    over_low, under_low = effect.tails(-margin)
    within, outside = max(under, over_low), min(1.0, min(over, under_low))
    return (within, outside) if effect.direction == "within" else (outside, within)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, which keep the level of all tests together."""
    order = np.argsort(p, kind="stable")
    steps = [(len(p) - place) * p[i] for place, i in enumerate(order)]
    adjusted = np.minimum(1.0, np.maximum.accumulate(steps)) if steps else np.array([])
    in_order = np.empty(len(p))
    in_order[order] = adjusted
    return [float(value) for value in in_order]


def judge(rows: Sequence[ClaimRow], claims: Iterable[Claim] = ()) -> list[ClaimRow]:
    """The rows of one paper with verdicts; a decision must survive Holm's correction.

    A row that is to be run again decides nothing. It counts in the correction with a p-value of 1,
    so that no other claim is easier to decide because of it.
    """
    stated = {claim.id: claim for claim in claims}
    rows = [replace(row, again=why_again(row, stated.get(row.claim))) for row in rows]
    tested = [row for row in rows if row.p_holds is not None and row.p_fails is not None]
    least = [1.0 if r.again else min(r.p_holds or 0.0, r.p_fails or 0.0) for r in tested]
    adjusted = dict(zip((row.id for row in tested), holm(least), strict=True))
    return [_judged(row, adjusted.get(row.id), len(tested)) for row in rows]


def why_again(row: ClaimRow, claim: Claim | None = None) -> list[str]:
    """Why a row must be run again: its command would not give it, or it has too few units."""
    if row.n is None:
        return []
    units = {"", row.unit} if claim is None else {"", claim.unit, *claim.row_units}
    reasons = {
        "n": row.n < (row.stated_n or 0),
        "unit": row.unit not in units,
        "size": row.size != row.stated_size,
        "definition": claim is not None and row.definition != claim.definition,
        "left_out": bool(row.left_out),
        "draws": row.draws != DRAWS and not row.source,  # a source keeps what was measured
    }
    return [name for name, applies in reasons.items() if applies]


def again_text(row: ClaimRow) -> str:
    """The reasons why a row is to be run again, as text."""
    texts = {
        "n": f"n = {row.n or 0:,} instead of {row.stated_n or 0:,}",
        "unit": f"its units are {row.unit}",
        "size": f"images of {row.size} instead of {row.stated_size} pixels a side",
        "definition": "made by an earlier definition of the test",
        "draws": "made with random numbers of an earlier version",
        "left_out": f"without {', '.join(row.left_out)}",
    }
    return "; ".join(texts[reason] for reason in row.again)


def _judged(row: ClaimRow, adjusted: float | None, family: int) -> ClaimRow:
    if row.again:
        return replace(row, verdict=RUN_AGAIN, remedy=f"To be run again: {again_text(row)}.")
    if adjusted is None:
        return row
    holds = (row.p_holds or 0.0) <= (row.p_fails or 0.0)
    if adjusted <= ALPHA and (row.n or 0) >= FEWEST_GROUPS:
        failed = NOT_CARRIED if row.setting == "stand-in" else FAILS
        return replace(row, verdict=HOLDS if holds else failed, remedy="")
    alone = min(row.p_holds or 0.0, row.p_fails or 0.0) <= ALPHA
    why = "Decided alone, but not among all claims of the paper. " if alone else ""
    if (row.n or 0) < FEWEST_GROUPS:
        why = f"Nothing is decided by fewer than {FEWEST_GROUPS} units. "
    return replace(row, verdict=UNDECIDED, remedy=f"{why}{_needed(row, family)}")


def _needed(row: ClaimRow, family: int) -> str:
    """How many units would decide it, if the numbers stay the same."""
    ratios = [r for r in (row.needed or {}).values() if r > 0]
    if not row.n or any(math.isinf(r) for r in ratios):
        return "No number of units would decide it: the effect lies on the margin."
    quantile = _quantile(ALPHA / family, row.n)
    needed = math.ceil(row.n * (quantile * max(ratios, default=0.0)) ** 2)
    needed = max(needed, row.n + 1, FEWEST_GROUPS)
    return f"About n = {needed:,} would decide it."


def _distance(effect: Effect) -> float:
    """The standard error divided by the distance from the nearest margin."""
    margin = effect.margin or 0.0
    edges = [margin] if effect.direction in ("above", "below") else [margin, -margin]
    edge = min(edges, key=lambda edge: abs(effect.value - edge))
    nearest, error = abs(effect.value - edge), effect.error_at(edge)
    if error == 0:
        return 0.0
    return error / nearest if nearest > 0 else math.inf


def _quantile(alpha: float, n: int) -> float:
    return float(scipy.stats.t.isf(alpha / 2, n - 1))


def _where(effect: Effect) -> str:
    margin = f"{effect.margin or 0.0:g}"
    words = {"above": "above {}", "below": "below {}", "within": "within ±{}"}
    place = words.get(effect.direction or "above", "outside ±{}")
    return f"wanted {place.format(margin)}"


def open_row(claim: Claim, where: str = "", reason: str = "") -> ClaimRow:
    """The row of a claim, or of a part of it, that was not run, with the reason."""
    return ClaimRow(
        id=f"{claim.id}@{where}" if where else claim.id,
        claim=claim.id,
        paper=claim.paper,
        statement=claim.statement,
        unit=claim.unit,
        stated_n=claim.n,
        definition=claim.definition,
        verdict=NOT_RUN if claim.testable else NOT_TESTABLE,
        note=reason or claim.reason or f"`assay claims --run {claim.id}` runs it.",
    )
