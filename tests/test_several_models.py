"""Several models in one run from Python: `assay.benchmark({"a": net, "b": net}, ...)`."""

import numpy as np
import pytest
import torch

import assay
from assay.conformance.worlds import make_images, make_net

pytestmark = pytest.mark.filterwarnings("ignore:.*hardly above chance")
METHODS, PROTOCOLS = ["saliency", "random"], ["single_deletion"]


def test_names_are_the_keys_and_scores_those_of_each_model_alone() -> None:
    nets, data = {"a": make_net(0), "b": make_net(1)}, make_images(5)
    together = assay.benchmark(nets, data, METHODS, PROTOCOLS, progress=False)
    assert list(together.entries.models) == ["a", "b"]
    for name, net in nets.items():
        alone = assay.benchmark(net, data, METHODS, PROTOCOLS, progress=False)
        mine = together.scores.filter(np.array(together.scores["model"]) == name)
        assert mine["value"].to_pylist() == alone.scores["value"].to_pylist()


def test_the_same_network_may_have_two_names() -> None:
    net = make_net(0)
    results = assay.benchmark({"a": net, "b": net}, make_images(3), METHODS, PROTOCOLS,
                              progress=False)  # fmt: skip
    by_model = [
        [v for v, m in zip(results.scores["value"].to_pylist(), results.scores["model"].to_pylist(),
                           strict=True) if m == name]
        for name in "ab"
    ]  # fmt: skip
    assert by_model[0] == by_model[1]


def test_the_same_network_under_two_names_is_compared_once() -> None:
    nets = {"a-s0": make_net(0), "a-s1": make_net(0), "b": make_net(1)}
    results = assay.benchmark(nets, make_images(12), METHODS, PROTOCOLS, progress=False)
    (one,) = results.compare(resamples=100).comparisons
    assert {row.model for row in one.models} == {"a-s0", "b"}
    assert one.architectures == ()
    assert [(left.name, left.reason) for left in one.left_out] == [
        ("a-s1", "Has the same weights as a-s0, and counts once.")
    ]


def test_two_outputs_of_one_network_are_two_models_and_one_replicate() -> None:
    class TwoHeads(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = make_net(0), make_net(1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"first": self.first(x), "second": self.second(x)}

    net = TwoHeads().eval()
    heads = {f"head-s{i}": assay.model(net, output=o) for i, o in enumerate(("first", "second"))}
    results = assay.benchmark(heads, make_images(12), METHODS, PROTOCOLS, progress=False)
    (one,) = results.compare(resamples=100).comparisons
    assert {row.model for row in one.models} == {"head-s0", "head-s1"}
    assert one.architectures == ()
    assert any("count as one replicate" in note for note in one.notes)


def test_a_method_with_other_code_in_another_run_is_another_method() -> None:
    def mine(model: assay.Model, batch: assay.Batch) -> torch.Tensor:
        return batch.inputs

    before = mine

    def mine(model: assay.Model, batch: assay.Batch) -> torch.Tensor:
        return batch.inputs**2

    data, nets = make_images(12), {"a": make_net(0), "b": make_net(1)}
    first, second = (
        assay.benchmark({name: net}, data, ["saliency", {"mine": method}, "random"], PROTOCOLS,
                        progress=False)
        for (name, net), method in zip(nets.items(), (before, mine), strict=True)
    )  # fmt: skip
    (one,) = first.compare(second, resamples=100).comparisons
    assert one.methods == ("saliency",)
    (left,) = one.methods_left_out
    assert left.name == "mine"
    assert left.reason.endswith("its code, or that of a part of it, differs.")


def test_fine_tuned_networks_are_compared_without_the_placebo() -> None:
    base, (x, y) = make_net(0), make_images(80, seed=2)
    options = {"epochs": 1, "augment": False, "progress": False}
    nets: dict[str, object] = {"before": base}
    for name, own in (("one", {}), ("two", {"seed": 1}), ("placebo", {"placebo": True})):
        net, card = assay.training.in_domain(base, (x, y), **options, **own)
        nets[name] = assay.model(net, card=card)
    protocols = ["in_domain_single_deletion", *PROTOCOLS]
    results = assay.benchmark(nets, make_images(12), METHODS, protocols, progress=False)
    inside, outside = results.compare(resamples=100).comparisons
    assert {row.model for row in inside.models} == {"one", "two"}
    reasons = {left.name: left.reason for left in inside.left_out}
    assert "`assay finetune --model M --data D --grid 4" in reasons["before"]
    assert reasons["placebo"].endswith("Card: placebo, nothing removed.")
    assert not any("unusual inputs" in note for note in inside.notes)
    assert {row.model: row.tuning for row in outside.models} == {
        "before": "", "one": "without a cell, grid 4, fill zero",
        "two": "without a cell, grid 4, fill zero", "placebo": "placebo, nothing removed",
    }  # fmt: skip
    assert any("known to be trained" in n and "one, two. A part" in n for n in outside.notes)
    # On the same network both protocols give one score.
    (both,) = {row.score for row in inside.models if row.model == "one"}
    paired = next(row for row in outside.models if row.model == "one")
    assert both == paired.score


def test_defaults_apply_to_any_of_the_models_and_the_forecast_counts_all() -> None:
    data = make_images(4)
    flat = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))
    both = assay.dry_run({"flat": flat, "conv": make_net()}, data, protocols=PROTOCOLS)
    one = assay.dry_run(make_net(), data, protocols=PROTOCOLS)
    assert "gradcam" in both.method_rows  # which the first network alone would not have
    assert both.rows["single_deletion"] == 2 * one.rows["single_deletion"]


@pytest.mark.parametrize("names", [{}, {1: make_net()}, {"": make_net()}])
def test_bad_names_are_refused(names: dict) -> None:
    with pytest.raises(assay.InputError, match="a dict of networks by name"):
        assay.benchmark(names, make_images(3), METHODS, PROTOCOLS)


def test_methods_that_belong_to_one_network_are_refused() -> None:
    net, (x, y) = make_net(), make_images(3)

    class Own:
        def attribute(self, inputs: torch.Tensor, *, target: torch.Tensor) -> torch.Tensor:
            return inputs

    layer = next(part for part in net.modules() if isinstance(part, torch.nn.Conv2d))
    for item, what in (
        ({"mine": torch.rand(3, 16, 16)}, "maps"),
        ({"mine": Own()}, "objects with `attribute`"),
        (Own(), "objects with `attribute`"),
        ({"gradcam": {"layer": layer}}, "layers given as modules"),
    ):
        with pytest.raises(assay.InputError, match=what):
            assay.benchmark({"a": net, "b": net}, (x, y), [item], PROTOCOLS)


def test_one_network_is_asked_for_where_only_one_is_meant() -> None:
    net, (x, y) = make_net(), make_images(3)
    with pytest.raises(assay.InputError, match="Expected one network, got a dict"):
        assay.explain({"a": net}, x, y, "saliency")
    with pytest.raises(assay.InputError, match="Expected one network, got a dict"):
        assay.score({"a": net}, x, y, torch.rand(3, 16, 16), "single_deletion")
