"""The accuracy and sample previews of a shard, for the page."""

import io

from PIL import Image

from assay.engine.engine import Engine
from assay.plan.plan import Plan, Shard
from assay.store import Preview, ShardSummary, file_name
from assay.store.pieces import ArraysPiece, FilePiece, Put
from assay.types import Tokenize

PREVIEWS = 24  # samples per dataset that are stored for the page


def summarise(plan: Plan, shard: Shard, engine: Engine, put: Put) -> ShardSummary:
    """Summarise a shard: the accuracy of the model, and previews of some samples."""
    batch, clean = engine.batch, engine.clean
    correct = None if batch.labels is None else int((clean.predicted[:, 0] == batch.labels).sum())
    all_samples = plan.samples(shard.dataset)
    shown_samples = set(all_samples[:: max(1, len(all_samples) // PREVIEWS)])
    rows = [b for b, sample in enumerate(batch.ids) if sample in shown_samples]
    can_be_shown = batch.inputs.ndim == 4 or batch.tokens is not None
    return ShardSummary(
        dataset=shard.dataset,
        model=shard.model,
        n=len(batch),
        correct=correct,
        classes=engine.model.outputs,
        micro_batch=engine.model.micro_batch,
        previews=[_preview(plan, shard, engine, put, b) for b in rows] if can_be_shown else [],
    )


def _preview(plan: Plan, shard: Shard, engine: Engine, put: Put, b: int) -> Preview:
    batch, clean = engine.batch, engine.clean
    label = None if batch.labels is None else int(batch.labels[b])
    predicted = int(clean.predicted[b, 0])
    tokens = batch.tokens
    return Preview(
        sample=batch.ids[b],
        model=shard.model,
        truth=_write_truth(shard, engine, put, b),
        label=label,
        label_name=_class_name(plan, shard, label),
        predicted=predicted,
        predicted_name=_class_name(plan, shard, predicted),
        probability=float(clean.probability[b, 0]),
        words=_words(engine, b) if tokens else (),
        special=tokens.special_at(batch.inputs[b]).tolist() if tokens else (),
        image="" if tokens else _write_picture(shard, engine, put, b),
    )


def _words(engine: Engine, b: int) -> list[str]:
    """The tokens as text, without the padding at the end."""
    batch = engine.batch
    ids = batch.inputs[b].cpu()
    length = int((ids != batch.tokens.pad).nonzero().max()) + 1 if batch.tokens else len(ids)
    ids = ids[:length]
    return (
        batch.prepare.words(ids)
        if isinstance(batch.prepare, Tokenize)
        else [*map(str, ids.tolist())]
    )


def _write_picture(shard: Shard, engine: Engine, put: Put, b: int) -> str:
    """Store the sample's picture and return its file."""
    file = f"{file_name(shard.dataset)}/{file_name(engine.batch.ids[b])}.jpg"
    content = io.BytesIO()
    _picture(engine, b).save(content, "JPEG", quality=88)
    put(FilePiece(shard.id, ("previews", file), content.getvalue()))
    return file


def _write_truth(shard: Shard, engine: Engine, put: Put, b: int) -> str | None:
    """Store the sample's true map, if it is known, and return its file."""
    truth = engine.batch.truth
    if truth is None:
        return None
    file = f"{file_name(shard.dataset)}/{file_name(engine.batch.ids[b])}.safetensors"
    values = truth[b].float().cpu().numpy()
    put(ArraysPiece(shard.id, ("previews", file), {"truth": values}, {}))
    return file


def _picture(engine: Engine, b: int) -> Image.Image:
    x = engine.batch.inputs[b].float().cpu()
    if engine.batch.pixels is not None:
        x = engine.batch.pixels.to_pixels(x)
    else:  # for display only: scale the smallest value to black, the largest to white
        x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
    x = x[:3] if len(x) >= 3 else x[:1].expand(3, -1, -1)
    return Image.fromarray((x.permute(1, 2, 0) * 255).round().byte().numpy())


def _class_name(plan: Plan, shard: Shard, index: int | None) -> str:
    if index is None:
        return ""
    names = plan.models[shard.model].classes
    if names is not None and index < len(names):
        return str(names[index])
    return plan.datasets[shard.dataset].classes.get(index, str(index))
