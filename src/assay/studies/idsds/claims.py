"""The claims of IDSDS as stated before they are run; `study` holds their tests.

26 to 29 are not statements of the paper: they test what its argument rests on. Networks for
CIFAR-10 replace the paper's for ImageNet everywhere, so that a failure does not carry over, and
absolute levels (4, 7, 14) are those of the stand-ins.
"""

from assay.studies.claim import Claim, Direction

PAPER = "idsds"
MARGIN = 0.01  # of a difference of scores
AGREES = 0.8  # rank correlation of two orders of methods
SEEDS = "network (seed within two architectures)"
MEANS_OF_SEEDS = "architectures, each the mean of its seeds"
DESIGN = "architecture, with seeds nested; seeds of these architectures as a second row"


def _claim(
    number: int, statement: str, statistic: str, *, direction: Direction = "above",
    margin: float = MARGIN, unit: str = SEEDS, n: int = 10, row_units: tuple[str, ...] = (),
) -> Claim:  # fmt: skip
    return Claim(
        f"{PAPER}.{number}", PAPER, statement, statistic, direction, margin, unit, n,
        row_units=row_units,
    )  # fmt: skip


CLAIMS = (
    _claim(
        1, "IG-U is the best model-agnostic method under IDSDS and beats IG",
        "IDSDS: IG-U minus IG above .01; IG-U minus the best other, chosen on half of the images, "
        "above 0",
    ),
    _claim(
        2, "RISE with zeros beats RISE with a uniform fill under IDSDS",
        "IDSDS: RISE minus RISE-U",
    ),
    _claim(
        3, "CAMs do well under IDSDS; Grad-CAM and XGrad-CAM are the best of them and alike",
        "IDSDS: Grad-CAM minus the median of all other methods above .01, Grad-CAM minus the best "
        "other CAM above -.01, Grad-CAM minus XGrad-CAM within .01",
    ),
    _claim(
        4, "The best model-agnostic method reaches only about .25",
        "IDSDS of the best of 19 methods, chosen on half of the images", direction="below",
        margin=0.3,
    ),
    _claim(
        5, "SmoothGrad lowers IDSDS for IxG, IG and Grad-CAM++",
        "IDSDS with noise minus without, each of three; with the authors' noise, and in a second "
        "row with the usual noise, there without a CAM that is equal by definition",
        direction="below", margin=-MARGIN,
    ),
    _claim(
        6, "Absolute values hurt the better methods",
        "IDSDS: IG abs minus IG and IG-U abs minus IG-U below -.01; both effects minus those on "
        "IxG-SG and IG-SG below -.01", direction="below", margin=-MARGIN,
    ),
    _claim(
        7, "Intrinsic explanations of B-cos networks and BagNets are far ahead",
        "IDSDS: the network's own map minus the best model-agnostic method on the reference "
        "networks, for B-cos above .03, for BagNets above .1", margin=0.03,
        unit="network (seed, and receptive field of BagNets)",
    ),
    _claim(
        8, "By IDS with fixed attribution every absolute variant beats its raw variant",
        "IDS: absolute minus raw, each of five pairs", margin=0.005,
    ),
    _claim(
        9, "By IDS with updated attribution raw IxG, IG and IG-U gain and become the best",
        "IDS: updated minus fixed for each of the three above .01; the best of the three minus the "
        "best other, updated, above 0",
    ),
    _claim(
        10, "IDS is the only one of four protocols that prefers absolute values in all five pairs",
        "the smallest of five differences absolute minus raw: IDS above 0; SDS and IDSDS below 0; "
        "part deletion, of one network, is shown and decides nothing", margin=0.0,
    ),
    _claim(
        11, "Under protocols that leave the domain, IDS and SDS, CAMs lead",
        "the best CAM minus the best other method, chosen on half of the images, each protocol",
        margin=0.0,
    ),
    _claim(
        12, "Under protocols inside the domain IG or IG-U leads: the uniform baseline on real "
        "images, zeros on painted birds",
        "IDSDS: the better of both minus the best other, and IG-U minus IG, above 0; part "
        "deletion, of one network, is shown and decides nothing", margin=0.0,
    ),
    _claim(
        13, "SDS and IDSDS order the methods alike (.89), but not at the top",
        "rank correlation above .8; share of networks with another best method above .5; the "
        "change minus that of the placebo above 0", margin=AGREES,
    ),
    _claim(
        14, "Fine-tuning keeps the accuracy and raises that without the worst patch by 4 to 13 "
        "points",
        "accuracy after minus before within .05; accuracy without the worst patch, after minus "
        "before, above .04; the same minus the placebo's above .04; means over all networks, and "
        "in a second row each architecture", margin=0.04, unit="network",
        row_units=("networks of all architectures", "seeds of one architecture"),
    ),
    _claim(
        15, "A fine-tuned network is much more like its original than another architecture is",
        "mean absolute difference of probabilities and of Grad-CAM maps: two architectures minus "
        "original and tuned above .02; two seeds minus original and tuned above 0; original and "
        "tuned minus original and placebo below .03", margin=0.02,
    ),
    _claim(
        16, "The order of methods is stable in the number of cells, scores fall with it, and 64 "
        "cells no longer discriminate",
        "rank correlation of 4 with 16 and 16 with 64 cells above .8; mean score of 4 minus 16 and "
        "16 minus 64 above .01; spread of methods at 64 over that at 16 below .5", margin=AGREES,
    ),
    _claim(
        17, "The order of methods is stable in the fill and in the seed",
        "rank correlation of zeros with uniform and with blur, and between two seeds, above .9",
        margin=0.9,
    ),
    _claim(
        18, "VGG is more attributable than ResNet and ResNet than ViT; the order of methods is "
        "fairly stable",
        "IDSDS of the best method: plain minus residual, residual minus transformer above .01; "
        "rank correlation of the methods, residual with plain and with transformer, above .5",
        unit="architecture",
        row_units=(
            "architectures in the smaller family; of the orders, networks of the other family",
        ),
    ),
    _claim(
        19, "On ViT CheferLRP ties with IG-U for the best, Rollout is in the middle",
        "IDSDS: CheferLRP minus IG-U within .03; the better of both minus the best other above "
        "-.01; Rollout minus the worst and the best minus Rollout above .01", direction="within",
        margin=0.03, unit="network (seed within transformers)",
    ),
    _claim(
        20, "Depth lowers IDSDS",
        "slope of the mean IDSDS over log2 of the depth below 0; share of methods with a falling "
        "slope above .5", direction="below", margin=0.0, unit=DESIGN,
        row_units=(MEANS_OF_SEEDS, "seeds of these series"),
    ),
    _claim(
        21, "Width lowers IDSDS for most methods",
        "slope of the mean IDSDS over log2 of the width below 0; share of methods with a falling "
        "slope above .5", direction="below", margin=0.0, unit=DESIGN,
        row_units=(
            MEANS_OF_SEEDS, "seeds of these series",
            "seeds of these series, a step of the series each",
        ),
    ),
    _claim(
        22, "Removing batch-norm raises IDSDS for all methods, removing the bias raises it further",
        "IDSDS without minus with batch-norm, without minus with bias: mean over methods above 0, "
        "share of methods above .8", margin=0.0, unit=DESIGN,
        row_units=("pairs of architectures", "seeds of these pairs of architectures"),
    ),
    _claim(
        23, "Explaining the probability instead of the logit lowers IDSDS for almost all methods",
        "share of methods with a lower score above .8, drops of the logit (the paper's words); in "
        "a second row drops of the probability too (its code)", margin=0.8,
    ),
    _claim(
        24, "The best IDSDS and accuracy are anti-correlated over models; depth costs more than "
        "width",
        "slope of the best IDSDS over accuracy between architectures and, with accuracy "
        "manipulated, within them, below 0; IDSDS lost per point of accuracy gained, depth minus "
        "width, above 0; between architectures only where their accuracies span .1",
        direction="below", margin=0.0,
        unit="architecture, with seeds nested", row_units=(MEANS_OF_SEEDS,),
    ),
    _claim(
        25, "More attributable models prefer Grad-CAM, less attributable ones IG-U",
        "correlation over architectures of the best IDSDS with Grad-CAM minus IG-U", margin=0.0,
        unit="architecture",
    ),
    _claim(
        26, "The advantage of raw over absolute values shrinks the more is deleted",
        "correlation of attribution and drop over sets of k cells, raw minus absolute, mean of "
        "IxG, IG and IG-U: k = 1 minus k = 15", unit="network (seed and arm)",
    ),
    _claim(
        27, "Calibration moves IDS, not IDSDS",
        "mean score at temperature .5 minus that at 4: IDS outside .05, IDSDS within .005",
        direction="outside", margin=0.05,
    ),
    _claim(
        28, "Masks of cells tell nothing about the class, masks of segments do",
        "accuracy of a network that sees only masks, minus chance: cells within .02, segments "
        "above .02", direction="within", margin=0.02, unit="seed of masks and training",
    ),
    _claim(
        29, "Channels keep their top-activating images under fine-tuning",
        "overlap of the ten top images of a channel: original and tuned minus two seeds above .2; "
        "original and placebo minus original and tuned below .1", margin=0.2, unit="network",
    ),
)  # fmt: skip
