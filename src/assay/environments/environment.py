"""An environment: a network, samples for it, and what is truly relevant in each of them."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay.data.memory import as_dataset
from assay.errors import InputError
from assay.plugins import registry
from assay.types import Batch, Dataset, Model


@dataclass(frozen=True, eq=False, repr=False)
class Environment:
    """A network with samples whose truth is known, because both were made for each other.

    Attributes:
        name: What it is called in tables.
        model: The network, with what the tool must know about it.
        draw: From how many and a seed to that many samples with truth; other seeds give others.
        samples: How many `dataset` holds.
        card: What a reader should know: options, proof of use, what the truth is.
        read: From images made elsewhere to their targets and truth, where that can be told.
    """

    name: str
    model: Model
    draw: Callable[[int, int], Dataset]
    samples: int = 100
    card: Mapping[str, Any] = field(default_factory=dict)
    read: Callable[[Tensor], tuple[Tensor, Tensor]] | None = None

    def __repr__(self) -> str:
        """What it is called, how many samples it has, and its network."""
        title = self.model.card.get("title") or type(self.net).__name__
        return f"Environment({self.name}: {self.samples} samples, {title})"

    @property
    def net(self) -> nn.Module:
        """The network itself."""
        return self.model.net

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The samples a run takes."""
        return replace(self._drawn(self.samples, 0), name=self.name)

    def batch(self, n: int, seed: int = 0) -> Batch:
        """`n` samples with targets and truth, others for another seed."""
        if not isinstance(n, int) or n < 1:
            raise InputError(f"Expected `n` to be a whole number of at least 1, got {n}.")
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"Expected `seed` to be a whole number of at least 0, got {seed}.")
        drawn = self._drawn(n, seed)
        batch = drawn.batch(drawn.ids, self.model.prepare, seed=seed, pixels=self.model.pixels)
        # A network with one output explains that one.
        targets = batch.targets if batch.labels is not None else torch.zeros(n, dtype=torch.long)
        return replace(batch, targets=targets)

    def _drawn(self, n: int, seed: int) -> Dataset:
        found = self.draw(n, seed)
        if not isinstance(found, Dataset):
            raise InputError(
                f"Expected `draw` of environment `{self.name}` to give a `Dataset`, got "
                f"{type(found).__name__}. Make one of tensors with "
                f"`assay.environments.environment.samples_of`."
            )
        return replace(found, truth_of=self.model.output_read)


def samples_of(
    seed: int,
    inputs: Tensor,
    labels: Tensor | None,
    truth: Tensor,
    baseline: Tensor | None = None,
) -> Dataset:
    """What was drawn from a seed as a dataset: ids tell seeds apart, its hash is of its content.

    Args:
        seed: What the samples were drawn from.
        inputs: `[n, ...]`, as the network takes them.
        labels: `[n]`, the class of each; None where the network has no classes.
        truth: `[n, *map_shape]`, what is relevant, with its sign.
        baseline: `[n, ...]`, what "nothing" is in each sample, where that is known.

    Raises:
        InputError: The tensors do not belong together.
    """
    if baseline is not None and baseline.shape != inputs.shape:
        raise InputError(
            f"Expected `baseline` to have the shape of the inputs, {tuple(inputs.shape)}, got "
            f"{tuple(baseline.shape)}."
        )
    data = as_dataset((inputs, labels, truth), "samples")
    ids = tuple(f"{seed}-{i}" for i in range(len(inputs)))
    row_of = dict(zip(ids, data.ids, strict=True))
    nothing = {} if baseline is None else dict(zip(ids, baseline, strict=True))
    return replace(
        data,
        ids=ids,
        fetch=lambda name: replace(data.fetch(row_of[name]), baseline=nothing.get(name)),
        labels={name: data.labels[row] for name, row in row_of.items()} if data.labels else {},
        fingerprint=registry.identity([data.fingerprint, seed, list(nothing.values())]),
    )


def environment(name: str, *, label: str | None = None, **options: Any) -> Environment:
    """An environment by its name, `multi_color_sum`, or address, with these options.

    `label` is what it is called in tables.

    `.batch(n, seed=0)` gives samples with targets and signed truth; `.model` and `.dataset` are
    what `assay.benchmark(env.model, env.dataset)` takes. The truth is that of `.model`; `.net`, its
    bare network, may give another output.

    Raises:
        InputError: There is no such environment, or an option is not what was expected.
    """
    return build(name, options, label)


def build(name: str, options: Mapping[str, Any], label: str | None = None) -> Environment:
    """An environment as a suite writes it, called by its label."""
    plugin = registry.get("environment", name)
    configured = plugin.configure(options)
    made = plugin.function(**configured)
    if not isinstance(made, Environment):
        raise InputError(
            f"Expected environment `{name}` to give an `assay.Environment`, got "
            f"{type(made).__name__}. `assay new environment NAME` writes one to begin with."
        )
    if not isinstance(made.model, Model):
        raise InputError(
            f"Expected the `model` of environment `{name}` to be an `assay.Model`, got "
            f"{type(made.model).__name__}. Make one with `assay.model(net)`."
        )
    # Where a network is trained and its weights are kept says nothing of what is measured.
    shown = {o: _shown(v) for o, v in configured.items() if o not in ("cache", "device")}
    called = label or registry.label(plugin.name, shown, plugin.defaults)
    return replace(made, name=called, model=replace(made.model, name=called))


def _shown(value: Any) -> Any:
    """An option as it reads in a label: what lives in this process only, by its name."""
    if isinstance(value, Mapping) and len(value) == 1:
        options = next(iter(value.values()))
        path = options.get("path") if isinstance(options, Mapping) else None
        return Path(path).stem if path else value  # what a file is called says more
    if isinstance(value, tuple | list):
        return "data" if any(hasattr(part, "shape") for part in value) else value
    if value is None or isinstance(value, str | int | float | Mapping):
        return value
    named = getattr(value, "name", None) or getattr(value, "__name__", None)
    return str(named or type(value).__name__)
