"""Score every map of a referee under every candidate, and reduce the scores to a few numbers."""

import math
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy
import torch
from torch import Tensor

from assay.engine.engine import Engine, network_engine
from assay.plan.scoring import score_case
from assay.plugins.option_types import Item
from assay.ranking.arithmetic import pearson
from assay.store import Array
from assay.suite.spec import Choice, choose_one
from assay.types import Case
from benchmarks.defaults_maps import DOSED, DOSES, SMOOTH, maps_of
from benchmarks.defaults_networks import Referee

UNITS: Mapping[str, Item] = {
    "pixels": "elements",
    "16 x 16": {"shifted_grid": {"side": 16}},
    "8 x 8": {"shifted_grid": {"side": 8}},
    "4 x 4": {"shifted_grid": {"side": 4}},
    "segments": {"slic": {"n_segments": 50}},
}
FILLS: Mapping[str, Item] = {
    "zero": "zero", "uniform": "uniform", "blur": "blur", "noisy_linear": "noisy_linear",
}  # fmt: skip
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
CURVES = ("deletion", "insertion")
PROTOCOLS = (*CURVES, "single_deletion", "faithfulness_correlation")
SETS = 100  # random sets
# Candidates whose orders of methods are compared: one thing differs.
COMPARED: Mapping[str, tuple[tuple[str, str], tuple[str, str]]] = {
    f"{one} and {other}, {fill}": ((one, fill), (other, fill))
    for fill in ("noisy_linear", "blur")
    for one, other in (("8 x 8", "16 x 16"), ("8 x 8", "4 x 4"), ("8 x 8", "pixels"))
} | {
    f"{one} and {other}, {units}": ((units, one), (units, other))
    for units in ("8 x 8", "pixels")
    for one, other in (("noisy_linear", "blur"), ("noisy_linear", "zero"), ("blur", "zero"))
}
LEVEL = 2.0  # standard errors of a paired difference that count as told apart

Scores = dict[str, Array]  # by map: [samples], higher is better


def candidates(protocol: str) -> list[tuple[str, str]]:
    """Units and fill of every candidate. Random sets and single units leave some out for time."""
    units = list(UNITS)
    if protocol == "single_deletion":
        units = ["8 x 8", "4 x 4", "segments"]
    fills = [f for f in FILLS if protocol in CURVES or f != "uniform"]
    return [(u, f) for u in units for f in fills]


def protocol_choice(protocol: str, units: str, fill: str) -> Choice:
    """A protocol with the units and the fill of a candidate."""
    options: dict[str, Any] = {"units": UNITS[units], "fill": FILLS[fill]}
    options |= {"steps": SHARES} if protocol in CURVES else {}
    options |= {"subsets": SETS} if protocol == "faithfulness_correlation" else {}
    return choose_one("protocol", {protocol: options})


def scores_of(engine: Engine, choice: Choice, maps: Mapping[str, Tensor]) -> Scores:
    """Every map's scores, turned so that higher is better."""
    sign = 1 if choice.plugin.higher_is_better else -1
    return {
        name: sign * score_case(choice, _case(engine, attribution), engine).value.numpy()
        for name, attribution in maps.items()
    }


def _case(engine: Engine, attribution: Tensor) -> Case:
    return Case(engine.batch, attribution, engine.verb, engine.clean)


def judge(referee: Referee, data: Any, n: int) -> dict[str, Any]:
    """One referee's numbers for every candidate, with passes and CPU seconds."""
    model, batch = referee.make(data, n)
    with model.evaluating(), torch.no_grad():
        engine = network_engine(model, batch)
        maps = maps_of(engine, doses=referee.kind == "dose")
        truth = true_scores(engine, referee.truth, maps) if referee.truth else {}
        rows, flips = [], []
        for protocol in PROTOCOLS:
            known: dict[tuple[str, str], Scores] = {}
            for units, fill in candidates(protocol):
                choice = protocol_choice(protocol, units, fill)
                asked, started = engine.asked, time.process_time()
                scores = known[units, fill] = scores_of(engine, choice, maps)
                cost = {
                    "passes": (engine.asked - asked) / len(batch),
                    "seconds": (time.process_time() - started) / len(batch),
                }
                numbers = agreement(scores, truth) if truth else dose_response(scores)
                noise = {}
                if protocol == "faithfulness_correlation":
                    noise = {"monte_carlo": monte_carlo_error(engine, choice, maps, scores)}
                rows.append(
                    {"protocol": protocol, "units": units, "fill": fill, **numbers,
                     **confounds(scores), **noise, **cost}
                )  # fmt: skip
                engine.forget()
            if protocol in CURVES and referee.kind == "dose":
                flips += [
                    {"protocol": protocol, "between": what, **changes(known[one], known[other])}
                    for what, (one, other) in COMPARED.items()
                ]
    return {
        "referee": referee.name, "kind": referee.kind, "half": referee.half, "n": len(batch),
        "maps": list(maps), "truth": {m: float(v) for m, v in truth.items()}, "rows": rows,
        "flips": flips,
    }  # fmt: skip


def true_scores(engine: Engine, truth: str, maps: Mapping[str, Tensor]) -> dict[str, float]:
    """The mean score of every map by truth: Pearson with the exact truth, or a protocol."""
    if truth == "pearson":
        true = engine.batch.truth
        if true is None:
            raise ValueError("Expected samples with truth.")
        flat = true.double().flatten(1).numpy()
        return {
            name: _mean(pearson(m.double().flatten(1).numpy(), flat)) for name, m in maps.items()
        }
    found = scores_of(engine, choose_one("protocol", truth), maps)
    return {name: _mean(values) for name, values in found.items()}


def agreement(scores: Scores, truth: Mapping[str, float]) -> dict[str, Any]:
    """Kendall's tau-b between the orders of the maps by a protocol and by truth."""
    names = list(scores)
    means = np.array([_mean(scores[name]) for name in names])
    true = np.array([truth[name] for name in names])
    order = [names[i] for i in np.argsort(-means)]
    return {"agreement": float(scipy.stats.kendalltau(means, true).statistic), "first": order[0]}


def dose_response(scores: Scores) -> dict[str, Any]:
    """The standardised slope over the doses, and the smallest dose told apart, by mean."""
    slopes, smallest = [], []
    centred = np.array(DOSES) - np.mean(DOSES)
    for name in DOSED:
        if name not in scores:
            continue
        # The last dose is the method's own map: no protocol here depends on its length.
        below = [scores[f"{name} x {d:g}"] for d in DOSES[:-1]]
        doses = np.stack([*below, scores[name]])  # [doses, samples]
        slope = (centred[:, None] * doses).sum(0) / (centred**2).sum()
        slopes.append(_standardised(slope))
        apart = [d for d, row in zip(DOSES[1:], doses[1:], strict=True) if _apart(row - doses[0])]
        smallest.append(apart[0] if apart else 2.0)  # 2: not even the whole map
    return {"slope": statistics.mean(slopes), "smallest_dose": statistics.mean(smallest)}


def confounds(scores: Scores) -> dict[str, Any]:
    """What a protocol sees in maps without information, and which maps lose against `random`.

    A gap is a smooth empty map's mean minus that of `random`, over the spread of `random`'s scores.
    `smoothness` is the mean gap: below 0 the protocol rewards rough maps, above 0 smooth ones.
    `confound` is their root mean square, without the square that is expected by chance. `losing`
    is the share of the methods with a mean below `random`'s.
    """
    base = scores["random"]
    spread = float(np.nanstd(base, ddof=1)) or 1.0
    differences = [scores[name] - base for name in SMOOTH if name in scores]
    gaps = [_mean(d) / spread for d in differences]
    errors = [float(np.nanvar(d, ddof=1)) / np.isfinite(d).sum() / spread**2 for d in differences]
    square = sum(g**2 - e for g, e in zip(gaps, errors, strict=True)) / max(1, len(gaps))
    empty = {"random", *SMOOTH, "edge", "centre"}
    real = [n for n in scores if n not in empty and " x " not in n and "oracle" not in n]
    losing = [name for name in real if _mean(scores[name]) < _mean(base)]
    return {
        "smoothness": statistics.mean(gaps) if gaps else 0.0,
        "confound": math.sqrt(max(0.0, square)),
        "losing": len(losing) / len(real),
    }


def changes(one: Scores, other: Scores) -> dict[str, int]:
    """How many pairs of maps change places, and of those told apart twice, how many do.

    Doses and the oracle are left out: no run has them.
    """
    names = [name for name in one if " x " not in name and "oracle" not in name]
    counts = {"pairs": 0, "changed": 0, "apart": 0, "reversed": 0}
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            gaps = [scores[first] - scores[second] for scores in (one, other)]
            signs = [np.sign(_mean(gap)) for gap in gaps]
            clear = all(_apart(gap) or _apart(-gap) for gap in gaps)
            swapped = signs[0] * signs[1] < 0
            counts["pairs"] += 1
            counts["changed"] += int(swapped)
            counts["apart"] += int(clear)
            counts["reversed"] += int(clear and swapped)
    return counts


def monte_carlo_error(
    engine: Engine, choice: Choice, maps: Mapping[str, Tensor], scores: Scores
) -> float:
    """The standard error of one sample's score by the draw of the sets.

    Half of the sets are the first ones of all, so the variance of the difference between both
    scores equals the variance of the score with all sets.
    """
    half = choose_one(
        "protocol", {choice.plugin.name: {**choice.options, "subsets": SETS // 2, "grid": None}}
    )
    fewer = scores_of(engine, half, maps)
    return statistics.mean(float(np.nanstd(scores[m] - fewer[m])) for m in maps)


def _standardised(values: Array) -> float:
    spread = float(np.nanstd(values, ddof=1))
    return _mean(values) / spread if spread > 0 else 0.0


def _apart(difference: Array) -> bool:
    error = float(np.nanstd(difference, ddof=1)) / np.sqrt(np.isfinite(difference).sum())
    return bool(_mean(difference) > LEVEL * error)


def _mean(values: Array) -> float:
    return float(np.nanmean(values))
