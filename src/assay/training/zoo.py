"""The zoo: small networks for CIFAR-10 by design choice, each with the recipe that trains it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from assay.errors import InputError, unknown
from assay.plugins import registry
from assay.training.fitting import Recipe
from assay.training.zoo_arms import Arm, parse_arm
from assay.types import Model

LEAST = 0.8  # accuracy below which a network is labelled under-trained

# A long rise keeps short trainings at high rates stable.
BASE = Recipe(epochs=10, batch=256, rate=0.1, rise=0.25)
UNNORMALISED = Recipe(epochs=12, batch=256, optimizer="adamw", rate=1e-3, decay=0.05, rise=0.25)
ADAPTIVE = replace(UNNORMALISED, rate=2e-3)
TRANSFORMER = replace(UNNORMALISED, epochs=20)


@dataclass(frozen=True)
class ZooNetwork:
    """A network of the zoo: how it is built, how it is trained, and its design.

    Attributes:
        name: The name in the zoo.
        model: The registered model.
        options: The options of that model.
        recipe: How it is trained.
        family: What kind of architecture it is.
        depth: The largest number of layers with weights between the input and the logits.
        width: How many times wider than the narrowest of its family.
        norm: What normalises its activations: batch, layer or none.
        bias: Whether any layer adds a constant.
        receptive_field: Pixels a side that one last feature sees; None where it is the image.
        pretraining: Epochs of masked pre-training before the recipe.
        checkpoints: Epochs of the recipe after which the weights are stored as well.
    """

    name: str
    model: str
    recipe: Recipe
    family: str
    options: Mapping[str, object] = field(default_factory=dict)
    depth: int | None = None
    width: int = 1
    norm: str = "batch"
    bias: bool = True
    receptive_field: int | None = None
    pretraining: int = 0
    checkpoints: tuple[int, ...] = ()

    @property
    def item(self) -> dict[str, dict[str, object]]:
        """The untrained network as a suite writes it, without a seed."""
        return {self.model: dict(self.options)}


@dataclass(frozen=True)
class Group:
    """Networks that are trained for one purpose, with its seeds and arms."""

    networks: tuple[str, ...]
    seeds: tuple[int, ...]
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """One network and seed; its arms are trained one after another."""

    name: str
    seed: int
    arms: tuple[str, ...] = ("base",)


def _residual(name: str, depth: int, width: int, recipe: Recipe, **more: object) -> ZooNetwork:
    options = {"depth": depth, "width": width, "norm": more.get("norm", "batch")}
    norm = "batch" if options["norm"] == "batch" else "none"
    return ZooNetwork(
        name, "residual", recipe, "residual", options, depth, width, norm,
        bias=options["norm"] != "homogeneous",
        checkpoints=CHECKPOINTS if name in CHECKPOINTED else (),
    )  # fmt: skip


def _vgg(name: str, depth: int, norm: str, recipe: Recipe, bias: bool = True) -> ZooNetwork:
    options = {"depth": depth, "norm": norm, "bias": bias}
    return ZooNetwork(
        name, "vgg", recipe, "plain", options, depth - 1, norm=norm, bias=bias,
        checkpoints=CHECKPOINTS if name in CHECKPOINTED else (),
    )  # fmt: skip


def _vit(name: str, width: int, depth: int, heads: int, pretraining: int = 0) -> ZooNetwork:
    options = {"width": width, "depth": depth, "heads": heads}
    return ZooNetwork(
        name, "small_vit", TRANSFORMER, "transformer", options, 2 * depth + 2, width // 96,
        norm="layer", pretraining=pretraining,
    )  # fmt: skip


def _bagnet(field: int, depth: int) -> ZooNetwork:
    options = {"field": field, "normalise": "cifar10"}
    recipe = BASE
    return ZooNetwork(
        f"bagnet{field}", "bagnet", recipe, "bag of patches", options, depth, receptive_field=field
    )


CHECKPOINTED = ("resnet20", "vgg11_bn")
CHECKPOINTS = (1, 2, 3, 5, 7)  # and the end of training


ZOO: Mapping[str, ZooNetwork] = {
    network.name: network
    for network in (
        _residual("resnet20", 20, 1, BASE),
        _residual("resnet32", 32, 1, BASE),
        _residual("resnet56", 56, 1, BASE),
        _residual("resnet110", 110, 1, BASE),
        _residual("resnet20_w2", 20, 2, BASE),
        _residual("resnet20_w4", 20, 4, BASE),
        _residual("resnet20_w2_fixup", 20, 2, ADAPTIVE, norm="fixup"),
        _residual("resnet20_w2_nobias", 20, 2, replace(ADAPTIVE, rate=3e-3), norm="homogeneous"),
        _vgg("vgg11", 11, "none", UNNORMALISED),
        _vgg("vgg11_bn", 11, "batch", BASE),
        _vgg("vgg16", 16, "none", UNNORMALISED),
        _vgg("vgg16_bn", 16, "batch", BASE),
        _vgg("vgg11_nobias", 11, "none", UNNORMALISED, bias=False),
        ZooNetwork("separable", "separable", BASE, "separable", depth=18),
        ZooNetwork("densenet", "densenet", BASE, "concatenating", depth=52),
        ZooNetwork("inception", "inception", BASE, "concatenating", depth=24),
        ZooNetwork("squeeze_excite", "squeeze_excite", ADAPTIVE, "separable", depth=24),
        ZooNetwork("convnext", "convnext", ADAPTIVE, "convnext", depth=24, norm="layer"),
        _vit("vit_small", 96, 6, 4),
        _vit("vit_medium", 144, 8, 6),
        _vit("vit_large", 192, 9, 6),
        _vit("vit_mae", 144, 8, 6, pretraining=15),
        _bagnet(5, 21),
        _bagnet(9, 21),
        _bagnet(17, 24),
        ZooNetwork(
            "bcos", "bcos_resnet", replace(ADAPTIVE, rate=3e-3), "b-cos", depth=20, norm="batch",
            bias=False,
        ),
    )
}  # fmt: skip

CORE = tuple(list(ZOO)[:12])
GROUPS: Mapping[str, Group] = {
    "core": Group(CORE, tuple(range(5)), ("base", "tuned")),
    "placebo": Group(
        ("resnet20", "resnet20_w2_fixup", "vgg11"), tuple(range(5)), ("base", "placebo")
    ),
    "others": Group(
        tuple(n for n in ZOO if n not in CORE and not n.startswith("vit")), (0, 1),
        ("base", "tuned"),
    ),
    "vits": Group(tuple(n for n in ZOO if n.startswith("vit")), (0, 1, 2), ("base", "tuned")),
    "checkpoints": Group(CHECKPOINTED, tuple(range(8)), ("base",)),
}  # fmt: skip


def zoo_network(name: str) -> ZooNetwork:
    """The entry of a name; unknown names are an error that lists the others."""
    if name not in ZOO:
        raise unknown("network of the zoo", name, ZOO)
    return ZOO[name]


def zoo_model(name: str, seed: int = 0) -> Model:
    """The untrained network, with random weights drawn by `seed`."""
    network = zoo_network(name)
    plugin = registry.get("model", network.model)
    made: Model = plugin.function(**plugin.configure({**network.options, "seed": seed}))
    return replace(made, name=name)


def zoo_file(
    folder: str | Path, name: str, seed: int, arm: str = "base", epoch: int | None = None
) -> Path:
    """The file of a network's weights; its facts are in the `.json` file of the same name.

    Args:
        folder: The folder that `assay zoo train --out` wrote.
        name: The network.
        seed: Its seed.
        arm: `base`, `tuned`, `placebo`, and `tuned-g2`, `tuned-blur`, `base-d25`, ... (see `Arm`).
        epoch: The checkpoint after this epoch; the last epoch's is the file without one.
    """
    parse_arm(arm)
    last = epoch is None or epoch == zoo_network(name).recipe.epochs
    return Path(folder) / f"{name}-s{seed}-{arm}{'' if last else f'-e{epoch}'}.safetensors"


def zoo_item(
    folder: str | Path, name: str, seed: int, arm: str = "base", epoch: int | None = None
) -> dict[str, dict[str, object]]:
    """The trained network as a suite writes it, with its name and, where tuned, its card."""
    network, path = zoo_network(name), zoo_file(folder, name, seed, arm, epoch)
    options = {**network.options, "weights": str(path), "as": path.stem}
    card = card_file(path)
    if card.is_file():
        options["card"] = str(card)
    return {network.model: options}


def card_file(path: Path) -> Path:
    """The file of a tuned network's card, beside its weights."""
    return path.with_suffix(".card.json")


def plan_jobs(
    names: Iterable[str], seeds: Sequence[int] | None = None, arms: Sequence[str] | None = None
) -> list[Job]:
    """The jobs of networks and groups; a group has its own seeds and arms where none are given.

    A network by itself has the seed 0 and the arm `base`. One network and seed is one job. An arm
    that starts from a base network brings that arm.
    """
    merged: dict[tuple[str, int], list[str]] = {}
    for name in names:
        if name not in GROUPS and name not in ZOO:
            raise unknown("network or group of the zoo", name, [*GROUPS, *ZOO])
        group = GROUPS.get(name) or Group((name,), (0,), ("base",))
        for network in group.networks:
            for seed in seeds or group.seeds:
                row = merged.setdefault((network, seed), [])
                row += [arm for arm in with_bases(arms or group.arms) if arm not in row]
    if not merged:
        raise InputError(
            f"Expected networks or groups to train, got none. Give one of {', '.join(GROUPS)}, or "
            f"names that `assay zoo list` shows."
        )
    return [Job(name, seed, tuple(row)) for (name, seed), row in merged.items()]


def with_bases(arms: Sequence[str]) -> list[str]:
    """The arms, each after the arm it starts from."""
    ordered: list[str] = []
    for arm in arms:
        parsed: Arm = parse_arm(arm)
        for one in (parsed.base, arm):
            if one not in ordered:
                ordered.append(one)
    return ordered
