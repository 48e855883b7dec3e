"""Coverage of the mixed model's intervals, of P(best), and of the bootstrap over tasks.

Most rows draw crossed random effects in the layout of a study over tasks: three fixed sources, two
model families, three questions. The truth is each method's mean over these questions and families
for a new task on these sources. The last rows draw independent Plackett-Luce rankings; what is
covered there is the expected Borda share, which is known in closed form. Run it with
`python -m benchmarks.simulate_settings --runs 1000`.
"""

import argparse
import itertools
import time
from dataclasses import dataclass, field

import numpy as np
import scipy
from numpy.typing import NDArray

from assay.aggregation import pair_verdicts
from assay.aggregation.mixed_fit import MixedFit
from assay.aggregation.mixed_model import fit_mixed_model
from assay.aggregation.new_task import predict_new_task
from assay.aggregation.setting_bootstrap import bootstrap_tasks
from assay.aggregation.task_cells import TaskCells
from assay.ranking.resampling import Floats

BoolArray = NDArray[np.bool_]
QUESTIONS, FAMILIES = 3, 2
DRAWS, RESAMPLES = 2000, 400
BINS = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class SettingLayout:
    """How many methods, tasks and sources there are, and the standard deviation of each effect."""

    name: str
    methods: int
    tasks: tuple[int, ...]  # of each source
    method: float = 0.3
    source: float = 0.15
    question: float = 0.2
    family: float = 0.15
    task: float = 0.25
    network: float = 0.0  # method x task x family, which the model does not have
    residual: float = 0.2
    sampling: float = 0.1
    level: float = 0.4  # what all methods share, per task and per cell
    unequal: bool = False  # standard deviations between tasks from half to one and a half
    heavy: bool = False  # Student's distribution with 4 degrees of freedom between tasks
    missing: float = 0.0


LAYOUTS = (
    SettingLayout("10 tasks, 8 methods", 8, (4, 4, 2)),
    SettingLayout("12 tasks, 10 methods", 10, (5, 5, 2)),
    SettingLayout("14 tasks, 11 methods", 11, (5, 5, 4)),
    SettingLayout("12, no method x task", 10, (5, 5, 2), task=0.0),
    SettingLayout("12, a tenth missing", 10, (5, 5, 2), missing=0.1),
    SettingLayout("12, network effects", 10, (5, 5, 2), network=0.25),
    SettingLayout("12, heavy tails", 10, (5, 5, 2), heavy=True),
    SettingLayout("12, unequal variances", 10, (5, 5, 2), unequal=True),
)


@dataclass
class Coverage:
    """What is counted over the runs of one layout."""

    means: list[BoolArray] = field(default_factory=list)
    pairs: list[float] = field(default_factory=list)
    every_pair: list[bool] = field(default_factory=list)
    resolved: list[float] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    chances: list[Floats] = field(default_factory=list)
    hits: list[Floats] = field(default_factory=list)

    def row(self) -> str:
        """Give the cells of a Markdown row."""
        p, hit = np.stack(self.chances), np.stack(self.hits)
        brier = ((p - hit) ** 2).sum(axis=1).mean()
        chance = 1 - 1 / p.shape[1]
        first = hit[np.arange(len(p)), p.argmax(axis=1)].mean()
        means = np.mean(self.means, axis=0)
        cells = (
            f"{means.mean():.3f} ({means.min():.3f})",
            *(f"{np.mean(some):.3f}" for some in (self.pairs, self.every_pair)),
            f"{np.mean(self.resolved):.2f}", f"{np.mean(self.wrong):.3f}",
            f"{brier:.3f} ({chance:.3f})", f"{p.max(axis=1).mean():.3f} / {first:.3f}",
        )  # fmt: skip
        return " | ".join(cells)


def main() -> None:
    """Print a row per layout, then how often methods were best by their P(best)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="simulated studies of each row")
    chosen = parser.parse_args()
    print(f"{chosen.runs} runs a row, nominal 95 %. Shares of intervals that hold the truth.")
    print("Brier: of P(best) in one new task, in brackets that of equal chances.\n")
    print("| layout | means (lowest of a method) | pairs | all pairs at once | resolved |"
          " any false verdict | Brier | first: mean P(best) / was best | seconds |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    p, hit = [], []
    for layout in LAYOUTS:
        start = time.perf_counter()
        found = simulate(layout, chosen.runs, 0)
        print(f"| {layout.name} | {found.row()} | {time.perf_counter() - start:.0f} |", flush=True)
        if not (layout.unequal or layout.heavy):
            p.append(np.concatenate(found.chances))
            hit.append(np.concatenate(found.hits))
    print("\n| P(best), first six layouts | methods | mean P(best) | were best |")
    print("|---|---|---|---|")
    print(reliability(np.concatenate(p), np.concatenate(hit)))
    print("\n| independent Plackett-Luce | strengths | all ranks at once | seconds |")
    print("|---|---|---|---|")
    for settings in (12, 26):
        start = time.perf_counter()
        strengths, ranks = simulate_rankings(8, settings, chosen.runs, 0)
        print(f"| {settings} settings, 8 methods, Borda | {strengths:.3f} | {ranks:.3f} |"
              f" {time.perf_counter() - start:.0f} |", flush=True)  # fmt: skip


def simulate(layout: SettingLayout, runs: int, seed: int) -> Coverage:
    """Draw, fit and compare with the truth as many studies of a layout."""
    found = Coverage()
    generator = np.random.default_rng((seed, LAYOUTS.index(layout)))
    for run in range(runs):
        cells, truth, new = draw_study(layout, generator)
        fit = fit_mixed_model(cells)
        found.means.append((fit.low <= truth) & (truth <= fit.high))
        pairs = pair_verdicts.judge_pairs(fit)
        gaps = [truth[int(p.first)] - truth[int(p.second)] for p in pairs]
        holds = [pair.low <= gap <= pair.high for pair, gap in zip(pairs, gaps, strict=True)]
        found.every_pair.append(all(holds))
        found.pairs.append(single_coverage(fit, truth))
        found.resolved.append(float(np.mean([p.verdict != "unresolved" for p in pairs])))
        found.wrong.append(any(is_false(p, gap) for p, gap in zip(pairs, gaps, strict=True)))
        prediction = predict_new_task(fit, draws=DRAWS, seed=run)
        found.chances.append(np.array([prediction.p_best[m] for m in fit.methods]))
        found.hits.append((np.arange(len(new)) == new.argmax()).astype(np.float64))
    return found


def is_false(pair: pair_verdicts.PairVerdict, gap: float) -> bool:
    """Whether the verdict contradicts the true difference."""
    if pair.verdict == pair_verdicts.EQUIVALENT:
        return abs(gap) > pair_verdicts.MARGIN
    return pair.verdict == pair_verdicts.BETTER and gap <= 0


def single_coverage(fit: MixedFit, truth: Floats) -> float:
    """The share of pairs whose own 95 % interval holds the true difference."""
    first, second = np.triu_indices(len(truth), 1)
    own = np.diag(fit.errors)
    errors = np.sqrt(own[first] + own[second] - 2 * fit.errors[first, second])
    estimated, true = (some[first] - some[second] for some in (fit.estimate, truth))
    reach = scipy.stats.t.ppf((1 + fit.level) / 2, fit.freedom)
    return float((np.abs(estimated - true) <= reach * errors).mean())


def draw_study(
    layout: SettingLayout, generator: np.random.Generator
) -> tuple[TaskCells, Floats, Floats]:
    """The cells of one study, the true means [n], and those in one new task [n]."""
    n, tasks = layout.methods, sum(layout.tasks)
    home = np.repeat(np.arange(len(layout.tasks)), layout.tasks)
    grid = np.meshgrid(range(tasks), range(QUESTIONS), range(FAMILIES), indexing="ij")
    task, question, family = (axis.ravel() for axis in grid)
    normal = generator.standard_normal
    spread = np.linspace(0.5, 1.5, n)[:, None] if layout.unequal else np.ones((n, 1))
    # One more task: the new one.
    between = generator.standard_t(4, (n, tasks + 1)) / 2**0.5 if layout.heavy else None
    deviations = layout.task * spread * (normal((n, tasks + 1)) if between is None else between)
    network = layout.network * normal((n, tasks + 1, FAMILIES))
    residual = layout.residual * normal((n, len(task)))
    # Sources are fixed: the same in every run.
    by_source = layout.source * np.sin(np.outer(1 + np.arange(n), 2 + np.arange(len(layout.tasks))))
    by_question = layout.question * normal((n, QUESTIONS))
    by_family = layout.family * normal((n, FAMILIES))
    shares = np.array(layout.tasks) / tasks
    levels = layout.level * (normal(tasks)[task] + normal(len(task)))
    general = layout.method * normal(n)
    plain = general + by_question.mean(axis=1) + by_family.mean(axis=1)
    values = (
        general[:, None] + by_question[:, question] + by_family[:, family]
        + by_source[:, home[task]] + deviations[:, task] + network[:, task, family]
        + residual + levels + layout.sampling * normal((n, len(task)))
    )  # fmt: skip
    values[generator.random(values.shape) < layout.missing] = np.nan
    cells = TaskCells(
        tuple(f"{i:02}" for i in range(n)),
        tuple(f"t{i:02}" for i in task), tuple(f"q{i}" for i in question),
        tuple(f"f{i}" for i in family),
        {f"t{i:02}": f"s{home[i]}" for i in range(tasks)},
        values, layout.sampling**2 * np.eye(len(task)),
    )  # fmt: skip
    there = generator.choice(len(shares), p=shares)
    rest = layout.residual * normal((n, QUESTIONS * FAMILIES)).mean(axis=1)
    new = plain + by_source[:, there] + deviations[:, -1] + network[:, -1].mean(axis=1) + rest
    return cells, plain + by_source @ shares, new


def reliability(p: Floats, hit: Floats) -> str:
    """Rows of how often the methods of each bin of P(best) were best."""
    rows = []
    for low, high in itertools.pairwise(BINS):
        inside = (low <= p) & ((p < high) | (high == 1.0))
        if inside.any():
            rows.append(
                f"| {low:g} to {high:g} | {inside.sum()} | {p[inside].mean():.3f} |"
                f" {hit[inside].mean():.3f} |"
            )
    return "\n".join(rows)


def simulate_rankings(n: int, settings: int, runs: int, seed: int) -> tuple[float, float]:
    """Coverage of Borda shares, and of all ranks at once, over independent rankings."""
    generator = np.random.default_rng((seed, n, settings))
    worth = np.linspace(1.5, 0.0, n)
    chance = 1 / (1 + np.exp(worth[None] - worth[:, None]))  # [n, n], the row above the column
    truth = (chance.sum(axis=1) - 0.5) / (n - 1)
    names = [f"{i:03}" for i in range(settings)]
    covered, ranked = 0.0, 0
    for run in range(runs):
        scores = worth + generator.gumbel(size=(settings, n))
        drawn = bootstrap_tasks(
            shares_beaten(scores), np.ones(settings), mean_share, tasks=names,
            sources=["one"] * settings, resamples=RESAMPLES, seed=run,
        )  # fmt: skip
        low, high = drawn.interval(freedom=settings - 1)
        covered += float(((low <= truth) & (truth <= high)).mean())
        best, worst = drawn.rank_intervals(freedom=settings - 1)
        ranks = np.arange(1, n + 1)
        ranked += bool(((best <= ranks) & (ranks <= worst)).all())
    return covered / runs, ranked / runs


def shares_beaten(scores: Floats) -> Floats:  # [S, n] -> [S, n]
    """The share of the other methods that each method beats in each setting."""
    return np.asarray(scores.argsort(axis=1).argsort(axis=1) / (scores.shape[1] - 1), np.float64)


def mean_share(shares: Floats, weights: Floats) -> Floats:
    """Borda's rule on the shares of beaten methods."""
    return np.asarray(weights @ shares / weights.sum(), np.float64)


if __name__ == "__main__":
    main()
