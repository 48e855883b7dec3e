"""The claims of SoCo as stated before they are run; `study` holds their tests."""

from assay.studies.claim import Claim

LEVEL = 0.95  # the accuracy at which the synthetic maps' soundness is read

CLAIMS = (
    Claim(
        "soco.1", "soco", "Retraining on images without their attributed pixels restores accuracy, "
        "most where the place of what was removed tells the class",
        "accuracy of the retrained minus the original network on perturbed images; of the "
        "retrained, with the place of the class minus without",
        margin=0.1, unit="network", n=10,
    ),
    Claim(
        "soco.2", "soco", "A network retrained with 5 % removed fails on images that are whole",
        "accuracy of the original minus the retrained network on whole images",
        margin=0.1, unit="network", n=10,
    ),
    Claim(
        "soco.3", "soco", "A rectangle wins on a watermark, pooling on stripes, by Attr%",
        "attribution inside the planted region, winner minus the other", margin=0.05,
    ),
    Claim(
        "soco.4", "soco", "ROAD ranks methods otherwise on semi-natural than on natural images",
        "rank correlation of methods between both", "below", 0.5, unit="network",
        n=10,
    ),
    Claim(
        "soco.5", "soco", "VGG-16 is right on 70.4 / 99.4 / 99.9 % of the three datasets",
        "accuracy", "within", 0.01, unit="network", n=1, testable=False,
        reason="It is about VGG-16 on the paper's own data; another network says nothing of it.",
    ),
    Claim(
        "soco.6", "soco", "Metrics of order are blind to magnitude, those of value are not",
        "change when each value is replaced by its rank in the map: of soundness and completeness, "
        "and of every single answer of ROAD and Deletion, which must stay", "outside", 0.01,
        n=2000,
    ),
    Claim(
        "soco.7", "soco", "On Gaussian data soundness is 1 for the truth and with some of it "
        "removed, and less with attribution introduced",
        f"soundness at accuracy {LEVEL}: truth and Remove minus 1; truth minus Introduce",
        margin=0.05, unit="trial: data and changes drawn anew", n=20,
    ),
    Claim(
        "soco.8", "soco", "On Gaussian data completeness is higher with attribution introduced "
        "than of the truth, and lower with some removed",
        "mean fall of accuracy over absolute thresholds: Introduce minus truth, truth minus Remove",
        margin=0.02, unit="trial: data and changes drawn anew", n=20,
    ),
    Claim(
        "soco.9", "soco", "Changed maps move soundness and completeness much more than ROAD and "
        "Deletion (Table 1)",
        "mean smallest Hausdorff distance of Original, Remove, Introduce over 3 methods x 3 "
        "schemes: each metric of value minus each of order", margin=0.05, n=2000,
    ),
    Claim(
        "soco.10", "soco", "Removed and introduced attribution give overlapping curves in ROAD and "
        "Deletion (Fig. 7)",
        "mean Hausdorff distance of Remove and Introduce over 3 methods x 3 schemes", "below",
        0.05, n=2000,
    ),
    Claim(
        "soco.11", "soco", "Removing attribution can lower soundness on real maps",
        "soundness of the original minus the Remove map, for any of 2 methods x 3 schemes",
        margin=0.01, n=5000, parts="any",
    ),
    Claim(
        "soco.12", "soco", "Ensembles clearly raise the soundness of integrated gradients",
        "soundness of IG-SG, IG-SQ and IG-Var minus IG, each", margin=0.02, n=5000,
    ),
    Claim(
        "soco.13", "soco", "Of the ensembles only IG-SG raises completeness over integrated "
        "gradients",
        "mean fall of accuracy over relative thresholds minus IG's: IG-SG above, the others below",
        margin=0.01, n=2000,
    ),
    Claim(
        "soco.14", "soco", "ROAD and Deletion show no clear gain of the ensembles",
        "mean gain of the three ensembles over IG in area, positive is better: each protocol",
        "below", 0.02, n=2000,
    ),
    Claim(
        "soco.15", "soco", "No method is best in both; Extremal Perturbation is complete, IBA and "
        "Grad-CAM are sound",
        "of soundness and completeness: how far the method nearest to the best in both is behind "
        "in one; Extremal Perturbation's completeness minus the others' mean; Grad-CAM's and IBA's "
        "soundness minus the mean of the others", margin=0.02, n=5000,
    ),
    Claim(
        "soco.16", "soco", "Ensembles raise the soundness of DeepSHAP too",
        "soundness of the ensembles minus DeepSHAP, each", margin=0.02, n=5000,
    ),
    Claim(
        "soco.17", "soco", "ROAD on semi-natural data resembles the pure synthetic set, not the "
        "real one",
        "rank correlation with synthetic minus with natural images", margin=0.1, unit="network",
        n=10,
    ),
)  # fmt: skip
