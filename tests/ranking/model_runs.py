"""Runs of several models as `compare_runs` reads them, with made-up scores."""

from pathlib import Path

import numpy as np

from assay.plugins.properties import Properties
from assay.ranking.table_arrays import TableArrays
from assay.store import (
    CleanAccuracy,
    DatasetEntry,
    Manifest,
    MethodEntry,
    ModelEntry,
    ProtocolEntry,
)
from ranking.score_rows import arrow, rows

YES = Properties(True, True, True, True, "It may.").to_json()


class Run:
    """A run of some models, as `compare_runs` reads it; `scores[model][method]` are values."""

    def __init__(self, scores, *, folder="run", protocols=None, methods=None, extra=(), records=(),
                 **facts):  # fmt: skip
        """Make rows and a manifest."""
        self.folder, self.records = Path(folder), list(records)
        names = dict.fromkeys(m for by in scores.values() for m in by)
        self.entries = Manifest(
            models={m: ModelEntry(weights_hash=f"{folder}-{m}") for m in scores},
            datasets={"shapes": DatasetEntry(fingerprint="same")},
            methods={m: MethodEntry(name=m) for m in names} | (methods or {}),
            protocols=protocols or {"deletion": ProtocolEntry(name="d", properties=YES)},
            clean=[
                CleanAccuracy(dataset="shapes", model=m, n=50, accuracy=min(0.98, 0.5 + 0.04 * i))
                for i, m in enumerate(scores)
            ],
            **facts,
        )
        lines = [
            line
            for model, by in scores.items()
            for method, values in by.items()
            for line in rows(method, values, model=model)
        ]
        self.scores = arrow([*lines, *extra])

    @property
    def arrays(self):
        return TableArrays(self.scores)


def noise(n=40, mean=0.0, seed=0):
    return mean + 0.1 * np.random.default_rng(seed).normal(size=n)


def two_models(n=40, **facts):
    shared = noise(n, seed=9)
    return Run(
        {
            "good": {"a": shared + 0.5, "b": shared + noise(n, 0.1, 1)},
            "bad": {"a": shared + noise(n, 0.2, 2), "b": shared + noise(n, 0.1, 3)},
        },
        **facts,
    )
