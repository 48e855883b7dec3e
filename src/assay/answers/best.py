"""One picture explained with the method that a run placed first, and how far to trust that."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from assay.answers.picture import Picture, read_picture, refuse_maps
from assay.api import explain, score
from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.plugins import registry
from assay.ranking.leaderboard import Leaderboard
from assay.report.words import Words
from assay.results import Results
from assay.run.manifest import hardly_above_chance
from assay.store import SHOWN_ONLY
from assay.suite.spec import choose_one
from assay.types import Model
from assay.types.hashing import own_classes

Row = Mapping[str, Any]


def explain_best(
    path: str | Path, model_item: Any, folder: Path, target: int | None
) -> tuple[list[str], Image.Image | Words]:
    """What a run's first method says of an image file or text: sentences, and the map over it.

    Raises:
        InputError: The run has another model, or placed no method.
        PrerequisiteError: The first method cannot be built again.
    """
    results = Results(folder)
    picture = read_picture(path, model_item, target)
    place = _first(results, _same_model(results, picture.model))
    item = _item(results, "method", place.method)
    refuse_maps(item)
    maps = explain(picture.model, picture.inputs, [picture.target], item)
    said = [
        picture.said,
        place.sentence,
        _score_here(results, place, picture, maps),
        place.tied,
        f"Caveat: {_caveat(results, place, picture)}",
    ]
    return [sentence for sentence in said if sentence], picture.over(maps[0])


@dataclass(frozen=True)
class Place:
    """The first method of a run on one dataset, among those it was ranked with."""

    board: Leaderboard
    rows: list[Row]  # the overall order on this dataset, controls and all
    leader: Row
    elsewhere: str  # who is first on the run's other datasets, where that is another

    @property
    def method(self) -> str:
        """The label of the first method."""
        return str(self.leader["method"])

    @property
    def contenders(self) -> list[Row]:
        """The methods that are no controls, in order."""
        return [row for row in self.rows if not row["control"]]

    def under(self, protocol: str) -> Row:
        """The leader's row of one protocol."""
        return next(row for row in self.each if row["protocol"] == protocol)

    @property
    def each(self) -> list[Row]:
        """The leader's rows, one per protocol."""
        same = ("dataset", "model", "checkpoint", "method")
        return [r for r in self.board.rows if all(r[k] == self.leader[k] for k in same)]

    @property
    def sentence(self) -> str:
        """The place in words."""
        row = self.leader
        known = row["low"] is not None and row["high"] is not None
        span = f", 95 % interval {row['low']:.1f} to {row['high']:.1f}" if known else ""
        return (
            f"{self.method} explains it: first of {len(self.contenders)} methods on "
            f"{row['dataset']}, place {row['position']} with the controls, mean rank "
            f"{row['mean_rank']:.2f}{span} over {row['protocols']} protocols.{self.elsewhere}"
        )

    @property
    def tied(self) -> str:
        """The methods whose interval of the mean rank meets the first one's."""
        high = self.leader["high"]
        others = [
            str(row["method"])
            for row in self.contenders
            if row is not self.leader
            and (not self.told_apart or high is None or row["low"] is None or row["low"] <= high)
        ]
        if not others:
            return "No other method is tied with it." if len(self.contenders) > 1 else ""
        return f"Not clearly distinguishable from it: {', '.join(others)}."

    @property
    def told_apart(self) -> bool:
        """Whether there were groups enough to tell methods apart under any protocol."""
        return any(row["ties_broken"] for row in self.each)


def _same_model(results: Results, model: Model) -> str:
    """The run's name for this model, known by its weights."""
    known = results.manifest["models"]
    mine = model.weights_hash
    for name, about in known.items():
        if about["weights_hash"] == mine:
            now = repr(model.prepare) if model.prepare else ""
            if about.get("inputs", now) not in ("", now):
                raise InputError(
                    f"The run in `{results.folder}` prepared its images otherwise: "
                    f"{about['inputs']}, here {now}. Leave out --size, --resize, --mean and --std: "
                    f"the run says them."
                )
            return str(name)
    run = ", ".join(f"`{name}` ({about['weights_hash'][:12]})" for name, about in known.items())
    older = results.manifest.get("identity", 1) == 1 and own_classes(model.net)
    why = " An older assay made that run and hashed this code otherwise." if older else ""
    raise InputError(
        f"The run in `{results.folder}` is of another model: it has {run}, and `{model.name}` is "
        f"{mine[:12]}, by weights and code. Give the model and weights of the run, or run this "
        f"one.{why}"
    )


def run_description(folder: Path) -> dict[str, Any]:
    """What a run's suite says of its only model's inputs and classes."""
    models = Results(folder).spec.models
    if len(models) != 1:
        return {}
    _, options = registry.pick(models[0])
    told = ("weights", "size", "resize", "mean", "std", "classes")
    return {name: options[name] for name in told if name in options and name != "weights"}


def _first(results: Results, model: str) -> Place:
    """The first method that is no control, on the first dataset that ranks any."""
    board = results.leaderboard()
    orders = {
        dataset: [r for r in board.overall if (r["dataset"], r["model"]) == (dataset, model)]
        for dataset in results.manifest["datasets"]
    }
    leaders = {
        dataset: leader
        for dataset, rows in orders.items()
        if (leader := next((row for row in rows if not row["control"]), None))
    }
    if not leaders:
        raise InputError(f"The run in `{results.folder}` placed no method for `{model}`.")
    dataset, leader = next(iter(leaders.items()))
    others = {d: r["method"] for d, r in leaders.items() if r["method"] != leader["method"]}
    elsewhere = "".join(f" On {d} it is {method}." for d, method in others.items())
    return Place(board, list(orders[dataset]), leader, elsewhere)


def _item(results: Results, kind: str, label: str) -> Any:
    """A method or protocol of the run as a suite writes it."""
    missing = None
    for item in getattr(results.spec, f"{kind}s"):
        if registry.pick(item)[0] == "live":
            continue
        try:
            if choose_one(kind, item).label == label:
                return item
        except (InputError, PrerequisiteError) as error:  # a file that is gone: was it this one?
            missing = missing or error
    about = results.manifest[f"{kind}s"][label]
    if about["family"] != "given" and about["name"] in registry.names(kind):
        return {about["name"]: {**about["options"], "label": label}}
    if missing is not None:
        raise missing
    raise PrerequisiteError(
        f"The {kind} `{label}` lived only in the process that made the run in "
        f"`{results.folder}`. Run it by its address, `./file.py:function`."
    )


def _score_here(results: Results, place: Place, picture: Picture, maps: Tensor) -> str:
    """The score of this map under the run's first protocol that gives one."""
    for label, about in results.manifest["protocols"].items():
        if place.under(label)["status"] in SHOWN_ONLY or about.get("judges") == "set":
            continue  # one picture is no set
        try:
            item = _item(results, "protocol", label)
            value = score(picture.model, picture.inputs, [picture.target], maps, item).item()
        except (NotApplicable, PrerequisiteError):
            continue
        if math.isnan(value):
            continue
        mean = place.under(label)["mean"]
        average = "" if mean is None else f", {mean:.3f} on average in the run"
        better = "higher" if about["higher_is_better"] else "lower"
        return f"Here it scores {value:.3f} under {label} ({better} is better{average})."
    return "No protocol of the run gives a score here."


def _caveat(results: Results, place: Place, picture: Picture) -> str:
    """The most important reason to be careful."""
    model, dataset = place.leader["model"], place.leader["dataset"]
    for row in results.manifest["clean"]:
        if (row["model"], row["dataset"]) == (model, dataset) and hardly_above_chance(row):
            return (
                f"the network is hardly above chance on the run's samples ({row['accuracy']:.0%})."
            )
    predicted = int(picture.shares.argmax())
    if predicted != picture.target:
        return f"the network itself says {picture.class_name(predicted)}, not {picture.name}."
    if picture.probability < 0.5:
        return f"the network is unsure of this picture ({picture.probability:.0%})."
    if not place.told_apart:
        return (
            f"the run has only {place.leader['n_groups']} independent samples, too few to tell "
            f"methods apart; read the order as a hint."
        )
    ahead = [r["method"] for r in place.rows if r["control"] and r["position"] < _position(place)]
    if ahead:
        return f"the control {ahead[0]}, which knows nothing of the network, comes before it."
    below = [str(row["protocol"]) for row in place.each if row.get("below_control")]
    if below:
        return f"it falls below the best control under {', '.join(below)}."
    key = (place.leader["dataset"], place.leader["model"])
    for clean in results.manifest["clean"]:
        if (clean["dataset"], clean["model"]) == key and clean["accuracy"] < 0.5:
            return f"the network is right on only {clean['accuracy']:.0%} of {key[0]}."
    return "one picture is one sample; its score says less than the mean over the run."


def _position(place: Place) -> int:
    return int(place.leader["position"])
