"""Tokens: closed forms on a bag of words, transformers' classifiers, texts that cannot be used."""

import copy

import pytest
import torch

import assay
from assay.plan.resolving import build_one
from assay.plugins import registry
from small_texts import (
    bag_of_words,
    make_texts,
    padded,
    predicted_by_bert,
    save_bert,
    word_shares,
)


@pytest.fixture(scope="module")
def bag():
    """A bag of words, texts of different lengths, the exact map on their ids, and the ids."""
    model, (texts, labels) = bag_of_words(torch.float64), make_texts(9)
    ids = padded(model, texts)
    exact = word_shares(model, ids, torch.tensor(labels))
    content = ~model.tokens.special_at(ids)
    return model, texts, labels, exact, content


class TestClosedForms:
    """For a bag of words every score of the exact map is known."""

    @pytest.mark.parametrize(
        "protocol", ["single_deletion", "sensitivity_n", "faithfulness_correlation"]
    )
    def test_the_exact_map_correlates_perfectly(self, bag, protocol):
        model, texts, labels, exact, _ = bag
        right = assay.score(model, texts, labels, exact, protocol)
        wrong = assay.score(model, texts, labels, -exact, protocol)
        assert right.numpy() == pytest.approx(1.0, abs=1e-6)
        assert wrong.numpy() == pytest.approx(-1.0, abs=1e-6)

    def test_the_exact_map_has_no_infidelity(self, bag):
        model, texts, labels, exact, _ = bag
        for variant in ("positive", "m4", "captum"):
            error = assay.score(model, texts, labels, exact, "infidelity", variant=variant)
            assert error.max() < 1e-10
        assert assay.score(model, texts, labels, -exact, "infidelity").min() > 1e-4

    def test_special_tokens_do_not_matter(self, bag):
        """Whatever a map says of begin, end and padding, nobody removes them."""
        model, texts, labels, exact, content = bag
        loud = torch.where(content, exact, 1e3)
        for protocol in ("deletion", "insertion", "single_deletion", "infidelity", "sensitivity_n",
                         "comprehensiveness", "sufficiency", "abpc"):  # fmt: skip
            quiet = assay.score(model, texts, labels, exact, protocol)
            assert torch.equal(assay.score(model, texts, labels, loud, protocol), quiet)

    @pytest.mark.parametrize("sign", [1, -1])
    def test_the_deletion_curve_is_the_sorted_cumulative_sum(self, bag, sign):
        model, texts, labels, exact, content = bag
        results = assay.benchmark(
            model, (texts, labels), [{"exact": sign * exact}],
            [{"deletion": {"output": "logit", "steps": 5}}], progress=False, controls="off",
        )  # fmt: skip
        curves = results.curves["value"].to_numpy().reshape(len(texts), 6)
        for b, curve in enumerate(curves):
            words = exact[b, content[b]].sort(descending=sign > 0).values
            left = [words[int(k / 5 * len(words) + 0.5) :].sum() for k in range(6)]
            special = _special_share(model, texts[b], labels[b])
            assert curve == pytest.approx([float(s) + special for s in left], abs=1e-6)

    def test_no_order_beats_the_exact_one(self, bag):
        model, texts, labels, exact, _ = bag
        options = {"output": "logit", "steps": 12}
        best = assay.score(model, texts, labels, exact, "deletion", **options)
        for seed in range(3):
            order = torch.rand(exact.shape, generator=torch.Generator().manual_seed(seed))
            other = assay.score(model, texts, labels, order, "deletion", **options)
            assert (best <= other + 1e-12).all()

    @pytest.mark.parametrize(
        "method", ["input_x_gradient", {"integrated_gradients": {"steps": 2}}, "occlusion"]
    )
    def test_methods_find_the_share_of_each_word(self, bag, method):
        model, texts, labels, exact, content = bag
        maps = assay.explain(model, texts, labels, method)
        assert torch.allclose(maps[content].double(), exact[content], atol=1e-6)

    def test_occlusion_is_circular_under_single_deletion(self, bag):
        model, texts, labels, _, _ = bag
        results = assay.benchmark(
            model,
            (texts, labels),
            ["occlusion", "random"],
            ["single_deletion"],
            progress=False,
            controls="off",
        )
        status = {(r["method"], r["status"]) for r in results.scores.to_pylist()}
        assert status == {("occlusion", "circular"), ("random", "ok")}


def _special_share(model, text: str, label: int) -> float:
    ids = model.prepare(text)[None]
    special = model.tokens.special_at(ids)
    return float(word_shares(model, ids, torch.tensor([label]))[special].sum())


def test_rows_are_counted_exactly(bag):
    """Texts of different lengths: the dry run tells every forward pass."""
    model, texts, labels, _, _ = bag
    rows = []
    handle = model.net.register_forward_hook(lambda m, i, o: rows.append(len(i[0])))
    methods = ["saliency", "occlusion", {"smoothgrad": {"noise": {"samples": 3}}}, "random"]
    protocols = ["single_deletion", {"deletion": {"steps": 4}}, "infidelity", "sensitivity_n"]
    said = assay.dry_run(
        model, (texts, labels), methods, protocols, micro_batch=1, time_it=False, controls="off"
    )
    rows.clear()
    assay.benchmark(
        model, (texts, labels), methods, protocols, micro_batch=1, progress=False, controls="off"
    )
    handle.remove()
    assert sum(rows) == said.forwards


def test_token_ids_are_data_too(bag):
    model, texts, labels, _, _ = bag
    ids = padded(model, texts)
    by_text = assay.explain(model, texts, labels, "input_x_gradient")
    assert torch.equal(assay.explain(model, ids, labels, "input_x_gradient"), by_text)


class TestTransformers:
    """Any sequence classifier that transformers saves."""

    @pytest.fixture(scope="class", params=["bert", "roberta"])
    def model(self, request, tmp_path_factory):
        pytest.importorskip("transformers")
        folder = save_bert(tmp_path_factory.mktemp("hf") / f"a {request.param}", request.param)
        return build_one("model", f"hf:{folder}")

    def test_logits_are_those_of_the_network(self, model):
        """Padding changes nothing: each text alone through the network gives the same."""
        texts, labels = make_texts(6)
        results = assay.benchmark(
            model, (texts, labels), ["random"],
            [{"deletion": {"output": "logit", "steps": 1}}], progress=False, controls="off",
        )  # fmt: skip
        ours = results.curves["value"].to_numpy()[::2]
        for text, label, value in zip(texts, labels, ours, strict=True):
            ids = torch.tensor([model.prepare.encode(text)])
            with torch.no_grad():
                alone = model.net(input_ids=ids).logits[0, label]
            assert value == pytest.approx(float(alone), abs=1e-5)
        assert model.classes == ("negative", "positive")

    def test_a_removed_word_moves_no_other(self, model):
        """Positions stay: a word hidden by hand, with positions and attention said explicitly."""
        text = "the film was good"
        ids = torch.tensor([model.prepare.encode(text)])
        start = {"BertForSequenceClassification": 0}.get(type(model.net).__name__, 2)
        seen = torch.ones_like(ids)
        seen[0, 2] = 0
        with torch.no_grad():
            by_hand = model.net(
                input_ids=ids, attention_mask=seen,
                position_ids=start + torch.arange(ids.shape[1])[None],
            ).logits[0, 1]  # fmt: skip
        lost = assay.explain(model, [text], [1], "occlusion")[0, 2]
        with torch.no_grad():
            clean = model.net(input_ids=ids).logits[0, 1]
        # The hidden word is padding here and itself there: attention sees neither.
        assert float(clean - lost) == pytest.approx(float(by_hand), abs=1e-5)

    def test_gradients_are_taken_at_the_word_embeddings(self, model):
        """By autograd from `inputs_embeds`, without any hook."""
        text = "the story was awful and dull"
        ids = torch.tensor([model.prepare.encode(text)])
        words = model.net.get_input_embeddings()(ids).detach().requires_grad_(True)
        model.net(inputs_embeds=words).logits[0, 0].backward()
        ours = assay.explain(model, [text], [0], "saliency", reduce="square")
        assert torch.allclose(ours, words.grad.square().sum(-1), rtol=1e-4, atol=1e-9)
        product = assay.explain(model, [text], [0], "input_x_gradient")
        assert torch.allclose(product, (words * words.grad).sum(-1).detach(), atol=1e-6)

    def test_a_gradient_whose_sum_vanishes_is_refused(self, model):
        """Both normalise their embeddings, so a constant added to one changes nothing."""
        with pytest.raises(assay.NotApplicable, match="reduce: square"):
            assay.explain(model, ["the film was good"], [1], "saliency")

    def test_attention_is_that_of_the_network(self, model):
        """Rollout of texts of different lengths, from what the network itself says."""
        texts, labels = make_texts(3)
        ours = assay.explain(model, texts, labels, "rollout")
        net = copy.deepcopy(model.net)
        net.set_attn_implementation("eager")
        for row, text in zip(ours, texts, strict=True):
            ids = torch.tensor([model.prepare.encode(text)])
            with torch.no_grad():
                maps = net(input_ids=ids, output_attentions=True).attentions
            flow = torch.eye(ids.shape[1])
            for attention in maps:
                flow = (attention[0].mean(0) + torch.eye(len(flow))) / 2 @ flow
            assert torch.allclose(row[: len(flow)], flow[0], rtol=1e-4, atol=1e-6)
            assert row[len(flow) :].sum() == 0

    @pytest.mark.parametrize("fill", ["pad", "mask", "zero"])
    def test_every_protocol_serves_tokens(self, model, fill):
        texts, labels = make_texts(4)
        maps = torch.rand(4, max(len(model.prepare.encode(t)) for t in texts))
        for protocol in registry.names("protocol"):
            if protocol in ("incremental_deletion", "soundness", "road_morf", "road_lerf"):
                continue  # explains anew, or is for images
            plugin = registry.get("protocol", protocol)
            needs = plugin.required(plugin.defaults)
            if "fill" not in plugin.options or needs & {"parts", "image"}:
                continue  # removes nothing, or parts of images
            if plugin.scope == "set":
                continue  # scores no single maps
            values = assay.score(model, texts, labels, maps, protocol, fill=fill)
            assert torch.isfinite(values).all(), protocol


def test_a_text_on_the_command_line(tmp_path, call, monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    save_bert(tmp_path / "my model")
    code, out, _ = call("explain", "the film was good / and lovely", "--model", "hf:./my model")
    assert code == 0
    assert out.startswith("my model gives")  # the folder's name, not its path
    assert "explanation.html" in out
    page = (tmp_path / "explanation.html").read_text()
    assert 'style="color: #999">[CLS]</span>' in page
    for word in ("film", "good", "lovely"):
        assert f">{word}</span>" in page
    code, _, errors = call("explain", "good", "--model", "hf:./my model", "-o", "a.png")
    assert (code, ".html" in errors) == (2, True)


def test_texts_of_a_file_on_the_command_line(tmp_path, call, monkeypatch):
    """A table of texts, a classifier in a folder, the best method on a new text."""
    pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    save_bert(tmp_path / "bert")
    texts, _ = make_texts(12)
    labels = predicted_by_bert(tmp_path / "bert", texts)  # a network at chance is not ranked
    rows = [f"{text},{label}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "reviews.csv").write_text("\n".join(["text,label", *rows]))
    code, out, errors = call(
        "run", "--model", "hf:bert", "--data", "reviews.csv", "--out", "run",
        "--methods", "input_x_gradient,occlusion,random", "--protocols", "deletion,single_deletion",
    )  # fmt: skip
    assert code == 0, errors
    assert "bert is right on" in out
    assert "film" in (tmp_path / "run" / "report.html").read_text()
    code, out, errors = call(
        "explain", "a good story", "--model", "hf:bert", "--best", "run", "-o", "best.html"
    )
    assert code == 0, errors
    assert "Caveat" in out


class TestBadInput:
    """Each clear, each naming the thing and the cure."""

    def test_a_text_of_only_special_tokens(self):
        with pytest.raises(assay.InputError, match=r"`0001`.*only special tokens"):
            assay.explain(bag_of_words(), ["good film", ""], [0, 1], "saliency")

    def test_texts_for_a_network_of_images(self, net):
        with pytest.raises(assay.PrerequisiteError, match="does not define how it reads"):
            assay.explain(net, ["good film"], [0], "saliency")

    def test_fills_of_numbers_do_not_apply_to_tokens(self):
        texts, labels = make_texts(4)
        results = assay.benchmark(
            bag_of_words(), (texts, labels), ["random"],
            [{"deletion": {"fill": "blur"}}, {"deletion": {"fill": "mean", "label": "m"}}],
            progress=False, controls="off",
        )  # fmt: skip
        assert set(results.scores["status"].to_pylist()) == {"n/a"}

    def test_a_tokenizer_of_another_network(self, tmp_path):
        pytest.importorskip("transformers")
        folder = save_bert(tmp_path / "one")
        more = [" ".join(f"word{i}" for i in range(60))]
        other = save_bert(tmp_path / "two", texts=more)
        (folder / "tokenizer.json").write_text((other / "tokenizer.json").read_text())
        with pytest.raises(assay.InputError, match="belong to the network"):
            build_one("model", f"hf:{folder}")

    def test_an_encoder_without_a_head(self, tmp_path):
        transformers = pytest.importorskip("transformers")
        folder = save_bert(tmp_path / "one")
        net = transformers.BertForSequenceClassification.from_pretrained(folder)
        net.bert.save_pretrained(folder)
        with pytest.raises(assay.InputError, match="sequence or image classifier"):
            build_one("model", f"hf:{folder}")

    def test_no_folder(self):
        pytest.importorskip("transformers")
        with pytest.raises(assay.PrerequisiteError, match="no folder"):
            build_one("model", "hf:./nowhere")

    def test_a_network_without_words(self):
        with pytest.raises(assay.InputError, match=r"nn\.Embedding"):
            assay.model(torch.nn.Linear(3, 2), tokens=assay.Tokens(pad=0))

    def test_an_id_outside_the_vocabulary(self):
        model = assay.model(bag_of_words().net, tokens=assay.Tokens(pad=0))
        ids = torch.tensor([[5, 6], [7, 10_000]])
        with pytest.raises(assay.InputError, match=r"got 10000 in sample `0001` at token 1"):
            assay.explain(model, ids, [0, 1], "saliency")

    def test_ids_for_a_network_that_was_not_told_of_tokens(self):
        net, ids = bag_of_words().net, torch.tensor([[5, 6], [7, 8]])
        with pytest.raises(assay.InputError, match=r"looks like token ids.*Tokens\(pad="):
            assay.explain(net, ids, [0, 1], "saliency")
        with pytest.raises(assay.InputError, match=r"input_ids.*Tokens\(pad="):
            assay.explain(net, {"input_ids": ids}, [0, 1], "saliency")


class Masked(torch.nn.Module):
    """Adds up the words that its mask shows."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(9, 2)

    def forward(self, input_ids, attention_mask=None):
        shown = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return (self.words(input_ids) * shown[..., None]).sum(1)


class TestHowIdsAreFed:
    """A network that takes a mask by name is given one, unless it is said otherwise."""

    @pytest.mark.parametrize(("named", "hidden"), [(None, True), (True, True), (False, False)])
    def test_the_mask(self, named, hidden):
        net, ids = Masked(), torch.tensor([[3, 4, 0, 0]])
        model = assay.model(net, tokens=assay.Tokens(pad=0, named=named))
        expected = net(ids[:, :2]) if hidden else net(ids)
        torch.testing.assert_close(model.logits(ids), expected)

    def test_ids_alone_for_others(self):
        model = assay.model(bag_of_words().net, tokens=assay.Tokens(pad=0))
        assert model.tokens.named is False
