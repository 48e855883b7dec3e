"""The faithfulness test: what designed networks refute, and what they do not."""

import json

import pytest
import torch
from typer.testing import CliRunner

import assay
from assay.answers.refutation import SIDES, refute
from assay.cli import app
from assay.errors import InputError

FIELDS = {
    "environment", "truth", "precision", "recall", "f1", "f1_random", "f1_constant", "gamma",
    "refuted",
}  # fmt: skip

OWN = """
import torch

def exact(model, batch):
    return batch.truth.clone()

def flipped(model, batch):
    return -batch.truth

def empty(model, batch):
    return torch.zeros_like(batch.truth)

def everywhere(model, batch):
    return 1 + torch.rand_like(batch.truth)

def crash(model, batch):
    raise RuntimeError("index 7 is out of bounds")

def sometimes_nan(model, batch):
    maps = batch.truth.clone()
    maps[0] = float("nan")
    return maps

def constant(model, batch):
    return batch.truth.clone()

def oracle(model, batch):
    return -batch.truth

def hardly_signed(model, batch):
    maps = batch.truth.clamp(min=0)
    maps[:, 0, 0] -= 1e-12
    return maps

def signless(model, batch):
    return batch.truth.clamp(min=0)

def nothing(model, batch):
    batch.truth.clone()
"""


def small(methods, folder, **options):
    options = {"samples": 3, "sizes": (32,), "progress": False, **options}
    verdicts, evidence = refute(methods, folder, **options)
    return {verdict.method: verdict for verdict in verdicts}, evidence


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN)
    return lambda name: f"{file}:{name}"


@pytest.fixture(scope="module")
def judged(own, tmp_path_factory):
    """Own methods in one run, some by the names of controls."""
    names = [
        "exact", "flipped", "empty", "everywhere", "signless", "constant", "oracle",
        "hardly_signed",
    ]  # fmt: skip
    return small([own(name) for name in names], tmp_path_factory.mktemp("judged"))


@pytest.fixture(scope="module")
def lime(tmp_path_factory):
    return small([{"lime": {"samples": 20}}], tmp_path_factory.mktemp("lime"))


def test_integrated_gradients_is_refuted_at_zero_and_not_at_the_true_baseline(tmp_path):
    verdicts, _ = small(["integrated_gradients"], tmp_path)
    zero = verdicts["integrated_gradients"]
    true = verdicts["integrated_gradients[baseline=given]"]
    assert zero.refuted
    refuting = [row for row in zero.rows if row.refuted]
    assert all("unseen=True" in row.environment for row in refuting)
    assert {row.reason for row in refuting} == {"wrong baseline"}
    assert not true.refuted
    assert {row.truth for row in true.rows} == {"overall", "positive", "negative"}


def test_own_methods_get_their_reasons(judged):
    verdicts, _ = judged
    assert not verdicts["exact"].refuted
    assert not verdicts["signless"].refuted
    assert {row.truth for row in verdicts["signless"].rows} == {"overall", "positive_smooth"}
    reasons = {name: {r.reason for r in v.rows if r.refuted} for name, v in verdicts.items()}
    assert reasons["flipped"] == {"signs flipped"}
    assert not any(r.refuted for r in verdicts["flipped"].rows if r.truth == "overall")
    assert reasons["empty"] == {"empty maps"}
    assert reasons["everywhere"] == {"marks what is not relevant"}


def test_where_noise_passes_nothing_is_refuted(judged):
    """Below what a constant map reaches, an environment says nothing."""
    _, evidence = judged
    rows = evidence.judge("everywhere", gamma=0.05).rows
    assert not any(row.refuted for row in rows)
    assert not any(row.counts for row in rows)


def test_the_picture_shows_image_truth_and_map(judged):
    verdicts, evidence = judged
    strip = evidence.picture(verdicts["flipped"].worst)
    assert strip.size == (3 * 256 + 16, 256)
    image, truth, shown = (
        torch.tensor(list(strip.crop((x, 0, x + 256, 256)).tobytes())) for x in (0, 264, 528)
    )
    assert not torch.equal(image, truth)
    assert not torch.equal(truth, shown)


def test_a_method_that_does_not_apply_says_why(tmp_path):
    verdicts, _ = small(["rollout"], tmp_path)
    assert not verdicts["rollout"].rows
    assert "attention" in verdicts["rollout"].missing


def test_wrong_gamma_is_named(tmp_path):
    with pytest.raises(InputError, match="`gamma`"):
        refute(["saliency"], tmp_path, gamma=0)


def test_the_choice_explains_counts_not_probabilities(lime):
    verdicts, evidence = lime
    methods = evidence.results.manifest["methods"]
    assert {methods[name]["options"]["output"] for name in verdicts} == {"logit"}
    assert len(verdicts) > 3  # with its own fill, and on two segmentations


def test_json_has_the_fields_programs_read(own):
    """Of methods separated by a comma."""
    few = ["--json", "--samples", "2", "--sizes", "32"]
    found = CliRunner().invoke(app, ["check", f"{own('exact')},{own('flipped')}", *few])
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)
    assert {row["method"] for row in rows} == {"exact", "flipped"}
    assert all(set(row) >= FIELDS for row in rows)
    assert {row["truth"] for row in rows} <= set(SIDES)
    assert {row["method"] for row in rows if row["refuted"]} == {"flipped"}


def test_the_text_ends_with_what_it_does_not_say(tmp_path, own, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["check", own("exact"), "--samples", "2", "--sizes", "32"])
    last = "refuted on a designed network; this does not measure faithfulness on yours."
    assert found.stdout.rstrip().split("\n")[-1] == f"not {last}"
    assert "exact: not refuted on 7 environments" in found.stdout
    found = CliRunner().invoke(app, ["check", own("empty"), "--samples", "2", "--sizes", "32"])
    first, reason, *_ = found.stdout.splitlines()
    rows = "in 7 of 7 comparisons with their truth (overall, positive smooth)"
    assert first == f"empty: REFUTED on 7 of 7 environments, {rows}"
    assert "): in 7; lowest: F1 0.00" in reason
    assert found.stdout.rstrip().split("\n")[-1] == last
    assert (tmp_path / "assay-check" / "empty.png").is_file()


def test_a_method_that_returns_nothing_is_told_so(tmp_path, own, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["check", own("nothing"), "--samples", "2", "--sizes", "32"])
    assert found.exit_code == 3
    said = "Expected maps of `nothing` to be numbers, got None. Does the function return"
    assert said in found.stdout


def test_a_method_that_fails_is_not_passed(tmp_path, own, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["--samples", "2", "--sizes", "32"]
    found = CliRunner().invoke(app, ["check", own("crash"), own("sometimes_nan"), *few])
    assert found.exit_code == 3
    for name in ("crash", "sometimes_nan"):
        assert f"{name}: FAILED" in found.stdout
        assert f"{name}: not refuted" not in found.stdout
    found = CliRunner().invoke(app, ["check", own("crash"), "--json", *few])
    assert found.exit_code == 3
    (row,) = json.loads(found.stdout)
    assert "index 7 is out of bounds" in row["reason"]
    assert set(row) >= FIELDS


def test_a_users_names_do_not_replace_the_controls(judged):
    verdicts, _ = judged
    assert not verdicts["constant"].refuted
    assert verdicts["constant"].worst.f1_constant < 0.5
    assert {r.reason for r in verdicts["oracle"].rows if r.refuted} == {"signs flipped"}


def test_the_controls_themselves_are_refuted(tmp_path):
    verdicts, _ = small(["random", "constant"], tmp_path)
    assert all(verdict.refuted for verdict in verdicts.values())


def test_rounding_is_no_sign(judged):
    verdicts, _ = judged
    assert {row.truth for row in verdicts["hardly_signed"].rows} == {"overall", "positive_smooth"}
    assert not verdicts["hardly_signed"].refuted


def test_every_segmentation_may_be_the_cure(lime):
    _, evidence = lime
    ((_, variants),) = evidence.variants.items()
    assert [option for option, _ in variants] == ["fill", "units", "units"]


def test_what_is_told_is_not_changed_in_silence(tmp_path):
    with pytest.raises(InputError, match="`output: logit`, got `probability`"):
        refute([{"saliency": {"output": "probability"}}], tmp_path)


def test_a_gamma_that_refutes_nothing_decides_nothing(tmp_path, own, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = ["--samples", "2", "--sizes", "32", "--gamma", "0.05"]
    found = CliRunner().invoke(app, ["check", own("everywhere"), *few])
    assert "everywhere: not decided" in found.stdout


def test_pictures_go_into_a_folder(tmp_path, own):
    file = tmp_path / "taken"
    file.touch()
    with pytest.raises(assay.PrerequisiteError, match="to be a folder"):
        CliRunner().invoke(
            app, ["check", own("empty"), "--pictures", str(file)], catch_exceptions=False
        )


def test_own_methods_run_in_several_processes(tmp_path, own):
    verdicts, _ = small([own("flipped")], tmp_path / "run", workers=2, samples=2)
    assert verdicts["flipped"].refuted
