"""The settings of one or more runs: what each question says of each method there.

A setting is a dataset, a model and a checkpoint. Within a setting the protocols of one question
have one row together, as in the answer of a run: the mean standardised difference from the control
`random`. A run without that control has a row for each protocol, which shares the weight of its
question; such rows only order methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from assay.aggregation.same_settings import RankableRun, SettingOfRun, settings_of
from assay.errors import InputError, unknown
from assay.ranking.blocks import Block
from assay.ranking.listing import pair_column
from assay.ranking.overall import Asked, counting_protocols, reference_control
from assay.ranking.resampling import BootstrapOptions, Floats
from assay.ranking.setting_sums import add_up
from assay.store import SettingKey

NO_ANSWER = "the run has no control `random`, so its rows only order methods"
OPTIONS: BootstrapOptions = {"level": 0.95, "resamples": 2, "seed": 0}  # only means are read


@dataclass(frozen=True, eq=False)
class VoteRow:
    """What one question, or one protocol, says of the methods in one setting.

    Attributes:
        setting: Dataset, model and checkpoint.
        question: The question.
        protocols: Labels of the protocols behind it.
        family: The architecture of the model.
        scores: By method, higher is better; without controls.
        weight: Its weight among the rows of the setting.
        standard: Whether the scores are differences from `random` in units of its spread.
        blocks: The scores of the single samples.
        reference: The control from which differences are taken; empty where there is none.
    """

    setting: SettingKey
    question: str
    protocols: tuple[str, ...]
    family: str
    scores: Mapping[str, float]
    weight: float
    standard: bool
    blocks: tuple[Block, ...]
    reference: str = ""

    @property
    def name(self) -> str:
        """The row in words."""
        parts = [part for part in self.setting if part]
        return ", ".join(dict.fromkeys([*parts, self.question]))


@dataclass(frozen=True, eq=False)
class RunSettings:
    """The rows of some runs.

    Attributes:
        methods: All methods that have a row, sorted; without controls.
        rows: What the questions say in each setting.
        sources: The source of each dataset.
        same_as: Methods with the scores of an earlier one everywhere, and which; these count once.
        notes: What was left out, and why.
        passes: Passes for one map by method, a backward pass counted twice, where it is known.
    """

    methods: tuple[str, ...]
    rows: tuple[VoteRow, ...]
    sources: Mapping[str, str]
    same_as: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    passes: Mapping[str, float] = field(default_factory=dict)

    @property
    def table(self) -> Floats:  # [rows, methods]
        """The scores, NaN where a method has none."""
        return np.array([[row.scores.get(m, np.nan) for m in self.methods] for row in self.rows])

    @property
    def tasks(self) -> tuple[str, ...]:
        """The datasets, each once."""
        return tuple(dict.fromkeys(row.setting.dataset for row in self.rows))

    def require(self, methods: int, rows: int, found_rows: int) -> None:
        """Refuse too few methods or rows, and say why there are no more.

        Raises:
            InputError: There are fewer.
        """
        if len(self.methods) >= methods and found_rows >= rows:
            return
        same = [f"{name} has the scores of {other}." for name, other in self.same_as.items()]
        why = " ".join(["", *same, *self.notes])
        if len(self.methods) < methods:
            names = ", ".join(self.methods) or "none"
            raise InputError(
                f"Expected at least {methods} different methods that are ranked together, got "
                f"{names}.{why}"
            )
        raise InputError(
            f"Expected at least {rows} settings, each a dataset, a model and a protocol, got "
            f"{found_rows}.{why}"
        )


def read_settings(
    runs: Sequence[RankableRun],
    families: Mapping[str, str] | str | None = None,
    sources: Mapping[str, str] | None = None,
) -> RunSettings:
    """Read the rows of some runs.

    Args:
        runs: The runs; a setting that several of them have counts once.
        families: The architecture of each model, or a regular expression for the part of a name
            that numbers replicates.
        sources: Where the samples of a dataset come from, by its label; by default itself.

    Raises:
        InputError: The runs cannot be combined, or rank nothing.
    """
    places, notes = settings_of(runs, families)
    rows = [row for place in places for row in _rows(place, notes)]
    rows = _without_environments(rows, notes)
    methods = sorted({method for row in rows for method in row.scores})
    same_as = _same(methods, rows)
    kept = tuple(method for method in methods if method not in same_as)
    datasets = {row.setting.dataset for row in rows}
    unknown_names = sorted(set(sources or {}) - datasets)
    if unknown_names:
        raise unknown("dataset of `sources`", unknown_names[0], sorted(datasets))
    named = {dataset: (sources or {}).get(dataset, dataset) for dataset in sorted(datasets)}
    passes = {method: cost for place in places for method, cost in place.passes.items()}
    return RunSettings(kept, tuple(rows), named, same_as, tuple(dict.fromkeys(notes)), passes)


def protocol_rows(read: RunSettings) -> list[VoteRow]:
    """One row per protocol of each setting: the means of the methods, higher is better."""
    rows = []
    for row in read.rows:
        for block in row.blocks:
            present = [s for s in block.ranked if s.method in read.methods and len(s)]
            common = block.common
            if len(present) < 2 or not len(common):
                continue
            sign = 1.0 if block.higher_is_better else -1.0
            means = sign * block.statistic(present, common)(np.ones((1, len(common))))[0]
            scores = {s.method: float(v) for s, v in zip(present, means, strict=True)}
            rows.append(
                replace(
                    row, protocols=(block.protocol,), scores=scores, weight=1.0, blocks=(block,)
                )
            )
    return rows


def _rows(place: SettingOfRun, notes: list[str]) -> Iterator[VoteRow]:
    """The rows of one setting."""
    blocks, asked, controls = place.blocks, place.asked, place.controls
    reference = reference_control(blocks, controls)
    used, refused = counting_protocols(blocks, controls, asked, reference, OPTIONS)
    where = ", ".join(part for part in dict.fromkeys(place.setting) if part)
    notes += [f"{where}: {one.protocol} does not count: {one.reason}." for one in refused]
    if not reference and used:
        notes.append(f"{where}: {NO_ANSWER}.")
    made = _standard_rows(place, used, reference) if reference else _plain_rows(place, used)
    for row in made:
        if len(row.scores) >= 2:
            yield row
        else:
            notes.append(f"{row.name}: fewer than two methods are ranked.")


def _standard_rows(place: SettingOfRun, used: Sequence[Block], reference: str) -> Iterator[VoteRow]:
    names = sorted({s.method for b in used for s in b.ranked if s.method not in place.controls})
    names = [*names, reference]
    if not used:
        return
    sums = add_up(used, names, reference, OPTIONS, place.asked.questions, place.asked.fills)
    for question, one in sums.by_question().items():
        scores = {}
        for i, name in enumerate(names[:-1]):
            column, sign = pair_column(i, len(names) - 1, len(names))
            if not np.isnan(one.mean[column]):
                scores[name] = sign * float(one.mean[column])
        blocks = tuple(block for block in used if block.protocol in one.protocols)
        yield VoteRow(
            place.setting,
            question,
            tuple(one.protocols),
            place.family,
            scores,
            1.0,
            True,
            blocks,
            reference,
        )


def _plain_rows(place: SettingOfRun, used: Sequence[Block]) -> Iterator[VoteRow]:
    asked: Asked = place.asked
    questions = [asked.questions.get(block.protocol, "other") for block in used]
    for block, question in zip(used, questions, strict=True):
        sign = 1.0 if block.higher_is_better else -1.0
        methods = [s for s in block.ranked if s.method not in place.controls and len(s)]
        rows = block.common
        if not len(rows):
            continue
        means = block.statistic(methods, rows)(np.ones((1, len(rows))))[0]
        scores = {s.method: sign * float(v) for s, v in zip(methods, means, strict=True)}
        yield VoteRow(
            place.setting, question, (block.protocol,), place.family, scores,
            1.0 / questions.count(question), False, (block,),
        )  # fmt: skip


def _without_environments(rows: Sequence[VoteRow], notes: list[str]) -> list[VoteRow]:
    """Networks and data that were made for each other count only where there is nothing else."""
    real = [row for row in rows if row.setting.dataset != row.setting.model]
    if real and len(real) < len(rows):
        made = dict.fromkeys(row.setting.dataset for row in rows if row not in real)
        notes.append(f"Designed settings do not count: {', '.join(made)}.")
    return real or list(rows)


def _same(methods: Sequence[str], rows: Sequence[VoteRow]) -> dict[str, str]:
    """Methods that have the same scores as an earlier one in every row, and which."""
    same: dict[str, str] = {}
    for i, name in enumerate(methods):
        for earlier in methods[:i]:
            if earlier not in same and _equal(earlier, name, rows):
                same[name] = earlier
                break
    return same


def _equal(one: str, other: str, rows: Sequence[VoteRow]) -> bool:
    shared = [row for row in rows if one in row.scores and other in row.scores]
    if len(shared) < len([row for row in rows if one in row.scores or other in row.scores]):
        return False
    return bool(shared) and all(_equal_in(block, one, other) for r in shared for block in r.blocks)


def _equal_in(block: Block, one: str, other: str) -> bool:
    columns = {s.method: s.column for s in block.ranked if s.method in (one, other)}
    if len(columns) < 2:
        return not columns
    first, second = columns[one], columns[other]
    largest = float(np.nanmax(np.abs(np.concatenate([first, second])), initial=0.0))
    return bool(np.allclose(first, second, rtol=0.0, atol=1e-6 * largest, equal_nan=True))
