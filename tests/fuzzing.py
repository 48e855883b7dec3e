"""Random suites, calls and command lines, each made from one number.

A case is a function that does something with assay in a folder of its own files. It ends in one of
assay's own errors, or it returns the silent acceptances it noticed: wrong input that changed or
could change numbers without a word.
"""

import copy
import datetime
import decimal
import io
import math
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from PIL import Image
from torch import nn

import assay
import toy_run  # noqa: F401 - registers toy_images and toy_net
from assay.cli import main
from assay.data.memory import as_dataset
from assay.errors import IncompleteRun, InputError, NotApplicable, PrerequisiteError
from assay.plan.resolving import build_one
from assay.plugins import registry
from assay.run import dry_run, run
from assay.suite.spec import Spec, choose_one, make_suite, parse_suite

CLEAR = (InputError, PrerequisiteError, NotApplicable)
HUGE = 10**30
LONGEST = 3000  # characters of an error
KINDS = ("method", "protocol", "fill", "units", "dataset", "model", "environment")
TRAINED = ("number_watermark", "stripe_watermark", "yellow_patch")  # minutes each
BUILT = ("single_color_modulo", "multi_color_sum", "parts")
RAW = ("TypeError", "AttributeError", "KeyError", "IndexError", "NameError", "ZeroDivisionError",
       "UnboundLocalError", "AssertionError", "RecursionError", "OverflowError",
       "UnicodeError")  # fmt: skip
NET = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 4))

def method(model, batch, *, power: int = 1):
    return batch.inputs.sum(1) ** power
"""


class SilentlyAccepted(AssertionError):
    """Wrong input was taken without a word."""


# --- files ---------------------------------------------------------------------------------------


def write_world(folder: Path) -> None:
    """Files that cases name: images, tables, a network, weights, maps, a finished run."""
    draw = np.random.default_rng(0)
    for i in range(4):
        (folder / "images" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 255, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / "ab"[i % 2] / f"{i}.png")
    rows = [f"images/{'ab'[i % 2]}/{i}.png,{i % 2},{1 - i % 2}\n" for i in range(4)]
    (folder / "a.csv").write_text("path,label,other\n" + "".join(rows))
    (folder / "t.csv").write_text("text,label,other\nhello there,0,1\nwhat is this,1,0\n")
    png = (folder / "images" / "a" / "0.png").read_bytes()
    images = pa.array([{"bytes": png, "path": None}] * 4)
    table = pa.table({"image": images, "label": [0, 1, 0, 1], "other": [1, 0, 1, 0]})
    pq.write_table(table, folder / "p.parquet")
    (folder / "net.py").write_text(NET)
    torch.save(net().state_dict(), folder / "w.pt")
    np.save(folder / "maps.npy", draw.standard_normal((2, 8, 8)).astype("float32"))
    (folder / "broken").mkdir()
    (folder / "broken" / "manifest.json").write_text("[]")
    (folder / "suite.yaml").write_text(yaml.safe_dump(plain_suite()))
    (folder / "garbage.yaml").write_bytes(draw.bytes(200))
    run(make_suite(plain_suite()), folder / "done", progress=False)


def net(classes: int = 4) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, classes))


def plain_suite() -> dict[str, object]:
    return {
        "datasets": ["toy_images"], "models": ["toy_net"], "methods": ["saliency", "random"],
        "protocols": [{"deletion": {"steps": 2}}], "limit": 2,
    }  # fmt: skip


# --- odd values ----------------------------------------------------------------------------------


def typo(draw: random.Random, name: str) -> str:
    """A name near to this one."""
    if not name:
        return "_"
    i = draw.randrange(len(name))
    cut, swapped = name[:i] + name[i + 1 :], name[:i] + name[i:][::-1]
    return draw.choice([cut, swapped, name.upper(), name + "s", f" {name}", f"{name}:", f"-{name}"])


def some_name(draw: random.Random) -> str:
    """The name of any plug-in, or one near to it."""
    name = draw.choice(sorted(registry.names(draw.choice(KINDS))))
    return name if draw.random() < 0.6 else typo(draw, name)


def deep(draw: random.Random) -> object:
    """Nested lists or mappings."""
    value: object = 1
    mapping = draw.random() < 0.5
    for _ in range(draw.choice([5, 60, 400, 3000])):
        value = {"a": value} if mapping else [value]
    return value


def odd(draw: random.Random, level: int = 0) -> object:
    """A value that hardly any option expects."""
    plain = [
        None, True, False, 0, -1, 1, 2, 3, 1.5, 0.0, 1e-300, 1e30, HUGE, -HUGE, 2**63, -(2**63) - 1,
        math.nan, math.inf, -math.inf, "", " ", "0", "1.5", "true", "label", "predicted", "none",
        "\ud800", "a\0b", "é", "x" * 5000, "../x", ".", "subprocess:getoutput",
        "./net.py:build", "./net.py:absent", "./absent.py:x", "os:getcwd", "{}", "[1, 2]", "a,b",
        "images", "a.csv", "p.parquet", "maps.npy", "w.pt", "net.py", "done",
    ]  # fmt: skip
    kind = draw.random()
    if kind < 0.55 or level > 2:
        return draw.choice(plain)
    if kind < 0.68:
        return some_name(draw)
    if kind < 0.78:
        return [odd(draw, level + 1) for _ in range(draw.randrange(4))]
    if kind < 0.88:
        return {odd_key(draw): odd(draw, level + 1) for _ in range(draw.randrange(3))}
    if kind < 0.90:
        return deep(draw)
    return draw.choice([
        lambda: datetime.date(2020, 1, 1), lambda: b"bytes", lambda: {"a", "b"}, lambda: (1, 2),
        object, lambda: 1 + 2j, lambda: len, lambda: np.float64(0.5), lambda: np.int64(3),
        lambda: np.zeros((2, 2)), lambda: torch.zeros(2, 2), lambda: Path("images"),
        lambda: decimal.Decimal("0.1"), lambda: range(3), lambda: iter([1]), lambda: np.str_("a"),
        lambda: torch.float32, lambda: type, lambda: np.bool_(True), lambda: Ellipsis,
    ])()  # fmt: skip


def odd_key(draw: random.Random) -> object:
    return draw.choice(["a", "label", "as", "steps", "path", "name", "", 1, None, True, 1.5,
                        "\ud800", (1, 2), some_name(draw)])  # fmt: skip


def near(draw: random.Random, value: object) -> object:
    """A value of the same type, or an odd one."""
    if draw.random() < 0.5:
        return odd(draw)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice([0, 1, 2, 3, 8, -value, value + 1, float(value), str(value), True])
    if isinstance(value, float):
        return draw.choice([0.0, 0.5, 1, -value, 2 * value, str(value), math.nan, True])
    if isinstance(value, str):
        return typo(draw, value)
    return odd(draw)


def options(draw: random.Random, kind: str, name: str) -> dict[object, object]:
    """One to three options of a plug-in, from its signature, with near or odd values."""
    plugin = registry.get(kind, name)
    names = [*plugin.options, *plugin.common, "as", "label"]
    if getattr(plugin, "noise", False):
        names.append("noise")
    written: dict[object, object] = {}
    for option in draw.sample(names, min(len(names), draw.randint(1, 3))):
        written[option] = near(draw, plugin.defaults.get(option))
    if draw.random() < 0.1:
        written[odd_key(draw)] = odd(draw)
    return written


def item(draw: random.Random, kind: str) -> object:
    """An item of a list of a suite."""
    chance = draw.random()
    names = [n for n in sorted(registry.names(kind)) if n not in TRAINED]
    name = draw.choice(names)
    if chance < 0.15:
        return odd(draw)
    if chance < 0.25:
        return typo(draw, name)
    if chance < 0.35:
        return name
    if chance < 0.42:
        return {name: odd(draw)}
    if chance < 0.47:
        return {name: {}, some_name(draw): {}}
    return {name: options(draw, kind, name)}


# --- what must be refused ------------------------------------------------------------------------


def lost_by(value: object, default: object = None) -> str:
    """Why a value of an option may not be taken; empty where it may."""
    if isinstance(value, bool | np.bool_) and isinstance(default, int | float):
        return "" if isinstance(default, bool) else "true or false as a number"
    if isinstance(value, float) and not math.isfinite(value):
        return "a number that is not finite"
    whole = isinstance(value, int) and not isinstance(value, bool | float)
    if whole and not isinstance(default, float) and abs(value) >= 2**63:
        return "a number of more than 64 bits"
    if isinstance(value, complex):
        return "a complex number"
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return "half of a character"
    return ""


def refuse_taken(written: Mapping[object, object], defaults: Mapping[str, object]) -> None:
    """Raise an error if one of these options should not have been taken."""
    for name, value in written.items():
        if name in ("path", "weights") or (
            name in ("as", "label") and not isinstance(value, bool | str)
        ):
            continue  # a number is a name, too
        if why := lost_by(value, defaults.get(str(name))):
            raise SilentlyAccepted(f"{name}={value!r}: {why}")


# --- suites --------------------------------------------------------------------------------------

LISTS = {"datasets": "dataset", "models": "model", "methods": "method", "protocols": "protocol"}


def a_suite(draw: random.Random, folder: Path) -> None:
    """A suite with one or two mistakes, counted; some are run."""
    fields = copy.deepcopy(plain_suite())
    written: list[tuple[str, object]] = []
    for _ in range(draw.choice([1, 1, 2])):
        change = draw.random()
        if change < 0.7:
            where = draw.choice(
                ["methods", "methods", "protocols", "protocols", "datasets", "models"]
            )
            one = item(draw, LISTS[where])
            written.append((where, one))
            fields[where] = draw.choice(
                [[one], [*fields[where], one] if isinstance(fields[where], list) else [one]]
            )
        elif change < 0.85:
            fields[draw.choice(list(Spec.model_fields))] = odd(draw)
        elif change < 0.9:
            fields[odd_key(draw)] = odd(draw)
        elif change < 0.95:
            fields |= {"datasets": [], "models": [], "environments": [item(draw, "environment")]}
            fields.pop("limit", None)
        else:
            fields[draw.choice(["seeds", "limit", "target", "title", "notes", "train"])] = near(
                draw, draw.choice([[0], 3, "label", "a"])
            )
    if heavy(fields):
        return
    spec = read_in_one_way(draw, fields)
    expected = dry_run(spec, time_it=False)
    assert expected.forwards >= 0
    for where, one in written:
        items = fields.get(where)
        if isinstance(items, list) and any(other is one for other in items):  # not replaced since
            check_item(LISTS[where], one)
    for name in ("limit", "seeds", "target"):
        value = fields.get(name)
        for part in value if isinstance(value, list) else [value]:
            if lost_by(part, 0):
                raise SilentlyAccepted(f"{name}: {value!r}")
    if not any(isinstance(v, str) and "live" in v for v in [spec.dump()]):
        assert make_suite(yaml.safe_load(spec.dump())).dump() == spec.dump()
    if expected.forwards + expected.backwards < 2000 and draw.random() < 0.1:
        check_run(spec, folder, draw)


def check_item(kind: str, one: object) -> None:
    """Raise an error if this item should not have been taken."""
    if isinstance(one, Mapping) and len(one) == 1:
        ((name, written),) = one.items()
        if isinstance(written, Mapping) and isinstance(name, str) and name in registry.names(kind):
            refuse_taken(written, registry.get(kind, name).defaults)


def check_run(spec: Spec, folder: Path, draw: random.Random) -> None:
    """Run a suite: complete, and no cell fails with an error of assay's own code."""
    results = run(spec, folder / f"run-{draw.randrange(10**12)}", progress=False)
    assert results.complete
    check_failures(results)


def check_failures(results: assay.Results) -> None:
    for cell in results.failures:
        message = cell["message"]
        assert not message.startswith(RAW), message


def heavy(fields: Mapping[object, object]) -> bool:
    """Whether a suite names what takes minutes, or needs files that only some machines have."""
    try:
        text = repr(fields)
    except RecursionError:
        text = ""
    names = (*TRAINED, "photo_mosaics", "photos", "efficientnet", "inception", "densenet", "hf:",
             "convnext", "bagnet", "bcos", "vgg", "roar", "retrain", "epochs")  # fmt: skip
    return any(name in text for name in names)


TYPED = ("", ":", "[", "{", "\t", "&a ", "*a", "!!set ", "'", "%", "- ", "\ud800", "\0",
         "!!python/object:os.system ")  # fmt: skip


def read_in_one_way(draw: random.Random, fields: dict[object, object]) -> Spec:
    """The suite from YAML text, with a typing error now and then, or from Python objects."""
    if draw.random() < 0.5:
        return make_suite(fields)
    try:
        text = yaml.safe_dump(fields)
    except (yaml.YAMLError, RecursionError, TypeError):
        return make_suite(fields)
    if draw.random() < 0.15:
        i = draw.randrange(len(text))
        text = text[:i] + draw.choice(TYPED) + text[i + 1 :]
    return parse_suite(text, "the text")


def a_choice(draw: random.Random, folder: Path) -> None:
    """One item of any kind; cheap ones are built."""
    kind = draw.choice(KINDS)
    one = item(draw, kind)
    chosen = choose_one(kind, one)
    check_item(kind, one)
    assert chosen.label
    names = [chosen.plugin.name]
    if kind in ("dataset", "model") and not heavy({0: one, 1: names}):
        build_one(kind, one)


# --- networks and data ---------------------------------------------------------------------------


class OddNet(nn.Module):
    """A network with a free hand over its answer."""

    def __init__(self, answer: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
        super().__init__()
        self.inner = net()
        self.answer = answer

    def forward(self, x: torch.Tensor) -> object:
        return self.answer(self.inner(x), x)


def failing(error: BaseException) -> Callable[[torch.Tensor, torch.Tensor], object]:
    def answer(logits: torch.Tensor, x: torch.Tensor) -> object:
        raise error

    return answer


ANSWERS: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "plain": lambda z, x: z, "tuple": lambda z, x: (z, x), "dict": lambda z, x: {"logits": z},
    "empty dict": lambda z, x: {}, "none": lambda z, x: None, "list": lambda z, x: z.tolist(),
    "numpy": lambda z, x: z.detach().numpy(), "scalar": lambda z, x: z.sum(),
    "one": lambda z, x: z[:, :1], "flat": lambda z, x: z[:, 0],
    "none wide": lambda z, x: z[:, :0],
    "whole": lambda z, x: z.long(), "complex": lambda z, x: z + 1j, "bool": lambda z, x: z > 0,
    "nan": lambda z, x: z * math.nan, "inf": lambda z, x: z / 0,
    "softmax": lambda z, x: z.softmax(1),
    "huge": lambda z, x: z * 1e38, "half": lambda z, x: z.half(), "double": lambda z, x: z.double(),
    "three axes": lambda z, x: z[:, :, None], "image": lambda z, x: x, "short": lambda z, x: z[:1],
    "mean": lambda z, x: z.mean(0, True), "detached": lambda z, x: z.detach(),
    "constant": lambda z, x: torch.zeros(len(x), 4), "text": lambda z, x: "cat",
    "sparse": lambda z, x: z.to_sparse(), "dropout": lambda z, x: nn.functional.dropout(z, 0.5),
    "in place": lambda z, x: z + x.mul_(0.5).flatten(1)[:, :4], "meta": lambda z, x: z.to("meta"),
    "stop": failing(StopIteration()), "key": failing(KeyError("a")),
    "memory": failing(MemoryError()), "assert": failing(AssertionError()),
    "exit": failing(SystemExit(0)), "text error": failing(RuntimeError("a\nb" * 3000)),
}  # fmt: skip
REFUSED_ANSWERS = ("whole", "complex", "bool", "none wide", "short", "three axes", "text", "meta")


def some_net(draw: random.Random) -> tuple[object, str]:
    """A network, or something else, and what is odd about it."""
    chance = draw.random()
    if chance < 0.45:
        return net(), ""
    if chance < 0.85:
        name = draw.choice(sorted(ANSWERS))
        return OddNet(ANSWERS[name]), name
    if chance < 0.9:
        return assay.model(net(), **model_options(draw)), ""
    if chance < 0.93:
        return {"a": net(), "b": net(3)}, ""
    return odd(draw), ""


def model_options(draw: random.Random) -> dict[str, object]:
    names = ["name", "classes", "output", "tokens", "size", "mean", "std", "resize", "prepare",
             "layers", "cam_layer", "cam_reshape", "regression", "card", "micro_batch",
             "stochastic", "weights", "modality", "device"]  # fmt: skip
    return {name: odd(draw) for name in draw.sample(names, draw.randint(1, 2))}


DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8,
          torch.int32, torch.int64, torch.bool, torch.complex64)  # fmt: skip
SHAPES = ((4, 3, 8, 8), (4, 3, 8, 8), (4, 3, 8, 8), (1, 3, 8, 8), (0, 3, 8, 8), (4, 192), (4,), (),
          (4, 0, 8, 8), (4, 3, 8), (4, 1, 3, 8, 8), (2, 3, 16, 16), (4, 192, 1))  # fmt: skip


def some_array(draw: random.Random, shapes: tuple[tuple[int, ...], ...]) -> tuple[object, str]:
    """An array of some kind, and what would be lost if it were taken."""
    generator = torch.Generator().manual_seed(draw.randrange(2**32))
    shape = draw.choice(shapes)
    values = torch.randn(shape, generator=generator)
    chance = draw.random()
    if chance < 0.35:
        return values, ""
    if chance < 0.55:
        dtype = draw.choice(DTYPES)
        made = (values * 100).to(dtype)
        return made, "imaginary" if dtype.is_complex else ""
    if chance < 0.6:
        bad = values.clone()
        bad.reshape(-1)[: bad.numel() // 2] = draw.choice([math.nan, math.inf, 1e38])
        return bad, ""
    makers: list[Callable[[], tuple[object, str]]] = [
        lambda: (values.numpy(), ""), lambda: (values.tolist(), ""),
        lambda: (values.numpy().astype(np.longdouble), "precision"),
        lambda: (values.numpy().astype(complex), "imaginary"),
        lambda: (values.numpy().astype(object), ""), lambda: (values.numpy().astype(str), "text"),
        lambda: (np.ma.masked_array(values.numpy(), np.ones(shape, bool)), "mask"),
        lambda: (values.to_sparse(), "sparse"), lambda: (values.to("meta"), "no values"),
        lambda: (values.clone().requires_grad_(True), ""),
        lambda: (nn.Parameter(values), ""), lambda: (values.flip(0), ""),
        lambda: (np.asfortranarray(values.numpy()), ""),
        lambda: (np.flip(values.numpy()), ""), lambda: (values.numpy().astype(">f4"), ""),
        lambda: (values[:1].expand(4, *shape[1:]) if shape and values.numel() else values, ""),
        lambda: (iter(values.reshape(-1)), ""), lambda: (None, ""), lambda: (odd(draw), ""),
        lambda: (np.zeros(4, [("a", "f4")]), "fields"),
        lambda: (np.array(["2020"] * 4, "datetime64[D]"), "dates"),
    ]  # fmt: skip
    return draw.choice(makers)()


def some_labels(draw: random.Random, n: int) -> tuple[object, bool]:
    """Labels for n samples, and whether they must be refused."""
    plain = torch.arange(n) % 4
    cases: list[tuple[object, bool]] = [
        (plain, False), (plain, False), (plain, False), (plain.tolist(), False),
        (plain.numpy(), False), (None, False), (plain.float(), False), (plain + 0.5, True),
        (plain - 1, True), (plain + 1, True), (plain[:-1], True), (plain.repeat(2), True),
        (plain[:, None], False), (plain.double() * math.nan, True), ([0.5] * n, True),
        ([True] * n, False), (["a"] * n, True), ([None] * n, True),
        ([HUGE] * n, True),
        ([2**62] * n, True), (np.array([2**63 + 1] * n, np.uint64), True), ("abcd"[:n], True),
        (plain + 0j, True), (np.ma.masked_array(plain.numpy(), np.ones(n, bool)), True),
        (torch.nn.functional.one_hot(plain, 4), True), (3, True), ({}, True), (odd(draw), False),
    ]  # fmt: skip
    return draw.choice(cases)


def check_values(x: object, inputs: torch.Tensor) -> None:
    """The inputs of a batch are the numbers of the user's data, whatever holds them."""
    numbers = x.detach().double().numpy() if isinstance(x, torch.Tensor) else np.asarray(x, float)
    taken = inputs.double().numpy()
    precise = isinstance(x, list) or x.dtype not in (torch.float64, np.dtype("f8"))
    if not np.allclose(taken, numbers, rtol=1e-6 if precise else 1e-5, atol=0, equal_nan=True):
        raise SilentlyAccepted("the numbers of the data are others")


def same(a: object, b: object) -> bool:
    """Whether data of the caller are unchanged."""
    if isinstance(a, torch.Tensor) and a.layout == torch.strided and a.device.type == "cpu":
        return torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))
    return True


def guarded(draw: random.Random, do: Callable[[object, object, object], object]) -> object:
    """Call with a network, X and y, one or two of them odd; refuse what loses something."""
    network, x, y = net(), torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1)), None
    what, lost, refused = "", "", False
    y = torch.arange(4) % 4
    place = draw.randrange(6)  # 4 and 5: nothing here is odd
    if place in (0, 3):
        network, what = some_net(draw)
    if place in (1, 3):
        x, lost = some_array(draw, SHAPES)
    if place == 2:
        y, _ = some_labels(draw, 4)
    before = copy.deepcopy(x) if isinstance(x, torch.Tensor) and x.is_leaf else x
    with torch.no_grad() if draw.random() < 0.1 else torch.enable_grad():
        answer = do(network, x, y)
    if lost:
        raise SilentlyAccepted(f"X loses {lost}")
    if refused:
        raise SilentlyAccepted(f"labels {y!r}")
    if what in REFUSED_ANSWERS:
        raise SilentlyAccepted(f"network that answers {what}")
    assert same(x, before), "X was changed"
    return answer


CHEAP = ("saliency", "input_x_gradient", "random", "occlusion", "centre", "shuffled", "edge",
         "gradcam", "lrp", "deeplift", "guided_backprop", "lime", "rise",
         "smoothgrad")  # fmt: skip
SCORED = ("deletion", "single_deletion", "sensitivity_n", "infidelity", "morf", "soundness",
          "pointing_game", "abpc")  # fmt: skip


def explains(draw: random.Random, folder: Path) -> None:
    """`assay.explain` with something odd."""
    method: object = draw.choice(CHEAP)
    written: dict[object, object] = {}
    if draw.random() < 0.2:
        method = draw.choice([odd(draw), item(draw, "method"), lambda m, b: b.inputs,
                              lambda m, b: None, lambda m, b: b.inputs[:1], lambda m, b: 1,
                              lambda m, b: np.zeros((len(b), 8, 8)), lambda x: x])  # fmt: skip
    elif draw.random() < 0.3:
        name = str(method)
        written = {
            str(k): v for k, v in options(draw, "method", name).items() if k not in ("as", "label")
        }
    if heavy({0: method, 1: written}):
        return
    maps = guarded(draw, lambda n, x, y: assay.explain(n, x, y, method, **written))
    assert isinstance(maps, torch.Tensor)
    if isinstance(method, str):
        refuse_taken(written, registry.get("method", method).defaults)


def scores(draw: random.Random, folder: Path) -> None:
    """`assay.score` with odd maps or odd data."""
    protocol, written = draw.choice(SCORED), {}
    maps: object = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(2))
    lost = ""
    if draw.random() < 0.4:
        maps, lost = some_array(draw, ((4, 8, 8), (4, 8, 8), (4, 3, 8, 8), (4, 64), (3, 8, 8), ()))
    if draw.random() < 0.3:
        written = {
            str(k): v
            for k, v in options(draw, "protocol", protocol).items()
            if k not in ("as", "label")
        }
    values = guarded(draw, lambda n, x, y: assay.score(n, x, y, maps, protocol, **written))
    assert isinstance(values, torch.Tensor)
    if lost:
        raise SilentlyAccepted(f"maps lose {lost}")
    refuse_taken(written, registry.get("protocol", protocol).defaults)


SETTINGS = ("seed", "out", "train", "target", "limit", "budget", "device", "micro_batch", "workers",
            "keep_maps", "progress", "one_thread", "timeout", "trust_code", "absent")  # fmt: skip


def benchmarks(draw: random.Random, folder: Path) -> None:
    """`assay.benchmark` and `assay.dry_run` with odd data, items and settings."""
    dry = draw.random() < 0.3
    methods: object = ["saliency", "random"]
    protocols: object = [{"deletion": {"steps": 2}}]
    settings: dict[str, object] = {} if dry else {"progress": False}
    if draw.random() < 0.3:
        maps = some_array(draw, ((4, 8, 8),))[0]
        methods = draw.choice([odd(draw), [item(draw, "method")], {"m": maps},
                               [lambda m, b: odd(draw)], [], {}])  # fmt: skip
    if draw.random() < 0.2:
        protocols = draw.choice([odd(draw), [item(draw, "protocol")], [], {}])
    if draw.random() < 0.5:
        for name in draw.sample(SETTINGS, draw.randint(1, 2)):
            settings[name] = odd(draw)
    if heavy({0: methods, 1: protocols}) or repr(settings.get("workers")) in ("2", "3"):
        return
    if draw.random() < 0.15:
        tensors = torch.utils.data.TensorDataset(torch.zeros(4, 3, 8, 8))
        data: object = draw.choice(["images", "a.csv", "p.parquet", "t.csv", "absent",
                                    Path("images"), odd(draw), tensors])  # fmt: skip
        call = assay.dry_run if dry else assay.benchmark
        result = call(net(), data, methods, protocols, **settings)
    elif dry:
        options = {n: v for n, v in settings.items() if n != "progress"}
        result = guarded(
            draw, lambda n, x, y: assay.dry_run(n, (x, y), methods, protocols, **options)
        )
    else:
        result = guarded(
            draw, lambda n, x, y: assay.benchmark(n, (x, y), methods, protocols, **settings)
        )
    for name, value in settings.items():
        default = 0 if name in ("seed", "limit", "micro_batch", "workers") else None
        if why := lost_by(value, default):
            raise SilentlyAccepted(f"{name}={value!r}: {why}")
    if settings.get("out", "x") == "":
        raise SilentlyAccepted("out=''")
    if not dry:
        assert result.complete
        result.leaderboard()


def models(draw: random.Random, folder: Path) -> None:
    """`assay.model` with odd options, used once."""
    written = model_options(draw)
    network = net() if draw.random() < 0.8 else some_net(draw)[0]
    model = assay.model(network, **written)
    refuse_taken({k: v for k, v in written.items() if k in ("size", "mean", "std", "resize")},
                 {"size": 1, "resize": 1, "mean": 0.5, "std": 0.5})  # fmt: skip
    assay.explain(model, torch.randn(2, 3, 8, 8), None, "saliency")


def datasets(draw: random.Random, folder: Path) -> None:
    """Data in memory, and readers with other columns: another column is other data."""
    if draw.random() < 0.6:
        x, lost = some_array(draw, SHAPES)
        n = len(x) if isinstance(x, torch.Tensor | np.ndarray) and x.ndim else 4
        y, _ = some_labels(draw, n)
        data: object = draw.choice([(x, y), [x, y], (x,), (x, y, None), x, (x, y, x)])
        dataset = as_dataset(data)
        if lost:
            raise SilentlyAccepted(f"X loses {lost}")
        batch = dataset.batch(dataset.ids)
        if isinstance(x, torch.Tensor | np.ndarray | list) and isinstance(data, tuple | list):
            check_values(x, batch.inputs)
        return
    reader, path = draw.choice([("csv", "a.csv"), ("texts", "t.csv"), ("parquet", "p.parquet")])
    written = {"path": path, **options(draw, "dataset", reader)}
    if draw.random() < 0.5:
        written |= {"path": path, "label": draw.choice(["label", "other"])}
    dataset = build_one("dataset", {reader: written})
    refuse_taken(written, registry.get("dataset", reader).defaults)
    if dict(written) == {"path": path, "label": "other"}:
        labels = [dataset.fetch(i).label for i in dataset.ids]
        if labels != ([1, 0] if reader == "texts" else [1, 0, 1, 0]):
            raise SilentlyAccepted(f"{reader} read another column: {labels}")


def stored(draw: random.Random, folder: Path) -> None:
    """`assay.load` and `assay.compare` of odd places; a finished run read with odd arguments."""
    place = draw.choice([odd(draw), "broken", "done", Path("done"), "images", "absent"])
    if draw.random() < 0.3:
        assay.compare(*draw.choice([(), (place,), ("done", place), (["done", place],)]))
        return
    results = assay.load(place)
    name = draw.choice(["leaderboard", "against", "trust", "report", "maps", "query"])
    arguments: list[object] = []
    if name in ("against", "trust", "maps"):
        arguments = [draw.choice(["saliency", "salience", "random", "", "deletion", "\ud800"])]
    if name == "query":
        arguments = [draw.choice(["select 1", "select", "", "select * from absent"])]
    if name == "report":
        arguments = [draw.choice(["page.html", "", "x" * 300, "a\0b", "done", 3, None, b"x"])]
    getattr(results, name)(*arguments)


CALLS = (
    explains,
    explains,
    scores,
    scores,
    benchmarks,
    benchmarks,
    models,
    datasets,
    datasets,
    stored,
)


def a_call(draw: random.Random, folder: Path) -> None:
    """One call of the Python interface."""
    draw.choice(CALLS)(draw, folder)


# --- command lines -------------------------------------------------------------------------------

RUNS = ["--model", "./net.py:build", "--data", "images", "--methods", "saliency,random",
        "--protocols", "deletion", "--size", "8", "--mean", ".5", "--std", ".5",
        "--limit", "2"]  # fmt: skip
COMMANDS: dict[str, list[list[str]]] = {
    "run": [["suite.yaml", "--trust-code"], RUNS, [*RUNS, "--dry-run"], ["absent"],
            ["garbage.yaml"]],
    "explain": [["images/a/0.png", "--model", "./net.py:build", "--size", "8", "--mean", ".5",
                 "--std", ".5", "--method", "saliency", "-o", "map.png"]],
    "list": [["methods"], ["protocols", "--json"], ["suites"]],
    "report": [["done"], ["broken"], ["absent"]],
    "claims": [[], ["--paper", "soco"], ["--json"]],
    "check": [["absent_method"], ["saliency", "--samples", "1"]],
    "trust": [["done"], ["broken"], ["absent"]],
    "compare": [["done", "done"], ["done"], ["broken"]],
    "doctor": [["absent"], ["./net.py:absent"]],
    "new": [["method", "mine", "--out", "made"], ["protocol", "mine"], ["suite", "x"]],
    "finetune": [["--model", "absent", "--data", "images"], ["--data", "images"]],
    "zoo": [["list"], ["train", "absent"], []],
    "demo": [["--limit", "0"], ["--workers", "x"], ["--absent"]],
}  # fmt: skip
EXPENSIVE = ("check", "finetune", "zoo", "demo", "doctor", "claims")
FLAGS = ("--out", "--workers", "--device", "--limit", "--budget", "--timeout", "--micro-batch",
         "--dry-run", "--maps", "--model", "--weights", "--data", "--train", "--methods",
         "--protocols", "--size", "--resize", "--mean", "--std", "--classes", "--card", "--target",
         "--stochastic", "--trust-code", "--json", "--paper", "--run", "--seed", "--truth",
         "--protocol", "--replicates", "--architecture", "--samples", "--gamma", "--sizes", "-o",
         "--best", "--method", "--help", "--absent", "--", "-")  # fmt: skip


def words(draw: random.Random) -> str:
    """One odd word of a command line."""
    value = draw.choice([odd(draw), some_name(draw), draw.choice([
        "-1", "0", "1e30", "nan", "9" * 5000, "1s", "0s", "10min", "-5s", ",", ",,", "saliency,,",
        "saliency,saliency", ".5,.5", ".5,.5,.5", "a=b", "=", "[", "[red]", "*", "(", "cuda:99",
        "meta", "maps.npy", "w.pt", "done", "images", "a.csv",
    ])])  # fmt: skip
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:
        text = "[" * 3000
    return text.replace("\0", "")[:6000]  # no command line holds a zero byte


def a_command(draw: random.Random, folder: Path) -> str | None:
    """One command line, in this process. Its exit code is one of those that are documented."""
    name = draw.choice(sorted(COMMANDS) + ["run"] * 6 + ["explain"] * 3 + ["compare", "trust"])
    arguments = [*draw.choice(COMMANDS[name])]
    for _ in range(draw.choice([0, 1, 1, 2])):
        change = draw.random()
        if change < 0.4 and arguments:
            arguments[draw.randrange(len(arguments))] = words(draw)
        elif change < 0.8:
            arguments += [draw.choice(FLAGS), words(draw)]
        elif change < 0.9 and arguments:
            del arguments[draw.randrange(len(arguments))]
        else:
            arguments.insert(draw.randrange(len(arguments) + 1), words(draw))
    if name in EXPENSIVE and ("--run" in arguments or arguments not in COMMANDS[name]):
        arguments += draw.choice([["--absent-option"], ["--help"]])
    if any(
        a in ("2", "3") for a, b in zip(arguments[1:], arguments, strict=False) if b == "--workers"
    ):
        return None
    if heavy({0: arguments}) or (name == "run" and set(arguments) & set(TRAINED)):
        return None
    if name == "run" and "--out" not in arguments:
        arguments += ["--out", f"out-{draw.randrange(10**12)}"]
    code, output = typed([name, *arguments])
    assert code in (0, 2, 3), f"exit code {code}: {output[-500:]}"
    assert "Traceback (most recent" not in output, output[-500:]
    assert code == 0 or output.strip(), "no word about what is wrong"
    if name == "run" and code == 0 and "--dry-run" not in arguments and "--help" not in arguments:
        place = arguments[len(arguments) - 1 - arguments[::-1].index("--out") + 1]
        assert assay.load(place).complete, "exit code 0 without a complete run"
    return "refused" if code == 2 else None


def typed(arguments: list[str]) -> tuple[int, str]:
    """Exit code and output of a command."""
    before, out = sys.argv, io.StringIO()
    sys.argv = ["assay", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(out):
            main()
        return 0, out.getvalue()
    except SystemExit as stop:
        return (
            stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
        ), out.getvalue()
    finally:
        sys.argv = before


DOORS: dict[str, Callable[[random.Random, Path], str | None]] = {
    "suite": a_suite, "choice": a_choice, "call": a_call, "command": a_command,
}  # fmt: skip


def attempt(door: str, number: int, folder: Path) -> str:
    """Do one case in the working folder; the result says how it ended.

    Raises:
        BaseException: It ended in another way than a run or a clear error.
    """
    draw = random.Random(f"{door} {number}")
    torch.manual_seed(0)
    try:
        end = DOORS[door](draw, folder)
    except CLEAR as error:
        raised: Exception = error
    else:
        return end or "taken"
    text = str(raised)
    assert not isinstance(raised, IncompleteRun), text
    assert text.strip(), "an error without a word"
    assert "\n" not in text, text
    assert len(text) < LONGEST, f"{len(text)} characters: {text[:200]}"
    return "refused"
