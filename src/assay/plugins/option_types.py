"""Types that options of several plug-ins share; `assay.plugins.options` describes them."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

Options = Mapping[str, Any]  # the options of a plug-in by name
Item = str | Mapping[str, Options]  # a plug-in as a suite writes it: a name, or {name: options}

Count = Annotated[int, Field(ge=1, le=1_000_000)]  # more would take days, or all memory
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]

# The types of shares differ in whether 0 and 1 are allowed.
Share = Annotated[float, Field(gt=0, le=1)]
ShareBelowOne = Annotated[float, Field(ge=0, lt=1)]
InnerShare = Annotated[float, Field(gt=0, lt=1)]

Output = Literal["logit", "probability", "log_odds"]  # which output of the model is used
