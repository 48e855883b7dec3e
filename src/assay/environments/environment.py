"""An environment: a network, samples for it, and what is truly relevant in each of them."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from assay import registry
from assay.errors import InputError
from assay.types import Batch, Dataset, Model


@dataclass(frozen=True, eq=False)
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
    draw: Callable[[int, int], Dataset] = field(repr=False)
    samples: int = 100
    card: Mapping[str, Any] = field(default_factory=dict, repr=False)
    read: Callable[[Tensor], tuple[Tensor, Tensor]] | None = field(default=None, repr=False)

    @property
    def net(self) -> nn.Module:
        """The network itself."""
        return self.model.net

    @functools.cached_property
    def dataset(self) -> Dataset:
        """The samples a run takes."""
        return replace(self.draw(self.samples, 0), name=self.name)

    def batch(self, n: int, seed: int = 0) -> Batch:
        """`n` samples with targets and truth, others for another seed."""
        if not isinstance(n, int) or n < 1:
            raise InputError(f"Expected `n` to be a whole number of at least 1, got {n}.")
        if not isinstance(seed, int) or seed < 0:
            raise InputError(f"Expected `seed` to be a whole number of at least 0, got {seed}.")
        drawn = self.draw(n, seed)
        batch = drawn.batch(drawn.ids, self.model.prepare, seed=seed, pixels=self.model.pixels)
        # A network with one output explains that one.
        targets = batch.targets if batch.labels is not None else torch.zeros(n, dtype=torch.long)
        return replace(batch, targets=targets)


def environment(name: str, *, label: str | None = None, **options: Any) -> Environment:
    """An environment by its name, `multi_color_sum`, or address, with these options.

    `label` is what it is called in tables.

    `.net` is its network, `.batch(n, seed=0)` gives samples with targets and signed truth,
    `.dataset` is what `assay.benchmark(env.model, env.dataset)` takes.

    Raises:
        InputError: There is no such environment, or an option is not what was expected.
    """
    return build(name, options, label)


def build(name: str, options: Mapping[str, Any], label: str | None = None) -> Environment:
    """An environment as a suite writes it, called by its label."""
    plugin = registry.get("environment", name)
    configured = plugin.configure(options)
    made: Environment = plugin.function(**configured)
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
