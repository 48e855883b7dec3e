"""What enters a transformer's blocks, told by the way that operations take from one another."""

from collections.abc import MutableMapping
from typing import TypeGuard

from torch import Tensor
from torch.utils import _pytree as tree
from torch.utils.weak import WeakTensorKeyDictionary

from assay.errors import NotApplicable
from assay.methods.attending import Attending
from assay.methods.call_types import Arguments, Keywords, Operator, Returned


class Entering(Attending):
    """While a network runs: its operations by number, and which take from which.

    The point it is run at is number 0; only what depends on it counts.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """For a network that is given so many samples."""
        super().__init__(rows, start, leaf)
        self.number = 0
        self.single = {0}  # operations that give one tensor
        self._taken: dict[int, set[int]] = {}  # from which other operations one takes
        # Which operation gave a tensor.
        self._made: MutableMapping[Tensor, int] = WeakTensorKeyDictionary()
        self._attends: list[int] = []  # the operations that are attentions

    def begin(self, at: Tensor) -> Tensor:
        """The point, as one whose traces can be followed."""
        at = at.detach().requires_grad_(True).clone()  # into a leaf nothing could be written
        self._made[at] = 0
        return at

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """What an operation gives, noted with what it takes."""
        result = func(*args, **kwargs)
        self.number += 1
        given = [t for t in tree.tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        taken = {self._made[t] for t in tree.tree_leaves((args, kwargs)) if self._knows(t)}
        if given and taken:
            self._taken[self.number] = taken
            self.single |= {self.number} if isinstance(result, Tensor) else set()
            for tensor in given:
                self._made[tensor] = self.number
        return result

    def take(self, attention: Tensor) -> Tensor:
        """The next layer attends."""
        self._attends.append(self._made.get(attention, 0))
        attention = super().take(attention)
        self._made[attention] = self._attends[-1]  # of a leaf as well
        return attention

    def attends_to(self, tensor: Tensor) -> bool:
        """Whether the last attention was computed from a tensor."""
        return self._knows(tensor) and self._made[tensor] in self._behind(self._attends[-1])

    def entry(self, logits: Tensor) -> int:
        """The operation that gives what enters the first block.

        It is the last before the first attention that all ways to the answer lead through: in the
        block some go through the attention and one past it.

        Raises:
            NotApplicable: No way leads past the attention.
        """
        last: dict[int, int] = {}  # who takes last from an operation, on the way to the answer
        way = sorted(self._behind(self._made[logits]))
        for number in way:
            last |= dict.fromkeys(self._taken.get(number, ()), number)
        found = reached = 0
        for number in way:
            if number >= self._attends[0]:
                break
            if reached <= number and number in self.single:
                found = number
            reached = max(reached, last[number])
        if last[found] <= self._attends[0]:
            raise NotApplicable(
                "What enters its first block cannot be told: nothing of it passes the first "
                "attention by, to be added to what that gives."
            )
        return found

    def _behind(self, number: int) -> set[int]:
        """An operation and all that it depends on."""
        found, ahead = set(), [number]
        while ahead:
            number = ahead.pop()
            if number not in found:
                found.add(number)
                ahead.extend(self._taken.get(number, ()))
        return found

    def _knows(self, part: object) -> TypeGuard[Tensor]:
        return isinstance(part, Tensor) and part in self._made


class Scaled(Attending):
    """While a network runs: what one of its operations gives is scaled, 0 the point itself."""

    def __init__(self, rows: int, start: int, operation: int, share: float) -> None:
        """For a network that is given so many samples."""
        super().__init__(rows, start)
        self.operation, self.share, self.number = operation, share, 0

    def begin(self, at: Tensor) -> Tensor:
        """The point itself."""
        return at if self.operation else at * self.share

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """What an operation gives; that of one, scaled."""
        result = func(*args, **kwargs)
        self.number += 1
        return result * self.share if self.number == self.operation else result
