"""The scores of FunnyBirds (hesse2023funnybirds), in the environment `parts`.

Completeness and correctness are the protocols `part_completeness` and `part_deletion`.
Contrastivity explains each image for two other classes, which no protocol can do, so it is computed
here.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

import torch
from torch import Tensor

from assay.api import benchmark
from assay.environments.environment import Environment
from assay.errors import NotApplicable
from assay.methods.attribution import attribute
from assay.models.prepare import prepare_network
from assay.plugins.option_types import Item
from assay.protocols.painted_parts import importance
from assay.ranking.reduce_part_checks import PART_SCORES
from assay.suite.spec import Choice, choose_one
from assay.types import Batch, Model, Parts
from assay.units.features import parts_of

SHARED = 2  # parts that a rival class has in common with the image's class


def funnybirds_scores(
    environment: Environment, methods: Sequence[Item], *, seed: int = 0
) -> dict[str, dict[str, float]]:
    """All scores of each method, by label, on the environment's own samples.

    `completeness` with its four checks; `correctness`, which is `part_deletion`; `contrastivity`,
    which is `target_sensitivity`; and `mean`, the mean of these three. The model's own scores
    (accuracy, background independence) are in `environment.card`.
    """
    checks = [{"part_completeness": {"score": name, "label": name}} for name in PART_SCORES]
    correct = {"part_deletion": {"label": "correctness"}}
    results = benchmark(
        environment.model,
        environment.dataset,
        methods,
        [*checks, correct],
        seed,
        progress=False,
        controls="off",
    )
    by_method: dict[str, dict[str, float]] = {}
    for row in results.leaderboard().rows:
        by_method.setdefault(row["method"], {})[row["protocol"]] = row["mean"]
    for item in methods:
        choice = choose_one("method", item)
        mine = by_method[choice.label]
        mine["contrastivity"] = float(target_sensitivity(environment, choice, seed=seed).nanmean())
        parts = [mine[name] for name in ("completeness", "correctness", "contrastivity")]
        mine["mean"] = sum(parts) / len(parts)
    return by_method


def target_sensitivity(
    environment: Environment, method: Item | Choice, n: int | None = None, *, seed: int = 0
) -> Tensor:  # [n]
    """Whether a map for another class points to what the image has in common with that class.

    Formula: for two classes c, c' that share the parts S and S' with the image, two parts each and
    none in common: the mean of [e^c(S) > e^c'(S)] and [e^c'(S') > e^c(S')], with e^c(S) the
    attribution of the parts S in the map for class c. NaN where an image has no such classes.

    A pair of classes counts if the network agrees: the logit of c drops more without S than without
    S', and that of c' more without S' than without S. The first such pair in a seeded random order
    is used. A map that does not depend on the class scores 0, because neither sum is larger.

    Differs from the paper: the paper draws one pair, accepts parts that are not disjoint where
    there is no other pair, and leaves the image out if the network does not agree; here every pair
    is tried.
    """
    choice = method if isinstance(method, Choice) else choose_one("method", method)
    batch, model = environment.batch(n or environment.samples, seed), environment.model
    with model.evaluating(), torch.no_grad():
        model = prepare_network(model, batch.inputs[:1]).model
        rivals, shared, known = _rivals(model, batch)
        first, second = (
            importance(batch, attribute(model, replace(batch, targets=rivals[:, k]), choice))
            for k in range(2)
        )
    more = torch.stack([first - second, second - first], 1)  # [n, 2, parts]
    right = ((more * shared).sum(2) > 0).double().mean(1)
    return torch.where(known, right, torch.nan)


def _rivals(model: Model, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Two rivals of each image `[n, 2]`, their parts `[n, 2, parts]`, and whether there are any."""
    of = parts_of(batch, "rivals of a class")
    pairs = list(combinations(range(len(of.names)), SHARED))
    answers = {pair: _logits(model, of, batch, pair) for pair in pairs}  # [n, classes] each
    rivals, shared = torch.zeros(len(batch), 2, dtype=torch.long), []
    known = torch.zeros(len(batch), dtype=torch.bool)
    for b, label in enumerate(batch.targets.tolist()):
        chosen = _agreed(of, {pair: logits[b] for pair, logits in answers.items()}, label, batch, b)
        sets = torch.zeros(2, len(of.names))
        if chosen is not None:
            known[b] = True
            for k, (rival, pair) in enumerate(chosen):
                rivals[b, k] = rival
                sets[k, list(pair)] = 1
        shared.append(sets)
    if not bool(known.any()):
        raise NotApplicable(
            "Contrastivity needs images with two other classes that each share two parts with "
            "them, no part in common; there are none."
        )
    return rivals, torch.stack(shared), known


def _agreed(
    of: Parts, answers: dict[tuple[int, ...], Tensor], label: int, batch: Batch, b: int
) -> list[tuple[int, tuple[int, ...]]] | None:
    """The first two rival classes, in a seeded order, on which the network agrees."""
    same = of.classes == of.classes[label]  # [classes, parts]
    near = (same.sum(1) == SHARED).nonzero().flatten().tolist()
    sharing = [(rival, tuple(same[rival].nonzero().flatten().tolist())) for rival in near]
    both = [(c, d) for c, d in permutations(sharing, 2) if not set(c[1]) & set(d[1])]
    order = batch.stream(b, "rivals").orders(1, len(both))[0].tolist()
    for (c, mine), (d, yours) in (both[k] for k in order):
        if answers[mine][c] < answers[yours][c] and answers[yours][d] < answers[mine][d]:
            return [(c, mine), (d, yours)]
    return None


def _logits(model: Model, of: Parts, batch: Batch, absent: Sequence[int]) -> Tensor:
    """The logits for the images without some parts."""
    images = torch.stack([of.without(i, frozenset(absent)) for i in batch.ids]).to(batch.inputs)
    size = model.micro_batch
    chunks = [images[start : start + size] for start in range(0, len(images), size)]
    return torch.cat([model.logits(chunk) for chunk in chunks]).cpu()
