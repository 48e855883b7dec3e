"""The length that texts are padded to: that of the longest, found once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import assay
from assay import progress
from assay.data.memory import as_dataset
from assay.plan import text_lengths
from assay.plan.resolving import build_one
from assay.plan.text_lengths import longest_text
from assay.run import run, suite_run
from assay.run.executors import Known, _build, threads
from assay.store import Store
from assay.store.data_facts import DataFacts
from assay.suite.spec import Spec
from assay.types import Dataset, Sample, Tokenize, Tokens
from small_texts import bag_of_words, make_texts, save_bert

WORDS = ["one two three", "one", "one two three four five", "one two"]


class Encoder:
    """Words as numbers, and how they were asked for."""

    def __init__(self) -> None:
        self.single = 0
        self.together: list[int] = []

    def __call__(self, text: str) -> list[int]:
        self.single += 1
        return [len(word) for word in text.split()]


class BatchEncoder(Encoder):
    """The same with a method for several texts."""

    def many(self, texts: list[str]) -> list[list[int]]:
        self.together.append(len(texts))
        return [[len(word) for word in text.split()] for text in texts]


def tokenize(encode: Encoder, longest: int = 64) -> Tokenize:
    return Tokenize(encode, Tokens(pad=0), longest, identity="words")


def texts(items: list[str] = WORDS) -> Dataset:
    return as_dataset((items, None))


@pytest.mark.parametrize("kind", [Encoder, BatchEncoder])
@pytest.mark.parametrize(("longest", "expected"), [(64, 5), (5, 5), (4, 4), (1, 1)])
def test_it_is_that_of_the_longest_text(kind: Any, longest: int, expected: int) -> None:
    assert longest_text(texts(), tokenize(kind(), longest), DataFacts()) == expected


def test_it_is_what_each_text_alone_gives() -> None:
    model, (items, _) = bag_of_words(), make_texts(40)
    assert isinstance(model.prepare, Tokenize)
    alone = max(len(model.prepare.encode(text)) for text in items)
    assert longest_text(texts(items), model.prepare, DataFacts()) == alone


def test_texts_are_encoded_together_and_only_until_the_longest_possible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(text_lengths, "AT_A_TIME", 2)
    encoder = BatchEncoder()
    items = [*WORDS, "one", "two", "three"]
    assert longest_text(texts(items), tokenize(encoder), DataFacts()) == 5
    assert (encoder.single, encoder.together) == (0, [2, 2, 2, 1])
    stopped = BatchEncoder()
    assert longest_text(texts(items), tokenize(stopped, longest=5), DataFacts()) == 5
    assert stopped.together == [2, 2]


def test_it_is_found_once_for_a_dataset_and_a_tokenizer() -> None:
    facts, encoder = DataFacts(), Encoder()
    prepare = tokenize(encoder)
    assert [longest_text(texts(), prepare, facts) for _ in range(3)] == [5, 5, 5]
    assert encoder.single == len(WORDS)
    assert longest_text(texts(WORDS[:2]), prepare, facts) == 3
    assert longest_text(texts(), replace(prepare, longest=4), facts) == 4
    other = Tokenize(lambda text: [1] * len(text), Tokens(pad=0), 64, identity="letters")
    assert longest_text(texts(), other, facts) == len(WORDS[2])
    assert len(facts.lengths) == 4


def test_that_of_a_tokenizer_without_an_identity_is_not_stored(tmp_path: Path) -> None:
    facts, encoder = DataFacts(), Encoder()
    nameless = Tokenize(encoder, Tokens(pad=0), 64)  # an object, which may have any state
    assert [longest_text(texts(), nameless, facts) for _ in range(2)] == [5, 5]
    assert encoder.single == len(WORDS)
    facts.write(Store(tmp_path))
    assert not DataFacts.read(Store(tmp_path)).lengths


def test_samples_that_are_ids_are_not_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = as_dataset((torch.ones(9, 4, dtype=torch.long), None), tokens=True)
    read: list[str] = []
    monkeypatch.setattr(text_lengths, "AT_A_TIME", 2)

    def fetch(sample: str) -> Sample:
        read.append(sample)
        return ids.fetch(sample)

    assert longest_text(replace(ids, fetch=fetch), tokenize(Encoder()), DataFacts()) == 1
    assert len(read) == 2


def test_a_tokenizer_of_transformers_encodes_texts_together(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model, (items, _) = build_one("model", f"hf:{save_bert(tmp_path / 'bert')}"), make_texts(30)
    alone = [model.prepare.encode(text) for text in items]
    assert model.prepare.encode.many(items) == alone
    assert model.prepare.sizes(items) == [len(ids) for ids in alone]
    assert max(map(len, alone)) > min(map(len, alone))


def test_slow_tokenizing_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    longest_text(texts(), tokenize(Encoder()), DataFacts())
    assert not capsys.readouterr().err
    monkeypatch.setattr(progress, "QUICK", -1.0)
    longest_text(texts(), tokenize(Encoder()), DataFacts())
    assert "tokenizing data" in capsys.readouterr().err
    longest_text(texts(), tokenize(Encoder()), DataFacts(progress=False))
    assert not capsys.readouterr().err


class TestRuns:
    @pytest.fixture
    def suite(self, tmp_path: Path) -> Spec:
        pytest.importorskip("transformers")
        save_bert(tmp_path / "bert")
        items, labels = make_texts(12)
        rows = [f"{text},{label}" for text, label in zip(items, labels, strict=True)]
        (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
        return Spec(
            datasets=[{"texts": {"path": str(tmp_path / "reviews.csv")}}],
            models=[f"hf:{tmp_path}/bert"], methods=["input_x_gradient", "random"],
            protocols=[{"deletion": {"steps": 4}}],
        )  # fmt: skip

    def test_the_length_is_kept_and_workers_do_not_look_for_it(
        self, suite: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run(suite, tmp_path / "run", progress=False)
        kept = json.loads((tmp_path / "run" / "data.json").read_text())["lengths"]
        plan, settings = suite_run.prepare(suite, Store(tmp_path / "run"))
        dataset, prepare = plan.datasets["reviews"], plan.models["bert"].prepare
        assert isinstance(prepare, Tokenize)
        expected = max(len(prepare.encode(str(dataset.fetch(i).input))) for i in dataset.ids)
        assert list(kept.values()) == [expected]
        monkeypatch.setattr(text_lengths, "_find", _never)
        with threads(None):
            worker = _build(suite, settings, Known({}, DataFacts.read(Store(tmp_path / "run"))))
        assert worker.batch(worker.shards[0]).inputs.shape[1] == expected

    def test_the_length_is_known_before_workers_begin(
        self, suite: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also where the micro-batch, for which a batch is read, is given."""
        sent: list[Known] = []

        def refuse(plan: Any, settings: Any, *args: Any) -> Any:
            sent.append(Known({}, plan.facts))
            raise assay.InputError("enough")

        monkeypatch.setattr(suite_run, "run_in_processes", refuse)
        monkeypatch.setattr(suite_run, "check_repeats", lambda *args: None)
        with pytest.raises(assay.InputError, match="enough"):
            run(suite, tmp_path / "run", progress=False, workers=2, micro_batch=4)
        assert len(sent[0].facts.lengths) == 1

    def test_a_second_run_encodes_nothing(
        self, suite: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = run(suite, tmp_path / "run", progress=False)
        monkeypatch.setattr(text_lengths, "_find", _never)
        more = suite.model_copy(update={"methods": [*suite.methods, "occlusion"]})
        second = run(more, tmp_path / "run", progress=False)
        assert second.scores.num_rows > first.scores.num_rows

    def test_workers_score_as_one_process_does(self, suite: Spec, tmp_path: Path) -> None:
        alone = run(suite, tmp_path / "alone", progress=False)
        spread = run(suite, tmp_path / "spread", progress=False, workers=2)
        assert alone.scores.equals(spread.scores)


def _never(*args: object) -> int:
    raise AssertionError("the texts were encoded again")
