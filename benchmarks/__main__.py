"""Time over floor, as ratios measured in one run: `make bench`.

The floor is a bare loop over the same ready-made inputs, with the same prepared network and
micro-batch. Everything runs with one thread and is measured in process CPU time, the protocol and
its floor in turns, so that a busy machine slows both. `plain` is the same loop over the network as
it came, in the usual memory layout: what folding and channels-last gain.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from torch import Tensor

from assay.data.memory import as_dataset
from assay.engine.engine import Engine, network_engine
from assay.environments.environment import environment
from assay.methods.attribution import attribute
from assay.methods.gradients import explained
from assay.models.cifar_resnet import CifarResNet
from assay.models.prepare import Prepared, choose_micro_batch, prepare_network
from assay.models.small_vit import SmallViT
from assay.plugins.registry import get
from assay.run.executors import keep_freed_memory
from assay.suite.spec import Choice, choose_one
from assay.types import Batch, Case, Model
from assay.types.card import in_domain_need
from benchmarks import imputation

PAINTED = ("part_deletion", "part_completeness")  # of parts, where images are painted of them
PROTOCOLS: list[Any] = [
    {"morf": {"steps": 10}},
    {"lerf": {"steps": 10}},
    {"abpc": {"steps": 10}},
    {"deletion": {"steps": 10}},
    {"insertion": {"steps": 10}},
    {"accuracy_morf": {"steps": 10}},
    {"accuracy_lerf": {"steps": 10}},
    {"incremental_deletion": {"steps": 10}},
    "comprehensiveness",
    "sufficiency",
    "single_deletion",
    "in_domain_single_deletion",
    "drop_stability",
    {"infidelity": {"sizes": (2 / 7,), "stride": 1 / 7}},
    {"sensitivity_n": {"subsets": 5, "shares": (0.1, 0.25, 0.5)}},
    {"faithfulness_correlation": {"subsets": 15}},
    *PAINTED,
]
IMPUTING: list[Any] = [
    {"road_morf": {"steps": 10}},
    {"road_lerf": {"steps": 10}},
    "soundness",
    "completeness",
]
COPIES = {"noise": {"samples": 8}}
METHODS: list[Any] = [
    "saliency",
    "input_x_gradient",
    {"integrated_gradients": {"steps": 20}},
    {"integrated_gradients_uniform": {"steps": 20}},
    *({name: COPIES} for name in ("smoothgrad", "smoothgrad_sq", "vargrad", "ixg_sg")),
    *({name: {"steps": 4, **COPIES}} for name in ("ig_sg", "ig_sg_sq", "ig_var")),
    "guided_backprop",
    "deconvolution",
    "guided_gradcam",
    "excitation_backprop",
    "deeplift",
    {"deepshap": {"baselines": 2}},
    "lrp",
    "gradcam",
    "gradcam_pp",
    "xgradcam",
    "layercam",
    "cam",
    {"smooth_gradcam_pp": {"samples": 4}},
    {"scorecam": {"layer": "layer1"}},
    {"iba": {"steps": 2, "samples": 8}},
    {"input_iba": {"steps": 2, "samples": 8, "feature_steps": 1, "epochs": 1, "synthetic": 16}},
    "occlusion",
    {"rise": {"masks": 40}},
    {"rise_uniform": {"masks": 40}},
    "rollout",
    "generic_attention",
    "attention_gradcam",
    "chefer_lrp",
    {"bt_head": {"steps": 5}},
    {"bt_token": {"steps": 5}},
    {"lime": {"samples": 41}},
    {"kernel_shap": {"samples": 42}},
    {"extremal_perturbation": {"steps": 5, "area": (0.1, 0.3)}},  # two masks fill a micro-batch
    "bcos",
    "bagnet",
]
# Forward passes beside those of the whole network: rules that go through each layer once more, for
# the sums that relevance is shared out by.
AHEAD = {"lrp": 1, "excitation_backprop": 1}
GOALS = {
    "extremal_perturbation": 1.8,  # it also makes a mask and its gradient every step
    # Rules work on every number of every layer beside its products: as much as these where, as in
    # EfficientNet-Lite0, products are few; and twice where inputs of a layer have both signs.
    "lrp": 2.5, "deeplift": 3.0, "deepshap": 3.0, "excitation_backprop": 1.5,
}  # fmt: skip
PAINTING_GOAL = 1.3  # of protocols whose inputs are painted anew
INTERVENING_GOAL = 1.2  # of occlusion, RISE, LIME and KernelSHAP
ATTENTION_GOAL = 2.0  # relevance multiplies by positive and negative weights apart: four for two


@dataclass(frozen=True)
class Setting:
    """A network, a batch and the ratio it must stay under."""

    title: str
    ready: Prepared
    batch: Batch
    protocol_goal: float
    method_goal: float
    imputing_goal: float  # of protocols that also solve a linear system for every row
    only: tuple[str, ...] = ()  # what alone is measured here; otherwise all that applies

    @property
    def model(self) -> Model:
        """The network, looked at once."""
        return self.ready.model


def settings() -> list[Setting]:
    """EfficientNet-Lite0 at 224 pixels, ResNet-20 at 32, and networks for methods of their own.

    The ViT is there for the methods that need attention, the two after it explain themselves; the
    last has images painted of parts, for protocols that leave these out.
    """
    lite = get("model", "efficientnet_lite0").function()
    resnet = Model(CifarResNet(20).eval(), "resnet20")
    vit = Model(SmallViT().eval(), "small_vit")
    bcos, bag = (get("model", name).function() for name in ("bcos_resnet", "bagnet"))
    painted = environment("parts")
    animals = painted.batch(32)
    return [
        _setting("EfficientNet-Lite0, 224", lite, _batch(4, 224), 1.10, 1.15, 2.3),
        _setting("ResNet-20, 32", resnet, _batch(32, 32), 1.15, 1.15, 1.7),
        _setting("Small ViT, 32", vit, _batch(32, 32), 1.15, ATTENTION_GOAL, 1.7),
        _setting("B-cos ResNet-20, 32", bcos, _batch(32, 32), 1.15, 1.15, 1.7, ("bcos",)),
        _setting("BagNet-9, 32", bag, _batch(32, 32), 1.15, 1.15, 1.7, ("bagnet",)),
        _setting("Painted parts, 64", painted.model, animals, PAINTING_GOAL, 1.15, 1.7, PAINTED),
    ]


def _setting(title: str, model: Model, batch: Batch, *goals: Any) -> Setting:
    """A network, looked at once, with the micro-batch that a run would choose."""
    model = replace(model, micro_batch=choose_micro_batch(batch.inputs))
    with model.evaluating(), torch.no_grad():
        return Setting(title, prepare_network(model, batch.inputs[:1]), batch, *goals)


def _batch(n: int, size: int) -> Batch:
    x = torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))
    dataset = as_dataset((x, torch.arange(n) % 10))
    return dataset.batch(dataset.ids)


def in_turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each call, one after the other, `rounds` times; the first round is warm-up."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            started = time.process_time()
            call()
            if turn:
                seconds[name].append(time.process_time() - started)
    return seconds


def bench_protocol(
    setting: Setting, choice: Choice, rounds: int, goal: float, maps: Tensor
) -> dict[str, Any]:
    """One protocol with a fresh engine against a bare loop over the inputs it made."""

    def score(engine: Engine) -> None:
        others = maps.flip(0)
        case = Case(engine.batch, maps, engine.verb, engine.clean, partner=lambda: others)
        choice.plugin.function(case, **choice.options)

    return bench_engine(setting, choice.label, score, goal, rounds)


def bench_engine(
    setting: Setting, label: str, use: Callable[[Engine], None], goal: float, rounds: int
) -> dict[str, Any]:
    """What asks a fresh engine against a bare loop over the inputs it made."""
    model, batch = setting.model, setting.batch
    network, forward = setting.ready.net, setting.ready.forward
    made: list[Tensor] = []

    def record(inputs: Tensor) -> Tensor:
        made.append(inputs)
        return forward(inputs)

    use(network_engine(model, batch, record))
    ready = [model.laid_out(x) for x in made]
    seconds = in_turns(
        {
            "ours": lambda: use(network_engine(model, batch, forward)),
            "floor": lambda: [network(x) for x in ready],
            "plain": lambda: [model.net(x) for x in made],
        },
        rounds,
    )
    return _row(setting, label, len(made) * model.micro_batch, seconds, goal)


def bench_method(setting: Setting, choice: Choice, rounds: int) -> dict[str, Any]:
    """A gradient method against bare forward and backward passes at as many ready-made points.

    One that asks the engine is held against a bare loop over its inputs, as protocols are.
    """
    model, batch = setting.model, setting.batch
    if choice.plugin.intervenes is not None:

        def ask(engine: Engine) -> None:
            engine.clean  # noqa: B018  # in a run it is asked for first
            attribute(model, batch, choice, engine)

        return bench_engine(setting, choice.label, ask, INTERVENING_GOAL, rounds)
    if choice.plugin.name == "bagnet":
        return bench_patches(setting, choice, rounds)
    passes = choice.passes_on(model, batch)
    back = (passes.backward or 0) * len(batch)
    ahead = ((passes.forward or 0) + AHEAD.get(choice.plugin.name, 0)) * len(batch) - back
    point = batch.inputs[torch.arange(model.micro_batch) % len(batch)]
    targets = batch.targets[torch.arange(model.micro_batch) % len(batch)]
    layouts = {"floor": model.laid_out(point), "plain": point}

    def loop(x: Tensor) -> None:
        for _ in range(-(-max(0, ahead) // model.micro_batch)):
            model.logits(x)
        for _ in range(-(-back // model.micro_batch)):
            x = x.detach().requires_grad_(True)
            with torch.enable_grad():
                scalar = explained(model, model.logits(x), targets, "logit").sum()
                torch.autograd.grad(scalar, x)

    seconds = in_turns(
        {
            "ours": lambda: attribute(model, batch, choice),
            "floor": lambda: loop(layouts["floor"]),
            "plain": lambda: loop(layouts["plain"]),
        },
        rounds,
    )
    goal = GOALS.get(choice.plugin.name, setting.method_goal)
    return _row(setting, choice.label, max(back, ahead + back), seconds, goal)


def bench_patches(setting: Setting, choice: Choice, rounds: int) -> dict[str, Any]:
    """A map of patches against a bare loop over the shifted images it was made of."""
    model, made = setting.model, []
    net: Any = model.net
    plain = net.patch_logits
    net.patch_logits = lambda x: made.append(x) or plain(x)
    attribute(model, setting.batch, choice)
    del net.patch_logits
    seconds = in_turns(
        {
            "ours": lambda: attribute(model, setting.batch, choice),
            "floor": lambda: [net.patch_logits(x) for x in made],
            "plain": lambda: [net.patch_logits(x.contiguous()) for x in made],
        },
        rounds,
    )
    return _row(setting, choice.label, sum(map(len, made)), seconds, setting.method_goal)


def _row(
    setting: Setting, label: str, rows: int, seconds: dict[str, list[float]], goal: float
) -> dict[str, Any]:
    pairs = zip(seconds["ours"], seconds["floor"], strict=True)
    floor = statistics.median(seconds["floor"])
    return {
        "setting": setting.title,
        "what": label,
        "rows": rows,
        "ms_per_row": 1e3 * statistics.median(seconds["ours"]) / rows,
        "over_floor": statistics.median(ours / floor for ours, floor in pairs),
        "plain_over_floor": statistics.median(seconds["plain"]) / floor,
        "goal": goal,
    }


def bench_setting(setting: Setting, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every protocol and method that is asked for."""

    def chosen(kind: str, items: list[Any]) -> list[Choice]:
        data = setting.batch.dataset
        has = {*setting.model.capabilities, "image", *(data.has if data else ())}
        has.add(in_domain_need(4, "zero"))  # fine-tuning does not change the time
        choices = [choose_one(kind, item) for item in items]
        choices = [c for c in choices if c.plugin.required(c.options) <= has]
        return [
            c
            for c in choices
            if (not given.only or c.plugin.name in given.only.split(","))
            and (not setting.only or c.plugin.name in setting.only)
        ]

    transformer = "attention" in setting.model.capabilities
    methods = [
        c for c in chosen("method", METHODS)
        if ("attention" in c.plugin.required(c.options)) == transformer
        # Score-CAM on the thousand channels before a head takes minutes.
        and c.options.get("layer") in {None, *dict(setting.model.net.named_modules())}
    ]  # fmt: skip
    with setting.model.evaluating(), torch.no_grad():
        for choice in methods:
            yield bench_method(setting, choice, given.rounds)
        if transformer:
            return
        noise = setting.batch.draw("benchmark", setting.batch.map_shape)
        blobs = attribute(setting.model, setting.batch, choose_one("method", "gradcam"))
        for choice in chosen("protocol", PROTOCOLS):
            yield bench_protocol(setting, choice, given.rounds, setting.protocol_goal, noise)
        for choice in chosen("protocol", IMPUTING):
            for maps, name in ((noise, "noise"), (blobs, "Grad-CAM")):
                row = bench_protocol(setting, choice, given.rounds, setting.imputing_goal, maps)
                yield {**row, "what": f"{row['what']}, {name} maps"}


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", help="names of methods and protocols, or `imputation`")
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = [row for setting in settings() for row in bench_setting(setting, given)]
    wanted = "imputation" in (given.only or "imputation")
    solver = [row for size in (224, 32) for row in imputation.measure(size)] if wanted else []
    if given.json:
        print(json.dumps({"passes": rows, "imputation": solver}, indent=1))
        return
    table = Table(title="CPU time over the floor of the passes needed (one thread)")
    for column in (
        "setting",
        "what",
        "passes",
        "ms a pass",
        "over floor",
        "goal",
        "plain over floor",
    ):
        left = column in ("setting", "what")
        table.add_column(column, justify="left" if left else "right", no_wrap=not left)
    for row in rows:
        met = row["over_floor"] <= row["goal"]
        table.add_row(
            row["setting"], escape(row["what"]), str(row["rows"]), f"{row['ms_per_row']:.2f}",
            f"[{'green' if met else 'red'}]{row['over_floor']:.3f}[/]", f"{row['goal']:.2f}",
            f"{row['plain_over_floor']:.2f}",
        )  # fmt: skip
    console = Console(width=110)
    console.print(table)
    if solver:
        console.print(imputation.table(solver))


if __name__ == "__main__":
    main()
