"""The mixed model: closed forms, invariances, and coverage in a short simulation."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from benchmarks.simulate_settings import LAYOUTS, simulate

from assay.aggregation.mixed_model import fit_mixed_model
from assay.aggregation.new_task import predict_new_task, win_probabilities
from assay.aggregation.restricted_likelihood import ContrastSystem, alike_methods
from assay.aggregation.task_cells import TaskCells, cells_from_rows, pooled_noise
from assay.errors import InputError

N, T, Q, F = 6, 12, 3, 2


def study(seed=0, n=N, tasks=T, questions=Q, families=F, sources=1, effect=0.5):
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(range(tasks), range(questions), range(families), indexing="ij")
    t, q, f = (axis.ravel() for axis in grid)
    values = (
        np.linspace(0, 1, n)[:, None] + rng.normal(size=tasks)[t] + rng.normal(size=len(t))
        + effect * rng.normal(size=(n, tasks))[:, t] + 0.4 * rng.normal(size=(n, questions))[:, q]
        + 0.4 * rng.normal(size=(n, families))[:, f] + 0.2 * rng.normal(size=(n, len(t)))
    )  # fmt: skip
    return TaskCells(
        tuple(f"m{i:02}" for i in range(n)), tuple(f"t{i:02}" for i in t),
        tuple(f"q{i}" for i in q), tuple(f"f{i}" for i in f),
        {f"t{i:02}": "abc"[i % sources] for i in range(tasks)}, values,
    )  # fmt: skip


def holes(cells, share=0.15, seed=1):
    values = cells.values.copy()
    values[np.random.default_rng(seed).random(values.shape) < share] = np.nan
    return replace(cells, values=values)


def mean_squares(cells):
    """Of methods x tasks, x questions, x families and the rest, by the analysis of variance."""
    y = cells.values - cells.values.mean(axis=0)
    y = (y - y.mean(axis=1, keepdims=True)).reshape(N, T, Q, F)
    by = [y.mean(axis=axes) for axes in ((2, 3), (1, 3), (1, 2))]
    rest = y - by[0][:, :, None, None] - by[1][:, None, :, None] - by[2][:, None, None]
    sums = [(m**2).sum() * T * Q * F / m.shape[1] for m in by] + [(rest**2).sum()]
    df = [T - 1, Q - 1, F - 1]
    df.append(T * Q * F - 1 - sum(df))
    return [s / ((N - 1) * d) for s, d in zip(sums, df, strict=True)]


def test_balanced_design_gives_the_analysis_of_variance():
    cells = study()
    fit = fit_mixed_model(cells)
    task, question, family, rest = mean_squares(cells)
    assert fit.variances["task"] == pytest.approx((task - rest) / (Q * F), rel=1e-3)
    assert fit.variances["question"] == pytest.approx((question - rest) / (T * F), rel=1e-3)
    assert fit.variances["family"] == pytest.approx((family - rest) / (T * Q), rel=1e-3)
    assert fit.variances["residual"] == pytest.approx(rest, rel=1e-3)
    assert sum(fit.shares.values()) == pytest.approx(1)


def test_balanced_design_gives_plain_means_and_their_errors_by_hand():
    cells = study()
    fit = fit_mixed_model(cells)
    assert fit.estimate == pytest.approx(cells.values.mean(axis=1), abs=1e-9)
    variance = mean_squares(cells)[0] / (T * Q * F)
    assert fit.errors[0, 0] + fit.errors[1, 1] - 2 * fit.errors[0, 1] == pytest.approx(
        2 * variance, rel=1e-3
    )
    assert fit.freedom == (N - 1) * (T - 1)
    own = (1 - 1 / N) * variance
    shared = cells.values.mean(axis=0).reshape(T, -1).mean(axis=1).var(ddof=1) / T
    df = (own + shared) ** 2 / (own**2 / fit.freedom + shared**2 / (T - 1))
    half = scipy.stats.t.ppf(0.975, df) * (own + shared) ** 0.5
    assert fit.high - fit.estimate == pytest.approx(np.full(N, half), rel=1e-3)


def test_sources_are_fixed_and_weigh_as_asked():
    cells = study(sources=3)
    fit = fit_mixed_model(cells)
    assert fit.freedom == (N - 1) * (T - 3)
    home = np.array([cells.sources[t] for t in cells.tasks])
    for source in fit.by_source:
        mean = cells.values[:, home == source.source].mean(axis=1)
        assert source.estimate == pytest.approx(mean, abs=1e-9)
    one = fit_mixed_model(cells, shares={"a": 1, "b": 0, "c": 0})
    assert one.estimate == pytest.approx(cells.values[:, home == "a"].mean(axis=1), abs=1e-9)


def dense(values, design, covariance):
    """Minus the restricted log-likelihood, and the method means, by the whole covariance."""
    n, size = values.shape
    there = ~np.isnan(values).ravel()
    levels = np.tile(np.eye(size), (n, 1))
    fixed = np.hstack([np.kron(np.eye(n)[:, 1:], design), levels])[there]
    inverse = np.linalg.inv(np.kron(np.eye(n), covariance)[np.ix_(there, there)])
    information = fixed.T @ inverse @ fixed
    y = values.ravel()[there]
    solved = np.linalg.solve(information, fixed.T @ inverse @ y)
    rest = y - fixed @ solved
    volume = np.linalg.slogdet(information)[1] - np.linalg.slogdet(inverse)[1]
    k = design.shape[1]
    means = np.vstack([np.zeros(k), solved[: (n - 1) * k].reshape(n - 1, k)])
    errors = np.linalg.inv(information)[: (n - 1) * k, : (n - 1) * k]
    return (volume + rest @ inverse @ rest) / 2, means, errors


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_likelihood_means_and_errors_equal_those_of_the_whole_covariance(missing):
    cells = holes(study(n=4, tasks=6, sources=2), missing)
    size = len(cells.tasks)
    design = np.eye(2)[[0 if cells.sources[t] == "a" else 1 for t in cells.tasks]]
    same = np.equal.outer(cells.tasks, cells.tasks).astype(float)
    gaps = []
    for task, rest in ((0.3, 0.1), (0.1, 0.4)):
        covariance = task * same + rest * np.eye(size)
        system = ContrastSystem(cells.values, alike_methods(cells.values), design, covariance)
        value, means, errors = dense(cells.values, design, covariance)
        gaps.append(system.minus_log_likelihood()[0] - value)
        assert system.means - system.means[0] == pytest.approx(means, abs=1e-8)
        shares = np.array([0.3, 0.7])
        found = system.errors(shares)
        spread = np.kron(np.eye(3), shares) @ errors @ np.kron(np.eye(3), shares).T
        against_first = found[0, 0] + np.diag(found)[1:] - 2 * found[0, 1:]
        assert against_first == pytest.approx(np.diag(spread), rel=1e-8)
    assert gaps[0] == pytest.approx(gaps[1], abs=1e-8)  # up to a constant


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_slope_of_the_likelihood(missing):
    cells = holes(study(n=4, tasks=6), missing)
    design = np.ones((len(cells.tasks), 1))
    same = np.equal.outer(cells.tasks, cells.tasks).astype(float)

    def system(task):
        covariance = task * same + 0.2 * np.eye(len(same))
        return ContrastSystem(cells.values, alike_methods(cells.values), design, covariance)

    step = 1e-5
    numeric = system(0.3 + step).minus_log_likelihood()[0]
    numeric = (numeric - system(0.3 - step).minus_log_likelihood()[0]) / (2 * step)
    slope = (system(0.3).minus_log_likelihood()[1] * same).sum()
    assert slope == pytest.approx(numeric, rel=1e-5)


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_relabelling_and_reordering_change_nothing(missing):
    cells = holes(study(sources=2), missing)
    rng = np.random.default_rng(3)
    methods, order = rng.permutation(N), rng.permutation(len(cells.tasks))
    other = TaskCells(
        tuple(f"x{i}" for i in range(N)),
        *(tuple("z" + x[order[i]] for i in range(len(order)))
          for x in (cells.tasks, cells.questions, cells.families)),
        {"z" + task: source for task, source in cells.sources.items()},
        cells.values[np.ix_(methods, order)],
    )  # fmt: skip
    one, two = fit_mixed_model(cells), fit_mixed_model(other)
    assert two.estimate == pytest.approx(one.estimate[methods], abs=1e-5)
    assert two.low == pytest.approx(one.low[methods], abs=1e-4)
    assert list(two.variances.values()) == pytest.approx(list(one.variances.values()), rel=1e-3)


def test_another_method_changes_the_pooled_variances_only():
    cells = study(sources=2)
    fewer = replace(cells, methods=cells.methods[:-1], values=cells.values[:-1])
    one, two = fit_mixed_model(cells), fit_mixed_model(fewer)
    assert one.estimate[:-1] == pytest.approx(two.estimate, abs=1e-9)
    assert one.variances["task"] != two.variances["task"]


def test_identical_methods_count_once_and_share():
    cells = study()
    twice = replace(
        cells, methods=(*cells.methods, "copy"), values=np.vstack([cells.values, cells.values[5]])
    )
    one, two = fit_mixed_model(cells), fit_mixed_model(twice)
    assert two.estimate[:-1] == pytest.approx(one.estimate, abs=1e-9)
    assert two.low[:-1] == pytest.approx(one.low, abs=1e-6)
    p, shared = predict_new_task(one).p_best, predict_new_task(two).p_best
    assert shared["copy"] == shared["m05"]
    assert 2 * shared["copy"] == pytest.approx(p["m05"], abs=1e-9)
    assert win_probabilities(two)[5, 6] == 0.5


def test_probability_best_of_two_methods_is_students_and_with_many_tasks_normal():
    cells = study(n=2, tasks=40, families=1)
    fit = fit_mixed_model(cells)
    gap = fit.estimate[1] - fit.estimate[0]
    error = (fit.errors[0, 0] + fit.errors[1, 1] - 2 * fit.errors[0, 1] + 2 * fit.new_task) ** 0.5
    found = predict_new_task(fit, draws=200_000)
    assert found.wins[1, 0] == pytest.approx(scipy.stats.t.cdf(gap / error, 39), abs=1e-12)
    assert found.p_best["m01"] == pytest.approx(scipy.stats.norm.cdf(gap / error), abs=0.01)
    assert found.p_best["m01"] == pytest.approx(found.wins[1, 0], abs=0.004)


def test_probabilities_add_to_one_and_are_seeded():
    fit = fit_mixed_model(study(sources=3))
    p = predict_new_task(fit, seed=4)
    assert sum(p.p_best.values()) == pytest.approx(1)
    assert p.p_best == predict_new_task(fit, seed=4).p_best
    assert p.p_best != predict_new_task(fit, seed=5).p_best
    assert p.wins + p.wins.T == pytest.approx(np.ones((N, N)))


def test_without_any_variance_the_order_is_certain():
    cells = study()
    exact = np.arange(N)[:, None] + np.random.default_rng(0).normal(size=len(cells.tasks))
    fit = fit_mixed_model(replace(cells, values=exact))
    assert max(fit.variances[k] for k in ("task", "question", "family", "residual")) == 0
    assert np.abs(fit.errors).max() == 0
    assert predict_new_task(fit).p_best["m05"] == 1


def test_all_methods_identical():
    cells = study()
    fit = fit_mixed_model(replace(cells, values=np.tile(cells.values[0], (N, 1))))
    assert predict_new_task(fit).p_best == pytest.approx(dict.fromkeys(cells.methods, 1 / N))
    assert fit.estimate == pytest.approx(np.full(N, cells.values[0].mean()))


def test_no_variance_between_tasks_is_found_at_the_boundary():
    cells = study(effect=0.0, seed=2)
    fit = fit_mixed_model(cells)
    task, _, _, rest = mean_squares(cells)
    assert fit.variances["task"] == pytest.approx(max(0, (task - rest) / (Q * F)), abs=1e-4)


def test_missing_cells_leave_estimates_near_and_errors_larger():
    cells = study(effect=0.1)
    whole, some = fit_mixed_model(cells), fit_mixed_model(holes(cells))
    assert some.estimate == pytest.approx(whole.estimate, abs=0.1)
    assert np.diag(some.errors).mean() > np.diag(whole.errors).mean()
    p, q = predict_new_task(whole).p_best, predict_new_task(some).p_best
    assert max(p, key=p.get) == max(q, key=q.get)


def test_a_method_that_lacks_a_hard_question_gains_nothing():
    cells = study(effect=0.0)
    values = cells.values.copy()
    hard = np.asarray(cells.questions) == "q0"
    values[:, hard] -= 5
    values[0, hard] = np.nan
    fit = fit_mixed_model(replace(cells, values=values))
    full = fit_mixed_model(cells)
    assert fit.estimate[0] == pytest.approx(full.estimate[0] - 5 / 3, abs=0.4)


def test_known_noise_is_taken_from_the_residual():
    cells = study()
    without = fit_mixed_model(cells)
    fit = fit_mixed_model(replace(cells, noise=0.01 * np.eye(len(cells.tasks))))
    assert fit.variances["residual"] == pytest.approx(
        without.variances["residual"] - 0.01, rel=0.01
    )
    assert fit.errors == pytest.approx(without.errors, abs=1e-5)
    assert fit.shares["sampling"] > 0


def test_pooled_noise_forgets_what_methods_share():
    tasks = ("a", "a", "b")
    assert pooled_noise(np.full((4, 3), 2.0), tasks) == pytest.approx(2 * np.eye(3))
    cell = np.full((4, 4), 5.0) + 2 * np.eye(4)
    assert pooled_noise(np.tile(cell, (3, 1, 1)), tasks) == pytest.approx(2 * np.eye(3))
    between = np.array([[1.0, 0.5], [0.5, 1.0]])
    block = np.einsum("cd,ij->cidj", between, cell)
    noise = pooled_noise({"a": block}, tasks)
    assert noise[:2, :2] == pytest.approx(2 * between)
    assert noise[2, 2] == 0


def test_few_tasks_have_a_range_and_no_interval():
    fit = fit_mixed_model(study(tasks=6, sources=3))
    assert np.isnan(fit.low).all()
    assert set(fit.left_out) == {"a", "b", "c"}
    low, high = fit.left_out_range
    assert (low <= fit.estimate + 1e-9).all()
    assert (fit.estimate <= high + 1e-9).all()
    assert "no confidence level" in fit.notes[0]
    assert len(fit_mixed_model(study(tasks=6)).left_out) == 6  # of one source, its tasks


def test_one_task_says_nothing_of_a_new_one():
    cells = study(tasks=1)
    fit = fit_mixed_model(cells)
    assert fit.estimate == pytest.approx(cells.values.mean(axis=1))
    assert "One task" in fit.notes[0]
    found = predict_new_task(fit)
    assert not found.p_best
    assert "one task" in found.note


@pytest.mark.parametrize(("tasks", "sources", "n"), [(3, 3, 5), (2, 1, 2), (4, 3, 2), (12, 3, 50)])
def test_small_and_large_designs(tasks, sources, n):
    for questions, families in ((1, 1), (3, 1), (1, 2)):
        cells = study(
            tasks=tasks, sources=sources, n=n, questions=questions, families=families, seed=tasks
        )
        fit = fit_mixed_model(cells)
        assert np.isfinite(fit.errors).all()
        assert sum(predict_new_task(fit, draws=500).p_best.values()) == pytest.approx(1)
        assert ("question" in fit.variances) == (questions > 1)


def test_rows_become_cells():
    cells = study(tasks=3)
    rows = [
        (m, t, q, f, float(cells.values[i, c]))
        for i, m in enumerate(cells.methods)
        for c, (t, q, f) in enumerate(
            zip(cells.tasks, cells.questions, cells.families, strict=True)
        )
    ]
    made = cells_from_rows(rows[::-1][1:], cells.sources)
    assert made.methods == cells.methods
    assert np.isnan(made.values).sum() == 1
    with pytest.raises(InputError, match="two values"):
        cells_from_rows([rows[0], rows[0]], cells.sources)


def test_refusals():
    cells = study()
    with pytest.raises(InputError, match="at least 2 methods"):
        replace(cells, methods=("m00",), values=cells.values[:1])
    with pytest.raises(InputError, match="No cell has a value of `m00`"):
        replace(cells, values=np.vstack([np.full(len(cells.tasks), np.nan), cells.values[1:]]))
    with pytest.raises(InputError, match="source of every task"):
        replace(cells, sources={})
    alone = cells.values.copy()
    alone[:, 0], alone[0, 1:] = np.nan, np.nan
    alone[0, 0] = 1.0
    with pytest.raises(InputError, match="share no cell"):
        fit_mixed_model(replace(cells, values=alone))
    with pytest.raises(InputError, match="`level`"):
        fit_mixed_model(cells, level=1.0)


def test_intervals_cover_in_the_layout_of_a_study():
    runs = 200
    found = simulate(LAYOUTS[0], runs, seed=11)
    # Means of a run are correlated: their coverage errs as that of about one mean per run.
    assert abs(np.mean(found.means) - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5
    assert abs(np.mean(found.pairs) - 0.95) < 3 * (0.95 * 0.05 / runs) ** 0.5
    assert np.mean(found.every_pair) > 0.95 - 3 * (0.95 * 0.05 / runs) ** 0.5
    p, hit = np.stack(found.chances), np.stack(found.hits)
    brier = ((p - hit) ** 2).sum(axis=1).mean()
    assert brier < 1 - 1 / p.shape[1]
    assert p.max(axis=1).mean() == pytest.approx(hit[np.arange(runs), p.argmax(1)].mean(), abs=0.1)
