"""A small classifier of texts: word embeddings, their mean or sum, one or two linear layers."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from assay.errors import InputError, PrerequisiteError
from assay.models.weights import load_weights, read_weights
from assay.paths import user_path
from assay.plugins.registry import model
from assay.types import Model
from assay.types.tokens import Tokenize, Tokens

SPECIAL = ("<pad>", "<mask>", "<unknown>", "<begin>", "<end>")
PAD, MASK, UNKNOWN, BEGIN, END = range(len(SPECIAL))
TOKENS = Tokens(PAD, MASK, frozenset({BEGIN, END}), embedding="embedding", named=False)
_WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Vocabulary:
    """Words by number, after the special tokens."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, texts: Sequence[str], most: int = 20_000) -> "Vocabulary":
        """The most frequent words of some texts."""
        counts = Counter(word for text in texts for word in _WORD.findall(text.lower()))
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls((*SPECIAL, *ranked[:most]))

    def tokenize(self, longest: int = 256) -> Tokenize:
        """From texts to ids."""
        number = {word: i for i, word in enumerate(self.words)}

        def encode(text: str) -> list[int]:
            ids = [number.get(word, UNKNOWN) for word in _WORD.findall(text.lower())]
            return [BEGIN, *ids[: longest - 2], END]

        identity = hashlib.sha256("\0".join(self.words).encode()).hexdigest()[:16]

        def decode(ids: Sequence[int]) -> list[str]:
            return [self.words[i] for i in ids]

        return Tokenize(encode, TOKENS, longest, identity=identity, decode=decode)


class TokenClassifier(nn.Module):
    """Logits from the mean, or the sum, of the embeddings of all words that are not padding.

    With `pool="sum"` and no hidden layer it is a bag of words: each word adds its own share.
    """

    def __init__(
        self,
        words: int,
        classes: int = 2,
        width: int = 32,
        hidden: int = 0,
        pool: Literal["mean", "sum"] = "mean",
    ) -> None:
        """A network for a number of words and classes."""
        super().__init__()
        self.pool = pool
        self.embedding = nn.Embedding(words, width)
        self.hidden = nn.Linear(width, hidden) if hidden else nn.Identity()
        self.relu = nn.ReLU() if hidden else nn.Identity()
        self.head = nn.Linear(hidden or width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] to logits [B, classes]."""
        seen = (ids != PAD)[..., None].to(self.head.weight.dtype)  # [B, T, 1]
        pooled = (self.embedding(ids) * seen).sum(1)
        if self.pool == "mean":
            pooled = pooled / seen.sum(1).clamp(min=1)
        logits: Tensor = self.head(self.relu(self.hidden(pooled)))
        return logits


def train_token_classifier(
    texts: Sequence[str],
    labels: Sequence[int],
    *,
    width: int = 32,
    hidden: int = 32,
    epochs: int = 5,
    seed: int = 0,
    name: str = "token_classifier",
) -> Model:
    """Train a small classifier of texts in seconds, for tests and examples."""
    if len(texts) != len(labels) or not texts:
        raise InputError(f"Expected as many labels as texts, got {len(labels)} and {len(texts)}.")
    vocabulary = Vocabulary.of(texts)
    prepare = vocabulary.tokenize()
    torch.manual_seed(seed)
    net = TokenClassifier(len(vocabulary.words), max(labels) + 1, width, hidden)
    ids = nn.utils.rnn.pad_sequence(
        [torch.tensor(prepare.encode(t)) for t in texts], batch_first=True, padding_value=PAD
    )
    targets = torch.tensor(labels)
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(ids)).split(64):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(ids[rows]), targets[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return _model(net, prepare, name)


@model("token_classifier", title="Classifier of texts")
def token_classifier(
    *,
    weights: str,
    vocabulary: str,
    pool: Literal["mean", "sum"] = "mean",
    longest: int = 256,
) -> Model:
    """A small classifier of texts, from its weights and a file with one word per line."""
    file = user_path(vocabulary, "`vocabulary`")
    if not file.is_file():
        raise PrerequisiteError(f"There is no vocabulary file `{file}`.")
    words = tuple(file.read_text(encoding="utf-8").splitlines())
    state = read_weights(weights)
    for needed in ("embedding.weight", "head.weight"):
        if needed not in state:
            raise InputError(f"Expected `{needed}` in `{weights}`, found {', '.join(state)}.")
    rows, width = state["embedding.weight"].shape
    if rows != len(words) or words[: len(SPECIAL)] != SPECIAL:
        raise InputError(
            f"Expected `{file}` to be the vocabulary of `{weights}`: {rows} lines that begin with "
            f"{', '.join(SPECIAL)}, got {len(words)} lines."
        )
    hidden = len(state["hidden.weight"]) if "hidden.weight" in state else 0
    net = TokenClassifier(rows, len(state["head.weight"]), width, hidden, pool)
    load_weights(net, weights)
    return _model(net, Vocabulary(words).tokenize(longest), "token_classifier")


def _model(net: TokenClassifier, prepare: Tokenize, name: str) -> Model:
    return Model(net.eval(), name, modality="text", prepare=prepare, tokens=TOKENS)
