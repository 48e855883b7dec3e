"""Between texts and model inputs: token ids, which are special, how a network reads them."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.plugins.identity import code_identity


@contextlib.contextmanager
def hooked(module: nn.Module, hook: Callable[[nn.Module, Any, Any], Any]) -> Iterator[None]:
    """A forward hook that is gone afterwards, whatever happens."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Tokens:
    """What token ids mean to a network.

    A padded position is hidden from attention and keeps its place: absent tokens become `pad`.

    A network whose `forward` takes `input_ids` and `attention_mask`, as those of `transformers` do,
    is given both by these names; any other one the ids alone. `named` says it where that is wrong.
    """

    pad: int
    mask: int | None = None
    special: frozenset[int] = frozenset()  # never removed: begin, separator; `pad` is one anyway
    embedding: str = ""  # the module that looks words up; gradients are taken at its output
    named: bool | None = None  # fed as `input_ids=` and `attention_mask=`; None = as `forward` says
    first_position: int | None = None  # where explicit positions start; None = the network's way

    def settled(self, net: nn.Module) -> "Tokens":
        """The same, with `named` as the network's `forward` takes its arguments."""
        return self if self.named is not None else replace(self, named=_takes_mask(net))

    def special_at(self, ids: Tensor) -> Tensor:  # [B, T]
        """Where special tokens and padding stand."""
        return torch.isin(ids, torch.tensor(sorted({self.pad, *self.special}), device=ids.device))

    def check(self, net: nn.Module, ids: Tensor, samples: Sequence[str]) -> None:
        """Refuse ids that the network has no word for.

        Raises:
            InputError: An id is negative, or not below the size of the vocabulary.
        """
        size = getattr(net.get_submodule(self.embedding), "num_embeddings", None)
        if size is None:  # a layer of the user's own, which does not tell
            return
        unknown = (ids < 0) | (ids >= size)
        if bool(unknown.any()):
            row, place = unknown.nonzero()[0].tolist()
            raise InputError(
                f"Expected token ids from 0 to {size - 1}, the vocabulary of `{self.embedding}`, "
                f"got {int(ids[row, place])} in sample `{samples[row]}` at token {place}. Give "
                f"the tokenizer that belongs to the network."
            )

    def embed(self, net: nn.Module, ids: Tensor) -> Tensor:  # [B, T, D]
        """The word embeddings, before anything is added to them."""
        found: Tensor = net.get_submodule(self.embedding)(ids)
        return found.detach()

    def read(self, net: nn.Module, ids: Tensor, at: Tensor | None = None) -> Any:
        """What the network gives for these ids, with `at` in the place of their embeddings."""
        if at is not None:
            with hooked(net.get_submodule(self.embedding), lambda _, __, ___: at):
                return self.read(net, ids)
        if not self.named:
            return net(ids)
        told = {"input_ids": ids, "attention_mask": (ids != self.pad).long()}
        if self.first_position is not None:
            places = torch.arange(ids.shape[1], device=ids.device) + self.first_position
            told["position_ids"] = places.expand_as(ids)
        return net(**told)


def _takes_mask(net: nn.Module) -> bool:
    try:
        taken = inspect.signature(net.forward).parameters
    except (TypeError, ValueError):  # compiled code may not say
        return False
    return {"input_ids", "attention_mask"} <= taken.keys()


@dataclass(frozen=True)
class Tokenize:
    """A network's own way from a text to its input: token ids, padded to one length."""

    encode: Callable[[str], list[int]] = field(repr=False)  # with special tokens, cut to `longest`
    tokens: Tokens
    longest: int
    identity: str = ""  # tells one tokenizer from another
    length: int | None = None  # padded to this; the longest text of the dataset in a run
    decode: Callable[[list[int]], list[str]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """A tokenizer that says nothing of itself is known by its code."""
        if not self.identity:
            object.__setattr__(self, "identity", code_identity(self.encode))

    def __call__(self, text: str, what: str = "the text") -> Tensor:  # [T]
        """The text as the network's input."""
        ids = self.encode(text)[: self.length or self.longest]
        row = torch.full((self.length or len(ids),), self.tokens.pad)
        row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        if bool(self.tokens.special_at(row).all()):
            raise InputError(
                f"Expected words in {what}, got a text of only special tokens: {text[:40]!r}. "
                f"Nothing in it can be removed; drop it."
            )
        return row

    def words(self, ids: Tensor) -> list[str]:
        """The tokens as they read."""
        numbers = [int(i) for i in ids]
        return self.decode(numbers) if self.decode else [str(i) for i in numbers]
