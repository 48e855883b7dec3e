"""Meta-Rank's claims: a tiny run from training to verdicts, and the published numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from assay.errors import InputError, PrerequisiteError
from assay.removal.imputation import linear
from assay.studies.claim_verdict import verdicts_of
from assay.studies.metarank import jobs, solver_timing
from assay.studies.metarank import task_agreement as agreement
from assay.studies.metarank.claims import CLAIMS, TASK
from assay.studies.metarank.digits import read_digits
from assay.studies.metarank.imputation_times import read_times, write_times
from assay.studies.metarank.runs import StudyScale, score
from assay.studies.metarank.study import TESTS, falls
from assay.studies.metarank.task_scores import (
    CLONES,
    COUNTED,
    NAME,
    PAPERS_EIGHT,
    collect,
    read_task_scores,
)
from assay.studies.metarank.tasks import Task, TaskImages, painted_tasks
from assay.studies.published_claims import published
from assay.studies.setting import Study, run_study

RESULTS = Path(__file__).parents[2] / "results" / "metarank"
TINY = StudyScale(images=8, checkpoint_images=8, training=32, epochs=2, seeds=2, steps=2)


def images(number, seed):
    """Random images; those of class 1 are brighter on the left."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(number) % 2
    pixels = torch.randint(0, 200, (number, 3, 16, 16), generator=generator)
    pixels[..., :8] += 50 * labels[:, None, None, None]
    return TaskImages(pixels.to(torch.uint8), labels)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A study of two tasks of 8 images each."""
    out = tmp_path_factory.mktemp("metarank")
    for number in (0, 1):
        task = Task(f"task{number}", "noise", images(32, number), images(16, 9 + number), True)
        for one in jobs.task_runs(task, out, TINY):
            if number == 0 or one.family == "residual":
                score(one, TINY, out)
    write_times(solver_timing.measure(images=2, side=16), out, "test")
    collect(out)
    return out


def test_six_claims_are_stated_with_a_test_each():
    assert [claim.id for claim in CLAIMS] == [f"metarank.{i}" for i in range(1, 7)] == list(TESTS)
    assert {claim.unit for claim in CLAIMS[:5]} == {TASK}
    assert all(claim.statistic and claim.margin and claim.n >= 12 for claim in CLAIMS)


def test_every_claim_has_one_verdict():
    verdicts = verdicts_of(published("metarank"))
    assert [verdict.claim for verdict in verdicts] == [claim.id for claim in CLAIMS]


def test_a_tiny_study_runs_from_training_to_verdicts(tiny):
    rows, _ = run_study("metarank", Study(None, {}, tiny))
    found = {row.id: row for row in rows}
    axes = {f"metarank.5@{s}-{a}" for s in ("signed", "absolute") for a in ("removed", "kept")}
    assert set(found) == {f"metarank.{i}" for i in (1, 2, 3, 4, 6)} | axes
    assert {row.n for row in rows} == {2}
    assert {row.verdict for row in rows} == {"to be run again"}
    assert all(Path(row.source).is_file() and row.command for row in rows)


def test_what_is_finished_is_not_run_again(tiny):
    task = Task("task0", "noise", images(32, 0), images(16, 9), True)
    assert not any(score(one, TINY, tiny) for one in jobs.task_runs(task, tiny, TINY))


def test_areas_are_the_scores_of_the_runs(tiny):
    from assay.results import Results
    from assay.studies.reading import Reading

    rows = {
        (row.order, row.fill, row.method): row
        for row in read_task_scores(tiny)
        if (row.part, row.task, row.family) == ("tasks", "task0", "plain")
    }
    reading = Reading(Results(tiny / "tasks" / "task0-plain"))
    assert {key[2] for key in rows} == {*PAPERS_EIGHT, "random", "edge"}
    for order in ("morf", "lerf"):
        for fill, name in (("constant", "accuracy"), ("imputed", "road")):
            own = reading.values(f"{name}_{order}", "saliency")
            # The protocol's area is over the shares that whole pixels allow.
            assert rows[order, fill, "saliency"].area == pytest.approx(own, abs=0.01)


def test_the_axis_of_shares_kept_reads_the_curve_from_its_end(tiny):
    rows = read_task_scores(tiny)
    removed, kept = (falls(rows, "tasks", axis, "deeplift") for axis in ("removed", "kept"))
    of = [
        row
        for row in rows
        if (row.part, row.task, row.fill, row.method) == ("tasks", "task0", "imputed", "deeplift")
    ]
    lerf = [row for row in of if row.order == "lerf"]
    gap = np.mean([row.early.mean() - row.late.mean() for row in lerf])
    assert kept["task0"] - removed["task0"] == pytest.approx(gap, abs=1e-6)


def test_the_epsilon_rule_is_a_clone_on_networks_of_relus(tiny):
    rows = {
        (row.task, row.family, row.order, row.fill, row.method): row
        for row in read_task_scores(tiny)
        if row.part == "tasks"
    }
    for key, row in rows.items():
        if key[-1] in CLONES:
            other = rows[(*key[:-1], CLONES[key[-1]])]
            assert np.mean(row.area) == pytest.approx(np.mean(other.area), abs=0.02)


def test_settings_that_share_one_order_reach_the_ceiling(tiny):
    rng = np.random.default_rng(0)
    quality = np.arange(len(COUNTED))
    rows = [
        replace(
            row, task=f"{row.source}{i}", source=f"source{i % 2}", order="lerf",
            area=quality[COUNTED.index(row.method)] + rng.normal(0, 5, 60),
        )
        for i in range(8)
        for row in read_task_scores(tiny)
        if row.part == "tasks" and row.method in COUNTED
        and (row.task, row.family, row.order, row.fill) == ("task0", "plain", "lerf", "constant")
    ]  # fmt: skip
    found = agreement.agreement(rows)
    gap = found.mean(found.ceiling - found.tau, lambda a, b: a.task != b.task)
    effect = agreement.over_tasks("gap", gap, found.sources)
    assert abs(effect.value) < 0.05 < found.tau.mean()
    assert (effect.n, effect.degrees) == (8, 6)


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = {"a": 1.0, "b": 2.0, "c": 4.0}
    effect = agreement.over_tasks("mean", agreement.mean_over(values), dict.fromkeys(values, "s"))
    assert effect.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    two = agreement.over_tasks("mean", agreement.mean_over(values), {"a": "s", "b": "s", "c": "t"})
    assert two.degrees == 1


def test_both_solvers_give_the_same_pixels():
    times = solver_timing.measure(images=2, side=24)
    assert max(time.difference for time in times) < 2e-4
    pixels, gone = solver_timing.drawn(3, 24, 0.5)
    exact = solver_timing.solve_directly(pixels, gone)
    ours = linear(torch.from_numpy(pixels)[None], torch.from_numpy(~gone)[None], 1e-9)
    assert ours[0].numpy() == pytest.approx(exact, abs=1e-6)


def test_times_come_back_as_stored(tmp_path):
    times = solver_timing.measure(images=1, side=16)
    write_times(times, tmp_path, "test")
    assert read_times(tmp_path) == times


def test_digits_are_read_in_the_format_of_their_authors(tmp_path):
    pixels = np.arange(2 * 28 * 28, dtype=np.uint8)
    head = np.array([2051, 2, 28, 28], ">i4").tobytes()
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(head + pixels.tobytes())
    labels = np.array([2049, 2], ">i4").tobytes() + bytes([7, 3])
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(labels)
    digits, classes = read_digits(tmp_path, "t10k")
    assert digits.shape == (2, 1, 28, 28)
    assert digits.flatten().tolist() == pixels.tolist()
    assert classes.tolist() == [7, 3]


@pytest.mark.parametrize(("cut", "message"), [(3, "to begin with 2051"), (None, "found none")])
def test_damaged_or_missing_digits_are_named(cut, message, tmp_path):
    if cut:
        head = np.array([2051, 2, 28, 28], ">i4").tobytes()
        (tmp_path / "train-images-idx3-ubyte").write_bytes(head + bytes(cut))
    with pytest.raises((InputError, PrerequisiteError), match=message):
        read_digits(tmp_path, "train")


def test_painted_tasks_have_images_of_their_own():
    tasks = list(painted_tasks(12, 4))
    assert [task.name for task in tasks] == ["parts01", "parts23"]
    for task in tasks:
        assert task.training.images.shape == (12, 3, 32, 32)
        assert set(task.testing.labels.tolist()) == {0, 1}


def published_row(claim):
    return next(row for row in published("metarank") if row.id == claim)


@pytest.mark.skipif(not (RESULTS / NAME).is_file(), reason="nothing is published")
def test_the_published_verdicts_follow_from_the_published_tables(tmp_path):
    for source in RESULTS.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    rows, _ = run_study("metarank", Study(None, {}, tmp_path))
    shown = {row.id: row for row in published("metarank")}
    assert {row.id: (row.verdict, row.n) for row in rows} == {
        row.id: (row.verdict, row.n) for row in shown.values()
    }
    for row in rows:
        assert (row.value, row.low, row.high) == pytest.approx(
            (shown[row.id].value, shown[row.id].low, shown[row.id].high)
        )
