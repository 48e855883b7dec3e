"""The test of trajectories: its level, its power, and its parts by brute force."""

import itertools

import numpy as np
import pytest
import scipy

from assay.aggregation.image_halves import SampledScores, crossed_tau, half_signs
from assay.aggregation.trajectories import CheckpointScores, trajectory_effect
from assay.errors import InputError


def simulated(generator, runs=4, times=3, methods=8, images=60, of_run=0.0, noise=1.0, shared=1.0):
    """Checkpoints whose methods have effects of the task, the run, and the checkpoint.

    All checkpoints see the same images, and half of the noise of an image is common to them.
    """
    task = shared * generator.normal(size=methods)
    of_image = generator.normal(size=(methods, images))
    checkpoints = []
    for run in range(runs):
        own = of_run * generator.normal(size=methods)
        for time in range(times):
            effect = task + own + 0.3 * generator.normal(size=methods)
            error = (of_image + generator.normal(size=(methods, images))) * noise
            checkpoints.append(CheckpointScores(f"seed {run}", time, effect[:, None] + error))
    return checkpoints


def test_level_of_the_test_without_an_effect():
    """Checkpoints of a time are exchangeable: p <= .05 happens in 5 % of 400 runs."""
    p, close = [], []
    for seed in range(400):
        checkpoints = simulated(np.random.default_rng(seed), noise=4.0)
        result = trajectory_effect(checkpoints, splits=3, permutations=999, seed=seed)
        p.append(result.overall.p)
        close.append(result.close.p)
    assert result.permutations == 24**2
    assert result.exhaustive
    for of in (p, close):
        of = np.array(of)[~np.isnan(of)]
        low, high = scipy.stats.binom.interval(0.998, len(of), 0.05)
        assert low <= (of <= 0.05).sum() <= high


def test_a_strong_effect_is_found():
    checkpoints = simulated(np.random.default_rng(0), of_run=2.0)
    result = trajectory_effect(checkpoints, splits=10, permutations=999)
    assert result.verdict == "trajectory effect"
    assert result.overall.p == pytest.approx(1 / 576)
    assert result.overall.difference > 0.2
    assert result.overall.within <= result.overall.ceiling + 0.05
    assert trajectory_effect(checkpoints, splits=10, between="final").overall.p < 0.05


def test_equal_images_alone_are_no_agreement():
    """Without true differences the common noise of images must not look like agreement."""
    generator = np.random.default_rng(1)
    between = []
    for _ in range(20):
        checkpoints = simulated(generator, shared=0.0, noise=10.0, runs=2)
        result = trajectory_effect(checkpoints, splits=5, permutations=999)
        between.append(result.overall.between)
    assert abs(np.mean(between)) < 0.15


def test_a_clear_order_is_trivially_consistent():
    checkpoints = simulated(np.random.default_rng(2), shared=100.0, noise=0.001, images=20)
    result = trajectory_effect(checkpoints, splits=3, permutations=999)
    assert min(result.overall.ceiling, result.overall.between) > 0.95
    assert result.verdict == "trivially consistent"


def test_little_noise_alone_is_not_trivial():
    checkpoints = simulated(np.random.default_rng(2), of_run=2.0, noise=0.001, images=20)
    result = trajectory_effect(checkpoints, splits=3, permutations=999)
    assert result.overall.ceiling > 0.95
    assert result.verdict == "trajectory effect"


def test_parts_by_brute_force_and_all_permutations():
    checkpoints = simulated(np.random.default_rng(3), runs=3, times=2, of_run=0.5)
    result = trajectory_effect(checkpoints, splits=4, permutations=999, seed=5)
    settings = [SampledScores(one.values) for one in checkpoints]
    tau = crossed_tau(half_signs(settings, 4, 5))

    def difference(second):  # checkpoint 2 r + t is that of run r at time t
        own = [tau[2 * r, 2 * second[r] + 1] for r in range(3)]
        others = [tau[2 * r, 2 * second[s] + 1] for r in range(3) for s in range(3) if r != s]
        return np.mean(own) - np.mean(others)

    assert result.overall.difference == pytest.approx(difference((0, 1, 2)))
    every = np.array([difference(second) for second in itertools.permutations(range(3))])
    assert result.overall.p == pytest.approx((every >= every[0] - 1e-12).mean())
    assert (result.permutations, result.exhaustive) == (6, True)
    assert result.verdict == "too few checkpoints to tell"
    assert result.overall.ceiling == pytest.approx(tau.diagonal().mean())
    final = trajectory_effect(checkpoints, splits=4, permutations=999, seed=5, between="final")
    assert final.overall.between == pytest.approx(np.mean([tau[1, 3], tau[1, 5], tau[3, 5]]))
    assert final.overall.within == pytest.approx(result.overall.within)


def test_random_permutations_count_the_observed_labels():
    checkpoints = simulated(np.random.default_rng(4), runs=4, times=5, of_run=1.0)
    result = trajectory_effect(checkpoints, splits=3, permutations=999)
    assert (result.permutations, result.exhaustive) == (1000, False)
    assert result.overall.p >= 1 / 1000
    again = trajectory_effect(checkpoints, splits=3, permutations=999)
    assert again == result


def test_close_pairs_agree_less():
    result = trajectory_effect(
        simulated(np.random.default_rng(5), methods=12), splits=10, permutations=999
    )
    assert result.close.within < result.overall.within
    assert result.close.ceiling < result.overall.ceiling


def test_missing_checkpoints():
    checkpoints = simulated(np.random.default_rng(6), of_run=2.0, times=4)
    ragged = [one for i, one in enumerate(checkpoints) if i not in (0, 7)]
    result = trajectory_effect(ragged, splits=5, permutations=999)
    assert result.verdict == "trajectory effect"
    alone = [*checkpoints, CheckpointScores("seed 0", 9.5, checkpoints[0].values)]
    without = trajectory_effect(checkpoints, splits=5, permutations=999)
    assert trajectory_effect(alone, splits=5, permutations=999).overall.difference == pytest.approx(
        without.overall.difference
    )


def test_groups_stay_together():
    """Copies of an image in both halves would make noise agree with itself."""
    generator = np.random.default_rng(7)
    checkpoints = simulated(generator, shared=0.0, of_run=0.0, noise=10, images=30)
    doubled = [CheckpointScores(c.trajectory, c.time, np.tile(c.values, 6)) for c in checkpoints]
    groups = np.tile(np.arange(30), 6)
    together = trajectory_effect(doubled, groups, splits=20, permutations=999)
    apart = trajectory_effect(doubled, splits=20, permutations=999)
    assert together.overall.ceiling < 0.35 < apart.overall.ceiling


def test_wrong_input():
    checkpoints = simulated(np.random.default_rng(8), runs=2)
    with pytest.raises(InputError, match="at least 999"):
        trajectory_effect(checkpoints, permutations=100)
    with pytest.raises(InputError, match="two trajectories"):
        trajectory_effect(checkpoints[:3])
    with pytest.raises(InputError, match="got two"):
        trajectory_effect([*checkpoints, checkpoints[0]])
    holed = checkpoints[0].values.copy()
    holed[2] = np.nan
    with pytest.raises(InputError, match="every method"):
        trajectory_effect([*checkpoints[1:], CheckpointScores("seed 0", 0, holed)])
