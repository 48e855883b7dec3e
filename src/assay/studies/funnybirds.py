"""The scores of FunnyBirds (hesse2023funnybirds), in the environment `parts`.

Completeness and correctness are protocols, `part_completeness` and `part_deletion`. Contrastivity
explains each image for two classes that are not its own, which no protocol sees; so it is here.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor

from assay.api import benchmark
from assay.environments.environment import Environment
from assay.errors import NotApplicable
from assay.features import parts_of
from assay.methods import attribute
from assay.models.prepare import prepare_network
from assay.protocols.parts import importance
from assay.ranking.reduce_part_checks import PART_SCORES
from assay.spec import Choice, choose_one
from assay.types import Batch, Model, Parts

SHARED = 2  # parts that a class has in common with the one shown


def scores(
    environment: Environment, methods: Sequence[Any], *, seed: int = 0
) -> dict[str, dict[str, float]]:
    """All scores of each method, by its label, on the environment's own samples.

    `completeness` with its four checks; `correctness`, which is `part_deletion`; `contrastivity`,
    which is `target_sensitivity`; and `mean`, of these three. The model's own scores (accuracy,
    background independence) are in `environment.card`.
    """
    checks = [{"part_completeness": {"score": name, "label": name}} for name in PART_SCORES]
    correct = {"part_deletion": {"label": "correctness"}}
    results = benchmark(
        environment.model, environment.dataset, methods, [*checks, correct], seed, progress=False
    )
    found: dict[str, dict[str, float]] = {}
    for row in results.leaderboard().rows:
        found.setdefault(row["method"], {})[row["protocol"]] = row["mean"]
    for item in methods:
        choice = choose_one("method", item)
        told = found[choice.label]
        told["contrastivity"] = float(target_sensitivity(environment, choice, seed=seed).nanmean())
        parts = [told[name] for name in ("completeness", "correctness", "contrastivity")]
        told["mean"] = sum(parts) / len(parts)
    return found


def target_sensitivity(
    environment: Environment, method: Any, n: int | None = None, *, seed: int = 0
) -> Tensor:  # [n]
    """Whether a map for another class points to what the image has in common with that class.

    Formula: of two classes c, c' that share two parts with the image each, S and S', no part twice:
    the mean of [e^c(S) > e^c'(S)] and [e^c'(S') > e^c(S')], with e^c(S) the sum over S of what the
    map for class c says of each part. NaN where an image has no such classes.

    Classes count if the network agrees: it loses more of c without S than without S', and more of
    c' without S' than without S. Of those the first in a seeded order is taken. A map that does not
    depend on the class scores 0, for it never says more of one.

    Beside the paper: it draws one pair, takes one whose parts are not disjoint where there is no
    other, and leaves the image out if the network does not agree; here every pair is tried.
    """
    choice = method if isinstance(method, Choice) else choose_one("method", method)
    batch, model = environment.batch(n or environment.samples, seed), environment.model
    with model.evaluating(), torch.no_grad():
        prepare_network(model, batch.inputs[:1])
        rivals, shared, known = _rivals(model, batch)
        first, second = (
            importance(batch, attribute(model, replace(batch, targets=rivals[:, k]), choice))
            for k in range(2)
        )
    more = torch.stack([first - second, second - first], 1)  # [n, 2, parts]
    right = ((more * shared).sum(2) > 0).double().mean(1)
    return torch.where(known, right, torch.nan)


def _rivals(model: Model, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Two other classes of each image `[n, 2]`, what each shares `[n, 2, parts]`, and if known."""
    of = parts_of(batch, "rivals of a class")
    pairs = list(combinations(range(len(of.names)), SHARED))
    answers = {pair: _logits(model, of, batch, pair) for pair in pairs}  # [n, classes] each
    rivals, shared = torch.zeros(len(batch), 2, dtype=torch.long), []
    known = torch.zeros(len(batch), dtype=torch.bool)
    for b, label in enumerate(batch.targets.tolist()):
        found = _agreed(of, {pair: logits[b] for pair, logits in answers.items()}, label, batch, b)
        sets = torch.zeros(2, len(of.names))
        if found is not None:
            known[b] = True
            for k, (rival, pair) in enumerate(found):
                rivals[b, k] = rival
                sets[k, list(pair)] = 1
        shared.append(sets)
    if not bool(known.any()):
        raise NotApplicable("No image has two classes that share two parts with it, none twice.")
    return rivals, torch.stack(shared), known


def _agreed(
    of: Parts, answers: dict[tuple[int, ...], Tensor], label: int, batch: Batch, b: int
) -> list[tuple[int, tuple[int, ...]]] | None:
    """The first two classes, in a seeded order, of which the network also says what they share."""
    same = of.classes == of.classes[label]  # [classes, parts]
    near = (same.sum(1) == SHARED).nonzero().flatten().tolist()
    sharing = [(rival, tuple(same[rival].nonzero().flatten().tolist())) for rival in near]
    both = [(c, d) for c, d in permutations(sharing, 2) if not set(c[1]) & set(d[1])]
    order = torch.randperm(len(both), generator=batch.generator(b, "rivals")).tolist()
    for (c, mine), (d, yours) in (both[k] for k in order):
        if answers[mine][c] < answers[yours][c] and answers[yours][d] < answers[mine][d]:
            return [(c, mine), (d, yours)]
    return None


def _logits(model: Model, of: Parts, batch: Batch, absent: Sequence[int]) -> Tensor:
    """All answers to the images without some parts."""
    images = torch.stack([of.without(i, frozenset(absent)) for i in batch.ids]).to(batch.inputs)
    size = model.micro_batch
    chunks = [images[start : start + size] for start in range(0, len(images), size)]
    return torch.cat([model.logits(chunk) for chunk in chunks]).cpu()
