"""Samples that are nearly the same are found, and samples that only look alike are not."""

import warnings
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

import assay
from assay.data.memory import as_dataset
from assay.data.near_duplicates import alike_images, alike_texts, coarse_image
from assay.data.parquet import decode
from assay.errors import InputError
from beside import beside
from small_worlds import make_net


def smooth(n: int, side: int = 16, seed: int = 0) -> Tensor:
    """Images with large shapes, as photographs have them."""
    drawn = torch.randn(n, 3, 5, 5, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(drawn, side, mode="bicubic")


def digits(n: int) -> Tensor:
    """Digits of seven segments, moved and thickened a little: all of a kind look alike."""
    draw = torch.Generator().manual_seed(3)
    segments = torch.zeros(7, 12, 12)
    across, upper, lower = (3, 9), (1, 6), (6, 11)
    strokes = (
        (1, across),
        (6, across),
        (10, across),
        (upper, 3),
        (upper, 8),
        (lower, 3),
        (lower, 8),
    )
    for number, (rows, columns) in enumerate(strokes):
        here = [slice(*part) if isinstance(part, tuple) else part for part in (rows, columns)]
        segments[number][here[0], here[1]] = 1
    lit = torch.tensor(
        [
            [c in code for c in "0123456"]
            for code in ("023456", "46", "01245", "01246", "1346", "01236", "012356", "046")
        ]
    )
    chosen = lit[torch.randint(0, 8, (n,), generator=draw)].float()
    strength = 1 + 0.2 * torch.randn(n, 7, generator=draw)
    images = torch.einsum("ns,shw->nhw", chosen * strength, segments)
    return (images + 0.1 * torch.randn(n, 12, 12, generator=draw))[:, None]


def groups_of(images: Tensor) -> Counter[int]:
    """The sizes of the groups of more than one."""
    firsts = alike_images([coarse_image(x) for x in images], images.__getitem__)
    return Counter({first: n for first, n in Counter(firsts).items() if n > 1})


def noisy(images: Tensor, share: float, seed: int = 1) -> Tensor:
    noise = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
    return images + share * images.std() * noise


@pytest.mark.parametrize("share", [0.0, 0.02, 0.05])
@pytest.mark.parametrize(("n", "copies"), [(300, 2), (25, 4)])
def test_noisy_copies_are_found_and_nothing_else(n: int, copies: int, share: float) -> None:
    images = smooth(n)
    every = torch.cat([images, *(noisy(images, share, seed) for seed in range(copies - 1))])
    assert groups_of(every) == {i: copies for i in range(n)}
    assert not groups_of(images)


def test_other_contrast_is_the_same_image() -> None:
    images = smooth(60)
    assert groups_of(torch.cat([images, 0.7 * images + 0.2])) == {i: 2 for i in range(60)}


def test_digits_look_alike_and_are_no_copies() -> None:
    images = digits(600)
    assert not groups_of(images)
    twice = torch.cat([images, images[:50]])
    assert groups_of(twice) == {i: 2 for i in range(50)}


def test_many_images_of_one_scene_do_not_take_long() -> None:
    scene = smooth(1) + 0.01 * torch.randn(3000, 3, 16, 16)
    sizes = groups_of(torch.cat([scene, scene[:2]]))
    assert sum(sizes.values()) >= 4  # the exact copies at least


def test_photographs_of_cifar10() -> None:
    file = beside("cifar10/cifar10_test_lossless.parquet")
    cells = pq.read_table(file, columns=["image"])["image"].to_pylist()[:4000]
    arrays = [np.array(decode(cell, row, file)) for row, cell in enumerate(cells)]
    images = torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2) / 255
    sizes = groups_of(images)
    assert sum(sizes.values()) <= 8  # real copies: the test set has a few
    copies = torch.cat([images[:500], noisy(images[:500], 0.05)])
    assert sum(n >= 2 for n in groups_of(copies).values()) == 500


def test_texts() -> None:
    line = "the film takes its time and then it rewards everyone who had the patience to wait"
    texts = [
        "a good film", "a bad film", "A good film.", "good", "bad",
        line, line.upper() + " !", line.replace("patience", "courage"),
        "the film takes its time and then it punishes everyone who had hoped for a plot to begin",
    ]  # fmt: skip
    assert alike_texts(texts) == [0, 1, 0, 3, 4, 5, 5, 7, 8]
    long = " ".join(f"{line} {i}" for i in range(6))
    assert alike_texts([long, long.replace("courage", "hope").replace(" 3", " three")]) == [0, 0]


def test_short_sentences_are_hardly_ever_taken_for_copies() -> None:
    sentences = pq.read_table(beside("movie-reviews/rt_polarity.parquet"))["text"].to_pylist()
    sizes = Counter(alike_texts(sentences))
    assert sum(n for n in sizes.values() if n > 1) <= 4


class Pictures(TorchDataset):
    """A torch dataset, which is read sample by sample."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.images[i], i % 3


class TestInARun:
    def images(self) -> Tensor:
        images = smooth(30, side=8)
        return torch.cat([images, noisy(images[:10], 0.02)])

    def benchmark(self, data: object, **options: object) -> assay.Results:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return assay.benchmark(
                make_net(), data, ["saliency", "random"], ["single_deletion"], progress=False,
                **options,
            )  # fmt: skip

    def groups(self, results: assay.Results) -> set[int]:
        return {row["n_groups"] for row in results.leaderboard()}

    def test_intervals_resample_copies_together(self):
        images = self.images()
        data = images, torch.arange(40) % 3
        found = self.benchmark(data)
        assert self.groups(found) == {30}
        assert "10 groups" in found.entries.datasets["data"].note
        assert self.groups(self.benchmark(data, groups="none")) == {40}
        assert self.groups(self.benchmark(data, groups=[i % 4 for i in range(40)])) == {4}
        streamed = self.benchmark(Pictures(images))
        assert self.groups(streamed) == {30}
        assert set(streamed.scores["group"].to_pylist()) == set(found.scores["group"].to_pylist())

    def test_groups_are_part_of_the_key(self, tmp_path):
        data = self.images(), torch.arange(40) % 3
        first = self.benchmark(data, out=tmp_path / "run")
        before = {cell["cell"] for cell in first.cells}
        other = self.benchmark(data, out=tmp_path / "run", groups="none")
        assert not before & {cell["cell"] for cell in other.cells}

    def test_it_is_said(self, capsys):
        data = self.images(), torch.arange(40) % 3
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assay.benchmark(make_net(), data, ["saliency"], ["single_deletion"])
        said = "20 samples are nearly the same as others: intervals resample their 10 groups"
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("groups", "error"),
        [
            ([0, 1], "one label for each of the 40 samples"),
            ({"0000": 1}, "none for `0001`"),
            ("some", "one label per sample, got str"),
            (3, "one label per sample, got int"),
        ],
    )
    def test_wrong_groups(self, groups, error):
        with pytest.raises(InputError, match=error):
            self.benchmark((self.images(), torch.arange(40) % 3), groups=groups)

    def test_groups_of_a_dataset_by_id(self):
        data = as_dataset((self.images(), torch.arange(40) % 3))
        by_id = {sample: int(sample) // 8 for sample in data.ids}
        assert self.groups(self.benchmark(data, groups=by_id)) == {5}
