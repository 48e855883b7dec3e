"""The outputs of a forward pass that are stored."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Response:
    """The stored outputs of forward passes, each `[B, K]`; all else is computed from them."""

    logit: Tensor
    log_prob: Tensor
    predicted: Tensor

    @property
    def probability(self) -> Tensor:
        """The probability of the target."""
        return self.log_prob.exp()

    @property
    def log_odds(self) -> Tensor:
        """The log-odds of the target."""
        return self.log_prob - torch.log(-torch.expm1(self.log_prob.clamp(max=-1e-16)))

    def output(self, name: str) -> Tensor:
        """One of `logit`, `probability`, `log_odds`."""
        value: Tensor = getattr(self, name)
        return value

    def columns(self, start: int, stop: int | None = None) -> "Response":
        """The responses of a range of rows."""
        part = slice(start, stop)
        return Response(self.logit[:, part], self.log_prob[:, part], self.predicted[:, part])
