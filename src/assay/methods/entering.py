"""The input of a transformer's first block, found from the graph of its operations."""

from collections.abc import MutableMapping
from typing import TypeGuard

from torch import Tensor
from torch.utils import _pytree as tree
from torch.utils.weak import WeakTensorKeyDictionary

from assay.errors import NotApplicable
from assay.methods.attending import Attending
from assay.methods.call_types import Arguments, Keywords, Operator, Returned


class Entering(Attending):
    """Watch a running network: number its operations, and record which use the results of which.

    The point it runs at is number 0; only operations that depend on it count.
    """

    def __init__(self, rows: int, start: int = 0, leaf: int | None = None) -> None:
        """`rows` is the number of samples in a pass."""
        super().__init__(rows, start, leaf)
        self.number = 0
        self.single = {0}  # operations that return one tensor
        self._inputs_of: dict[int, set[int]] = {}  # the operations whose results an operation uses
        # The operation that returned a tensor.
        self._maker: MutableMapping[Tensor, int] = WeakTensorKeyDictionary()
        self._attends: list[int] = []  # the operations that are attentions

    def begin(self, at: Tensor) -> Tensor:
        """The point as a tensor whose use can be followed."""
        at = at.detach().requires_grad_(True).clone()  # a leaf cannot be written into
        self._maker[at] = 0
        return at

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """The result of an operation, recorded with what it uses."""
        result = func(*args, **kwargs)
        self.number += 1
        made = [t for t in tree.tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
        used = {self._maker[t] for t in tree.tree_leaves((args, kwargs)) if self._knows(t)}
        if made and used:
            self._inputs_of[self.number] = used
            self.single |= {self.number} if isinstance(result, Tensor) else set()
            for tensor in made:
                self._maker[tensor] = self.number
        return result

    def take(self, attention: Tensor) -> Tensor:
        """Record the attention of the next layer."""
        self._attends.append(self._maker.get(attention, 0))
        attention = super().take(attention)
        self._maker[attention] = self._attends[-1]  # also if it became a leaf
        return attention

    def attends_to(self, tensor: Tensor) -> bool:
        """Whether the last attention was computed from this tensor."""
        return self._knows(tensor) and self._maker[tensor] in self._behind(self._attends[-1])

    def entry(self, logits: Tensor) -> int:
        """The operation that returns the input of the first block.

        It is the last one before the first attention that all paths to the output go through:
        inside the block some paths go through the attention and one goes around it.

        Raises:
            NotApplicable: No path goes around the attention.
        """
        last: dict[int, int] = {}  # the last operation that uses the result of another one
        path = sorted(self._behind(self._maker[logits]))
        for number in path:
            last |= dict.fromkeys(self._inputs_of.get(number, ()), number)
        entry = reached = 0
        for number in path:
            if number >= self._attends[0]:
                break
            if reached <= number and number in self.single:
                entry = number
            reached = max(reached, last[number])
        if last[entry] <= self._attends[0]:
            raise NotApplicable(
                "The input of the network's first block cannot be found: no residual branch goes "
                "around the first attention."
            )
        return entry

    def _behind(self, number: int) -> set[int]:
        """An operation and all that it depends on."""
        behind, ahead = set(), [number]
        while ahead:
            number = ahead.pop()
            if number not in behind:
                behind.add(number)
                ahead.extend(self._inputs_of.get(number, ()))
        return behind

    def _knows(self, part: object) -> TypeGuard[Tensor]:
        return isinstance(part, Tensor) and part in self._maker


class Scaled(Attending):
    """Watch a running network and scale the result of one operation; 0 is the point itself."""

    def __init__(self, rows: int, start: int, operation: int, share: float) -> None:
        """`rows` is the number of samples in a pass."""
        super().__init__(rows, start)
        self.operation, self.share, self.number = operation, share, 0

    def begin(self, at: Tensor) -> Tensor:
        """The point, scaled if it is operation 0."""
        return at if self.operation else at * self.share

    def operate(self, name: str, func: Operator, args: Arguments, kwargs: Keywords) -> Returned:
        """The result of an operation, scaled for the chosen one."""
        result = func(*args, **kwargs)
        self.number += 1
        return result * self.share if self.number == self.operation else result
