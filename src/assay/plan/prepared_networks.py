"""The prepared networks of a run and their guards. Each is prepared once, with a first sample."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.engine.guard import Guard
from assay.errors import InputError, PrerequisiteError
from assay.models.prepare import Prepared, prepare_network
from assay.types import Model


@dataclass
class Networks:
    """The prepared models of a run, by label."""

    prepared: dict[str, Prepared] = field(default_factory=dict)
    guards: dict[str, Guard] = field(default_factory=dict)

    def ready(self, label: str, model: Model, inputs: Tensor, dataset: str) -> Prepared:
        """A model's prepared network. It is prepared once, with the first of these inputs.

        Raises:
            InputError: The network cannot run on these inputs.
        """
        if label not in self.prepared:
            try:
                with model.evaluating(), torch.no_grad():
                    self.prepared[label] = prepare_network(model, inputs[:1])
            except (InputError, PrerequisiteError):
                raise
            except Exception as error:  # of the user's network
                kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
                raise InputError(
                    f"Model `{label}` cannot run on inputs of shape {tuple(inputs.shape[1:])} "
                    f"from `{dataset}`: {kind}{' '.join(str(error).split())}"
                ) from error
        return self.prepared[label]

    def guard(self, label: str, model: Model) -> Guard:
        """The guard of a model's network, the same for all shards."""
        return self.guards.setdefault(label, Guard(model.net))

    def shrink(self, label: str, micro_batch: int) -> None:
        """Start the next shard with the micro-batch size at which the last one ended."""
        ready = self.prepared[label]
        if micro_batch < ready.model.micro_batch:
            model = replace(ready.model, micro_batch=micro_batch)
            self.prepared[label] = replace(ready, model=model)

    def changes(self, label: str) -> tuple[str, ...]:
        """The changes that made a network faster; empty if there were none."""
        return self.prepared[label].changes if label in self.prepared else ()
