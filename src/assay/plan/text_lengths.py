"""How long the texts of a dataset are in tokens, found once per run."""

from collections.abc import Iterator

from assay.plugins.identity import lasts
from assay.progress import slow_bar
from assay.store.data_facts import DataFacts
from assay.types import Dataset, Tokenize

AT_A_TIME = 1000  # texts encoded together


def longest_text(dataset: Dataset, prepare: Tokenize, facts: DataFacts) -> int:
    """The number of tokens of a dataset's longest text, at most `longest` of the tokenizer.

    It is looked up in the facts, or found and added to them. That of a tokenizer which only this
    process can tell from others is not stored.
    """
    key = f"{dataset.fingerprint} {prepare.identity} {prepare.longest}"
    known: dict[str, int] = facts.lengths if lasts(key) else facts.passing
    if key not in known:
        known[key] = _find(dataset, prepare, facts.progress)
    return known[key]


def _find(dataset: Dataset, prepare: Tokenize, progress: bool) -> int:
    sizes: list[int] = []
    with slow_bar(f"tokenizing {dataset.name}", len(dataset.ids), progress) as done:
        for texts in _parts(dataset):
            sizes = [max([*sizes, *prepare.sizes(texts)])]
            done(len(texts))
            if sizes[0] >= prepare.longest:
                break
    return min(max(sizes, default=1), prepare.longest)


def _parts(dataset: Dataset) -> Iterator[list[str]]:
    """The texts, some at a time; none where the samples are token ids already."""
    for start in range(0, len(dataset.ids), AT_A_TIME):
        inputs = [dataset.fetch(i).input for i in dataset.ids[start : start + AT_A_TIME]]
        texts = [text for text in inputs if isinstance(text, str)]
        if not texts:
            return
        yield texts
