"""What explaining one sample costs."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Passes:
    """What one sample costs: network passes forward, and how often a gradient goes back.

    A gradient that goes back only a part of the way counts as one. None where it depends on the
    sample or the network: on its segments, channels or tokens, or on how soon a map is good enough.
    """

    forward: int | None = 0
    backward: int | None = 0
    by: str = ""  # where it is None, what decides, in few words: "channels + 1"
    once: int = 0  # samples of the data that pass forward before the first, for all of them
    finding: str = ""  # what these tell: methods that want the same share them

    def times(self, copies: int) -> "Passes":
        """The cost of explaining so many copies."""
        both = (self.forward, self.backward)
        forward, backward = (None if count is None else count * copies for count in both)
        return replace(self, forward=forward, backward=backward)
