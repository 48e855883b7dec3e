"""A ranking over settings in words: the answer, for which purpose, what would change it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import scipy

from assay.aggregation.merged_ranking import Ranking
from assay.aggregation.pair_verdicts import BETTER, EQUIVALENT, UNRESOLVED
from assay.aggregation.run_settings import RunSettings, protocol_rows
from assay.plugins.questions import QUESTIONS
from assay.ranking.answer_words import listed
from assay.ranking.partial_order import beats, unbeaten
from assay.ranking.resampling import Floats


def verdict(
    ranking: Ranking,
    has_level: bool,
    without: Mapping[str, Floats] | None,
    methods: Sequence[str],
) -> str:
    """The answer in one sentence."""
    top = [row for row in ranking.rows if row.place == 1]
    different = [row for row in top if not row.same_as]
    first, count = top[0].method, len({row.same_as or row.method for row in ranking.rows})
    names, where = listed([row.method for row in top]), _where(ranking)
    group = [row.p_best for row in top if first in (row.method, row.same_as)]
    known = [share for share in group if share is not None]
    chance = f" {first} is the best with probability {sum(known):.2f}." if known else ""
    if len(different) == count:
        return f"The {count} methods cannot be separated on {where}; {first} is first in the list."
    verb = "is first" if len(top) == 1 else "share the first place"
    if not has_level and len(ranking.tasks) > 1:
        stays = _stays(first, without, methods) if len(top) == 1 else ""
        return f"{names} {verb} of {count} methods on {where}, without a confidence level{stays}."
    return f"{names} {verb} of {count} methods on {where}.{chance}"


def _where(ranking: Ranking) -> str:
    tasks = len(ranking.tasks)
    if tasks == 1:
        return f"{ranking.tasks[0]} alone; other datasets may order them differently"
    sources = len(set(ranking.sources.values()))
    plural = "" if sources == 1 else "s"
    return f"{tasks} tasks" + (f" of {sources} source{plural}" if ranking.stated else "")


def _stays(first: str, without: Mapping[str, Floats] | None, methods: Sequence[str]) -> str:
    """Whether the first method stays so without each source."""
    if not without or any(len(one) != len(methods) for one in without.values()):
        return ""
    place = list(methods).index(first)
    changed = [source for source, one in without.items() if one[place] < one.max()]
    return f"; not without {listed(changed)}" if changed else "; it is first without any one"


def recommendation(ranking: Ranking, read: RunSettings) -> Iterator[str]:
    """What to use, for which purpose, what would change the answer, and what limits it."""
    yield from _undominated(read)
    yield from _purposes(read)
    yield from _cheap(ranking, read)
    yield from _changes(ranking)
    yield from _caveats(ranking, read)


def _undominated(read: RunSettings) -> Iterator[str]:
    """The methods that no other one dominates: higher under one question and lower under none."""
    questions = dict.fromkeys(row.question for row in read.rows)
    means = {question: _means(read, question) for question in questions}
    if len(means) < 2:
        return
    better = [np.nan_to_num(one[:, None] - one, nan=0.0) > 0 for one in means.values()]
    top = unbeaten(beats(better))
    names = [m for m, first in zip(read.methods, top, strict=True) if first]
    yield (
        f"Not dominated: {listed(names)}. No other method has a higher mean under one question and "
        f"a lower one under none ({', '.join(means)})."
    )


def _means(read: RunSettings, question: str) -> Floats:  # [n]
    """The mean of a question's rows, each less the mean of its methods; places without `random`."""
    rows = [row for row in read.rows if row.question == question and row.standard]
    rows = rows or [row for row in read.rows if row.question == question]
    table = np.array([[row.scores.get(m, np.nan) for m in read.methods] for row in rows])
    if not rows[0].standard:
        table = scipy.stats.rankdata(table, axis=1, nan_policy="omit")
    table = table - np.nanmean(table, axis=1, keepdims=True)
    there = ~np.isnan(table)
    total = np.where(there, table, 0.0).sum(axis=0)
    return np.where(there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan)


def _purposes(read: RunSettings) -> Iterator[str]:
    """The first method under each question, and under each protocol."""
    for question in dict.fromkeys(row.question for row in read.rows):
        means = _means(read, question)
        if not np.isnan(means).all():
            best = read.methods[int(np.nanargmax(means))]
            asked = QUESTIONS.get(question, "")
            yield f"{question}: {best} has the highest mean. {asked}".rstrip()
    first = _by_protocol(read)
    if len(first) > 1:
        cases = [f"{method} ({', '.join(where)})" for method, where in first.items()]
        yield f"First by mean place under single protocols: {'; '.join(cases)}."


def _by_protocol(read: RunSettings) -> dict[str, list[str]]:
    """The protocols under which each method has the best mean place over the settings."""
    places: dict[str, list[Floats]] = {}
    for row in protocol_rows(read):
        scores = np.array([row.scores.get(method, np.nan) for method in read.methods])
        place = scipy.stats.rankdata(-scores, nan_policy="omit")
        places.setdefault(row.protocols[0], []).append(place)
    first: dict[str, list[str]] = {}
    for protocol, several in places.items():
        table = np.array(several)
        there = ~np.isnan(table)
        mean = np.where(there, table, 0.0).sum(axis=0) / np.maximum(there.sum(axis=0), 1)
        best = int(np.argmin(np.where(there.any(axis=0), mean, np.inf)))
        first.setdefault(read.methods[best], []).append(protocol)
    return first


def _cheap(ranking: Ranking, read: RunSettings) -> Iterator[str]:
    """The cheapest of the methods in first place."""
    top = [row.method for row in ranking.rows if row.place == 1]
    costs = {m: read.passes[m] for m in top if m in read.passes}
    if len(top) > 1 and costs:
        cheapest = min(costs, key=lambda m: (costs[m], m))
        yield f"The cheapest in first place: {cheapest}, {costs[cheapest]:.0f} passes per sample."


def _changes(ranking: Ranking) -> Iterator[str]:
    """What would change the answer."""
    top = ranking.rows[0].method
    against = [pair for pair in ranking.pairs if top in (pair.first, pair.second)]
    open_pairs = [pair for pair in against if pair.verdict == UNRESOLVED]
    needed = [pair for pair in open_pairs if pair.tasks_needed is not None]
    if needed:
        one = min(needed, key=lambda pair: pair.tasks_needed or 0)
        other = one.second if one.first == top else one.first
        yield (
            f"About {one.tasks_needed} tasks would resolve {top} and {other}, at the present "
            f"difference and spread."
        )
    same = [p.second if p.first == top else p.first for p in against if p.verdict == EQUIVALENT]
    if same:
        yield f"Equivalent to {top} within the margin: {listed(same)}."
    clear = sum(pair.verdict == BETTER for pair in ranking.pairs)
    if ranking.pairs:
        yield f"Of {len(ranking.pairs)} pairs, {clear} are separated."
    different = [rule for rule, first in ranking.other_rules.items() if top not in first]
    if different:
        yield f"Other rules put another method first: {listed(different)}."
    elif ranking.other_rules:
        yield f"All {len(ranking.other_rules)} other rules put {top} first as well."


def _caveats(ranking: Ranking, read: RunSettings) -> Iterator[str]:
    """What limits the answer."""
    if ranking.stated and len(set(ranking.sources.values())) == 1 and len(ranking.tasks) > 1:
        yield f"All tasks come from {next(iter(ranking.sources.values()))}."
    partly = [row.method for row in ranking.rows if row.settings < len(read.rows)]
    if partly:
        yield f"Missing in some settings: {listed(partly)}."
    plain = [row for row in read.rows if not row.standard]
    if plain:
        use = "they do not count" if ranking.rule == "mixed" else "only their order counts"
        yield f"{len(plain)} of {len(read.rows)} rows have no control `random`: {use}."
