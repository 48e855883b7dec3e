"""The overall order of one model's methods over its protocols."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.blocks import Block
from assay.ranking.orders import ProtocolScores, overall_order
from assay.ranking.resampling import BootstrapOptions
from assay.ranking.rows import PublicRow, known
from assay.ranking.set_scores import SetScores
from assay.store import SHOWN_ONLY, SettingKey


@dataclass(frozen=True)
class OverallRow:
    """One method over all protocols of a setting.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        method: Label of the method.
        control: Kind of control; empty for a method.
        mean_rank: Mean over the protocols of its position by score.
        low: Lower end of the mean rank's interval.
        high: Upper end of the mean rank's interval.
        position: Place by mean rank; ties share the better place.
        first_share: Share of resamples in which the method comes first.
        n_groups: Number of groups of samples.
        protocols: Number of protocols that rank the method.
    """

    dataset: str
    model: str
    checkpoint: str
    method: str
    control: str
    mean_rank: float
    low: float | None
    high: float | None
    position: int
    first_share: float | None
    n_groups: int
    protocols: int

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


@dataclass(frozen=True)
class LeftOutRow:
    """One reason why a method has no place in the overall order of a setting."""

    dataset: str
    model: str
    checkpoint: str
    method: str
    protocol: str
    reason: str

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


def model_order(
    blocks: Sequence[Block],
    controls: Mapping[str, str],
    options: BootstrapOptions,
    apart: Collection[str] = (),
) -> tuple[list[OverallRow], list[LeftOutRow]]:
    """Order the methods of one model that are ranked in every protocol that ranks any method.

    A method whose scores under some protocols are only shown is ordered by the others.

    Args:
        blocks: All protocols of one setting.
        controls: Kind of each control by method label; kind `other` stays out of the order.
        options: Keywords of `overall_order`.
        apart: Protocols that are not mixed with others; they order where no other one ranks.

    Returns:
        One row per method in order, and one row per reason for which a method is left out.
    """
    used = [
        block
        for block in blocks
        if len(block.common) and any(scores.method not in controls for scores in block.ranked)
    ]
    used = [block for block in used if block.protocol not in apart] or used
    setting = blocks[0].setting
    names = sorted({scores.method for block in blocks for scores in block.methods})
    reasons = {name: _reasons(name, used, controls) for name in names}
    left_out = [
        LeftOutRow(*setting, method=name, protocol=protocol, reason=reason)
        for name in names
        for protocol, reason in reasons[name]
    ]
    placed = [name for name in names if not reasons[name]]
    if not placed:
        return [], left_out
    used = [block for block in used if any(scores.method in placed for scores in block.ranked)]
    return _rows(setting, used, placed, controls, options), left_out


def _rows(
    setting: SettingKey,
    blocks: Sequence[Block],
    names: Sequence[str],
    controls: Mapping[str, str],
    options: BootstrapOptions,
) -> list[OverallRow]:
    ranked = [{scores.method for scores in block.ranked} for block in blocks]
    groups = sorted(set().union(*(_groups(block) or () for block in blocks)))
    every = [scores.outcome for block in blocks for scores in block.ranked]
    order = overall_order(
        (_scores(block, names) for block in blocks),
        groups=groups,
        adds_up=all(outcome is None or outcome.of_groups is not None for outcome in every),
        **options,
    )
    rows = [
        OverallRow(
            *setting,
            method=name,
            control=controls.get(name, ""),
            mean_rank=float(order.mean_rank[i]),
            low=known(float(order.low[i])),
            high=known(float(order.high[i])),
            position=int(order.position[i]),
            first_share=known(float(order.first_share[i])),
            n_groups=order.n_groups,
            protocols=sum(name in methods for methods in ranked),
        )
        for i, name in enumerate(names)
    ]
    return sorted(rows, key=_place)


def _place(row: OverallRow) -> tuple[int, float, str]:
    """Of tied methods the one that comes first in more resamples is listed first."""
    return row.position, -(row.first_share or 0.0), row.method


def _reasons(
    name: str, used: Sequence[Block], controls: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Say where and why a method cannot be in the order; nothing if it can."""
    if controls.get(name) == "other":
        return [("", "control that is no floor")]
    if not used:
        return [("", "no protocol ranks a method")]
    statuses = [
        (block.protocol, next((s.status for s in block.methods if s.method == name), "absent"))
        for block in used
    ]
    if all(status in SHOWN_ONLY for _, status in statuses):
        return statuses
    # Where a method is only shown it has no place; its other protocols decide.
    fine = ("ok", *SHOWN_ONLY)
    return [(protocol, status) for protocol, status in statuses if status not in fine]


def _scores(block: Block, names: Sequence[str]) -> ProtocolScores:
    by_method = {scores.method: scores for scores in block.ranked}
    common = block.common
    values = np.full((len(common), len(names)), np.nan)
    here = [i for i, name in enumerate(names) if name in by_method]
    values[:, here] = block.matrix([by_method[names[i]] for i in here])
    outcomes = [by_method[name].outcome if name in by_method else None for name in names]
    means = block.replicate_means([by_method[names[i]] for i in here], common)
    replicates = None
    if means is not None:
        replicates = np.full((len(means), len(names)), np.nan)
        replicates[:, here] = means
    return ProtocolScores(
        values=values,
        groups=_groups(block),
        higher_is_better=block.higher_is_better,
        statistic=SetScores(block.names(common), values, outcomes) if block.judges_sets else None,
        replicates=replicates,
    )


def _groups(block: Block) -> Sequence[str] | None:
    """The groups of the common samples; None where the whole set is one row."""
    names = block.names(block.common)
    return None if list(names) == [""] else block.groups_at(block.common)
