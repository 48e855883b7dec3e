"""Methods judged by the ceiling of their resolution: coarse maps that are right, moved or dealt."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from assay.answers.refutation import OCCLUSION, refute
from assay.answers.resolution import NativeGrid, ceilings, native_grid
from assay.answers.truth_comparison import TruthComparison
from assay.errors import InputError
from assay.studies.attributionlab import runs

OWN = """
import assay
import torch
from torch.nn import functional

def enlarged(coarse, batch, mode="bilinear"):
    options = {} if mode == "nearest" else {"align_corners": False}
    return functional.interpolate(coarse[:, None], batch.map_shape, mode=mode, **options)[:, 0]

def averages(positive):
    return functional.avg_pool2d(positive[:, None], 9)[:, 0]

@assay.method("averaged", coarse=True)
def averaged(model, batch):
    return enlarged(averages(batch.truth.clamp(min=0)), batch)

@assay.method("blocks", coarse=True)
def blocks(model, batch):
    return enlarged(averages(batch.truth.clamp(min=0)), batch, "nearest")

@assay.method("moved", coarse=True)
def moved(model, batch):
    return averaged(model, batch).roll((4, 4), (1, 2))

@assay.method("moved_before", coarse=True)
def moved_before(model, batch):
    return enlarged(averages(batch.truth.clamp(min=0).roll((4, 4), (1, 2))), batch)

@assay.method("dealt", coarse=True)
def dealt(model, batch):
    coarse = averages(batch.truth.clamp(min=0))
    order = torch.randperm(coarse[0].numel(), generator=torch.Generator().manual_seed(0))
    return enlarged(coarse.flatten(1)[:, order].reshape(coarse.shape), batch)
"""
SILENT = (
    OWN.partition("@")[0]
    + """
def undeclared(model, batch):
    return enlarged(averages(batch.truth.clamp(min=0)), batch)
"""
)
RIGHT = ("averaged", "blocks")
WRONG = ("moved", "moved_before", "dealt", "random", "constant", "coarse noise")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ceiling")
    file = folder / "own.py"
    file.write_text(OWN)
    (folder / "silent.py").write_text(SILENT)
    names = ("averaged", "blocks", "moved", "moved_before", "dealt")
    methods = [
        *(f"{file}:{name}" for name in names), f"{folder}/silent.py:undeclared",
        "random", "constant", "oracle", "gradcam", "guided_backprop",
        {"random": {"grid": 3, "as": "coarse noise"}},
    ]  # fmt: skip
    verdicts, _ = refute(methods, folder / "run", progress=False)
    return {verdict.method: verdict for verdict in verdicts}


def test_the_truth_at_its_resolution_is_never_refuted(judged):
    """Where the truth itself reaches gamma it is not refuted, elsewhere resolution-limited."""
    for name in RIGHT:
        assert not judged[name].refuted
        outcomes = set()
        for row in judged[name].rows:
            assert row.f1 == pytest.approx(row.ceiling, abs=1e-6)
            expected = "not refuted" if row.ceiling >= row.gamma else "resolution-limited"
            assert row.verdict == expected
            assert row.grid == ("4 x 4" if "size=36" in row.environment else "8 x 8")
            outcomes.add(row.verdict)
        assert outcomes == {"not refuted", "resolution-limited"}
        assert judged[name].verdict == "resolution-limited"


@pytest.mark.parametrize("name", WRONG)
def test_wrong_places_are_refuted_at_any_resolution(judged, name):
    assert judged[name].verdict == "refuted"
    assert not any(row.verdict == "resolution-limited" for row in judged[name].rows)


def test_what_is_moved_before_it_is_averaged_gets_that_reason(judged):
    assert {row.reason for row in judged["moved_before"].rows if row.refuted} == {"shifted"}
    assert "shifted" not in {row.reason for row in judged["dealt"].rows}


def test_who_does_not_say_that_maps_are_enlarged_is_told_to(judged):
    """Otherwise coarse maps are no fault of their resolution, as those of guided backprop."""
    assert {row.reason for row in judged["undeclared"].rows if row.refuted} == {"too coarse"}
    modulo = judged["guided_backprop"].rows[0]
    assert modulo.environment == "single_color_modulo[size=36]"
    assert modulo.verdict == "refuted"
    assert modulo.ceiling == pytest.approx(1)


def test_the_truth_itself_is_not_refuted(judged):
    assert {row.verdict for row in judged["oracle"].rows} == {"not refuted"}
    assert min(row.ceiling for row in judged["oracle"].rows) == pytest.approx(1)
    assert {row.grid for row in judged["oracle"].rows} == {""}


def test_gradcam_is_as_good_as_its_resolution(judged):
    assert judged["gradcam"].verdict == "resolution-limited"
    for row in judged["gradcam"].rows:
        assert row.f1 == pytest.approx(row.ceiling, abs=0.05)


def test_where_padding_moves_the_layer_gradcam_is_refuted_as_shifted(tmp_path):
    """At 64 pixels the cells of its layer begin 8 pixels above and left of the image."""
    ((verdict,), _) = refute(["gradcam"], tmp_path, sizes=(64,), progress=False)
    assert {row.reason for row in verdict.rows if row.refuted} == {"shifted"}


# --- the parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (5, 7), (1, 6), (16, 3)])
def test_the_grid_is_found_from_the_enlarged_map(mode, rows, columns):
    coarse = torch.rand(3, rows, columns, generator=torch.Generator().manual_seed(0))
    coarse[1] = 0  # an empty map has no cells; the others have
    options = {} if mode == "nearest" else {"align_corners": False}
    maps = 1e3 * functional.interpolate(coarse[:, None], (36, 40), mode=mode, **options)[:, 0]
    assert native_grid(maps) == NativeGrid(rows, columns, mode)
    noise = torch.rand(36, 40, generator=torch.Generator().manual_seed(1))
    assert native_grid(maps * noise) is None  # as of guided Grad-CAM


def test_maps_that_were_not_enlarged_have_no_grid():
    assert native_grid(torch.ones(3, 32, 32)) is None
    assert native_grid(torch.zeros(3, 32, 32)) is None
    sparse = torch.zeros(3, 32, 32)
    sparse[:, 12:17, 9:20] = (torch.arange(55).reshape(5, 11) % 3 == 0).float()
    assert native_grid(sparse) is None


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_the_ceiling_is_that_of_an_average_pooled_truth(mode):
    truth = (torch.rand(4, 36, 36, generator=torch.Generator().manual_seed(0)) > 0.8).float()
    options = {} if mode == "nearest" else {"align_corners": False}
    pooled = functional.avg_pool2d(truth[:, None], 9)
    shown = functional.interpolate(pooled, 36, mode=mode, **options)[:, 0]
    assert torch.allclose(NativeGrid(4, 4, mode).show(truth), shown, atol=1e-6)
    both = (shown / shown.amax((1, 2), keepdim=True) * truth).sum((1, 2))
    mass = (shown / shown.amax((1, 2), keepdim=True)).sum((1, 2))
    f1 = 2 * both / (mass + truth.sum((1, 2)))  # of a truth of zeros and ones
    found = ceilings(truth, NativeGrid(4, 4, mode), "overall").float()
    assert torch.allclose(found, f1, atol=1e-5)
    assert ceilings(truth, None, "overall").tolist() == [1] * 4


ROW = TruthComparison(
    "mine", "here", "overall", 0.4, 0.4, f1=0.4, ceiling=0.8, below=0.2, grid="8 x 8",
    f1_random=0.1, f1_constant=0.1, gamma=0.5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "refuted"),
        ({"f1": 0.55}, "not refuted"),  # gamma is reached
        ({"below": 0.04}, "not refuted"),  # so few images do not show it
        ({"ceiling": 0.45}, "refuted"),
        ({"ceiling": 0.42, "below": -0.1}, "resolution-limited"),
        ({"ceiling": 0.48, "below": 0.04}, "not refuted"),  # neither near nor surely below
        ({"ceiling": 0.42, "below": -0.1, "grid": ""}, "not refuted"),
        ({"ceiling": 0.14, "below": 0.06, "f1": 0.05}, "not decided"),  # noise is as good
        ({"f1_constant": 0.6}, "not decided"),
    ],
)
def test_verdicts_follow_the_rule(changes, verdict):
    assert replace(ROW, **changes).verdict == verdict
    assert replace(ROW, **changes).refuted == (verdict == "refuted")


def test_occlusion_has_the_windows_of_the_study(tmp_path):
    assert OCCLUSION == {"windows": {"sizes": (runs.WINDOW,), "stride": runs.STEP}}
    few = {"samples": 2, "sizes": (18,), "progress": False}
    _, evidence = refute(["occlusion"], tmp_path / "study", **few)
    units = {
        n: str(m["options"].get("units")) for n, m in evidence.results.manifest["methods"].items()
    }
    assert "windows" in units["occlusion"]
    assert "windows" in units["occlusion[fill=given]"]
    assert "quickshift" in units["occlusion[units=quickshift]"]
    chosen = {"occlusion": {"units": {"grid": {"side": 6}}, "as": "mine"}}
    _, evidence = refute([chosen], tmp_path / "mine", **few)
    assert "grid" in str(evidence.results.manifest["methods"]["mine"]["options"]["units"])


def test_a_margin_outside_its_range_is_named(tmp_path):
    with pytest.raises(InputError, match="`margin`"):
        refute(["saliency"], tmp_path, margin=1)
