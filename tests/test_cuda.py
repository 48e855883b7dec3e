"""On a GPU the same suite gives the same answers, within rounding."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay.conformance.methods import WORLDS, explain
from assay.conformance.worlds import World
from assay.models.prepare import prepare_network
from assay.plugins import registry
from assay.types.random_numbers import Stream, drawn, drawn_elsewhere
from small_texts import bag_of_words, make_texts
from small_worlds import make_images, make_net

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

METHODS = [
    "saliency", {"integrated_gradients": {"steps": 8}}, "gradcam", "random", "edge", "centre",
    {"shuffled": {"of": "saliency"}}, "occlusion", {"rise": {"masks": 30, "side": 4}},
    {"vargrad": {"noise": {"samples": 4}}},
    {"occlusion": {"units": {"windows": {"sizes": [0.25], "stride": 0.125}}, "label": "sliding"}},
]  # fmt: skip
PROTOCOLS = [
    {"abpc": {"steps": 8, "fill": "mean"}}, {"abpc": {"steps": 8, "variant": "m4"}},
    {"insertion": {"steps": 8, "fill": {"blur": {"sigma": 2}}}}, "accuracy_morf", "single_deletion",
    {"sensitivity_n": {"subsets": 8, "fill": "uniform"}}, {"infidelity": {"stride": 0.125}},
    {"incremental_deletion": {"steps": 8, "attribution": "updated"}}, "sufficiency",
    {"faithfulness_correlation": {"subsets": 8}}, {"infidelity": {"variant": "captum"}},
]  # fmt: skip


def values(device: str) -> np.ndarray:
    results = assay.benchmark(
        make_net(), make_images(20), METHODS, PROTOCOLS, device=device, progress=False
    )
    assert not results.failures
    return results.scores["value"].to_numpy()


@pytest.mark.parametrize("normal", [False, True])
def test_random_numbers_are_those_of_the_cpu_bit_for_bit(normal):
    streams = [Stream.of("gpu", k) for k in range(5)]
    ours = drawn_elsewhere(streams, 100_003, torch.device("cuda"), normal=normal)
    assert torch.equal(ours.cpu(), drawn(streams, 100_003, torch.device("cpu"), normal=normal))


def test_scores_agree_with_the_cpu():
    cpu, gpu = values("cpu"), values("cuda")
    # Double networks would agree to the last digit; here a rank may move by one unit at a tie.
    # Captum's infidelity fits no scale, so its values are large: the error is relative above 1.
    apart = np.abs(cpu - gpu) / np.maximum(1, np.abs(cpu))
    assert np.nanmax(apart) < 0.05
    assert np.nanmean(apart) < 1e-4


def test_double_scores_agree_closely():
    scores = []
    for device in ("cpu", "cuda"):
        x, y = make_images(8)
        results = assay.benchmark(
            make_net().double(), (x.double(), y), METHODS, PROTOCOLS, device=device, progress=False
        )
        scores.append(results.scores["value"].to_numpy())
    apart = np.abs(scores[0] - scores[1]) / np.maximum(1, np.abs(scores[0]))
    assert np.nanmax(apart) < 1e-6


def test_texts_agree_with_the_cpu():
    """No word twice: it would tie with itself up to the last bit of a GPU's sum."""
    texts, labels = make_texts(12)
    texts = [" ".join(dict.fromkeys(text.split())) for text in texts]
    methods = ["input_x_gradient", "integrated_gradients", "occlusion", "random"]
    protocols = ["single_deletion", "deletion", "infidelity", {"sensitivity_n": {"fill": "mask"}}]
    scores = []
    for device in ("cpu", "cuda"):
        model = bag_of_words(torch.float64)
        results = assay.benchmark(
            model, (texts, labels), methods, protocols, device=device, progress=False
        )
        scores.append(results.scores["value"].to_numpy())
    assert np.nanmax(np.abs(scores[0] - scores[1])) < 1e-6


def test_explain_and_score_take_a_network_on_the_gpu():
    net, (x, y) = make_net().cuda(), make_images(4)
    maps = assay.explain(net, x, y, "integrated_gradients", steps=4)
    plain = assay.explain(make_net(), x, y, "integrated_gradients", steps=4)
    assert maps.cpu().numpy() == pytest.approx(plain.numpy(), abs=1e-3)
    assert torch.isfinite(assay.score(net, x, y, maps, "single_deletion")).all()


@pytest.mark.parametrize("shape", [(5, 3, 224, 224), (9, 1, 37, 61), (64, 3, 32, 32)])
def test_imputation_agrees_with_the_cpu_and_its_kernels_with_the_plain_steps(shape, monkeypatch):
    from assay.removal import multigrid, noisy_linear

    generator = torch.Generator().manual_seed(0)
    images = torch.randn(*shape, generator=generator)
    share = torch.linspace(0.02, 0.98, shape[0])[:, None, None]
    keep = torch.rand(shape[0], *shape[2:], generator=generator) > share
    keep[:, : shape[2] // 2, : shape[3] // 3] = False  # a hole
    exact = noisy_linear(images.double(), keep, noise=0, tol=1e-9)
    fused = noisy_linear(images.cuda(), keep.cuda(), noise=0)
    monkeypatch.setattr(multigrid, "_kind_of_level", lambda like: multigrid.Level)
    plain = noisy_linear(images.cuda(), keep.cuda(), noise=0)
    assert (plain.cpu() - exact).abs().max() < 1e-3
    assert (fused.cpu() - exact).abs().max() < 1e-3
    assert (fused - plain).abs().max() < 1e-5
    noisy = [noisy_linear(images.to(d), keep.to(d), seeds=3).cpu() for d in ("cpu", "cuda")]
    assert (noisy[0] - noisy[1]).abs().max() < 1e-3


def on(device: str, make_world) -> World:
    """A small world in double precision on a device."""
    world = make_world()
    world.model.net.to(device, torch.float64)
    batch = world.batch.to(torch.device(device))
    if batch.inputs.is_floating_point():
        batch = replace(batch, inputs=batch.inputs.double())
    with world.model.evaluating(), torch.no_grad():
        ready = prepare_network(world.model, batch.inputs[:1])
    return replace(world, ready=ready, batch=batch)


@pytest.mark.filterwarnings("ignore:The mean and spread of a layer")
@pytest.mark.parametrize(
    "name", [p.name for p in registry.everything("method") if not p.own and p.name != "maps"]
)
def test_every_method_gives_the_maps_of_the_cpu(name):
    tried = 0
    for make_world in WORLDS:
        try:
            cpu, gpu = (explain(on(d, make_world), name) for d in ("cpu", "cuda"))
        except assay.NotApplicable:
            continue
        tried += 1
        assert gpu.is_cuda
        assert (cpu - gpu.cpu()).abs().max() <= 1e-6 * cpu.abs().max().clamp(min=1e-9)
    assert tried
