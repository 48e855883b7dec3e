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
