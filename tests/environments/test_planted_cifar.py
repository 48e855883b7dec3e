"""Planted features on real images, lossless CIFAR-10, from training to scores."""

import time

import pytest

import assay
from beside import beside

METHODS = [
    "saliency", "input_x_gradient", "integrated_gradients", "smoothgrad", "guided_backprop",
    "gradcam", "deeplift", "occlusion", "rect", "pooling", "random",
]  # fmt: skip
PROTOCOLS = ["attribution_percent", "pointing_game", "synscore", "truth_precision", "truth_f1"]


@pytest.fixture
def photographs():
    """The first ten thousand training images; JPEG would show in what a network learns."""
    return beside("cifar10/cifar10_train_first10k_lossless.parquet")


def scored(env, methods, protocols):
    results = assay.benchmark(env.model, env.dataset, methods, protocols, progress=False)
    assert not results.failures
    return {(row["protocol"], row["method"]): row for row in results.leaderboard().rows}


def test_a_yellow_patch_on_photographs_is_used_and_found(photographs):
    base = {"parquet": {"path": str(photographs)}}
    env = assay.environment("yellow_patch", base=base, train=2000, epochs=2, samples=24)
    assert env.name == f"yellow_patch[base={photographs.stem},train=2000,samples=24]"
    proof = env.card["proof"]
    assert min(proof["planted"], proof["alone"], proof["moved"]) >= 0.9
    assert proof["changed"] >= 0.9
    found = scored(env, ["input_x_gradient", "rect", "constant"], ["synscore", "pointing_game"])
    assert found["synscore", "constant"]["mean"] == pytest.approx(81 / 1024)
    assert found["synscore", "input_x_gradient"]["mean"] > 0.5
    assert found["pointing_game", "input_x_gradient"]["mean"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "wins"),
    [
        ("yellow_patch", ("rect", "pooling")),
        ("number_watermark", ("rect", "pooling")),
        ("stripe_watermark", ("pooling", "rect")),
    ],
)
def test_ten_methods_are_scored_within_ten_minutes(name, wins, photographs):
    started = time.monotonic()
    env = assay.environment(name, base={"parquet": {"path": str(photographs)}})
    found = scored(env, METHODS, PROTOCOLS)
    assert time.monotonic() - started < 600
    better, worse = (found["attribution_percent", method]["mean"] for method in wins)
    assert better > worse + 0.2  # SoCo's Figure 2: each rival wins at home
    assert found["attribution_percent", "input_x_gradient"]["mean"] > 0.8
