"""Parts of rendered images, which can be rendered again without them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Parts:
    """Parts of the images of a dataset; the images can be painted again without them.

    A part may have several pieces, such as a pair of wings. A sample also has `things` in the
    background. They are numbered after the parts, and their pieces after the pieces of the parts.
    """

    names: tuple[str, ...]
    pieces: tuple[int, ...]  # the part of each piece
    classes: Tensor  # [classes, parts]: the variant each class has of each part
    places: Callable[[str], Tensor] = field(repr=False)  # id -> [H, W]: pieces; -1 = none
    things: Callable[[str], int] = field(repr=False)  # id -> how many
    without: Callable[[str, frozenset[int]], Tensor] = field(repr=False)  # id, absent -> input
