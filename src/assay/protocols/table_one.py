"""What the built-in protocols guarantee: the rows of IDSDS' Table 1 (hesse2024), and of others."""

from collections.abc import Mapping

from assay.plugins.properties import Properties
from assay.plugins.registry import get, pick

OUTPUTS = Properties(
    in_domain=False,
    natural_data=True,
    reason="It reads the size of the output: another scale of the logits changes the score.",
)
CORRELATED_VALUES = Properties(
    in_domain=False,
    natural_data=True,
    reason="No map can add up to the drops of a model with interactions, so the best possible "
    "score differs between models.",
)
ACCURACIES = Properties(
    in_domain=False,
    natural_data=True,
    reason="It reads accuracies on changed inputs: a robust model keeps them whatever the map.",
)
RETRAINED = Properties(
    in_domain=True,
    no_leakage=False,
    natural_data=True,
    reason="It scores other networks, one per method, and these can read the class from the masks.",
)
MASKS = Properties(
    in_domain=True,
    natural_data=True,
    reason="It measures what masks tell about the class; the score says nothing about the model.",
)
KNOWN_TRUTH = Properties(
    in_domain=True,
    no_leakage=True,
    natural_data=False,
    reason="The truth says what its own network uses; another model may use other features.",
)
SHARES_OF_OUTPUTS = Properties(
    in_domain=True,
    no_leakage=True,
    natural_data=False,
    reason="It reads shares of a logit: a constant that a model adds to its logits changes them.",
)

OF_THE_NETWORK = Properties(
    in_domain=False,
    natural_data=True,
    reason="It describes the network, not a map; comparisons show it beside the scores.",
)


def ranked_drops(options: Mapping[str, object]) -> Properties:
    """Of a rank correlation with the drops of single cells, in a network as it was trained."""
    return _ranked(options, in_domain=False, natural_data=True)


def ranked_in_domain_drops(options: Mapping[str, object]) -> Properties:
    """Of the same in a network that was fine-tuned on inputs without a cell."""
    return _ranked(options, in_domain=True, natural_data=True)


def ranked_part_drops(options: Mapping[str, object]) -> Properties:
    """Of the same with painted parts; only images painted anew are in domain."""
    fill = options["fill"]
    natural = not hasattr(fill, "shape") and get("fill", pick(fill)[0]).natural
    return _ranked(options, in_domain=natural, natural_data=False)


def _ranked(options: Mapping[str, object], *, in_domain: bool, natural_data: bool) -> Properties:
    logit = options["output"] == "logit"
    reason = (
        "It reads only the order of the target's logits, which no other scale of them changes."
        if logit
        else "The order of probabilities also depends on the scale of all logits: use "
        "`output: logit`."
    )
    leakage = True if in_domain else None
    return Properties(in_domain, leakage, logit, natural_data, reason)
