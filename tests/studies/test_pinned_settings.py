"""The studies of the papers name their units: no change of a default changes their numbers."""

import pytest

from assay.studies.attributionlab import runs as attributionlab
from assay.studies.idsds import runs as idsds
from assay.studies.soco import runs as soco
from assay.suite.spec import choose_one, suite_fields, suites
from assay.training.zoo_arms import parse_arm

RANDOM_SETS = ("sensitivity_n", "faithfulness_correlation")
SINGLE_PIXELS = (
    "morf", "lerf", "abpc", "deletion", "insertion", "accuracy_morf", "accuracy_lerf",
    "incremental_deletion", "comprehensiveness", "sufficiency",
)  # fmt: skip


class Suites:
    """Stands for a study: hands the protocols of a suite back."""

    steps = 5

    def suite(self, model, methods, protocols):
        return protocols


def items():
    yield from attributionlab.papers_protocols()
    yield from attributionlab.OTHERS
    yield from soco.CHANGES_SHOW
    yield from soco.ensembles_suite(Suites(), "any")
    for arm in ("base", "tuned"):
        for suite in idsds.scoring_suites(4).values():
            yield from suite.protocols(parse_arm(arm))
    for name in suites():
        if name.startswith("idsds"):
            yield from suite_fields(name)[0]["protocols"]


CHOICES = [choose_one("protocol", item) for item in items()]


def test_curves_of_the_papers_remove_single_pixels():
    curves = [c for c in CHOICES if c.plugin.name in SINGLE_PIXELS]
    assert {c.plugin.name for c in curves} == set(SINGLE_PIXELS)
    assert {c.options["units"] for c in curves} == {"elements"}
    fills = {c.label: c.options["fill"] for c in curves}
    assert {fill for label, fill in fills.items() if "given" not in label} == {"zero"}


@pytest.mark.parametrize("name", RANDOM_SETS)
def test_random_sets_of_the_papers_name_their_units(name):
    chosen = [c for c in CHOICES if c.plugin.name == name]
    assert chosen
    for choice in chosen:
        assert choice.options["grid"] is not None or choice.options["units"] == "elements"
