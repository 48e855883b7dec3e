"""A sentiment classifier with trained weights: an encoder of transformers, a head of its own."""

import pytest

import assay
import real_networks

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def sentiment(shared):
    return real_networks.sentiment(shared)


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
