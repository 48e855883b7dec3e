"""The input of a set protocol: the scored and the training samples, their maps, and training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from assay.types.batch import Batch
from assay.types.dataset import Dataset
from assay.types.model import Model

Split = Literal["scored", "train"]
ROWS = 512  # samples per forward pass of `predict`


class ReadBatch(Protocol):
    """Reads all samples of a split."""

    def __call__(self, split: Split = "scored") -> Batch:
        """The samples of a split, prepared for the scored model."""
        ...


class ReadMaps(Protocol):
    """Reads the method's maps of all samples of a split."""

    def __call__(self, split: Split = "scored", model: str | None = None) -> Tensor:
        """The maps `[N, *map_shape]` for the scored model, or for another one of the pool."""
        ...


class Fit(Protocol):
    """Trains a network, once: the same network, data, settings and seed are not trained again."""

    def __call__(
        self,
        inputs: Tensor,
        labels: Tensor,
        *,
        epochs: int,
        seed: int = 0,
        network: nn.Module | None = None,
        **recipe: int | float | str | bool,
    ) -> Model:
        """A trained network.

        Args:
            inputs: The samples `[N, ...]` as the network takes them.
            labels: Their classes `[N]`.
            epochs: How often each sample is seen.
            seed: The seed of the first weights and of the order of the samples.
            network: The network to start from, which is copied; by default the scored model's
                architecture with new random weights.
            **recipe: Other settings of `assay.training.fitting.Recipe`: `batch`, `rate`, ...
        """
        ...


@dataclass(frozen=True)
class Trial:
    """All that a set protocol sees: one method, its maps, the samples, and a way to train.

    Attributes:
        dataset: The data set whose samples are scored.
        train: Its training split; None where the suite has none.
        model: The model whose maps are scored.
        models: The pool by label; only `model`, unless the protocol declares `models="pool"`.
        batch: Reads all samples of a split, in the order of its maps.
        maps: Reads the method's maps of a split. Maps with NaN or inf are zero.
        fit: Trains a network.
        seed: The seed of the run.
    """

    dataset: Dataset
    train: Dataset | None
    model: Model
    models: Mapping[str, Model]
    batch: ReadBatch
    maps: ReadMaps
    fit: Fit
    seed: int = 0

    @torch.no_grad()
    def predict(self, model: Model, inputs: Tensor) -> Tensor:  # [N]
        """The class that a network predicts for each of these inputs, on the inputs' device."""
        model.net.eval()
        chunks = torch.split(inputs, ROWS)
        parts = [model.logits(part.to(model.device)).argmax(1) for part in chunks]
        return torch.cat(parts).to(inputs.device)
