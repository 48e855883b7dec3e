"""Texts and networks of words in miniature, with known or knowable answers."""

from pathlib import Path

import torch

import assay
from assay.models.token_classifier import TokenClassifier, Vocabulary
from assay.types import Model

GOOD, BAD = ("good", "fine", "great", "lovely"), ("bad", "poor", "awful", "dull")
PLAIN = ("the", "film", "was", "a", "story", "with", "one", "actor", "and", "music", ".")


def make_texts(n: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Sentences of 4 to 12 words, good or bad by the words in them."""
    generator = torch.Generator().manual_seed(seed)

    def draw(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (1,), generator=generator))]

    texts, labels = [], []
    for i in range(n):
        length = int(torch.randint(4, 13, (1,), generator=generator))
        tell = {int(j) for j in torch.randperm(length, generator=generator)[:2]}
        kind = (BAD, GOOD)[i % 2]
        texts.append(" ".join(draw(kind if j in tell else PLAIN) for j in range(length)))
        labels.append(i % 2)
    return texts, labels


def bag_of_words(dtype: torch.dtype = torch.float32) -> Model:
    """f(text) = the sum of its words' own weights, no bias."""
    vocabulary = Vocabulary.of([" ".join((*GOOD, *BAD, *PLAIN))])
    torch.manual_seed(0)
    net = TokenClassifier(len(vocabulary.words), 2, 8, pool="sum").to(dtype)
    with torch.no_grad():
        net.head.bias.zero_()
    return assay.model(net, prepare=vocabulary.tokenize(), name="bag")


def shares(model: Model, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Each word's own share of the target's logit: the exact map. [B, T]."""
    weights = model.net.head.weight[targets]  # [B, D]
    return (model.net.embedding(ids) * weights[:, None]).sum(-1).detach()


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
