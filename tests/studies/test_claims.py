"""From numbers to verdicts, and the table of published claims."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from assay.errors import InputError
from assay.plugins.identity import DRAWS
from assay.studies import claim as c
from assay.studies import effect as effects
from assay.studies.claim_verdict import RULE, verdict_of, verdicts_of
from assay.studies.published_claims import (
    PAPERS,
    claims_of,
    complete,
    parse,
    published,
    write,
)

CLAIM = c.Claim("soco.12", "soco", "Something rises", margin=0.1, n=100)


def verdict(parts, claim=CLAIM, setting="exact"):
    (row,) = c.judge([c.make_row(claim, parts, setting)])
    return row


def effect(value, error=0.01, n=100, **facts):
    return c.Effect("it", value, error, n, **facts)


# --- one claim ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "value", "expected"),
    [
        ("above", 0.2, "holds"), ("above", 0.0, "fails"), ("above", -0.3, "fails"),
        ("above", 0.11, "undecided"), ("below", 0.0, "holds"), ("below", 0.2, "fails"),
        ("within", 0.0, "holds"), ("within", 0.2, "fails"), ("within", -0.2, "fails"),
        ("within", 0.1, "undecided"), ("outside", -0.2, "holds"), ("outside", 0.2, "holds"),
        ("outside", 0.0, "fails"), ("outside", -0.09, "undecided"),
    ],
)  # fmt: skip
def test_the_whole_interval_decides(direction, value, expected):
    row = verdict([effect(value)], replace(CLAIM, direction=direction))
    assert row.verdict == expected
    inside = {
        "above": row.low > 0.1, "below": row.high < 0.1, "within": row.low > -0.1 < row.high < 0.1,
        "outside": row.low > 0.1 or row.high < -0.1,
    }[direction]  # fmt: skip
    assert inside == (expected == "holds")
    assert ("would decide" in row.remedy) == (expected == "undecided")


def test_a_failure_on_a_stand_in_does_not_carry_over():
    assert verdict([effect(0.0)], setting="stand-in").verdict == "does not carry over"
    assert verdict([effect(0.2)], setting="stand-in").verdict == "holds"
    assert verdict([effect(0.11)], setting="stand-in").verdict == "undecided"


def test_the_stated_number_would_decide():
    row = verdict([effect(0.11, error=0.01, n=100)])
    needed = int(row.remedy.split("n = ")[1].split(" ")[0].replace(",", ""))
    assert needed > 100
    for n, expected in ((needed, "holds"), (int(needed * 0.9), "undecided")):
        assert n >= CLAIM.n
        error = 0.01 * np.sqrt(100 / n)
        assert verdict([effect(0.11, error, n)]).verdict == expected


def test_an_exact_number_decides_without_error():
    claim = replace(CLAIM, direction="within", margin=1e-9)
    assert verdict([effect(0.0, error=0.0)], claim).verdict == "holds"
    assert verdict([effect(1e-3, error=0.0)], claim).verdict == "fails"


def test_few_units_decide_nothing():
    row = verdict([effect(0.9, n=9)], replace(CLAIM, n=5))
    assert row.verdict == "undecided"
    assert "fewer than 10 units" in row.remedy


# --- rows to be run again -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"n": 99}, "n", "n = 99 instead of 100"),
        ({"size": 112, "stated_size": 224}, "size", "images of 112 instead of 224 pixels a side"),
        ({"unit": "pixel"}, "unit", "its units are pixel"),
        ({"definition": 0}, "definition", "made by an earlier definition of the test"),
        ({"left_out": ["one part"]}, "left_out", "without one part"),
        ({"draws": 1}, "draws", "made with random numbers of an earlier version"),
    ],
)
def test_a_row_that_its_command_does_not_give_is_to_be_run_again(change, reason, text):
    made = c.make_row(CLAIM, [effect(0.9)], "exact")
    assert c.judge([made], [CLAIM])[0].verdict == "holds"
    (row,) = c.judge([replace(made, **change)], [CLAIM])
    assert row.verdict == "to be run again"
    assert row.again == [reason]
    assert row.remedy == f"To be run again: {text}."
    assert text in row.shown()["note"]


def test_a_row_that_is_to_be_run_again_makes_no_other_easier_to_decide():
    claims = [replace(CLAIM, id=f"soco.{i}") for i in range(1, 4)]
    sure, sure_too, weak = (
        c.make_row(claim, [effect(0.1 + by)], "exact")
        for claim, by in zip(claims, (0.2, 0.2, 0.0215), strict=True)
    )
    assert [row.verdict for row in c.judge([sure, sure_too, weak])][2] == "holds"
    rows = c.judge([replace(sure, n=50), replace(sure_too, n=50), weak])
    assert [row.verdict for row in rows] == ["to be run again"] * 2 + ["undecided"]


# --- one verdict a claim --------------------------------------------------------------------------


def rows_with(*verdicts, setting="exact"):
    return [
        replace(c.make_row(CLAIM, [effect(0.2)], setting, f"row {i}"), verdict=v,
                again=["left_out"] if v == "to be run again" else [], left_out=["a part"])
        for i, v in enumerate(verdicts)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        (["holds"], "holds"),
        (["holds", "holds"], "holds"),
        (["does not carry over"] * 2, "does not carry over"),
        (["fails", "does not carry over"], "fails"),
        (["holds", "does not carry over"], "mixed"),
        (["holds", "fails", "to be run again"], "mixed"),
        (["holds", "undecided"], "undecided"),
        (["holds", "not run yet"], "undecided"),
        (["holds", "not testable here"], "undecided"),
        (["holds", "to be run again"], "to be run again"),
        (["undecided", "to be run again", "not run yet"], "to be run again"),
        (["not run yet", "not testable here"], "not run yet"),
        (["not testable here"], "not testable here"),
    ],
)
def test_the_rows_of_a_claim_make_one_verdict(verdicts, expected):
    verdict = verdict_of(rows_with(*verdicts))
    assert verdict.verdict == expected
    if len(set(verdicts)) > 1 and expected != "not run yet":
        for place, each in enumerate(verdicts):
            assert f"row {place}: {each}" in verdict.why


def test_the_verdict_says_where_it_was_found():
    settings = {"exact": "in the paper's setting", "scaled": "at another size",
                "stand-in": "on a stand-in"}  # fmt: skip
    for setting, words in settings.items():
        assert verdict_of(rows_with("holds", setting=setting)).text == f"holds {words}"
    both = [*rows_with("holds"), *rows_with("holds", setting="stand-in")]
    assert verdict_of(both).text == "holds on a stand-in"
    assert verdict_of(rows_with("does not carry over")).text == "does not carry over"


def test_all_parts_are_needed_or_any():
    strong, weak, none = effect(0.3), effect(0.101), effect(0.0)
    assert verdict([strong, strong]).verdict == "holds"
    row = verdict([strong, weak])
    assert (row.verdict, row.value) == ("undecided", weak.value)
    row = verdict([strong, weak, none])
    assert (row.verdict, row.value) == ("fails", none.value)
    either = replace(CLAIM, parts="any")
    row = verdict([none, strong], either)
    assert (row.verdict, row.value) == ("holds", strong.value)
    assert verdict([none, none], either).verdict == "fails"
    assert verdict([none, weak], either).verdict == "undecided"


def test_parts_may_have_directions_of_their_own():
    up, down = effect(0.3, direction="above"), effect(0.3, direction="below")
    assert verdict([up, down]).verdict == "fails"
    assert verdict([up, effect(0.0, direction="below")]).verdict == "holds"


def test_a_part_that_was_not_tested_is_named_and_leaves_the_row_undecided():
    missing = effects.absent("the other half", "expected 2 networks, got 0.")
    for value in (0.9, -0.9):
        row = verdict([effect(value), missing])
        assert (row.verdict, row.value, row.n) == ("undecided", value, 100)
        assert "Not tested, so nothing is decided: the other half: expected 2" in row.note
    with pytest.raises(InputError, match="Nothing of the claim was tested"):
        verdict([missing])


# --- p-values and their correction --------------------------------------------------------------


def test_p_values_are_those_of_student():
    values = np.random.default_rng(0).normal(0.15, 0.2, 30)
    found = replace(c.replicates("it", values.tolist()), direction="above", margin=0.1)
    expected = stats.ttest_1samp(values, 0.1)
    assert c.p_values(found)[0] == pytest.approx(expected.pvalue)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval(0.95)))


@pytest.mark.parametrize("count", [0, 3, 10])
def test_a_share_has_the_exact_binomial_interval(count):
    found = effects.share("it", count, 10)
    expected = stats.binomtest(count, 10).proportion_ci(method="exact")
    assert found.interval() == pytest.approx((expected.low, expected.high))
    for margin in (0.1, 0.5, 0.9):
        agrees = replace(found, direction="above", margin=margin)
        one_sided = [stats.binomtest(count, 10, margin, alternative=a).pvalue
                     for a in ("greater", "less")]  # fmt: skip
        assert c.p_values(agrees) == pytest.approx([min(1, 2 * p) for p in one_sided])
        assert (c.p_values(agrees)[0] <= 0.05) == (expected.low > margin)
        assert (c.p_values(agrees)[1] <= 0.05) == (expected.high < margin)
    for margin, expected in ((-0.1, (0.0, 1.0)), (1.1, (1.0, 0.0))):
        assert found.tails(margin) == expected


@pytest.mark.parametrize(
    ("count", "n", "expected"),
    [(10, 10, "undecided"), (35, 35, "undecided"), (36, 36, "holds"), (0, 10, "fails"),
     (95, 100, "undecided"), (98, 100, "holds")],
)  # fmt: skip
def test_a_share_is_decided_by_the_exact_test(count, n, expected):
    """Ten of ten do not show that nine of ten would: the exact p-value is .35."""
    claim = replace(CLAIM, margin=0.9, n=n)
    row = verdict([effects.share("it", count, n)], claim)
    assert row.verdict == expected
    assert row.p_holds == pytest.approx(min(1, 2 * stats.binom.sf(count - 1, n, 0.9)))
    if expected == "undecided":
        needed = int(row.remedy.split("n = ")[1].split(" ")[0].replace(",", ""))
        assert needed > n


def test_a_correlation_has_fishers_interval():
    random = np.random.default_rng(0)
    x = random.standard_normal(8)
    y = x + 0.3 * random.standard_normal(8)
    found, expected = effects.correlation("it", x, y), stats.pearsonr(x, y)
    assert found.value == pytest.approx(expected.statistic)
    assert found.interval() == pytest.approx(tuple(expected.confidence_interval()))
    for low in (
        expected.confidence_interval().low - 1e-6,
        expected.confidence_interval().low + 1e-6,
    ):
        decided = c.p_values(replace(found, direction="above", margin=low))[0] <= 0.05
        assert decided == (low < expected.confidence_interval().low)


@pytest.mark.parametrize("values", [[0.99, 0.5, 0.98], [1.0, 1.0], [-0.9, -0.2], [0.1, -0.1, 0.0]])
def test_mean_correlations_stay_in_their_range(values):
    found = c.replicates("it", values, "correlation")
    low, high = found.interval()
    assert -1 <= low <= found.value <= high <= 1
    wide = c.replicates("it", [0.01, 0.02, 0.03])  # far from the ends both are the same
    near = replace(wide, scale="correlation")
    assert near.interval() == pytest.approx(wide.interval(), abs=1e-4)


def test_the_share_of_positive_contrasts():
    def positive(*ratios):
        return effects.PositiveShare("it", np.mean(np.array(ratios) > 0), 0, 11, ratios=ratios)

    assert positive(9, 9, 9, 9).interval() == (1, 1)
    assert positive(9, 9, 9, -9).interval() == (0.75, 0.75)
    assert positive(9, 9, 0.1, -0.1).interval() == (0.5, 1)
    assert positive(0.1, -0.1).interval() == (0, 1)
    # At least 1 of 2: the smaller p-value times 2 (and two-sided); at least 2 of 2: the larger one.
    one, both = (replace(positive(3, 2), direction="above", margin=m) for m in (0.4, 0.5))
    assert c.p_values(one)[0] == pytest.approx(2 * 2 * stats.t.sf(3, 10))
    assert c.p_values(both)[0] == pytest.approx(2 * max(2 * stats.t.sf(3, 10), stats.t.sf(2, 10)))
    assert c.p_values(replace(one, margin=1.0))[0] == 1  # a share cannot be above 1
    assert c.p_values(replace(positive(-9, -9), direction="above", margin=0.5))[1] < 0.001


def test_the_share_of_positive_contrasts_keeps_its_level():
    """Half of ten contrasts are clearly positive, the others zero: the share is not above .5."""
    random, wrong = np.random.default_rng(0), 0
    for _ in range(1000):
        means = np.array([3.0] * 5 + [0.0] * 5)
        data = random.standard_normal((8, 10)) + means
        ratios = tuple(data.mean(0) / (data.std(0, ddof=1) / np.sqrt(8)))
        found = effects.PositiveShare("it", 0.5, 0, 8, "above", 0.5, ratios=ratios)
        wrong += c.p_values(found)[0] <= 0.05
    assert wrong <= 0.05 / 2 * 1000 + 3 * np.sqrt(1000 * 0.025 * 0.975)


def test_two_groups_are_held_apart_as_by_welch():
    random = np.random.default_rng(3)
    these, those = random.normal(0.5, 0.1, 10), random.normal(0.2, 0.3, 14)
    found = c.apart("it", these.tolist(), those.tolist())
    expected = stats.ttest_ind(these, those, equal_var=False)
    assert found.value / found.error == pytest.approx(expected.statistic)
    assert found.n - 1 <= expected.df  # never surer than Welch
    assert c.p_values(found)[0] >= expected.pvalue


def test_the_bootstrap_finds_the_error_of_a_mean():
    values = np.random.default_rng(1).exponential(size=(400, 2))
    found = c.bootstrap(["a", "b"], lambda w: w @ values / w.sum(1, keepdims=True), 400)
    assert [e.value for e in found] == pytest.approx(values.mean(0))
    expected = values.std(0, ddof=1) / 20
    assert [e.error for e in found] == pytest.approx(expected, rel=0.06)


def test_holm_by_hand():
    assert c.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert c.holm([0.9, 0.8]) == [1, 1]
    assert c.holm([]) == []


def test_holm_keeps_the_level_of_all_tests_together():
    random = np.random.default_rng(2)
    wrong = np.mean([min(c.holm(random.random(12).tolist())) <= 0.05 for _ in range(2000)])
    assert wrong == pytest.approx(0.05, abs=0.015)


def test_a_paper_of_many_claims_asks_more_of_each():
    claims = [replace(CLAIM, id=f"soco.{i}") for i in range(1, 18)]
    weak = [c.make_row(claim, [effect(0.1 + 0.021)], "exact") for claim in claims]
    assert c.judge(weak[:1])[0].verdict == "holds"
    rows = c.judge(weak)
    assert {row.verdict for row in rows} == {"undecided"}
    assert all("Decided alone" in row.remedy for row in rows)
    mixed = [*weak[:1], *(c.open_row(claim) for claim in claims[1:])]
    assert c.judge(mixed)[0].verdict == "holds"  # what was not run is no test


# --- files and table ----------------------------------------------------------------------------


def test_results_are_kept_judged_together_and_sorted(tmp_path):
    claims = {claim.id: replace(claim, n=100) for claim in claims_of("soco")}
    late = c.make_row(claims["soco.12"], [effect(0.2)], "stand-in", "net")
    early = c.make_row(claims["soco.7"], [effect(0.2)], "exact")
    write("soco", [late], tmp_path, {})
    path = write("soco", [early], tmp_path, {"seed": 0})
    rows = parse(path.read_text(), path.name)
    assert [row.id for row in rows] == ["soco.7", "soco.12@net"]
    assert {row.verdict for row in rows} == {"holds"}
    again = c.make_row(claims["soco.12"], [effect(0.0)], "stand-in", "net")
    path = write("soco", [again], tmp_path, {})
    assert [row.verdict for row in parse(path.read_text(), "")] == ["holds", "does not carry over"]
    other = c.make_row(claims["soco.12"], [effect(0.2)], "stand-in", "deeper")
    path = write("soco", [other], tmp_path, {})
    kept = [row.id for row in parse(path.read_text(), "")]
    assert kept == ["soco.7", "soco.12@net", "soco.12@deeper"]
    assert len(complete(claims.values(), rows)) == 17
    path.write_text("{}")
    with pytest.raises(InputError, match="Expected the rows of claims"):
        write("soco", [late], tmp_path, {})


def test_every_claim_is_stated_in_full():
    for claim in claims_of("soco"):
        assert claim.statistic, claim.id
        assert claim.margin > 0, claim.id
        assert claim.unit, claim.id
    assert [claim.id for claim in claims_of("soco")] == [f"soco.{i}" for i in range(1, 18)]


ROOT = Path(__file__).parents[2]
INSIDE = ROOT / "src" / "assay" / "studies" / "published"
NO_IMAGES = {"soco.7", "soco.8"}  # vectors of numbers


@pytest.fixture(scope="module", params=PAPERS)
def stored(request):
    """The paper, its claims by id, and its stored rows."""
    paper = request.param
    path = INSIDE / f"{paper}.json"
    claims = {claim.id: claim for claim in claims_of(paper)}
    return paper, claims, parse(path.read_text(), path.name)


def test_what_is_published_is_in_the_repository_too(stored):
    paper, claims, rows = stored
    copy = ROOT / "results" / "claims" / f"{paper}.json"
    assert copy.read_bytes() == (INSIDE / f"{paper}.json").read_bytes()
    assert c.judge(rows, claims.values()) == rows
    known = {
        "holds", "fails", "undecided", "does not carry over", "not testable here", "not run yet",
        "mixed", "to be run again",
    }  # fmt: skip
    assert {verdict.verdict for verdict in verdicts_of(published(paper))} <= known
    assert all(row.note for row in published(paper))


def test_every_published_row_states_what_it_is_made_of(stored):
    _, claims, rows = stored
    for row in rows:
        if row.n is None:
            continue
        claim = claims[row.claim]
        assert row.unit, row.id
        assert row.stated_n == claim.n, row.id
        assert (row.size is None) == (row.stated_size is None) == (row.claim in NO_IMAGES), row.id
        program, options = row.command.split(" --run ")
        assert program == "assay claims", row.id
        assert options.split()[0] == row.claim, row.id
        assert not row.source or (ROOT / row.source).is_file(), row.id


def test_a_published_row_below_what_it_states_is_to_be_run_again(stored):
    _, claims, rows = stored
    for row in rows:
        if row.n is None:
            continue
        claim = claims[row.claim]
        short = (
            row.n < claim.n
            or row.unit not in (claim.unit, *claim.row_units)
            or row.size != row.stated_size
            or row.definition != claim.definition
            or row.left_out
            or (row.draws != DRAWS and not row.source)
        )
        assert (row.verdict == "to be run again") == bool(short) == bool(row.again), row.id


def test_a_command_gives_the_size_it_states(stored):
    _, _, rows = stored
    for row in rows:
        words = row.command.split()
        if "--size" in words:
            assert words[words.index("--size") + 1] == str(row.stated_size), row.id
        if row.n and not row.again and row.unit == "image":
            assert int(words[words.index("--n") + 1]) >= row.n, row.id


def test_nothing_of_soco_is_left_to_run():
    rows = {row.id: row for row in published("soco")}
    assert rows["soco.5"].verdict == "not testable here"
    assert not [row.id for row in rows.values() if row.verdict == "not run yet"]


# The fields that programs read, in the order they have always had.
FIRST = ["id", "paper", "statement", "setting", "value", "low", "high", "n", "verdict", "note"]


def test_the_command_prints_rows_for_programs(call):
    code, output, _ = call("claims", "--paper", "soco", "--json")
    rows = json.loads(output)
    assert code == 0
    assert list(rows[0])[: len(FIRST)] == FIRST
    assert {row["id"].partition("@")[0] for row in rows} == {f"soco.{i}" for i in range(1, 18)}
    fields = {"claim", "unit", "stated_n", "size", "command", "again", "claim_verdict",
              "claim_setting", "claim_text", "claim_why"}  # fmt: skip
    assert fields <= set(rows[0])
    of_one = {row["id"]: (row["verdict"], row["claim_verdict"]) for row in rows}
    assert of_one["soco.8@literal"] == ("does not carry over", "mixed")
    assert of_one["soco.8@clean"] == ("holds", "mixed")


@pytest.mark.parametrize("more", [(), ("--rows",)])
def test_the_command_prints_every_claim_once_within_80_columns(call, monkeypatch, more):
    monkeypatch.setattr("assay.commands.claims.console", Console(width=80))
    code, output, _ = call("claims", *more)
    assert code == 0
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80
    heads = [line.partition(": ")[0] for line in lines if not line.startswith(" ")]
    assert heads == [claim.id for paper in PAPERS for claim in claims_of(paper)]
    assert len(lines) <= 3.5 * len(heads) or more


def test_one_claim_is_printed_with_its_rows(call):
    code, output, _ = call("claims", "soco.8")
    assert code == 0
    text = " ".join(output.split())
    assert text.startswith("soco.8: mixed on a stand-in")
    assert "soco.8@literal: does not carry over (stand-in), -0.109 [-0.111, -0.108]" in text
    assert "n = 20 (stated 20), trial: data and changes drawn anew" in text
    assert "$ assay claims --run soco.8" in text
    assert "soco.8@" not in call("claims", "soco")[1]
    assert call("claims", "soco", "--rows")[1].count("$ assay claims --run") == 25


def test_the_rule_is_stated(call):
    _, output, _ = call("claims", "--help")
    page = (ROOT / "docs" / "claims.md").read_text()
    for text in (output.replace("│", " "), page):
        assert RULE in " ".join(text.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--paper", "soko"], "Did you mean `soco`"),
        (["--run", "soco.99"], "Unknown claim `soco.99`"),
        (["--run", "socco"], "Did you mean `soco`"),
        (["--run", "soco.5"], "It is about VGG-16"),
        (["--run", "soco.12"], "with `--data`"),
        (["--run", "soco.12", "--data", "nowhere"], "Expected a file `nowhere/cifar10"),
        (["--run", "soco.12", "--paper", "soco"], "Expected one of a name"),
        (["soco.12", "--paper", "soco"], "Expected one of a name"),
        (["soco.99"], "Unknown claim `soco.99`"),
        (["soko"], "Did you mean `soco`"),
    ],
)
def test_mistakes_are_said_in_one_line(call, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, output, errors = call("claims", *arguments)
    assert code == 2
    assert message in errors.replace("\n", " ")
    assert "Traceback" not in output + errors
    assert not list(tmp_path.iterdir())
