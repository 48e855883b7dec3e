"""What a formula promises of its maps: computed once a map, stored, shown, counted beforehand."""

import math

import pytest
import torch

import assay
from assay.errors import InputError
from assay.methods.attribution import raw_map
from assay.methods.promises import conservation, gap
from assay.models.prepare import LOOK, observe
from assay.report.promise_table import promise_lines
from assay.suite.spec import choose_one
from assay.types import Batch, Model
from small_worlds import LinearImages, make_images, make_net

IG = "integrated_gradients"
QUIET = {"progress": False, "micro_batch": 4}


def gaps(net, x, y, **options) -> torch.Tensor:
    """The completeness gaps of integrated gradients, and nothing of a run."""
    model = net if isinstance(net, Model) else assay.model(net)
    ids = tuple(f"{i:04d}" for i in range(len(x)))
    batch = Batch(ids, x, y, pixels=model.pixels)
    choice = choose_one("method", {IG: options})
    with model.evaluating(), torch.no_grad():
        model = observe(model, x)
        return choice.promise.function(model, batch, raw_map(model, batch, choice), choice.options)


def values(results, method) -> list[float]:
    return [row["value"] for row in results.checks.to_pylist() if row["method"] == method]


class TestTheGap:
    def test_by_hand(self):
        maps = torch.tensor([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [1.0, 0.0], [math.nan, 0.0]])
        found = gap(maps, torch.tensor([3.0, -2.0, 0.0, 0.0, 1.0]).double())
        assert found[:4].tolist() == [0.0, 2.5, 0.0, math.inf]
        assert found[4].isnan()

    @pytest.mark.parametrize("baseline", ["zero", "uniform", torch.full((3, 8, 8), 0.3)])
    def test_a_linear_network_has_none(self, baseline):
        x, y = make_images(4, size=8)
        net = LinearImages(dtype=torch.float64)
        found = gaps(net, x.double(), y % 3, steps=1, baseline=baseline)
        assert float(found.max()) < 1e-10

    def test_it_is_what_it_says(self):
        """Two forward passes by hand, and the sum of a map of three steps."""
        net, (x, y) = make_net(), make_images(3)
        maps = assay.explain(net, x, y, IG, steps=3)
        there = torch.arange(3)
        with torch.no_grad():
            promised = net(x)[there, y] - net(torch.zeros_like(x))[there, y]
        by_hand = (maps.sum((1, 2)) - promised).abs() / promised.abs()
        assert torch.allclose(gaps(net, x, y, steps=3), by_hand.double(), rtol=1e-3)
        assert float(by_hand.max()) > 0.01

    def test_conservation_adds_up_to_the_answer(self):
        net, (x, y) = LinearImages(), make_images(3, size=8)
        model, y = assay.model(net), y % 3
        batch = Batch(("a", "b", "c"), x, y)
        with torch.no_grad():
            found = conservation().function(model, batch, x * net.weight[y], {})
        assert float(found.max()) < 1e-4

    @pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
    def test_relevance_is_held_against_what_it_began_with(self, output):
        """Without biases, LRP-0 loses nothing, whatever it explains."""
        torch.manual_seed(0)
        dense = [torch.nn.Linear(*s, bias=False) for s in ((12, 8), (8, 4))]
        net = torch.nn.Sequential(torch.nn.Flatten(), dense[0], torch.nn.ReLU(), dense[1])
        model, y = assay.model(net.double()), torch.arange(3)
        batch = Batch(("a", "b", "c"), torch.randn(3, 3, 2, 2).double(), y)
        choice = choose_one("method", {"lrp": {"rule": "zero", "output": output}})
        with model.evaluating(), torch.no_grad():
            model = observe(model, batch.inputs)
            maps = raw_map(model, batch, choice)
            found = choice.promise.function(model, batch, maps, choice.options)
        assert maps.abs().max() > 0
        assert float(found.max()) < 1e-9


def steps_taken(net, x, y, tolerance: float) -> list[int]:
    """The fewest steps of each sample that are enough."""
    missed = {n: gaps(net, x, y, steps=n) for n in (8, 16, 32, 64, 128)}
    return [next(n for n, g in missed.items() if g[b] <= tolerance) for b in range(len(x))]


class TestAutomaticSteps:
    @pytest.mark.parametrize("output", ["logit", "probability", "log_odds"])
    def test_it_completes_where_fifty_steps_do_not(self, output):
        net, (x, y) = make_net(), make_images(6)
        few = gaps(net, x, y, steps=8, output=output)
        found = gaps(net, x, y, steps="auto", output=output)
        assert float(found.max()) <= 1e-3 < float(few.max())

    def test_a_looser_tolerance_is_a_subset_of_the_work(self):
        net, (x, y) = make_net(), make_images(6)
        loose = gaps(net, x, y, steps="auto", tolerance=0.05)
        assert 1e-3 < float(loose.max()) <= 0.05

    def test_the_maps_are_those_of_the_steps_it_took(self):
        net, (x, y) = make_net(), make_images(4)
        found = assay.explain(net, x, y, IG, steps="auto", tolerance=0.02)
        taken = steps_taken(net, x, y, 0.02)
        assert len(set(taken)) > 1
        for b, n in enumerate(taken):
            assert torch.equal(found[b], assay.explain(net, x, y, IG, steps=n)[b])

    def test_who_never_adds_up_is_shown(self):
        """A step: its gradient is zero almost everywhere, so the map is, whatever the steps."""

        class Step(torch.nn.Module):
            def forward(self, x):
                total = (x.flatten(1).sum(1) > 0).float() + 0 * x.flatten(1).sum(1)
                return torch.stack([total, -total], 1)

        x = torch.ones(2, 3, 4, 4)
        x[1] = -1
        found = gaps(Step(), x, torch.tensor([0, 0]), steps="auto")
        assert found.tolist() == [1.0, 0.0]

    @pytest.mark.parametrize(("samples", "tolerance"), [(3, 0.02), (1, 1e-3)])
    def test_on_a_trained_network(self, samples, tolerance):
        made = assay.environment("parts", samples=samples)
        batch = made.dataset.batch(made.dataset.ids)
        found = gaps(made.model, batch.inputs, batch.targets, steps="auto", tolerance=tolerance)
        assert float(found.max()) <= tolerance

    def test_the_cost_is_counted_as_it_comes(self):
        net, data = make_net(), make_images(4)
        methods, protocols = [{IG: {"steps": "auto", "tolerance": 0.02}}], ["single_deletion"]
        expected = assay.dry_run(net, data, methods, protocols, time_it=False)
        assert expected.unknown == [f"{IG}[steps=auto,tolerance=0.02]"]
        assert "will need" in str(expected)
        results = assay.benchmark(net, data, methods, protocols, progress=False)
        # Both ends of the way, and every number of steps up to the last.
        spent = sum(2 + 2 * n - 8 for n in steps_taken(net, *data, 0.02))
        assert results.manifest["forwards"] == expected.forwards - LOOK - expected.repeated + spent


class TestDraws:
    def test_the_mean_over_draws(self):
        """On f(x) = w x the map is w (x - b), so the mean map tells the mean baseline."""
        net, (x, y) = LinearImages(dtype=torch.float64), make_images(3, size=8)
        x, y = x.double(), y % 3
        maps = assay.explain(net, x, y, IG, steps=1, baseline="normal", draws=64)
        alone = assay.explain(net, x, y, IG, steps=1, baseline="normal")
        exact = (x * net.weight[y]).sum(1).detach()
        off = [float((m - exact).square().mean()) for m in (maps, alone)]
        assert off[0] == pytest.approx(off[1] / 64, rel=0.5)
        assert gaps(net, x, y, steps=1, baseline="normal", draws=5).max() < 1e-10

    def test_the_first_draw_is_the_fill(self):
        net, (x, y) = make_net(), make_images(3)
        one = assay.explain(net, x, y, IG, steps=2, baseline="uniform", draws=1)
        assert torch.equal(one, assay.explain(net, x, y, "integrated_gradients_uniform", steps=2))

    def test_what_is_not_random_is_refused(self):
        net, (x, y) = make_net(), make_images(3)
        with pytest.raises(InputError, match=r"random `baseline`.*`draws` is 3, got `zero`"):
            assay.explain(net, x, y, IG, steps=2, draws=3)


METHODS = [
    {IG: {"steps": 3}},
    {IG: {"steps": 3, "abs": True}},
    "saliency",
    {IG: {"steps": 3, "noise": {"samples": 2}}},
    {IG: {"steps": 2, "baseline": "normal", "draws": 2}},
]
PLAIN, ABSOLUTE = f"{IG}[steps=3]", f"{IG}[steps=3,abs=True]"


@pytest.fixture(scope="module")
def world():
    return make_net(), make_images(10)


@pytest.fixture(scope="module")
def results(world, tmp_path_factory):
    net, data = world
    out = tmp_path_factory.mktemp("checked")
    return assay.benchmark(net, data, METHODS, ["single_deletion"], out=out, **QUIET)


class TestARun:
    def test_it_keeps_the_gap_of_every_map(self, world, results):
        net, (x, y) = world
        expected = gaps(net, x, y, steps=3).tolist()
        assert values(results, PLAIN) == pytest.approx(expected, rel=1e-4)
        assert values(results, ABSOLUTE) == values(results, PLAIN)
        methods = {row["method"] for row in results.checks.to_pylist()}
        assert methods == {PLAIN, ABSOLUTE, f"{IG}[steps=2,baseline=normal,draws=2]"}

    def test_the_forecast_is_exact(self, world, results):
        net, data = world
        expected = assay.dry_run(net, data, METHODS, ["single_deletion"], micro_batch=4)
        assert results.manifest["forwards"] == expected.forwards - LOOK - expected.repeated
        # 3 steps and 2 passes of the check, once for both reductions.
        assert expected.method_rows[PLAIN] == 10 * (3 + 2)
        assert ABSOLUTE not in expected.method_rows

    def test_a_resumed_run_has_the_same(self, world, results, tmp_path):
        net, data = world
        for methods in (METHODS[:1], METHODS):
            grown = assay.benchmark(net, data, methods, ["single_deletion"], out=tmp_path, **QUIET)
        assert grown.checks.equals(results.checks)
        nothing = assay.dry_run(net, data, METHODS, ["single_deletion"], out=tmp_path)
        assert nothing.forwards == 0

    def test_a_new_protocol_checks_nothing_again(self, world, results):
        net, data = world
        both = ["single_deletion", {"deletion": {"steps": 3}}]
        expected = assay.dry_run(net, data, METHODS, both, out=results.folder)
        assert not any(expected.method_rows.values())
        grown = assay.benchmark(net, data, METHODS, both, out=results.folder, **QUIET)
        assert grown.checks.equals(results.checks)

    def test_the_page_shows_it(self, results):
        page = results.report().read_text()
        assert "<h3>What the methods promise about their maps</h3>" in page
        assert "completeness gap" in page

    def test_a_run_without_promises_is_silent(self, world, tmp_path):
        net, data = world
        found = assay.benchmark(net, data, ["saliency"], ["single_deletion"], **QUIET)
        assert found.checks.num_rows == 0
        assert "completeness" not in found.report(tmp_path / "page.html").read_text()

    def test_in_words(self, results):
        line = next(x for x in promise_lines(results.checks) if x.method == PLAIN)
        assert line.n == 10
        assert line.large == sum(v > 0.01 for v in values(results, PLAIN))
        assert line.sentence.startswith(f"{PLAIN}: completeness gap median ")

    def test_sql_reaches_it(self, results):
        sql = "select max(value) as worst from checks group by method order by worst"
        assert results.query(sql).num_rows == 3
