"""Halves of samples and the ceiling of agreement, by brute force and by simulation."""

import numpy as np
import pytest
import scipy

from assay.aggregation.image_halves import SampledScores, crossed_tau, half_signs
from assay.aggregation.noise_ceiling import noise_ceiling, spearman_brown
from assay.errors import InputError


def shared_noise(effects, noise, images, generator, shared=0.0):
    """Settings [n, N] that see the same images; `shared` is the part of noise that is equal."""
    methods = effects.shape[1]
    common = generator.normal(size=(methods, images))
    own = generator.normal(size=(len(effects), methods, images))
    errors = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
    return [SampledScores(e[:, None] + noise * x) for e, x in zip(effects, errors, strict=True)]


def test_halves_are_disjoint_in_groups_and_over_settings():
    label = np.repeat(np.arange(20), 2)
    marks = (label == np.arange(20)[:, None]).astype(float)  # method i marks label i
    moved = np.random.default_rng(0).permutation(40)
    settings = [SampledScores(marks, label), SampledScores(marks[:, moved], label[moved])]
    drawn = list(half_signs(settings, 5, 0))
    for first, second in drawn:
        assert (first == -second).all()  # a label is in one half, and not in the other
        assert (np.abs(first).sum(axis=1) == 10 * 10).all()  # the halves are equal
        assert (first[0] == first[1]).all()  # in both settings it is the same half
    assert len({first.tobytes() for first, _ in drawn}) == 5


def test_settings_that_share_some_samples_are_each_split_evenly():
    labels = [np.arange(20), np.arange(14, 34)]
    for seed in range(5):
        settings = [
            SampledScores((label == label[:, None]).astype(float), label) for label in labels
        ]
        for first, _ in half_signs(settings, 3, seed):
            assert (np.abs(first).sum(axis=1) == 10 * 10).all()


def test_shared_samples_are_never_on_both_sides():
    """Two settings with the same pure noise: their tau on disjoint halves is 0, not 1."""
    generator = np.random.default_rng(1)
    values = [generator.normal(size=(12, 400)) for _ in range(30)]
    tau = []
    for noise in values:
        pair = [SampledScores(noise), SampledScores(noise + 0.0)]
        tau.append(crossed_tau(half_signs(pair, 4, 0))[0, 1])
    assert abs(np.mean(tau)) < 0.1
    assert scipy.stats.kendalltau(*[v.mean(axis=1) for v in (values[0], values[0])])[0] > 0.99


def test_crossed_tau_is_the_mean_over_swaps_by_brute_force():
    generator = np.random.default_rng(2)
    settings = [SampledScores(generator.normal(size=(5, 30))) for _ in range(3)]
    halves = list(half_signs(settings, 4, 7))
    tau = crossed_tau(halves)
    for s in range(3):
        for t in range(3):
            expected = [
                scipy.stats.kendalltau(order(a[i]), order(b[j])).statistic
                for a, b in halves
                for i, j in ((s, t), (t, s))
            ]
            assert tau[s, t] == pytest.approx(np.mean(expected))


def order(signs, methods=5):
    """How many methods each one beats."""
    wins = np.zeros(methods)
    for sign, (a, b) in zip(signs, np.transpose(np.triu_indices(methods, 1)), strict=True):
        wins[a if sign > 0 else b] += 1
    return wins


def test_disattenuation_recovers_the_agreement_without_noise():
    """Noise lowers the raw agreement of two true orders, and the plain ratio is too high."""
    generator = np.random.default_rng(3)
    raw, ratio, corrected, truth = [], [], [], []
    for seed in range(60):
        common = generator.normal(size=20)
        effects = np.stack([common + 0.7 * generator.normal(size=20) for _ in range(2)])
        truth.append(scipy.stats.kendalltau(*effects).statistic)
        settings = shared_noise(effects, 5, 200, generator, shared=0.5)
        ceiling = noise_ceiling(settings, splits=20, seed=seed)
        raw.append(ceiling.between[0, 1])
        ratio.append(ceiling.ratio[0, 1])
        corrected.append(ceiling.disattenuated[0, 1])
    assert np.mean(raw) < np.mean(truth) - 0.05
    assert np.mean(ratio) > np.mean(truth) + 0.1
    assert np.mean(corrected) == pytest.approx(np.mean(truth), abs=0.04)


def test_noise_alone_is_not_measurable():
    generator = np.random.default_rng(4)
    effects = np.stack([np.zeros(10), np.arange(10.0)])
    ceiling = noise_ceiling(shared_noise(effects, 1, 200, generator), splits=50)
    assert abs(ceiling.half[0]) < 0.3
    assert ceiling.half[1] > 0.95
    assert np.isnan([ceiling.ratio[0], ceiling.disattenuated[0]]).all()
    assert ceiling.disattenuated[1, 1] == pytest.approx(1)


def test_full_size_by_spearman_brown():
    r = 0.5  # tau of r is 1 / 3; 2 r / (1 + r) is 2 / 3
    assert spearman_brown(np.array([1 / 3, 1, 0, -0.1])) == pytest.approx(
        [2 / np.pi * np.arcsin(2 * r / (1 + r)), 1, 0, np.nan], nan_ok=True
    )
    generator = np.random.default_rng(5)
    predicted, measured = [], []
    for _ in range(60):
        effects = generator.normal(size=(1, 30))
        small, large = (shared_noise(effects, 8, n, generator) for n in (200, 400))
        predicted.append(noise_ceiling(small, splits=10).full[0])
        measured.append(noise_ceiling(large, splits=10).half[0])
    assert np.mean(predicted) == pytest.approx(np.mean(measured), abs=0.03)


def test_missing_methods_and_samples():
    generator = np.random.default_rng(6)
    values = np.arange(5.0)[:, None] + 0.1 * generator.normal(size=(5, 60))
    holed = values.copy()
    holed[4] = np.nan
    holed[0, :10] = np.nan
    ceiling = noise_ceiling([SampledScores(values), SampledScores(holed)], splits=5)
    assert ceiling.between == pytest.approx(np.ones((2, 2)))
    holed[2:] = np.nan  # two methods are too few
    ceiling = noise_ceiling([SampledScores(values), SampledScores(holed)], splits=5)
    assert np.isnan(ceiling.between[:, 1]).all()


@pytest.mark.parametrize(
    ("values", "groups", "message"),
    [
        (np.ones(4), None, "shape"),
        (np.ones((3, 4)), [1, 2, 3], "one label per sample"),
        (np.full((3, 4), np.inf), None, "finite"),
    ],
)
def test_wrong_shapes(values, groups, message):
    with pytest.raises(InputError, match=message):
        SampledScores(values, groups)


def test_one_group_cannot_be_split():
    with pytest.raises(InputError, match="at least 2 groups"):
        noise_ceiling([SampledScores(np.ones((3, 4)), [1, 1, 1, 1])])
    with pytest.raises(InputError, match="same methods"):
        noise_ceiling([SampledScores(np.ones((3, 4))), SampledScores(np.ones((2, 4)))])
    with pytest.raises(InputError, match="least"):
        noise_ceiling([SampledScores(np.ones((3, 4)))], least=0)


def test_the_seed_decides():
    settings = [SampledScores(np.random.default_rng(0).normal(size=(8, 50)))]
    a, b, c = (noise_ceiling(settings, splits=5, seed=s).half[0] for s in (0, 0, 1))
    assert a == b != c
