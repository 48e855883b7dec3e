"""SoCo's claim about labels planted into images; it trains its own networks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.api import benchmark
from assay.ranking.resampling import Floats
from assay.studies.claim import Claim, ClaimRow, make_row
from assay.studies.planting import planted
from assay.studies.reading import Reading
from assay.studies.soco.numbers import means

if TYPE_CHECKING:
    from assay.studies.setting import Study

MOST = 2000  # images on which a planted feature is evaluated
CRAFTED = {"number_watermark": "rect", "stripe_watermark": "pooling"}  # the expected winners


def each_wins_at_home(claim: Claim, study: Study) -> list[ClaimRow]:
    """3: the crafted method that fits the planted feature has more attribution inside it."""
    gains: dict[str, Floats] = {}
    noted = []
    for plant, winner in CRAFTED.items():
        inside = _inside(plant, study)
        (loser,) = (method for method in inside if method != winner)
        gains[f"{plant}, {winner} - {loser}"] = inside[winner] - inside[loser]
        noted += [f"{plant} {method} {values.mean():.2f}" for method, values in inside.items()]
    note = f"{'; '.join(noted)}; the paper's bars read .92, .60, .31 and .93"
    return [make_row(claim, means(gains, study), "stand-in", note=note)]


def _inside(plant: str, study: Study) -> dict[str, Floats]:
    """Each crafted method's share of attribution inside the planted feature, by image."""
    made = planted(plant, study, samples=min(study.n, MOST))
    results = benchmark(
        made.model,
        made.dataset,
        list(CRAFTED.values()),
        ["attribution_percent"],
        out=study.out / plant,
        device=study.device,
        controls="off",
    )
    reading = Reading(results)
    return {method: reading.values("attribution_percent", method) for method in CRAFTED.values()}
