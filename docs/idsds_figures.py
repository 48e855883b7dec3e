"""The plots and tables of `explanation/idsds.md` from the published scores.

    python docs/idsds_figures.py [FILE]

FILE is the table that `python -m assay.studies.idsds.jobs` writes; by default the published one. A
plot whose scores are missing is left out, and the page shows those that exist.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from assay.errors import InputError, PrerequisiteError
from assay.studies.effect import Effect, replicates
from assay.studies.idsds import (
    accuracy_claims,
    design_claims,
    mechanism_claims,
    protocol_table,
    stability_claims,
)
from assay.studies.idsds.contrasts import UnitScores, scores
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    ALL,
    ATTENTION,
    CONVOLUTIONAL,
    FEW_MASKS,
    INTRINSIC,
    NINE,
    OF_PROBABILITY,
    PARTS,
    RESNET,
    SD,
    STEPS,
    VGG,
    VIT,
)
from assay.studies.idsds.score_table import PanelScore, ScoreTable, read_scores
from assay.training.zoo import LEAST

ROOT = Path(__file__).parents[1]
SCORES = ROOT / "results" / "idsds" / "idsds_scores.parquet"
PAGE = ROOT / "docs" / "explanation" / "idsds.md"
IMAGES = ROOT / "docs" / "images"
MARKED = re.compile(r"(<!-- results -->\n).*?(<!-- /results -->)", flags=re.S)

COLOURS = ("#00796b", "#e65100", "#3949ab", "#c2185b", "#558b2f", "#6d4c41")
LEFT, WIDTH, STEP, TOP = 120, 480, 20, 60  # of a plot, in pixels
NORMAL = 1.96  # standard errors of a 95 % interval over many images
Named = Mapping[str, Effect]  # numbers by method or network


def text(x: float, y: float, words: str, anchor: str = "start", colour: str = "#222") -> str:
    """One line of text."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def framed(height: float, lines: Sequence[str]) -> str:
    """A plot with a white ground."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="100%" height="{height}" fill="white"/>',
            *lines,
            "</svg>",
            "",
        ]
    )


def scale(values: Sequence[float], low: float, length: float) -> Callable[[float], float]:
    """From numbers to pixels, with a little room on both sides."""
    least, most = min(values), max(values)
    room = 0.05 * (most - least) or 0.1
    return lambda v: low + length * (v - least + room) / (most - least + 2 * room)


def ticks(values: Sequence[float], count: int = 5) -> list[float]:
    """Round numbers in the range of the values."""
    least, most = min(values), max(values)
    raw = (most - least) / count or 0.1
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= raw)
    first = math.ceil(least / step - 1e-9)
    return [i * step for i in range(first, int(most / step + 1e-9) + 1)]


def dots(series: Mapping[str, Named], axis: str, labels: Sequence[str] = AGNOSTIC) -> str | None:
    """Several numbers with intervals for each label; None without two series to compare."""
    series = {name: of for name, of in series.items() if of}
    shown = [label for label in labels if any(label in of for of in series.values())]
    if not shown or len(series) < 2:
        return None
    ends = [end for of in series.values() for e in of.values() for end in e.interval()]
    place, bottom = scale(ends, LEFT, WIDTH), TOP + STEP * len(shown)
    lines = list(legend(series))
    for tick in ticks(ends):
        x, colour = place(tick), "#777" if abs(tick) < 1e-9 else "#ddd"
        lines.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
        )
        lines.append(text(x, bottom + 16, f"{tick:.3g}", "middle", "#444"))
    lines.append(text(LEFT + WIDTH / 2, bottom + 34, axis, "middle", "#444"))
    for row, label in enumerate(shown):
        y = TOP + STEP * (row + 0.5)
        lines.append(text(LEFT - 8, y + 4, label, "end"))
        for number, (colour, of) in enumerate(zip(COLOURS, series.values(), strict=False)):
            if label in of:
                lines += dot(of[label], place, y + 3 * (number - (len(series) - 1) / 2), colour)
    return framed(bottom + 42, lines)


def dot(effect: Effect, place: Callable[[float], float], y: float, colour: str) -> Iterator[str]:
    """A number with its interval."""
    low, high = map(place, effect.interval())
    yield (
        f'<line x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}" stroke="{colour}" '
        'stroke-width="2" stroke-opacity="0.4"/>'
    )
    yield f'<circle cx="{place(effect.value):.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'


def legend(series: Mapping[str, object]) -> Iterator[str]:
    """The name of each colour."""
    for number, (name, colour) in enumerate(zip(series, COLOURS, strict=False)):
        x, y = LEFT + 165 * (number % 3), 18 + 18 * (number // 3)
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
        yield text(x + 10, y + 4, name)


def scatter(points: Mapping[str, tuple[float, float]], x_axis: str, y_axis: str) -> str | None:
    """One labelled point for each network; None with fewer than two."""
    if len(points) < 2:
        return None
    xs, ys = ([p[i] for p in points.values()] for i in (0, 1))
    across, up, bottom = scale(xs, LEFT, WIDTH), scale(ys, 0, 320), 360
    lines = [f'<rect x="{LEFT}" y="40" width="{WIDTH}" height="320" fill="none" stroke="#ddd"/>']
    lines += [text(across(t), bottom + 16, f"{t:.3g}", "middle", "#444") for t in ticks(xs)]
    lines += [text(LEFT - 8, bottom - up(t) + 4, f"{t:.3g}", "end", "#444") for t in ticks(ys)]
    lines += [
        text(LEFT + WIDTH / 2, bottom + 34, x_axis, "middle", "#444"),
        text(LEFT, 28, y_axis, "start", "#444"),
    ]
    places = {name: (across(x), bottom - up(y)) for name, (x, y) in points.items()}
    lines += [
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[0]}"/>' for x, y in places.values()
    ]
    taken = [(x - 4, y, 8.0) for x, y in places.values()]
    for name, (x, y) in places.items():
        lines.append(free_label(name, x, y, taken))
    return framed(bottom + 42, lines)


def free_label(name: str, x: float, y: float, taken: list[tuple[float, float, float]]) -> str:
    """The name beside a point, where no earlier label or point is (left end, height, width)."""
    width = 6.4 * len(name)
    for down in (0, -11, 11, -22, 22, -33, 33):
        for left in (x + 7, x - 7 - width):
            inside = left > LEFT and left + width < LEFT + WIDTH
            clear = all(
                abs(y + down - height) > 10 or left > start + length or start > left + width
                for start, height, length in taken
            )
            if inside and clear:
                taken.append((left, y + down, width))
                return text(left, y + down + 4, name)
    return text(x + 7, y + 4, name)


# --- what each plot shows -------------------------------------------------------------------------


def of_networks(table: ScoreTable, suite: str, arm: str, network: str, protocol: str = SD) -> Named:
    """The mean of every method over the seeds of one network."""
    return protocol_table.over_networks(scores(table, suite, arm, protocol, networks=[network]))


def nine_of(table: ScoreTable, networks: Sequence[str]) -> dict[str, Named]:
    """IDSDS of the nine methods on some networks."""
    return {name: of_networks(table, "nine", "tuned", name) for name in networks}


def softmax(table: ScoreTable, network: str) -> str | None:
    """Attributions of the logit and of the probability."""
    of_logit, of_probability = design_claims.readings(table, SD)
    _, both = design_claims.readings(table, f"{SD}{OF_PROBABILITY}")
    series = {"logit": of_logit, "probability": of_probability, "probability, and drops": both}
    named = {
        name: protocol_table.over_networks(only(rows, network)) for name, rows in series.items()
    }
    return dots(named, "IDSDS")


def only(rows: UnitScores, network: str) -> UnitScores:
    """The rows of one network."""
    return {unit: of for unit, of in rows.items() if unit[0] == network}


def protocols(table: ScoreTable, network: str) -> str | None:
    """The rank of every method under five protocols on one network, first at the left."""
    found = protocol_table.columns(table, [network])
    ranks = {}
    for name, column in found.items():
        order = sorted(column, key=lambda m: -column[m].value)
        ranks[name] = {m: Effect(m, order.index(m) + 1.0, 0.0, 2) for m in order}
    return dots(ranks, "rank, 1 is the best")


def cells(table: ScoreTable) -> str | None:
    """Three numbers of cells, each with its own tuned networks."""
    arms = {"4 cells": "tuned-g2", "64 cells": "tuned-g8"}
    found = {name: of_networks(table, "cells", arm, RESNET) for name, arm in arms.items()}
    usual = of_networks(table, "seeds", "tuned", RESNET) if any(found.values()) else {}
    return dots(
        {"4 cells": found["4 cells"], "16 cells": usual, "64 cells": found["64 cells"]}, "IDSDS"
    )


def fills(table: ScoreTable) -> str | None:
    """Three fills, each with its own tuned networks."""
    found = {f: of_networks(table, "fills", f"tuned-{f}", RESNET) for f in ("uniform", "blur")}
    usual = of_networks(table, "seeds", "tuned", RESNET) if any(found.values()) else {}
    return dots({"zero": usual, **found}, "IDSDS")


def seeds(table: ScoreTable) -> str | None:
    """Each seed by itself, with intervals over images."""
    rows = scores(table, "seeds", "tuned", networks=[RESNET])
    series = {
        f"seed {seed}": {m: protocol_table.over_blocks(row) for m, row in of.items()}
        for (_, seed), of in rows.items()
    }
    return dots(series, "IDSDS")


def accuracy(table: ScoreTable) -> str | None:
    """The best IDSDS of each architecture over its accuracy."""
    reached = design_claims.architecture_means(design_claims.attainable(design_claims.nine(table)))
    right = design_claims.architecture_means(accuracy_claims.accuracy(table, "tuned"))
    points = {name: (right[name], reached[name]) for name in reached if name in right}
    return scatter(points, "accuracy", "IDSDS of the best of nine methods")


def channels(table: ScoreTable) -> str | None:
    """The overlap of the top images of a channel, by pair of networks."""
    kinds = {"tuned": "original, tuned", "placebo": "original, placebo", "seed": "two seeds"}
    series: dict[str, dict[str, Effect]] = {}
    for kind, name in kinds.items():
        by_network: dict[str, list[float]] = {}
        for (network, _), value in stability_claims.pairs(table, kind, "overlap").items():
            by_network.setdefault(network, []).append(value)
        series[name] = {n: mean_of(n, values) for n, values in by_network.items()}
    networks = list(dict.fromkeys(n for of in series.values() for n in of))
    return dots(series, "overlap of the ten top images", networks)


def mean_of(name: str, values: Sequence[float]) -> Effect:
    """The mean with its error; of one value, without."""
    if len(values) > 1:
        return replicates(name, values)
    return Effect(name, float(np.mean(values)), 0.0, 2)


def sizes(table: ScoreTable) -> str | None:
    """Raw minus absolute by the number of deleted cells."""
    series = {}
    for arm in ("tuned", "base"):
        gaps = mechanism_claims.gaps_by_size(table, arm)
        series[arm] = {str(k): mean_of(str(k), list(of.values())) for k, of in gaps.items() if of}
    labels = [str(k) for k in range(1, 16)]
    return dots(series, "raw minus absolute, by cells deleted", labels)


def architectures(table: ScoreTable) -> str | None:
    """A plain network, a residual one and a transformer, all methods that apply."""
    return dots(nine_of(table, (VGG, RESNET, VIT)), "IDSDS", (*NINE, *ATTENTION))


def intrinsic(table: ScoreTable) -> str | None:
    """Networks with maps of their own, and a reference without."""
    own = dict.fromkeys(row.network for row in table.select("nine") if row.method in INTRINSIC)
    return dots(nine_of(table, (RESNET, *own)) if own else {}, "IDSDS", (*NINE, *INTRINSIC))


FIGURES: Mapping[str, tuple[str, Callable[[ScoreTable], str | None]]] = {
    "protocols": (
        "The order of methods by protocol, residual (Figure 2c)",
        lambda t: protocols(t, RESNET),
    ),
    "protocols_vgg": (
        "The order of methods by protocol, plain (Figure 2c)",
        lambda t: protocols(t, VGG),
    ),
    "architectures": ("Three architectures (Figure 3a)", architectures),
    "depth": (
        "Depth of residual networks (Figure 3b)",
        lambda t: dots(nine_of(t, list(design_claims.DEPTHS[0].values())), "IDSDS", NINE),
    ),
    "width": (
        "Width (Figure 4a)",
        lambda t: dots(nine_of(t, list(design_claims.WIDTHS[0].values())), "IDSDS", NINE),
    ),
    "intrinsic": (
        "Networks with maps of their own; that of a BagNet is near-circular, a mean of local "
        "logits",
        intrinsic,
    ),
    "softmax": ("Logit or probability, residual (Figure 4b)", lambda t: softmax(t, RESNET)),
    "norm": (
        "Batch-norm and bias, residual (Figure 5a)",
        lambda t: dots(
            nine_of(t, ("resnet20_w2", "resnet20_w2_fixup", "resnet20_w2_nobias")), "IDSDS", NINE
        ),
    ),
    "accuracy": ("The best IDSDS and accuracy (Figure 5b)", accuracy),
    "cells": ("The number of cells (Figure 6a)", cells),
    "fills": ("The fill (Figure 6b)", fills),
    "seeds": ("Seeds (Figure 7)", seeds),
    "depth_vgg": (
        "Depth of plain networks (Figure 8a)",
        lambda t: dots(nine_of(t, ("vgg11", "vgg16", "vgg11_bn", "vgg16_bn")), "IDSDS", NINE),
    ),
    "norm_vgg": (
        "Batch-norm and bias, plain (Figure 8b)",
        lambda t: dots(nine_of(t, ("vgg11_bn", "vgg11", "vgg11_nobias")), "IDSDS", NINE),
    ),
    "softmax_vgg": ("Logit or probability, plain (Figure 9)", lambda t: softmax(t, VGG)),
    "channels": ("Top-activating images of channels (Figure 10)", channels),
    "sizes": ("The gap between raw and absolute values", sizes),
}


def scored_networks(table: ScoreTable) -> Iterator[str]:
    """The networks, their seeds and accuracies, and the arms that were scored, as Markdown."""
    yield "| network | seeds | accuracy, original | fine-tuned | arms with scores of nine methods |"
    yield "|---|---|---|---|---|"
    rows = table.select("nine")
    for name in dict.fromkeys(row.network for row in rows):
        arms = dict.fromkeys(row.arm for row in rows if row.network == name)
        seeds = {row.seed for row in rows if row.network == name}
        right = [mean_accuracy(table, name, arm, seeds) for arm in ("base", "tuned")]
        yield f"| `{name}` | {len(seeds)} | {' | '.join(right)} | {', '.join(arms)} |"


def mean_accuracy(table: ScoreTable, name: str, arm: str, seeds: set[int]) -> str:
    """The mean test accuracy of an arm over these seeds; below 80 % it is under-trained."""
    reached = accuracy_claims.accuracy(table, arm)
    values = [value for (n, seed), value in reached.items() if n == name and seed in seeds]
    if not values:
        return ""
    mean = float(np.mean(values))
    return f"{mean:.3f}" if mean >= LEAST else f"{mean:.3f}, under-trained"


def images_of(table: ScoreTable, network: str) -> str:
    """How many images each protocol of one network's table was scored on."""
    suites = {"IDSDS and SDS": "seeds", "IDS, fixed": "ids", "IDS, updated": "updated"}
    found = {k: table.select(suite, network=network) for k, suite in suites.items()}
    found["part deletion"] = table.select(PARTS)
    return "; ".join(f"{k} {max(row.n for row in rows)}" for k, rows in found.items() if rows)


def protocol_tables(table: ScoreTable) -> Iterator[str]:
    """All methods under all protocols, one table for each network that was scored with them."""
    scored = {row.network for row in table.select("seeds", arm="tuned")}
    for name in CONVOLUTIONAL:
        lines = list(protocol_table.markdown(table, [name])) if name in scored else []
        if lines:
            rows = table.select("seeds", arm="tuned", network=name)
            yield ""
            yield f"The next table is of `{name}`: mean and 95 % interval over"
            yield f"{len({row.seed for row in rows})} seeds, of part deletion over images of one"
            yield f"network for painted birds. Images: {images_of(table, name)}."
            yield ""
            yield from lines


def all_methods(table: ScoreTable) -> Iterator[str]:
    """All methods on one seed of some networks, with intervals over images, as Markdown."""
    rows = table.select("all", protocol=SD)
    if not rows:
        return
    images = max(row.n for row in rows)
    yield ""
    yield f"All {len(ALL)} methods on one seed of each network, {images} test images: mean and"
    yield "95 % interval over images. IDSDS is of the fine-tuned network, SDS of the original."
    yield f"Integrated gradients take {STEPS} steps, RISE {FEW_MASKS} masks. A cell is empty where"
    yield "the method does not apply or was not scored."
    for arm, name in (("tuned", "IDSDS"), ("base", "SDS")):
        networks = list(dict.fromkeys(row.network for row in rows if row.arm == arm))
        found = {(r.method, r.network): r for r in rows if r.arm == arm and r.status == "ok"}
        if not networks:
            continue
        yield ""
        yield f"| {name} | {' | '.join(f'`{n}`' for n in networks)} |"
        yield "|---|" + "---|" * len(networks)
        for method in ALL:
            cells = [over_images(found.get((method, network))) for network in networks]
            if any(cells):
                yield f"| {method} | {' | '.join(cells)} |"


def over_images(row: PanelScore | None) -> str:
    """A mean with its interval over images."""
    if row is None or row.sd is None:
        return ""
    arm = NORMAL * row.sd / math.sqrt(row.n)
    return f"{row.mean:.3f} [{row.mean - arm:.3f}, {row.mean + arm:.3f}]"


def draw(table: ScoreTable, images: Path = IMAGES) -> list[str]:
    """Write the plots and return the lines of the page."""
    lines = list(protocol_tables(table))
    if lines:
        lines = [*scored_networks(table), *lines, *all_methods(table)]
    for name, (title, plot) in FIGURES.items():
        svg = plot(table)
        path = images / f"idsds_{name}.svg"
        if svg is None:
            path.unlink(missing_ok=True)
            continue
        path.write_text(svg, encoding="utf-8")
        lines += ["", f"![{title}](../images/{path.name})", "", f"*{title}.*"]
    return lines or ["No scores are published yet."]


def main() -> None:
    """Draw all plots and write the results into the page."""
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else SCORES
    try:
        lines = draw(read_scores(source))
    except (InputError, PrerequisiteError) as error:
        sys.exit(f"assay: {error}")
    page = PAGE.read_text(encoding="utf-8")
    results = "\n".join(["", *lines, "", ""])
    PAGE.write_text(MARKED.sub(lambda m: m[1] + results + m[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
