"""Agreement along training, through real runs of networks whose order of methods is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import assay
from assay.aggregation.trajectories import CheckpointScores, trajectory_effect
from assay.conformance.worlds import make_images
from assay.types import Batch, Model

SEEDS, TIMES, METHODS, IMAGES = 3, (1, 2, 10), 6, 24
NETS = f"""
import torch
from torch import nn

class Tasteful(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(768, 4))
        self.register_buffer("taste", torch.zeros({METHODS}))

def build():
    return Tasteful()
"""


def method(number: int) -> object:
    """The true effects with as much noise as the network's buffer says: its order is known."""

    def explain(model: Model, batch: Batch) -> torch.Tensor:
        net = model.net
        logits = model(batch.inputs)
        true = (net[1].weight[logits.argmax(1)] * batch.inputs.flatten(1)).view(batch.inputs.shape)
        noise = batch.draw(f"taste {number}", batch.map_shape)
        return net.taste[number] * true.sum(1) / true.std() + noise

    explain.__name__ = f"method{number}"
    return explain


def runs(
    folder: Path,
    planted: bool,
    seeds: int = SEEDS,
    times: tuple[int, ...] = TIMES,
    scale: float = 0.12,
    common: bool = False,
) -> assay.Results:
    """Networks whose best methods belong to the run, to each checkpoint alone, or to all."""
    (folder / "nets.py").write_text(NETS)
    generator = torch.Generator().manual_seed(5)
    strengths = scale * torch.linspace(0, 1, METHODS)
    for seed in range(seeds):
        of_run = strengths[torch.randperm(METHODS, generator=generator)]
        for time in times:
            own = strengths[torch.randperm(METHODS, generator=generator)]
            own = strengths if common else own
            state = {
                "1.weight": torch.randn(4, 768, generator=generator) / 20,
                "1.bias": torch.zeros(4),
                "taste": of_run if planted else own,
            }
            torch.save(state, folder / f"s{seed}-e{time}.pt")
    items = [
        {
            f"{folder}/nets.py:build": {
                "weights": f"{folder}/s{seed}-e{{}}.pt",
                "checkpoints": list(times),
                "as": f"net-s{seed}",
            }
        }
        for seed in range(seeds)
    ]
    methods = [method(number) for number in range(METHODS)]
    data = (make_images(IMAGES)[0], None)
    return assay.benchmark(
        items, data, methods, ["single_deletion"], progress=False, out=folder / "out"
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> assay.Results:
    return runs(tmp_path_factory.mktemp("planted"), planted=True)


def test_a_planted_effect_is_found_and_has_the_numbers_of_the_test_itself(
    planted: assay.Results,
) -> None:
    found = assay.consistency(planted, splits=5)
    (one,) = found.trajectories
    assert (one.family, one.protocol) == ("net", "single_deletion")
    assert one.effect is not None
    assert one.effect.verdict == "trajectory effect"
    assert one.effect.overall.p == pytest.approx(1 / 36)
    assert "3 training runs, 3 times, 6 methods" in one.sentence
    assert "p 0.028 over all 36 permutations" in one.sentence
    assert one.sentence.endswith("trajectory effect.")
    assert one.sentence in found.sentences
    assert json.loads(json.dumps(found.as_dict()))["trajectories"][0]["family"] == "net"
    direct = trajectory_effect([*_checkpoints(planted)], _groups(planted))
    assert direct == one.effect


def _checkpoints(results: assay.Results) -> list[CheckpointScores]:
    """The scores straight from the table."""
    made = []
    for seed in range(SEEDS):
        for time in TIMES:
            rows = results.query(
                f"select value from scores where model = 'net-s{seed}' and checkpoint = '{time}' "
                f"and headline and method != 'random' order by method, sample"
            )
            values = np.array(rows["value"].to_pylist()).reshape(METHODS, IMAGES)
            made.append(CheckpointScores(f"net-s{seed}", float(time), values))
    return made


def _groups(results: assay.Results) -> list[str]:
    rows = results.query('select distinct sample, "group" from scores order by sample')
    return rows["group"].to_pylist()


def test_exchangeable_checkpoints_show_no_effect(tmp_path: Path) -> None:
    found = assay.consistency(runs(tmp_path, planted=False), splits=5)
    (one,) = found.trajectories
    assert one.effect is not None
    assert one.effect.overall.p > 0.05
    assert one.effect.verdict == "no trajectory effect shown"


def test_a_clear_order_is_trivially_consistent(tmp_path: Path) -> None:
    found = assay.consistency(runs(tmp_path, False, scale=0.5, common=True), splits=5)
    (one,) = found.trajectories
    assert one.effect is not None
    assert one.effect.overall.ceiling > 0.95
    assert one.effect.verdict == "trivially consistent"
    assert one.sentence.endswith("trivially consistent, as ceiling and agreement exceed 0.95.")


@pytest.mark.parametrize(
    ("seeds", "times", "message"),
    [(1, (1, 2), "it needs two training runs, got only net-s0"), (2, (1,), "")],
)
def test_what_is_missing_is_said(
    tmp_path: Path, seeds: int, times: tuple[int, ...], message: str
) -> None:
    found = assay.consistency(runs(tmp_path, True, seeds, times), splits=5)
    assert [one.effect for one in found.trajectories] == [None] * bool(message)
    assert all(message in one.sentence for one in found.trajectories)


def test_training_runs_of_several_folders(planted: assay.Results, tmp_path: Path) -> None:
    """A run of other times of the same networks adds checkpoints to the same training runs."""
    other = runs(tmp_path, planted=True, times=(30,))
    (one,) = assay.consistency([planted, other], splits=5).trajectories
    assert one.effect is not None
    assert "3 training runs, 4 times" in one.sentence
    assert one.effect.permutations == 6**3
