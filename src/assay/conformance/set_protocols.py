"""The rules of a set protocol: each is a function of an exam and a protocol as a suite writes it.

A check returns if the rule holds, raises `Fault` if it is broken, and `NotApplicable` if the
protocol does not apply.
"""

import math
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from assay.api import benchmark
from assay.conformance.worlds import Fault
from assay.errors import NotApplicable, SharedNumbersWarning
from assay.plugins.option_types import Item
from assay.plugins.registry import Protocol
from assay.results import Results
from assay.suite.spec import choose_one
from assay.types import Batch, Model

Explain = Callable[[Model, Batch], Tensor]
Samples = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class SetExam:
    """A network, scored and training samples, and the exact maps of both."""

    net: nn.Module
    scored: Samples
    train: Samples
    exact: Explain


def planted_block() -> SetExam:
    """Noise images with a bright or dark block: its sign is the class, its place says nothing."""
    block = torch.zeros(8, 8)
    block[3:5, 3:5] = 1.0
    linear = nn.Linear(64, 2, bias=False)
    linear.load_state_dict({"weight": torch.stack([-block.flatten(), block.flatten()])})
    net = nn.Sequential(nn.Flatten(), linear)

    def exact(model: Model, batch: Batch) -> Tensor:
        """The block."""
        return block.expand(len(batch), -1, -1).to(batch.inputs)

    return SetExam(net, _images(40, 1), _images(160, 2), exact)


def _images(n: int, seed: int) -> Samples:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    images = 0.5 * torch.randn(n, 1, 8, 8, generator=generator)
    images[:, 0, 3:5, 3:5] += (2.0 * labels - 1)[:, None, None]
    return images, labels


def _noise(model: Model, batch: Batch) -> Tensor:
    """Random maps."""
    return batch.draw("noise maps", batch.map_shape)


def _flat(model: Model, batch: Batch) -> Tensor:
    """Constant maps."""
    return torch.ones(len(batch), *batch.map_shape)


def _run(
    exam: SetExam, item: Item, methods: dict[str, Explain], out: Path | None = None
) -> Results:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # failures are checked below
        warnings.simplefilter("error", SharedNumbersWarning)  # then the cell fails
        results = benchmark(
            exam.net,
            exam.scored,
            methods,
            [item],
            train=exam.train,
            out=out,
            progress=False,
            controls="off",
        )
    if results.failures:
        raise Fault(results.failures[0]["message"])
    if results.not_applicable:
        raise NotApplicable(results.not_applicable[0]["reason"])
    return results


def _values(results: Results, method: str) -> list[float]:
    """The scores of a method, in the order of the samples."""
    rows = results.query(
        f"select value from scores where headline and method = '{method}' order by sample"
    )
    values: list[float] = rows["value"].to_pylist()
    return values


def _plugin(item: Item) -> Protocol:
    plugin: Protocol = choose_one("protocol", item).plugin
    return plugin


JUDGE_NO_MAPS = ("mask_leakage",)  # it asks what a mask tells about the class


def the_oracle_beats_noise(exam: SetExam, item: Item) -> None:
    """The exact maps score better than noise, if the protocol judges maps."""
    plugin = _plugin(item)
    if plugin.name in JUDGE_NO_MAPS:
        raise NotApplicable("it does not judge maps")
    results = _run(exam, item, {"exact": exam.exact, "noise": _noise})
    exact, noise = (sum(_values(results, name)) for name in ("exact", "noise"))
    if not (exact > noise if plugin.higher_is_better else exact < noise):
        raise Fault(f"the exact maps score {exact / 40:.4g} on average, noise {noise / 40:.4g}")


def scores_are_finite_and_in_range(exam: SetExam, item: Item) -> None:
    """Every scored sample has a finite score in the declared `range`."""
    low, high = _plugin(item).range
    values = _values(_run(exam, item, {"noise": _noise}), "noise")
    if len(values) != len(exam.scored[0]) or not all(map(math.isfinite, values)):
        raise Fault(f"expected a finite score for each of {len(exam.scored[0])} samples")
    if _plugin(item).reduce == "mean" and not low <= min(values) <= max(values) <= high:
        raise Fault(f"declares the range {low:g} to {high:g}, gives {min(values)} to {max(values)}")


def the_same_twice(exam: SetExam, item: Item) -> None:
    """Two runs with one seed give the same scores."""
    first, second = (_values(_run(exam, item, {"noise": _noise}), "noise") for _ in range(2))
    if first != second:
        raise Fault("two equal runs gave different scores: draw with `batch.draw`, use `trial.fit`")


def a_finished_cell_is_not_computed_again(exam: SetExam, item: Item) -> None:
    """Run again, a run computes nothing; without its scores it trains nothing again."""
    with tempfile.TemporaryDirectory(prefix="assay-") as folder:
        out = Path(folder)
        before = _values(_run(exam, item, {"noise": _noise}, out), "noise")
        logs, trained = _content(out / "shards"), _content(out / "trained" / "set")
        if _values(_run(exam, item, {"noise": _noise}, out), "noise") != before:
            raise Fault("a resumed run gave different scores")
        if _content(out / "shards") != logs:
            raise Fault("a resumed run computed finished cells again")
        for path in (out / "shards").iterdir():
            path.unlink()
        if _values(_run(exam, item, {"noise": _noise}, out), "noise") != before:
            raise Fault("a resumed run gave different scores")
        if _content(out / "trained" / "set") != trained:
            raise Fault("a network was trained twice: train with `trial.fit`")


def _content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """When the files of a folder were written, and their bytes."""
    files = folder.iterdir() if folder.is_dir() else ()
    return {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def a_constant_map_is_scored(exam: SetExam, item: Item) -> None:
    """Constant maps get a score and are marked."""
    results = _run(exam, item, {"flat": _flat})
    statuses = set(results.query("select status from scores where headline")["status"].to_pylist())
    if statuses != {"degenerate"} or not all(map(math.isfinite, _values(results, "flat"))):
        raise Fault(f"expected constant maps to be scored and marked, got {', '.join(statuses)}")


RULES = (
    the_oracle_beats_noise,
    scores_are_finite_and_in_range,
    the_same_twice,
    a_finished_cell_is_not_computed_again,
    a_constant_map_is_scored,
)
WORLDS = (planted_block,)
