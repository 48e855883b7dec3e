"""Parts of a suite: the noise and reduction of a method, the cut of a time budget."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.errors import InputError
from assay.plugins.options import not_a_number

Reduce = Literal["sum", "abs_sum", "sum_abs", "square", "none"]
REDUCTION: dict[str, Any] = {"reduce": "sum", "abs": False}  # options of every method


class Noise(BaseModel):
    """How a gradient method runs on noisy copies of its input and how their maps are combined."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["smoothgrad", "smoothgrad_sq", "vargrad"] = "smoothgrad"
    """The mean of the maps, the mean of their squares, or their variance."""
    samples: int = Field(default=25, ge=1, le=1_000_000)
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
    if str(reduction["reduce"]) not in Reduce.__args__:  # type: ignore[attr-defined]
        raise InputError(
            f"Expected `reduce` to be one of {', '.join(Reduce.__args__)}, "  # type: ignore[attr-defined]
            f"got {reduction['reduce']!r}."
        )
    if not isinstance(reduction["abs"], bool):
        raise InputError(f"Expected `abs` to be true or false, got {reduction['abs']!r}.")
    return reduction


def take_noise(plugin: Any, options: dict[str, Any]) -> Noise | None:
    """Take `noise` out of a method's options; missing fields come from the preset.

    Raises:
        InputError: A field is unknown, or not of its type.
    """
    if not getattr(plugin, "noise", False):
        return None
    noise = options.pop("noise", None)
    if noise is None or isinstance(noise, Noise):
        return noise
    try:
        fields = {**plugin.preset.get("noise", {}), **noise}
        read = Noise.model_validate(fields)
    except (ValidationError, TypeError) as error:
        why = error.errors()[0] if isinstance(error, ValidationError) else None
        where = "".join(f".{part}" for part in why["loc"]) if why else ""
        raise _wrong(plugin.name, where, why["msg"] if why else str(error)) from None
    for name, value in fields.items():
        if got := not_a_number(value, getattr(read, name)):
            raise _wrong(plugin.name, f".{name}", f"Input should be a finite number, got {got}")
    return read


def _wrong(method: str, where: str, why: str) -> InputError:
    return InputError(
        f"Wrong `noise{where}` of method `{method}`: {why}. "
        f"Expected {{kind: smoothgrad | smoothgrad_sq | vargrad, samples: n, sigma: s}}."
    )


def changed_noise(noise: Noise | None, usual: Noise | None) -> Any:
    """The fields of the noise that a label must show."""
    if noise is None:
        return {} if usual is None else None
    before = (usual or Noise()).model_dump()
    changed = {name: value for name, value in noise.model_dump().items() if value != before[name]}
    return changed or ({} if usual else {"kind": noise.kind})
