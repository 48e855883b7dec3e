"""Where the truth is known: soundness and completeness of maps that say too little or too much."""

import numpy as np
import pytest

from assay.ranking.reduce_soundness import at_level, soundness_curve
from assay.studies.soco import gaussian

# Completeness at thresholds .9 to .6, of an independent prototype on one draw.
EXPECTED = {
    "literal": {
        "truth": [0.29, 0.46, 0.66, 0.85],
        "remove": [0.20, 0.33, 0.51, 0.70],
        "introduce": [0.17, 0.24, 0.40, 0.62],
    },
    "clean": {
        "truth": [0.30, 0.46, 0.64, 0.82],
        "remove": [0.22, 0.33, 0.48, 0.65],
        "introduce": [0.57, 0.75, 0.90, 0.98],
    },
}


@pytest.fixture(scope="module", params=["literal", "clean"])
def found(request):
    return request.param, gaussian.trial(request.param, 1)


def test_completeness_is_the_prototypes(found):
    variant, trial = found
    for name, expected in EXPECTED[variant].items():
        assert trial.completeness[name][:4] == pytest.approx(expected, abs=0.05)


def test_soundness_tells_what_was_introduced(found):
    _, trial = found
    for level in (0.6, 0.7, 0.8, 0.9, 0.95):
        assert trial.sound_at("truth", level) == pytest.approx(1, abs=1e-9)
        assert trial.sound_at("remove", level) == pytest.approx(1, abs=1e-9)
    assert 0.5 < trial.sound_at("introduce", 0.95) < 0.95


def test_completeness_orders_the_maps_only_where_the_rest_is_inert(found):
    variant, trial = found
    fall = {name: values.mean() for name, values in trial.completeness.items()}
    assert fall["truth"] > fall["remove"] + 0.02
    if variant == "clean":
        assert fall["introduce"] > fall["truth"] + 0.02
    else:  # what is introduced speaks against the label, and to remove it helps
        assert fall["introduce"] < fall["truth"] - 0.02


def swept(x, y, values, random):
    """Accuracy and mass as features enter, what is absent drawn anew at every step."""
    features = x.shape[1]
    rank = np.argsort(np.argsort(-values, 1), 1)
    mass = np.pad(np.cumsum(np.sort(values, 1)[:, ::-1], 1), ((0, 0), (1, 0)))
    shares = np.array([0, *np.arange(2, 98) / 100, 1])
    kept = np.rint(shares * features).astype(int)
    correct = []
    for count in kept:
        seen = np.where(rank < count, x, random.standard_normal(x.shape))
        correct.append((seen[:, : features // 2].sum(1) > 0) == y)
    return {"correct": np.array(correct, float).T, "mass": mass[:, kept]}, shares


def test_with_noise_drawn_anew_soundness_is_the_prototypes():
    levels, values = (0.6, 0.7, 0.8, 0.9, 0.95), []
    for seed in range(5):
        _, x, y, maps = gaussian.draw("clean", seed)
        random = np.random.default_rng(100 + seed)
        curves, shares = swept(x.numpy(), y.numpy() == 1, maps["introduce"].numpy(), random)
        accuracy, sound = soundness_curve(curves, shares)
        values.append([at_level(accuracy, sound, level) for level in levels])
    assert np.mean(values, 0) == pytest.approx([1, 1, 0.74, 0.67, 0.62], abs=0.1)
