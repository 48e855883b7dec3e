"""The merged ranking of all tasks and the agreement of their settings, as published.

`python -m assay.studies.metarank.task_leaderboard --out OUT` reads the finished runs in `OUT/tasks`
and writes `OUT/leaderboard.json`: the mixed model, every voting rule, `assay.consistency`, and the
agreement of kinds of pairs of settings beside its noise ceiling.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from assay.aggregation.of_runs import consistency, rank
from assay.aggregation.rank_rules import RULES
from assay.errors import InputError, PrerequisiteError
from assay.studies.metarank.study import NAMED, PAIRS_OF_SETTINGS, falls
from assay.studies.metarank.task_agreement import (
    Agreement,
    TaskSetting,
    agreement,
    over_tasks,
    trajectories,
)
from assay.studies.metarank.task_scores import TaskScores, read_task_scores

NAME = "leaderboard.json"
LEFT_OUT = ("scores", "tau", "rho", "leaves", "ceiling", "ceiling_of", "settings")  # large


def write_leaderboard(out: Path) -> Path:
    """Rank the finished runs, measure their agreement, and store both."""
    rows = read_task_scores(out)
    sources = {row.task: row.source for row in rows}
    folders = sorted(path for path in (out / "tasks").iterdir() if path.is_dir())
    if not folders:
        raise PrerequisiteError(f"Expected finished runs in `{out}/tasks`, found none.")
    mixed = rank(folders, sources=sources)
    rules = {name: rank(folders, name, sources=sources, resamples=200) for name in RULES}
    measured = consistency(folders, sources=sources).as_dict()
    content = {
        "mixed": mixed.as_dict(),
        "rules": {name: ranking.ties for name, ranking in rules.items()},
        "consistency": {k: v for k, v in measured.items() if k not in LEFT_OUT},
        "agreement": _agreement_table(agreement(rows)),
        "checkpoints": {task: vars(one) for task, one in trajectories(rows).items()},
        "accuracy": _accuracies(rows),
        "falls": _falls(rows),
    }
    path = out / NAME
    text = json.dumps(_rounded(content), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def _agreement_table(found: Agreement) -> list[dict[str, object]]:
    """Tau and its ceiling for each kind of pairs of settings, for both fills."""
    table: list[dict[str, object]] = []
    for name, pairs in PAIRS_OF_SETTINGS.items():
        for fill in ("both", "constant", "imputed"):
            chosen = _with_fill(pairs, fill)
            tau = over_tasks(name, found.mean(found.tau, chosen), found.sources)
            if np.isnan(tau.value):
                continue
            ceiling = found.mean(found.ceiling, chosen)(list(found.sources))
            low, high = tau.interval()
            entry = {"tau": tau.value, "low": low, "high": high, "ceiling": ceiling}
            table.append({"pairs": name, "fill": fill, **entry})
    return table


def _with_fill(
    pairs: Callable[[TaskSetting, TaskSetting], bool], fill: str
) -> Callable[[TaskSetting, TaskSetting], bool]:
    return lambda a, b: pairs(a, b) and fill in ("both", a.fill) and fill in ("both", b.fill)


def _accuracies(rows: tuple[TaskScores, ...]) -> dict[str, dict[str, float]]:
    """The accuracy of each network, by family and task."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if row.part == "tasks" and not np.isnan(row.accuracy):
            found.setdefault(row.family, {})[row.task] = row.accuracy
    return found


def _falls(rows: tuple[TaskScores, ...]) -> list[dict[str, object]]:
    """How much faster LeRF falls than MoRF, for each method, axis and sign."""
    sources = {row.task: row.source for row in rows}
    table: list[dict[str, object]] = []
    for part, sign in (("tasks", "signed"), ("unsigned", "absolute")):
        for method in sorted({row.method for row in rows if row.part == part}):
            entry: dict[str, object] = {"method": method, "map": sign, "named": method in NAMED}
            for axis in ("removed", "kept"):
                of_tasks = falls(rows, part, axis, method)
                entry[axis] = float(np.mean(list(of_tasks.values())))
                entry[f"{axis}_by_source"] = {
                    source: float(np.mean([v for t, v in of_tasks.items() if sources[t] == source]))
                    for source in dict.fromkeys(sources.values())
                }
            table.append(entry)
    return table


def _rounded(value: object) -> object:
    """Numbers with four digits after the point; None where a number is not known."""
    if isinstance(value, Mapping):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float):
        return round(value, 4) if np.isfinite(value) else None
    return value


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Merge the rankings of the study's tasks.")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the jobs")
    options = parser.parse_args()
    try:
        print(write_leaderboard(options.out))
    except (InputError, PrerequisiteError) as error:
        parser.exit(2, f"assay: {error}\n")


if __name__ == "__main__":
    main()
