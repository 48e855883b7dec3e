"""What comes from outside and is wrong: each door names the thing, what came and the cure."""

import json
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import assay
import toy_run  # noqa: F401 - registers toy_images and toy_net
from assay.data.memory import as_dataset
from assay.errors import InputError, PrerequisiteError
from assay.plan.resolving import build_one
from assay.plugins import registry
from assay.run import dry_run
from assay.suite.spec import choose_one, make_suite, parse_suite, read_suite

CLEAR = (InputError, PrerequisiteError)
NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
"""
INPUTS = {"size": 8, "mean": 0.5, "std": 0.25}
HUGE = 10**30
Here = Path  # a folder of the test's own, which is also the working folder


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))


def samples(n: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(n, 3, 8, 8), torch.arange(n) % 4


def run(network: object = None, data: object = None, methods=("saliency",), **options: object):
    return assay.benchmark(
        net() if network is None else network,
        samples() if data is None else data,
        list(methods) if isinstance(methods, tuple) else methods,
        options.pop("protocols", [{"deletion": {"steps": 2}}]),
        progress=False,
        **options,
    )


def toy(**fields: object) -> object:
    usual = {"datasets": ["toy_images"], "models": ["toy_net"], "methods": ["saliency"],
             "protocols": [{"deletion": {"steps": 2}}], "limit": 2}  # fmt: skip
    return dry_run(make_suite({**usual, **fields}), time_it=False)


def written(here: Here, name: str, content: str | bytes) -> Path:
    path = here / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def model(here: Here, **options: object) -> object:
    written(here, "net.py", NET)
    return build_one("model", {"./net.py:build": options})


def images(here: Here, n: int = 2) -> Path:
    for i in range(n):
        (here / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (90 * i, 9, 9)).save(here / "images" / "ab"[i % 2] / f"{i}.png")
    return here / "images"


def table(here: Here, content: str | bytes, **options: object) -> object:
    images(here)
    path = written(here, "a.csv", content)
    return build_one("dataset", {"csv": {"path": str(path), **options}})


def weights(here: Here, content: object) -> object:
    path = here / "w.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    return model(here, weights=str(path))


def states(change: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: change(tensor) for name, tensor in net().state_dict().items()}


class Odd(nn.Module):
    """A network with a free hand over its answer."""

    def __init__(self, answer: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.inner = net()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> object:
        return self.answer(self.inner(x))


def late(error: BaseException, above: int = 2) -> Callable[[torch.Tensor], torch.Tensor]:
    """Answers that fail where more than this many samples are asked at once."""

    def answer(logits: torch.Tensor) -> torch.Tensor:
        if len(logits) > above:
            raise error
        return logits

    return answer


def stored(here: Here, name: str, content: str | None, then: Callable[[Path], object]) -> object:
    """A finished run with one of its files replaced; None: by a folder."""
    run(out=here / "run")
    for path in sorted((here / "run").glob(name)):
        if content is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_text(content)
    return then(here / "run")


def opened(folder: Path) -> object:
    results = assay.load(folder)
    results.leaderboard()
    results.report()
    return results.failures, results.spec


def deep(n: int) -> str:
    return "methods: " + "[" * n + "]" * n


SUITES: dict[str, tuple[Callable[[Here], object], str]] = {
    "integer of 5,000 digits": (lambda h: parse_suite("seeds: [" + "9" * 5000 + "]", "s"), "YAML"),
    "list 3,000 deep": (lambda h: parse_suite(deep(3000), "s"), "deep|nested"),
    "target 1e30": (lambda h: toy(target=HUGE), "target"),
    "target 2**63": (lambda h: toy(target=2**63), "target"),
    "seed 1e30": (lambda h: toy(seeds=[HUGE]), "seed"),
    "seed true": (lambda h: toy(seeds=[True]), "seeds.*true|true.*seeds|True"),
    "limit true": (lambda h: toy(limit=True), "limit"),
    "limit 1e30": (lambda h: toy(limit=1e30), "limit"),
    "steps true": (lambda h: choose_one("protocol", {"deletion": {"steps": True}}), "steps.*True"),
    "steps of a method true": (
        lambda h: choose_one("method", {"integrated_gradients": {"steps": True}}), "steps.*True"),
    "share true": (lambda h: choose_one("protocol", {"deletion": {"steps": [0, True]}}), "steps"),
    "noise samples true": (
        lambda h: choose_one("method", {"saliency": {"noise": {"samples": True}}}), "samples"),
    "noise samples huge": (
        lambda h: choose_one("method", {"saliency": {"noise": {"samples": HUGE}}}), "samples"),
    "noise sigma inf": (
        lambda h: choose_one("method", {"saliency": {"noise": {"sigma": np.inf}}}), "noise.sigma"),
    "steps 10,000,000": (lambda h: toy(protocols=[{"deletion": {"steps": 10_000_000}}]), "steps"),
    "shares 1,000,000": (
        lambda h: toy(protocols=[{"deletion": {"steps": np.linspace(0, 1, 10**6).tolist()}}]),
        "steps"),
    "subsets 1,000,000": (
        lambda h: toy(protocols=[{"sensitivity_n": {"subsets": 1_000_000}}]), "subsets"),
    "gradient steps 1e30": (
        lambda h: choose_one("method", {"integrated_gradients": {"steps": 1e30}}), "steps"),
    "gradient steps 10**12": (
        lambda h: choose_one("method", {"integrated_gradients": {"steps": 10**12}}), "steps"),
    "number inf": (lambda h: choose_one("fill", {"blur": {"sigma": np.inf}}), "sigma"),
    "lone surrogate in a name": (
        lambda h: toy(datasets=[{"toy_images": {"as": "\ud800"}}]), "half of a character"),
    "lone surrogate in a method's name": (
        lambda h: choose_one("method", {"saliency": {"as": "\ud800"}}), "half of a character"),
    "lone surrogate in title": (lambda h: toy(title="\ud800"), "half of a character"),
    "list as name": (lambda h: choose_one("method", {"saliency": {"as": ["a"]}}), "as"),
    "two names": (lambda h: choose_one("method", {"saliency": {"as": "a", "label": "b"}}), "one"),
    "suite name of 5,000 characters": (lambda h: read_suite("s" * 5000), "suite"),
    "suite path of 5,000 characters": (lambda h: read_suite("s" * 5000 + ".yaml"), "long"),
    "suite is a folder": (lambda h: ((h / "a.yaml").mkdir(), read_suite(h / "a.yaml")), "suite"),
    "NUL in suite path": (lambda h: read_suite("a\0.yaml"), "path"),
    "list 400 deep": (lambda h: parse_suite(deep(400), "s"), "levels deep"),
    "list 3,000 deep in Python": (lambda h: toy(methods=nested_lists(3000)), "levels deep"),
    "item 3,000 deep": (
        lambda h: choose_one("method", {"saliency": {"as": nested_lists(3000)}}), "levels deep"),
    "aliases of aliases": (lambda h: parse_suite(ALIASES, "s"), "parts"),
    "field of 100,000 characters": (lambda h: toy(target=["x" * 100_000]), "target"),
    "reduce is an array": (
        lambda h: choose_one("method", {"saliency": {"reduce": np.zeros((2, 2))}}), "reduce"),
    "item is an array": (lambda h: choose_one("method", np.zeros((3, 3))), "name"),
    "blank name": (lambda h: choose_one("method", {"saliency": {"as": " "}}), "as"),
    "steps true of numpy": (
        lambda h: choose_one("protocol", {"deletion": {"steps": np.True_}}), "steps"),
    "function of no arguments as a method": (lambda h: choose_one("method", "os:getcwd"),
                                             r"\(model, batch\)"),
    "function of no arguments as a fill": (lambda h: choose_one("fill", "os:getcwd"),
                                           r"\(batch\)"),
    "function of one argument as data": (
        lambda h: build_one("dataset", "os:fspath"), r"function `\(\)`"),
}  # fmt: skip

RUNS: dict[str, tuple[Callable[[Here], object], str]] = {
    "names of 300 characters": (
        lambda h: ran(h, datasets=[{"toy_images": {"as": "d" * 300}}],
                      models=[{"toy_net": {"as": "m" * 300}}],
                      methods=[{"saliency": {"as": "s" * 300}}],
                      protocols=[{"deletion": {"steps": 2, "as": "p" * 300}}]), None),
    "names that are paths": (
        lambda h: ran(h, datasets=[{"toy_images": {"as": "../../x"}}],
                      models=[{"toy_net": {"as": "/abs"}}], methods=[{"saliency": {"as": ".."}}],
                      protocols=[{"deletion": {"steps": 2, "as": "a/b\n<i>"}}]), None),
    "paths of images of 300 characters": (lambda h: ran(h, **long_images(h)), None),
    "needs that fail": (lambda h: declaring(needs=lambda options: 1 / 0), "`needs`.*`declaring`"),
    "passes that fail": (lambda h: declaring(passes=lambda o: o["no"]), "`passes`.*KeyError"),
    "passes that fail, dry": (
        lambda h: declaring(assay.dry_run, passes=lambda o: o["no"]), "`passes`.*KeyError"),
}  # fmt: skip

MODELS: dict[str, tuple[Callable[[Here], object], str]] = {
    **{f"size {value!r}": (lambda h, v=value: model(h, **{**INPUTS, "size": v}), "size")
       for value in ({}, np.inf, np.nan, False, -1e30, 0, "x", [], 10**9, 1.5)},
    **{f"resize {value!r}": (lambda h, v=value: model(h, **INPUTS, resize=v), "resize")
       for value in ("[]", {}, np.inf, False, -1, 10**9)},
    "mean true": (lambda h: model(h, **{**INPUTS, "mean": True}), "mean"),
    "mean huge": (lambda h: model(h, **{**INPUTS, "mean": 10**400}), "mean"),
    "cam_reshape true": (lambda h: model(h, cam_reshape=[True, True]), "cam_reshape"),
    "output absent": (lambda h: run(assay.model(net(), output="x")), "output"),
    "output 2**63": (lambda h: run(assay.model(net(), output=2**63)), "output"),
    "output true": (lambda h: run(assay.model(net(), output=True)), "output"),
    "output key absent": (
        lambda h: run(assay.model(Odd(lambda z: {"a": z}), output="x")), "output.*`a`"),
    "output fails": (
        lambda h: run(assay.model(net(), output=lambda z: z.nothing)), "output.*nothing"),
    "weights {}": (lambda h: model(h, weights={}), "weights"),
    "weights 7": (lambda h: model(h, weights=7), "weights"),
    "weights text": (lambda h: weights(h, b"hello, I am a text"), "tensors"),
    "weights empty": (lambda h: weights(h, b""), "tensors"),
    "weights with integer keys": (
        lambda h: weights(h, {i: t for i, t in enumerate(states(lambda t: t).values())}), "name"),
    "weights sparse": (lambda h: weights(h, states(lambda t: t.to_sparse())), "sparse"),
    "weights meta": (lambda h: weights(h, states(lambda t: t.to("meta"))), "meta"),
    "weights int8": (lambda h: weights(h, states(lambda t: t.to(torch.int8))), "int8"),
    "weights complex": (lambda h: weights(h, states(lambda t: t + 1j)), "complex"),
    "weights path long": (lambda h: model(h, weights="w" * 5000), "long"),
    "weights path NUL": (lambda h: model(h, weights="w\0"), "path"),
    "weights folder": (lambda h: model(h, weights=str(h)), "weights"),
    "card path long": (lambda h: model(h, card="w" * 5000), "long"),
    "two class names": (lambda h: run(assay.model(net(), classes=["a", "b"])), "classes.*4"),
    "2**63 classes": (lambda h: assay.model(net(), classes=2**63), "classes"),
    "regression as text": (lambda h: assay.model(net(), regression="no"), "regression"),
    "regression is an array": (lambda h: assay.model(net(), regression=np.ones(2)), "regression"),
    "name is a number": (lambda h: run(assay.model(net(), name=3)), None),
    "class names 3,000 deep": (
        lambda h: assay.model(net(), classes=nested_lists(3000)), "levels deep"),
    "factory without its argument": (
        lambda h: (written(h, "f.py", "def build(depth): pass"),
                   build_one("model", "./f.py:build"))[1], "depth"),
    "logits sparse": (lambda h: run(Odd(lambda z: z.to_sparse())), "sparse"),
    "logits on the meta device": (lambda h: run(Odd(lambda z: z.to("meta"))), "meta"),
    "network that ends the program": (
        lambda h: assay.explain(Odd(late(SystemExit(0), 0)), *samples(), "saliency"),
        "end the program"),
    "network with dropout to explain": (
        lambda h: assay.explain(Odd(noisy), *samples(), "saliency"), "not a function"),
    "network with dropout to score": (
        lambda h: assay.score(Odd(noisy), *samples(), torch.randn(4, 8, 8), "deletion"),
        "not a function"),
    "meta device": (lambda h: run(net().to("meta")), "meta"),
    "meta device, suite": (lambda h: assay.model(net().to("meta")), "meta"),
    "logits complex": (lambda h: run(Odd(lambda z: z + 1j)), "complex"),
    "logits whole": (lambda h: run(Odd(lambda z: z.long())), "int64"),
    "logits whole, dry": (
        lambda h: assay.dry_run(Odd(lambda z: z.long()), samples(), ["saliency"], ["deletion"]),
        "int64"),
    "logits of another batch": (lambda h: run(Odd(lambda z: z.mean(0, True))), "2 samples|rows"),
    "logits without classes": (lambda h: run(Odd(lambda z: z[:, :0])), "classes|logits"),
    "network with two inputs": (lambda h: run(nn.Bilinear(192, 192, 4)), "Bilinear"),
    "network fails": (lambda h: run(Odd(late(MemoryError(), 0))), "MemoryError|memory"),
    "network of another size": (lambda h: run(nn.Linear(7, 4)), "cannot run"),
    "images of five axes": (
        lambda h: assay.dry_run(nn.Conv2d(3, 4, 3), (torch.randn(2, 1, 3, 8, 8), None),
                                ["saliency"], ["deletion"]), "cannot run"),
    "tokens 'x'": (lambda h: assay.model(nn.Embedding(4, 4), tokens="x"), "tokens.*Tokens"),
    "tokenizer": (lambda h: assay.model(net(), tokenizer=object()), "tokenizer.*hf:"),
    "prepare tokenizer": (
        lambda h: assay.model(nn.Embedding(4, 4), prepare=Tokenizer()), "hf:.*|Tokenize"),
    "unknown argument": (lambda h: assay.model(net(), sizes=3), "sizes.*size"),
    "network fails late": (lambda h: run(Odd(late(MemoryError()))), "MemoryError.*micro_batch"),
    "network that fits fewer": (lambda h: run(Odd(lambda z: z[:2])), "one row for each"),
    "labels without an output, dry": (
        lambda h: assay.dry_run(net(), (samples()[0], [0, 1, 2, 20]), ["saliency"]), "below 4"),
    "labels without an output": (
        lambda h: assay.explain(net(), samples()[0], [0, 1, 2, 20], "saliency"), "below 4"),
    "dict of networks to explain": (lambda h: assay.explain({"a": net()}, *samples(), "saliency"),
                                    "one network"),
    "dict of numbers": (lambda h: run({"a": 3}), "Module"),
    "dict by number": (lambda h: run({1: net()}), "name"),
    "list of networks": (lambda h: run([net(), net()]), "Module"),
    "name of a network is half": (lambda h: assay.model(net(), name="\ud800"), "half"),
    "class name is half": (lambda h: assay.model(net(), classes=["\ud800"]), "half"),
}  # fmt: skip


ALIASES = "title: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name[0]}{i} [{', '.join([f'*{before}'] * 10)}]\n"
    for i, (name, before) in enumerate(
        [("methods", "a"), ("protocols", "m0"), ("models", "p1"), ("datasets", "m2"),
         ("train", "d3"), ("environments", "t4"), ("notes", "e5")]
    )
)  # fmt: skip


def nested_lists(levels: int) -> list[object]:
    whole: list[object] = []
    for _ in range(levels):
        whole = [whole]
    return whole


def ran(here: Here, **fields: object) -> None:
    """A whole run with its page, all of whose files are in its folder."""
    usual = {"datasets": ["toy_images"], "models": ["toy_net"], "methods": ["saliency"],
             "protocols": [{"deletion": {"steps": 2}}], "limit": 2}  # fmt: skip
    before = set(here.parent.rglob("*"))
    results = assay.run.run(make_suite({**usual, **fields}), here / "run", progress=False)
    results.report()
    assert results.complete
    assert not results.failures
    new = set(here.parent.rglob("*")) - before
    assert all(here / "run" in (path, *path.parents) for path in new)


def long_images(here: Here) -> dict[str, object]:
    model(here)  # writes the network's file
    for name in "ab":
        (here / "images" / (name * 200)).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(here / "images" / (name * 200) / f"{'n' * 100}.png")
    return {"datasets": [{"image_folder": {"path": str(here / "images")}}],
            "models": [{"./net.py:build": INPUTS}]}  # fmt: skip


def declaring(call: Callable[..., object] = assay.benchmark, **facts: object) -> object:
    """A method of the user's own that declares these facts."""

    def declaring(model: object, batch: assay.types.Batch) -> torch.Tensor:
        return batch.inputs

    assay.method("declaring", **facts)(declaring)
    try:
        return call(net(), samples(), ["declaring"], [{"deletion": {"steps": 2}}])
    finally:
        registry._REGISTERED["method"].pop("declaring")


def noisy(logits: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(logits, 0.5)


class Tokenizer:
    """What users take for `prepare`: a tokenizer of transformers."""

    pad_token_id = 0

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [1]}

    def encode(self, text: str) -> list[int]:
        return [1]


def quantised(scale: float = 0.1) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(torch.randn(4, 3, 8, 8), scale, 0, torch.qint8)


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)])


def masked(shape: tuple[int, ...]) -> np.ma.MaskedArray:
    values = np.zeros(shape, "float32")
    return np.ma.masked_array(values, np.ones(shape, bool))


def data(x: object, y: object = None) -> object:
    return as_dataset((samples()[0] if x is None else x, y))


Y = torch.arange(4)
DATA: dict[str, tuple[Callable[[Here], object], str]] = {
    "X quantised": (lambda h: data(quantised()), "X.*quant"),
    "X long double": (lambda h: data(np.zeros((4, 3), np.longdouble)), "X.*longdouble|float128"),
    "X sparse": (lambda h: data(torch.eye(4).to_sparse()), "X.*sparse"),
    "X sparse csr": (lambda h: data(torch.eye(4).to_sparse_csr()), "X.*sparse"),
    "X nested": (lambda h: data(nested()), "X.*nested"),
    "X meta": (lambda h: data(torch.zeros(4, 3, device="meta")), "X.*meta"),
    "X masked": (lambda h: data(masked((4, 3))), "X.*mask"),
    "X complex": (lambda h: data(torch.zeros(4, 3) + 1j), "X.*complex"),
    "X of strings": (lambda h: data(np.array([["a"]])), "X.*numbers"),
    "X of objects": (lambda h: data(np.array([[None]])), "X.*numbers"),
    "X of ragged lists": (lambda h: data([[1.0], [1.0, 2.0]]), "X.*numbers"),
    "X of dates": (lambda h: data(np.array([["2020"]], "datetime64[D]")), "X.*numbers"),
    "y meta": (lambda h: data(None, Y.to("meta")), "y.*meta"),
    "y sparse": (lambda h: data(None, Y.to_sparse()), "y.*sparse"),
    "y masked": (lambda h: data(None, masked((4,)).astype(int)), "y.*mask"),
    "y of booleans and gaps": (lambda h: data(None, [1, None, 0, 2]), "y"),
    "y huge": (lambda h: data(None, [0, 1, 2, 10**30]), "y"),
    "y of 2**62": (
        lambda h: assay.dry_run(net(), (samples()[0], [0, 1, 2, 2**62]), ["saliency"]),
        "labels|y"),
    "y unsigned huge": (lambda h: data(None, np.array([2**63 + 5] * 4, np.uint64)), "y"),
    "truth masked": (lambda h: as_dataset((samples()[0], Y, masked((4, 8, 8)))), "truth.*mask"),
    "DataLoader": (
        lambda h: run(data=torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*samples()))),
        "DataLoader.*dataset"),
    "path of 5,000 characters (parquet)": (
        lambda h: build_one("dataset", {"parquet": {"path": "p" * 5000}}), "long"),
    **{f"path of 5,000 characters ({reader})": (
        lambda h, r=reader: build_one("dataset", {r: {"path": "p" * 5000}}), "long")
       for reader in ("csv", "texts", "image_folder", "hf_dataset")},
    **{f"NUL in the path ({reader})": (
        lambda h, r=reader: build_one("dataset", {r: {"path": "p\0"}}), "path")
       for reader in ("csv", "texts", "image_folder", "hf_dataset", "parquet")},
    "file name not UTF-8": (lambda h: latin(h), "UTF-8"),
    "not an image": (lambda h: (written(images(h) / "a", "x.png", b"x"), pixels_of(h))[1], "x.png"),
    "truncated image": (lambda h: cut_image(h), "0.png"),
    "CSV not UTF-8": (lambda h: table(h, b"path,label\nimages/a/0.png,caf\xe9\n"), "UTF-8"),
    "CSV with a huge field": (lambda h: table(h, "path,label\n" + "x" * 200_000 + ",0\n"), "a.csv"),
    "CSV with NUL": (lambda h: table(h, "path,label\nx\0,0\n"), "a.csv"),
    "CSV superscript": (lambda h: table(h, "path,label\nimages/a/0.png,²\nimages/b/1.png,1\n"),
                        None),
    "CSV long path": (lambda h: table(h, "path,label\n" + "x" * 5000 + ",0\n"), "long|no such"),
    "CSV label of 30 digits": (
        lambda h: table(h, "path,label\nimages/a/0.png," + "9" * 30 + "\n"), "label"),
    "CSV label of 5,000 digits": (
        lambda h: table(h, "path,label\nimages/a/0.png," + "9" * 5000 + "\n"), "label"),
    "CSV short row": (lambda h: table(h, "path,label\nimages/a/0.png\n"), "label"),
    "CSV short row, no path": (lambda h: table(h, "label,path\n0\n"), "path"),
    "CSV path is a folder": (lambda h: table(h, "path,label\nimages/a,0\n"), "images/a"),
    "texts label of 30 digits": (
        lambda h: build_one("dataset", {"texts": {"path": str(
            written(h, "t.csv", "text,label\nhello," + "9" * 30 + "\n"))}}), "label"),
    "texts with a short row": (
        lambda h: build_one("dataset", {"texts": {"path": str(
            written(h, "t.csv", "label,text\n1\n"))}}), "text"),
}  # fmt: skip


def latin(here: Here) -> object:
    images(here)
    os.rename(here / "images" / "a" / "0.png", os.fsencode(here / "images" / "a") + b"/\xe9.png")
    return build_one("dataset", {"image_folder": {"path": str(here / "images")}})


def pixels_of(here: Here) -> object:
    dataset = build_one("dataset", {"image_folder": {"path": str(here / "images")}})
    return [dataset.fetch(i) for i in dataset.ids]


def cut_image(here: Here) -> object:
    path = images(here) / "a" / "0.png"
    path.write_bytes(path.read_bytes()[:45])
    return pixels_of(here)


class Array:
    """An object that says it is an array, and is none."""

    def __array__(self, *_: object, **__: object) -> object:
        raise TypeError("no array")


METHODS: dict[str, tuple[Callable[[Here], object], str]] = {
    "maps of objects": (lambda h: run(methods={"m": np.array([object()] * 4)}), "m"),
    "maps odd": (lambda h: run(methods={"m": Array()}), "m"),
    "maps 0-d": (lambda h: run(methods={"m": torch.tensor(1.0)}), "m"),
    "maps complex": (lambda h: run(methods={"m": torch.zeros(4, 8, 8) + 1j}), "m.*complex"),
    "maps of bfloat16": (
        lambda h: run(methods={"m": torch.randn(4, 8, 8).bfloat16()}), None),
    "maps masked": (lambda h: run(methods={"m": masked((4, 8, 8))}), "m.*mask"),
    "maps sparse": (lambda h: run(methods={"m": torch.zeros(4, 64).to_sparse()}), "m.*sparse"),
    "maps meta": (lambda h: run(methods={"m": torch.zeros(4, 8, 8, device="meta")}), "m.*meta"),
    "maps to score of objects": (
        lambda h: assay.score(net(), *samples(), np.array([object()] * 4), "deletion"), "maps"),
    "maps to score odd": (lambda h: assay.score(net(), *samples(), Array(), "deletion"), "maps"),
    "maps to score 0-d": (
        lambda h: assay.score(net(), *samples(), torch.tensor(1.0), "deletion"), "maps"),
    "maps to score None": (lambda h: assay.score(net(), *samples(), None, "deletion"), "maps"),
    "signature": (lambda h: run(methods=[lambda x: x]), "model, batch"),
    "signature with too many": (lambda h: run(methods=[lambda a, b, c: a]), "model, batch"),
    "explain with a wrong signature": (
        lambda h: assay.explain(net(), *samples(), lambda x: x), "model, batch"),
    "method is a number": (lambda h: run(methods=[3]), "name"),
    "methods is a number": (lambda h: run(methods=3), "list"),
    "protocol is a number": (lambda h: run(protocols=[3]), "name"),
}  # fmt: skip

SETTINGS: dict[str, tuple[Callable[[Here], object], str]] = {
    "device object": (lambda h: run(device=object()), "device"),
    "device 3": (lambda h: run(device=3), "device"),
    "device meta": (lambda h: run(device="meta"), "device"),
    "micro_batch []": (lambda h: run(micro_batch=[]), "micro_batch"),
    "micro_batch 1.5": (lambda h: run(micro_batch=1.5), "micro_batch"),
    "micro_batch true": (lambda h: run(micro_batch=True), "micro_batch"),
    "micro_batch huge": (lambda h: run(micro_batch=10**30), "micro_batch"),
    "workers '1'": (lambda h: run(workers="1"), "workers"),
    "workers 0": (lambda h: run(workers=0), "workers"),
    "workers 1.5": (lambda h: run(workers=1.5), "workers"),
    "workers, dry": (
        lambda h: assay.dry_run(net(), samples(), ["saliency"], ["deletion"], workers=[]),
        "workers"),
    "seed 'x'": (lambda h: run(seed="x"), "seed"),
    "seed true": (lambda h: run(seed=True), "seed"),
    "seed of explain": (lambda h: assay.explain(net(), *samples(), "saliency", seed=1.5), "seed"),
    "limit 0": (lambda h: run(limit=0), "limit"),
    "target 1e30": (lambda h: run(target=1e30), "target"),
    "target 10**30": (lambda h: run(target=HUGE), "target"),
    "out ''": (lambda h: run(out=""), "out"),
    "out bytes": (lambda h: run(out=b"x"), "out"),
    "out NUL": (lambda h: run(out="a\0b"), "out|path"),
    "out of 300 characters": (lambda h: run(out=h / ("x" * 300)), "long"),
    "out 3": (lambda h: run(out=3), "out"),
    "out is a file": (lambda h: run(out=written(h, "a", "x")), "Cannot write"),
    "dry run out bytes": (
        lambda h: assay.dry_run(net(), samples(), ["saliency"], ["deletion"], out=b"x"), "out"),
    "out with a colon": (lambda h: run(out="a.py:b"), None),
    "keep_maps as text": (lambda h: run(keep_maps="no"), "keep_maps"),
    "one_thread nan": (lambda h: run(one_thread=np.nan), "one_thread"),
    "trust_code as text": (lambda h: run(trust_code="false"), "trust_code"),
    "budget is a list": (lambda h: run(budget=["1s"]), "budget"),
    "budget true": (lambda h: run(budget=True), "budget"),
    "setting 3,000 deep": (lambda h: run(workers=nested_lists(3000)), "levels deep"),
    "option of a dry run": (
        lambda h: assay.dry_run(net(), samples(), ["saliency"], ["deletion"], worker=1),
        "worker.*workers"),
    "page in bytes": (lambda h: run(out="r").report(b"x"), "page"),
    "page of 300 characters": (lambda h: run(out="r").report("x" * 300), "long"),
    "query that is no SQL": (lambda h: run(out="r").query("select"), "SQL"),
    "empty query": (lambda h: run(out="r").query(""), "SQL"),
    "load bytes": (lambda h: assay.load(b"x"), "path"),
    "load long": (lambda h: assay.load("x" * 5000), "long"),
}  # fmt: skip

STORED: dict[str, tuple[Callable[[Here], object], str]] = {
    **{f"manifest {text[:20]}": (lambda h, t=text: stored(h, "manifest.json", t, opened),
                                 "manifest.json|no scores")
       for text in ("{}", "[]", "3", '{"models": 3}', '{"shards": [{}]}', '{"shards": [3]}')},
    **{f"manifest {text} resumed": (
        lambda h, t=text: stored(h, "manifest.json", t, lambda f: run(out=f)), None)
       for text in ("{}", "[]")},
    **{f"log {text}": (lambda h, t=text: stored(h, "shards/*.log", t, opened), "shards.*damaged")
       for text in ("{}", "[]", "3")},
    **{f"log {text} resumed": (
        lambda h, t=text: stored(h, "shards/*.log", t, lambda f: run(out=f)), None)
       for text in ("{}", "[]", "{")},
    "spec garbage": (lambda h: stored(h, "spec.yaml", "\0{", opened), "spec.yaml"),
    "spec a list": (lambda h: stored(h, "spec.yaml", "[]", opened), "spec.yaml"),
    "folder for the suite": (lambda h: stored(h, "spec.yaml", None, opened), "spec.yaml"),
    "folder for the manifest": (lambda h: stored(h, "manifest.json", None, opened), "manifest"),
    "folder for a log": (lambda h: stored(h, "shards/*.log", None, opened), "no scores"),
}  # fmt: skip

DOORS = {"suite": SUITES, "run": RUNS, "model": MODELS, "data": DATA, "method": METHODS,
         "setting": SETTINGS, "stored": STORED}  # fmt: skip
CASES = [(kind, name) for kind, cases in DOORS.items() for name in cases]


@pytest.fixture(autouse=True)
def no_hang():
    """A case that takes longer than this hangs."""

    def stop(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(10)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{k}: {n}" for k, n in CASES])
def test_what_comes_in_is_taken_or_refused_clearly(kind, name, tmp_path, monkeypatch):
    """One line that names the thing; None: it is taken, or made again."""
    monkeypatch.chdir(tmp_path)
    door, words = DOORS[kind][name]
    if words is None:
        door(tmp_path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CLEAR, match=f"(?s){words}") as caught:
            door(tmp_path)
    assert "\n" not in str(caught.value).strip()
    assert len(str(caught.value)) < 3000


def packed(seed: int) -> nn.Module:
    """A network with quantised weights."""
    torch.manual_seed(seed)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)


def test_gradient_methods_do_not_apply_to_quantised_networks():
    results = run(packed(0), methods=("saliency", {"occlusion": {"units": "grid"}}, "random"))
    assert results.failures == []
    ((method, reason),) = {(r["method"], r["reason"]) for r in results.not_applicable}
    assert method == "saliency"
    assert "occlusion" in reason
    assert assay.model(packed(0)).weights_hash == assay.model(packed(0)).weights_hash
    assert assay.model(packed(0)).weights_hash != assay.model(packed(1)).weights_hash


def test_gradient_methods_do_not_apply_to_networks_that_detach_their_logits():
    results = run(Odd(torch.Tensor.detach), methods=("saliency", "random"))
    assert results.failures == []
    ((method, reason),) = {(r["method"], r["reason"]) for r in results.not_applicable}
    assert method == "saliency"
    assert "detaches" in reason


def test_long_errors_keep_their_end_where_the_cure_is():
    error = InputError(f"Expected a name,\ngot {'x' * 10**6} and \ud800. Write another.")
    assert str(error).startswith("Expected a name, got xxx")
    assert str(error).endswith("xxx and \\ud800. Write another.")
    assert len(str(error)) < 3000


def test_maps_that_would_lose_something_fail_with_the_reason():
    cells = run(
        methods={
            "complex": lambda model, batch: torch.zeros(len(batch), 8, 8) + 1j,
            "masked": lambda model, batch: masked((len(batch), 8, 8)),
            "whole": lambda model, batch: np.arange(64).reshape(8, 8)[None].repeat(len(batch), 0),
        }
    ).failures
    reasons = {cell["method"]: cell["message"] for cell in cells}
    assert set(reasons) == {"complex", "masked"}
    assert "real numbers, got torch.complex64" in reasons["complex"]
    assert "mask would be lost" in reasons["masked"]


def test_one_number_is_a_logit_or_what_the_caller_says():
    one = nn.Sequential(nn.Flatten(), nn.Linear(192, 1))
    unlabelled = (samples()[0], None)
    with pytest.warns(RuntimeWarning, match="regression=True"):
        run(one, unlabelled)
    maps = assay.explain(assay.model(one, regression=True), *unlabelled, "input_x_gradient")
    x = unlabelled[0]
    torch.testing.assert_close(maps, (x * one[1].weight.reshape(3, 8, 8)).sum(1).detach())


def test_weights_of_less_precision_are_taken(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    half = weights(tmp_path, states(lambda tensor: tensor.half()))
    assert torch.equal(half.net[1].weight, net()[1].weight.half().float())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--model", "net.py:build", "--data", "x" * 5000), "too long"),
        (("run", "s" * 5000 + ".yaml"), "too long"),
        (("run", "deep.yaml"), "too deep"),
        (("run", "target.yaml"), "target"),
        (
            ("run", "--model", "./net.py:build", "--data", "images", "--target", "9" * 5000),
            "target",
        ),
        (("claims", "--paper", "p" * 5000), "paper"),
        (("report", "r" * 5000), "too long"),
        (("report", "damaged"), "manifest.json"),
    ],
)
def test_the_command_line_ends_with_2_and_one_line(arguments, words, tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    images(tmp_path)
    written(tmp_path, "deep.yaml", deep(3000))
    suite = {"datasets": ["toy_images"], "models": ["toy_net"], "methods": ["saliency"],
             "protocols": ["deletion"], "target": HUGE}  # fmt: skip
    written(tmp_path, "target.yaml", json.dumps(suite))
    (tmp_path / "damaged").mkdir()
    written(tmp_path / "damaged", "manifest.json", "[]")
    code, output, errors = call(*arguments)
    assert code == 2, output + errors
    assert words in errors
    assert errors.count("\n") == 1
