"""Rankings of scores that are means over replicates, on simulated retrainings with known truth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from assay.ranking import against, leaderboard, resolved
from assay.ranking.block_reading import read_blocks
from assay.ranking.blocks import Block, MethodScores
from assay.ranking.replicates import replicate_draws, replicate_means, too_few
from assay.ranking.trust import trust
from ranking.score_rows import arrow, row

Floats = NDArray[np.float64]

OPTIONS = {"resamples": 200}
ERROR = 0.1  # standard deviation of a method's score between samples, beyond what methods share
SPREAD = 0.05  # between retrainings: five times the standard error over 100 samples


def retrained(
    generator: np.random.Generator,
    *,
    means: Sequence[float] = (0.0,) * 4,
    retrainings: int = 5,
    samples: int = 100,
    spread: float | Sequence[float] = SPREAD,
    shared: float = 0.0,
) -> Floats:
    """Scores [R, n, m] of methods with known means.

    `spread` is the standard deviation between retrainings of each method by itself, `shared` that
    of what all methods of one retraining have in common.
    """
    methods = len(means)
    of_seed = shared * generator.normal(size=(retrainings, 1))
    of_training = (
        np.asarray(means) + of_seed + spread * generator.normal(size=(retrainings, methods))
    )
    of_sample = 0.3 * generator.normal(size=(samples, 1))
    of_map = ERROR * generator.normal(size=(samples, methods))
    return of_training[:, None, :] + (of_sample + of_map)[None]


def block_of(values: Floats, *, replicated: bool = True) -> Block:
    """A block of methods `m0`, `m1`, ... with these scores [R, n, m]."""
    names = [f"s{i}" for i in range(values.shape[1])]

    methods = [
        MethodScores(
            f"m{j}", "{}", "ok", names, values[:, :, j].mean(0), 0, 0,
            replicates={
                (0, f"retraining_{r}"): values[r, :, j] for r in range(len(values))
            } if replicated else {},
        )
        for j in range(values.shape[2])
    ]  # fmt: skip
    return Block("d", "net", "", "roar", "{}", "accuracy", True, names, names, methods)


def wrong_share(trials: int, *, replicated: bool = True, seed: int = 0, **design: object) -> float:
    """The share of runs in which any pair of methods of equal value is declared different."""
    generator = np.random.default_rng(seed)
    wrong = 0
    for _ in range(trials):
        block = block_of(retrained(generator, **design), replicated=replicated)
        differences = block.differences(block.methods, OPTIONS)
        wrong += bool(resolved(differences, higher_is_better=True).any())
    return wrong / trials


NOMINAL = 0.05
DESIGNS = {
    "nothing shared by a seed": {},
    "much shared by a seed": {"shared": 0.2},
    "unequal spreads": {"spread": (0.0, 0.0, 0.05, 0.15)},
    "no spread": {"spread": 0.0},
    "8 retrainings of 2 methods": {"retrainings": 8, "means": (0.0, 0.0)},
}


@pytest.mark.parametrize("design", DESIGNS)
def test_noise_between_retrainings_is_ranked_at_most_as_often_as_stated(design: str) -> None:
    trials = 800
    most = stats.binom.ppf(0.995, trials, NOMINAL) / trials  # with Monte-Carlo error: 7.1 %
    assert wrong_share(trials, **DESIGNS[design]) <= most


def test_intervals_over_samples_alone_rank_noise() -> None:
    """What the test above would find without the spread between retrainings."""
    assert wrong_share(100, replicated=False) > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("methods", [2, 4, 10])
@pytest.mark.parametrize("retrainings", [5, 10])
@pytest.mark.parametrize("shared", [0.0, 0.2])
@pytest.mark.parametrize("spread", [0.01, 0.05])
def test_noise_in_many_runs(methods: int, retrainings: int, shared: float, spread: float) -> None:
    trials = 1500
    most = stats.binom.ppf(0.995, trials, NOMINAL) / trials
    design = {"means": (0.0,) * methods, "retrainings": retrainings}
    assert wrong_share(trials, seed=1, shared=shared, spread=spread, **design) <= most


def test_a_difference_beyond_the_spread_is_found() -> None:
    """The half-width for 4 methods and 5 retrainings is about 2.1 spreads of a difference."""
    generator, found = np.random.default_rng(2), 0
    gap = 6 * SPREAD * 2**0.5
    for _ in range(100):
        block = block_of(retrained(generator, means=(0.0, 0.0, 0.0, gap)))
        better = resolved(block.differences(block.methods, OPTIONS), higher_is_better=True)
        found += bool(better[3, :3].all())
    assert found >= 95


def test_pairs_find_what_retrainings_share() -> None:
    """Methods that move together by seed are separated by less than the seeds differ."""
    generator = np.random.default_rng(3)
    values = retrained(generator, means=(0.0, 0.1), spread=0.002, shared=0.2)
    block = block_of(values)
    assert resolved(block.differences(block.methods, OPTIONS), higher_is_better=True)[1, 0]
    assert block.intervals(OPTIONS)["m0"].high > 0.1  # alone it is not known so well


@pytest.mark.parametrize("spread", [0.0, SPREAD])
def test_an_interval_of_one_method_covers_its_mean(spread: float) -> None:
    generator, hits, trials = np.random.default_rng(4), 0, 200
    for _ in range(trials):
        block = block_of(retrained(generator, means=(0.0,), spread=spread))
        interval = block.intervals(OPTIONS)["m0"]
        hits += interval.low <= 0 <= interval.high
    assert hits / trials >= stats.binom.ppf(0.005, trials, 1 - NOMINAL) / trials


def test_two_methods_alone_are_students_test_where_samples_agree() -> None:
    """Without an error over samples the interval is that of scipy's paired t-test."""
    generator = np.random.default_rng(5)
    each = generator.normal(size=(5, 2))
    values = np.repeat(each[:, None, :], 30, axis=1)
    block = block_of(values)
    test = stats.ttest_rel(each[:, 0], each[:, 1]).confidence_interval(0.95)
    for low, high in (
        (lambda d: (d.low[0, 1], d.high[0, 1]))(block.differences(block.methods, OPTIONS)),
        (lambda i: (i.low, i.high))(block.gaps([tuple(block.methods)], OPTIONS)[0]),
    ):
        assert (low, high) == pytest.approx((test.low, test.high))


def test_equal_networks_differ_by_exactly_nothing() -> None:
    values = retrained(np.random.default_rng(6), means=(0.0, 0.5))[:, :, [0, 0, 1]]
    differences = block_of(values).differences(block_of(values).methods, OPTIONS)
    assert differences.low[0, 1] == differences.high[0, 1] == 0.0


# --- from a table of scores to ranks --------------------------------------------------------------


def table_of(values: Floats, *, status: str = "ok", protocol: str = "roar", seed: int = 0):
    """Rows of methods `m0`, `m1`, ... with these scores [R, n, m]."""
    lines = []
    for j in range(values.shape[2]):
        for i in range(values.shape[1]):
            fields = {
                "method": f"m{j}", "sample": f"s{i:03d}", "protocol": protocol, "status": status,
                "seed": seed,
            }  # fmt: skip
            lines.append(row(value=float(values[:, i, j].mean()), metric="accuracy", **fields))
            lines += [
                row(value=float(v), metric=f"retraining_{r}", headline=False, **fields)
                for r, v in enumerate(values[:, i, j])
            ]
    return lines


def names(retrainings: int) -> list[str]:
    return [f"retraining_{r}" for r in range(retrainings)]


def test_ranks_need_five_replicates() -> None:
    means = (0.0, 0.0, 2.0)
    for retrainings, ranks in ((4, {None}), (5, {1, 2})):
        values = retrained(np.random.default_rng(7), means=means, retrainings=retrainings)
        board = leaderboard(
            arrow(table_of(values)), controls={}, replicates={"roar": names(retrainings)}, **OPTIONS
        )
        assert {line.rank for line in board.by_protocol} == ranks
        assert all(line.low is not None for line in board.by_protocol)
    assert "at least 5" in too_few(names(4))
    assert "samples only" in too_few(names(1))
    assert too_few(names(5)) == too_few([]) == ""


def test_one_replicate_separates_no_methods() -> None:
    values = retrained(np.random.default_rng(7), means=(0.0, 2.0), retrainings=1)
    table = arrow(table_of(values, status="shown"))
    (line,) = against(table, "m0", replicates={"roar": names(1)}, **OPTIONS)
    assert line.verdict == "unclear"
    (line,) = against(table, "m0", **OPTIONS)  # by samples alone it would be
    assert line.verdict == "above"


def test_seeds_of_the_run_add_replicates() -> None:
    generator = np.random.default_rng(8)
    first, second = (retrained(generator, means=(0.0, 0.4)) for _ in range(2))
    both = [*table_of(first), *table_of(second, seed=1)]
    (block,) = read_blocks(arrow(both), replicates={"roar": names(5)})
    means = block.replicate_means(block.methods, block.common)
    assert means == pytest.approx(np.concatenate([first.mean(1), second.mean(1)]))


def test_methods_without_information_are_not_ranked_alone() -> None:
    """A constant control is marked degenerate, also where the protocol ranks no method."""
    values = retrained(np.random.default_rng(9), means=(0.0, 0.0, 0.0), retrainings=2)
    lines = table_of(values, status="shown")
    lines = [{**r, "status": "degenerate"} if r["method"] == "m0" else r for r in lines]
    for replicates in ({}, {"roar": names(2)}):
        board = leaderboard(arrow(lines), controls={}, replicates=replicates, **OPTIONS)
        assert {line.rank for line in board.by_protocol} == {None}
        assert not board.over_protocols


def test_samples_that_a_replicate_lacks_count_for_none() -> None:
    a = {(0, "x"): np.array([1.0, 3.0]), (0, "y"): np.array([5.0, np.nan])}
    b = {(0, "y"): np.array([2.0, 9.0]), (0, "x"): np.array([4.0, 9.0])}
    assert replicate_means([a, b], np.arange(2)).tolist() == [[1.0, 4.0], [5.0, 2.0]]
    assert replicate_means([a], np.array([1])).shape == (0, 1)


# --- draws for overall orders ---------------------------------------------------------------------


def test_draws_are_students() -> None:
    means = np.random.default_rng(10).normal(size=(5, 2))
    draws = replicate_draws(means, 40_000, 0)
    error = means.std(axis=0, ddof=1) / 5**0.5
    for column, scale in zip(draws.T, error, strict=True):
        ends = np.quantile(column, [0.025, 0.975])
        assert ends == pytest.approx(stats.t.ppf([0.025, 0.975], 4) * scale, rel=0.05)
    apart = draws[:, 0] - draws[:, 1]
    paired = (means[:, 0] - means[:, 1]).std(ddof=1) / 5**0.5
    assert np.quantile(apart, 0.975) == pytest.approx(stats.t.ppf(0.975, 4) * paired, rel=0.05)


def test_the_overall_list_contains_the_spread() -> None:
    """Retrainings differ more than samples: five of them separate as Student's test does."""
    verdicts = set()
    for seed, gap in enumerate((0.3, 0.3, 0.3, 0.6, 1.0, 1.5)):
        generator = np.random.default_rng(seed)
        values = retrained(generator, means=(0.0, gap), samples=400, spread=0.3)
        lines = [{**r, "method": {"m0": "random"}.get(r["method"], "m1")} for r in table_of(values)]
        options = {"controls": {"random": "random"}, "resamples": 4000}
        by_samples = leaderboard(arrow(lines), **options)
        by_both = leaderboard(arrow(lines), replicates={"roar": names(5)}, **options)
        unit = values.mean(0)[:, 0].std(ddof=1)
        apart = (values[:, :, 1] - values[:, :, 0]).mean(1) / unit
        row = next(r for r in by_both.over_protocols if r.method == "m1")
        assert row.difference == pytest.approx(apart.mean())
        half = stats.t.ppf(0.975, 4) * apart.std(ddof=1) / 5**0.5
        assert half < row.high - row.difference < 1.1 * half  # the samples' own spread is small
        assert not by_samples.answers[0].not_above
        t = apart.mean() / (apart.std(ddof=1) / 5**0.5)
        critical = stats.t.ppf(0.975, 4)
        if not 0.9 < t / critical < 1.1:  # the samples' own spread is small
            assert (not by_both.answers[0].not_above) == (t > critical)
            verdicts.add(t > critical)
    assert verdicts == {False, True}


def test_trust_contains_the_spread() -> None:
    """Noise between retrainings makes the agreement with the truth less certain."""
    true = np.linspace(0, 1, 6)
    generator = np.random.default_rng(12)
    truth = retrained(generator, means=true, spread=0.0, retrainings=1)
    noisy = retrained(generator, means=0.3 * true, spread=0.15)
    lines = [*table_of(truth, protocol="truth"), *table_of(noisy)]
    lines = [r for r in lines if r["headline"] or r["protocol"] == "roar"]
    widths = []
    for replicates in ({}, {"roar": names(5)}):
        (line,) = trust(arrow(lines), "truth", ["roar"], replicates=replicates, resamples=500)
        widths.append(line.high - line.low)
    assert widths[1] > widths[0] + 0.1
