"""The claims of AttributionLab as stated before they are run; `study` holds their tests."""

from typing import Literal

from assay.studies.claim import Claim, Direction

PAPER = "attributionlab"
GAMMA = 0.5
NOT_SHARED_BY_CHANCE = 0.9  # of two unrelated choices of a tenth of the pixels


def _claim(
    number: int, statement: str, statistic: str, *, direction: Direction = "above",
    margin: float = 0.0, unit: str = "image", n: int = 100, parts: Literal["all", "any"] = "all",
    definition: int = 1,
) -> Claim:  # fmt: skip
    return Claim(
        f"{PAPER}.{number}", PAPER, statement, statistic, direction, margin, unit=unit, n=n,
        parts=parts, definition=definition,
    )  # fmt: skip


CLAIMS = (
    _claim(
        1, "Networks that fit two images perfectly may look at the edge or the centre (App. A)",
        "over networks trained alike and right on both images: the share that is right by the "
        "objects at the edge alone", margin=0.05, unit="network", n=20,
    ),
    _claim(
        2, "DeepSHAP marks the right pixels, with wrong signs (4.1)",
        "F1 minus gamma: overall above, positive and negative below, with the unseen effect",
    ),
    _claim(
        3, "LIME depends on its segments: Felzenszwalb fails at .5, Quickshift at .6, true patches "
        "pass (4.2)",
        "overall F1 minus gamma: Felzenszwalb below at .5, Quickshift below at .6, patches above "
        "at .6; absent segments are black, and in a second row the true background", definition=2,
    ),
    _claim(
        4, "Integrated gradients and occlusion fail from black and pass from the true background, "
        "by precision (4.3)",
        "overall F1 minus gamma from either; precision from the background minus from black",
    ),
    _claim(
        5, "Grad-CAM, IBA and Extremal Perturbation pass on positive truth that is smooth (4.4)",
        "F1 of the smooth positive truth minus gamma, each",
    ),
    _claim(
        6, "Of these Extremal Perturbation is imprecise and IBA the most faithful (4.4)",
        "precision of Extremal Perturbation minus each other's, below; F1 of IBA minus each "
        "other's, above",
    ),
    _claim(
        7, "The unseen effect makes perturbation metrics disagree with the truth (5)",
        "rank correlation with positive F1 over the methods, without minus with the effect: "
        "Insertion, Deletion, Sensitivity-N",
    ),
    _claim(
        8, "LRP, DeepSHAP and integrated gradients are optimal for nearly all modulo images (F.3)",
        "share of images with an overall F1 above .99, each", margin=0.9,
    ),
    _claim(
        9, "In the modulo setting guided backprop recalls all, imprecisely; Grad-CAM and IBA are "
        "blurred (F.3)",
        "guided backprop's recall above .9 and precision below .6; precision of Grad-CAM and IBA "
        "below .6",
    ),
    _claim(
        10, "Insertion, deletion and Sensitivity-N agree with the truth in the modulo setting "
        "(F.4)",
        "rank correlation with overall F1 over the methods, each", margin=0.9,
    ),
    _claim(
        11, "DeepSHAP has a negative Sensitivity-N curve (G.5)",
        "its mean correlation, with the unseen effect", direction="below",
    ),
    _claim(
        12, "Uniform weights do not remove the problem (App. I)",
        "rank correlation lost by the unseen effect, as in 7, on images of 64 pixels: with uniform "
        "weights minus half of that with non-uniform weights", definition=2,
    ),
    _claim(
        13, "Methods without negative values recall positive truth better than all truth",
        "recall of the positive minus of the overall truth: Grad-CAM, guided backprop, LRP, IBA",
        definition=2,
    ),
    _claim(
        14, "IBA is better in the multi-colour than in the modulo setting",
        "precision on positive truth there minus on the truth here, other images", margin=0.05,
        definition=2,
    ),
    _claim(
        15, "Sensitivity-N curves of methods cross in the multi-colour setting",
        "Grad-CAM or IBA with integrated gradients or DeepSHAP, any of the four pairs: the "
        "smaller of the lead of one where at most 2 % of the pixels are removed and the lead of "
        "the other where at least half are", margin=0.02, parts="any", definition=2,
    ),
    _claim(
        16, "DeepSHAP mixes signs among similar neighbours on a real network too",
        "share of neighbouring pixels of nearly one colour with opposite signs: DeepSHAP above "
        ".25, and minus that of integrated gradients, which has signs too, above .05", margin=0.25,
        definition=2,
    ),
    _claim(
        17, "The baseline changes what integrated gradients highlights on a real network",
        "share of the tenth of pixels with most attribution that black and white baselines do not "
        f"share; unrelated maps do not share {NOT_SHARED_BY_CHANCE}, the margin is half-way from "
        "there to all", margin=(NOT_SHARED_BY_CHANCE + 1) / 2, definition=2,
    ),
    _claim(
        18, "LIME depends on its segments on a real convolutional network and transformer",
        "1 - Spearman between maps by Felzenszwalb and by Quickshift, each network", margin=0.25,
    ),
)  # fmt: skip
