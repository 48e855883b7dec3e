"""The networks of a run as they are run: each is prepared once, with the first sample it sees."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assay.errors import InputError
from assay.models.prepare import Prepared, prepare_network
from assay.types import Model


@dataclass
class Networks:
    """What preparing the models of a run found, by their labels."""

    prepared: dict[str, Prepared] = field(default_factory=dict)

    def ready(self, label: str, model: Model, inputs: Tensor, dataset: str) -> Prepared:
        """A model's network as it is run; looked at once, with the first of these inputs.

        Raises:
            InputError: It cannot run on such inputs.
        """
        if label not in self.prepared:
            try:
                with model.evaluating(), torch.no_grad():
                    self.prepared[label] = prepare_network(model, inputs[:1])
            except RuntimeError as error:
                raise InputError(
                    f"Model `{label}` cannot run on inputs of shape {tuple(inputs.shape[1:])} "
                    f"from `{dataset}`: {error}"
                ) from error
        return self.prepared[label]

    def shrink(self, label: str, micro_batch: int) -> None:
        """Let the next shard begin with the micro-batch that the last one ended with."""
        ready = self.prepared[label]
        if micro_batch < ready.model.micro_batch:
            model = replace(ready.model, micro_batch=micro_batch)
            self.prepared[label] = replace(ready, model=model)

    def changes(self, label: str) -> tuple[str, ...]:
        """What was done to a network to make it faster; nothing where it was not needed."""
        return self.prepared[label].changes if label in self.prepared else ()
