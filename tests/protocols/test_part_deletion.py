"""Scores of parts: maps whose worth is known, and the same numbers by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import assay
from assay.protocols.painted_parts import THRESHOLDS, grown, importance, minimal_sets
from assay.ranking.arithmetic import spearman
from assay.ranking.reduce_part_checks import PART_CHECKS, PART_SCORES, part_checks, part_checks_each
from assay.studies import funnybirds

N = 16


@pytest.fixture(scope="module")
def made():
    return assay.environment("parts", samples=N)


@pytest.fixture(scope="module")
def batch(made):
    return made.dataset.batch(made.dataset.ids)


@pytest.fixture(scope="module")
def drops(made, batch):  # [N, 5]
    """What painting without each part costs, by plain calls of the network."""
    parts = batch.dataset.parts
    with torch.no_grad():
        clean = made.net(batch.inputs)
        lost = [
            clean - made.net(torch.stack([parts.without(i, frozenset({k})) for i in batch.ids]))
            for k in range(5)
        ]
    return torch.stack([x.gather(1, batch.targets[:, None])[:, 0] for x in lost], 1).double()


@pytest.fixture(scope="module")
def oracle(batch, drops):  # [N, H, W]
    """A map whose sums over the parts, margins and all, are exactly the drops."""
    index = torch.stack([batch.dataset.parts.places(i) for i in batch.ids])
    owners = torch.tensor([-1, *batch.dataset.parts.pieces])
    owner = torch.where(index < 8, owners[(index + 1).clamp(max=8)], -1)
    masks = [(owner == k).double() for k in range(5)]
    overlap = torch.stack([importance(batch, m) for m in masks], 2)  # [N, sums, masks]
    values = torch.linalg.solve(overlap, drops)
    return sum(values[:, k, None, None] * masks[k] for k in range(5))


def score(made, maps, protocol="part_deletion", **options):
    return assay.score(made.model, made.dataset, None, maps, protocol, **options)


def noise(seed):
    return torch.randn(N, 64, 64, generator=torch.Generator().manual_seed(seed)).double()


# --- part deletion --------------------------------------------------------------------------------


def test_maps_of_known_worth(made, oracle):
    assert score(made, oracle).tolist() == pytest.approx([1.0] * N)
    assert score(made, -oracle).tolist() == pytest.approx([0.0] * N)
    assert score(made, 7 * oracle).tolist() == pytest.approx([1.0] * N)
    assert score(made, torch.ones(N, 64, 64)).tolist() == [0.5] * N


def test_noise_scores_a_half(made):
    """Of zero mean: noise above zero grows with a part's area, and so does its score."""
    values = torch.stack([score(made, noise(seed)) for seed in range(8)])
    assert values.mean().item() == pytest.approx(0.5, abs=3 * 0.25 / (8 * N) ** 0.5)


def test_it_is_the_rank_correlation_of_scipy(made, batch, drops):
    maps = noise(0)
    said = importance(batch, maps)
    expected = [(1 + spearmanr(said[b], drops[b]).statistic) / 2 for b in range(N)]
    assert score(made, maps).tolist() == pytest.approx(expected)


def test_importance_grows_every_piece_on_its_own(batch):
    """By hand: pixels within one of a piece, those between two wings twice."""
    maps = noise(1)
    said = importance(batch, maps, things=True)
    for b in range(3):
        places = batch.dataset.parts.places(batch.ids[b]).numpy()
        things = range(5, 5 + batch.dataset.parts.things(batch.ids[b]))
        expected = np.zeros(said.shape[1])
        for piece, owner in enumerate([*batch.dataset.parts.pieces, *things]):
            rows, columns = np.nonzero(places == piece)
            near = {
                (r + dr, c + dc)
                for r, c in zip(rows, columns, strict=True)
                for dr in (-1, 0, 1)
                for dc in (-1, 0, 1)
                if 0 <= r + dr < 64 and 0 <= c + dc < 64
            }
            expected[owner] += sum(maps[b, r, c].item() for r, c in near)
        assert said[b].numpy() == pytest.approx(expected)


@pytest.mark.parametrize("margin", [1, 2, 3])
def test_masks_grow_by_a_margin(margin):
    mask = torch.rand(3, 12, 9, generator=torch.Generator().manual_seed(0)) < 0.03
    expected = torch.nn.functional.max_pool2d(mask.float(), 2 * margin + 1, 1, margin) > 0
    before = mask.clone()
    assert torch.equal(grown(mask, margin), expected)
    assert torch.equal(mask, before)


def test_area_is_told_beside_every_score(made, batch, drops):
    results = assay.benchmark(
        made.model, made.dataset, ["random"], ["part_deletion"], progress=False, controls="off"
    )
    found = {row["metric"]: [] for row in results.scores.to_pylist()}
    for row in results.scores.to_pylist():
        found[row["metric"]].append(row["value"])
    area = importance(batch, torch.ones(N, 64, 64))
    expected = (1 + spearman(area.numpy(), drops.numpy())) / 2
    assert found["area"] == pytest.approx(expected.tolist())
    assert found["parts_seen"] == [(area[b] > 0).sum().item() for b in range(N)]


def test_occlusion_of_the_parts_is_circular_and_the_ceiling(made):
    exact = {"occlusion": {"units": "parts", "fill": "rerender", "spread": "share"}}
    methods = [exact, "gradcam", "random"]
    results = assay.benchmark(
        made.model, made.dataset, methods, ["part_deletion"], progress=False, controls="off"
    )
    assert not results.failures
    rows = {row["method"].partition("[")[0]: row for row in results.leaderboard().rows}
    assert rows["occlusion"]["status"] == "circular"
    assert rows["occlusion"]["mean"] > 0.95
    assert rows["occlusion"]["mean"] > rows["gradcam"]["mean"]


def test_the_dry_run_counts_every_pass(made):
    what = (["edge", "random"], ["part_deletion", "part_completeness"])
    told = assay.dry_run(made.model, made.dataset, *what, time_it=False, controls="off")
    results = assay.benchmark(made.model, made.dataset, *what, progress=False, controls="off")
    things = [made.dataset.parts.things(i) for i in made.dataset.ids]
    # Clean, without anything, one part at a time, all sets (one of them the image itself), parts
    # and things.
    expected = N * (2 + 5 + 31) + sum(5 + n for n in things)
    assert results.manifest["forwards"] == expected
    assert told.forwards - told.looked == expected


def test_elsewhere_it_does_not_apply(net, images):
    x, y = images
    for name in ("part_deletion", "part_completeness"):
        with pytest.raises(assay.NotApplicable, match="painted of parts"):
            assay.score(net, x, y, torch.rand(6, 16, 16), name)


# --- completeness ---------------------------------------------------------------------------------


def checks_by_hand(made, batch, maps, tau):
    """The four checks of every image at one threshold, set by set."""
    parts, found = batch.dataset.parts, []
    said = importance(batch, maps, things=True)
    for b, name in enumerate(batch.ids):

        def logits(absent, name=name):
            with torch.no_grad():
                return made.net(parts.without(name, frozenset(absent))[None])[0]

        label, everything = int(batch.targets[b]), 5 + parts.things(name)
        mass = maps[b].clamp(min=0).sum().item()
        chosen = {k for k in range(everything) if said[b, k].item() > tau * mass}
        mine = {k for k in chosen if k < 5}
        clean = logits(())
        sets = minimal_sets(parts.classes, label)
        right = clean.argmax() == label
        check = max(len(s & mine) / len(s) for s in sets) if right else np.nan
        kept = float(logits(set(range(5)) - mine).argmax() == clean.argmax())
        lost = float(logits(mine).argmax() != clean.argmax())
        cost = [float(clean[label] - logits({k})[label]) for k in range(everything)]
        small = 0.05 * abs(float(clean[label]))
        idle = {k for k in range(everything) if cost[k] < 0 or abs(cost[k]) < small}
        distracted = 1 - len(chosen & idle) / len(idle) if idle else np.nan
        found.append((check, kept, lost, distracted))
    return np.array(found)


def test_the_checks_are_those_counted_by_hand(made, batch):
    maps = assay.explain(made.model, batch.inputs, batch.targets, "gradcam").double()
    results = assay.benchmark(
        made.model,
        made.dataset,
        [{"mine": maps}],
        ["part_completeness"],
        progress=False,
        controls="off",
    )
    curves = {}
    for row in results.curves.to_pylist():
        curves.setdefault((row["name"], row["step"]), []).append(row["value"])
    for step in (0, 20, 79):
        by_hand = checks_by_hand(made, batch, maps, THRESHOLDS[step])
        for k, name in enumerate(PART_CHECKS):
            assert curves[name, step] == pytest.approx(by_hand[:, k], nan_ok=True), (name, step)


@pytest.mark.parametrize("target", ["predicted", 3])
def test_right_is_what_the_label_says_whichever_class_is_explained(made, batch, target):
    mislabelled = set(batch.ids[::2])

    def fetch(name):
        sample = made.dataset.fetch(name)
        return replace(sample, label=(sample.label + (name in mislabelled)) % 50)

    with torch.no_grad():
        answers = made.net(batch.inputs).argmax(1)
    right = answers == torch.tensor([fetch(i).label for i in batch.ids])
    assert 0 < int(right.sum()) <= N // 2
    data = replace(made.dataset, fetch=fetch, labels={i: fetch(i).label for i in batch.ids})
    told = {}
    for explained in ("label", target):
        results = assay.benchmark(
            made.model, data, [{"mine": noise(1)}], ["part_completeness"], target=explained,
            progress=False, controls="off",
        )  # fmt: skip
        rows = results.curves.to_pylist()
        told[explained] = [row["value"] for row in rows if row["name"] == "data_check"]
    known = ~np.isnan(told[target]).reshape(N, -1)
    assert (known == right.numpy()[:, None]).all()
    assert told[target] == pytest.approx(told["label"], nan_ok=True)


def test_completeness_mixes_the_checks_at_its_best_threshold(made, oracle):
    values = {
        name: score(made, oracle, "part_completeness", score=name).mean().item()
        for name in PART_SCORES
    }
    checks = [values[name] for name in PART_CHECKS]
    assert values["completeness"] == pytest.approx((sum(checks[:3]) / 3 + checks[3]) / 2)
    assert values["completeness"] > 0.9
    blind = score(made, -oracle, "part_completeness").mean().item()
    assert blind == pytest.approx(0.5)  # it names nothing: never distracted, never right


def test_the_signed_sum_of_the_authors_code_calls_all_important(made, batch):
    """A map that speaks against the background alone says nothing of any part."""
    margin = torch.nn.functional.max_pool2d(batch.truth[:, None], 5, 1, 2)[:, 0]
    against = margin - 1  # 0 on parts and around, -1 elsewhere
    kept = {
        whole: score(made, against, "part_completeness", score="preservation", whole=whole).mean()
        for whole in ("positive", "signed")
    }
    assert kept["signed"] == 1  # all parts stay
    assert kept["positive"] < 0.5  # none does


def test_parts_of_a_number_have_it_as_their_mean():
    """Also where a check does not apply to all; and weights are repetitions."""
    generator = np.random.default_rng(0)
    curves = {name: generator.random((9, 6)) for name in PART_CHECKS}
    curves["data_check"][:4] = np.nan
    curves["distractibility"][5] = np.nan
    x, weights = np.arange(6.0), generator.integers(0, 3, (7, 9)).astype(float)
    weights[:, 8] += 1  # somebody is always right
    for name in PART_SCORES:
        whole = part_checks(curves, x, np.ones((1, 9)), score=name)[0]
        assert part_checks_each(curves, x, score=name).mean() == pytest.approx(whole)
        many = part_checks(curves, x, weights, score=name)
        for b, row in enumerate(weights.astype(int)):
            repeated = {n: np.repeat(c, row, 0) for n, c in curves.items()}
            alone = part_checks(repeated, x, np.ones((1, row.sum())), score=name)[0]
            assert many[b] == pytest.approx(alone)


# --- contrastivity, and all together --------------------------------------------------------------


def test_rivals_share_two_parts_each_and_the_network_agrees(made, batch):
    parts = batch.dataset.parts
    with torch.no_grad():
        rivals, shared, known = funnybirds._rivals(made.model, batch)
        assert known.sum() >= N // 2
        for b in known.nonzero().flatten().tolist():
            sets = [frozenset(row.nonzero().flatten().tolist()) for row in shared[b]]
            assert not sets[0] & sets[1]
            without = [made.net(parts.without(batch.ids[b], s)[None])[0] for s in sets]
            for k in range(2):
                same = parts.classes[rivals[b, k]] == parts.classes[batch.targets[b]]
                assert set(same.nonzero().flatten().tolist()) == sets[k]
                assert without[k][rivals[b, k]] < without[1 - k][rivals[b, k]]


def test_target_sensitivity(made):
    exact = {"occlusion": {"units": "parts", "fill": "rerender", "spread": "share"}}
    assert funnybirds.target_sensitivity(made, exact).nanmean() > 0.9
    blind = funnybirds.target_sensitivity(made, "centre")
    assert set(blind[~blind.isnan()].tolist()) == {0.0}


def test_the_page_shows_the_checks(made, tmp_path):
    """Also where a check does not apply to an image, so that its curve has gaps."""
    results = assay.benchmark(
        made.model,
        made.dataset,
        ["gradcam", "random"],
        ["part_completeness"],
        progress=False,
        controls="off",
    )
    text = results.report(tmp_path / "report.html").read_text()
    assert all(name in text for name in PART_SCORES)


def test_all_scores_of_a_method(made):
    found = funnybirds.funnybirds_scores(made, ["gradcam", "edge"])
    assert set(found) == {"gradcam", "edge"}
    told = found["gradcam"]
    three = [told[name] for name in ("completeness", "correctness", "contrastivity")]
    assert told["mean"] == pytest.approx(sum(three) / 3)
    assert told["mean"] > found["edge"]["mean"]
    assert all(0 <= value <= 1 for value in told.values())
