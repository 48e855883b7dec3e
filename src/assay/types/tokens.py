"""From texts to model inputs: token ids, special tokens, and how a network takes them."""

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
    """A forward hook that is always removed afterwards."""
    handle = module.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class Tokens:
    """How a network interprets token ids.

    A padded position is hidden from attention and keeps its position: absent tokens become `pad`.

    A network whose `forward` takes `input_ids` and `attention_mask`, as in `transformers`, gets
    both by name. Any other network gets the ids alone. `named` overrides this.
    """

    pad: int
    mask: int | None = None
    special: frozenset[int] = frozenset()  # never removed: begin, separator; `pad` is always one
    embedding: str = ""  # the embedding module; gradients are taken at its output
    named: bool | None = None  # passed as `input_ids=`, `attention_mask=`; None = from `forward`
    first_position: int | None = None  # first explicit position; None = the network's default

    def settled(self, net: nn.Module) -> "Tokens":
        """The same, with `named` determined from the network's `forward`."""
        return self if self.named is not None else replace(self, named=_takes_mask(net))

    def special_at(self, ids: Tensor) -> Tensor:  # [B, T]
        """The positions of special tokens and padding."""
        return torch.isin(ids, torch.tensor(sorted({self.pad, *self.special}), device=ids.device))

    def check(self, net: nn.Module, ids: Tensor, samples: Sequence[str]) -> None:
        """Reject ids outside the network's vocabulary.

        Raises:
            InputError: An id is negative, or not below the size of the vocabulary.
        """
        size = getattr(net.get_submodule(self.embedding), "num_embeddings", None)
        if size is None:  # the user's own layer, of unknown size
            return
        unknown = (ids < 0) | (ids >= size)
        if bool(unknown.any()):
            row, place = unknown.nonzero()[0].tolist()
            raise InputError(
                f"Expected token ids from 0 to {size - 1}, the vocabulary of `{self.embedding}`, "
                f"got {int(ids[row, place])} in sample `{samples[row]}` at token {place}. Use "
                f"the tokenizer that belongs to the network."
            )

    def embed(self, net: nn.Module, ids: Tensor) -> Tensor:  # [B, T, D]
        """The word embeddings, before anything is added to them."""
        embeddings: Tensor = net.get_submodule(self.embedding)(ids)
        return embeddings.detach()

    def read(self, net: nn.Module, ids: Tensor, at: Tensor | None = None) -> Any:
        """The network's output for these ids; `at` replaces their embeddings."""
        if at is not None:
            with hooked(net.get_submodule(self.embedding), lambda _, __, ___: at):
                return self.read(net, ids)
        if not self.named:
            return net(ids)
        arguments = {"input_ids": ids, "attention_mask": (ids != self.pad).long()}
        if self.first_position is not None:
            places = torch.arange(ids.shape[1], device=ids.device) + self.first_position
            arguments["position_ids"] = places.expand_as(ids)
        return net(**arguments)


def _takes_mask(net: nn.Module) -> bool:
    try:
        taken = inspect.signature(net.forward).parameters
    except (TypeError, ValueError):  # compiled code may have no signature
        return False
    return {"input_ids", "attention_mask"} <= taken.keys()


@dataclass(frozen=True)
class Tokenize:
    """How a network turns a text into its input: token ids, padded to one length."""

    encode: Callable[[str], list[int]] = field(repr=False)  # with special tokens, cut to `longest`
    tokens: Tokens
    longest: int
    identity: str = ""  # identifies the tokenizer
    length: int | None = None  # padded length; in a run, that of the longest text of the dataset
    decode: Callable[[list[int]], list[str]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Identify a tokenizer without an `identity` by its code."""
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

    def sizes(self, texts: list[str]) -> list[int]:
        """The number of tokens of each text; `encode` may encode all at once in `encode.many`."""
        many: Callable[[list[str]], list[list[int]]] | None = getattr(self.encode, "many", None)
        return [len(ids) for ids in (many(texts) if many else map(self.encode, texts))]

    def words(self, ids: Tensor) -> list[str]:
        """The tokens as text."""
        numbers = [int(i) for i in ids]
        return self.decode(numbers) if self.decode else [str(i) for i in numbers]
