"""Maps against what is truly relevant: closed forms, hand-made cases, independent references."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import nn

import assay
from assay.conformance.worlds import linear_texts, padded
from assay.data.memory import as_dataset
from assay.errors import InputError, NotApplicable
from assay.protocols.agreement import average_precision, normalise, smoothed, soft_scores
from assay.types import Sample

SOFT = ("truth_precision", "truth_recall", "truth_f1")
LOCATED = ("attribution_percent", "pointing_game", "synscore")


def score(maps, true, protocol, **options):
    """Scores of maps of vectors or images under a network that nobody asks."""
    maps, true = torch.as_tensor(maps).float(), torch.as_tensor(true).float()
    x = torch.zeros(maps.shape if maps.ndim == 2 else (len(maps), 1, *maps.shape[1:]))
    net = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(maps.shape[1:]), 2))
    data = as_dataset((x, torch.zeros(len(maps), dtype=torch.long), true))
    return assay.score(net, data, None, maps, protocol, **options)


def some_truth(n=3, side=24, seed=0):
    """A positive and a negative square with every other pixel missing, `[n, side, side]`."""
    holes = torch.rand(n, side, side, generator=torch.Generator().manual_seed(seed)) < 0.5
    truth = torch.zeros(n, side, side)
    truth[:, 2:10, 3:11], truth[:, 14:22, 8:20] = 1.0, -1 / 3
    return truth * holes


class TestNormalise:
    def test_signs_are_scaled_each_by_itself(self):
        maps = torch.tensor([[2.0, 1.0, 0.0, -0.5, -0.25], [4.0, 0.0, 1.0, -8.0, -2.0]])
        expected = torch.tensor([[1, 0.5, 0, -1, -0.5], [1, 0, 0.25, -1, -0.25]])
        assert torch.equal(normalise(maps), expected.double())

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_side_without_values_stays_zero(self, sign):
        maps = sign * torch.tensor([[3.0, 0.0, 1.5]])
        assert torch.equal(normalise(maps), sign * torch.tensor([[1, 0, 0.5]]).double())

    def test_zeros_stay_zeros(self):
        assert torch.equal(normalise(torch.zeros(2, 3, 3)), torch.zeros(2, 3, 3).double())

    def test_rivals_of_many_classes_count_in_full(self):
        assert set(normalise(some_truth()).unique().tolist()) == {-1.0, 0.0, 1.0}


class TestSoftScores:
    said = torch.tensor([[1.0, 0.5, 0.0, -1.0, -0.25]])
    true = torch.tensor([[1.0, 0.0, 1.0, -1.0, -1.0]])

    @pytest.mark.parametrize(
        ("side", "precision", "recall"),
        [
            ("overall", 2.25 / 2.75, 2.25 / 4),
            ("positive", 1 / 1.5, 1 / 2),
            ("negative", 1.0, 1.25 / 2),
        ],
    )
    def test_by_hand(self, side, precision, recall):
        f1 = 2 * precision * recall / (precision + recall)
        found = [v.item() for v in soft_scores(self.said, self.true, side)]
        assert found == pytest.approx([precision, recall, f1])
        for name, expected in zip(SOFT, (precision, recall, f1), strict=True):
            assert score(self.said, self.true, name, truth=side).item() == pytest.approx(expected)

    @pytest.mark.parametrize("side", ["overall", "positive", "negative"])
    def test_the_truth_itself_is_best(self, side):
        for values in soft_scores(some_truth(), some_truth(), side):
            assert values.tolist() == [1.0] * 3

    def test_turned_signs_show_in_each_sign_only(self):
        truth = some_truth()
        for side, expected in (("overall", 1.0), ("positive", 0.0), ("negative", 0.0)):
            assert score(-truth, truth, "truth_f1", truth=side).tolist() == [expected] * 3

    @pytest.mark.parametrize("side", ["overall", "positive", "negative", "positive_smooth"])
    @pytest.mark.parametrize("name", SOFT)
    def test_a_map_of_zeros_scores_zero_and_counts(self, name, side):
        truth = some_truth()
        assert score(torch.zeros_like(truth), truth, name, truth=side).tolist() == [0.0] * 3

    def test_a_map_without_negative_values_has_no_negative_score(self):
        truth = some_truth()
        assert score(truth.abs(), truth, "truth_f1", truth="negative").tolist() == [0.0] * 3

    @pytest.mark.parametrize("side", ["overall", "positive"])
    def test_a_constant_map_has_the_prevalence_as_precision_and_all_recall(self, side):
        truth = some_truth()
        relevant = truth != 0 if side == "overall" else truth > 0
        precision, recall, _ = soft_scores(torch.full_like(truth, 0.2), truth, side)
        assert precision.tolist() == pytest.approx(relevant.double().mean((1, 2)).tolist())
        assert recall.tolist() == [1.0] * 3

    @pytest.mark.parametrize("side", ["overall", "positive"])
    def test_noise_has_the_prevalence_as_precision_and_half_the_recall(self, side):
        truth = some_truth(n=200)
        relevant = truth != 0 if side == "overall" else truth > 0
        noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(1))
        precision, recall, _ = soft_scores(noise, truth, side)
        prevalence = relevant.double().mean((1, 2))
        for found, expected in ((precision - prevalence, 0.0), (recall, 0.5)):
            error = found.std() / math.sqrt(len(found))
            # the largest of 576 uniform numbers is short of 1 by 1 in 577
            assert abs(found.mean() - expected) < 4 * error + 0.5 / 577

    @pytest.mark.parametrize("side", ["overall", "positive", "negative", "positive_smooth"])
    def test_either_sign_may_be_scaled(self, side):
        truth = some_truth()
        maps = torch.randn(truth.shape, generator=torch.Generator().manual_seed(2)).double()
        scaled = torch.where(maps > 0, maps * 1e-6, maps * 3e4)
        for first, second in zip(
            soft_scores(maps, truth, side), soft_scores(scaled, truth, side), strict=True
        ):
            assert first.tolist() == pytest.approx(second.tolist(), rel=1e-12)

    def test_one_side_of_a_map_does_not_change_the_other(self):
        truth, noise = some_truth(), torch.randn(3, 24, 24)
        mixed = torch.where(noise > 0, truth.clamp(min=0), noise)
        alone = soft_scores(mixed.clamp(min=0), truth, "positive")
        assert torch.equal(torch.stack(soft_scores(mixed, truth, "positive")), torch.stack(alone))

    @pytest.mark.parametrize("maps", [torch.ones(2, 24, 24), some_truth(2), torch.zeros(2, 24, 24)])
    def test_without_negative_truth_nothing_is_said_whatever_the_map(self, maps):
        truth = some_truth(2)
        truth[1] = truth[1].clamp(min=0)
        for name in SOFT:
            first, second = score(maps, truth, name, truth="negative").tolist()
            assert not math.isnan(first)
            assert math.isnan(second)

    def test_precision_and_recall_are_beside_f1_and_not_ranked(self):
        truth = some_truth(9)
        x, y = torch.zeros(9, 1, 24, 24), torch.zeros(9, dtype=torch.long)
        net = nn.Sequential(nn.Flatten(), nn.Linear(576, 2))
        net[1].load_state_dict({"weight": torch.zeros(2, 576), "bias": torch.tensor([1.0, 0.0])})
        protocols = ["truth_f1", {"truth_f1": {"truth": "positive"}}]
        results = assay.benchmark(
            net, (x, y, truth), ["oracle", "constant"], protocols, progress=False
        )
        told = results.manifest["protocols"]
        assert not told["truth_f1"]["sign_sensitive"]
        assert told["truth_f1[truth=positive]"]["sign_sensitive"]
        rows = results.query(
            "select metric, headline, avg(value) as mean from scores where method = 'constant' "
            "and protocol = 'truth_f1' group by all"
        ).to_pylist()
        found = {row["metric"]: (row["headline"], row["mean"]) for row in rows}
        prevalence = (truth != 0).double().mean((1, 2))
        assert found["precision"] == (False, pytest.approx(prevalence.mean().item()))
        assert found["recall"] == (False, 1.0)
        assert found["f1"] == (True, pytest.approx((2 * prevalence / (1 + prevalence)).mean()))


class TestSmoothTruth:
    @pytest.mark.parametrize(("side", "sigma"), [(224, 5.0), (112, 2.5)])
    def test_gaussian_is_a_blur_that_shrinks_with_the_side(self, side, sigma):
        mask = torch.zeros(2, side, side, dtype=torch.bool)
        mask[0, side // 4 : side // 2, side // 3 : side // 2] = True
        mask[1, : side // 5, 5:9] = True  # at the border
        for one, found in zip(mask, smoothed(mask, "gaussian"), strict=True):
            expected = ndimage.gaussian_filter(
                one.double().numpy(), sigma, mode="nearest", radius=math.ceil(3 * sigma)
            )
            assert found.numpy() == pytest.approx(expected / expected.max(), abs=1e-12)
            assert found.max() == 1

    @pytest.mark.parametrize(("side", "reach"), [(224, 2), (112, 1), (32, 1)])
    def test_filled_is_the_closing(self, side, reach):
        mask = torch.rand(3, side, side, generator=torch.Generator().manual_seed(0)) < 0.3
        mask[:, : 2 * reach], mask[:, -2 * reach :] = False, False
        mask[:, :, : 2 * reach], mask[:, :, -2 * reach :] = False, False
        square = np.ones((2 * reach + 1, 2 * reach + 1))
        for one, found in zip(mask, smoothed(mask, "filled"), strict=True):
            assert np.array_equal(found.numpy() > 0, ndimage.binary_closing(one.numpy(), square))

    def test_filled_closes_a_patch_of_which_half_is_missing_and_nothing_else(self):
        patch = torch.zeros(1, 224, 224, dtype=torch.bool)
        patch[:, 50:120, 60:150] = True
        holes = torch.rand(patch.shape, generator=torch.Generator().manual_seed(0)) < 0.5
        filled = smoothed(patch & holes, "filled") > 0
        assert not (filled & ~patch).any()
        assert filled[:, 54:116, 64:146].all()

    def test_a_filled_patch_is_right_and_was_half_wrong(self):
        truth = some_truth(4, seed=3)
        whole = smoothed(truth > 0, "filled")
        assert score(whole, truth, "truth_f1", truth="positive_smooth").tolist() == [1.0] * 4
        precision = (truth > 0).sum((1, 2)) / whole.sum((1, 2))
        found = score(whole, truth, "truth_precision", truth="positive")
        assert found.tolist() == pytest.approx(precision.tolist())

    def test_a_blurred_truth_is_uneven_so_that_it_does_not_reach_1(self):
        truth = some_truth(4, seed=3)
        blurred = smoothed(truth > 0, "gaussian").float()
        found = score(blurred, truth, "truth_f1", truth="positive_smooth", smooth="gaussian")
        expected = blurred.square().sum((1, 2)) / blurred.sum((1, 2))
        assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-6)
        assert (found < 1).all()

    def test_vectors_have_none(self):
        with pytest.raises(NotApplicable, match=r"maps of \[height, width\]; these are \(6,\)"):
            score(torch.rand(2, 6), torch.ones(2, 6), "truth_f1", truth="positive_smooth")


def by_thresholds(said, inside):
    """Average precision as it is defined: precision and recall at every distinct value."""
    total, before = 0.0, 0.0
    for level in sorted(set(said.tolist()), reverse=True):
        chosen = said >= level
        precision = (chosen & inside).sum() / chosen.sum()
        recall = (chosen & inside).sum() / inside.sum()
        total, before = total + (recall - before) * precision, recall
    return total


class TestAveragePrecision:
    @pytest.mark.parametrize("levels", [3, 10, 10**6])
    def test_is_what_the_definition_says_ties_included(self, levels):
        generator = np.random.default_rng(levels)
        said = generator.integers(0, levels, (20, 40)).astype(float)
        inside = generator.random((20, 40)) < generator.random((20, 1)) + 0.05
        found = score(said, inside, "synscore")
        expected = [by_thresholds(s, i) for s, i in zip(said, inside, strict=True)]
        assert found.tolist() == pytest.approx(expected, rel=1e-12)

    def test_of_the_usual_example(self):
        """Two negatives, two positives, one of these ranked third: (1 + 2 / 3) / 2."""
        said, inside = torch.tensor([[0.1, 0.4, 0.35, 0.8]]), torch.tensor([[0, 0, 1, 1]])
        assert score(said, inside, "synscore").item() == pytest.approx(5 / 6)

    def test_of_a_constant_map_is_the_prevalence(self):
        truth = some_truth()
        expected = (truth > 0).double().mean((1, 2)).tolist()
        assert score(torch.ones_like(truth), truth, "synscore").tolist() == pytest.approx(expected)

    def test_a_pixel_that_does_not_exist_is_not_ranked(self):
        said, inside = torch.tensor([[9.0, 3.0, 2.0]]), torch.tensor([[False, True, False]])
        there = torch.tensor([[False, True, True]])
        assert average_precision(said, inside, there).item() == 1.0
        assert average_precision(said, inside, there | True).item() == 0.5


class TestLocated:
    def test_attribution_percent_by_hand(self):
        said, true = [[3.0, 1.0, -4.0, 0.0]], [[1.0, 0.0, -1.0, 0.5]]
        assert score(said, true, "attribution_percent").item() == 3 / 4
        assert score(said, true, "attribution_percent", truth="overall").item() == 7 / 8

    @pytest.mark.parametrize("said", [[0.0] * 4, [-1.0, -2.0, 0.0, -3.0]])
    def test_attribution_percent_without_positive_values_is_the_area(self, said):
        assert score([said], [[1.0, 0.0, -1.0, 0.0]], "attribution_percent").item() == 0.25

    @pytest.mark.parametrize(
        ("said", "hits"),
        [([4, 1, 2, 3], 1.0), ([1, 4, 2, 3], 0.0), ([4, 4, 1, 4], 1 / 3), ([0, 0, 0, 0], 0.25)],
    )
    def test_the_pointing_game_shares_out_ties(self, said, hits):
        assert score([said], [[1, 0, -1, 0]], "pointing_game").item() == pytest.approx(hits)

    def test_overall_looks_at_sizes(self):
        said, true = [[1.0, 0.5, -4.0, 3.0]], [[1.0, 0.0, -1.0, 0.0]]
        assert score(said, true, "pointing_game").item() == 0.0
        assert score(said, true, "pointing_game", truth="overall").item() == 1.0
        assert score(said, true, "synscore", truth="overall").item() == (1 + 2 / 3) / 2

    @pytest.mark.parametrize("name", LOCATED)
    def test_the_truth_is_best_and_its_negative_is_not(self, name):
        truth = some_truth()
        assert score(truth, truth, name).tolist() == [1.0] * 3
        assert (score(-truth, truth, name) < 0.2).all()

    @pytest.mark.parametrize("name", LOCATED)
    def test_noise_scores_the_area(self, name):
        truth = some_truth(n=400)
        noise = torch.rand(truth.shape, generator=torch.Generator().manual_seed(1))
        above = score(noise, truth, name) - (truth > 0).double().mean((1, 2))
        error = above.std() / math.sqrt(len(above))
        # a random ranking of few relevant units is a little better than their share on average
        bias = 0.02 if name == "synscore" else 0.0
        assert -4 * error < above.mean() < 4 * error + bias

    @pytest.mark.parametrize("name", LOCATED)
    @pytest.mark.parametrize("maps", [torch.zeros(1, 6), torch.randn(1, 6), torch.ones(1, 6)])
    def test_without_positive_truth_nothing_is_said(self, name, maps):
        assert score(maps, [[0, 0, -1, 0, 0, 0]], name).isnan().all()


class TestTexts:
    """What stands at special tokens and padding is not judged."""

    @pytest.mark.parametrize("name", [*SOFT, *LOCATED])
    def test_padding_does_not_matter(self, name):
        exam = linear_texts()
        ids = padded(exam.net, exam.x)
        there = ~exam.net.tokens.special_at(ids)
        assert not there.all()
        truth = torch.where(there, exam.truth.sign(), 0)
        maps = exam.truth + torch.randn(truth.shape)
        data = as_dataset((ids, exam.y, truth), tokens=True)
        first = assay.score(exam.net, data, None, torch.where(there, maps, 0), name)
        second = assay.score(exam.net, data, None, torch.where(there, maps, 99.0), name)
        assert torch.equal(first, second)
        assert assay.score(exam.net, data, None, truth, name).tolist() == [1.0] * len(truth)


class TestMistakes:
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    x, y = torch.zeros(2, 1, 4, 4), torch.zeros(2, dtype=torch.long)

    def test_data_without_truth_are_said_to_lack_it(self):
        with pytest.raises(NotApplicable, match="needs truth"):
            assay.score(self.net, self.x, self.y, torch.rand(2, 4, 4), "truth_f1")

    def test_a_truth_of_another_shape_is_refused(self):
        data = as_dataset((self.x, self.y, torch.ones(2, 4, 4)))
        data = replace(data, fetch=lambda i: Sample(self.x[0], 0, torch.ones(2, 2)))
        with pytest.raises(InputError, match=r"shape of their maps, \(2, 4, 4\), got \(2, 2, 2\)"):
            assay.score(self.net, data, None, torch.rand(2, 4, 4), "truth_f1")

    def test_a_dataset_brings_its_own_labels(self):
        data = as_dataset((self.x, self.y, torch.ones(2, 4, 4)))
        with pytest.raises(InputError, match="y to be None"):
            assay.score(self.net, data, self.y, torch.rand(2, 4, 4), "truth_f1")
