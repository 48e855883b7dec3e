"""Samples by content: which of two sets are the same, whatever their ids."""

import hashlib
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from assay.errors import InputError
from assay.types import Dataset, Model, Pixels

AT_A_TIME = 100  # samples read or hashed together
NAMED = 3  # shared samples that a message names
ROUNDING = 0.05  # grey levels by which rounding may move a pixel


def hash_inputs(inputs: Tensor, pixels: Pixels | None = None) -> Tensor:  # [N] int64
    """A hash of 8 bytes for each sample `[N, ...]`.

    With `pixels`, inputs that stand for images of 8 bits have the hashes of those images.
    """
    hashes = []
    for part in torch.split(inputs.detach(), AT_A_TIME):
        part = part.cpu()
        levels, exact = _levels(part, pixels)
        numbers = part.float() + 0.0 if part.is_floating_point() else part  # 0 and -0 are equal
        for row, small in enumerate(exact):
            hashes.append(_hash_tensor(levels[row] if small else numbers[row]))
    return torch.tensor(hashes, dtype=torch.int64)


def hash_samples(dataset: Dataset, ids: Sequence[str], model: Model) -> Tensor:  # [n] int64
    """The hashes of samples as the model takes them; texts are hashed as they are written."""
    parts = [ids[i : i + AT_A_TIME] for i in range(0, len(ids), AT_A_TIME)]
    return torch.cat([torch.tensor(list(_hash_part(dataset, part, model))) for part in parts])


def shared_ids(ids: Sequence[str], hashes: Tensor, training: Tensor) -> list[str]:
    """The samples whose content is also among the training samples, given by their hashes."""
    shared = torch.isin(hashes, training).tolist()
    return [sample for sample, same in zip(ids, shared, strict=True) if same]


def check_apart(what: str, ids: Sequence[str], hashes: Tensor, training: Tensor, cure: str) -> None:
    """Reject samples that are also trained on.

    Args:
        what: What is done with the samples: `measured`, `scored`.
        ids: Their ids.
        hashes: Their hashes.
        training: The hashes of the training samples.
        cure: What to do instead, as sentences.

    Raises:
        InputError: Some are training samples.
    """
    shared = shared_ids(ids, hashes, training)
    if shared:
        raise InputError(
            f"Expected the {what} samples to be other samples than the training data, got "
            f"{len(shared)} of {len(ids)} with the content of a training sample: "
            f"{some_ids(shared)}. {cure}"
        )


def some_ids(ids: Sequence[str]) -> str:
    """The first ids, for a message."""
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return ", ".join(f"`{sample}`" for sample in ids[:NAMED]) + more


def _hash_part(dataset: Dataset, ids: Sequence[str], model: Model) -> Iterator[int]:
    if isinstance(dataset.fetch(ids[0]).input, str):
        for sample in ids:
            yield _hash("text", str(dataset.fetch(sample).input).encode())
        return
    batch = dataset.batch(ids, model.prepare, pixels=model.pixels)
    yield from hash_inputs(batch.inputs, model.pixels).tolist()


def _levels(inputs: Tensor, pixels: Pixels | None) -> tuple[Tensor, list[bool]]:
    """The inputs as pixels of 8 bits, and for each sample whether it is exactly these."""
    if inputs.dtype == torch.uint8:
        return inputs, [True] * len(inputs)
    if pixels is None or inputs.ndim != 4 or len(pixels.mean) not in (1, inputs.shape[1]):
        return inputs, [False] * len(inputs)
    mean, std = (torch.tensor(v).reshape(-1, 1, 1) for v in (pixels.mean, pixels.std))
    values = (inputs.float() * std + mean) * 255
    levels = values.round().clamp(0, 255)
    near = (values - levels).abs().flatten(1).amax(1) < ROUNDING
    return levels.to(torch.uint8), near.tolist()


def _hash_tensor(sample: Tensor) -> int:
    raw = sample.contiguous().flatten().view(torch.uint8).numpy().data
    return _hash(f"{sample.dtype}{tuple(sample.shape)}", raw)


def _hash(kind: str, content: bytes | memoryview) -> int:
    digest = hashlib.blake2b(kind.encode(), digest_size=8)
    digest.update(content)
    return int.from_bytes(digest.digest(), "big", signed=True)
