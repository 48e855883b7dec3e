"""An environment: a network, samples for it, and what is truly relevant in each of them."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from assay.data.memory import as_dataset
from assay.errors import InputError
from assay.plugins import registry
from assay.plugins.origins import TYPED, Origin
from assay.training.trained_weights import TrainedWeights
from assay.types import Batch, Dataset, Model


@dataclass(frozen=True, eq=False, repr=False)
class Environment:
    """A network with samples whose truth is known, because both were made for each other.

    Attributes:
        name: Its name in tables.
        model: The network, with what is needed to explain it.
        draw: `draw(n, seed)` gives `n` samples with truth; another seed gives other samples.
        samples: The number of samples in `dataset`.
        card: Facts for the reader: options, proof of use, what the truth is.
        read: Returns the targets and the truth of images made elsewhere, where both are known.
    """

    name: str
    model: Model
    draw: Callable[[int, int], Dataset]
    samples: int = 100
    card: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None

    def __repr__(self) -> str:
        """Its name, number of samples and network."""
        title = self.model.card.get("title") or type(self.net).__name__
        return f"Environment({self.name}: {self.samples} samples, {title})"

    @property
    def net(self) -> nn.Module:
        """The network itself."""
        return self.model.net

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The samples that a run uses."""
        return replace(self._drawn(self.samples, 0), name=self.name)

    def batch(self, n: int, seed: int = 0) -> Batch:
        """`n` samples with targets and truth; another seed gives other samples."""
        if not isinstance(n, int) or n < 1:
            raise InputError(f"Expected `n` to be a whole number of at least 1, got {n}.")
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"Expected `seed` to be a whole number of at least 0, got {seed}.")
        drawn = self._drawn(n, seed)
        batch = drawn.batch(drawn.ids, self.model.prepare, seed=seed, pixels=self.model.pixels)
        # A network without classes has one output, which is explained.
        targets = batch.targets if batch.labels is not None else torch.zeros(n, dtype=torch.long)
        return replace(batch, targets=targets)

    def _drawn(self, n: int, seed: int) -> Dataset:
        drawn = self.draw(n, seed)
        if not isinstance(drawn, Dataset):
            raise InputError(
                f"Expected `draw` of environment `{self.name}` to give a `Dataset`, got "
                f"{type(drawn).__name__}. Make one from tensors with "
                f"`assay.environments.environment.samples_of`."
            )
        return replace(drawn, truth_of=self.model.output_read)


def samples_of(
    seed: int,
    inputs: Tensor,
    labels: Tensor | None,
    truth: Tensor,
    baseline: Tensor | None = None,
) -> Dataset:
    """A dataset of drawn samples: the ids contain the seed, the fingerprint is of the content.

    Args:
        seed: The seed that the samples were drawn with.
        inputs: `[n, ...]`, as the network takes them.
        labels: `[n]`, the class of each sample; None where the network has no classes.
        truth: `[n, *map_shape]`, what is relevant, with its sign.
        baseline: `[n, ...]`, what "nothing" is in each sample, where that is known.

    Raises:
        InputError: The shapes or lengths of the tensors do not fit together.
    """
    if baseline is not None and baseline.shape != inputs.shape:
        raise InputError(
            f"Expected `baseline` to have the shape of the inputs, {tuple(inputs.shape)}, got "
            f"{tuple(baseline.shape)}."
        )
    data = as_dataset((inputs, labels, truth), "samples", groups="none")
    ids = tuple(f"{seed}-{i}" for i in range(len(inputs)))
    row_of = dict(zip(ids, data.ids, strict=True))
    baselines = {} if baseline is None else dict(zip(ids, baseline, strict=True))
    return replace(
        data,
        ids=ids,
        fetch=lambda name: replace(data.fetch(row_of[name]), baseline=baselines.get(name)),
        labels={name: data.labels[row] for name, row in row_of.items()} if data.labels else {},
        fingerprint=registry.identity([data.fingerprint, seed, list(baselines.values())]),
    )


def environment(
    name: str,
    *,
    label: str | None = None,
    trained: TrainedWeights | None = None,
    **options: object,
) -> Environment:
    """An environment by its name, such as `multi_color_sum`, or its address, with these options.

    `.batch(n, seed=0)` gives samples with targets and signed truth; `.model` and `.dataset` are
    what `assay.benchmark(env.model, env.dataset)` takes. The truth is that of `.model`; `.net`, its
    bare network, may give another output.

    Args:
        name: The name or the address, `./file.py:function`.
        label: Its name in tables.
        trained: Weights trained before, for environments that train a network; new ones are added.
            By default nothing is known, and the network is trained.
        **options: The environment's own; `assay list environments NAME` shows them.

    Raises:
        InputError: There is no such environment, or an option is not what was expected.
    """
    return build(name, options, label, trained)


def build(
    name: str,
    options: Mapping[str, object],
    label: str | None = None,
    trained: TrainedWeights | None = None,
    origin: Origin = TYPED,
) -> Environment:
    """An environment as a suite writes it, named by its label."""
    plugin = registry.get("environment", name, origin)
    configured = plugin.configure(options, origin)
    stores = _stores(plugin, TrainedWeights() if trained is None else trained)
    made = plugin.function(*stores, **configured)
    if not isinstance(made, Environment):
        raise InputError(
            f"Expected environment `{name}` to give an `assay.Environment`, got "
            f"{type(made).__name__}. `assay new environment NAME` writes an example."
        )
    if not isinstance(made.model, Model):
        raise InputError(
            f"Expected the `model` of environment `{name}` to be an `assay.Model`, got "
            f"{type(made.model).__name__}. Make one with `assay.model(net)`."
        )
    shown = {option: _shown(value) for option, value in plugin.identifying(configured).items()}
    called = label or registry.label(plugin.name, shown, plugin.defaults)
    return replace(made, name=called, model=replace(made.model, name=called))


def _stores(plugin: registry.Plugin, trained: TrainedWeights) -> list[TrainedWeights]:
    """What is passed to the parameters before the options: the store, where one asks for it.

    Raises:
        InputError: A parameter before the options has another type.
    """
    types = get_type_hints(plugin.function)
    parameters = inspect.signature(plugin.function).parameters.values()
    before = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [p.name for p in parameters if p.kind in before and p.default is p.empty]
    for name in required:
        if types.get(name) is not TrainedWeights:
            raise InputError(
                f"Expected parameter `{name}` of environment `{plugin.name}` to have the type "
                f"`assay.TrainedWeights`, got {types.get(name, 'no type')}. If it is an option, "
                f"put it after `*` and give it a default."
            )
    return [trained for _ in required]


def _shown(value: object) -> object:
    """An option as a label shows it: objects by their names, data files by theirs."""
    if isinstance(value, Mapping) and len(value) == 1:
        options = next(iter(value.values()))
        path = options.get("path") if isinstance(options, Mapping) else None
        return Path(path).stem if path else value
    if isinstance(value, tuple | list):
        return "data" if any(hasattr(part, "shape") for part in value) else value
    if value is None or isinstance(value, str | int | float | Mapping):
        return value
    named = getattr(value, "name", None) or getattr(value, "__name__", None)
    return str(named or type(value).__name__)
