r"""The claims of IDSDS (Hesse et al. 2024), on networks for CIFAR-10 that replace its own.

    assay zoo train core placebo others vits --out ZOO --data DATA --device cuda
    python -m assay.studies.idsds.jobs --zoo ZOO --data DATA --out OUT --device cuda --processes 8
    python -m assay.studies.idsds.study --out OUT
    python -m assay.studies.idsds.network_facts --zoo ZOO --table OUT/idsds_scores.parquet \
        --with results/zoo/networks.json --out results/zoo/networks.json
    cp OUT/idsds.json src/assay/studies/published/
    cp OUT/idsds_scores.parquet results/idsds/ && python docs/idsds_figures.py

The first command trains the networks (`assay.training.zoo`), original, fine-tuned and placebo; the
second scores them and writes one table, from which the third computes every claim in seconds. The
arms that some claims need: `tuned-g2` and `tuned-g8` (16), `tuned-uniform` and `tuned-blur` (17) on
the reference networks, `base-d25`, `base-t4` and the like with their tuned arms (24). Where only
some networks were trained again, `--with results/idsds/idsds_scores.parquet` in the second command
keeps the others.
"""

from __future__ import annotations

from collections.abc import Iterable

from assay.studies.idsds import (
    accuracy_claims,
    design_claims,
    mechanism_claims,
    method_claims,
    protocol_claims,
    stability_claims,
)
from assay.studies.idsds.claims import CLAIMS as CLAIMS
from assay.studies.idsds.contrasts import Test
from assay.studies.setting import Study
from assay.suite.spec import Spec

USUAL_N = 1000

TESTS: dict[str, Test] = {
    "idsds.1": method_claims.uniform_baseline_is_best,
    "idsds.2": method_claims.rise_prefers_zeros,
    "idsds.3": method_claims.cams_do_well,
    "idsds.4": method_claims.best_is_low,
    "idsds.5": method_claims.noise_hurts,
    "idsds.6": method_claims.absolute_values_hurt,
    "idsds.7": method_claims.intrinsic_maps_lead,
    "idsds.8": protocol_claims.absolute_values_win_by_ids,
    "idsds.9": protocol_claims.updated_maps_gain,
    "idsds.10": protocol_claims.only_ids_prefers_absolute,
    "idsds.11": protocol_claims.cams_lead_outside,
    "idsds.12": protocol_claims.paths_lead_inside,
    "idsds.13": protocol_claims.orders_agree_but_not_at_the_top,
    "idsds.14": stability_claims.tuning_keeps_accuracy,
    "idsds.15": stability_claims.tuned_is_the_same_network,
    "idsds.16": stability_claims.cells_keep_the_order,
    "idsds.17": stability_claims.fills_and_seeds_keep_the_order,
    "idsds.18": design_claims.families_differ,
    "idsds.19": design_claims.transformers,
    "idsds.20": design_claims.depth_costs,
    "idsds.21": design_claims.width_costs,
    "idsds.22": design_claims.norm_and_bias_cost,
    "idsds.23": design_claims.probabilities_cost,
    "idsds.24": accuracy_claims.accuracy_against_attributability,
    "idsds.25": accuracy_claims.preferences_follow_attributability,
    "idsds.26": mechanism_claims.gap_shrinks_with_deletion,
    "idsds.27": mechanism_claims.calibration_moves_ids,
    "idsds.28": mechanism_claims.masks_of_cells_tell_nothing,
    "idsds.29": stability_claims.channels_stay,
}


DESIGNED: tuple[str, ...] = ()  # claims on images of a size that the command chooses
SIZE = 32  # pixels a side of CIFAR-10


def image_size(claim: str, study: Study) -> int | None:
    """Pixels a side of the images behind a claim."""
    return SIZE


def suites_of(claims: Iterable[str], study: Study) -> dict[str, Spec]:
    """None: the networks are scored by `jobs`, which counts its own."""
    return {}


if __name__ == "__main__":
    from assay.studies.setting import main

    main("idsds")
