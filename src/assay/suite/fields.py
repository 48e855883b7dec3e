"""Parts of a suite: the noise and reduction of a method, the cut of a time budget."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.errors import InputError

Reduce = Literal["sum", "abs_sum", "sum_abs", "square", "none"]
REDUCTION: dict[str, Any] = {"reduce": "sum", "abs": False}  # options of every method


class Noise(BaseModel):
    """How a gradient method runs on noisy copies of its input and how their maps are combined."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["smoothgrad", "smoothgrad_sq", "vargrad"] = "smoothgrad"
    """The mean of the maps, the mean of their squares, or their variance."""
    samples: int = Field(default=25, ge=1)
    sigma: float = Field(default=0.15, gt=0)
    relative: bool = True
    """Whether sigma is a share of the input's range, largest minus smallest value."""


class Cut(BaseModel):
    """How a suite was reduced to fit a time budget; a resumed run is reduced in the same way."""

    seconds: float
    """The time budget."""
    asked: str
    """The identity of the suite before it was reduced."""
    limit: int | None = None
    halvings: int = 0
    """How often steps and sets were halved."""
    over: bool = False
    """Whether even the smallest suite was expected to take longer."""


def take_reduction(options: dict[str, Any]) -> dict[str, Any]:
    """Take `reduce` and `abs` out of a method's options."""
    reduction = {name: options.pop(name, default) for name, default in REDUCTION.items()}
    if reduction["reduce"] not in Reduce.__args__:  # type: ignore[attr-defined]
        raise InputError(
            f"Expected `reduce` to be one of {', '.join(Reduce.__args__)}, "  # type: ignore[attr-defined]
            f"got {reduction['reduce']!r}."
        )
    if not isinstance(reduction["abs"], bool):
        raise InputError(f"Expected `abs` to be true or false, got {reduction['abs']!r}.")
    return reduction
