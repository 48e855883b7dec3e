"""How a protocol names its set-level reduction: by a name, by a function, or by an address."""

from collections.abc import Callable
from typing import Any

from assay.errors import InputError
from assay.plugins.addresses import is_address, load_object

# `mean`; a name in `assay.ranking.reductions`; or the user's own function
# `(curves, x, weights, *, options) -> values`, itself or by its address.
SetReduction = str | Callable[..., Any]


def own_reduction(reduce: SetReduction) -> Callable[..., Any] | None:
    """The user's own function; None for the name of a reduction of this package.

    Raises:
        InputError: It is neither a function nor the address of one.
    """
    if isinstance(reduce, str) and not is_address(reduce):
        return None
    own = load_object(reduce)[0] if isinstance(reduce, str) else reduce
    if not callable(own):
        raise InputError(
            f"Expected `reduce` to be a function `(curves, x, weights) -> values`, its address or "
            f"the name of a reduction, got {reduce!r}."
        )
    function: Callable[..., Any] = own
    return function


def reduction_name(reduce: SetReduction) -> str:
    """The name of a reduction, or the address (with a colon) of a user's own."""
    if isinstance(reduce, str):
        return reduce
    name = getattr(reduce, "__qualname__", type(reduce).__qualname__)
    return f"{reduce.__module__}:{name}"
