"""The scoring jobs of the study: which networks are scored by which methods and protocols.

A job is one suite on one trained network. `jobs` runs them; here they are only defined.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.plugins.option_types import Item
from assay.studies.idsds.paper_methods import (
    AGNOSTIC,
    ALL,
    ATTENTION,
    CELLS,
    CONVOLUTIONAL,
    FEW_MASKS,
    FEW_STEPS,
    INTRINSIC,
    NINE,
    OF_PROBABILITY,
    REFERENCES,
    SD,
    STEPS,
    TEMPERATURES,
    paper_methods,
)
from assay.training.zoo import GROUPS, ZOO, ZooNetwork
from assay.training.zoo_arms import Arm, parse_arm

CHEAP = tuple(label for label in AGNOSTIC if not label.startswith("RISE"))  # 17
REPEATED = ("IxG", "IxG abs", "IG", "IG abs", "IG-U", "IG-U abs", "Saliency", "Grad-CAM")
HEATED = ("IxG", "IxG abs", "IG", "Saliency", "Grad-CAM")
NOISED = ("IxG", "IxG-SG", "IG", "IG-SG", "Grad-CAM++", "SG-CAM++")
SETS = 16  # random sets of each size
PLACEBO = GROUPS["placebo"].networks

Protocols = Callable[[Arm], list[Item]]


@dataclass(frozen=True)
class StoredNetwork:
    """A trained network of the zoo: one pair of files.

    Attributes:
        name: Its name in the zoo.
        seed: The seed of its weights.
        arm: How it was trained: `base`, `tuned`, ...
        epoch: The epoch of a checkpoint; None at the end of training.
    """

    name: str
    seed: int
    arm: str
    epoch: int | None = None

    @property
    def stem(self) -> str:
        """The name of its files."""
        return (
            f"{self.name}-s{self.seed}-{self.arm}{'' if self.epoch is None else f'-e{self.epoch}'}"
        )

    @property
    def kind(self) -> Arm:
        """The arm in parts."""
        return parse_arm(self.arm)

    @property
    def design(self) -> ZooNetwork:
        """The network's entry in the zoo."""
        return ZOO[self.name]


@dataclass(frozen=True)
class ScoringSuite:
    """Methods and protocols for some of the networks.

    Attributes:
        name: Its name.
        methods: The methods, as a suite writes them.
        protocols: The protocols for a network of an arm.
        n: The number of images.
        wanted: Whether a network is scored.
        temperatures: The logits are divided by each of these.
        samples: Whether the scores of single images are stored too.
        cost: Forward passes per image, with a backward pass counted as two; for the order only.
    """

    name: str
    methods: tuple[Item, ...]
    protocols: Protocols
    n: int
    wanted: Callable[[StoredNetwork], bool]
    temperatures: tuple[float, ...] = (1.0,)
    samples: bool = False
    cost: int = 100


@dataclass(frozen=True)
class ScoringJob:
    """One suite on one network."""

    suite: str
    network: StoredNetwork

    @property
    def name(self) -> str:
        """The name of its record."""
        return f"{self.suite}-{self.network.stem}"


# --- protocols ------------------------------------------------------------------------------------


def single_deletion(arm: Arm, label: str = SD, **options: object) -> Item:
    """Single deletion at the grid and fill of an arm: IDSDS on a tuned network, else SDS.

    Both protocols compute the same number; here the arm says which one it is.
    """
    return {"single_deletion": {"grid": arm.grid, "fill": arm.fill, **options, "label": label}}


def _only_deletion(arm: Arm) -> list[Item]:
    return [single_deletion(arm)]


def _other_fills(arm: Arm) -> list[Item]:
    """The arm's own fill and its relatives: one field for all images, both forms of the blur."""
    others: Mapping[str, Mapping[str, Item]] = {
        "uniform": {"one field": "uniform_shared"},
        "blur": {"blur of IDSDS": "blur_idsds", "blur as run": {"blur_idsds": {"variant": "code"}}},
        "blur_idsds": {"blur as run": {"blur_idsds": {"variant": "code"}}},
    }
    more = others.get(arm.fill, {})
    return [
        single_deletion(arm),
        *(single_deletion(arm, f"{SD}, {k}", fill=f) for k, f in more.items()),
    ]


def _both_outputs(arm: Arm) -> list[Item]:
    after = single_deletion(arm, f"{SD}{OF_PROBABILITY}", output="probability")
    return [single_deletion(arm), after]


def _set_sizes(arm: Arm) -> list[Item]:
    shares = [k / CELLS for k in range(1, CELLS)]
    sets = {"grid": arm.grid, "fill": arm.fill, "shares": shares, "subsets": SETS, "label": "sets"}
    return [{"sensitivity_n": sets}]


def _incremental(attribution: str) -> Protocols:
    return lambda arm: [
        {
            "incremental_deletion": {
                "steps": "idsds", "attribution": attribution, "force": True,
                "units": "elements", "fill": "zero",
                "label": f"incremental deletion, {attribution}",
            }
        }
    ]  # fmt: skip


def _both_attributions(arm: Arm) -> list[Item]:
    return [*_incremental("fixed")(arm), *_incremental("updated")(arm)]


def _calibrated(arm: Arm) -> list[Item]:
    return (
        [*_only_deletion(arm), *_incremental("fixed")(arm)]
        if arm.kind == "base"
        else _only_deletion(arm)
    )


# --- which networks -------------------------------------------------------------------------------


def _usual(network: StoredNetwork) -> bool:
    """Scored with four by four cells and zeros, at the end of its training."""
    return network.epoch is None and (network.kind.grid, network.kind.fill) == (4, "zero")


def _reference(
    names: Sequence[str], *arms: str, seeds: int | None = None
) -> Callable[[StoredNetwork], bool]:
    def wanted(network: StoredNetwork) -> bool:
        few = seeds is None or network.seed < seeds
        return network.name in names and network.arm in arms and network.epoch is None and few

    return wanted


def _changed(*fields: str) -> Callable[[StoredNetwork], bool]:
    """Tuned at another grid or fill."""
    usual = {"grid": 4, "fill": "zero"}

    def wanted(network: StoredNetwork) -> bool:
        differs = {f for f, value in usual.items() if getattr(network.kind, f) != value}
        return network.kind.kind == "tuned" and bool(differs) and differs <= set(fields)

    return wanted


def scoring_suites(steps: int = FEW_STEPS) -> dict[str, ScoringSuite]:
    """All suites by name; `steps` is for integrated gradients on many networks."""
    own = (*ATTENTION, *INTRINSIC)  # not applicable to other networks, at no cost
    few = functools.partial(paper_methods, steps=steps, masks=FEW_MASKS)
    cheap = tuple(few(CHEAP))
    # Logit and probability of the same images, so that all readings of the softmax are paired.
    readings = (*cheap, *few(CHEAP, output="probability"))
    usual_noise = tuple(few(NOISED, usual_noise=True))
    repeated = tuple(few(REPEATED))
    per_step = 3 * steps
    tuned = _reference(CONVOLUTIONAL, "tuned", seeds=5)
    base = _reference(CONVOLUTIONAL, "base", seeds=5)
    suites = (
        ScoringSuite(
            "nine", tuple(few((*NINE, *own))), _only_deletion, 1000, _usual,
            cost=2 * per_step + 45,
        ),
        ScoringSuite(
            "seeds", tuple(few(AGNOSTIC)), _only_deletion, 500,
            _reference(CONVOLUTIONAL, "base", "tuned", "placebo", seeds=5),
            cost=6 * per_step + 2 * FEW_MASKS,
        ),
        ScoringSuite(
            "ids", tuple(few(AGNOSTIC)), _incremental("fixed"), 256, base,
            cost=6 * per_step + 2 * FEW_MASKS + 600,
        ),
        ScoringSuite("updated", repeated, _both_attributions, 64, base, cost=64 * per_step + 960),
        ScoringSuite("cells", cheap, _only_deletion, 500, _changed("grid"), cost=6 * per_step),
        ScoringSuite("fills", cheap, _other_fills, 500, _changed("fill"), cost=6 * per_step),
        ScoringSuite("readings", readings, _both_outputs, 500, tuned, cost=12 * per_step),
        ScoringSuite("smooth", usual_noise, _only_deletion, 250, tuned, cost=26 * per_step),
        ScoringSuite(
            "sizes", repeated, _set_sizes, 500,
            _reference(CONVOLUTIONAL, "base", "tuned", seeds=5), cost=2 * per_step + 250,
        ),
        ScoringSuite(
            "temperature", tuple(few(HEATED)), _calibrated, 250,
            _reference(CONVOLUTIONAL, "base", "tuned", seeds=5), temperatures=TEMPERATURES,
            cost=4 * (per_step + 180),
        ),
        ScoringSuite(
            "all", tuple(paper_methods(ALL, masks=FEW_MASKS)), _only_deletion, 2000,
            _reference((*REFERENCES, "bcos", "bagnet9"), "base", "tuned", seeds=1), samples=True,
            cost=18 * STEPS + 2 * FEW_MASKS + 90,
        ),
    )  # fmt: skip
    return {suite.name: suite for suite in suites}


STEM = re.compile(r"(?P<name>.+)-s(?P<seed>\d+)-(?P<arm>.+?)(?:-e(?P<epoch>\d+))?")


def stored_networks(folder: Path) -> list[StoredNetwork]:
    """The trained networks whose files are in a folder, by name, seed and arm."""
    networks = []
    for path in sorted(folder.glob("*.safetensors")):
        match = STEM.fullmatch(path.stem)
        if match is None or match["name"] not in ZOO or not path.with_suffix(".json").is_file():
            continue
        epoch = None if match["epoch"] is None else int(match["epoch"])
        networks.append(StoredNetwork(match["name"], int(match["seed"]), match["arm"], epoch))
    return networks


def scoring_jobs(
    networks: Iterable[StoredNetwork], suites: Mapping[str, ScoringSuite]
) -> list[ScoringJob]:
    """All jobs, those on tuned networks first, of these the longest."""
    jobs = [
        ScoringJob(suite.name, network)
        for network in networks
        for suite in suites.values()
        if suite.wanted(network)
    ]
    return sorted(
        jobs, key=lambda job: (job.network.kind.kind == "base", -passes(job, suites[job.suite]))
    )


def passes(job: ScoringJob, suite: ScoringSuite, limit: int | None = None) -> float:
    """Roughly how long a job takes, as forward passes of a ResNet-20."""
    design = job.network.design
    depth, width = float(design.depth or 20), float(design.width)
    plain = 1.0 if design.family == "residual" else 2.0
    n = suite.n if limit is None else min(suite.n, limit)
    return n * suite.cost * depth / 20 * math.sqrt(width**3) * plain
