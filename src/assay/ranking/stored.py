"""Users' own numbers of whole sets: evaluated and stored by the run, read without the user's code.

The run ranks its methods once while a `Recording` evaluates the reductions, and stores every number
that the ranking asked for, by the samples and weights it asked with. A later ranking asks the same
questions and finds the same answers, so that methods stay paired: they share their resamples. A
question that the run did not ask is refused, because only the run has the code to answer it.
"""

import contextlib
import hashlib
import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from assay.errors import InputError, warn
from assay.plugins.addresses import is_address
from assay.ranking.reductions import Reduction, named_reduction
from assay.ranking.resampling import Floats
from assay.ranking.sets import Key, Outcome, SetCurves, read_curves
from assay.store import ShardLog, Store
from assay.store.old_layout import read_old_reduction
from assay.store.run_arrays import RunArrays
from assay.store.shard_log import LogRecord

REDUCED = "reduced"  # kind of record
SeedParts = dict[int, tuple[list[str], Floats]]  # by seed: the samples, and the part of each
Draws = dict[int, float]  # the number of a weighted set, by what identifies its samples and weights


@dataclass(frozen=True)
class Recording:
    """Evaluates users' own reductions and keeps every number they give.

    Attributes:
        reductions: The reductions with their options, by the label of the protocol.
    """

    reductions: Mapping[str, Reduction]
    _draws: dict[str, tuple[Outcome, Draws]] = field(default_factory=dict)

    def outcome(self, protocol: str, curves: SetCurves) -> Outcome:
        """Evaluate a protocol's reduction; whatever is asked of the outcome is kept."""
        _check_same_x(protocol, curves)
        with _blaming(protocol):
            reduced = curves.reduced(self.reductions[protocol])
        _, draws = self._draws.setdefault(curves.key, (reduced, {}))

        def values(samples: Sequence[str], weights: Floats) -> Floats:
            keys = _draw_keys(samples, weights)
            if not all(key in draws for key in keys):
                with _blaming(protocol):
                    numbers = reduced.values(samples, weights).tolist()
                draws.update(zip(keys, numbers, strict=True))
            return np.array([draws[key] for key in keys])

        return replace(reduced, values=values, varied={}, of_groups=None)

    def write(self, store: Store) -> None:
        """Store all that was evaluated, one record for each method under each protocol."""
        for key, (outcome, draws) in self._draws.items():
            store.append(_log(store), _record(key, outcome, draws))
        _log(store).mend()


def read_outcomes(
    arrays: RunArrays, reductions: Mapping[str, str], store: Store, recording: Recording | None
) -> dict[Key, Outcome]:
    """The numbers of the protocols that judge whole sets: computed here, or read from the store.

    Args:
        arrays: The scores and curves of a run.
        reductions: The name of the reduction of each protocol, or its address.
        store: The run's folder.
        recording: What evaluates users' own reductions; without it the stored numbers are read.
    """
    sets = {label: name for label, name in reductions.items() if name != "mean"}
    outcomes = {}
    for key, curves in (read_curves(arrays, sets.keys()) if sets else {}).items():
        protocol = key[3]
        if not is_address(sets[protocol]):
            reduction = named_reduction(sets[protocol]).with_options(curves.options)
            outcomes[key] = curves.reduced(reduction)
        elif recording is not None:
            outcomes[key] = recording.outcome(protocol, curves)
        else:
            outcomes[key] = read_stored(store, protocol, curves)
    return outcomes


def read_stored(store: Store, protocol: str, curves: SetCurves) -> Outcome:
    """Read what the run stored for these curves; without numbers, and with a warning, if nothing.

    Nothing is stored before the run has finished, nor for curves that changed since.
    """
    stored = _read(store, curves.key)
    if stored is None:
        warn(
            f"The run in `{store.folder}` has no scores of protocol `{protocol}` yet: its "
            f"reduction is evaluated at the end. Run the suite again to finish the run."
        )
        return Outcome((), {}, lambda samples, weights: np.full(len(weights), np.nan))
    own, draws = stored

    def values(samples: Sequence[str], weights: Floats) -> Floats:
        keys = _draw_keys(samples, weights)
        if not all(key in draws for key in keys):
            raise InputError(
                f"Protocol `{protocol}` has a set-level reduction of the user's own, which the run "
                f"evaluated for its own ranking: expected its methods, samples and resamples, got "
                f"others. Leave `seed` at its default, and do not raise `resamples` above its own."
            )
        return np.array([draws[key] for key in keys])

    return Outcome(curves.samples, own, values)


@contextlib.contextmanager
def _blaming(protocol: str) -> Iterator[None]:
    """Say whose reduction raised an error, and what of the run is kept."""
    try:
        yield
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise InputError(
            f"The reduction of protocol `{protocol}` failed: {type(error).__name__}: {error} "
            f"({Path(last.filename).name}:{last.lineno}). The run has stored the scores of all "
            f"other protocols. Correct the function, try it with `assay doctor`, and run again."
        ) from error


def _log(store: Store) -> ShardLog:
    return ShardLog(store.path("reductions.log"))


def _record(key: str, outcome: Outcome, draws: Draws) -> LogRecord:
    arrays = {
        "draws": np.array(list(draws), np.uint64),
        "values": np.array(list(draws.values()), np.float64),
    }
    arrays |= {f"parts of {seed}": parts for seed, (_, parts) in outcome.own.items()}
    samples = {str(seed): list(names) for seed, (names, _) in outcome.own.items()}
    return LogRecord.make(REDUCED, key, {"samples": samples}, arrays)


def _read(store: Store, key: str) -> tuple[SeedParts, Draws] | None:
    """The part of each sample and the number of each weighted set; None if nothing is stored."""
    record = _log(store).read().get(REDUCED, key)
    if record is None:
        return read_old_reduction(store, key)
    arrays, samples = record.arrays(), record.facts["samples"]
    own = {int(seed): (names, arrays[f"parts of {seed}"]) for seed, names in samples.items()}
    return own, dict(zip(arrays["draws"].tolist(), arrays["values"].tolist(), strict=True))


def _draw_keys(samples: Sequence[str], weights: Floats) -> list[int]:
    """What identifies each weighted set: its samples, and how often each counts."""
    named = hashlib.sha256(json.dumps(list(samples)).encode())
    keys = []
    for row in np.ascontiguousarray(weights, np.float64):
        digest = named.copy()
        digest.update(row.tobytes())
        keys.append(int.from_bytes(digest.digest()[:8], "little"))
    return keys


def _check_same_x(protocol: str, curves: SetCurves) -> None:
    """Curves are averaged point by point, so all must be taken at the same points."""
    for one in curves.seeds.values():
        other = np.flatnonzero((one.x != curves.x).any(axis=1))
        if len(other):
            raise InputError(
                f"Expected protocol `{protocol}` to take the curves of all samples at the same "
                f"`x`, because its reduction judges them together; sample "
                f"`{one.samples[int(other[0])]}` differs."
            )
