"""What a comparison of models must not count: other methods, samples, copies of one network."""

from dataclasses import replace

import numpy as np
import pytest

from assay.errors import InputError
from assay.ranking.association import spearman_interval
from assay.ranking.compared_runs import compare_runs, compare_where_possible
from assay.ranking.same_plugins import difference
from assay.store import CellRecord, DatasetEntry, MethodEntry, PluginEntry, ProtocolEntry
from ranking.model_runs import YES, Run, noise, two_models
from ranking.score_rows import arrow, rows

FAST = {"resamples": 200}
NO = {**YES, "in_domain": False}


def changed(run, **facts):
    """The run with other entries in its manifest."""
    run.entries = replace(run.entries, **facts)
    return run


def with_models(run, **facts):
    """The run with other facts of some models."""
    models = {m: replace(e, **facts.get(m, {})) for m, e in run.entries.models.items()}
    return changed(run, models=models)


def three(**facts):
    """Models of equal quality, each with scores of its own by two methods."""
    names = ("one", "two", "three")
    return Run({m: {"a": noise(40, 0.3, i), "b": noise(40, 0.1, 9 + i)} for i, m in
                enumerate(names)}, **facts)  # fmt: skip


def only(run, **options):
    (one,) = compare_runs([run] if isinstance(run, Run) else run, **FAST, **options).comparisons
    return one


def reasons(left_out):
    return {one.name: one.reason for one in left_out}


def record(model, method, status, message="", protocol="deletion"):
    return CellRecord(cell="c", shard="s", dataset="shapes", model=model, method=method,
                      protocol=protocol, status=status, message=message)  # fmt: skip


# --- models without scores ------------------------------------------------------------------------


def without_scores(model, records):
    """A third model in the run, whose cells have these records and no values."""
    run = two_models()
    lines = [
        line for r in records for line in rows(r.method, np.full(40, np.nan), model=model,
                                               status=r.status)
    ]  # fmt: skip
    run.scores = arrow([*run.scores.to_pylist(), *lines])
    run.records = records
    models = {**run.entries.models, model: replace(run.entries.models["good"], weights_hash="x")}
    return changed(run, models=models)


def test_a_model_to_which_nothing_applies_is_named_with_the_cure():
    cure = "Needs a card, which model `new` with these data does not have: `assay finetune`."
    cells = [record("new", "a", "n/a", cure), record("new", "b", "n/a", cure)]
    one = only(without_scores("new", cells))
    assert [row.model for row in one.models] == ["good", "bad"]
    assert reasons(one.left_out) == {
        "new": "Not applicable. Needs a card, which the model with these data does not have: "
        "`assay finetune`."
    }


def test_a_model_on_which_all_methods_failed_is_named_with_the_message():
    cells = [record("new", "a", "failed", "out of memory"), record("new", "b", "n/a", "no layer")]
    one = only(without_scores("new", cells))
    (reason,) = reasons(one.left_out).values()
    assert reason == "Failed: a. out of memory. Not applicable: b. no layer."


def test_a_model_that_was_not_scored_yet_is_named():
    one = only(without_scores("new", []))
    assert "Run the suite again" in reasons(one.left_out)["new"]


def test_a_model_with_only_maps_of_its_own_or_circular_cells_is_named():
    run = two_models()
    lines = [*rows("bcos", noise(), model="new"), *rows("random", noise(), model="new"),
             *rows("occlusion", noise(), model="new", status="circular")]  # fmt: skip
    run.scores = arrow([*run.scores.to_pylist(), *lines])
    run.records = [record("new", "bcos", "ok"), record("new", "random", "ok"),
                   record("new", "occlusion", "circular")]  # fmt: skip
    methods = {"bcos": MethodEntry(name="bcos", family="intrinsic"),
               "random": MethodEntry(name="random", control="random"),
               "occlusion": MethodEntry(name="occlusion")}  # fmt: skip
    models = {**run.entries.models, "new": replace(run.entries.models["good"], weights_hash="x")}
    changed(run, models=models, methods={**run.entries.methods, **methods})
    (reason,) = reasons(only(run).left_out).values()
    assert "near-circular ones: bcos." in reason
    assert "Circular, and so not compared: occlusion." in reason
    assert "random" not in reason


def test_a_run_without_the_protocol_is_named():
    other = {"insertion": ProtocolEntry(name="i", properties=YES)}
    second = two_models(folder="second", protocols=other)
    one = only([two_models(folder="first"), second], protocol="deletion")
    assert set(reasons(one.left_out)) == {"second/good", "second/bad"}
    assert "`second` does not have this protocol" in one.left_out[0].reason


def test_where_nothing_can_be_compared_every_model_has_its_reason():
    run = changed(two_models(), protocols={"deletion": ProtocolEntry(name="d", properties=YES)})
    run.scores = run.scores.slice(0, 80)  # those of the first model only
    run.records = [record("bad", "a", "failed", "no gradient")]
    (refused,) = compare_where_possible([run], **FAST).refused
    assert reasons(refused.left_out) == {
        "good": "No other model has scores on `shapes`.",
        "bad": "Failed. no gradient.",
    }
    with pytest.raises(InputError, match=r"Left out: bad\. Failed\. no gradient"):
        compare_runs([run], **FAST)


def test_a_placebo_is_named_as_one_and_fine_tuned_networks_are_marked():
    card = {"grid": 4, "fill": "zero", "probability": 0.5, "placebo": False}
    single = {"deletion": ProtocolEntry(name="d", properties=NO,
                                        options={"grid": 4, "fill": "zero"})}  # fmt: skip
    cards = {"one": {"card": {"in_domain": card}},
             "two": {"card": {"in_domain": {**card, "placebo": True}}}}  # fmt: skip
    one = only(with_models(three(protocols=single), **cards))
    tuning = {row.model: row.tuning for row in one.models}
    assert tuning == {"one": "without a cell, grid 4, fill zero", "two": "placebo, nothing removed",
                      "three": ""}  # fmt: skip
    assert any("Only these are known to be trained" in n and ": one. A" in n for n in one.notes)
    run = with_models(without_scores("new", [record("new", "a", "n/a", "No card.")]),
                      new={"card": {"in_domain": {**card, "placebo": True}}})  # fmt: skip
    assert reasons(only(run).left_out)["new"].endswith("Card: placebo, nothing removed.")


@pytest.mark.parametrize(
    "card", [{"grid": 8}, {"fill": "blur"}, {"probability": 0.9}, {"placebo": True}]
)
def test_a_card_of_another_fine_tuning_puts_no_network_in_domain(card):
    usual = {"grid": 4, "fill": "zero", "probability": 0.5, "placebo": False}
    single = {"deletion": ProtocolEntry(name="d", properties=NO,
                                        options={"grid": 4, "fill": "zero"})}  # fmt: skip
    cards = {m: {"card": {"in_domain": {**usual, **card}}} for m in ("one", "two", "three")}
    assert any("No network is known" in n for n in only(with_models(three(protocols=single),
                                                                    **cards)).notes)  # fmt: skip
    fitting = {m: {"card": {"in_domain": usual}} for m in cards}
    notes = only(with_models(three(protocols=single), **fitting)).notes
    assert not any("unusual inputs" in n for n in notes)


# --- copies of one network ------------------------------------------------------------------------


def test_equal_weights_under_two_names_count_once():
    run = with_models(three(), two={"weights_hash": "run-one"})
    one = only(run)
    assert {row.model for row in one.models} == {"one", "three"}
    assert reasons(one.left_out) == {"two": "Has the same weights as one, and counts once."}


def test_equal_weights_in_two_runs_count_once_under_any_names():
    first, second = three(folder="first"), three(folder="second")
    second = with_models(second, one={"weights_hash": "first-three"})
    one = only([first, second])
    assert len(one.models) == 5
    assert reasons(one.left_out) == {
        "second/one": "Has the same weights as first/three, and counts once."
    }


def test_only_copies_of_one_network_are_no_comparison():
    run = with_models(two_models(), bad={"weights_hash": "run-good"})
    with pytest.raises(InputError, match="got 1: good, bad have the same weights"):
        compare_runs([run])


def test_copies_are_no_replicates():
    """One network under five names against five others: its luck must not become certainty."""
    rng = np.random.default_rng(0)
    shared = {"a": noise(200, 0.05, 1)}
    models = {f"copy-s{i}": shared for i in range(5)} | {
        f"real-s{i}": {"a": noise(200, 0.02 * rng.normal(), 20 + i)} for i in range(5)
    }
    copies = {f"copy-s{i}": {"weights_hash": "same"} for i in range(5)}
    one = only(with_models(Run(models), **copies))
    assert [row.architecture for row in one.architectures] == ["real"]
    assert len(one.left_out) == 4
    # Under other hashes, as when layers have other names, equal scores still show the copies.
    one = only(Run(models))
    assert [row.architecture for row in one.architectures] == ["real"]
    assert sum("count as one replicate" in note for note in one.notes) == 4


def test_one_network_read_in_two_ways_is_two_models_and_one_replicate():
    same = {"weights_hash": "w"}
    run = Run({f"net-s{i}": {"a": noise(40, 0.1, i)} for i in range(3)})
    run = with_models(run, **{"net-s0": same | {"reading": "logits"},
                              "net-s1": same | {"reading": "auxiliary"}})  # fmt: skip
    one = only(run)
    assert len(one.models) == 3
    assert one.architectures[0].models == ("net-s0", "net-s2")
    assert any(note.startswith("net-s1 and net-s0 have equal weights") for note in one.notes)


def test_replicates_that_were_tuned_from_one_network_are_pointed_out():
    run = Run({f"net-s{i}-tuned": {"a": noise(40, 0.1, i)} for i in range(3)})
    cards = {m: {"card": {"in_domain": {"base_sha256": "base"}}} for m in run.entries.models}
    notes = only(with_models(run, **cards)).notes
    assert any("fine-tuned from the same weights" in note for note in notes)
    apart = {m: {"card": {"in_domain": {"base_sha256": m}}} for m in run.entries.models}
    assert not any("the same weights" in note for note in only(with_models(run, **apart)).notes)


def test_constant_scores_are_no_sign_of_copies():
    """Every linear network has perfect maps."""
    run = Run({f"linear-s{i}": {"a": np.ones(40)} for i in range(3)})
    assert only(run).architectures[0].models == ("linear-s0", "linear-s1", "linear-s2")


def test_unknown_weights_are_like_no_others():
    run = with_models(three(), one={"weights_hash": ""}, two={"weights_hash": ""})
    assert len(only(run).models) == 3


# --- methods and protocols of other versions ------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"version": 2}, "version 1 and 2"),
        ({"options": {"steps": 9}}, "`steps` is not set and 9"),
        ({"name": "other"}, "it is `a` and `other`"),
        ({"key": "k2"}, "its code, or that of a part of it, differs"),
    ],
)
def test_a_method_that_differs_between_runs_is_not_common(other, says):
    usual = {"name": "a", "version": 1, "key": "k1"}
    both = {"key": "same"}
    first = two_models(folder="first", methods={"a": MethodEntry(**usual),
                                                "b": MethodEntry(name="b", **both)})  # fmt: skip
    mine = {**usual, "key": "k2", **other}
    second = two_models(folder="second", methods={"a": MethodEntry(**mine),
                                                  "b": MethodEntry(name="b", **both)})  # fmt: skip
    one = only([first, second])
    assert one.methods == ("b",)
    assert reasons(one.methods_left_out) == {
        "a": f"`a` is not the same in `first` and `second`: {says}."
    }
    assert {row.chosen for row in one.models} == {("b", "b")}


def test_equal_methods_of_runs_with_and_without_keys_are_common():
    new = {m: MethodEntry(name=m, version=1, key=m) for m in "ab"}
    old = {m: MethodEntry(name=m, version=1) for m in "ab"}
    runs = [two_models(folder="first", methods=new), two_models(folder="second", methods=old)]
    assert only(runs).methods == ("a", "b")


def test_a_model_whose_only_method_differs_is_left_out():
    first = three(folder="first")
    second = Run({"new": {"a": noise(40, 0.9, 5)}}, folder="second",
                 methods={"a": MethodEntry(name="a", version=2)})  # fmt: skip
    changed(first, methods={m: MethodEntry(name=m, version=1) for m in "ab"})
    one = only([first, second])
    assert len(one.models) == 3
    assert reasons(one.left_out) == {
        "new": "`a` is not the same in `first` and `second`: version 1 and 2."
    }


def test_a_method_that_one_model_lacks_is_named():
    run = two_models()
    run.scores = arrow([*run.scores.to_pylist(), *rows("own", noise(40, 0.9), model="good")])
    changed(run, methods={**run.entries.methods, "own": MethodEntry(name="own")})
    assert reasons(only(run).methods_left_out) == {"own": "Not scored on bad."}


@pytest.mark.parametrize(
    ("facts", "says"),
    [({"version": 2}, "version 1 and 2"), ({"options": {"grid": 8}}, "`grid` is 4 and 8"),
     ({"options": {"grid": 4, "fill": {"blur": {"sigma": 5}}}}, "`fill` is not set and blur")],
)  # fmt: skip
def test_a_protocol_that_differs_between_runs_is_refused(facts, says):
    usual = ProtocolEntry(name="d", version=1, options={"grid": 4}, properties=YES)
    entries = {"first": usual, "second": replace(usual, **facts)}
    runs = [two_models(folder=f, protocols={"deletion": entry}) for f, entry in entries.items()]
    (refused,) = compare_where_possible(runs).refused
    assert f"`deletion` is not the same in `first` and `second`: {says}" in refused.reason
    assert "Compare these runs one by one" in refused.reason
    with pytest.raises(InputError, match="is not the same in"):
        compare_runs(runs)


def test_grids_and_fills_under_labels_of_their_own_are_compared_apart():
    four = ProtocolEntry(name="d", options={"grid": 4}, properties=YES)
    first = two_models(folder="first", protocols={"deletion": four})
    eight = {"deletion[grid=8]": replace(four, options={"grid": 8})}
    second = two_models(folder="second", protocols=eight)
    second.scores = arrow(
        [{**line, "protocol": "deletion[grid=8]"} for line in second.scores.to_pylist()]
    )
    made = compare_runs([first, second], **FAST).comparisons
    assert [one.protocol for one in made] == ["deletion", "deletion[grid=8]"]
    assert [{row.model for row in one.models} for one in made] == [
        {"first/good", "first/bad"}, {"second/good", "second/bad"}
    ]  # fmt: skip


def test_equal_plug_ins_have_no_difference():
    entries = [PluginEntry(name="a", version=1, options={"x": 1.0}, key=k) for k in ("k", "k", "")]
    assert difference("a", entries, ["r", "s", "t"]) == ""
    assert difference("a", entries[:2], ["r", "s"]) == ""


# --- samples --------------------------------------------------------------------------------------


def moved(run, by):
    """The run with the ids of its samples counted from another number."""
    run.scores = arrow(
        [{**r, "sample": f"s{int(r['sample'][1:]) + by:03d}"} for r in run.scores.to_pylist()]
    )
    return run


def test_models_are_paired_on_shared_samples_only():
    first, second = two_models(folder="first"), moved(two_models(folder="second"), 15)
    one = only([first, second])
    assert {row.n for row in one.models} == {25}
    assert any(note.startswith("15 of 40 samples") for note in one.notes)
    first_good = next(row for row in one.models if row.model == "first/good")
    lines = [r for r in first.scores.to_pylist() if (r["model"], r["method"]) == ("good", "a")]
    shared = [r["value"] for r in lines if int(r["sample"][1:]) >= 15]
    assert first_good.score.value == pytest.approx(np.mean(shared))


def test_equal_ids_of_other_data_are_not_paired():
    second = changed(
        two_models(folder="second"), datasets={"shapes": DatasetEntry(fingerprint="x")}
    )
    made = compare_runs([two_models(folder="first"), second], **FAST).comparisons
    assert [len(one.models) for one in made] == [2, 2]
    assert "Scored on other samples: `shapes` in `second`." in {
        one.reason for one in made[0].left_out
    }


@pytest.mark.parametrize(("by", "count"), [(40, 0), (33, 7)])
def test_a_model_on_other_samples_does_not_spoil_the_comparison_of_the_rest(by, count):
    new = moved(Run({"new": {"a": noise(), "b": noise()}}, folder="second"), by)
    for runs in ([three(folder="first"), new], [new, three(folder="first")]):
        one = only(runs)
        assert {row.model for row in one.models} == {"one", "two", "three"}
        assert one.models[0].n == 40
        assert reasons(one.left_out) == {
            "new": f"Shares {count} independent samples with the others, which is too few."
        }


def test_models_that_share_no_method_are_told_apart():
    runs = [three(folder="first"), Run({"vit": {"rollout": noise()}}, folder="second")]
    one = only(runs)
    assert reasons(one.left_out)["vit"] == (
        "Shares no method with the others: has rollout; they have a, b."
    )
    with pytest.raises(InputError, match="has rollout; they have a"):
        compare_runs([Run({"one": {"a": noise()}}), runs[1]])


def test_samples_that_belong_together_otherwise_are_not_paired():
    first, second = three(folder="first"), Run({"new": {"a": noise(), "b": noise()}}, folder="two")
    second.scores = arrow(
        [{**r, "group": f"g{int(r['sample'][1:]) // 2}"} for r in second.scores.to_pylist()]
    )
    one = only([first, second])
    assert "other groups" in reasons(one.left_out)["new"]


def test_data_under_two_labels_count_once():
    run = two_models()
    run.scores = arrow(
        [{**r, "dataset": d} for d in ("shapes", "again") for r in run.scores.to_pylist()]
    )
    changed(run, datasets={d: DatasetEntry(fingerprint="same") for d in ("shapes", "again")})
    one = only(run)
    assert [row.model for row in one.models] == ["good", "bad"]
    assert any("counted once" in note for note in one.notes)


# --- ceilings and numbers beside the score --------------------------------------------------------


def test_a_ceiling_of_other_units_is_not_shown():
    """`in_domain_single_deletion` has no `units`: a ceiling of segments is not one of its cells."""
    options = {"grid": 4, "fill": "zero", "output": "logit"}
    for units, known in ((None, True), ({"segments": {}}, False)):
        stable = ProtocolEntry(name="s", judges="model", options={**options, "units": units})
        protocols = {"deletion": ProtocolEntry(name="d", properties=YES, options=options),
                     "stable": stable}  # fmt: skip
        extra = [
            line for model in ("good", "bad")
            for line in rows("a", noise(40, 0.8), model=model, protocol="stable", metric="noise",
                             status="shown")
        ]  # fmt: skip
        one = only(two_models(protocols=protocols, extra=extra))
        assert all((row.noise.value is not None) is known for row in one.models)


def test_every_number_has_its_count_of_samples():
    stable = {"deletion": ProtocolEntry(name="d", properties=YES),
              "stable": ProtocolEntry(name="s", judges="model")}  # fmt: skip
    extra = rows("a", noise(25, 0.8), model="good", protocol="stable", metric="noise",
                 status="shown")  # fmt: skip
    one = only(two_models(protocols=stable, extra=extra))
    good, bad = one.models
    assert (good.score.n, good.accuracy.n, good.noise.n, bad.noise.n) == (40, 50, 25, 0)
    assert one.pairs[0].n == 40
    assert any(note.endswith("cells and fill: bad.") for note in one.notes)


def test_a_network_hardly_better_than_chance_is_marked():
    run = two_models()
    clean = [replace(row, accuracy=0.26, chance=0.25) if row.model == "good" else row
             for row in run.entries.clean]  # fmt: skip
    one = only(changed(run, clean=clean))
    assert {row.model: row.weak for row in one.models} == {"good": True, "bad": False}
    assert any(
        note.startswith("Hardly right more often than by chance: good") for note in one.notes
    )


def test_the_unit_of_the_correlation_is_the_architecture():
    run = Run({f"n{k}-s{i}": {"a": noise(40, 0.1 * k, 10 * k + i)} for k in range(5)
               for i in range(2)})  # fmt: skip
    found = only(run).correlation
    assert (found.n, found.over) == (5, "architectures")
    assert found.value == pytest.approx(1.0)
    assert found.low < 0  # five architectures in perfect order do not show a correlation
    models = only(run, replicates={m: m for m in run.entries.models}).correlation
    assert (models.n, models.over) == (10, "models")


def test_fine_tuned_networks_are_no_new_points_of_the_correlation():
    """Five networks and their fine-tuned copies are five points, not ten."""
    names = [f"n{k}{part}" for k in range(5) for part in ("", "-tuned")]
    run = Run({m: {"a": noise(40, 0.1 * i, i)} for i, m in enumerate(names)})
    cards = {f"n{k}-tuned": {"card": {"in_domain": {"base_sha256": f"run-n{k}"}}} for k in range(5)}
    assert only(run).correlation.n == 10
    found = only(with_models(run, **cards)).correlation
    assert (found.n, found.over) == (5, "architectures")
    without = Run({m: {"a": noise(40, 0.1 * i, i)} for i, m in enumerate(names[1::2])})
    bases = {m: {"card": {"in_domain": {"base_sha256": "one"}}} for m in names[1::2]}
    assert only(with_models(without, **bases)).correlation is None


def test_intervals_of_correlations_cover_the_true_one():
    """Normal pairs: Spearman's population value is 6 / pi * asin(rho / 2)."""
    rng = np.random.default_rng(0)
    for n, rho in ((6, 0.0), (8, 0.5), (20, 0.9)):
        x = rng.normal(size=(300, n))
        y = rho * x + np.sqrt(1 - rho**2) * rng.normal(size=(300, n))
        made = [spearman_interval(list(zip(a, b, strict=True)), "models", 0.95)
                for a, b in zip(x, y, strict=True)]  # fmt: skip
        true = 6 / np.pi * np.arcsin(rho / 2)
        assert np.mean([one.low <= true <= one.high for one in made]) > 0.93


def test_equal_architectures_with_many_replicates_are_not_told_apart():
    """Seeds differ, architectures do not: at most the promised share of comparisons errs."""
    rng = np.random.default_rng(8)
    errs, repeats = 0, 60
    for _ in range(repeats):
        image = 0.3 * rng.normal(size=30)
        models = {}
        for name in ("deep", "flat"):
            own = 0.15 * rng.normal(size=30)  # what an architecture finds hard
            for seed in range(6):
                values = image + own + 0.1 * rng.normal() + 0.2 * rng.normal(size=30)
                models[f"{name}-s{seed}"] = {"a": values}
        (pair,) = only(Run(models)).architecture_pairs
        errs += pair.verdict != "unclear"
    assert errs <= 0.05 * repeats + 2 * np.sqrt(repeats * 0.05 * 0.95)
