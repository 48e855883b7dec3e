"""AttributionLab's claims and tables: its printed ranks, our runs in miniature."""

import numpy as np
import pytest
import torch

import assay
from assay.studies.attributionlab import paper_tables as lab_tables
from assay.studies.attributionlab import runs as lab_runs
from assay.studies.attributionlab import study as attributionlab
from assay.studies.attributionlab.units import true_patches
from assay.studies.published_claims import claims_of, published
from assay.studies.setting import Study


def test_all_claims_are_stated():
    claims = claims_of("attributionlab")
    assert [claim.id for claim in claims] == [f"attributionlab.{i}" for i in range(1, 19)]
    assert all(claim.statistic and claim.statement for claim in claims)
    assert set(attributionlab.TESTS) <= {claim.id for claim in claims}


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        (lab_tables.TABLE_3, (0.936, 0.982, 1.0)),
        (lab_tables.TABLE_5, (-0.36, -0.19, 0.02)),
        (lab_tables.TABLE_6, (0.76, 0.67, 0.43)),
    ],
    ids=["table 3", "table 5", "table 6"],
)
def test_what_the_printed_ranks_say(ranks, expected):
    """Table 3's give the correlations the paper prints, those of Tables 5 and 6 do not."""
    assert lab_tables.printed_correlations(ranks) == pytest.approx(expected, abs=0.006)


def test_the_true_patches_are_units():
    batch = assay.environment("multi_color_sum", size=64).batch(3)
    units = true_patches(batch)
    for b in range(3):
        coloured = batch.truth[b] != 0
        inside = units.index[b][coloured]
        assert int(inside.min()) >= 1  # the background is unit 0
        signs = torch.sign(batch.truth[b])
        for patch in inside.unique():
            found = signs[(units.index[b] == patch) & coloured].unique()
            assert len(found) == 1, "a unit holds one colour only"


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("lab")
    return Study(None, {}, out, n=12, size=24, steps=2, resamples=50)


@pytest.mark.parametrize("number", [8, 9, 10])
def test_modulo_claims_run(study, number):
    claim = claims_of("attributionlab")[number - 1]
    (row,) = attributionlab.TESTS[claim.id](claim, study)
    assert row.n == 12
    assert np.isfinite(row.value)
    assert "Fewer than the 100 wanted" in row.note


def test_the_modulo_table_stands_beside_the_papers(study):
    lines = list(lab_tables.modulo_table(lab_runs.read("modulo", study, "modulo")))
    assert len(lines) == 2 + len(lab_runs.MODULO_TABLE)
    assert "(0.9754)" in next(line for line in lines if line.startswith("| integrated_gradients |"))
    said = lab_tables.images(study.out / "modulo-modulo")
    assert said == "On 12 images of 24 x 24 pixels.\n"


@pytest.mark.parametrize("part", ["colors", "metrics"])
@pytest.mark.parametrize("setting", lab_runs.SETTINGS)
@pytest.mark.parametrize("target", lab_runs.TARGETS)
def test_every_suite_is_whole(study, part, setting, target):
    """Its methods and protocols exist, and its environment has the layers that are looked at."""
    from assay.plan.resolving import resolve

    plan = resolve(lab_runs.SUITES[part](study, f"{target}-{setting}"))
    (model,) = plan.models.values()
    layers = dict(model.net.named_modules())
    named = [m.options["layer"] for m in plan.methods if m.options.get("layer")]
    assert len(named) == 2
    assert all(name in layers for name in named)
    assert {"overall", "insertion", "deletion", "sensitivity_n"} <= {
        p.label for p in plan.protocols
    }


def test_published_rows_have_verdicts():
    rows = published("attributionlab")
    assert len({row.claim for row in rows}) == 18
    assert {row.verdict for row in rows} <= {
        "holds", "fails", "undecided", "does not carry over", "not testable here", "not run yet",
    }  # fmt: skip
