"""Settings of a run that do not change its results."""

from dataclasses import dataclass, field

from assay.errors import InputError
from assay.plan.plan import IDENTITY

MOST_ROWS, MOST_WORKERS = 2**20, 4096  # no machine has use for more


@dataclass(frozen=True)
class Settings:
    """How a run is executed. None of these enters a key, except the version of the keys."""

    folder: str
    device: str | None = None
    keep_maps: bool = True
    micro_batch: dict[str, int] = field(default_factory=dict)
    identity: int = IDENTITY  # the version of the keys


def whole_setting(name: str, value: object, most: int) -> None:
    """Refuse a setting that is not a whole number from 1 to `most`, or None.

    Raises:
        InputError: It is something else.
    """
    if value is not None and (type(value) is not int or not 1 <= value <= most):
        raise InputError(
            f"Expected `{name}` to be a whole number of at least 1 and at most {most}, got "
            f"{value!r}."
        )


def true_or_false(**settings: object) -> None:
    """Refuse settings that are neither true nor false: "false" as a text would count as true.

    Raises:
        InputError: One of them is something else.
    """
    for name, value in settings.items():
        if not isinstance(value, bool):
            raise InputError(f"Expected `{name}` to be true or false, got {value!r}.")
