"""Segments: what scikit-image finds, each image with its own number, in every protocol."""

import sys

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

import assay
from assay.data.memory import as_dataset
from assay.errors import NotApplicable
from assay.plugins import registry
from assay.types import Batch
from assay.units.features import make_units
from small_worlds import LinearImages, make_net

segmentation = pytest.importorskip("skimage.segmentation")

# Small enough for images of 16 pixels a side to have several segments.
CHOICES = [
    {"slic": {"n_segments": 9, "compactness": 0.5}},
    {"quickshift": {"kernel_size": 1.0, "max_dist": 4.0, "ratio": 0.5}},
    {"felzenszwalb": {"scale": 1.0, "sigma": 0.2, "min_size": 9}},
]
PROTOCOLS = {
    p.name: {o: v for o, v in (("steps", 6), ("subsets", 12)) if o in p.options}
    for p in registry.everything("protocol")
    if "units" in p.options
    and p.scope == "batch"
    and p.name != "soundness"  # needs a hundred units a sample
}


def make_patches(n: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of coloured patches, some with more colours than others."""
    generator = torch.Generator().manual_seed(4)
    coarse = torch.randn(n, 3, 5, 5, generator=generator)
    for i in range(n):
        coarse[i] = (coarse[i] * (1 + i % 4)).round() / (1 + i % 4)
    x = functional.interpolate(coarse, (size, size))
    noise = torch.randn(x.shape, generator=generator)
    return x + 0.02 * noise, torch.randint(0, 3, (n,), generator=generator)


def make_batch(x: torch.Tensor, y: torch.Tensor | None = None) -> Batch:
    dataset = as_dataset((x, y))
    return dataset.batch(dataset.ids)


def stretched(image: torch.Tensor) -> np.ndarray:
    """One image [C, H, W] between 0 and 1, channels last."""
    low, high = image.min(), image.max()
    return ((image.double() - low) / (high - low)).permute(1, 2, 0).numpy()


def by_hand(choice: dict, picture: np.ndarray) -> np.ndarray:
    ((name, options),) = choice.items()
    return getattr(segmentation, name)(picture, **options)


def same_partition(a: np.ndarray, b: np.ndarray) -> bool:
    pairs = {*zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)}
    return len(pairs) == len(np.unique(a)) == len(np.unique(b))


@pytest.mark.parametrize("choice", CHOICES, ids=lambda c: next(iter(c)))
class TestSegments:
    def test_are_what_scikit_image_finds(self, choice):
        x, _ = make_patches(6)
        units = make_units(make_batch(x), choice)
        for b in range(6):
            expected = by_hand(choice, stretched(x[b]))
            assert same_partition(units.index[b].numpy(), expected)
            assert units.valid[b].sum() == len(np.unique(expected))
        numbers = units.valid.sum(1)
        assert len(set(numbers.tolist())) > 1
        assert units.count == numbers.max()
        assert units.coverage == "everything"

    def test_use_the_pixels_where_they_are_known(self, choice):
        pixels = torch.rand(2, 3, 5, 5, generator=torch.Generator().manual_seed(0)) / 2
        pixels = functional.interpolate(pixels, (16, 16))
        model = assay.model(make_net(), mean=[0.5, 0.4, 0.3], std=[0.2, 0.3, 0.1])
        inputs = torch.stack(
            [
                (p - torch.tensor([0.5, 0.4, 0.3])[:, None, None])
                / torch.tensor([0.2, 0.3, 0.1])[:, None, None]
                for p in pixels
            ]
        )
        dataset = as_dataset((inputs, None))
        units = make_units(dataset.batch(dataset.ids, pixels=model.pixels), choice)
        for b in range(2):
            back = model.pixels.to_pixels(inputs[b].double()).permute(1, 2, 0).numpy()
            assert back == pytest.approx(pixels[b].permute(1, 2, 0).numpy(), abs=1e-6)
            assert same_partition(units.index[b].numpy(), by_hand(choice, back))

    def test_of_a_grey_image_are_those_of_its_copy_in_colour(self, choice):
        x = make_patches(3)[0][:, :1]
        grey = make_units(make_batch(x), choice)
        colour = make_units(make_batch(x.expand(-1, 3, -1, -1)), choice)
        assert torch.equal(grey.index, colour.index)

    def test_do_not_depend_on_company(self, choice):
        batch = make_batch(*make_patches(6))
        together, order = make_units(batch, choice), [4, 1]
        few = make_units(batch.select(order), choice)
        assert torch.equal(few.index, together.index[order])
        assert few.key == together.key

    def test_of_an_image_without_contrast_are_still_units(self, choice):
        units = make_units(make_batch(torch.full((2, 3, 16, 16), 0.7)), choice)
        assert units.valid.any(1).all()
        assert units.coverage == "everything"

    @pytest.mark.parametrize("shape", [(4,), (4, 8, 8), (2, 8, 8)])
    def test_apply_to_images_only(self, choice, shape):
        with pytest.raises(NotApplicable, match=r"grey or colour images only.*\("):
            make_units(make_batch(torch.rand(3, *shape)), choice)

    def test_without_scikit_image_name_the_cure(self, choice, monkeypatch):
        monkeypatch.setitem(sys.modules, "skimage", None)
        with pytest.raises(assay.PrerequisiteError, match=r'pip install "assay\[segments\]"'):
            make_units(make_batch(torch.rand(2, 3, 8, 8)), choice)

    def test_are_found_once_for_all_methods_and_protocols(self, choice, monkeypatch):
        (name,) = choice
        plain, calls = getattr(segmentation, name), []
        monkeypatch.setattr(segmentation, name, lambda p, **o: calls.append(1) or plain(p, **o))
        x, y = make_patches(5)
        protocols = [{"single_deletion": {"units": choice}}, {"deletion": {"units": choice}}]
        assay.benchmark(
            make_net(), (x + 0.125, y), ["saliency", "random"], protocols, progress=False
        )
        assert len(calls) == 5

    def test_single_deletion_equals_a_plain_loop(self, choice):
        net, (x, y) = make_net(), make_patches(6)
        maps = torch.randn(6, 16, 16, generator=torch.Generator().manual_seed(0))
        values = assay.score(net, x, y, maps, "single_deletion", units=choice)
        with torch.no_grad():
            for b in range(6):
                found = by_hand(choice, stretched(x[b]))
                said, cost = [], []
                for label in np.unique(found):
                    gone = torch.from_numpy(found == label)
                    without = torch.where(gone, 0.0, x[b])
                    cost.append((net(x[b : b + 1]) - net(without[None]))[0, y[b]].item())
                    said.append(maps[b][gone].double().sum().item())
                if len(said) < 3:
                    assert values[b].isnan()
                else:
                    right = stats.spearmanr(said, cost)[0]
                    assert values[b].item() == pytest.approx(right, abs=1e-9)
        assert not values.isnan().all()

    def test_deletion_equals_a_plain_loop(self, choice):
        net, (x, y) = make_net(), make_patches(4)
        maps = torch.randn(4, 16, 16, generator=torch.Generator().manual_seed(0))
        values = assay.score(net, x, y, maps, "deletion", units=choice, steps=4)
        with torch.no_grad():
            for b in range(4):
                found = by_hand(choice, stretched(x[b]))
                labels = np.unique(found)
                order = sorted(labels, key=lambda s: -maps[b].double().numpy()[found == s].sum())
                heights, shares = [], []
                for step in range(5):
                    leave = order[: int(step / 4 * len(labels) + 0.5)]
                    shares.append(len(leave) / len(labels))
                    without = torch.where(torch.from_numpy(np.isin(found, leave)), 0.0, x[b])
                    heights.append(net(without[None]).softmax(1)[0, y[b]].item())
                assert values[b].item() == pytest.approx(np.trapezoid(heights, shares), abs=1e-5)


def linear_patches():
    """A linear network, patches that it is right on, and the exact maps."""
    net, x = LinearImages(), make_patches(10, 8)[0]
    y = net(x).argmax(1)
    return net, x, y, (x * net.weight[y]).sum(1).detach()


@pytest.mark.parametrize(
    "name", [name for name in PROTOCOLS if registry.get("protocol", name).judges != "model"]
)
def test_the_oracle_beats_noise_and_its_mirror(name):
    net, x, y, truth = linear_patches()
    sign = 1 if registry.get("protocol", name).higher_is_better else -1
    noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(0))
    for choice in CHOICES:
        best, chance, worst = (
            sign * assay.score(net, x, y, m, name, units=choice, **PROTOCOLS[name]).nanmean()
            for m in (truth, noise, -truth)
        )
        assert best > chance, choice
        assert best > worst, choice


@pytest.mark.parametrize(
    "name", [name for name in PROTOCOLS if registry.get("protocol", name).judges != "set"]
)
def test_a_score_does_not_depend_on_its_neighbours(name):
    net, x, y, truth = linear_patches()
    for choice in CHOICES:
        told = {"units": choice, **PROTOCOLS[name]}
        together = assay.score(net, x, y, truth, name, **told)
        few = assay.score(net, x[:3], y[:3], truth[:3], name, **told)
        assert torch.equal(few.nan_to_num(99), together[:3].nan_to_num(99)), choice


def test_soundness_says_that_a_few_segments_cannot_take_equal_steps():
    x, y = make_patches(6)
    with pytest.raises(NotApplicable, match=r"1 % of the units .* only .* units"):
        assay.score(make_net(classes=3), x, y, torch.rand(6, 16, 16), "soundness", units=CHOICES[0])


def test_keys_tell_options_and_version():
    import skimage

    batch = make_batch(*make_patches(2))
    keys = {make_units(batch, c).key for c in (*CHOICES, "slic", {"slic": {"compactness": 10.5}})}
    assert len(keys) == 5
    assert all(f"scikit-image {skimage.__version__}" in key for key in keys)
