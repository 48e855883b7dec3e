"""Where there is nothing to rank: a network near chance, or answers that hardly move."""

from __future__ import annotations

from assay.ranking.moved_answers import movements, output_of, read_moves
from assay.ranking.signal import network_skill
from assay.store import RunFiles, SettingKey

LEVEL = 0.95


def silent_protocols(files: RunFiles) -> dict[tuple[SettingKey, str], str]:
    """Why a protocol has nothing to rank, by setting and label of the protocol.

    A protocol that knows the truth does not ask the network.
    """
    run = files.manifest
    moving = movements(run, read_moves(files, run), {})
    silent = {}
    for setting in run.settings:
        skill = network_skill(run, setting, LEVEL)
        for label, protocol in run.protocols.items():
            moved = moving[setting, label]
            if protocol.knows_truth:
                continue
            if skill is not None and skill.near_chance:
                silent[setting, label] = (
                    f"the network is right on {skill.accuracy:.1%} of {skill.n} samples, not "
                    f"clearly above chance ({skill.chance:.1%})"
                )
            elif moved is not None and moved.hardly:
                output = output_of(protocol).replace("_", "-")
                silent[setting, label] = (
                    f"removing everything changes the {output} by only {moved.mean:.2g} on average"
                )
    return silent
