"""Grids with a random offset, and what `units: default` and `fill: second` stand for."""

import pytest
import torch

import assay
from assay.data.memory import as_dataset
from assay.plugins import registry
from assay.removal import fill_key, make_removal
from assay.types import Batch
from assay.units.features import make_units
from assay.units.usual import SIDE
from small_worlds import make_net


def images(n: int, height: int, width: int, seed: int = 0) -> Batch:
    x = torch.randn(n, 3, height, width, generator=torch.Generator().manual_seed(seed))
    dataset = as_dataset((x, torch.zeros(n, dtype=torch.long)), groups="none")
    return dataset.batch(dataset.ids)


@pytest.mark.parametrize(
    ("height", "width", "side"), [(32, 32, 8), (30, 23, 7), (5, 9, 4), (8, 8, 8)]
)
def test_a_shifted_grid_is_the_plain_grid_of_a_larger_image(height, width, side):
    batch = images(40, height, width)
    units = make_units(batch, {"shifted_grid": {"side": side}})
    assert units.index.shape == (40, height, width)
    assert units.count == (side + 1) ** 2
    steps = [-(-height // side), -(-width // side)]
    seen = set()
    for index in units.index:
        rows, columns = index[:, 0] // (side + 1), index[0] % (side + 1)
        assert torch.equal(index, rows[:, None] * (side + 1) + columns)
        shifts = []
        for line, n, step in zip((rows, columns), (height, width), steps, strict=True):
            fits = [
                s for s in range(step) if line.tolist() == [(i + s) * side // n for i in range(n)]
            ]
            assert fits  # a plain grid, read from a later pixel on
            shifts.append(fits[0])
        seen.add(tuple(shifts))
    assert len(seen) > 1 or steps == [1, 1]


def test_only_cells_with_pixels_are_removed():
    batch = images(40, 32, 32)
    units = make_units(batch, {"shifted_grid": {"side": 8}})
    for valid, index in zip(units.valid, units.index, strict=True):
        assert valid.nonzero().flatten().tolist() == index.unique().tolist()


def test_a_shift_belongs_to_the_sample_not_to_the_batch():
    batch = images(12, 32, 32)
    choice = {"shifted_grid": {"side": 4}}
    whole = make_units(batch, choice)
    dataset = batch.dataset
    alone = dataset.batch(dataset.ids[7:8])
    assert torch.equal(make_units(alone, choice).index[0], whole.index[7])


def test_the_default_units_are_cells_on_images_and_entries_elsewhere():
    large, small = images(3, 32, 48), images(3, 6, 20)
    shifted = {"shifted_grid": {"side": SIDE}}
    assert make_units(large, "default").key == make_units(large, shifted).key
    assert make_units(small, "default").count == 7 * 7  # no cell is smaller than a pixel
    x = torch.randn(4, 5)
    vectors = as_dataset((x, torch.zeros(4, dtype=torch.long)), groups="none")
    assert make_units(vectors.batch(vectors.ids), "default").key == "elements"


def test_the_second_fill_is_the_named_one_bit_for_bit():
    batch = images(3, 16, 16)
    units = make_units(batch, "default")
    absent, samples = units.valid & (torch.arange(units.count) % 2 == 0), torch.arange(3)
    named = make_removal(batch, "noisy_linear")(units, absent, samples)
    assert torch.equal(make_removal(batch, "second")(units, absent, samples), named)
    assert fill_key(batch, "second") == fill_key(batch, "noisy_linear")
    x = torch.randn(4, 5)
    vectors = as_dataset((x, torch.zeros(4, dtype=torch.long)), groups="none")
    assert fill_key(vectors.batch(vectors.ids), "second").startswith("mean.")


def test_a_protocol_at_its_defaults_shares_every_answer_with_the_options_written_out():
    x = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2] * 2)
    written = {"units": {"shifted_grid": {"side": SIDE}}, "as": "written"}
    one = assay.dry_run(make_net(), (x, y), ["saliency"], ["deletion"])
    both = assay.dry_run(make_net(), (x, y), ["saliency"], ["deletion", {"deletion": written}])
    assert both.forwards == one.forwards


def test_every_curve_has_the_default_units():
    names = (
        "morf", "lerf", "abpc", "deletion", "insertion", "accuracy_morf", "accuracy_lerf",
        "incremental_deletion", "comprehensiveness", "sufficiency",
    )  # fmt: skip
    for name in names:
        defaults = registry.get("protocol", name).defaults
        assert defaults["units"] == "default"
