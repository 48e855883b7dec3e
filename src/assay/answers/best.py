"""One picture explained with the method that a run placed first, and how far to trust that."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from torch import Tensor

from assay.answers.picture import Picture, read_picture, refuse_maps
from assay.api import explain, score
from assay.errors import InputError, NotApplicable, PrerequisiteError
from assay.plugins import registry
from assay.plugins.origins import Origin
from assay.ranking.answer import Answer
from assay.ranking.answer_words import differ, who
from assay.ranking.overall import OverallRow
from assay.ranking.rows import BoardRow
from assay.report.words import Words
from assay.results import Results
from assay.store import SHOWN_ONLY, ModelEntry
from assay.suite.spec import Choice, choose_one
from assay.types import Model
from assay.types.hashing import own_classes

# What a suite may say of a model's inputs and classes.
DESCRIPTION = ("size", "resize", "mean", "std", "classes")


def explain_best(
    path: str | Path,
    model_item: object,
    folder: Path,
    target: int | None,
    trust_code: bool = False,
) -> tuple[list[str], Image.Image | Words]:
    """Explain an image file or text with a run's first method: sentences, and the map over it.

    Raises:
        InputError: The run has another model, or placed no method.
        PrerequisiteError: The first method cannot be built again, or is code that is not trusted.
    """
    results = Results(folder)
    picture = read_picture(path, model_item, target)
    place = _first(results, _same_model(results, picture.model))
    origin = results.spec.origin.trusting(trust_code)
    method = _choice(results, "method", place.method, origin)
    refuse_maps(method.plugin)
    maps = explain(picture.model, picture.sample, None, method)
    sentences = [
        picture.sentence,
        place.sentence,
        _score_here(results, place, picture, maps, origin),
        place.tied,
        f"Caveat: {_caveat(results, place, picture)}",
    ]
    return [sentence for sentence in sentences if sentence], picture.over(maps[0])


@dataclass(frozen=True)
class Place:
    """The first unbeaten method of a run on one dataset, among those it was ranked with."""

    overall: Sequence[OverallRow]  # the overall list of this dataset, with the controls
    leader: OverallRow
    answer: Answer
    rows: Sequence[BoardRow]  # the leader's rows, one per protocol
    elsewhere: str  # which method is first on the run's other datasets, where it differs

    @property
    def method(self) -> str:
        """The label of the first method."""
        return self.leader.method

    @property
    def contenders(self) -> list[OverallRow]:
        """The methods that are no controls, in order."""
        return [row for row in self.overall if not row.control]

    def under(self, protocol: str) -> BoardRow:
        """The leader's row of one protocol."""
        return next(row for row in self.rows if row.protocol == protocol)

    @property
    def sentence(self) -> str:
        """The place in words."""
        row = self.leader
        known = row.low is not None and row.high is not None
        span = f", 95 % interval {row.low:.2f} to {row.high:.2f}" if known else ""
        unbeaten = " that no other one beats" if self.answer.enough else ""
        side = "above" if row.difference >= 0 else "below"
        over = f"{row.protocols} protocol{'' if row.protocols == 1 else 's'}"
        return (
            f"{self.method} explains it: the first of {len(self.contenders)} methods on "
            f"{row.dataset}{unbeaten}. It is {abs(row.difference):.2f} {side} random in units of "
            f"the spread of random{span}, over {over}.{self.elsewhere}"
        )

    @property
    def tied(self) -> str:
        """The methods that no other one beats, besides the first of the list."""
        if self.answer.nothing or not self.answer.enough:
            return who(self.answer)
        others = [name for name in self.answer.best if name != self.method]
        if others:
            return f"Not beaten either: {', '.join(others)}. {differ(self.answer)}".rstrip()
        return "No other method is unbeaten." if len(self.contenders) > 1 else ""

    @property
    def separated(self) -> bool:
        """Whether there were enough groups to separate methods under any protocol."""
        return any(row.ties_broken for row in self.rows)


def _same_model(results: Results, model: Model) -> str:
    """The run's name for this model, found by its weights."""
    models, hash_here = results.entries.models, model.weights_hash
    for name, entry in models.items():
        if entry.weights_hash == hash_here:
            _check_inputs(results, entry, model)
            return name
    run = ", ".join(f"`{name}` ({entry.weights_hash[:12]})" for name, entry in models.items())
    older = results.entries.identity == 1 and own_classes(model.net)
    why = " An earlier version of assay made that run and hashed this code differently."
    why = why if older else ""
    raise InputError(
        f"The run in `{results.folder}` is of another model: it has {run}, and `{model.name}` is "
        f"{hash_here[:12]}, by weights and code. Use the model and weights of the run, or run this "
        f"model.{why}"
    )


def _check_inputs(results: Results, entry: ModelEntry, model: Model) -> None:
    inputs = repr(model.prepare) if model.prepare else ""
    if entry.inputs not in ("", inputs):
        raise InputError(
            f"The run in `{results.folder}` prepared its images in another way: {entry.inputs}, "
            f"here {inputs}. Leave out --size, --resize, --mean and --std: the run knows them."
        )


def run_description(folder: Path) -> Mapping[str, object]:
    """What a run's suite says of its only model's inputs and classes."""
    models = Results(folder).spec.models
    if len(models) != 1:
        return {}
    _, options = registry.pick(models[0])
    return {name: options[name] for name in DESCRIPTION if name in options}


def _first(results: Results, model: str) -> Place:
    """The first method of the list that is not beaten, on the first dataset that ranks any."""
    board, name_of = results.leaderboard(), results.entries.name_of
    ranked = [r for r in board.over_protocols if name_of(r.model, r.checkpoint) == model]
    orders = {
        dataset: [r for r in ranked if r.dataset == dataset] for dataset in results.entries.datasets
    }
    leaders = {
        dataset: leader
        for dataset, rows in orders.items()
        if (leader := next((row for row in rows if row.unbeaten), None))
    }
    if not leaders:
        reasons = [one.nothing for one in board.answers if name_of(*one.setting[1:]) == model]
        why = f": {reasons[0]}" if reasons else ""
        raise InputError(f"The run in `{results.folder}` placed no method for `{model}`{why}.")
    dataset, leader = next(iter(leaders.items()))
    others = {d: row.method for d, row in leaders.items() if row.method != leader.method}
    elsewhere = "".join(f" On {d} it is {method}." for d, method in others.items())
    mine = [
        row
        for row in board.by_protocol
        if (row.setting, row.method) == (leader.setting, leader.method)
    ]
    answer = next(one for one in board.answers if one.setting == leader.setting)
    return Place(orders[dataset], leader, answer, mine, elsewhere)


def _choice(results: Results, kind: str, label: str, origin: Origin) -> Choice:
    """A method or protocol of the run, built again; only code that may run is imported."""
    missing = None
    for item in getattr(results.spec, f"{kind}s"):
        if registry.pick(item)[0] == "live":
            continue
        try:
            choice = choose_one(kind, item, origin)
        except (InputError, PrerequisiteError) as error:  # gone, or not trusted: was it this one?
            missing = missing or error
            continue
        if choice.label == label:
            return choice
    entries = results.entries
    entry = entries.methods[label] if kind == "method" else entries.protocols[label]
    if entry.family != "given" and entry.name in registry.names(kind):
        return choose_one(kind, {entry.name: {**entry.options, "as": label}}, origin)
    if missing is not None:
        raise missing
    raise PrerequisiteError(
        f"The {kind} `{label}` lived only in the process that made the run in "
        f"`{results.folder}`. Run it by its address, `./file.py:function`."
    )


def _score_here(
    results: Results, place: Place, picture: Picture, maps: Tensor, origin: Origin
) -> str:
    """The score of this map under the run's first protocol that gives one."""
    for label, protocol in results.entries.protocols.items():
        row = place.under(label)
        if row.status in SHOWN_ONLY or protocol.judges == "set":
            continue  # one picture is no set
        try:
            choice = _choice(results, "protocol", label, origin)
            value = score(picture.model, picture.sample, None, maps, choice).item()
        except (NotApplicable, PrerequisiteError):
            continue
        if math.isnan(value):
            continue
        average = "" if row.mean is None else f", {row.mean:.3f} on average in the run"
        better = "higher" if protocol.higher_is_better else "lower"
        return f"Here it scores {value:.3f} under {label} ({better} is better{average})."
    return "No protocol of the run gives a score here."


def _caveat(results: Results, place: Place, picture: Picture) -> str:
    """The most important reason to be careful."""
    leader = place.leader
    clean = results.entries.accuracy(*leader.setting)
    if clean is not None and clean.hardly_above_chance:
        return f"the network is hardly above chance on the run's samples ({clean.accuracy:.0%})."
    predicted = int(picture.shares.argmax())
    if predicted != picture.target:
        return f"the network itself predicts {picture.class_name(predicted)}, not {picture.name}."
    if picture.probability < 0.5:
        return f"the network is unsure of this picture ({picture.probability:.0%})."
    if not place.separated:
        return (
            f"the run has only {leader.n_groups} independent samples, too few to separate "
            f"methods; read the order as a hint."
        )
    behind = [one for one in place.answer.controls_ahead if one.loser == place.method]
    if behind:
        return (
            f"the control {behind[0].winner}, which ignores the network, is better under "
            f"{behind[0].question}."
        )
    if place.method in place.answer.not_above:
        return "it is not clearly better than every control under any question."
    if clean is not None and clean.accuracy < 0.5:
        return f"the network is right on only {clean.accuracy:.0%} of {leader.dataset}."
    return "one picture is one sample; its score says less than the mean over the run."
