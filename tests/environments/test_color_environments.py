"""The designed environments: their data, their truth, and what they refuse."""

import pytest
import torch

import assay
from assay.environments.colors import contrast
from assay.errors import InputError
from assay.removal import make_removal
from assay.units.features import make_units

NAMES = ["single_color_modulo", "multi_color_sum"]


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_whole(name):
    env = assay.environment(name, size=32)
    batch = env.batch(5)
    assert tuple(batch.truth.shape) == (5, 32, 32)
    assert len(batch.inputs) == len(batch.targets) == 5
    with torch.no_grad():
        assert env.net(batch.inputs).shape[1] > int(batch.targets.max())
    assert isinstance(env.net, torch.nn.Module)
    assert len(env.dataset.ids) == 100


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_and_more_samples_begin_alike(name):
    env = assay.environment(name, size=32)
    first, again, more, other = env.batch(3), env.batch(3), env.batch(5), env.batch(3, seed=1)
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.inputs, more.inputs[:3])
    assert not torch.equal(first.inputs, other.inputs)
    assert not set(first.ids) & set(other.ids)


@pytest.mark.parametrize("target", ["contrast", "softmax"])
def test_the_network_is_always_right(target):
    env = assay.environment("multi_color_sum", size=48, target=target)
    batch = env.batch(30)
    with torch.no_grad():
        assert torch.equal(env.net(batch.inputs).argmax(1), batch.targets)


@torch.no_grad()
@pytest.mark.parametrize("weights", ["uniform", "nonuniform"])
@pytest.mark.parametrize("colors", [2, 4, 7])
def test_every_truth_pixel_is_worth_its_truth(colors, weights):
    """Taking away any pixel changes the contrast by exactly its truth, adding it back as much."""
    env = assay.environment("multi_color_sum", size=32, colors=colors, weights=weights)
    batch = env.batch(2)
    for b in range(2):
        image, target = batch.inputs[b], int(batch.targets[b])
        places = batch.truth[b].nonzero()
        without = image.repeat(len(places), 1, 1, 1)
        for row, (y, x) in enumerate(places):
            without[row, :, y, x] = batch.baseline[b, :, y, x]
        worth = contrast(env.net(image[None]))[0, target] - contrast(env.net(without))[:, target]
        expected = batch.truth[b][places[:, 0], places[:, 1]]
        assert torch.allclose(worth, expected, rtol=0, atol=1e-4)  # thirds and sixths are rounded
        assert torch.equal(env.model.logits(image[None]), contrast(env.net(image[None])))


@torch.no_grad()
def test_the_truth_adds_up_to_the_contrast():
    env = assay.environment("multi_color_sum")
    batch = env.batch(5)
    explained = env.model.logits(batch.inputs).gather(1, batch.targets[:, None])[:, 0]
    assert torch.allclose(batch.truth.sum((1, 2)), explained, rtol=1e-6)


@torch.no_grad()
def test_the_remainder_is_that_of_the_truth():
    env = assay.environment("single_color_modulo")
    batch = env.batch(20, seed=4)
    assert torch.equal(env.net(batch.inputs)[:, 0], batch.truth.sum((1, 2)) % 30)


def test_the_default_patches_are_as_large_as_the_papers():
    """The optimum of adapted deletion is n / 2T; the paper's is .0246."""
    batch = assay.environment("single_color_modulo").batch(200)
    optimum = (batch.truth.mean((1, 2)) / 2).mean()
    assert float(optimum) == pytest.approx(0.0246, abs=0.002)


def test_a_designed_environment_runs_in_a_suite(tmp_path):
    spec = assay.Spec(
        environments=[{"multi_color_sum": {"size": 24, "samples": 6}}],
        methods=["oracle", "random", "input_x_gradient"],
        protocols=["single_deletion"],
    )
    from assay.run import run

    results = run(spec, tmp_path, progress=False)
    assert not results.failures
    assert results.manifest["clean"][0]["accuracy"] == 1
    assert set(results.scores["dataset"].to_pylist()) == {"multi_color_sum[size=24,samples=6]"}


def test_an_environment_stays_with_its_own_network(tmp_path):
    from assay.plan.resolving import resolve
    from small_worlds import make_images, make_net

    spec = assay.Spec(
        datasets=[make_images(4)],
        models=[make_net()],
        environments=["multi_color_sum", {"single_color_modulo": {"size": 32, "label": "mod"}}],
        methods=["random"],
        protocols=["single_deletion"],
    )
    plan = resolve(spec)
    assert len(plan.pairs) == 3
    assert plan.pairs[1:] == (("multi_color_sum", "multi_color_sum"), ("mod", "mod"))


def test_the_same_environment_twice_is_refused():
    from assay.plan.resolving import resolve

    spec = assay.Spec(
        environments=["multi_color_sum"] * 2, methods=["random"], protocols=["single_deletion"]
    )
    with pytest.raises(InputError, match="`multi_color_sum` twice"):
        resolve(spec)


def test_a_suite_explains_something():
    from assay.suite.spec import make_suite

    with pytest.raises(InputError, match="`datasets` and `models`, or `environments`"):
        make_suite({"methods": ["random"], "protocols": ["single_deletion"]})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"colors": ((1, 2, 3), (1, 2, 3))}, r"\(1, 2, 3\) twice"),
        ({"colors": ((20, 20, 20), (1, 2, 3))}, "no colour like the background"),
        ({"colors": ((1, 2, 3),)}, "at least two"),
        ({"colors": ((1, 2, 300), (1, 2, 3))}, "each three whole numbers from 0 to 255"),
        ({"colors": 1}, "to be a whole number from 2 to 12, or a list of colours, each three"),
        ({"colors": ["red", "blue"]}, r"a list of colours, .*, \(R, G, B\), got \['red', 'blue'\]"),
        ({"background": [0, 0]}, r"three whole numbers from 0 to 255, \(R, G, B\), got \[0, 0\]"),
        ({"size": 500}, "less than or equal to 224"),
        ({"sise": 32}, "Did you mean `size`"),
        ({"shapes": ()}, r"to be a list of at least 1, each blob or circle or .*, got \(\)"),
        (
            {"shapes": ["star"]},
            r"to be a list of at least 1, each blob or .*, got \['star'\]",
        ),
        ({"reach": 3}, "to be 1, 2, 4, 8, 16, 32 or 64, got 3"),
        ({"reach": 64, "colors": ((0, 0, 0), (9, 9, 90))}, "that differ by `reach`, 64"),
        ({"strength": float("inf")}, "less than or equal to 4"),
        ({"strength": float("nan")}, "to be a number at least 0 and at most 4, got nan"),
    ],
    ids=str,
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(InputError, match=said):
        assay.environment("multi_color_sum", **options)


@torch.no_grad()
@pytest.mark.parametrize("reach", [1, 32])
def test_imputed_pixels_reach_the_network_and_are_unseen_colours_like_black(reach):
    """Why `road_*` and `accuracy_*` agree on this network: it reads colours exactly.

    The noise of imputation alone is 2.5 of 255 levels, more than the reach of a colour.
    """
    env = assay.environment("multi_color_sum", size=64, samples=24, reach=reach)
    batch = env.batch(24)
    units, samples = make_units(batch, "elements"), torch.arange(24)
    absent = torch.rand(24, units.count, generator=torch.Generator().manual_seed(0)) < 0.5
    gone = units.spread(absent, samples)
    answers = {}
    for fill in ("zero", "noisy_linear"):
        filled = make_removal(batch, fill)(units, absent, samples)
        assert bool((filled != batch.inputs).any(1)[gone].all())
        answers[fill] = env.net.detector(filled).permute(0, 2, 3, 1)[gone]  # [pixels, maps]
    same = (answers["zero"] == answers["noisy_linear"]).all(1).float().mean()
    assert same > 0.99 if reach == 1 else same < 0.5


def test_images_made_elsewhere_are_read_or_refused():
    env = assay.environment("multi_color_sum", size=32)
    batch = env.batch(2)
    targets, truth = env.read(batch.inputs)
    assert torch.equal(targets, batch.targets)
    assert torch.equal(truth, batch.truth)

    tied = batch.baseline.clone()
    tied[0, :, 0, 0], tied[0, :, 0, 1] = torch.tensor([[255.0, 0, 0], [0, 255, 0]])
    strange = batch.inputs.clone()
    strange[1, :, 3, 4] = 7
    for images, said in [
        (batch.inputs + 0.5, "integers from 0 to 255"),
        (batch.inputs / 255 - 0.2, "integers from 0 to 255"),
        (strange, r"got \(7, 7, 7\) in image 1 at row 3, column 4"),
        (tied, "a tie of 1 pixels in image 0"),
        (batch.inputs[:, :, :8], r"\[n, 3, 32, 32\]"),
    ]:
        with pytest.raises(InputError, match=said):
            env.read(images)


def test_counts_beyond_the_network_are_refused():
    env = assay.environment("single_color_modulo", size=32, modulus=7, most=50)
    with pytest.raises(InputError, match=r"at most 56 white pixels.*larger `most`"):
        env.read(torch.ones(1, 1, 32, 32))
    with pytest.raises(InputError, match="zeros and ones"):
        env.read(torch.full((1, 1, 32, 32), 0.5))
    crowded = assay.environment("single_color_modulo", modulus=30, most=30)
    with pytest.raises(InputError, match="Raise `most`"):
        crowded.batch(1)


def test_too_many_patches_are_refused():
    env = assay.environment("single_color_modulo", size=32, shapes=("blob",) * 40)
    with pytest.raises(InputError, match="40 patches"):
        env.batch(1)


def test_probabilities_do_not_apply_where_there_are_no_classes():
    env = assay.environment("single_color_modulo", size=24, samples=4)
    with pytest.raises(assay.NotApplicable, match="classes"):
        assay.explain(env.model, env.batch(2).inputs, [0, 0], "saliency", output="probability")
    batch = env.batch(2)
    maps = assay.explain(env.model, batch.inputs, batch.targets, "input_x_gradient")
    support = maps.abs().sum((1, 2)) > 0
    assert torch.equal((maps != 0)[support], (batch.truth != 0)[support])


def test_the_truth_is_that_of_the_right_class(tmp_path):
    """Where another class is explained it says nothing, whatever the map."""
    env = assay.environment("multi_color_sum", size=24, unseen=False)
    maps = {}
    for target in ("label", 0):
        told = {"target": target, "progress": False, "limit": 12}
        found = assay.benchmark(env.model, env.dataset, ["oracle"], ["truth_f1"], **told)
        scores = found.scores.to_pylist()
        maps[target] = {r["sample"]: r["value"] for r in scores if r["metric"] == "f1"}
    labels = {sample: env.dataset.fetch(sample).label for sample in maps["label"]}
    assert all(value == 1 for value in maps["label"].values())
    for sample, value in maps[0].items():
        assert (value == 1) if labels[sample] == 0 else value != value
    assert 0 < sum(value == 1 for value in maps[0].values()) < 12


def test_a_modulo_network_stays_small():
    net = assay.environment("single_color_modulo", size=16, modulus=2).net
    assert sum(p.numel() for p in net.parameters()) < 10**6  # 256 pixels need no more
    with pytest.raises(InputError, match="larger `modulus` or a smaller `most`"):
        assay.environment("single_color_modulo", modulus=2, most=50_000)
    with pytest.raises(InputError, match="Raise `density`"):
        assay.environment("single_color_modulo", size=16, density=1e-9).batch(1)


def test_batches_refuse_what_is_no_number():
    env = assay.environment("multi_color_sum", size=16, label="mine")
    assert env.name == env.model.name == env.dataset.name == "mine"
    for told, said in (({"n": 2.5}, "`n`"), ({"n": 0}, "`n`"), ({"n": 2, "seed": -1}, "`seed`")):
        with pytest.raises(InputError, match=said):
            env.batch(**told)
