"""The claims of M4 (Li et al. 2023), on small networks that replace its own.

    python -m assay.studies.m4.study --data DIR --device cuda --n 500 --out DIR

Its yellow patch is planted on CIFAR-10, with 9 pixels of 32 instead of 60 of 224, and the networks
in `networks` are trained on it from scratch. Methods run as in M4 for this score: the probability
of the predicted class, absolute values summed over channels, integrated gradients from 5 random
baselines with 20 steps, SmoothGrad with 100 copies and noise of a thousandth of the range.

Differs from the paper: AdamW with one cycle of the learning rate for all networks; images whose
patch a network does not recognise are left out, because the truth does not hold for another class;
integrated gradients use Gauss-Legendre quadrature.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from assay.plugins.option_types import Options
from assay.studies.claim import Claim, ClaimRow, Effect, SettingKind, apart, make_row, replicates
from assay.studies.m4 import measured_times
from assay.studies.m4.claims import CLAIMS as CLAIMS
from assay.studies.m4.claims import LOWEST, MUCH, STAYS

if TYPE_CHECKING:
    from assay.studies.m4.runs import Scored
    from assay.studies.setting import Study
    from assay.suite.spec import Spec

USUAL_N = 500  # the default number of images per network
SETTING: SettingKind = "stand-in"
GRADIENTS = ("integrated_gradients", "smoothgrad")
ATTENTION = ("generic_attention", "bt_head", "bt_token")

UPPER = "Where a part of the patch suffices, the whole is an upper bound of the truth: see m4.13."

Means = Mapping[str, float]  # by method, of one network


def patch_on_convolutional(claim: Claim, study: Study) -> list[ClaimRow]:
    """4: which methods find the patch on convolutional networks."""
    from assay.studies.m4.networks import CONVOLUTIONAL
    from assay.studies.m4.runs import scored

    return [smoothgrad_last(claim, scored(CONVOLUTIONAL, study))]


def smoothgrad_last(claim: Claim, scores: Scored) -> ClaimRow:
    """Integrated gradients or Grad-CAM first, SmoothGrad last, none below the paper's lowest."""
    of_last = _orders(scores, lambda means: means["gradcam"])
    of_best = _orders(scores, lambda means: max(v for m, v in means.items() if "gradcam" in m))
    best = "; ".join(str(effect) for effect in of_best)
    note = (
        f"{_table(scores)}. {_drawn(scores)}. Grad-CAM at the last layer. At the layer that is "
        f"best for the network, chosen on the same images, since the paper's values cannot come "
        f"from a last layer of 7 x 7 places: {best}. {UPPER}{_left_out(scores)}"
    )
    return make_row(claim, of_last, SETTING, note=note.removesuffix("."))


def _orders(scores: Scored, gradcam: Callable[[Means], float]) -> list[Effect]:
    networks = scores.values.values()
    rivals = [sorted((means["integrated_gradients"], gradcam(means))) for means in networks]
    second, first = np.array(rivals).reshape(-1, 2).T
    smooth = np.array([means["smoothgrad"] for means in networks])
    lowest = np.minimum(second, smooth)
    return [
        replicates("first - smoothgrad", (first - smooth).tolist()),
        replace(replicates("second - smoothgrad", (second - smooth).tolist()), margin=0.0),
        replace(replicates(f"lowest - {LOWEST}", (lowest - LOWEST).tolist()), margin=0.0),
    ]


def patch_on_transformers(claim: Claim, study: Study) -> list[ClaimRow]:
    """8: which methods find the patch on transformers, and how much worse gradients are there."""
    from assay.studies.m4.networks import CONVOLUTIONAL, TRANSFORMERS
    from assay.studies.m4.runs import scored

    return [attention_first(claim, scored(TRANSFORMERS, study), scored(CONVOLUTIONAL, study))]


def attention_first(claim: Claim, transformers: Scored, convolutional: Scored) -> ClaimRow:
    """Generic attention first on transformers; gradients lower there than on the other networks."""
    ahead = [
        means["generic_attention"]
        - max(means[m] for m in (*ATTENTION, *GRADIENTS) if m != "generic_attention")
        for means in transformers.values.values()
    ]
    effects = [replicates("generic_attention - best other", ahead)]
    for method in GRADIENTS:
        there, here = (
            [means[method] for means in group.values.values()]
            for group in (convolutional, transformers)
        )
        lost = apart(f"{method} lost on transformers", there, here)
        effects.append(replace(lost, margin=MUCH))
    note = (
        f"On transformers: {_table(transformers)}. On convolutional networks: "
        f"{_table(convolutional)}. {_drawn(transformers, convolutional)}. Generic attention in "
        f"M4's form. That it is worst on MAE is not testable here: no network was trained to fill "
        f"in masked images. "
        f"{UPPER}"
        f"{_left_out(transformers, convolutional)}"
    )
    return make_row(claim, effects, SETTING, note=note.removesuffix("."))


def patch_is_used(claim: Claim, study: Study) -> list[ClaimRow]:
    """13: whether every trained network uses the patch, with or without proof of use."""
    from assay.studies.m4.networks import CONVOLUTIONAL, TRANSFORMERS
    from assay.studies.m4.runs import trained

    kinds = (CONVOLUTIONAL, TRANSFORMERS)
    networks = [network for group in kinds for network in trained(group, study)]
    proofs = {network.name: network.proof for network in networks}
    return [needed(claim, proofs, [n.name for n in networks if n.made is None])]


def needed(claim: Claim, proofs: Mapping[str, Options], refused: Sequence[str]) -> ClaimRow:
    """Correct predictions disappear with the patch, and stay when only the patch is left."""
    cards = list(proofs.values())
    effects = [replicates("changed", [card["changed"] for card in cards])]
    for way in ("alone", "moved"):
        stays = replicates(f"{way} - whole", [card[way] - card["planted"] for card in cards])
        effects.append(replace(stays, margin=STAYS))
    parts = Counter(part for card in cards for part in card["sufficient"])
    enough = ", ".join(f"{part} {count}" for part, count in parts.items()) or "none"
    without = f", but {', '.join(refused)}" if refused else ""
    lowest = min(card["changed"] for card in cards)
    note = (
        f"{len(cards) - len(refused)} of {len(cards)} networks have proof of use"
        f"{without}; least changed {lowest:.3f}. Networks for which a part suffices: {enough}"
    )
    return make_row(claim, effects, SETTING, note=note)


def _table(scores: Scored) -> str:
    """The mean of each method over networks; for Grad-CAM, at the last layer."""
    networks = list(scores.values.values())
    methods = [m for m in (networks[0] if networks else ()) if not m.startswith("gradcam at ")]
    return ", ".join(f"{m} {np.mean([means[m] for means in networks]):.3f}" for m in methods)


def _drawn(*groups: Scored) -> str:
    """What the intervals are over: seeds of a few kinds, read from the networks' names."""
    counts = [Counter(name.rpartition("-")[0] for name in group.values) for group in groups]
    networks = " and ".join(
        f"{kinds.total()} networks of {len(kinds)} kinds "
        f"({', '.join(f'{kind} {count}' for kind, count in kinds.items())})"
        for kinds in counts
    )
    return f"The intervals are over seeds, {networks}: no independent draws of architectures"


def _left_out(*groups: Scored) -> str:
    refused = [name for group in groups for name in group.refused]
    return f" Left out without proof of use: {', '.join(refused)}" if refused else ""


TESTS: dict[str, Callable[[Claim, Study], list[ClaimRow]]] = {
    "m4.4": patch_on_convolutional,
    "m4.8": patch_on_transformers,
    "m4.12": measured_times.only_two_take_seconds,
    "m4.13": patch_is_used,
}


DESIGNED: tuple[str, ...] = ()  # claims on images of a size that the command chooses
SIZE, TIMED_SIZE = 32, 224  # pixels a side of images with the patch, and of timed ones


def image_size(claim: str, study: Study) -> int | None:
    """Pixels a side of the images behind a claim."""
    return TIMED_SIZE if claim == "m4.12" else SIZE


def suites_of(claims: Iterable[str], study: Study) -> dict[str, Spec]:
    """None: the networks are trained first, so no suite can name them."""
    return {}


if __name__ == "__main__":
    from assay.studies.setting import main

    main("m4")
