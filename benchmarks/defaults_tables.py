"""The tables of the study of the defaults, and the choice by the rule written beforehand."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.defaults_scores import COMPARED, CURVES, SETS, candidates

Row = Mapping[str, Any]
Candidate = tuple[str, str]  # units and fill

# Shown, and not chosen: they need scikit-image, which is an extra.
NOT_ELIGIBLE = ("segments",)
CLOSE = 0.1  # a difference in the score that is decided by time
# What counts, by the kind of referee that measures it, and whether higher is better.
NUMBERS: tuple[tuple[str, str, int], ...] = (
    ("designed", "agreement", 1), ("trained", "agreement", 1), ("dose", "slope", 1),
)  # fmt: skip
FAMILIES: Mapping[str, Sequence[str]] = {
    "curves": CURVES,
    "single units": ("single_deletion",),
    "random sets": ("faithfulness_correlation",),
}


def page(found: Row) -> str:
    """All tables as Markdown."""
    lines = [f"# Candidates for the defaults\n\n{found['samples']} samples of every referee."]
    for family, protocols in FAMILIES.items():
        lines += [f"\n## {family}: {', '.join(protocols)}", *_family(found, protocols)]
    lines += ["\n## One choice for all families", *_together(found)]
    lines += ["\n## Do orders change with the units or the fill?", *_flips(found)]
    lines += ["\n## Filled pixels that a small network detects", *_detected(found["detected"])]
    lines += ["\n## Random sets: Monte-Carlo error", *_monte_carlo(found)]
    lines += ["\n## Referees", *_referees(found)]
    lines += ["\n## Texts and vectors", *_words(found["words"])]
    return "\n".join(lines) + "\n"


def scores(found: Row, half: str, protocols: Sequence[str]) -> dict[Candidate, float]:
    """The score of every candidate on a half: the mean of four standardised numbers."""
    names = candidates(protocols[0])
    parts: list[dict[Candidate, float]] = []
    for kind, number, sign in NUMBERS:
        parts += _over_referees(found, half, protocols, names, kind, number, sign)
    parts += _over_referees(found, half, protocols, names, "", "confound", -1)
    return {name: statistics.mean(part[name] for part in parts) for name in names}


def choice(found: Row, protocols: Sequence[str]) -> Candidate:
    """The candidate that the rule chooses on half A."""
    every = scores(found, "A", protocols)
    by_score = {name: score for name, score in every.items() if name[0] not in NOT_ELIGIBLE}
    best = max(by_score.values())
    close = [name for name, score in by_score.items() if score > best - CLOSE]
    seconds = {name: _mean(found, "A", protocols, name, "seconds") for name in close}
    return min(close, key=lambda name: seconds[name])


def _over_referees(
    found: Row, half: str, protocols: Sequence[str], names: Sequence[Candidate], kind: str,
    number: str, sign: int,
) -> list[dict[Candidate, float]]:  # fmt: skip
    """One number, standardised over the candidates in each referee and protocol, averaged."""
    parts = []
    for referee in found["referees"]:
        if referee["half"] != half or (kind and referee["kind"] != kind):
            continue
        for protocol in protocols:
            values = {name: sign * float(_row(referee, protocol, name)[number]) for name in names}
            middle, spread = statistics.mean(values.values()), statistics.pstdev(values.values())
            parts.append({n: (v - middle) / spread if spread else 0.0 for n, v in values.items()})
    if not parts:
        return []
    return [{name: statistics.mean(part[name] for part in parts) for name in names}]


def _row(referee: Row, protocol: str, name: Candidate) -> Row:
    for row in referee["rows"]:
        if row["protocol"] == protocol and (row["units"], row["fill"]) == name:
            found: Row = row
            return found
    raise KeyError(f"{referee['referee']}: no {protocol} with {name}")


def _mean(
    found: Row, half: str, protocols: Sequence[str], name: Candidate, number: str, kind: str = ""
) -> float:
    """A number's plain mean over the referees of a half that have it, and over protocols."""
    values = [
        float(_row(referee, protocol, name)[number])
        for referee in found["referees"]
        if referee["half"] == half and (not kind or referee["kind"] == kind)
        for protocol in protocols
    ]
    return statistics.mean(values) if values else float("nan")


def _family(found: Row, protocols: Sequence[str]) -> Iterator[str]:
    first, other = scores(found, "A", protocols), scores(found, "B", protocols)
    chosen = choice(found, protocols)
    yield f"Chosen on half A: **{chosen[0]}, {chosen[1]}**.\n"
    yield (
        "| units | fill | score A | score B | designed A / B | trained A / B | slope A / B "
        "| confound A / B | smoothness A / B | losing A / B | smallest dose A / B | ms A |"
    )
    yield "|---|---|" + "---|" * 10
    for name in sorted(first, key=lambda n: -first[n]):
        pairs = [
            _pair(found, protocols, name, "agreement", "designed"),
            _pair(found, protocols, name, "agreement", "trained"),
            _pair(found, protocols, name, "slope", "dose"),
            _pair(found, protocols, name, "confound"),
            _pair(found, protocols, name, "smoothness"),
            _pair(found, protocols, name, "losing"),
            _pair(found, protocols, name, "smallest_dose", "dose"),
        ]
        milliseconds = 1e3 * _mean(found, "A", protocols, name, "seconds")
        yield (
            f"| {name[0]} | {name[1]} | {first[name]:+.2f} | {other[name]:+.2f} | "
            f"{' | '.join(pairs)} | {milliseconds:.0f} |"
        )


def _together(found: Row) -> Iterator[str]:
    """The mean of the families' scores, for candidates that all of them have."""
    yield "| units | fill | score A | score B |"
    yield "|---|---|---|---|"
    halves = [[scores(found, half, protocols) for protocols in FAMILIES.values()] for half in "AB"]
    common = set.intersection(*(set(scored) for scored in halves[0]))
    means = {n: [statistics.mean(scored[n] for scored in half) for half in halves] for n in common}
    for name in sorted(means, key=lambda n: -means[n][0]):
        yield f"| {name[0]} | {name[1]} | {means[name][0]:+.2f} | {means[name][1]:+.2f} |"


def _pair(
    found: Row, protocols: Sequence[str], name: Candidate, number: str, kind: str = ""
) -> str:
    values = [_mean(found, half, protocols, name, number, kind) for half in "AB"]
    return " / ".join(f"{value:.2f}" for value in values)


def _flips(found: Row) -> Iterator[str]:
    """How often two maps change places between two candidates that differ in one thing."""
    yield "*Apart*: told apart by both. *Reversed*: in opposite ways. Deletion and insertion.\n"
    yield "| between | pairs | change places | apart | reversed |"
    yield "|---|---|---|---|---|"
    for what in COMPARED:
        rows = [
            row
            for referee in found["referees"]
            for row in referee["flips"]
            if row["between"] == what
        ]
        pairs, changed, apart, reverse = (
            sum(row[n] for row in rows) for n in ("pairs", "changed", "apart", "reversed")
        )
        yield (
            f"| {what} | {pairs} | {changed / pairs:.1%} | {apart} | "
            f"{reverse} ({reverse / max(1, apart):.1%}) |"
        )


def _detected(rows: Sequence[Row]) -> Iterator[str]:
    fills = list(dict.fromkeys(row["fill"] for row in rows))
    by_name = {(row["units"], row["fill"]): row["area"] for row in rows}
    yield f"| units | {' | '.join(fills)} |"
    yield "|---|" + "---|" * len(fills)
    for units in dict.fromkeys(row["units"] for row in rows):
        yield f"| {units} | {' | '.join(f'{by_name[units, fill]:.3f}' for fill in fills)} |"


def _monte_carlo(found: Row) -> Iterator[str]:
    yield f"{SETS} sets: the standard error of a sample's score by the draw, mean over referees.\n"
    yield "| units | fill | error |"
    yield "|---|---|---|"
    for name in candidates("faithfulness_correlation"):
        errors = [
            _row(referee, "faithfulness_correlation", name)["monte_carlo"]
            for referee in found["referees"]
        ]
        yield f"| {name[0]} | {name[1]} | {statistics.mean(errors):.3f} |"


def _referees(found: Row) -> Iterator[str]:
    yield "| referee | kind | half | samples | maps |"
    yield "|---|---|---|---|---|"
    for r in found["referees"]:
        yield f"| {r['referee']} | {r['kind']} | {r['half']} | {r['n']} | {len(r['maps'])} |"


def _words(rows: Sequence[Row]) -> Iterator[str]:
    yield "| data | fill | protocol | number | value | losing | n |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        number = "agreement" if "agreement" in row else "slope"
        yield (
            f"| {row['data']} | {row['fill']} | {row['protocol']} | {number} | {row[number]:.2f} | "
            f"{row['losing']:.2f} | {row['n']} |"
        )
