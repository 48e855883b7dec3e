"""Noisy linear imputation against a direct sparse solve, closed forms and its own promises."""

import sys

import numpy as np
import pytest
import torch
from benchmarks.sparse_imputation import impute

import assay
from assay.errors import InputError, NotApplicable
from assay.plan.timing import Seconds
from assay.removal import make_removal, multigrid, noisy_linear
from assay.removal.imputation import NoisyLinear
from assay.removal.multigrid import Multigrid
from assay.run import dry_run, run
from assay.suite.spec import make_suite
from assay.types import Sample
from small_worlds import make_images, make_net


def blobs(shape, share, generator):
    """The highest share of a coarse random map, enlarged."""
    coarse = torch.rand(1, 1, 4, 4, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, shape, mode="bilinear")[0, 0]
    return smooth > smooth.flatten().sort().values[int(share * (smooth.numel() - 1))]


def checkerboard(shape, share, generator):
    y, x = torch.meshgrid(*(torch.arange(n) for n in shape), indexing="ij")
    return (y + x) % 2 == 0


def rim(shape, share, generator):
    """Only the border is known, or all but it."""
    inner = torch.zeros(shape, dtype=torch.bool)
    inner[1:-1, 1:-1] = True
    return inner if share < 0.5 else ~inner


def isolated(shape, share, generator):
    """One known pixel, somewhere."""
    keep = torch.zeros(shape, dtype=torch.bool)
    keep.view(-1)[int(torch.randint(keep.numel(), (1,), generator=generator))] = True
    return keep


def scattered(shape, share, generator):
    return torch.rand(shape, generator=generator) > share


KINDS = {0: scattered, 1: blobs, 2: scattered, 3: checkerboard, 4: rim, 5: isolated}


def cases():
    """220 masks: every density, every kind, sizes from 7 x 13 to 256 x 256, 1 to 8 channels."""
    generator = torch.Generator().manual_seed(0)
    for number in range(220):
        share = (1 + number % 99) / 100
        height, width = (int(torch.randint(7, 72, (1,), generator=generator)) for _ in range(2))
        if number == 0:
            height, width = 7, 13
        if number % 55 == 54:
            height, width = (256, 256) if number % 2 else (224, 160)
        kind = KINDS[number % 6] if number >= 99 else scattered
        channels = 1 + number % 8 if height * width < 10_000 else 1
        image = 3 * torch.randn(1, channels, height, width, generator=generator)
        keep = kind((height, width), share, generator)[None]
        if keep.any():
            yield number, image, keep


@pytest.mark.parametrize("part", range(4))
def test_agrees_with_a_direct_sparse_solve(part):
    tried = 0
    for number, image, keep in cases():
        if number % 4 != part:
            continue
        exact = impute(image[0].double().numpy(), keep[0].numpy())
        single = noisy_linear(image, keep, noise=0)[0].numpy()
        double = noisy_linear(image.double(), keep, noise=0, tol=1e-8)[0].numpy()
        assert np.abs(single - exact).max() < 1e-4, (number, image.shape)
        assert np.abs(double - exact).max() < 1e-8, (number, image.shape)
        tried += 1
    assert tried >= 50


def test_borders_weigh_two_thirds_and_corners_five_twelfths():
    """T8 of ROAD's specification: one unknown pixel is the weighted mean of what surrounds it."""
    image = torch.randn(1, 1, 5, 5, dtype=torch.float64)
    for y, x in ((0, 0), (0, 2), (2, 2)):
        keep = torch.ones(1, 5, 5, dtype=torch.bool)
        keep[0, y, x] = False
        around = {
            (dy, dx): 1 / 6 if 0 in (dy, dx) else 1 / 12
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
            if (dy, dx) != (0, 0) and 0 <= y + dy < 5 and 0 <= x + dx < 5
        }
        weight = {(0, 0): 5 / 12, (0, 2): 2 / 3, (2, 2): 1.0}[y, x]
        assert sum(around.values()) == pytest.approx(weight)
        mean = sum(w * image[0, 0, y + dy, x + dx] for (dy, dx), w in around.items()) / weight
        filled = noisy_linear(image, keep, noise=0, tol=1e-9)
        assert float(filled[0, 0, y, x]) == pytest.approx(float(mean), abs=1e-9)


def test_constants_are_kept_everywhere_and_ramps_inside():
    generator = torch.Generator().manual_seed(1)
    keep = torch.rand(3, 20, 17, generator=generator) > 0.6
    flat = torch.full((3, 2, 20, 17), 1.5, dtype=torch.float64)
    assert noisy_linear(flat, keep, noise=0, tol=1e-8) == pytest.approx(flat, abs=1e-8)
    y, x = torch.meshgrid(torch.arange(20).double(), torch.arange(17).double(), indexing="ij")
    ramp = (0.1 * y - 0.2 * x).expand(3, 1, -1, -1)
    keep[:, 0] = keep[:, -1] = keep[:, :, 0] = keep[:, :, -1] = True
    assert noisy_linear(ramp, keep, noise=0, tol=1e-8) == pytest.approx(ramp, abs=1e-8)
    keep[:, 0] = False
    assert (noisy_linear(ramp, keep, noise=0, tol=1e-8) - ramp).abs().max() > 0.01


def test_nothing_masked_is_the_image_itself_and_everything_masked_is_noise_around_zero():
    image = torch.randn(2, 3, 9, 9)
    keep = torch.stack([torch.ones(9, 9), torch.zeros(9, 9)]).bool()
    filled = noisy_linear(image, keep, noise=0.1)
    assert torch.equal(filled[0], image[0])
    assert torch.isfinite(filled[1]).all()
    assert 0.07 < float(filled[1].std()) < 0.13
    assert torch.equal(noisy_linear(image, keep, noise=0)[1], torch.zeros(3, 9, 9))


def test_noise_lies_on_unknown_pixels_only_and_is_one_field_per_seed():
    image = torch.randn(1, 3, 16, 16).expand(3, -1, -1, -1)
    keep = torch.rand(3, 16, 16) > torch.tensor([0.2, 0.5, 0.9])[:, None, None]
    plain, noisy = (noisy_linear(image, keep, noise=n, seeds=[4, 4, 5]) for n in (0, 0.2))
    added = noisy - plain
    assert not added[keep[:, None].expand_as(added)].any()
    both = ~keep[0] & ~keep[1]
    assert torch.allclose(added[0][:, both], added[1][:, both], atol=1e-5)
    assert not torch.allclose(added[0][:, ~keep[0] & ~keep[2]], added[2][:, ~keep[0] & ~keep[2]])
    assert torch.equal(noisy, noisy_linear(image, keep, noise=0.2, seeds=[4, 4, 5]))
    alone = noisy_linear(image[:1], keep[:1], seeds=3)
    assert torch.equal(alone, noisy_linear(image, keep, seeds=3)[:1])


def test_an_image_does_not_depend_on_its_neighbours():
    images = torch.randn(40, 3, 32, 32)
    keep = torch.rand(40, 32, 32) > torch.linspace(0.05, 0.99, 40)[:, None, None]
    together = noisy_linear(images, keep, noise=0)
    shuffled = torch.randperm(40)
    assert torch.equal(noisy_linear(images[shuffled], keep[shuffled], noise=0), together[shuffled])
    halves = [noisy_linear(images[a:b], keep[a:b], noise=0) for a, b in ((0, 7), (7, 40))]
    assert torch.equal(torch.cat(halves), together)
    one = [noisy_linear(images[i : i + 1], keep[i : i + 1], noise=0) for i in range(40)]
    assert torch.equal(torch.cat(one), together)


def test_memory_is_bounded(monkeypatch):
    """However many images come, only so many numbers are solved at once."""
    sizes = []
    solve = Multigrid.solve
    monkeypatch.setattr(
        Multigrid, "solve", lambda s, i, k, t: sizes.append(i.numel()) or solve(s, i, k, t)
    )
    noisy_linear(torch.randn(300, 3, 32, 32), torch.rand(300, 32, 32) > 0.5)
    assert len(sizes) > 1
    assert max(sizes) <= 200_000


def test_half_precision_comes_back_as_it_was():
    filled = noisy_linear(torch.randn(1, 3, 8, 8).half(), torch.rand(1, 8, 8) > 0.5)
    assert filled.dtype == torch.float16
    assert torch.isfinite(filled).all()


def test_a_tolerance_beyond_single_precision_is_reached_in_double():
    image, keep = torch.randn(1, 1, 64, 64), torch.rand(1, 64, 64) > 0.9
    exact = impute(image[0].double().numpy(), keep[0].numpy())
    found = noisy_linear(image, keep, noise=0, tol=1e-6)
    assert found.dtype == torch.float32
    assert np.abs(found[0].numpy() - exact).max() < 1e-6
    large = 255 * image  # in such units even the usual tolerance is beyond it
    exact = impute(large[0].double().numpy(), keep[0].numpy())
    assert np.abs(noisy_linear(large, keep, noise=0)[0].numpy() - exact).max() < 1e-4


IMAGE, KEEP = torch.zeros(2, 3, 8, 8), torch.ones(2, 8, 8, dtype=torch.bool)
BAD = {
    "mask of another size": (
        (IMAGE, KEEP[:, :4]),
        {},
        r"Expected `keep` to have shape \(2, 8, 8\), one mask for each image, got \(2, 4, 8\)",
    ),
    "mask for one image only": ((IMAGE, KEEP[:1]), {}, r"got \(1, 8, 8\)"),
    "mask of numbers": ((IMAGE, KEEP.float()), {}, "bool mask.*got torch.float32.*mask > 0.5"),
    "NaN": ((IMAGE.clone().index_fill_(0, torch.tensor(1), torch.nan), KEEP), {}, "in image 1"),
    "bytes": ((IMAGE.byte(), KEEP), {}, "numbers .*got torch.uint8"),
    "one image": ((IMAGE[0], KEEP[0]), {}, r"\[N, C, H, W\]"),
    "noise": ((IMAGE, KEEP), {"noise": -1}, "`noise` to be at least 0, got -1"),
    "tolerance": ((IMAGE + 1, KEEP), {"tol": 0}, "`tol` to be above 1e-12"),
    "seeds": ((IMAGE, KEEP), {"seeds": [1]}, "one seed for each of 2 images, got 1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_named(what):
    arguments, options, message = BAD[what]
    with pytest.raises(InputError, match=message):
        noisy_linear(*arguments, **options)


def test_the_fill_counts_noise_in_pixels_and_the_soco_variant_in_inputs():
    net = assay.model(make_net(), mean=[0.5] * 3, std=[0.1, 0.2, 0.4])
    x, y = make_images(2)
    batch = assay.types.Batch(("a", "b"), x, y, pixels=net.pixels)
    road = make_removal(batch, "noisy_linear").noise
    soco = make_removal(batch, {"noisy_linear": {"variant": "soco"}}).noise
    ratio = (road / soco).mean((0, 2, 3))
    assert ratio.tolist() == pytest.approx([10, 5, 2.5])
    assert float(soco.std()) == pytest.approx(0.01, rel=0.1)


def test_the_fill_is_for_images():

    with pytest.raises(NotApplicable, match="no height and width"):
        assay.score(
            torch.nn.Linear(4, 2),
            torch.randn(3, 4),
            torch.zeros(3).long(),
            torch.rand(3, 4),
            "deletion",
            fill="noisy_linear",
        )


def test_a_gpu_without_a_compiler_is_told_and_served(monkeypatch):
    """The kernels' module cannot even be imported here: that must not stop the imputation."""
    monkeypatch.setattr(multigrid.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "assay.removal.triton_kernels", raising=False)
    with pytest.warns(UserWarning, match="Triton cannot compile kernels here"):
        assert not multigrid._kernels_compile.__wrapped__(torch.device("cpu"))


def test_a_forecast_knows_how_often_a_run_imputes(monkeypatch, tmp_path):
    x, y = make_images(5)
    data = assay.Dataset(
        "data", "image", tuple("abcde"), lambda i: Sample(x["abcde".index(i)], 0), "fixed",
        labels=dict(zip("abcde", y.tolist(), strict=True)),
    )  # fmt: skip
    spec = make_suite(
        {
            "datasets": [data], "models": [assay.model(make_net(), name="net")],
            "methods": ["saliency"], "protocols": [{"road_morf": {"steps": 4}}, "deletion"],
        }
    )  # fmt: skip
    found = dry_run(spec, micro_batch=3)
    calls, solve = [], NoisyLinear.__call__
    counted = lambda *given: calls.append(1) or solve(*given)  # noqa: E731
    monkeypatch.setattr(NoisyLinear, "__call__", counted)
    run(spec, tmp_path, micro_batch=3, progress=False)
    assert 0 < len(calls) == found.imputed_calls["net"] < found.forward_calls["net"]
    costly, cheap = Seconds(1, 1, imputing=10), Seconds(1, 1)
    assert costly.of("net", found) - cheap.of("net", found) == 10 * len(calls)
