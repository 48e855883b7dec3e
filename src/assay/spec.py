"""The door to suites: `Spec`, reading and writing one, resolving its choices."""

from assay.suite.fields import REDUCTION, Cut, Noise, Reduce, take_reduction
from assay.suite.spec import (
    LISTS,
    MAPS_HASH,
    Choice,
    Spec,
    choose,
    choose_one,
    make_suite,
    parse_suite,
    read_suite,
    suites,
    usual_label,
)

__all__ = [
    "LISTS",
    "MAPS_HASH",
    "REDUCTION",
    "Choice",
    "Cut",
    "Noise",
    "Reduce",
    "Spec",
    "choose",
    "choose_one",
    "make_suite",
    "parse_suite",
    "read_suite",
    "suites",
    "take_reduction",
    "usual_label",
]
