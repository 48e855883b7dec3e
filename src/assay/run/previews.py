"""What the page shows of a shard beside its scores: accuracy, small pictures or words."""

import io
from collections.abc import Callable
from typing import Any

from PIL import Image

from assay.engine.engine import Engine
from assay.plan.plan import Plan, Shard
from assay.store import file_name
from assay.store.pieces import ArraysPiece, BytesPiece, Piece
from assay.types import Tokenize

PREVIEWS = 24  # photographs per dataset that are kept for the page


def summarise(
    plan: Plan, shard: Shard, engine: Engine, put: Callable[[Piece], None]
) -> dict[str, Any]:
    """How often the model is right, and some of the shard's samples to look at."""
    batch, clean = engine.batch, engine.clean
    right = None if batch.labels is None else int((clean.predicted[:, 0] == batch.labels).sum())
    everyone = plan.samples(shard.dataset)
    wanted = set(everyone[:: max(1, len(everyone) // PREVIEWS)])
    chosen = [b for b, sample in enumerate(batch.ids) if sample in wanted]
    shown = batch.inputs.ndim == 4 or batch.tokens is not None
    return {
        "dataset": shard.dataset,
        "model": shard.model,
        "n": len(batch),
        "correct": right,
        "classes": engine.model.outputs,
        "micro_batch": engine.model.micro_batch,
        "previews": [_preview(plan, shard, engine, put, b) for b in chosen] if shown else [],
    }


def _preview(
    plan: Plan, shard: Shard, engine: Engine, put: Callable[[Piece], None], b: int
) -> dict[str, Any]:
    batch, clean = engine.batch, engine.clean
    label = None if batch.labels is None else int(batch.labels[b])
    predicted = int(clean.predicted[b, 0])
    return {
        "sample": batch.ids[b],
        "model": shard.model,
        "truth": _saved_truth(shard, engine, put, b),
        "label": label,
        "label_name": _class_name(plan, shard, label),
        "predicted": predicted,
        "predicted_name": _class_name(plan, shard, predicted),
        "probability": float(clean.probability[b, 0]),
        **(
            {
                "words": _words(engine, b),
                "special": batch.tokens.special_at(batch.inputs[b]).tolist(),
            }
            if batch.tokens
            else {"image": _saved(shard, engine, put, b)}
        ),
    }


def _words(engine: Engine, b: int) -> list[str]:
    """The tokens as they read, without the padding behind them."""
    batch = engine.batch
    ids = batch.inputs[b].cpu()
    length = int((ids != batch.tokens.pad).nonzero().max()) + 1 if batch.tokens else len(ids)
    ids = ids[:length]
    return (
        batch.prepare.words(ids)
        if isinstance(batch.prepare, Tokenize)
        else [*map(str, ids.tolist())]
    )


def _saved(shard: Shard, engine: Engine, put: Callable[[Piece], None], b: int) -> str:
    """Where the sample's picture was put."""
    file = f"{file_name(shard.dataset)}/{file_name(engine.batch.ids[b])}.jpg"
    content = io.BytesIO()
    _picture(engine, b).save(content, "JPEG", quality=88)
    put(BytesPiece(("previews", file), content.getvalue()))
    return file


def _saved_truth(shard: Shard, engine: Engine, put: Callable[[Piece], None], b: int) -> str | None:
    """Where the true map of the sample was put, where it is known."""
    truth = engine.batch.truth
    if truth is None:
        return None
    file = f"{file_name(shard.dataset)}/{file_name(engine.batch.ids[b])}.safetensors"
    values = truth[b].float().cpu().numpy()
    put(ArraysPiece(("previews", file), {"truth": values}, {}))
    return file


def _picture(engine: Engine, b: int) -> Image.Image:
    x = engine.batch.inputs[b].float().cpu()
    if engine.batch.pixels is not None:
        x = engine.batch.pixels.to_pixels(x)
    else:  # only for the eye: the darkest value black, the brightest white
        x = (x - x.min()) / (x.max() - x.min()).clamp(min=1e-12)
    x = x[:3] if len(x) >= 3 else x[:1].expand(3, -1, -1)
    return Image.fromarray((x.permute(1, 2, 0) * 255).round().byte().numpy())


def _class_name(plan: Plan, shard: Shard, index: int | None) -> str:
    if index is None:
        return ""
    known = plan.models[shard.model].classes
    if known is not None and index < len(known):
        return str(known[index])
    return plan.datasets[shard.dataset].classes.get(index, str(index))
