"""Do protocols that declare the same question agree more than others?

    python -m benchmarks.questions --data ../shared/data --out questions-run

Methods are explained and scored on five trained networks, with the numbers of images in `SIZES`;
the runs resume. The data folder is that of `benchmarks.cifar`. `question_matrix` has the
correlations, `question_rule` the test. The result is written to `results/questions/matrix.json`;
`docs/questions.py` makes the page from it. `--networks` chooses others of `question_runs.networks`,
`--limit` another number of images, and `--only-read` reads the runs that are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from assay.plugins.identity import DRAWS
from benchmarks.question_matrix import Matrix, over_networks, plain, reliability
from benchmarks.question_rule import (
    Agreement,
    Mapped,
    compare_questions,
    memberships,
    proposed,
    tested,
)
from benchmarks.question_runs import OPTIONS, QUESTIONS, ROOT, finished, run_network
from benchmarks.question_scores import Floats, NetworkScores, network_scores

# Images of each network, and what is not scored there: soundness needs most of the time.
SIZES = {"resnet20": 64, "vit_small": 32, "resnet20_tuned": 40, "bagnet9": 40, "resnet20_s1": 32}
WITHOUT = dict.fromkeys(("resnet20_tuned", "bagnet9", "resnet20_s1"), ("soundness",))

PUBLISHED = ROOT / "results" / "questions" / "matrix.json"
SPLITS, RESAMPLES = 50, 2000


def study(several: Sequence[NetworkScores], resamples: int = RESAMPLES) -> dict[str, Any]:
    """All numbers that are published, from the scores on the networks."""
    here = {protocol for one in several for protocol in one.protocols}
    protocols = [p for declared in QUESTIONS.values() for p in declared if p in here]
    matrix = over_networks(several, protocols, "spearman", resamples)
    agreement = Agreement(matrix)
    proposal = proposed(agreement, QUESTIONS)
    return {
        "unit": "a method; networks and methods are resampled",
        "images": "CIFAR-10 test images of 32 x 32 pixels",
        "options": OPTIONS,
        "draws": DRAWS,
        "splits": several[0].halves.shape[0],
        "resamples": resamples,
        "networks": [_about(one) for one in several],
        "protocols": protocols,
        "corrected": _numbers(matrix),
        "corrected_pearson": _rounded(over_networks(several, protocols, "pearson", 1).mean),
        "plain_spearman": _rounded(_plain(several, protocols)),
        "declared": {"mapping": QUESTIONS, **_tested(agreement, QUESTIONS)},
        "against_declared": _against(several, agreement, protocols),
        "proposed": {"mapping": proposal, **_tested(agreement, proposal)},
    }


def _about(one: NetworkScores) -> dict[str, Any]:
    own = reliability(one.halves, "spearman")
    return {
        "network": one.network,
        "images": one.n,
        "methods": list(one.methods),
        "near_clones_left_out": list(one.clones),
        "reliability": dict(zip(one.protocols, _rounded(own), strict=True)),
    }


def _plain(several: Sequence[NetworkScores], protocols: Sequence[str]) -> Floats:
    """The mean over networks of correlations that are not corrected."""
    total = np.zeros((len(protocols), len(protocols)))
    count = np.zeros_like(total)
    for one in several:
        here = np.ix_(*[[protocols.index(p) for p in one.protocols]] * 2)
        total[here] += plain(one.whole, "spearman")
        count[here] += 1
    return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)


def _numbers(matrix: Matrix) -> dict[str, Any]:
    known = ~np.isnan(matrix.mean)
    ends = np.full((2, *known.shape), np.nan)
    ends[:, known] = np.nanquantile(matrix.drawn[:, known], [0.025, 0.975], axis=0)
    return {
        "mean": _rounded(matrix.mean),
        "low": _rounded(ends[0]),
        "high": _rounded(ends[1]),
        "networks": matrix.networks.astype(int).tolist(),
    }


def _tested(agreement: Agreement, declared: Mapped) -> dict[str, Any]:
    pairs = [asdict(pair) for pair in compare_questions(agreement, declared)]
    labels = [asdict(one) for one in memberships(agreement, declared)]
    return {"pairs": [_plainly(row) for row in pairs], "members": [_plainly(row) for row in labels]}


def _against(
    several: Sequence[NetworkScores], agreement: Agreement, protocols: Sequence[str]
) -> dict[str, str]:
    """On how many networks each protocol agrees less with its own question than with the nearest.

    The nearest one is that of the mean over all networks.
    """
    each = [Agreement(over_networks([one], protocols, resamples=1)) for one in several]
    questions = tested(agreement, QUESTIONS)
    counts = {}
    for member in memberships(agreement, QUESTIONS):
        if member.own.known:
            rest = [label for label in questions[member.question] if label != member.protocol]
            gaps = [
                one.between([member.protocol], rest)[0]
                - one.between([member.protocol], questions[member.nearest])[0]
                for one in each
            ]
            known = [gap for gap in gaps if not np.isnan(gap)]
            counts[member.protocol] = f"{sum(gap < 0 for gap in known)} of {len(known)}"
    return counts


def _plainly(row: dict[str, Any]) -> dict[str, Any]:
    """A row with its numbers rounded, and null where one is not measurable."""
    return {
        key: {name: _rounded(number) for name, number in value.items()}
        if isinstance(value, dict)
        else value
        for key, value in row.items()
    }


def _rounded(values: Any) -> Any:
    """Numbers of an array with three decimals, as lists; NaN is null."""
    if isinstance(values, np.ndarray) and values.ndim:
        return [_rounded(value) for value in values]
    return None if np.isnan(values) else round(float(values), 3)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("questions-run"))
    parser.add_argument("--limit", type=int, help="images of each network")
    parser.add_argument("--networks", nargs="+", default=list(SIZES))
    parser.add_argument("--only-read", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Make the runs, and publish their correlations."""
    options = _arguments()
    torch.set_num_threads(1)
    names = options.networks
    if not options.only_read:
        for name in names:
            limit = options.limit or SIZES.get(name, 40)
            run_network(options.data, options.out, name, limit, WITHOUT.get(name, ()))
    labels = [label for declared in QUESTIONS.values() for label in declared]
    several = [
        network_scores(name, results, labels, SPLITS)
        for name, results in finished(options.data, options.out)
        if name in names
    ]
    result = study(several)
    PUBLISHED.parent.mkdir(parents=True, exist_ok=True)
    PUBLISHED.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for row in result["declared"]["members"]:
        print(row["protocol"], row["question"], row["verdict"], row["difference"])
    print(json.dumps(result["proposed"]["mapping"], indent=1))


if __name__ == "__main__":
    main()
