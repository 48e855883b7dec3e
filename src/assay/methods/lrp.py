"""Layer-wise relevance propagation, with one rule for all layers or the usual composites."""

from collections.abc import Callable, Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from assay.methods.copies import points
from assay.methods.outputs import Output, begun_with
from assay.methods.override import chunks, laid_out, logits_under, refuse_half
from assay.methods.promises import conservation
from assay.methods.relevance import (
    STABLE,
    Layer,
    LayerRule,
    Relevance,
    alpha_beta_rule,
    epsilon_rule,
    flat_rule,
)
from assay.methods.rules import checked_pass
from assay.plugins.registry import method
from assay.types import Batch, Model

LrpRule = Literal[
    "zero",
    "epsilon",
    "alpha_beta",
    "epsilon_plus",
    "epsilon_plus_flat",
    "epsilon_alpha_beta",
    "epsilon_alpha_beta_flat",
]


def _composite(rule: LrpRule, epsilon: float, alpha: float) -> Callable[[Layer], LayerRule]:
    """The function that chooses a layer's rule."""
    small = epsilon_rule(epsilon)
    if rule == "zero":
        return lambda layer: epsilon_rule(0)
    if rule == "epsilon":
        return lambda layer: small
    signed = alpha_beta_rule(1 if "plus" in rule else alpha)
    if rule == "alpha_beta":
        return lambda layer: signed
    flat = rule.endswith("flat")

    def choose(layer: Layer) -> LayerRule:
        if flat and layer.first:
            return flat_rule
        return signed if layer.kind == "conv" else small

    return choose


def relevances(
    model: Model, batch: Batch, output: Output, make: Callable[[], Relevance]
) -> Iterator[Tensor]:
    """The relevance of the input for the explained output, by micro-batch."""
    x = points(model, batch)
    for samples, _, asked in chunks(model, batch):
        at = laid_out(model, x[samples])
        logits = logits_under(make(), model, batch.inputs[samples], at)
        top = begun_with(model, logits, batch.targets[samples], output)
        (shared,) = torch.autograd.grad(logits, at, top)
        yield shared[:asked]


@method(
    "lrp",
    version=2,
    needs=["gradients"],
    noise=True,
    passes=checked_pass,
    promise=conservation(),
    family="relevance",
    cite="bach2015, kohlbrenner2020, ali2022",
    title="LRP",
)
def lrp(
    model: Model,
    batch: Batch,
    *,
    rule: LrpRule = "epsilon_plus",
    epsilon: Annotated[float, Field(gt=0)] = STABLE,
    alpha: Annotated[float, Field(ge=1)] = 2,
    output: Output = "logit",
) -> Tensor:
    """The explained output, distributed backwards layer by layer to the inputs.

    Formula: R_i = sum_j x_i w_ij / (z_j + epsilon sign z_j) R_j, z_j = sum_i x_i w_ij + b_j; under
    alpha-beta R_i = sum_j (alpha (x_i w_ij)+ / z_j+ - (alpha - 1) (x_i w_ij)- / z_j-) R_j. Rules:
    `zero`, `epsilon` and `alpha_beta` for all layers; composites `epsilon_plus` (convolutions with
    alpha 1, dense layers epsilon) and `epsilon_alpha_beta`, each with `_flat` for equal shares to
    all inputs of the first layer.

    Differs from the paper: batch norms are merged into the layer before them; without one they are
    a scale and a shift. Sums and means distribute in proportion, biases keep their share (under
    alpha-beta that of their sign), maxima pass everything to the largest input, activations change
    nothing, gates get nothing. In transformers attention is a gate, so queries and keys get
    nothing; layer norms are linear with their deviation held constant (Ali et al.); class tokens
    and position embeddings keep their share like biases. Group norms and products of two signals
    have no rule. An `output` other than the logit begins with the logits times its gradients.
    Meta-Rank uses `rule: epsilon`.
    """
    refuse_half(model, "LRP")
    steady = 0.0 if rule == "zero" else STABLE
    choose = _composite(rule, epsilon, alpha)
    return torch.cat(
        list(relevances(model, batch, output, lambda: Relevance("LRP", choose, steady)))
    )
