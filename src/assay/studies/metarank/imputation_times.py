"""The stored seconds of ROAD's imputation, by solver, image and masked share. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from assay.errors import PrerequisiteError
from assay.ranking.resampling import Floats

NAME = "imputation_times.json"
SIDE = 224
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
DIRECT, MULTIGRID = "direct", "multigrid"


@dataclass(frozen=True)
class ImputationTime:
    """The seconds of one solver on one image, and how far it is from the direct solve."""

    image: int
    share: float
    solver: str
    seconds: float
    difference: float


def write_times(times: Sequence[ImputationTime], out: Path, machine: str) -> Path:
    """Store the times."""
    out.mkdir(parents=True, exist_ok=True)
    content = {"side": SIDE, "machine": machine, "times": [asdict(t) for t in times]}
    path = out / NAME
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def read_times(out: Path) -> list[ImputationTime]:
    """The stored times.

    Raises:
        PrerequisiteError: There are none.
    """
    path = out / NAME
    if not path.is_file():
        raise PrerequisiteError(
            f"Expected times at `{path}`, found none. Run "
            f"`python -m assay.studies.metarank.jobs --only timing --data DIR --out DIR` first."
        )
    return [ImputationTime(**one) for one in json.loads(path.read_text(encoding="utf-8"))["times"]]


def seconds_by_share(times: Sequence[ImputationTime], solver: str) -> dict[float, Floats]:
    """The seconds of a solver at every share, one for each image."""
    return {
        share: np.array([t.seconds for t in times if (t.solver, t.share) == (solver, share)])
        for share in SHARES
    }
