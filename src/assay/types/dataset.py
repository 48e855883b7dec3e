"""Samples by id, and how they become batches."""

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from PIL import Image
from torch import Tensor

from assay.errors import InputError, PrerequisiteError
from assay.plugins.display_names import display_name
from assay.types.batch import Batch, Prepare
from assay.types.model import OutputRead
from assay.types.painted import Parts
from assay.types.pixels import Pixels, Preprocess
from assay.types.sample_content import content_of
from assay.types.tokens import Tokenize, Tokens

UPPER_BOUND = "upper_bound_truth"  # in a dataset's `has`: parts of its truth may be irrelevant


@dataclass(frozen=True)
class Sample:
    """One item of a dataset: an unprepared image or text, or a model's input."""

    input: Image.Image | Tensor | str
    label: int | None = None
    truth: Image.Image | Tensor | None = None
    baseline: Tensor | None = None


@dataclass(frozen=True)
class Dataset:
    """Samples by id. `fetch` reads one; `fingerprint` hashes the content, not the name."""

    name: str
    modality: str  # image | vector | text
    ids: tuple[str, ...]
    fetch: Callable[[str], Sample] = field(repr=False)
    fingerprint: str = ""
    has: frozenset[str] = frozenset({"labels"})
    groups: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[int, str] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict, repr=False)  # where known in advance
    numbering: str = "given"  # of the classes: given | declared (by the data) | sorted (names)
    note: str = ""  # how it was read, for the reader
    parts: Parts | None = field(default=None, repr=False)  # where images are painted from parts
    truth_of: OutputRead | None = field(default=None, repr=False, compare=False)  # environments
    splits: Mapping[str, "Dataset"] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject datasets that no run can use."""
        display_name(self.name, "the `name` of a dataset")
        if not self.ids:
            raise InputError(f"Expected dataset `{self.name}` to hold samples, got none.")
        if not self.fingerprint:
            raise InputError(
                f"Expected dataset `{self.name}` to have a `fingerprint`, a hash of its content: "
                f"results are stored under it."
            )
        if len(set(self.ids)) != len(self.ids):
            raise InputError(f"Expected the ids of dataset `{self.name}` to be unique.")

    def split(self, name: str) -> "Dataset":
        """Other samples of the same task, such as `train`.

        Raises:
            PrerequisiteError: There is no such split.
        """
        if name not in self.splits:
            raise PrerequisiteError(
                f"Dataset `{self.name}` has no split `{name}`. Give the training samples: `train:` "
                f"in a suite, `train=` in Python, `--train` on the command line."
            )
        return self.splits[name]

    def with_train(self, train: "Dataset") -> "Dataset":
        """The same samples with a training split.

        Its ids begin with `train/`, so they differ from those of the scored samples.

        Raises:
            InputError: The training samples are the scored ones, of another modality, or have no
                labels.
        """
        if train.fingerprint == self.fingerprint:
            raise InputError(
                f"Expected training samples other than the scored ones, got the same samples for "
                f"both in `{self.name}`."
            )
        if train.modality != self.modality:
            raise InputError(
                f"Expected the training samples of `{self.name}` to be {self.modality}s, got "
                f"{train.modality}s in `{train.name}`."
            )
        if "labels" not in train.has:
            raise InputError(
                f"Expected labels of the training samples in `{train.name}`, got none. Pass (X, y)."
            )
        splits = {**self.splits, "train": _prefixed(train, "train/")}
        return replace(self, splits=splits, has=self.has | {"training"})

    def drawn(self, limit: int | None) -> tuple[str, ...]:
        """All ids, or a fixed draw of `limit` of them with as many of each class as possible.

        A larger limit adds samples to those of a smaller one.
        """
        if limit is None or limit >= len(self.ids):
            return self.ids
        return self._drawing_order[:limit]

    @functools.cached_property
    def _drawing_order(self) -> tuple[str, ...]:
        return drawing_order(self.ids, self.labels)

    def batch(
        self,
        ids: Sequence[str],
        prepare: Prepare | None = None,
        *,
        seed: int = 0,
        pixels: Pixels | None = None,
        tokens: Tokens | None = None,
        targets: Tensor | None = None,
    ) -> Batch:
        """Read these samples; images and texts go through `prepare`, and so do truth masks."""
        samples = [self.fetch(i) for i in ids]
        inputs = [self._input(i, s.input, prepare) for i, s in zip(ids, samples, strict=True)]
        for i, x in zip(ids, inputs, strict=True):
            if not bool(torch.isfinite(x).all()):
                raise InputError(
                    f"Expected finite numbers in sample `{i}` of `{self.name}`, got NaN or inf."
                )
            if x.shape != inputs[0].shape:
                raise InputError(
                    f"Expected all samples of `{self.name}` to have one shape, got "
                    f"{tuple(inputs[0].shape)} for `{ids[0]}` and {tuple(x.shape)} for `{i}`."
                )
        labels = [s.label for s in samples if s.label is not None]
        known = torch.tensor(labels) if len(labels) == len(samples) else None
        truths = [self._truth(s.truth, prepare) for s in samples if s.truth is not None]
        baselines = [s.baseline for s in samples if s.baseline is not None]
        if targets is None:
            targets = known if known is not None else torch.full((len(samples),), -1)
        return Batch(
            ids=tuple(ids),
            inputs=torch.stack(inputs),
            targets=targets,
            labels=known,
            truth=torch.stack(truths) if len(truths) == len(samples) else None,
            baseline=torch.stack(baselines) if len(baselines) == len(samples) else None,
            groups=tuple(self.groups.get(i, i) for i in ids),
            seed=seed,
            pixels=pixels,
            tokens=tokens,
            dataset=self,
            prepare=prepare,
            contents=tuple(
                content_of(s.input, None if tokens is None else tokens.pad) for s in samples
            ),
        )

    def partner(self, sample: str) -> str:
        """Another sample, of another group if there is one: the next on a fixed shuffled ring."""
        return self._partners[sample]

    @functools.cached_property
    def _partners(self) -> Mapping[str, str]:
        """The partner of each sample, found in two rounds against the direction of the ring."""
        ring = sorted(self.ids, key=lambda i: hashlib.sha256(f"partner\0{i}".encode()).digest())
        partners = {i: after for i, after in zip(ring, [*ring[1:], ring[0]], strict=True)}
        group_of = [self.groups.get(i, i) for i in ring]
        if len(set(group_of)) == 1:
            return partners
        after, next_other = 0, 0  # places on the ring: the next sample, the next of another group
        for place in (*reversed(range(len(ring))), *reversed(range(len(ring)))):
            if group_of[after] != group_of[place]:
                next_other = after
            partners[ring[place]] = ring[next_other]
            after = place
        return partners

    @functools.cached_property
    def reference_order(self) -> tuple[str, ...]:
        """All ids in a fixed order, whose first ones are the reference inputs of every batch."""
        return tuple(sorted(self.ids, key=lambda i: hashlib.sha256(i.encode()).digest()))

    def _input(
        self, sample: str, raw: Image.Image | Tensor | str, prepare: Prepare | None
    ) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if isinstance(raw, str):
            if not isinstance(prepare, Tokenize):
                raise PrerequisiteError(
                    f"Dataset `{self.name}` holds texts, but the model does not define how it "
                    f"reads them. Use `hf:FOLDER` or pass `prepare=Tokenize(...)` to `assay.model`."
                )
            return prepare(raw, f"sample `{sample}` of `{self.name}`")
        if not isinstance(prepare, Preprocess):
            raise PrerequisiteError(
                f"Dataset `{self.name}` holds images, but the model does not define how it "
                f"prepares them. Pass `size`, `mean`, `std` (`--size 224 --mean ... --std ...`) or "
                f"`prepare=Preprocess(...)` to `assay.model`, or use tensors as data."
            )
        return prepare(raw)

    @staticmethod
    def _truth(raw: Image.Image | Tensor, prepare: Prepare | None) -> Tensor:
        if isinstance(raw, Tensor):
            return raw
        if not isinstance(prepare, Preprocess):
            raise PrerequisiteError("Truth masks that are images need the model's `prepare`.")
        return prepare.mask(raw)


def drawing_order(ids: Sequence[str], labels: Mapping[str, int]) -> tuple[str, ...]:
    """All ids in the order in which a limit takes them: as many of each class as possible."""
    drawn = sorted(ids, key=lambda i: hashlib.sha256(f"limit\0{i}".encode()).digest())
    return _class_by_class(drawn, labels)


def _class_by_class(order: Sequence[str], labels: Mapping[str, int]) -> tuple[str, ...]:
    """The first sample of each class, then the second of each, and so on, in this order."""
    turns: dict[int, int] = {}
    rounds = []
    for place, sample in enumerate(order):
        label = labels.get(sample, place)  # without labels the order does not change
        turns[label] = turns.get(label, 0) + 1
        rounds.append((turns[label], place, sample))
    return tuple(sample for _, _, sample in sorted(rounds))


def _prefixed(dataset: Dataset, prefix: str) -> Dataset:
    """The same samples under ids that begin with `prefix`."""
    inner = dataset.fetch
    return replace(
        dataset,
        ids=tuple(f"{prefix}{i}" for i in dataset.ids),
        fetch=lambda sample: inner(sample.removeprefix(prefix)),
        groups={f"{prefix}{i}": f"{prefix}{group}" for i, group in dataset.groups.items()},
        labels={f"{prefix}{i}": label for i, label in dataset.labels.items()},
        parts=None,
        splits={},
    )
