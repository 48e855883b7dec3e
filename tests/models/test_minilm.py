"""A sentiment classifier with trained weights: an encoder of transformers, a head of its own."""

import pytest

import assay
import real_networks
from beside import beside

transformers = pytest.importorskip("transformers")
REVIEWS = beside("movie-reviews/rt_polarity.parquet")

FEW = {"progress": False, "micro_batch": 8}  # a larger micro-batch would be padding


@pytest.fixture(scope="module")
def sentiment():
    return real_networks.sentiment()


@pytest.fixture(scope="module")
def reviews():
    """Every eighth test sentence of rt-polarity."""
    import pyarrow.parquet as pq

    rows = pq.read_table(REVIEWS, filters=[("split", "=", "test")]).to_pylist()[::8]
    return [row["text"] for row in rows], [row["label"] for row in rows]


@pytest.fixture(scope="module")
def short(reviews):
    """Sixteen that are quickly read."""
    some = [(text, label) for text, label in zip(*reviews, strict=True) if len(text.split()) <= 12]
    texts, labels = zip(*some[:16], strict=True)
    return list(texts), list(labels)


def test_it_is_right_as_often_as_published(sentiment, reviews):
    """82.3 % of 1051 sentences; of an eighth of them, within two standard errors."""
    results = assay.benchmark(sentiment, reviews, ["random"], [{"deletion": {"steps": 1}}], **FEW)
    (clean,) = results.manifest["clean"]
    assert clean["n"] == 132
    assert clean["accuracy"] == pytest.approx(0.823, abs=2 * (0.823 * 0.177 / 132) ** 0.5)


@pytest.fixture(scope="module")
def verdicts(sentiment, short):
    """Whether removing the words a method names costs more than removing any."""
    methods = [{"integrated_gradients": {"steps": 8}}, "occlusion", "generic_attention", "random"]
    results = assay.benchmark(
        sentiment, short, methods, [{"comprehensiveness": {"shares": (0.1, 0.3)}}],
        **FEW,
    )  # fmt: skip
    return {row["method"]: row["verdict"] for row in results.against("random")}


@pytest.mark.parametrize("method", ["integrated_gradients[steps=8]", "occlusion"])
def test_methods_beat_random_on_real_words(verdicts, method):
    assert verdicts[method] == "above"


def test_attention_is_read_from_the_mean_of_the_words(sentiment, short, verdicts):
    """All words are read and no padding; what attention methods name counts more than any words."""
    texts, labels = short
    for name in ("rollout", "generic_attention", "chefer_lrp"):
        maps = assay.explain(sentiment, texts[:4], labels[:4], name)
        assert bool((maps >= 0).all())
        lengths = [len(sentiment.prepare.encode(text)) for text in texts[:4]]
        assert (maps > 0).sum(1).tolist() == lengths
    assert verdicts["generic_attention"] == "above"
