"""A plug-in as a suite writes it."""

from collections.abc import Mapping
from typing import Any

Options = Mapping[str, Any]  # by name; the plug-in's signature has their types
Item = str | Mapping[str, Options]  # a name, or {name: options}
