"""Which class is explained, and what stands for nothing: the choices every method has."""

from dataclasses import replace

import pytest
import torch

import assay
from assay.data.memory import as_dataset
from assay.errors import InputError, NotApplicable
from assay.plan.resolving import resolve
from assay.suite.from_options import ModelOptions, own_suite
from assay.suite.spec import make_suite
from assay.types import Dataset, Sample
from small_worlds import LinearImages, make_images

QUIET = {"progress": False, "micro_batch": 4}
NAMES = ["tabby, tabby cat", "dog", "fish"]


def named(names=NAMES):
    net, (x, y) = LinearImages(), make_images(6, size=8)
    return assay.model(net, classes=names), x, y % 3


class TestOneClassForAll:
    @pytest.mark.parametrize("target", [2, "fish", "Fish"])
    def test_by_number_or_name(self, target):
        model, x, y = named()
        results = assay.benchmark(
            model,
            (x, y),
            ["input_x_gradient"],
            ["single_deletion"],
            target=target,
            **QUIET,
            controls="off",
        )
        maps = results.maps("input_x_gradient")
        for sample, one in zip(maps.values(), x, strict=True):
            exact = (one * model.net.weight[2]).sum(0).detach()
            assert torch.allclose(torch.from_numpy(sample), exact, atol=1e-6)
        assert set(results.scores["target"].to_pylist()) == {"2"}
        assert results.manifest["target"] == target

    def test_a_synonym_will_do_and_labels_are_not_needed(self):
        model, x, _ = named()
        results = assay.benchmark(
            model,
            (x, None),
            ["saliency"],
            ["single_deletion"],
            target="tabby",
            **QUIET,
            controls="off",
        )
        found = next(iter(results.maps("saliency").values()))
        expected = model.net.weight[0].sum(0).detach()
        assert torch.allclose(torch.from_numpy(found), expected, atol=1e-6)

    def test_it_is_what_explaining_that_class_gives(self):
        model, x, _ = named()
        ones = assay.explain(model, x, torch.ones(6, dtype=torch.long), "input_x_gradient")
        found = assay.benchmark(
            model,
            (x, None),
            ["input_x_gradient"],
            ["single_deletion"],
            target=1,
            **QUIET,
            controls="off",
        ).maps("input_x_gradient")
        assert torch.equal(torch.stack([torch.from_numpy(m) for m in found.values()]), ones)

    def test_names_of_the_data_serve_where_the_model_has_none(self):
        _, x, y = named()
        data = replace(as_dataset((x, y)), classes={0: "cat", 1: "dog", 2: "fish"})
        plan = resolve(
            make_suite(
                {"datasets": [data], "models": [LinearImages()], "methods": ["random"],
                 "protocols": ["deletion"], "target": "dog"}
            )
        )  # fmt: skip
        assert plan.batch(plan.shards[0]).targets.tolist() == [1] * 6

    def test_name_and_number_share_their_keys_and_other_classes_do_not(self):
        model, x, y = named()

        def key(target) -> str:
            suite = {"datasets": [as_dataset((x, y))], "models": [model], "methods": ["saliency"],
                     "protocols": ["deletion"], "target": target}  # fmt: skip
            plan = resolve(make_suite(suite))
            return plan.maps_key(plan.shards[0], plan.methods[0])

        assert key(1) == key("dog")
        assert len({key(0), key(1), key("label"), key("predicted")}) == 4

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            ("lable", "Unknown class to explain `lable`.*`label`"),
            (3, "`target` to be below 3, the number of classes of model `linearimages`, got 3"),
            (-1, "Wrong `target`.*-1"),
            (True, "Wrong `target`.*True"),
        ],
    )
    def test_what_cannot_be_explained_is_said(self, target, said):
        model, x, y = named()
        with pytest.raises(InputError, match=said):
            assay.benchmark(
                model,
                (x, y),
                ["random"],
                ["single_deletion"],
                target=target,
                **QUIET,
                controls="off",
            )

    def test_a_name_where_nobody_has_names(self):
        with pytest.raises(InputError, match="names its classes"):
            assay.benchmark(
                LinearImages(), make_images(3, size=8), ["random"], ["deletion"], target="cat",
                **QUIET, controls="off",
            )  # fmt: skip

    def test_the_command_line_takes_both(self):
        for word, target in (("3", 3), ("cat", "cat")):
            suite = own_suite("cifar_resnet20", "photos", ModelOptions(), target=word)
            assert suite.target == target


class TestTheGivenBaseline:
    def data(self, x, baselines) -> Dataset:
        def fetch(sample: str) -> Sample:
            i = int(sample)
            return Sample(x[i], 0, baseline=None if baselines is None else baselines[i])

        ids = tuple(str(i) for i in range(len(x)))
        return Dataset("known", "image", ids, fetch, fingerprint="known")

    def test_every_sample_has_its_own(self):
        """On f(x) = w x the map is w (x - b)."""
        net, (x, _) = LinearImages(), make_images(4, size=8)
        b = make_images(4, seed=9, size=8)[0]
        results = assay.benchmark(
            net, self.data(x, b), [{"integrated_gradients": {"steps": 1, "baseline": "given"}}],
            [{"deletion": {"fill": "given", "steps": 2}}], **QUIET, controls="off",
        )  # fmt: skip
        (label,) = results.manifest["methods"]
        for sample, found in results.maps(label).items():
            i = int(sample)
            exact = ((x[i] - b[i]) * net.weight[0]).sum(0).detach()
            assert torch.allclose(torch.from_numpy(found), exact, atol=1e-5)
        assert max(row["value"] for row in results.checks.to_pylist()) < 1e-4
        last = [row for row in results.curves.to_pylist() if row["x"] == 1.0]
        with torch.no_grad():
            gone = net(b).softmax(1)[:, 0].tolist()
        assert [row["value"] for row in last] == pytest.approx(gone, rel=1e-5)

    def test_without_one_it_does_not_apply(self):
        net, (x, y) = LinearImages(), make_images(4, size=8)
        with pytest.raises(NotApplicable, match=r"The fill `given`.*none"):
            assay.explain(net, x, y % 3, "integrated_gradients", steps=1, baseline="given")


def test_black_is_pixel_value_zero():
    """On f(x) = w x from black the map is w (x - b), b = -mean / std."""
    net, (x, y) = LinearImages(), make_images(4, size=8)
    model = assay.model(net, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    black = torch.tensor([-2.5, -4 / 3, -0.75]).reshape(3, 1, 1)
    maps = assay.explain(model, x, y % 3, "integrated_gradients", steps=1, baseline="black")
    exact = ((x - black) * net.weight[y % 3]).sum(1).detach()
    assert torch.allclose(maps, exact, atol=1e-5)
