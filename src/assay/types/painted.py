"""Things in images that can be left out, because the images are painted from them."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Parts:
    """Things in the images of a dataset that can be left out: they are painted anew without them.

    A part may be seen in several pieces, as a pair of wings is. Behind its parts a sample has as
    many things around it as `things` says, numbered after the parts, their pieces after the pieces.
    """

    names: tuple[str, ...]
    pieces: tuple[int, ...]  # the part of each piece
    classes: Tensor  # [classes, parts]: the variant each class has of each part
    places: Callable[[str], Tensor] = field(repr=False)  # id -> [H, W]: pieces; -1 = nobody's
    things: Callable[[str], int] = field(repr=False)  # id -> how many
    without: Callable[[str, frozenset[int]], Tensor] = field(repr=False)  # id, absent -> input
