"""LIME and KernelSHAP against captum, on a trained network, with the same sets."""

import copy

import pytest
import torch

import assay
from assay.data.memory import as_dataset

captum_attr = pytest.importorskip("captum.attr")
captum_model = pytest.importorskip("captum._utils.models.model")


@pytest.fixture
def precise(resnet):
    return copy.deepcopy(resnet.model.net).double(), resnet.x[:2].double(), resnet.y[:2]


def relative(ours, theirs):
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


class WeightedRidge(captum_model.Model):
    """Least squares on the rows and one row more for each penalised coefficient."""

    def __init__(self, ridge: float) -> None:
        self.ridge = ridge

    def fit(self, train_data, **_):
        ((there, answers, weight),) = [[t.double() for t in part] for part in train_data]
        units = there.shape[1]
        design = torch.cat([torch.ones(len(there), 1), there], 1) * weight.sqrt()[:, None]
        penalty = torch.cat([torch.zeros(units, 1), torch.eye(units)], 1) * self.ridge**0.5
        right = torch.cat([answers * weight.sqrt(), torch.zeros(units)])
        rows = torch.cat([design, penalty]).double()
        self.found = torch.linalg.lstsq(rows, right.double()[:, None]).solution[1:, 0]

    def representation(self):
        return self.found

    def __call__(self, x):
        return x @ self.found


def cells(side: int) -> torch.Tensor:  # [1, 1, 32, 32]
    row = torch.arange(32) * side // 32
    return (row[:, None] * side + row)[None, None]


@pytest.mark.parametrize(("ridge", "output"), [(0.0, "logit"), (1.0, "probability")])
def test_lime(precise, ridge, output):
    net, x, y = precise
    side, samples, width = 4, 60, 0.25
    options = {"units": {"grid": {"side": side}}, "samples": samples}
    ours = assay.explain(net, x, y, "lime", ridge=ridge, output=output, width=width, **options)
    batch = as_dataset((x, y)).batch(["0000", "0001"])

    def read(images):
        logits = net(images)
        return logits.softmax(1) if output == "probability" else logits

    def similarity(_, __, there, **___):
        whole = torch.ones_like(there)
        away = 1 - torch.nn.functional.cosine_similarity(there, whole)
        return torch.exp(-(away**2) / width**2).sqrt()

    for b in range(2):
        tosses = batch.stream(b, f"coin tosses grid({side}x{side})").uniform(samples - 1, side**2)

        def same_sets(_, tosses=tosses, **__):
            yield torch.ones(1, side**2)
            yield from (tosses[:, None] >= 0.5).float()

        theirs = captum_attr.Lime(
            read, WeightedRidge(ridge), similarity_func=similarity, perturb_func=same_sets
        ).attribute(
            x[b : b + 1],
            target=int(y[b]),
            feature_mask=cells(side),
            n_samples=samples,
            perturbations_per_eval=40,
        )
        assert relative(ours[b], theirs[0, 0]) < 1e-4


def test_kernel_shap_with_all_sets_is_the_mean_over_all_orders(precise):
    """Captum walks through every permutation of four cells."""
    net, x, y = precise
    theirs = captum_attr.ShapleyValues(net).attribute(x, target=y, feature_mask=cells(2))
    ours = assay.explain(net, x, y, "kernel_shap", units={"grid": {"side": 2}}, spread="full")
    assert relative(ours, theirs[:, 0]) < 1e-6
