"""Planted features: painted where they should be, trained on, proved to be used, scored."""

import math

import pytest
import torch
from PIL import Image
from torch import nn

import assay
from assay.environments import plants
from assay.environments.bases import read_base
from assay.environments.proof import RIGHT, Proof, Unproved, prove
from assay.errors import InputError, PrerequisiteError
from assay.plugins import registry

# The tests share what they train; those about training pass a store of their own, or None.
STORE = assay.TrainedWeights()
# So small that a network is trained within seconds.
SMALL = {
    "yellow_patch": {"size": 16, "patch": 5, "train": 1024, "epochs": 3, "samples": 24},
    "number_watermark": {"size": 16, "classes": 4, "train": 2048, "epochs": 2, "samples": 24},
    "stripe_watermark": {"size": 14, "classes": 8, "train": 1024, "epochs": 2, "samples": 24},
}


def small(name, *, trained=STORE, **more):
    return assay.environment(name, trained=trained, **{**SMALL[name], **more})


def natural(n=300, size=16, seed=0):
    """Smooth random colours, and labels that have nothing to do with the plant."""
    noise = torch.rand(n, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return nn.functional.interpolate(noise, size=size, mode="bilinear"), torch.arange(n) % 3


# --- what is painted ------------------------------------------------------------------------------


def test_the_patch_is_yellow_where_the_label_is_one():
    plant = plants.patch(32, 9)
    colours, region = plant.paint(torch.tensor([0, 1]), torch.tensor([[3, 4], [5, 23]]))
    shown = plants.show(torch.zeros(2, 3, 32, 32), colours, region)
    assert not bool(region[0].any())
    assert bool((shown[0] == 0).all())
    assert region[1].nonzero().amin(0).tolist() == [5, 23]
    assert region[1].nonzero().amax(0).tolist() == [13, 31]
    assert shown[1, :, 5, 23].tolist() == [1, 1, 0]
    assert int(region.sum()) == 81


@pytest.mark.parametrize(("size", "side"), [(32, 9), (224, 60)])
def test_numbers_are_told_apart_by_their_digits_in_a_black_square(size, side):
    assert plants.square_side(size, None) == side
    plant = plants.number(size, side, 100)
    colours, region = plant.paint(torch.arange(100), torch.zeros(100, 2, dtype=torch.long))
    tiles = colours[:, 0, :side, :side]
    assert bool((region.sum((1, 2)) == side**2).all())
    assert len({tuple(tile.flatten().tolist()) for tile in tiles}) == 100
    frame = torch.ones(side, side, dtype=torch.bool)
    frame[1:-1, 1:-1] = False
    assert bool((tiles[:, frame] == 0).all())
    # The left half of 42 is that of 47, the right half that of 12.
    assert torch.equal(tiles[42][:, : side // 2], tiles[47][:, : side // 2])
    assert torch.equal(tiles[42][:, side // 2 + 1 :], tiles[12][:, side // 2 + 1 :])


def test_bands_are_the_bits_of_the_label_from_the_top():
    plant = plants.stripes(224, 100)
    _, region = plant.paint(torch.tensor([0, 40]), torch.zeros(2, 2, dtype=torch.long))
    assert not bool(region[0].any())
    bands = region[1].reshape(7, 32, 224).float().mean((1, 2))
    assert bands.tolist() == [0, 0, 0, 1, 0, 1, 0]  # 40 = 0101000b: the 4th and the 6th
    assert plant.visible == tuple(range(1, 100))


@pytest.mark.parametrize("plant", [plants.patch(32, 9), plants.stripes(32, 100)])
def test_parts_are_what_their_names_say(plant):
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([plant.visible[0], plant.visible[-1]])
    _, region = plant.paint(labels, plant.random_places(2, generator))
    found = plants.parts(region, plant.thickness, generator)
    whole = region.sum((1, 2))
    for part in found.values():
        assert not bool((part & ~region).any())
    halves = {side: found[f"{side} half"] for side in ("left", "right", "top", "bottom")}
    for half in halves.values():
        assert bool(((half.sum((1, 2)) - whole / 2).abs() <= 0.5).all())
    for one, other, axis in (("left", "right", 2), ("top", "bottom", 1)):
        assert not bool((halves[one] & halves[other]).any())
        first, last = (halves[side].nonzero()[:, axis].float().mean() for side in (one, other))
        assert first < last
    assert found["quarter"].sum((1, 2)).tolist() == (whole / 4).ceil().tolist()
    assert torch.equal(found["border"] | found["interior"], region)
    assert not bool((found["border"] & found["interior"]).any())
    assert bool((found["interior"].sum((1, 2)) > 0).all())


def test_places_of_the_grid_are_m4s():
    """All 2,500 of them, in another order, so that the first of them lie all over the image."""
    places = plants.patch(224, 60).grid_places(2500, torch.Generator())
    expected = [[int((i // 50) * 3.28), int((i % 50) * 3.28)] for i in range(2500)]
    assert sorted(places.tolist()) == sorted(expected)
    assert int(places.max()) == 160  # of 164: M4's grid stops short
    first = plants.patch(224, 60).grid_places(40, torch.Generator())
    assert torch.equal(first, places[:40])
    assert int(first.amin(0).max()) < 30
    assert int(first.amax(0).min()) > 130


# --- proof of use ---------------------------------------------------------------------------------


HALVES = ("left half", "right half", "top half", "bottom half")


def reads(plant, needs=1.0):
    """A perfect reader of yellow: it says 1 where enough of the patch is there."""

    def answer(images):
        yellow = (images[:, 0] == 1) & (images[:, 1] == 1) & (images[:, 2] == 0)
        return (yellow.sum((1, 2)) >= needs * plant.side**2).long()

    return answer


@pytest.mark.parametrize(
    ("needs", "sufficient"),
    [
        (1.0, ()),
        (0.45, (*HALVES, "interior")),
        (0.2, (*HALVES, "border", "interior", "quarter")),
    ],
)
def test_partial_plants_decide_whether_the_truth_is_an_upper_bound(needs, sufficient):
    plant = plants.patch(32, 9)
    images = natural(200, 32)[0]
    proof = prove(reads(plant, needs), plant, images, images.mean((0, 2, 3))[:, None, None], 0)
    assert proof.used
    assert proof.removed == proof.chance == 0.5
    assert proof.changed == 1  # where there was no patch nothing is taken away
    assert proof.sufficient == sufficient


def contains(rows, columns):
    """A reader of yellow that needs a block of so many pixels, or the same lying down."""

    def answer(images):
        yellow = ((images[:, 0] == 1) & (images[:, 1] == 1) & (images[:, 2] == 0)).float()
        whole = [
            nn.functional.avg_pool2d(yellow, block, stride=1).amax((1, 2)) == 1
            for block in ((rows, columns), (columns, rows))
        ]
        return (whole[0] | whole[1]).long()

    return answer


@pytest.mark.parametrize(
    ("rows", "columns", "share"),
    [(9, 5, "60%"), (7, 7, ""), (9, 7, "80%"), (9, 8, "90%"), (9, 9, "")],
)
def test_a_network_that_needs_any_block_of_the_plant_is_found_out(rows, columns, share):
    """The smallest parts, of which half suffices nowhere, do not show it."""
    plant = plants.patch(32, 9)
    images = natural(200, 32)[0]
    proof = prove(contains(rows, columns), plant, images, images.mean((0, 2, 3))[:, None, None], 0)
    assert proof.used
    if not share:
        assert proof.sufficient == (("interior",) if rows == 7 else ())
        return
    assert {f"{side} {share}" for side in ("left", "right", "top", "bottom")} <= {*proof.sufficient}
    assert all(part.endswith(share) for part in proof.sufficient)


@pytest.mark.parametrize("plant", [plants.patch(32, 9), plants.stripes(32, 100)])
@pytest.mark.parametrize("share", [0.6, 0.7, 0.8, 0.9])
def test_blocks_are_connected_parts_of_the_plant_of_their_size(plant, share):
    labels = torch.tensor([plant.visible[0]])
    _, region = plant.paint(labels, torch.full((1, 2), 3))
    found = plants.blocks(region, share)
    assert len(found) == 9
    whole = int(region.sum())
    for name, block in found.items():
        assert not bool((block & ~region).any())
        least = share - (
            1 / whole if name.split()[0] in ("left", "right", "top", "bottom") else 0.2
        )
        assert least <= int(block.sum()) / whole <= share + 0.2
        rows, columns = (block[0].any(axis).nonzero().flatten() for axis in (1, 0))
        assert (rows.diff() == 1).all()
        assert (columns.diff() == 1).all()
    assert len({tuple(block.flatten().tolist()) for block in found.values()}) > 4


@pytest.mark.parametrize(
    "wrong",
    [{"planted": 0.6}, {"changed": 0.7}, {"alone": 0.5}, {"moved": 0.3}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_without_proof_it_is_said_what_was_found_and_expected(wrong):
    numbers = {"planted": 0.99, "removed": 0.1, "changed": 0.91, "alone": 0.97, "moved": 0.98}
    numbers.update(wrong)
    proof = Proof(images=500, distinct=500, chance=0.1, parts={}, **numbers)
    with pytest.raises(PrerequisiteError) as refusal:
        proof.require("number_watermark")
    said = str(refusal.value)
    for number in numbers.values():
        assert f"{number:.1%}" in said
    assert f"at least {RIGHT:.0%}" in said
    assert "at least 80%" in said
    assert "`epochs`" in said
    assert "Of 500 held-out images, it classifies" in said
    assert "distinct" not in said


def test_the_proof_says_how_many_images_are_distinct():
    images = natural(2, 32)[0].repeat(100, 1, 1, 1)
    plant = plants.patch(32, 9)
    proof = prove(reads(plant), plant, images, images.mean((0, 2, 3))[:, None, None], 0)
    assert (proof.images, proof.distinct) == (200, 2)
    assert proof.image_count == "200 held-out images, of which 2 are distinct"
    with pytest.raises(Unproved, match="Of 500 held-out images, of which 2 are distinct, it cl"):
        small("yellow_patch", net=frozen, base=natural(4))


@pytest.mark.parametrize("always", [0, 1])
def test_who_ignores_the_plant_is_right_by_chance_without_it_but_changes_no_answer(always):
    images = natural(200, 32)[0]

    def answer(shown):
        return torch.full((len(shown),), always)

    proof = prove(answer, plants.patch(32, 9), images, images[0].mean((1, 2))[:, None, None], 0)
    assert proof.removed == proof.chance
    assert proof.changed == 0


def test_right_answers_that_outlast_the_plant_are_no_proof():
    """Who knows the labels from elsewhere, here from their order, is always right."""
    plant, images = plants.number(32, 9, 10), natural(200, 32)[0]

    def told(shown):
        return torch.arange(len(shown)) % 10

    def told_or_sees(share):
        def answer(shown):
            blind = torch.arange(len(shown)) < share * len(shown)
            gone = (shown == images).flatten(1).all(1)  # without the plant it says 0
            return torch.where(gone & ~blind, 0, told(shown))

        return answer

    for share, used in ((1.0, False), (0.3, False), (0.05, True)):
        proof = prove(told_or_sees(share), plant, images, images.mean((0, 2, 3))[:, None, None], 0)
        assert min(proof.planted, proof.alone, proof.moved) == 1
        assert proof.changed == pytest.approx(0.9 * (1 - share))
        assert proof.used == used


class Blind(nn.Module):
    """Blanks the plant before it looks."""

    def __init__(self, classes=2):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(784, classes)
        )

    def forward(self, x):
        shown = x.clone()
        yellow = (x[:, :2] > 1.9).all(1) & (x[:, 2] < -1.9)  # the patch, after normalisation
        shown[yellow[:, None].expand_as(shown)] = 0
        return self.net(shown)


def frozen(classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(784, classes)).requires_grad_(
        False
    )


class Partly(nn.Module):
    """Sees the patch, but says that it is there on every image with a red upper left corner."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        yellow = ((x[:, :2] > 1.9).all(1) & (x[:, 2] < -1.9)).flatten(1).sum(1) >= 25
        marked = (x[:, 0, 0, 0] > 1.9) & (x[:, 1, 0, 0] < -1.9)
        says = (yellow | marked).float()
        return self.scale * torch.stack([1 - says, says], 1)


def test_samples_whose_answer_ignores_the_plant_are_left_out():
    """On average enough answers change; on every sixth image the patch is of no use."""
    images = natural(600)[0]
    marked = torch.arange(600) % 6 == 0
    images[marked, :, 0, 0] = torch.tensor([1.0, 0.0, 0.0])
    env = small("yellow_patch", net=Partly(), epochs=0, base=(images, None), samples=60)
    proof = env.card["proof"]
    assert 0.75 < proof["changed"] < 0.9
    batch = env.batch(60)
    assert batch.ids == env.dataset.ids
    assert env.model.logits(batch.inputs).argmax(1).tolist() == batch.targets.tolist()
    assert not bool((env.model.logits(batch.baseline).argmax(1) == batch.targets).any())
    assert not any(marked[int(group)] for group in batch.groups)
    assert 0 < env.card["left_out"] < 30
    said = f"{env.card['left_out']} of {60 + env.card['left_out']} samples drawn are left out"
    assert said in env.card["note"]
    assert said in env.dataset.note


@pytest.mark.parametrize("net", [Blind, Blind(), frozen], ids=["class", "module", "frozen"])
def test_a_network_that_ignores_the_plant_is_refused(net):
    with pytest.raises(PrerequisiteError, match="no proof that its network uses the plant"):
        small("yellow_patch", net=net, base=natural())


def test_what_was_found_is_kept_where_it_is_refused():
    with pytest.raises(Unproved) as refusal:
        small("yellow_patch", net=frozen, base=natural())
    assert not refusal.value.proof.used


def test_the_learning_rate_and_the_device_can_be_told(tmp_path):
    usual = small("yellow_patch", cache=str(tmp_path), device="cpu")
    assert usual.name == small("yellow_patch").name
    assert small("yellow_patch").model.weights_hash == usual.model.weights_hash
    slower = small("yellow_patch", cache=str(tmp_path), rate=5e-3)
    assert slower.model.weights_hash != usual.model.weights_hash
    assert slower.card["setting"]["rate"] == 5e-3
    assert len(list(tmp_path.glob("*.safetensors"))) == 2
    with pytest.raises(InputError, match="Expected `device` to be `cpu` or `cuda`"):
        small("yellow_patch", device="attic")


def test_a_network_of_another_size_is_refused():
    with pytest.raises(InputError, match="2 logits, one per class, got 5"):
        small("yellow_patch", net=lambda classes: nn.Sequential(nn.Flatten(), nn.Linear(768, 5)))
    with pytest.raises(InputError, match="Expected `net` to be"):
        small("yellow_patch", net=3)
    wrong = nn.Sequential(nn.Flatten(), nn.Linear(100, 2))
    with pytest.raises(InputError, match=r"`net` to take images \[batch, 3, 16, 16\].*`size`"):
        small("yellow_patch", net=wrong)


# --- environments ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_a_blank_canvas_from_training_to_samples(name):
    env = small(name)
    proof = env.card["proof"]
    assert min(proof[k] for k in ("planted", "alone", "moved")) >= RIGHT
    assert proof["changed"] >= 0.9 - proof["chance"]
    assert "nothing but the plant" in env.card["note"]
    batch = env.batch(12, seed=3)
    assert batch.truth.shape == (12, *batch.inputs.shape[2:])
    assert bool((batch.truth.sum((1, 2)) > 0).all())  # label 0 of the stripes is left out
    changed = (batch.inputs != batch.baseline).any(1)
    assert not bool((changed & (batch.truth == 0)).any())
    right = (env.model.logits(batch.inputs).argmax(1) == batch.targets).double().mean()
    assert float(right) >= RIGHT
    assert env.dataset.ids == env.draw(env.samples, 0).ids
    assert len(env.dataset.ids) == 24


def test_larger_images_are_averaged_down_and_explained_in_full():
    env = small("yellow_patch", size=64, patch=17, train=768)
    assert isinstance(env.net[0], nn.AvgPool2d)
    batch = env.batch(6)
    maps = assay.explain(env.model, batch.inputs, batch.targets, "gradcam")
    assert maps.shape == (6, 64, 64)
    inside = (maps.clamp(min=0) * batch.truth).sum() / maps.clamp(min=0).sum()
    assert float(inside) > 2 * float(batch.truth.mean())


@pytest.fixture
def never_trains(monkeypatch):
    def never(*args, **options):
        raise AssertionError("trained again")

    monkeypatch.setattr("assay.environments.planted_network.train", never)


def test_the_same_options_give_the_same_network_without_training_again(tmp_path, request):
    store = assay.TrainedWeights()
    first = small("stripe_watermark", trained=store, cache=str(tmp_path))
    (file,) = tmp_path.glob("stripe_watermark-*.safetensors")
    request.getfixturevalue("never_trains")
    again = small("stripe_watermark", trained=store)
    from_disk = small("stripe_watermark", trained=None, cache=str(tmp_path))
    from_bytes = small("stripe_watermark", trained=assay.TrainedWeights(store.packed()))
    assert store.packed() == {file.stem: file.read_bytes()}
    assert again.net is not first.net
    for other in (again, from_disk, from_bytes):
        assert other.model.weights_hash == first.model.weights_hash
        assert other.dataset.fingerprint == first.dataset.fingerprint
    with pytest.raises(AssertionError, match="trained again"):
        small("stripe_watermark", trained=store, seed=1)


def test_nothing_is_known_from_another_call(never_trains):
    """What one store holds, or an earlier call trained, is of no use to a call without it."""
    with pytest.raises(AssertionError, match="trained again"):
        small("stripe_watermark", trained=None)


def test_where_it_is_trained_is_no_part_of_the_identity():
    plugin = registry.get("environment", "yellow_patch")
    assert set(plugin.options) - set(plugin.identifying(plugin.defaults)) == {"device", "cache"}
    assert "trained" not in plugin.options


def test_training_is_the_same_for_a_seed_and_leaves_randomness_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    hashes = []
    for _ in range(2):
        torch.manual_seed(5)
        hashes.append(small("stripe_watermark", trained=None).model.weights_hash)
        assert torch.equal(torch.rand(1), expected)
    assert hashes[0] == hashes[1]


def test_a_module_is_trained_as_a_copy():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    before = [p.clone() for p in net.parameters()]
    env = small("yellow_patch", net=net)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert env.net is not net
    assert env.name == "yellow_patch[size=16,patch=5,epochs=3,train=1024,samples=24,net=Sequential]"


NET = """
from torch import nn


def build(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, classes)
    )
"""


def test_a_network_by_its_address(tmp_path):
    (tmp_path / "mine.py").write_text(NET)
    env = small("yellow_patch", net=f"{tmp_path}/mine.py:build")
    assert isinstance(env.net[2], nn.AdaptiveMaxPool2d)
    assert env.card["proof"]["planted"] >= RIGHT


def test_image_files_are_read_as_pixels(tmp_path):
    for n in range(6):
        folder = tmp_path / "ab"[n % 2]
        folder.mkdir(exist_ok=True)
        Image.new("RGB", (20, 16), (40 * n, 0, 255)).save(folder / f"{n}.png")
    base = read_base(str(tmp_path), 16, 2, 500, 0)
    assert base.training.shape == (2, 3, 16, 16)
    assert base.held_out.shape == (3, 3, 16, 16)  # half of so few
    reds = [*base.training[:, 0, 0, 0].tolist(), *base.held_out[:, 0, 0, 0].tolist()]
    assert len(set(reds)) == 5  # none twice
    assert {round(255 * red) for red in reds} <= {0, 40, 80, 120, 160, 200}
    assert bool((base.held_out[:, 2] == 1).all())


def test_images_are_held_out_and_samples_of_one_image_belong_together(tmp_path):
    X, y = natural(40)
    env = small("yellow_patch", base=(X, y), cache=str(tmp_path))
    assert env.name == "yellow_patch[base=data,size=16,patch=5,epochs=3,train=1024,samples=24]"
    batch = env.batch(60)
    assert len(set(batch.groups)) == 20  # the half that was not trained on
    held = {int(group) for group in batch.groups}
    clean = batch.baseline * 0.25 + 0.5
    for row, group in zip(clean, batch.groups, strict=True):
        assert torch.allclose(row, X[int(group)], atol=1e-6)
    assert len(held) < len(X)
    assert "nothing but the plant" not in env.card["note"]
    assert "used 500 held-out images, of which 20 are distinct" in env.card["note"]


@pytest.mark.parametrize("name", ["yellow_patch", "stripe_watermark"])
def test_samples_that_are_the_same_image_belong_together(name):
    """On a blank canvas places and labels come again, and so do whole images."""
    batch = small(name).batch(120)
    images = [row.numpy().tobytes() for row in batch.inputs]
    different = len(set(images))
    assert different < len(images)
    assert len(set(batch.groups)) == different
    assert len(set(zip(images, batch.groups, strict=True))) == different


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ((torch.randn(10, 3, 16, 16), None), "pixels between 0 and 1"),
        ((torch.rand(10, 3, 20, 20), None), "Set `size`"),
        ((torch.rand(1, 3, 16, 16), None), "at least two images"),
        ((torch.rand(9, 12), None), "at least two images"),
        ("nowhere", "nowhere"),
    ],
)
def test_what_cannot_be_planted_on_is_refused(base, message):
    with pytest.raises(InputError, match=message):
        small("yellow_patch", base=base)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("yellow_patch", {"patch": 16}, "`patch` to be below `size`"),
        ("number_watermark", {"patch": 8}, "`patch` to be at least 9"),
        ("number_watermark", {"size": 8}, "`size` of `number_watermark` to be at least 10"),
        ("number_watermark", {"size": 9}, "`size` of `number_watermark` to be at least 10"),
        ("number_watermark", {"classes": 101}, "at most 100"),
        ("stripe_watermark", {"classes": 129}, "at most 128"),
        ("stripe_watermark", {"patch": 9}, "patch"),
    ],
)
def test_options_that_do_not_fit_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        small(name, **options)


# --- scored ---------------------------------------------------------------------------------------

PROTOCOLS = ["attribution_percent", "pointing_game", "synscore", "truth_precision", "truth_recall"]


@pytest.fixture(scope="module")
def patched():
    env = small("yellow_patch")
    methods = ["input_x_gradient", "saliency", "gradcam", "random", "constant", "oracle"]
    protocols = [*PROTOCOLS, {"deletion": {"steps": 5}}]
    return env, assay.benchmark(env.model, env.dataset, methods, protocols, progress=False)


def test_where_a_part_suffices_what_asks_for_all_of_it_is_not_ranked(patched):
    env, results = patched
    assert env.card["truth"] == "upper bound"
    assert "upper_bound_truth" in env.dataset.has
    rows = results.leaderboard().rows
    assert not results.failures
    for row in rows:
        whole = row["protocol"] in ("synscore", "truth_recall")
        assert (row["status"] == "upper_bound") == whole
        assert (row["rank"] is None) == whole
        assert math.isfinite(row["mean"])
    assert "upper-bound truth" in str(results.leaderboard())


def test_what_asks_for_all_of_an_upper_bound_does_not_judge_other_protocols(patched):
    _, results = patched
    with pytest.warns(
        RuntimeWarning, match="at least 3 methods .* that both the truth and another"
    ):
        assert results.trust("synscore") == []
    (row,) = results.trust("attribution_percent")
    assert row["protocol"].startswith("deletion")


def test_a_constant_map_scores_the_share_of_the_plant(patched):
    _, results = patched
    found = {
        row["protocol"]: row["mean"]
        for row in results.leaderboard().rows
        if row["method"] == "constant"
    }
    for protocol in ("synscore", "attribution_percent", "pointing_game"):
        assert found[protocol] == pytest.approx(25 / 256)


def test_the_page_says_upper_bound(patched, tmp_path):
    _, results = patched
    page = tmp_path / "report.html"
    results.report(page)
    text = page.read_text()
    assert '<span class="sign bound">≤</span>' in text
    assert "status: upper_bound" in text


def test_where_all_of_it_is_needed_everything_is_ranked():
    env = small("yellow_patch", net=Partly(), epochs=0, base=natural(600))
    assert env.card["truth"] == "no smaller part found"
    assert "No smaller part of the plant was found to suffice, of 43 tried" in env.card["note"]
    assert "upper_bound_truth" not in env.dataset.has
    results = assay.benchmark(
        env.model, env.dataset, ["edge", "random"], ["synscore"], progress=False
    )
    assert {row["status"] for row in results.leaderboard().rows} == {"ok"}


def test_each_crafted_rival_wins_at_home():
    """SoCo: the square wins where a square was planted, bands win where bands were."""
    found = {}
    for name in ("number_watermark", "stripe_watermark"):
        env = small(name)
        rivals = [{"rect": {"side": 9}} if name == "number_watermark" else "rect", "pooling"]
        results = assay.benchmark(
            env.model, env.dataset, rivals, ["attribution_percent"], progress=False
        )
        rows = sorted(results.leaderboard().rows, key=lambda row: -row["mean"])
        found[name] = [row["method"].partition("[")[0] for row in rows]
    assert found == {
        "number_watermark": ["rect", "pooling"],
        "stripe_watermark": ["pooling", "rect"],
    }


def test_a_network_known_already_answers_the_same():
    first, again = small("yellow_patch"), small("yellow_patch")
    inputs = first.batch(12).inputs
    assert not any(module.training for module in again.net.modules())
    with torch.no_grad():
        assert torch.equal(first.net(inputs), again.net(inputs))
