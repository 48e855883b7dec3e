"""The claims of M4 as stated before they are run; `study` holds their tests.

Claims 1 to 10 are patterns in its Table 1 that hold there for all or nearly all networks; the
others are statements of its text.
"""

from assay.studies.claim import Claim, Direction

PAPER = "m4"
LOWEST = 0.92  # the lowest score of any method on convolutional networks
MUCH = 0.05  # how much lower gradients must score on transformers to be "much lower"
STAYS = -0.05  # how much accuracy may drop when everything but the patch is removed

CONVOLUTIONAL = "Needs ten convolutional networks of M4's kinds, trained on what the images show"
TRANSFORMERS = "Needs ten vision transformers trained on what the images show"
MAE = "its half about MAE needs a network trained to fill in masked images"


def _claim(
    number: int, statement: str, statistic: str, *, direction: Direction = "above", margin: float,
    n: int = 10, reason: str = "", unit: str = "network", definition: int = 1,
) -> Claim:  # fmt: skip
    return Claim(
        f"{PAPER}.{number}", PAPER, statement, statistic, direction, margin, unit=unit, n=n,
        reason=reason, definition=definition,
    )  # fmt: skip


CLAIMS = (
    _claim(
        1, "By MoRF integrated gradients are before SmoothGrad and SmoothGrad before Grad-CAM on "
        "convolutional networks",
        "mean fall of the probability: integrated gradients minus SmoothGrad, SmoothGrad minus "
        "Grad-CAM", margin=0.005, reason=f"{CONVOLUTIONAL}.",
    ),
    _claim(
        2, "By ABPC Grad-CAM is before integrated gradients and these before SmoothGrad on "
        "convolutional networks other than VGG",
        "area between the curves: Grad-CAM minus integrated gradients, these minus SmoothGrad",
        margin=0.005, reason=f"{CONVOLUTIONAL}.",
    ),
    _claim(
        3, "By infidelity Grad-CAM is the worst and SmoothGrad mostly the best on convolutional "
        "networks",
        "infidelity over Grad-CAM's own: Grad-CAM minus the next worst, the next best minus "
        "SmoothGrad", margin=0.01, reason=f"{CONVOLUTIONAL}.",
    ),
    _claim(
        4, "On convolutional networks integrated gradients or Grad-CAM find the yellow patch best, "
        "SmoothGrad last, none below .92",
        "SynScore of a network: the better of integrated gradients and Grad-CAM minus SmoothGrad "
        f"above .01, the worse of them minus SmoothGrad above 0, the lowest minus {LOWEST} above 0",
        margin=0.01,
        definition=2,  # images whose answer does not need the plant are left out
    ),
    _claim(
        5, "By MoRF generic attention is last on transformers, integrated gradients or SmoothGrad "
        "first, on MAE the bidirectional methods",
        "mean fall of the probability: the lowest other minus generic attention, the better of "
        "integrated gradients and SmoothGrad minus the best other", margin=0.005,
        reason=f"{TRANSFORMERS}; {MAE}.",
    ),
    _claim(
        6, "By ABPC the bidirectional methods are before integrated gradients, these before "
        "SmoothGrad, generic attention last on transformers",
        "area between the curves: each minus the next", margin=0.005, reason=f"{TRANSFORMERS}.",
    ),
    _claim(
        7, "By PScore both bidirectional methods are before all others on transformers",
        "agreement with the other networks: the worse of both minus the best other", margin=0.02,
        reason=f"{TRANSFORMERS}.",
    ),
    _claim(
        8, "Generic attention finds the yellow patch best on transformers trained from scratch, "
        "worst on MAE; gradients find it much worse there than on convolutional networks",
        "SynScore of a network: generic attention minus the best other above .01; integrated "
        f"gradients and SmoothGrad on convolutional networks minus on transformers above {MUCH}",
        margin=0.01,
        definition=2,  # images whose answer does not need the plant are left out
    ),
    _claim(
        9, "Both bidirectional methods score alike by MoRF and ABPC",
        "head-wise minus token-wise, each protocol", direction="within", margin=0.005,
        reason=f"{TRANSFORMERS}.",
    ),
    _claim(
        10, "Metrics agree weakly on the order of methods for transformers",
        "mean rank correlation over the methods of a network, each pair of MoRF, ABPC, PScore, "
        "infidelity and SynScore", direction="below", margin=0.6, reason=f"{TRANSFORMERS}.",
    ),
    _claim(
        11, "Gradients on transformers show the grid of patches",
        "mean absolute gradient on the borders of patches over elsewhere, minus 1: integrated "
        "gradients and SmoothGrad", margin=0.1, reason=f"{TRANSFORMERS}.",
    ),
    _claim(
        12, "Generic attention and Grad-CAM take seconds for 100 images, all others minutes",
        "on each of M4's two networks, methods of its table of times, in one run of "
        "`benchmarks/speed.py`: their seconds for 100 images below 60; those of the fastest other "
        "method above 60; the latter over the former above 10", margin=10.0,
        unit="image, 100 timed together on each network", n=100,
    ),
    _claim(
        13, "The patch is the only usable pattern, so a trained network must use it",
        "share of right answers that change when the patch goes, above .95; accuracy on the patch "
        "alone, and on it moved to other images, minus that on whole images, above "
        f"{STAYS}", margin=0.95, n=20,
        definition=2,  # images whose answer does not need the plant are left out
    ),
)  # fmt: skip
