"""Is there anything to rank? What a network's answers and the controls of a run say about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.ranking.declared import noise_controls
from assay.ranking.moved_answers import Movement, Moves, movements, output_of
from assay.ranking.proportions import share_ends
from assay.ranking.resampling import BootstrapOptions, level_of
from assay.ranking.rows import BoardRow, PublicRow, known
from assay.store import Manifest, SettingKey

SignalKey = tuple[SettingKey, str]  # setting and label of the protocol


@dataclass(frozen=True)
class NetworkSkill:
    """How often a network is right on unchanged samples, compared with chance.

    Attributes:
        accuracy: Share of the samples that it predicts correctly.
        low: Lower end of the exact interval of the share.
        high: Upper end.
        chance: One divided by the number of classes.
        n: Number of samples.
        near_chance: Whether the accuracy is hardly above chance, and the interval contains chance
            or lies below it.
    """

    accuracy: float
    low: float
    high: float
    chance: float
    n: int
    near_chance: bool

    @property
    def sentence(self) -> str:
        """The reason why a network near chance has no signal."""
        return (
            f"The network is right on {self.accuracy:.1%} of {self.n} samples, not clearly above "
            f"chance ({self.chance:.1%}): nothing can be ranked."
        )


@dataclass(frozen=True)
class Signal:
    """Whether a protocol has anything to rank in one setting.

    Attributes:
        dataset: Label of the dataset.
        model: Label of the model.
        checkpoint: Which weights of the model.
        protocol: Label of the protocol.
        output: The output of the network whose change is measured.
        moved: Mean absolute change when everything is removed; None where it was not measured.
        moved_low: Lower end of its interval.
        moved_high: Upper end of its interval.
        least: A mean change up to this is no signal.
        spread: Standard deviation of the unchanged answers over the samples.
        share_moved: Share of the samples whose answer changes by more than `least`.
        n: Number of samples with answers.
        accuracy: Share of the samples on which the network is right; None without labels.
        chance: The accuracy by chance.
        near_chance: Whether the network is near chance; None where that is not known or does not
            matter, because the protocol compares with a known truth.
        answers_move: Whether the answers move enough; None where it was not measured.
        controls_apart: Whether a method is told apart from every `random` and `shuffled` control of
            the run; None where there is none, or too few samples.
        has_signal: Whether the network is not near chance and the answers are not known to stand
            still.
        network_sentence: Why the network has no signal at all; empty where it has one.
        sentence: All of it in words.
    """

    dataset: str
    model: str
    checkpoint: str
    protocol: str
    output: str
    moved: float | None
    moved_low: float | None
    moved_high: float | None
    least: float | None
    spread: float | None
    share_moved: float | None
    n: int
    accuracy: float | None
    chance: float | None
    near_chance: bool | None
    answers_move: bool | None
    controls_apart: bool | None
    has_signal: bool
    network_sentence: str
    sentence: str

    @property
    def setting(self) -> SettingKey:
        """The setting it belongs to."""
        return SettingKey(self.dataset, self.model, self.checkpoint)

    def as_dict(self) -> PublicRow:
        """The row as users read it."""
        return dict(vars(self))


def signals(
    run: Manifest, moves: Moves, rows: Sequence[BoardRow], options: BootstrapOptions
) -> dict[SignalKey, Signal]:
    """The signal of every protocol that has scored methods, in every setting.

    Args:
        run: The entries of the run.
        moves: The stored answers with nothing and with everything absent.
        rows: The rows of its leaderboard.
        options: Keywords of the interval functions.
    """
    by_place: dict[SignalKey, list[BoardRow]] = {}
    for row in rows:
        if row.mean is not None:
            by_place.setdefault((row.setting, row.protocol), []).append(row)
    moving, noise = movements(run, moves, options), noise_controls(run)
    found = {}
    for setting in run.settings:
        skill = network_skill(run, setting, level_of(options))
        for label, entry in run.protocols.items():
            here = by_place.get((setting, label))
            if here is None:
                continue  # it does not apply, or is not computed yet
            known_apart = [row.told_apart for row in here if row.told_apart is not None]
            found[setting, label] = _signal(
                setting,
                label,
                output_of(entry),
                moving[setting, label],
                None if entry.knows_truth else skill,
                any(known_apart) if known_apart else None,
                noise,
            )
    return found


def network_skill(manifest: Manifest, setting: SettingKey, level: float) -> NetworkSkill | None:
    """How often the network of a setting is right; None where labels are missing."""
    clean = manifest.accuracy(*setting)
    entry = manifest.datasets.get(setting.dataset)
    if clean is None or not clean.n:
        return None
    n = entry.n if entry is not None and 0 < entry.n <= clean.n else clean.n  # not once per seed
    ends = share_ends(np.array([clean.accuracy]), np.zeros(1), np.ones(n), level)[0]
    low, high = float(ends[0]), float(ends[1])
    near = clean.hardly_above_chance and low <= clean.chance
    return NetworkSkill(clean.accuracy, low, high, clean.chance, n, near)


def _signal(
    setting: SettingKey,
    protocol: str,
    output: str,
    moving: Movement | None,
    skill: NetworkSkill | None,
    apart: bool | None,
    controls: Sequence[str],
) -> Signal:
    near = None if skill is None else skill.near_chance
    moves = None if moving is None else not moving.hardly
    network = skill.sentence if skill is not None and near else ""
    said = [network] if network else []
    said += [_movement_words(output, moving), _control_words(apart, controls)]
    return Signal(
        *setting,
        protocol=protocol,
        output=output,
        moved=None if moving is None else moving.mean,
        moved_low=None if moving is None else known(moving.low),
        moved_high=None if moving is None else known(moving.high),
        least=None if moving is None else moving.least,
        spread=None if moving is None else moving.spread,
        share_moved=None if moving is None else moving.share,
        n=0 if moving is None else moving.n,
        accuracy=None if skill is None else skill.accuracy,
        chance=None if skill is None else skill.chance,
        near_chance=near,
        answers_move=moves,
        controls_apart=apart,
        has_signal=not near and moves is not False,
        network_sentence=network,
        sentence=" ".join(said),
    )


def _movement_words(output: str, moving: Movement | None) -> str:
    if moving is None:
        return "How far the answers move when everything is removed was not measured."
    name = output.replace("_", "-")
    ends = "" if math.isnan(moving.low) else f" ({moving.low:.3g} to {moving.high:.3g})"
    text = f"Removing everything changes the {name} by {moving.mean:.3g} on average{ends}"
    return f"{text}: too little to rank methods." if moving.hardly else f"{text}."


def _control_words(apart: bool | None, controls: Sequence[str]) -> str:
    if not controls:
        return "The run has no random control to compare with."
    names = " and ".join([", ".join(controls[:-1])] * (len(controls) > 1) + [controls[-1]])
    if apart is None:
        return f"Whether a method differs from {names} is not known."
    if apart:
        return f"At least one method differs clearly from {names}."
    every = "every one of " if len(controls) > 1 else ""
    return f"No method differs clearly from {every}{names}."


def signal_lines(rows: Mapping[SignalKey, Signal]) -> dict[SettingKey, list[str]]:
    """The sentences of each setting; what several protocols have in common is said once."""
    lines: dict[SettingKey, list[str]] = {}
    for setting in dict.fromkeys(setting for setting, _ in rows):
        here = [row for (place, _), row in rows.items() if place == setting]
        alike: dict[str, list[str]] = {}
        for row in here:
            text = row.sentence.removeprefix(row.network_sentence).strip()
            alike.setdefault(text, []).append(row.protocol)
        said = dict.fromkeys(row.network_sentence for row in here if row.network_sentence)
        lines[setting] = [
            *said,
            *(f"{', '.join(labels)}: {text}" for text, labels in alike.items()),
        ]
    return lines
