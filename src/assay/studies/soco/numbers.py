"""The numbers of SoCo's claims, computed from its runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import PrerequisiteError
from assay.ranking.reduce_soundness import soundness, soundness_curve
from assay.ranking.resampling import Floats
from assay.studies.claim import Effect, bootstrap
from assay.studies.soco.runs import EXPLAINED, SCHEMES, WAYS, label, read

if TYPE_CHECKING:
    from assay.studies.reading import Reading
    from assay.studies.setting import Study

SHARES = np.arange(1, 10) / 10  # where the paper evaluates its curves


def how(study: Study) -> dict[str, int]:
    """The settings of a bootstrap."""
    return {"resamples": study.resamples, "seed": study.seed}


def soundness_of(reading: Reading, method: str, weights: Floats, epsilon: float = 1.0) -> Floats:
    """Soundness of weighted sets `[b]`."""
    curves, x = reading.curves("soundness", method), reading.x("soundness", method)
    levels = (0.5, 0.6, 0.7, 0.8, 0.9)
    return soundness(curves, x, weights, epsilon=epsilon, levels=levels)


def other_slopes(statistic: Callable[[Floats, float], Floats], reading: Reading) -> str:
    """The statistic at half and at twice the required rise of accuracy."""
    whole = np.ones((1, len(reading.samples)))
    by_epsilon = {e: statistic(whole, e)[0] for e in (0.5, 2.0)}
    return "; ".join(
        f"at epsilon {e:g}: {', '.join(f'{v:+.3f}' for v in values)}"
        for e, values in by_epsilon.items()
    )


def gain(reading: Reading, protocol: str, method: str, metric: str | None = None) -> Floats:
    """Each sample's score minus that of integrated gradients."""
    return reading.values(protocol, method, metric) - reading.values(protocol, "ig", metric)


def means(values: dict[str, Floats], study: Study) -> list[Effect]:
    """Means over samples with their errors."""
    stacked = np.stack(list(values.values()), 1)  # [n, m]

    def mean(weights: Floats) -> Floats:
        means: Floats = weights @ stacked / weights.sum(1, keepdims=True)
        return means

    return bootstrap(list(values), mean, len(stacked), **how(study))


def changed_maps(study: Study, model: str) -> dict[str, Reading]:
    """The run that holds each method's changed maps; all runs have the same samples."""
    runs = {run: read(run, study, model) for run in dict.fromkeys(EXPLAINED.values())}
    return {of: runs[run] for of, run in EXPLAINED.items()}


def count_of(readings: dict[str, Reading]) -> int:
    """The number of samples, the same in all runs."""
    first, *others = readings.values()
    if any(other.samples != first.samples for other in others):
        raise PrerequisiteError(
            "Expected runs of the same samples, got different ones. Run all again with one `n`."
        )
    return len(first.samples)


def cases_of(
    readings: dict[str, Reading],
    metric: str,
    weights: Floats,
    distance: Callable[[dict[str, Floats]], Floats],
) -> Floats:  # [b, cases]
    """The distance of the curves of Original, Remove and Introduce, for each method and scheme."""
    distances = []
    for of, reading in readings.items():
        original = points_of(reading, metric, f"{of} original", weights)
        for scheme in SCHEMES:
            changed = {
                w: points_of(reading, metric, label(of, scheme, w), weights) for w in WAYS[1:]
            }
            distances.append(distance({"original": original, **changed}))
    return np.stack(distances, 1)


def both(reading: Reading, methods: Iterable[str]) -> str:
    """Soundness and completeness of methods as text, the latter raw and as excess."""
    whole = np.ones((1, len(reading.samples)))
    each = [
        f"{m} {soundness_of(reading, m, whole)[0]:.3f} / "
        f"{reading.values('completeness', m, 'raw').mean():.3f} "
        f"({reading.values('completeness', m).mean():+.3f})"
        for m in methods
    ]
    return f"Soundness / completeness (its excess): {', '.join(each)}"


def input_iba(study: Study, model: str) -> str:
    """InputIBA as text, on fewer samples because of its cost."""
    reading = read("input_iba", study, model)
    return f"On {len(reading.samples)} samples {both(reading, ['input_iba']).partition(': ')[2]}"


def points_of(reading: Reading, metric: str, method: str, weights: Floats) -> Floats:  # [b, K, 2]
    """A curve as in the paper: points (x, y) of each weighted set, on unscaled axes."""
    x = reading.x(metric, method)
    mean = weights / weights.sum(1, keepdims=True)
    if metric == "soundness":
        swept = soundness_curve(reading.curves(metric, method), x, weights)
        return np.stack(swept, -1)
    if metric.startswith("completeness"):
        y = mean @ reading.falls(metric, method)
    else:
        read = np.isclose(x[:, None], SHARES).any(1)
        x, y = x[read], mean @ reading.curves(metric, method)["correct"][:, read]
    return np.stack([np.broadcast_to(x, y.shape), y], -1)
