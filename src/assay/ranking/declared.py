"""What the protocols of a run ask, and what they put in place of absent units."""

from __future__ import annotations

from assay.plugins.identity import describe
from assay.plugins.questions import OF_BUILT_IN, OTHER
from assay.store import Manifest
from assay.suite.defaults import SHUFFLED_CONTROL

STARTS = ("baseline", "fill")  # options that say what a method compares an input with


def questions_of(run: Manifest) -> dict[str, str]:
    """The question of each protocol by its label; runs that did not store it know the name."""
    protocols = run.protocols.items()
    return {label: p.question or OF_BUILT_IN.get(p.name, OTHER) for label, p in protocols}


def aligned_cells(run: Manifest, modality: str) -> frozenset[tuple[str, str]]:
    """The cells, as labels of method and protocol, whose method starts from the protocol's fill.

    They are those on data of one modality, which may decide what a fill stands for.

    Such a method, for example integrated gradients from zero, explains the very change that the
    protocol makes. Another fill shows whether its place depends on that.
    """
    return frozenset(
        (method, protocol)
        for protocol, fill in fills_of(run, modality).items()
        for method, entry in run.methods.items()
        if fill and fill in {describe(entry.options_on(modality).get(name)) for name in STARTS}
    )


def noise_controls(run: Manifest) -> list[str]:
    """The labels of the controls that a method must be told apart from."""
    methods = run.methods.items()
    return [label for label, m in methods if m.control == "random" or m.name == SHUFFLED_CONTROL]


def fills_of(run: Manifest, modality: str) -> dict[str, str]:
    """What each protocol puts in place of absent units, by its label; empty where nothing.

    A fill that stands for another one on data of this modality has the name of the other one.
    """
    protocols = run.protocols.items()
    return {label: describe(p.options_on(modality).get("fill") or "") for label, p in protocols}
