"""AttributionLab's tables from our runs, next to the paper's numbers.

    python -m assay.studies.attributionlab.paper_tables DIR

DIR holds the runs made by `assay claims --run attributionlab --out DIR`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import scipy

from assay.plugins.option_types import Options
from assay.ranking.intervals import mean_interval
from assay.ranking.resampling import Floats
from assay.results import load
from assay.studies.attributionlab.runs import MODULO_TABLE, PAPERS_METRICS, SETTINGS
from assay.studies.reading import Reading

PrintedRanks = Mapping[str, tuple[int, ...]]
PaperTrustRow = Options  # a row of `Results.trust`, with its setting
MODULO_METRICS = ("modulo_insertion", "modulo_deletion", "modulo_sensitivity_n")
# The paper's numbers. Table 4: insertion and deletion.
TABLE_4 = {
    "gradcam": (0.8827, 0.1174), "guided_backprop": (0.9015, 0.0983), "lrp": (0.9754, 0.0246),
    "extremal_perturbation": (0.7845, 0.2157), "occlusion": (0.9151, 0.0849),
    "deepshap": (0.9754, 0.0246), "integrated_gradients": (0.9754, 0.0246),
    "integrated_gradients*": (0.9754, 0.0246), "iba": (0.6458, 0.3526),
    "random": (0.4996, 0.5009), "constant": (0.4447, 0.4439),
}  # fmt: skip
# Ranks by F1, insertion, deletion and Sensitivity-N; Table 3 counts from 0.
TABLE_3 = {
    "gradcam": (6, 6, 6, 6), "guided_backprop": (4, 5, 5, 4), "lrp": (0, 3, 0, 0),
    "extremal_perturbation": (7, 7, 7, 7), "occlusion": (5, 4, 4, 5), "deepshap": (1, 0, 1, 1),
    "integrated_gradients": (2, 1, 2, 2), "integrated_gradients*": (3, 2, 3, 3),
    "iba": (8, 8, 8, 8), "random": (10, 10, 9, 10), "constant": (9, 9, 10, 9),
}  # fmt: skip
TABLE_5 = {
    "gradcam": (8, 4, 6, 3), "guided_backprop": (3, 5, 4, 1), "lime": (1, 3, 3, 2),
    "extremal_perturbation": (4, 6, 7, 8), "occlusion": (6, 2, 5, 5), "deepshap": (5, 8, 2, 6),
    "integrated_gradients": (7, 1, 1, 4), "iba": (2, 7, 8, 7),
}  # fmt: skip
TABLE_6 = {
    "gradcam": (5, 5, 6, 6), "guided_backprop": (6, 6, 4, 1), "lime": (1, 4, 3, 4),
    "extremal_perturbation": (7, 8, 7, 8), "occlusion": (2, 3, 5, 5), "deepshap": (3, 1, 2, 2),
    "integrated_gradients": (4, 2, 1, 3), "iba": (8, 7, 8, 7),
}  # fmt: skip
TABLE_2 = {"unseen": (0.02, 0.47, 0.65), "seen": (0.42, 0.61, 0.81)}


def modulo_table(reading: Reading) -> Iterator[str]:
    """Tables 3 and 4: every number with its interval, the paper's in brackets."""
    yield "| method | F1 | precision | recall | insertion | deletion | sensitivity-n |"
    yield "|---|---|---|---|---|---|---|"
    for method in MODULO_TABLE:
        f1, precision, recall = (
            _with_interval(reading.values("truth_f1", method, metric))
            for metric in (None, "precision", "recall")
        )
        scores = [
            f"{_with_interval(reading.values(metric, method), 4)} ({printed:.4f})"
            for metric, printed in zip(MODULO_METRICS, TABLE_4[method], strict=False)
        ]
        third = _with_interval(reading.values(MODULO_METRICS[2], method))
        yield f"| {method} | {f1} | {precision} | {recall} | {' | '.join(scores)} | {third} |"


def color_table(reading: Reading, printed: PrintedRanks) -> Iterator[str]:
    """Tables 5 and 6: truth and metrics of the paper's methods, the paper's ranks in brackets."""
    columns = ("overall", "positive", "negative", "positive_smooth", *PAPERS_METRICS)
    yield f"| method | {' | '.join(c.replace('_', ' ') for c in columns)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for method in [m for m in reading.methods if m not in ("random", "constant")]:
        cells = [_with_interval(reading.values(column, method)) for column in columns]
        ranks = printed.get(method)
        if ranks:
            for place, rank in zip((1, 4, 5, 6), ranks, strict=True):
                cells[place] += f" ({rank})"
        yield f"| {method} | {' | '.join(cells)} |"


def printed_correlations(ranks: PrintedRanks) -> list[float]:
    """The rank correlations of the paper's printed ranks with their F1 column."""
    matrix = np.array(list(ranks.values()))
    return [float(scipy.stats.spearmanr(matrix[:, 0], matrix[:, i]).statistic) for i in (1, 2, 3)]


def trust_rows(folders: dict[str, Path], truth: str) -> list[PaperTrustRow]:
    """How well every protocol agrees with the truth, in each setting."""
    return [
        {**row, "setting": setting}
        for setting, folder in folders.items()
        for row in load(folder).trust(truth)
    ]


def trust_table(rows: Sequence[PaperTrustRow]) -> Iterator[str]:
    """Table 2 for every protocol, with and without the unseen effect and uniform weights."""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    yield f"| protocol | {' | '.join(settings)} |"
    yield "|---" * (len(settings) + 1) + "|"
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        mine = {row["setting"]: row for row in rows if row["protocol"] == protocol}
        cells = [_correlation(mine.get(setting)) for setting in settings]
        yield f"| {protocol} | {' | '.join(cells)} |"


def _correlation(row: PaperTrustRow | None) -> str:
    if row is None or row["correlation"] is None:
        return ""
    ends = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['correlation']:.2f}{ends}"


def _with_interval(values: Floats, digits: int = 2) -> str:
    whole = np.asarray(values)[~np.isnan(values)]
    if not len(whole):
        return ""
    ends = mean_interval(whole)
    if np.isnan(ends.low):  # scores that do not vary
        return f"{ends.mean:.{digits}f}"
    return f"{ends.mean:.{digits}f} ± {(ends.high - ends.low) / 2:.{digits}f}"


def metrics_folders(out: Path) -> dict[str, Path]:
    """The runs under every protocol, by setting."""
    folders = {name: out / f"metrics-softmax-{name}" for name in SETTINGS}
    return {name: folder for name, folder in folders.items() if folder.is_dir()}


def images(folder: Path) -> str:
    """The number and the size of a run's images, as a sentence."""
    results = load(folder)
    (written,) = results.spec.environments
    ((_, options),) = written.items()
    (data,) = results.manifest["datasets"].values()
    return f"On {data['n']} images of {options['size']} x {options['size']} pixels.\n"


def page(out: Path) -> Iterator[str]:
    """All tables in Markdown."""
    yield "## Tables 3 and 4: the modulo network, the paper's numbers in brackets\n"
    yield images(out / "modulo-modulo")
    yield from modulo_table(Reading(load(out / "modulo-modulo")))
    for number, effect, printed in ((5, "unseen", TABLE_5), (6, "seen", TABLE_6)):
        yield f"\n## Table {number}: the colour network, effect {effect}, the paper's ranks\n"
        folder = out / f"colors-softmax-{effect}-nonuniform"
        yield images(folder)
        yield from color_table(Reading(load(folder)), printed)
        ranks = ", ".join(f"{v:.2f}" for v in printed_correlations(printed))
        table = ", ".join(f"{v:.2f}" for v in TABLE_2[effect])
        yield (
            f"\nThe paper's printed ranks correlate with their F1 column by {ranks} (insertion, "
            f"deletion, Sensitivity-N); its Table 2 says {table}."
        )
    for truth in ("positive", "overall"):
        folders = metrics_folders(out)
        yield f"\n## Table 2 over every protocol: rank correlation with {truth} F1\n"
        yield from dict.fromkeys(map(images, folders.values()))
        yield from trust_table(trust_rows(folders, truth))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="AttributionLab's tables from our runs.")
    parser.add_argument("out", type=Path, help="the folder of the runs")
    print("\n".join(page(parser.parse_args().out)))
