"""Questions: what a protocol asks. Protocols that ask the same have one vote together."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from assay.errors import InputError

BOTH = "necessity and sufficiency"  # counts only where neither of the two is asked by itself
PARTS_OF_BOTH = ("necessity", "sufficiency")
KNOWN_TRUTH = "known truth"
OTHER = "other"  # of protocols that declare none: together they have one vote

QUESTIONS: Mapping[str, str] = {
    "necessity": "Does the output fall when the most relevant units are removed first?",
    "sufficiency": "Does the output stay when the least relevant units are removed first?",
    BOTH: "How far are both apart? It counts only where neither is asked by itself.",
    "effects": "Do a map's sums over units or sets agree with what their removal changes?",
    "values": "Do the attribution values say how much information is in what they mark?",
    KNOWN_TRUTH: "Does the map agree with the known truth?",
    "retraining, necessity": "Does a network fail to learn without the most relevant units?",
    "retraining, sufficiency": "Does a network learn from the most relevant units alone?",
    "leakage": "Does the shape of what is removed give away the class?",
    "model": "What limits every method on this model?",
    OTHER: "The protocol declares no question.",
}

# For runs of versions that did not store the question of a protocol.
OF_BUILT_IN: Mapping[str, str] = {
    name: question
    for question, names in {
        "necessity": "morf deletion accuracy_morf road_morf comprehensiveness completeness",
        "sufficiency": "lerf insertion accuracy_lerf road_lerf sufficiency incremental_deletion",
        BOTH: "abpc",
        "effects": "single_deletion in_domain_single_deletion part_deletion infidelity "
        "sensitivity_n faithfulness_correlation",
        "values": "soundness part_completeness",
        KNOWN_TRUTH: "truth_f1 truth_precision truth_recall attribution_percent pointing_game "
        "synscore modulo_insertion modulo_deletion modulo_sensitivity_n",
        "retraining, necessity": "roar",
        "retraining, sufficiency": "kar",
        "leakage": "mask_leakage",
        "model": "drop_stability",
    }.items()
    for name in names.split()
}


def check_question(protocol: str, question: str) -> None:
    """Refuse an empty question and one that is nearly a known one; a new one is welcome."""
    text = isinstance(question, str)
    known = text and question in QUESTIONS
    near = get_close_matches(question, QUESTIONS, 1, 0.8) if text and not known else []
    if not text or not question or near:
        hint = f" Did you mean `{near[0]}`?" if near else ""
        raise InputError(
            f"Expected protocol `{protocol}` to declare a `question`, one of "
            f"{', '.join(QUESTIONS)} or a new one, got {question!r}.{hint}"
        )
