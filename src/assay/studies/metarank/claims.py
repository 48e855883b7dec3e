"""The claims of Meta-Rank as stated before they are run; `study` holds their tests.

1 to 3 are the findings of its abstract; 4 to 6 what its supplement says of ROAD. The sources are
fixed: pairs of classes of CIFAR-10, of digits and of painted animals, and halves of an ImageNet
sample. So a verdict is about these sources. The order of its leaderboard is no claim: we know it
only second-hand.
"""

from assay.studies.claim import Claim, Direction

PAPER = "metarank"
TASKS, TRAINED_TASKS, TIMED = 14, 12, 12
TASK = "task: classes with images of their own, on these sources"
TIMED_UNIT = "image with a mask of its own"
DIVERGE = 0.1  # of Kendall's tau
FALL = 0.02  # of accuracy, or of the probability


def _claim(
    number: int, statement: str, statistic: str, *, direction: Direction = "above",
    margin: float, n: int = TASKS, unit: str = TASK,
) -> Claim:  # fmt: skip
    return Claim(
        f"{PAPER}.{number}", PAPER, statement, statistic, direction, margin, unit=unit, n=n
    )


CLAIMS = (
    _claim(
        1, "Different settings rank methods differently",
        "tau between tasks, same order of removal and fill, on disjoint halves of the images: the "
        "noise ceiling minus it", margin=DIVERGE,
    ),
    _claim(
        2, "Checkpoints of one training run rank methods alike",
        "tau on disjoint halves of the images: between checkpoints of one run minus between runs "
        "of other seeds, at the same times, above .05; the noise ceiling minus tau between "
        "checkpoints below .1", margin=0.05, n=TRAINED_TASKS,
    ),
    _claim(
        3, "ROAD does not make rankings more consistent than a constant fill",
        "tau with imputed minus with constant pixels, on disjoint halves of the images: between "
        "MoRF and LeRF, and between tasks", direction="below", margin=DIVERGE,
    ),
    _claim(
        4, "Under ROAD, MoRF and LeRF rank methods much alike, but not identically",
        "tau of MoRF and LeRF with imputed pixels, on disjoint halves of the images, above .3; the "
        "noise ceiling minus it above .05", margin=0.3,
    ),
    _claim(
        5, "Under ROAD, input x gradient, DeepLIFT and integrated gradients fall faster by LeRF "
        "than by MoRF",
        "mean over the first half of the axis: MoRF minus LeRF, each of three methods. One row for "
        "each axis of LeRF (share removed, share kept) and each map (signed, absolute)",
        margin=FALL,
    ),
    _claim(
        6, "The time of ROAD's imputation grows steeply with the masked share",
        "seconds of the sparse direct solve per masked pixel at 224 pixels a side: log2 of 90 % "
        "over 10 % masked", margin=1.0, n=TIMED, unit=TIMED_UNIT,
    ),
)  # fmt: skip
