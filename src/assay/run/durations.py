"""Times as users write them, such as `90s` and `10min`, and as they read them."""

import math
import re

from assay.errors import InputError

UNITS = {"s": 1, "sec": 1, "min": 60, "m": 60, "h": 3600}


def seconds_of(time: str | float, what: str = "budget") -> float:
    """The seconds of a time such as `90s`, given as `what`.

    Raises:
        InputError: It is not a time, or not above 0.
    """
    if isinstance(time, bool) or not isinstance(time, str | int | float):
        raise InputError(
            f"Expected `{what}` to be a time such as `90s`, `10min` or `2h`, got "
            f"{type(time).__name__}."
        )
    if isinstance(time, float):
        time = f"{time:f}"
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-z]*)\s*", str(time))
    unit = match and (match[2] or "s")
    if not match or unit not in UNITS or not 0 < float(match[1]) < math.inf:
        raise InputError(
            f"Expected `{what}` to be a time such as `90s`, `10min` or `2h`, got {time!r}."
        )
    return float(match[1]) * UNITS[str(unit)]


def duration(seconds: float) -> str:
    """A readable time, such as `1 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (rest if not hours else 0, "s")]
    return " ".join(f"{n} {unit}" for n, unit in parts if n)
