"""Small networks and samples with known or computable answers."""

import functools
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.data.memory import as_dataset
from assay.environments.environment import environment
from assay.methods.attribution import attribute
from assay.models.bagnet import LAYOUTS, BagNet
from assay.models.bcos import BcosResNet
from assay.models.prepare import Prepared, prepare_network
from assay.models.small_vit import SmallViT
from assay.models.token_classifier import PAD, SPECIAL, TokenClassifier, Vocabulary
from assay.models.wrap import model as as_model
from assay.suite.spec import choose_one
from assay.types import Batch, Card, Dataset, Model, Tokenize


class Fault(Exception):
    """A rule that a plug-in breaks; the message says how."""


class SmallNet(nn.Module):
    """Two convolutions with batch-norm, a pool and a head: a small image network."""

    def __init__(self, classes: int = 4, width: int = 8) -> None:
        """Random weights."""
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu1 = nn.ReLU()
        self.pool = nn.MaxPool2d(2)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, H, W] to logits [B, classes]."""
        x = self.pool(self.relu1(self.bn1(self.conv1(x))))
        logits: Tensor = self.head(self.relu2(self.bn2(self.conv2(x))).mean((2, 3)))
        return logits


class LinearImages(nn.Module):
    """f(x) = <w, x> on images of 8 pixels a side."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> None:
        """Random weights."""
        super().__init__()
        torch.manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3, 3, 8, 8, dtype=dtype) / 8)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 3, 8, 8] to logits [B, 3]."""
        return torch.einsum("bchw,kchw->bk", x, self.weight)


class SmallTransformer(nn.Module):
    """Two layers of attention between words; the answer is read from the first token."""

    def __init__(self, words: int, width: int = 8, heads: int = 2, longest: int = 16) -> None:
        """Random weights."""
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.places = nn.Parameter(torch.randn(longest, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 16, 0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, 2)

    def forward(self, ids: Tensor) -> Tensor:
        """[B, T] to logits [B, 2]."""
        x = self.embedding(ids) + self.places[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=ids == PAD)
        logits: Tensor = self.head(x[:, 0])
        return logits


def make_net(seed: int = 0, classes: int = 4) -> SmallNet:
    """A small network whose batch-norm statistics are not the initial ones."""
    torch.manual_seed(seed)
    net = SmallNet(classes)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 3, 16, 16))
    return net.eval()


def make_bcos(seed: int = 0, classes: int = 4) -> BcosResNet:
    """A small B-cos network for pixels in [0, 1]."""
    torch.manual_seed(seed)
    net = BcosResNet(depth=8, width=4, classes=classes)
    _settle(net, torch.rand(8, 3, 8, 8))
    return net


def make_bagnet(seed: int = 0, classes: int = 4, field: int = 5) -> BagNet:
    """A small bag of patches of `field` pixels."""
    torch.manual_seed(seed)
    layout, few = LAYOUTS[field], (1,) * len(LAYOUTS[field].blocks)
    net = BagNet(classes, 2, layout.kernels, layout.strides, few)
    _settle(net, torch.randn(8, 3, field + 4, field + 4))
    return net


def _settle(net: nn.Module, images: Tensor) -> None:
    """Set the statistics of every batch-norm from some images, so that no answer vanishes."""
    norms: list[Any] = [m for m in net.modules() if hasattr(m, "momentum")]
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        net.train()(images)
    net.eval()
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum


def make_images(n: int, seed: int = 1, size: int = 16) -> tuple[Tensor, Tensor]:
    """Random images, and labels below 4."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(n, 3, size, size, generator=generator),
        torch.randint(0, 4, (n,), generator=generator),
    )


ROWS = 4  # per call of the network: fewer than the samples, so that batches are split


@dataclass(frozen=True)
class World:
    """A model with samples and their truth, which may be noise."""

    ready: Prepared
    batch: Batch
    made_for: str = ""  # a need: only methods with it, and users' methods, are checked here

    @property
    def model(self) -> Model:
        """The prepared model."""
        return self.ready.model

    def one_by_one(self) -> "World":
        """The same world with micro-batches of one row, so that no row is padding."""
        model = replace(self.model, micro_batch=1)
        return replace(self, ready=replace(self.ready, model=model))


def small_image_network() -> World:
    """Five images under a small convolutional network; the truth is noise."""
    x, y = make_images(5)
    truth = torch.rand(5, 16, 16, generator=torch.Generator().manual_seed(2))
    return _world(make_net(), x, y, truth)


def linear_image_model() -> World:
    """Five images under f(x) = w x; the truth is w x."""
    net, (x, y) = LinearImages(), make_images(5, size=8)
    return _world(net, x, y % 3, (x * net.weight[y % 3]).sum(1).detach())


def bcos_network() -> World:
    """Five images in [0, 1] under a small B-cos network; the truth is noise."""
    x, y = make_images(5, size=8)
    return replace(_world(make_bcos(), x.sigmoid(), y, x.mean(1)), made_for="bcos")


def bag_of_patches() -> World:
    """Five images under a small BagNet; the truth is noise."""
    x, y = make_images(5, size=12)
    return replace(_world(make_bagnet(), x, y, x.mean(1)), made_for="bagnet")


def linear_vector_model() -> World:
    """Five vectors under f(x) = w x; the truth is w x."""
    torch.manual_seed(0)
    net, x, y = nn.Linear(9, 3, bias=False), torch.randn(5, 9), torch.arange(5) % 3
    return _world(net, x, y, (x * net.weight[y]).detach())


def patches_in_a_transformer() -> World:
    """Five images under a small vision transformer; the truth is noise."""
    torch.manual_seed(0)
    net = SmallViT(classes=4, size=16, width=8, depth=2, heads=2)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(10 if weight.ndim > 1 else 1)  # so that attention is not uniform
    x, y = make_images(5)
    truth = torch.rand(5, 16, 16, generator=torch.Generator().manual_seed(2))
    return replace(_world(net.eval(), x, y, truth), made_for="attention")


def _world(net: nn.Module, x: Tensor, y: Tensor, truth: Tensor) -> World:
    dataset = as_dataset((x, y, truth))
    model = replace(as_model(net), modality=dataset.modality, micro_batch=ROWS)
    with model.evaluating(), torch.no_grad():
        ready = prepare_network(model, x[:1])
    return World(ready, dataset.batch(dataset.ids))


GOOD, BAD = ("good", "fine", "great", "lovely"), ("bad", "poor", "awful", "dull")
PLAIN = ("the", "film", "was", "a", "story", "with", "one", "actor", "and", "music", ".")


def make_texts(n: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Sentences of 4 to 12 words; two of the words make a sentence good or bad."""
    generator = torch.Generator().manual_seed(seed)

    def draw(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (1,), generator=generator))]

    texts = []
    for i in range(n):
        length = int(torch.randint(4, 13, (1,), generator=generator))
        decisive = set(torch.randperm(length, generator=generator)[:2].tolist())
        texts.append(
            " ".join(draw((BAD, GOOD)[i % 2] if j in decisive else PLAIN) for j in range(length))
        )
    return texts, [i % 2 for i in range(n)]


def bag_of_words(dtype: torch.dtype = torch.float32, hidden: int = 0) -> Model:
    """f(text) = the sum of the weights of its words; not a sum with hidden units."""
    vocabulary = Vocabulary.of([" ".join((*GOOD, *BAD, *PLAIN))])
    torch.manual_seed(0)
    net = TokenClassifier(len(vocabulary.words), 2, 8, hidden, pool="sum").to(dtype)
    with torch.no_grad():
        net.head.bias.zero_()
        net.head.weight[1] = -net.head.weight[0]  # for one class is against the other
        net.embedding.weight[: len(SPECIAL)] = 0  # special tokens have no effect
        net.embedding.weight *= 3
    return as_model(net.eval(), prepare=vocabulary.tokenize(), name="bag")


def word_shares(model: Model, ids: Tensor, targets: Tensor) -> Tensor:  # [B, T]
    """Each word's share of the target's logit in a bag of words: the exact map."""
    net: Any = model.net
    weights = net.head.weight[targets]  # [B, D]
    shares: Tensor = (net.embedding(ids) * weights[:, None]).sum(-1).detach()
    return shares


def words_in_a_bag() -> World:
    """Five texts of different lengths under a bag of words; the truth is each word's share."""
    return _text_world(bag_of_words())


def words_in_a_network() -> World:
    """Five texts under a network with a hidden layer."""
    return _text_world(bag_of_words(hidden=6))


def words_in_a_transformer() -> World:
    """Five texts of different lengths under a small transformer."""
    vocabulary = Vocabulary.of([" ".join((*GOOD, *BAD, *PLAIN))])
    torch.manual_seed(0)
    net = SmallTransformer(len(vocabulary.words)).eval()
    model = as_model(net, prepare=vocabulary.tokenize(), name="small_transformer")
    return replace(_text_world(model), made_for="attention")


def _text_world(model: Model) -> World:
    texts, labels = make_texts(5)
    ids = padded(model, texts)
    truth = torch.zeros(ids.shape)
    if isinstance(getattr(model.net, "hidden", None), nn.Identity):
        truth = word_shares(model, ids, torch.tensor(labels))
    dataset = as_dataset((ids, labels, truth), tokens=True)
    model = replace(model, micro_batch=ROWS)
    with model.evaluating(), torch.no_grad():
        ready = prepare_network(model, ids[:1])
    return World(ready, dataset.batch(dataset.ids, tokens=model.tokens))


def padded(model: Model, texts: list[str]) -> Tensor:  # [B, T]
    """The token ids of the texts, padded to the longest."""
    prepare = model.prepare
    if not isinstance(prepare, Tokenize):
        raise TypeError("Expected a model of texts.")
    longest = max(len(prepare.encode(text)) for text in texts)
    return torch.stack([replace(prepare, length=longest)(text) for text in texts])


@dataclass(frozen=True)
class Exam:
    """A network that is right on every sample, so that accuracy can fall, and the exact maps."""

    net: nn.Module | Model
    x: Any  # tensors, texts, or a dataset
    y: Tensor
    truth: Tensor
    has: frozenset[str] = frozenset()  # what its data have in addition to labels
    made_for: str = ""  # a need: only protocols with it, and users' protocols, are checked here

    @property
    def data(self) -> Any:
        """Inputs and labels, with the truth if the data have it."""
        if isinstance(self.x, Dataset):
            return self.x
        if not self.has:
            return self.x, self.y
        return replace(as_dataset((self.x, self.y, self.truth)), has=self.has | {"labels"})

    def first(self, n: int) -> "Exam":
        """The exam with its first n samples."""
        if isinstance(self.x, Dataset):
            ids = self.x.ids[:n]
            return replace(self, x=replace(self.x, ids=ids), y=self.y[:n], truth=self.truth[:n])
        return replace(self, x=self.x[:n], y=self.y[:n], truth=self.truth[:n])


def designed_card(grid: int, fill: Any, weights_hash: str) -> Card:
    """The card that a designed network would have if it had been fine-tuned."""
    return Card(
        grid=grid, fill=fill, probability=0.5, epochs=1, seed=0, placebo=False,
        accuracy_before=1.0, accuracy_after=1.0, worst_patch_before=1.0, worst_patch_after=1.0,
        lowest_patch_before=1.0, lowest_patch_after=1.0, mad_softmax=0.0, mad_gradcam=None,
        overlap=None, weights_sha256=weights_hash, base_sha256=weights_hash, origin="designed",
        n=1,
    )  # fmt: skip


def linear_images() -> Exam:
    """Twelve images under f(x) = w x."""
    net, (x, _) = LinearImages(), make_images(12, size=8)
    y = net(x).argmax(1)
    return Exam(net, x, y, (x * net.weight[y]).sum(1).detach())


def linear_vectors() -> Exam:
    """Twelve vectors under f(x) = w x."""
    torch.manual_seed(0)
    net, x = nn.Linear(16, 3, bias=False), torch.randn(12, 16)
    y = net(x).argmax(1)
    return Exam(net, x, y, (x * net.weight[y]).detach())


def linear_texts() -> Exam:
    """Twelve texts of different lengths under a bag of words."""
    model, (texts, _) = bag_of_words(), make_texts(12)
    ids = padded(model, texts)
    with torch.no_grad():
        y = model(ids).argmax(1)
    return Exam(model, texts, y, word_shares(model, ids, y))


def marked_images() -> Exam:
    """Twelve images of zeros and ones; each one counts for a class, against it, or not at all."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 2, (12, 1, 8, 8), generator=generator).float()
    weight = torch.randint(-1, 2, (3, 64), generator=generator).float()
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3, bias=False))
    net[1].load_state_dict({"weight": weight})
    y = net(x).argmax(1)
    truth = x[:, 0] * weight[y].reshape(-1, 8, 8)
    return Exam(net, x, y, truth, has=frozenset({"counted", "truth"}), made_for="truth")


@functools.cache  # images are painted and evaluated once
def painted_parts() -> Exam:
    """Twelve images of animals painted from parts, under the network of that environment.

    The exact map holds the drop of the logit without a part, spread over the pixels of the part.
    """
    made = environment("parts", samples=12)
    batch = made.dataset.batch(made.dataset.ids)
    exact = {"units": "parts", "fill": "rerender", "spread": "share"}
    with made.model.evaluating(), torch.no_grad():
        truth = attribute(made.model, batch, choose_one("method", {"occlusion": exact}))
    return Exam(made.model, made.dataset, batch.targets, truth, made_for="parts")
