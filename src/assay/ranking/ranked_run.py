"""The leaderboard, the comparisons with a control and the trust of one run, from its entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol, TypeVar, Unpack

from assay.errors import InputError, unknown
from assay.ranking.against import ControlComparison, against
from assay.ranking.declared import aligned_cells, fills_of, noise_controls, questions_of
from assay.ranking.leaderboard import Leaderboard, leaderboard
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.sets import Key, Outcome
from assay.ranking.silence import silent_protocols
from assay.ranking.trust import TrustRow, trust
from assay.store import Limits, Manifest, RunFiles, SettingKey
from assay.store.run_arrays import CurveChunk, RunArrays, ScoreArrays


class RankedRun(Protocol):
    """The entries and scores of a run."""

    @property
    def files(self) -> RunFiles:
        """The stored files of the run."""
        ...

    @property
    def entries(self) -> Manifest:
        """The manifest as typed entries."""
        ...

    @property
    def arrays(self) -> RunArrays:
        """The scores and curves as arrays."""
        ...

    @property
    def outcomes(self) -> Mapping[Key, Outcome]:
        """The numbers of the protocols that score whole sets."""
        ...


def rank_run(
    run: RankedRun,
    ranges: Mapping[str, Limits] | None,
    apart: Collection[str] | None,
    **options: Unpack[BootstrapOptions],
) -> Leaderboard:
    """The leaderboard of a run; see `leaderboard`. Ranges and protocols apart may be replaced."""
    entries = run.entries
    silent = silent_protocols(run.files)
    parts = [
        leaderboard(
            part.arrays,
            controls=entries.controls,
            outcomes=part.outcomes,
            ranges=ranges_of(entries) if ranges is None else ranges,
            replicates=entries.replicates,
            apart=entries.truth_protocols if apart is None else apart,
            without=of_models(entries),
            questions=questions_of(entries),
            fills=fills_of(entries, part.modality),
            silent=silent,
            aligned=aligned_cells(entries, part.modality),
            noise=noise_controls(entries),
            **options,
        )
        for part in _by_modality(run)
    ]
    return parts[0] if len(parts) == 1 else _joined(parts)


def compare_with(
    run: RankedRun, control: str, **options: Unpack[BootstrapOptions]
) -> list[ControlComparison]:
    """Every method of a run minus one control; see `against`."""
    entries = run.entries
    known = (run.outcomes, ranges_of(entries), entries.replicates, of_models(entries))
    return against(run.arrays, control, *known, **options)


def trust_run(
    run: RankedRun, truth: str | None, **options: Unpack[BootstrapOptions]
) -> list[TrustRow]:
    """How far the protocols of a run agree with one that knows the truth; see `trust`.

    Raises:
        InputError: No protocol of the run knows the truth, or not the named one.
    """
    entries = run.entries
    truths = entries.truth_protocols
    if truth is None and not truths:
        raise InputError(
            "Expected a run with a protocol that knows the truth, such as `truth_f1`: without "
            "one, nothing shows whether the others are right."
        )
    if truth is not None and truth not in truths:
        raise unknown("protocol that knows the truth", truth, truths)
    return trust(
        run.arrays,
        truth or truths,
        [label for label in entries.protocols if label not in truths],
        controls=list(entries.controls),
        outcomes=run.outcomes,
        replicates=entries.replicates,
        without=of_models(entries),
        **options,
    )


def of_models(run: Manifest) -> list[str]:
    """The labels of the protocols that describe the model, whatever the map."""
    return [label for label, entry in run.protocols.items() if entry.judges == "model"]


def ranges_of(run: Manifest) -> dict[str, Limits]:
    """The lowest and highest score of each protocol."""
    return {label: entry.limits for label, entry in run.protocols.items()}


# --- data of several modalities: settings are ranked apart anyway, and a fill may differ ----------


@dataclass(frozen=True)
class _OfDatasets:
    """The scores and curves of some datasets of a run."""

    arrays: RunArrays
    datasets: Collection[str]

    def scores(self, protocols: Collection[str] | None = None) -> Iterator[ScoreArrays]:
        """The scores of these datasets."""
        return (one for one in self.arrays.scores(protocols) if one.dataset in self.datasets)

    def curves(self, protocols: Collection[str] | None = None) -> Iterator[CurveChunk]:
        """The curves of these datasets."""
        for chunk in self.arrays.curves(protocols):
            yield {key: parts for key, parts in chunk.items() if key[0] in self.datasets}


@dataclass(frozen=True)
class _Part:
    """What a run has on data of one modality."""

    modality: str
    arrays: RunArrays
    outcomes: Mapping[Key, Outcome]


def _by_modality(run: RankedRun) -> list[_Part]:
    """The scores on data of each modality; nearly all runs have one."""
    datasets: dict[str, list[str]] = {}
    for name, entry in run.entries.datasets.items():
        datasets.setdefault(entry.modality, []).append(name)
    if len(datasets) < 2:
        return [_Part("".join(datasets), run.arrays, run.outcomes)]
    outcomes = run.outcomes.items()
    return [
        _Part(
            modality,
            _OfDatasets(run.arrays, names),
            {key: outcome for key, outcome in outcomes if key[0] in names},
        )
        for modality, names in datasets.items()
    ]


class _OfSetting(Protocol):
    @property
    def setting(self) -> SettingKey: ...


SettingRow = TypeVar("SettingRow", bound=_OfSetting)


def _joined(parts: Sequence[Leaderboard]) -> Leaderboard:
    """One leaderboard of several, in the order of their settings."""
    return Leaderboard(
        _in_order([part.by_protocol for part in parts]),
        _in_order([part.over_protocols for part in parts]),
        _in_order([part.without_place for part in parts]),
        _in_order([part.answers for part in parts]),
    )


def _in_order(parts: Sequence[Sequence[SettingRow]]) -> list[SettingRow]:
    return sorted(chain.from_iterable(parts), key=lambda row: row.setting)
