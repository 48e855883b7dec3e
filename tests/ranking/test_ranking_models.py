"""Comparing models: no bias by choosing the best method, coverage, replicates, refusals."""

import numpy as np
import pytest
from scipy import stats

from assay.errors import InputError
from assay.plugins.properties import Properties
from assay.ranking.architectures import (
    Interval,
    architecture_names,
    over_samples_and_replicates,
    spread_over_replicates,
)
from assay.ranking.choosing import choose_on_other_half, split_in_halves, width_of_choice
from assay.ranking.compared_runs import compare_runs
from assay.ranking.intervals import mean_interval
from assay.store import (
    DatasetEntry,
    Manifest,
    MethodEntry,
    ProtocolEntry,
)
from ranking.model_runs import YES, Run, noise, two_models
from ranking.score_rows import arrow, rows

FAST = {"resamples": 300}


def halves(n):
    groups = [f"g{i}" for i in range(n)]
    return groups, split_in_halves(groups)


# --- the choice of the best method ----------------------------------------------------------------


def test_halves_are_even_fixed_and_keep_groups_together():
    groups, first = halves(101)
    assert first.sum() == 51
    assert dict(zip(groups, first, strict=True)) == dict(
        zip(groups[::-1], split_in_halves(groups[::-1]), strict=True)
    )
    doubled = split_in_halves([g for g in groups for _ in range(2)])
    assert (doubled[::2] == first).all()
    assert (doubled[1::2] == first).all()


def test_each_half_is_scored_by_the_method_that_the_other_chose():
    _, first = halves(20)
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(20, 4))
    for higher in (True, False):
        best = np.argmax if higher else np.argmin
        made = choose_on_other_half(scores, first, higher_is_better=higher)
        on_first, on_second = best(scores[first].mean(0)), best(scores[~first].mean(0))
        assert made.methods == (on_first, on_second)
        assert (made.values[first] == scores[first, on_second]).all()
        assert (made.values[~first] == scores[~first, on_first]).all()


def test_the_best_of_many_equal_methods_is_not_too_good_and_intervals_cover():
    """19 equal methods, true mean 0: the largest mean is biased, the chosen score is not."""
    rng = np.random.default_rng(1)
    _, first = halves(100)
    naive, chosen, covered = [], [], []
    for repeat in range(400):
        scores = 0.26 * rng.normal(size=(100, 19))
        made = choose_on_other_half(scores, first, higher_is_better=True)
        interval = mean_interval(made.values, resamples=200, seed=repeat)
        interval = interval.widened(width_of_choice(19))
        naive.append(scores.mean(0).max())
        chosen.append(interval.mean)
        covered.append(interval.low <= 0 <= interval.high)
    error = np.std(chosen) / 20
    assert np.mean(naive) > 0.04
    assert abs(np.mean(chosen)) < 3 * error
    assert np.mean(covered) > 0.92


def largest(count):
    """The expected maximum of standard normal numbers, by simulation."""
    return np.random.default_rng(0).normal(size=(40_000, count)).max(axis=1).mean()


def test_the_width_of_choosing_is_that_of_two_correlated_halves():
    """Simulated: the variance of the chosen score over that of a mean of all samples."""
    assert width_of_choice(1) == 1
    rng = np.random.default_rng(2)
    _, first = halves(40)
    for methods in (2, 3, 19):
        chosen = [
            choose_on_other_half(
                rng.normal(size=(40, methods)), first, higher_is_better=True
            ).values.mean()
            for _ in range(4000)
        ]
        needed = np.std(chosen) * np.sqrt(40)
        assert needed == pytest.approx(np.sqrt(1 + largest(methods) ** 2 / (methods - 1)), rel=0.04)
        assert needed < 1.04 * width_of_choice(methods)


def test_a_clearly_best_method_is_chosen_on_both_halves():
    _, first = halves(30)
    scores = np.random.default_rng(3).normal(size=(30, 5)) * 0.1
    scores[:, 2] += 1
    made = choose_on_other_half(scores, first, higher_is_better=True)
    assert made.methods == (2, 2)
    assert made.values.tolist() == scores[:, 2].tolist()


# --- replicates -----------------------------------------------------------------------------------


def test_architectures_are_named_by_rule_or_mapping():
    models = ["resnet20-s0", "resnet20-s11", "vgg-s1-tuned", "vit"]
    assert list(architecture_names(models).values()) == ["resnet20", "resnet20", "vgg-tuned", "vit"]
    assert architecture_names(["a1", "a2"], r"\d$") == {"a1": "a", "a2": "a"}
    assert architecture_names(["a", "b"], {"a": "x"}) == {"a": "x", "b": "b"}
    with pytest.raises(InputError, match="model of the comparison"):
        architecture_names(["a"], {"c": "x"})
    with pytest.raises(InputError, match="regular expression"):
        architecture_names(["a"], "(")


def test_intervals_over_samples_and_replicates_cover_both():
    """Images and networks are both random; the interval over images alone covers too rarely."""
    rng = np.random.default_rng(4)
    both = images = 0
    for repeat in range(300):
        values = 0.2 * rng.normal(size=(60, 1)) + 0.1 * rng.normal(size=5)
        values = values + 0.2 * rng.normal(size=(60, 5))
        over = mean_interval(values.mean(1), resamples=200, seed=repeat)
        whole = over_samples_and_replicates(over, spread_over_replicates(values.mean(0)), 0.95)
        images += over.low <= 0 <= over.high
        both += whole.low <= 0 <= whole.high
    assert images < 0.8 * 300
    assert both >= 0.93 * 300


def test_replicates_alone_give_students_interval():
    means = np.array([0.1, 0.3, 0.2, 0.6])
    exact = Interval(float(means.mean()), float(means.mean()), float(means.mean()), 50)
    made = over_samples_and_replicates(exact, spread_over_replicates(means), 0.95)
    low, high = stats.ttest_1samp(means, 0).confidence_interval(0.95)
    assert (made.low, made.high) == pytest.approx((low, high))


# --- models ---------------------------------------------------------------------------------------


def test_models_are_compared_in_pairs_on_the_same_samples():
    (one,) = compare_runs([two_models()], **FAST).comparisons
    assert [row.model for row in one.models] == ["good", "bad"]
    assert [row.rank for row in one.models] == [1, 2]
    (pair,) = one.pairs
    assert (pair.first, pair.second, pair.verdict) == ("good", "bad", "better")
    good, bad = one.models
    assert good.chosen == ("a", "a")
    assert pair.difference == pytest.approx(good.score.value - bad.score.value)
    # Paired: the spread that the models share does not widen the interval of the difference.
    assert pair.high - pair.low < good.score.high - good.score.low + bad.score.high - bad.score.low
    assert good.accuracy.value == 0.5
    low, high = stats.binomtest(25, 50).proportion_ci(method="wilson")
    assert (good.accuracy.low, good.accuracy.high) == pytest.approx((low, high))


def test_scores_do_not_change_with_the_order_of_models_or_samples():
    shared = two_models()
    turned = Run(
        {m: dict(by) for m, by in [("bad", {}), ("good", {})]}, methods=shared.entries.methods
    )
    turned.scores = shared.scores.take(list(range(len(shared.scores)))[::-1])
    turned.entries = shared.entries
    first, second = (compare_runs([run], **FAST).comparisons[0] for run in (shared, turned))
    assert first.models == second.models


def test_only_methods_common_to_all_models_count():
    run = two_models()
    run.scores = arrow(
        [*run.scores.to_pylist(), *rows("own", noise(40, 0.9), model="good"),
         *rows("random", noise(40, 0.95), model="good"), *rows("random", noise(40), model="bad"),
         *rows("bcos", noise(40, 0.99), model="good"), *rows("bcos", noise(40, 0.99), model="bad"),
         *rows("occlusion", np.ones(40), model="good", status="circular"),
         *rows("occlusion", np.ones(40), model="bad", status="circular")]
    )  # fmt: skip
    kinds = {"own": {}, "random": {"control": "random"}, "bcos": {"family": "intrinsic"},
             "occlusion": {}}  # fmt: skip
    entries = {name: MethodEntry(name=name, **facts) for name, facts in kinds.items()}
    run.entries = Manifest(**{**vars(run.entries), "methods": {**run.entries.methods, **entries}})
    (one,) = compare_runs([run], **FAST).comparisons
    assert one.methods == ("a", "b")
    assert [(row.model, row.method) for row in one.intrinsic] == [("good", "bcos"), ("bad", "bcos")]
    kind = {row.method: row.kind for row in one.by_method}
    assert kind == {"a": "common", "b": "common", "own": "some", "bcos": "intrinsic"}


def test_few_samples_give_no_order():
    (one,) = compare_runs([two_models(9)], **FAST).comparisons
    assert [row.rank for row in one.models] == [None, None]
    assert one.pairs[0].verdict == "unclear"
    assert any("give no order" in note for note in one.notes)


def test_equal_models_are_not_told_apart_more_often_than_promised():
    rng = np.random.default_rng(5)
    wrong = 0
    for repeat in range(60):
        shared = rng.normal(size=30)
        models = {
            f"m{k}": {f"a{i}": shared + rng.normal(size=30) for i in range(5)} for k in range(4)
        }
        (one,) = compare_runs([Run(models)], resamples=200, seed=repeat).comparisons
        wrong += any(pair.verdict != "unclear" for pair in one.pairs)
    assert wrong <= 0.05 * 60 + 3 * np.sqrt(60 * 0.05 * 0.95)


def test_architectures_with_replicates_are_compared_over_both():
    rng = np.random.default_rng(6)
    models = {
        f"{name}-s{seed}": {"a": noise(60, mean + 0.02 * rng.normal(), 10 * seed + k)}
        for k, (name, mean) in enumerate({"deep": 0.1, "flat": 0.5}.items())
        for seed in range(4)
    } | {"alone": {"a": noise(60, 0.9, 99)}}
    (one,) = compare_runs([Run(models)], **FAST).comparisons
    assert [row.architecture for row in one.architectures] == ["flat", "deep"]
    assert [row.rank for row in one.architectures] == [1, 2]
    assert one.architectures[0].models == tuple(f"flat-s{seed}" for seed in range(4))
    assert [pair.verdict for pair in one.architecture_pairs] == ["worse"]
    assert "One model does not show how replicates differ: alone." in one.notes
    grouped = compare_runs([Run(models)], replicates={m: "one" for m in models}, **FAST)
    assert len(grouped.comparisons[0].architectures) == 1


def test_two_replicates_that_differ_decide_nothing():
    models = {"a-s0": {"x": noise(50, 0.1, 1)}, "a-s1": {"x": noise(50, 0.3, 2)},
              "b-s0": {"x": noise(50, 0.2, 3)}, "b-s1": {"x": noise(50, 0.5, 4)}}  # fmt: skip
    (one,) = compare_runs([Run(models)], **FAST).comparisons
    assert [pair.verdict for pair in one.architecture_pairs] == ["unclear"]


def test_the_ceiling_is_read_from_a_protocol_about_the_model():
    stable = {"deletion": ProtocolEntry(name="d", properties=YES, options={"fill": "zero"})} | {
        name: ProtocolEntry(name=name, judges="model", options={"fill": fill, "other": "blur"})
        for name, fill in (("other_setting", "blur"), ("stable", "zero"))
    }
    extra = [
        line
        for protocol, level in (("stable", 0.8), ("other_setting", 0.1))
        for metric, headline in (("noise", True), ("other_fill", False))
        for line in rows("a", noise(40, level), model="good", protocol=protocol, metric=metric,
                         headline=headline, status="shown")
    ]  # fmt: skip
    (one,) = compare_runs([two_models(protocols=stable, extra=extra)], **FAST).comparisons
    good, bad = one.models
    assert good.noise.value == pytest.approx(noise(40, 0.8).mean())
    assert good.noise.low < good.noise.value < good.noise.high
    assert good.other_fill.value is not None
    assert bad.noise.value is None


# --- runs and refusals ----------------------------------------------------------------------------


def test_protocols_that_may_not_compare_are_refused_with_the_reason():
    protocols = {
        "deletion": ProtocolEntry(name="d", properties=YES),
        "silent": ProtocolEntry(name="s", properties=Properties().to_json()),
        "old": ProtocolEntry(name="o"),
        "whole": ProtocolEntry(name="w", properties=YES, reduce="soundness", judges="set"),
        "of_the_model": ProtocolEntry(name="m", judges="model"),
    }
    run = two_models(protocols=protocols)
    refused = {one.protocol: one.reason for one in compare_runs([run], **FAST).refused}
    assert list(refused) == ["silent", "old", "whole"]
    assert "does not declare" in refused["silent"]
    assert "earlier version" in refused["old"]
    for name, reason in refused.items():
        with pytest.raises(InputError, match=reason[:20]):
            compare_runs([run], name)
    with pytest.raises(InputError, match="Unknown protocol of these runs"):
        compare_runs([run], "absent")


def test_runs_are_put_together_and_equal_labels_are_told_apart():
    first, second = two_models(folder="first"), two_models(folder="second")
    (one,) = compare_runs([first, second], **FAST).comparisons
    assert {row.model for row in one.models} == {"first/good", "first/bad", "second/good",
                                                 "second/bad"}  # fmt: skip


def test_the_same_model_in_two_runs_counts_once():
    first, second = two_models(folder="first"), two_models(folder="second")
    second.entries = Manifest(**{**vars(second.entries), "models": first.entries.models})
    (one,) = compare_runs([first, second], **FAST).comparisons
    assert [row.model for row in one.models] == ["good", "bad"]
    again = "Scored several times on these samples, and counted once, in `shapes` in `first`:"
    assert f"{again} good, bad." in one.notes


def test_runs_that_do_not_fit_together_are_refused():
    four = {"deletion": ProtocolEntry(name="d", properties=YES, options={"grid": 4})}
    one = two_models(folder="one", protocols=four)
    with pytest.raises(InputError, match="explain the same `target`"):
        compare_runs([one, two_models(folder="two", target="predicted")])
    other = {"deletion": ProtocolEntry(name="d", properties=YES, options={"grid": 8})}
    with pytest.raises(InputError, match="`grid` is 4 and 8"):
        compare_runs([one, two_models(folder="two", protocols=other)])
    with pytest.raises(InputError, match="at least two models"):
        compare_runs([Run({"alone": {"a": noise()}})])
    with pytest.raises(InputError, match="at least one run"):
        compare_runs([])
    apart = two_models(folder="two", protocols=four)
    apart.entries = Manifest(
        **{**vars(apart.entries), "datasets": {"shapes": DatasetEntry(fingerprint="other")}}
    )
    assert len(compare_runs([one, apart], **FAST).comparisons) == 2  # each on its own data
