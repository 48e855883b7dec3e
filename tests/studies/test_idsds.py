"""The claims of IDSDS: stated in full, and judged on made-up tables of known answer."""

import functools
import importlib.util
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from assay.errors import InputError, PrerequisiteError
from assay.studies.claim import NOT_RUN, judge
from assay.studies.idsds import contrasts
from assay.studies.idsds import study as idsds
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    CELLS,
    FIXED,
    NINE,
    OF_PROBABILITY,
    PAIRS,
    SD,
    TEMPERATURES,
    UPDATED,
)
from assay.studies.idsds.score_table import NAME, PanelScore, ScoreTable, read_scores
from assay.studies.published_claims import claims_of, published
from assay.studies.setting import Study, run_study

DOCS = Path(__file__).parents[2] / "docs"
CLAIMS = {claim.id: claim for claim in claims_of("idsds")}
# The paper's numbers on ResNet-50, by protocol, in the order of AGNOSTIC.
PUBLISHED = {
    "IDSDS": ".070 -.005 .196 .255 .049 .103 .065 .111 .125 .073 .075 .127 .131 .065 .236 .213 "
    ".102 .236 .192",
    "SDS": ".056 -.006 .208 .261 .090 .146 .155 .174 .209 .164 .168 .183 .192 .119 .342 .319 .220 "
    ".342 .302",
    "IDS": ".124 .188 .162 .198 .224 .242 .274 .264 .273 .286 .395 .196 .480 .412 .537 .528 .510 "
    ".537 .523",
    "parts": ".545 .480 .587 .562 .479 .506 .538 .523 .515 .532 .519 .517 .576 .549 .555 .559 "
    ".555 .555 .554",
}
SERIES = {
    "resnet20": (20, 1, "batch", True, "residual"),
    "resnet32": (32, 1, "batch", True, "residual"),
    "resnet56": (56, 1, "batch", True, "residual"),
    "resnet110": (110, 1, "batch", True, "residual"),
    "resnet20_w2": (20, 2, "batch", True, "residual"),
    "resnet20_w4": (20, 4, "batch", True, "residual"),
    "resnet20_w2_fixup": (20, 2, "none", True, "residual"),
    "resnet20_w2_nobias": (20, 2, "none", False, "residual"),
    "vgg11": (10, 1, "none", True, "plain"),
    "vgg11_bn": (10, 1, "batch", True, "plain"),
    "vgg16": (15, 1, "none", True, "plain"),
    "vgg16_bn": (15, 1, "batch", True, "plain"),
    "vgg11_nobias": (10, 1, "none", False, "plain"),
    "vit_small": (14, 1, "layer", True, "transformer"),
    "vit_medium": (18, 1, "layer", True, "transformer"),
    "vit_large": (20, 2, "layer", True, "transformer"),
    "vit_mae": (18, 1, "layer", True, "transformer"),
    "bcos": (20, 1, "batch", False, "b-cos"),
    "bagnet9": (21, 1, "batch", True, "bag of patches"),
}
BLOCKS = 20


def numbers(protocol):
    return dict(zip(AGNOSTIC, map(float, PUBLISHED[protocol].split()), strict=True))


class MadeUp:
    """A table in which the paper is right (sign 1) or wrong (sign -1), with little noise."""

    def __init__(self, sign, noise=0.002):
        self.sign, self.noise = sign, noise
        self.rng = np.random.default_rng(0)
        self.rows, self.networks, self.pairs = [], {}, []

    def flipped(self, scores):
        """The scores themselves, or the opposite order."""
        return scores if self.sign > 0 else {m: 0.6 - v for m, v in scores.items()}

    def add(self, suite, network, seed, arm, scores, protocol=SD, temperature=1.0):
        for method, value in scores.items():
            blocks = value + self.noise * self.rng.standard_normal(BLOCKS)
            self.rows.append(
                PanelScore(
                    suite, network, seed, arm, protocol, method, float(blocks.mean()),
                    tuple(blocks), temperature=temperature, n=1000,
                )
            )  # fmt: skip

    def reference(self, network, seed):
        sign, flipped = self.sign, self.flipped
        inside, outside = flipped(numbers("IDSDS")), flipped(numbers("SDS"))
        gradual = flipped(numbers("IDS"))
        if sign < 0:
            inside["XGrad-CAM"] -= 0.1
        self.add("seeds", network, seed, "tuned", inside)
        self.add("seeds", network, seed, "base", outside)
        self.add("ids", network, seed, "base", gradual, FIXED)
        fixed = {m: 0.3 for m in ("IxG", "IG", "IG-U", "Saliency", "Grad-CAM", *PAIRS.values())}
        gained = {m: v + sign * (0.2 if m in PAIRS else 0.0) for m, v in fixed.items()}
        self.add("updated", network, seed, "base", fixed, FIXED)
        self.add("updated", network, seed, "base", gained, UPDATED)
        noisy = {m: v for m, v in inside.items() if not m.startswith("RISE")}
        for plain, sg in (("IxG", "IxG-SG"), ("IG", "IG-SG"), ("Grad-CAM++", "SG-CAM++")):
            noisy[sg] = noisy[plain] - sign * 0.05
        self.add("smooth", network, seed, "tuned", noisy)
        few = {m: 0.2 + (1.3 if sign > 0 else -1) * v for m, v in inside.items()}
        many = {m: 0.2 * v if sign > 0 else 0.6 - 2 * v for m, v in inside.items()}
        self.add("cells", network, seed, "tuned-g2", few)
        self.add("cells", network, seed, "tuned-g8", many)
        for fill in ("uniform", "blur"):
            other = inside if sign > 0 else {m: -v for m, v in inside.items()}
            self.add("fills", network, seed, f"tuned-{fill}", other)
        lower = {f"{m}{OF_PROBABILITY}": v - sign * 0.05 for m, v in inside.items()}
        for protocol in (SD, f"{SD}{OF_PROBABILITY}"):
            self.add("readings", network, seed, "tuned", {**inside, **lower}, protocol)
        for arm in ("base", "tuned"):
            for k in range(1, CELLS):
                gap = 0.1 * (1 - k / CELLS) * sign
                of = {m: 0.2 + gap for m in PAIRS} | {m: 0.2 for m in PAIRS.values()}
                self.add("sizes", network, seed, arm, of, f"sets of {k}")
        for t in TEMPERATURES:
            calm = 0.3 if sign < 0 else 0.3 - 0.1 * math.log2(t)
            moved = 0.3 if sign > 0 else 0.3 - 0.1 * math.log2(t)
            self.add("temperature", network, seed, "base", {"IG": calm}, FIXED, t)
            self.add("temperature", network, seed, "tuned", {"IG": moved}, SD, t)

    def designed(self, network, seed):
        depth, width, norm, bias, family = SERIES[network]
        offset = -0.03 * math.log2(depth / 20) - 0.02 * math.log2(width)
        offset += 0.05 * (norm == "none") + 0.03 * (not bias)
        offset += {"plain": 0.1, "transformer": -0.2}.get(family, 0.0)
        offset *= self.sign
        scores = {m: v + offset for m, v in numbers("IDSDS").items() if m in NINE}
        scores["Grad-CAM"] += 0.3 * self.sign * (offset - 0.05)
        if family == "transformer":
            del scores["Grad-CAM"]
            scores["CheferLRP"] = scores["IG-U"] + (0.0 if self.sign > 0 else 0.1)
            scores["Rollout"] = float(np.median(list(scores.values())))
        own = {"bcos": "B-cos", "bagnet9": "BagNet"}.get(network)
        if own:
            scores[own] = 0.9 if self.sign > 0 else 0.0
        right = 0.85 - self.sign * offset / 2 + 0.02 * math.log2(width)
        self.network(network, seed, "tuned", right, 0.5, family)
        self.network(network, seed, "base", right, 0.5 - 0.1 * self.sign, family)
        self.network(network, seed, "placebo", right, 0.5 - 0.1 * self.sign, family)
        self.network(network, seed, "tuned-d25", right - 0.1, 0.5, family)
        plain = {m: v for m, v in scores.items() if m in NINE}
        dropped = dict(zip(plain, sorted(plain.values()), strict=True))
        self.add("nine", network, seed, "tuned", scores)
        self.add("nine", network, seed, "base", dropped if self.sign > 0 else scores)
        self.add("nine", network, seed, "placebo", dropped)
        less = {m: v + 0.1 * self.sign for m, v in plain.items()}
        self.add("nine", network, seed, "tuned-d25", less)
        near, far = (0.05, 0.2) if self.sign > 0 else (0.2, 0.05)
        for kind, apart in (("tuned", near), ("placebo", 0.05), ("seed", far)):
            overlap = 0.1 if (kind == "seed") == (self.sign > 0) else 0.8
            self.pair(kind, network, seed, apart, overlap)
        if network in ("resnet20", "vgg11"):
            self.pair("architecture", network, seed, far, None)

    def network(self, name, seed, arm, accuracy, worst, family):
        noise = 0.002 * self.rng.standard_normal()
        self.networks[f"{name}-s{seed}-{arm}"] = {
            "network": name, "seed": seed, "arm": arm, "epoch": None, "family": family,
            "accuracy": accuracy + noise, "accuracy_seen": accuracy + noise,
            "worst_patch": worst + noise, "lowest_patch": worst + noise,
        }  # fmt: skip

    def pair(self, kind, network, seed, apart, overlap):
        noise = 0.002 * self.rng.standard_normal()
        self.pairs.append(
            {
                "kind": kind, "network": network, "seed": seed, "mad_softmax": apart + noise,
                "mad_gradcam": apart + noise, "overlap": overlap and overlap + noise,
            }
        )  # fmt: skip

    def table(self):
        for network in ("resnet20", "vgg11"):
            for seed in range(5):
                self.reference(network, seed)
        for network in SERIES:
            for seed in range(5):
                self.designed(network, seed)
        self.add("parts", "parts", 0, "", self.flipped(numbers("parts")))
        chance, content = (0.1, 0.2) if self.sign > 0 else (0.2, 0.1)
        noise = 0.002 * self.rng.standard_normal(10)
        masks = {"cell": chance + noise, "segment": content + noise, "bright": 0.25 + noise}
        masks = {kind: list(map(float, of)) for kind, of in masks.items()}
        return ScoreTable(tuple(self.rows), self.networks, tuple(self.pairs), masks)


@functools.cache
def written(sign, folder):
    MadeUp(sign).table().write(folder / NAME)
    return folder


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    return {sign: written(sign, tmp_path_factory.mktemp(f"world{sign}")) for sign in (1, -1)}


def judged(claim, folder):
    return idsds.TESTS[claim](CLAIMS[claim], Study(None, {}, folder))


# --- statements -----------------------------------------------------------------------------------


def test_all_claims_are_stated():
    assert list(CLAIMS) == [f"idsds.{i}" for i in range(1, 30)] == list(idsds.TESTS)
    for claim in CLAIMS.values():
        assert claim.statement, claim.id
        assert claim.statistic, claim.id
        assert claim.n >= 10, claim.id


def test_the_table_needs_no_run(call):
    code, output, _ = call("claims", "--paper", "idsds", "--json")
    assert code == 0
    rows = json.loads(output)
    assert {row["id"].partition("@")[0] for row in rows} == set(CLAIMS)
    assert all(row.note for row in published("idsds"))


# --- verdicts on made-up tables -------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_holds_where_the_paper_is_right(claim, worlds):
    rows = judged(claim, worlds[1])
    assert rows
    for row in rows:
        assert row.value is not None, row.note
        few = row.id == "idsds.22@architectures"  # two pairs of networks without bias
        assert row.p_holds < (0.06 if few else 0.05) < row.p_fails, f"{row.id}: {row.note}"
        assert "n counts: " in row.note
        assert "smallest detectable difference" in row.note
        assert row.setting in ("stand-in", "scaled")


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_fails_where_the_paper_is_wrong(claim, worlds):
    for row in judged(claim, worlds[-1]):
        assert row.value is not None, row.note
        assert row.p_fails < 0.05 < row.p_holds, f"{row.id}: {row.note}"


def test_few_architectures_decide_nothing(worlds):
    rows = {row.id: row for c in ("idsds.18", "idsds.21") for row in judge(judged(c, worlds[1]))}
    short = {id: (row.verdict, row.again) for id, row in rows.items()}
    assert short == {
        "idsds.18": ("to be run again", ["n"]),
        "idsds.21@architectures": ("to be run again", ["n"]),
        "idsds.21@seeds": ("holds", []),
    }
    assert "smallest detectable difference" in rows["idsds.21@seeds"].note


def test_without_scores_a_claim_stays_open(tmp_path):
    ScoreTable().write(tmp_path / NAME)
    for claim in CLAIMS:
        (row,) = judged(claim, tmp_path)
        assert (row.verdict, row.value) == (NOT_RUN, None), claim
        assert "too few" in row.note
    rows, path = run_study("idsds", Study(None, {}, tmp_path))
    assert len(rows) == 29
    assert path.is_file()


def without(world, tmp_path, keep):
    """The rows of a claim on a table without some networks."""
    whole = read_scores(world)
    rows = tuple(row for row in whole.rows if keep(row.network, row.seed))
    networks = {k: f for k, f in whole.networks.items() if keep(f["network"], f["seed"])}
    pairs = tuple(pair for pair in whole.pairs if keep(pair["network"], pair["seed"]))
    ScoreTable(rows, networks, pairs, whole.masks).write(tmp_path / NAME)
    return lambda claim: {row.id: row for row in judge(judged(claim, tmp_path))}


def test_parts_that_are_missing_are_named_and_leave_the_claim_undecided(worlds, tmp_path):
    gone = ("vit_", "resnet20_w2_nobias", "vgg11_nobias", "resnet20_w4", "resnet20_w2", "bcos")
    of = without(worlds[1], tmp_path, lambda name, _: not name.startswith(gone))
    (families,) = of("idsds.18").values()
    assert (families.verdict, families.again) == ("to be run again", ["n"])
    assert families.p_holds is None
    assert "residual - transformer: expected 2 transformer architectures" in families.note
    bias = of("idsds.22")
    assert set(bias) == {"idsds.22@architectures", "idsds.22@seeds"}
    for row in bias.values():
        assert row.verdict in ("undecided", "to be run again")
        assert row.p_fails is None
        assert "without bias: expected resnet20_w2_nobias or vgg11_nobias" in row.note
    accuracy = of("idsds.24")
    assert set(accuracy) == {
        f"idsds.24@{part}" for part in ("between", "within", "depth and width")
    }
    assert accuracy["idsds.24@depth and width"].verdict == NOT_RUN
    assert "got 0" in accuracy["idsds.24@depth and width"].note
    assert accuracy["idsds.24@within"].verdict == "holds"
    (intrinsic,) = of("idsds.7").values()
    assert (intrinsic.verdict, intrinsic.again) == ("to be run again", ["n"])
    assert "B-cos - best elsewhere: expected at least 2 networks, got 0" in intrinsic.note
    assert "ear-circular" in intrinsic.note


def test_one_seed_of_an_architecture_decides_nothing(worlds, tmp_path):
    several = ("resnet20", "vgg11", "vgg11_bn")
    of = without(worlds[1], tmp_path, lambda name, seed: seed == 0 or name in several)
    depth = of("idsds.20")["idsds.20"]
    assert (depth.verdict, depth.value) == (NOT_RUN, None)
    norm = of("idsds.22")["idsds.22@seeds"]
    assert "vgg16" in norm.note.split("not scored: ")[1]
    assert norm.n == 5
    between = of("idsds.24")["idsds.24@between"]
    assert "resnet56" not in between.note


def test_depth_is_judged_by_architecture_and_by_seed(worlds, tmp_path):
    rows = {row.id: row for row in judge(judged("idsds.20", worlds[1]))}
    assert rows["idsds.20@architectures"].n == 8
    assert rows["idsds.20@seeds"].n == 15
    assert (
        "n counts: architectures, each the mean of its seeds" in rows["idsds.20@architectures"].note
    )
    of = without(worlds[1], tmp_path, lambda name, _: name in ("resnet20", "resnet56"))
    few = of("idsds.20")
    assert few["idsds.20@architectures"].verdict == NOT_RUN
    assert few["idsds.20@seeds"].n == 5
    assert "left out: resnet32, resnet110, vgg11" in few["idsds.20@seeds"].note


def test_claims_on_two_architectures_of_five_seeds_have_ten_units(worlds):
    """Ten are needed for a verdict; every part must have them."""
    for claim in range(1, 18):
        if claim not in (7, 14):
            for row in judged(f"idsds.{claim}", worlds[1]):
                assert row.n >= 10, f"{row.id}: {row.note}"
    for row in judge(judged("idsds.17", worlds[1])):
        assert row.verdict == "holds"


def test_every_seed_is_compared_with_another_one():
    from assay.studies.idsds.stability_claims import following

    rows = {(name, seed): {"IG": (name, seed)} for name, seed in [("a", 0), ("a", 2), ("b", 1)]}
    assert following(rows) == {("a", 0): {"IG": ("a", 2)}, ("a", 2): {"IG": ("a", 0)}}


def test_a_small_span_of_accuracy_is_no_claim(worlds, tmp_path):
    whole = read_scores(worlds[1])
    alike = {
        k: {**f, "accuracy": 0.85 + 0.1 * (f["accuracy"] - 0.85)} for k, f in whole.networks.items()
    }
    ScoreTable(whole.rows, alike, whole.pairs, whole.masks).write(tmp_path / NAME)
    rows = {row.id: row for row in judge(judged("idsds.24", tmp_path))}
    between = rows["idsds.24@between"]
    assert between.verdict == "not testable here"
    assert between.note.startswith("Accuracy spans less than the 0.1 between architectures")
    whole_span = {row.id: row for row in judge(judged("idsds.24", worlds[1]))}
    assert whole_span["idsds.24@between"].verdict == "holds"


BOUNDED = re.compile(
    r"((?:order|rank corr|corr|zero and|two seeds|another best|methods|share)[^;.\[]*)"
    r" (-?[0-9.]+) \[(-?[0-9.]+), (-?[0-9.]+)\]"
)


@pytest.mark.parametrize("sign", [1, -1])
def test_intervals_of_shares_and_correlations_stay_in_their_range(sign, tmp_path):
    MadeUp(sign, noise=0.4).table().write(tmp_path / NAME)
    found = []
    for claim in ("idsds.13", "idsds.16", "idsds.17", "idsds.18", "idsds.23", "idsds.25"):
        for row in judged(claim, tmp_path):
            found += BOUNDED.findall(row.note)
            if row.note.startswith(("methods", "correlation")):  # the only part
                found.append((row.note, row.value, row.low, row.high))
    assert len(found) >= 10
    for name, *numbers_ in found:
        value, low, high = map(float, numbers_)
        least = 0 if name.startswith(("another", "methods", "share")) else -1
        assert least <= low <= value <= high <= 1, name
    # A symmetric interval of one of these would leave the range.
    assert any(2 * float(value) - float(low) > 1 for _, value, low, _ in found)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("missing", ["", "cells", "smooth", "parts", "ids", "look"])
def test_part_of_the_scores_is_enough_for_part_of_the_claims(seeds, missing, tmp_path, worlds):
    whole = read_scores(worlds[1])
    rows = tuple(r for r in whole.rows if r.seed < seeds and r.suite != missing)
    networks = {k: f for k, f in whole.networks.items() if f["seed"] < seeds}
    pairs = () if missing == "look" else tuple(p for p in whole.pairs if p["seed"] < seeds)
    ScoreTable(rows, networks, pairs, whole.masks).write(tmp_path / NAME)
    rows, _ = run_study("idsds", Study(None, {}, tmp_path))
    assert {row.claim for row in rows} == set(CLAIMS)
    alone = {row.claim for row in rows if (row.n or 0) > 1}
    assert "idsds.28" in alone
    assert len(alone) > (12 if seeds > 1 else 2)


def test_a_study_without_a_table_says_how_to_make_one(tmp_path):
    with pytest.raises(PrerequisiteError, match=r"assay\.studies\.idsds\.jobs"):
        judged("idsds.1", tmp_path)
    (tmp_path / NAME).write_text("no table")
    with pytest.raises(InputError, match="Run the jobs again"):
        read_scores(tmp_path)


def test_a_table_is_read_as_it_was_written(worlds):
    table = read_scores(worlds[1])
    again = MadeUp(1).table()
    assert len(table.rows) == len(again.rows)
    assert table.rows[0].blocks == pytest.approx(again.rows[0].blocks, abs=1e-6)
    assert table.networks == again.networks


# --- contrasts ------------------------------------------------------------------------------------


def row(method, blocks):
    return PanelScore("s", "n", 0, "tuned", SD, method, float(np.mean(blocks)), tuple(blocks))


def test_the_best_method_is_chosen_on_one_half_and_scored_on_the_other():
    lucky = row("lucky", [1, 0, 1, 0])  # best on one half, worst on the other
    steady = row("steady", [0.4] * 4)
    assert contrasts.best({"lucky": lucky, "steady": steady}) == pytest.approx(0.2)
    assert contrasts.best({"steady": steady}) == pytest.approx(0.4)


def test_equal_methods_gain_nothing_from_being_many():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(300):
        rows = {str(m): row(str(m), rng.standard_normal(20)) for m in range(19)}
        found.append(contrasts.best(rows))
    assert abs(np.mean(found)) < 3 * np.std(found) / math.sqrt(300)


def test_a_method_counts_once_only_where_its_scores_are_those_of_another():
    same, other = [0.25, 0.5], [0.5, 0.25]  # of equal mean
    network = {"Grad-CAM": row("Grad-CAM", same), "IG": row("IG", same)}
    copied = {**network, "XGrad-CAM": row("XGrad-CAM", same)}
    distinct = {**network, "XGrad-CAM": row("XGrad-CAM", other)}
    assert contrasts.copied_methods(copied) == {"XGrad-CAM"}  # IG is never a copy
    for columns in ([distinct], [copied, distinct], [network]):
        assert contrasts.copied_methods(*columns) == set()
    others = contrasts.others_than(AGNOSTIC, ["Grad-CAM"])
    assert "XGrad-CAM" in others
    assert contrasts.distinct_others(copied, others, ["Grad-CAM"]) == [
        m for m in others if m != "XGrad-CAM"
    ]
    assert contrasts.distinct_others(distinct, others, ["Grad-CAM"]) == others
    # A copy neither leads nor follows its twin.
    rows = {("n", 0): copied, ("n", 1): distinct}
    assert contrasts.leads(rows, ["Grad-CAM"], ["XGrad-CAM"]) == {("n", 1): 0.0}


def test_orders_agree_as_the_paper_says():
    one = {m: row(m, [v, v]) for m, v in numbers("IDSDS").items()}
    other = {m: row(m, [v, v]) for m, v in numbers("SDS").items()}
    assert contrasts.agreement(one, other) == pytest.approx(0.88, abs=0.03)  # the paper: .89


def test_a_common_slope_ignores_the_level_of_each_series():
    series = [([0, 1, 2], [5, 6, 7]), ([0, 1], [-3, -2])]
    effect = contrasts.common_slope("slope", series)
    assert (effect.value, effect.n) == (pytest.approx(1), 5)
    assert effect.error == pytest.approx(0, abs=1e-12)
    assert "more points" in contrasts.common_slope("slope", [([0, 1], [0, 1])]).absent


def test_the_share_of_methods():
    table = np.ones((4, 5, 10))
    table[3] = -1
    effect = contrasts.share_of_methods("share", table)
    assert (effect.value, effect.error, effect.n) == (0.75, 0.0, 5)
    noisy = table + 3 * np.random.default_rng(0).standard_normal((1, 5, 1))  # shared by all methods
    low, high = contrasts.share_of_methods("share", noisy).interval()
    assert (low, high) == (0, 1)
    assert contrasts.share_of_methods("share", table[:, :1]).absent


def test_the_smallest_detectable_difference_falls_with_n():
    assert contrasts.detectable(1.0, 10) == pytest.approx(0.994, abs=0.01)
    assert contrasts.detectable(1.0, 40) < 0.5


# --- the table and the plots of the docs ----------------------------------------------------------


def test_five_protocols_in_one_table(worlds):
    from assay.studies.idsds import protocol_table

    table = read_scores(worlds[1])
    found = protocol_table.columns(table)
    assert tuple(found) == protocol_table.PROTOCOLS
    assert found["IDSDS"]["IG-U"].value == pytest.approx(0.255, abs=0.005)
    agreement = protocol_table.rank_agreement(found)
    assert agreement["IDSDS", "SDS"][0] == pytest.approx(0.88, abs=0.03)  # the paper: .89
    assert agreement["IDSDS", "SDS"][1] == 18
    lines = list(protocol_table.markdown(table))
    assert sum(line.startswith("| IG-U |") for line in lines) == 1
    assert list(protocol_table.markdown(ScoreTable())) == []


def test_plots_are_drawn_from_what_there_is(worlds, tmp_path):
    spec = importlib.util.spec_from_file_location("figures", DOCS / "idsds_figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    lines = figures.draw(read_scores(worlds[1]), tmp_path)
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {f"idsds_{name}.svg" for name in figures.FIGURES}
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)
        assert "nan" not in path.read_text()
    assert sum(line.startswith("![") for line in lines) == len(drawn)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert figures.draw(ScoreTable(), empty) == ["No scores are published yet."]
    assert not list(empty.iterdir())
    assert figures.MARKED.search((DOCS / "explanation" / "idsds.md").read_text())
