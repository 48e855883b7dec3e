"""Texts and networks of words in miniature, with known or knowable answers."""

from pathlib import Path

import torch

from assay.conformance.worlds import bag_of_words, make_texts, padded, word_shares

__all__ = ["bag_of_words", "make_texts", "padded", "save_bert", "word_shares"]


def save_bert(folder: Path, kind: str = "bert", texts: list[str] | None = None) -> Path:
    """A tiny untrained BERT or RoBERTa classifier with a tokenizer, as transformers saves it."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = {
        "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        "roberta": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    }[kind]
    words = sorted({w for text in texts or make_texts(40)[0] for w in text.split()})
    vocabulary = {word: i for i, word in enumerate((*names, *words))}
    roles = {"bert": (0, 1, 2, 3, 4), "roberta": (1, 3, 0, 2, 4)}[kind]
    pad, unknown, begin, end, mask = (names[i] for i in roles)
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=unknown))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        special_tokens=[(begin, vocabulary[begin]), (end, vocabulary[end])],
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token=pad, unk_token=unknown, cls_token=begin,
        sep_token=end, mask_token=mask,
    )  # fmt: skip
    sizes = {
        "vocab_size": len(vocabulary), "hidden_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40,
        "num_labels": 2, "pad_token_id": vocabulary[pad],
        "id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1},
    }  # fmt: skip
    torch.manual_seed(1)
    if kind == "bert":
        net = transformers.BertForSequenceClassification(transformers.BertConfig(**sizes))
    else:
        net = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**sizes))
    net.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def predicted_by_bert(folder: Path, texts: list[str]) -> list[int]:
    """The classes that a saved classifier predicts."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    net = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = net(**tokenizer(texts, return_tensors="pt", padding=True)).logits
    return logits.argmax(1).tolist()
