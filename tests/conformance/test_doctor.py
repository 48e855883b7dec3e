"""`assay doctor NAME`: every rule is seen to be broken by a plug-in made to break it."""

import pytest

from assay.conformance import examine

METHODS = """
import torch
import assay

def good(model, batch):
    "The gradient."
    x = batch.inputs.clone().requires_grad_(True)
    return torch.autograd.grad(model(x).gather(1, batch.targets[:, None]).sum(), x)[0]

def wrong_shape(model, batch):
    return batch.inputs.new_zeros(len(batch), 2)

def infinite(model, batch):
    return batch.inputs / 0

def double(model, batch):
    return batch.inputs.double()

def changes_inputs(model, batch):
    return batch.inputs.add_(1)

def leaves_gradients(model, batch):
    model.net.requires_grad_(True)
    model(batch.inputs).sum().backward()
    return batch.inputs

def leaves_a_hook(model, batch):
    model.net.register_forward_hook(lambda *a: None)
    return batch.inputs

def leans_on_neighbours(model, batch):
    return batch.inputs - batch.inputs.mean(0)

def moody(model, batch):
    return torch.rand(batch.inputs.shape)

def raises(model, batch):
    raise KeyError("nowhere")

@assay.method("costly", passes=lambda o: assay.plugins.registry.Passes(forward=3))
def costly(model, batch):
    "One pass, though it says three."
    return batch.inputs * model(batch.inputs).sum(1).reshape(-1, *[1] * (batch.inputs.ndim - 1))

@assay.method("nowhere", needs=["sunshine"])
def nowhere(model, batch):
    "Applies nowhere."
    return batch.inputs
"""
PROTOCOLS = """
import torch
import assay
from assay.types import Scores

def score(name, **facts):
    facts = {"higher_is_better": True, "range": (-1e9, 1e9), "cite": "x", **facts}
    return assay.protocol(name, **facts)

@score("likes_noise")
def likes_noise(case):
    return Scores(case.attribution.flatten(1).sum(1).double())

@score("blind", sign_sensitive=True)
def blind(case):
    return Scores(case.attribution.flatten(1).abs().std(1).double())

@score("seeing", sign_sensitive=False)
def seeing(case):
    return Scores(case.attribution.flatten(1).sum(1).double())

@score("leaning")
def leaning(case):
    return Scores(case.attribution.flatten(1).sum(1).double() / len(case.batch))

@score("moody")
def moody(case):
    return Scores(torch.rand(len(case.batch)).double())

@score("changes")
def changes(case):
    case.attribution.add_(1)
    return Scores(case.attribution.flatten(1).sum(1).double())

@score("narrow", range=(0, 1))
def narrow(case):
    return Scores(case.attribution.flatten(1).sum(1).double())

@score("silent")
def silent(case):
    values = case.attribution.flatten(1).sum(1).double()
    return Scores(torch.where(case.constant, torch.nan, values))

@score("raises")
def raises(case):
    raise KeyError("nowhere")
"""
ENVIRONMENTS = """
import torch
from assay.data.memory import as_dataset
from assay.environments.environment import Environment
from assay.models.wrap import model
from assay.plugins.registry import environment
from dataclasses import replace

class Brightest(torch.nn.Module):
    "Which of two pixels is brighter: the class; the truth is that pixel."
    def forward(self, x):
        return x.flatten(1)[:, :2]

def world(change=lambda drawn, n, seed: drawn, family="designed", **own):
    def draw(n, seed):
        random = torch.Generator().manual_seed(seed)
        x = torch.stack([torch.rand(1, 4, 4, generator=random) for _ in range(n)])
        y = x.flatten(1)[:, :2].argmax(1)
        truth = torch.nn.functional.one_hot(y, 16).reshape(n, 4, 4).float()
        x, y, truth = change((x, y, truth), n, seed)
        ids = tuple(f"{seed}-{i}" for i in range(n))
        data = as_dataset((x, y, truth))
        rows = dict(zip(ids, data.ids))
        return replace(data, ids=ids, fetch=lambda i: data.fetch(rows[i]), groups={}, labels={})
    return Environment("brightest", model(Brightest()), **{"draw": draw, "samples": 5, **own})

@environment("right", family="designed", title="Right")
def right():
    "Keeps every rule."
    return world()

def made(name, change, family="designed"):
    def factory():
        "Breaks a rule."
        return world(change)
    globals()[name] = environment(name, family=family, title=name)(factory)

made("empty", lambda d, n, seed: (d[0], d[1], d[2] * 0))
made("shapeless", lambda d, n, seed: (d[0], d[1], d[2][:, :3]))
made("outside", lambda d, n, seed: (d[0], d[1] + 5, d[2]))
made("moody", lambda d, n, seed: (torch.rand(d[0].shape), d[1], d[2]))
made("deaf", lambda d, n, seed: (torch.ones_like(d[0]), d[1], d[2]))
made("leaning", lambda d, n, seed: (d[0] + n, d[1], d[2]))
made("wrong", lambda d, n, seed: (d[0], 1 - d[1], d[2]))

@environment("ids", family="designed", title="Ids")
def ids():
    "The same ids for every seed."
    honest = world()
    def draw(n, seed):
        data = honest.draw(n, seed)
        names = tuple(str(i) for i in range(n))
        return replace(data, ids=names, fetch=lambda i: data.fetch(f"{seed}-{i}"))
    return replace(honest, draw=draw)

@environment("short", family="designed", title="Short")
def short():
    "One sample fewer than asked for."
    honest = world()
    return replace(honest, draw=lambda n, seed: honest.draw(n - 1, seed))
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(METHODS)
    (tmp_path / "p.py").write_text(PROTOCOLS)
    (tmp_path / "e.py").write_text(ENVIRONMENTS)
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("m.py:wrong_shape", "to have shape"),
        ("m.py:infinite", "NaN or inf"),
        ("m.py:double", "the type of the inputs, got torch.float64"),
        ("m.py:changes_inputs", "changed `batch.inputs`"),
        ("m.py:leaves_gradients", "changed `requires_grad` of the parameter"),
        ("m.py:leaves_a_hook", "changed the hooks of the layer"),
        ("m.py:leans_on_neighbours", "a different map than in a batch"),
        ("m.py:moody", "draw with `batch.draw`"),
        ("m.py:raises", "KeyError: 'nowhere'"),
        ("m.py:costly", "declares 3 forward passes per sample, makes 1"),
        ("p.py:likes_noise", "noise"),
        ("p.py:blind", "sign_sensitive, but"),
        ("p.py:seeing", "not sign_sensitive, but"),
        ("p.py:leaning", "different scores than among twelve"),
        ("p.py:moody", "draw with `case.batch.draw`"),
        ("p.py:changes", "the map was changed"),
        ("p.py:narrow", "declares the range 0 to 1"),
        ("p.py:silent", "a constant map has no score"),
        ("p.py:seeing", "times 1e+06 scores differently"),
        ("p.py:raises", "KeyError: 'nowhere'"),
        ("e.py:empty", "got a truth of zeros"),
        ("e.py:shapeless", "to have the shape (6, 4, 4)"),
        ("e.py:outside", "expected targets below 2"),
        ("e.py:moody", "two batches of the same seed have different inputs"),
        ("e.py:deaf", "another seed gave the same inputs"),
        ("e.py:ids", "another seed gave the same ids"),
        ("e.py:leaning", "the first samples have different inputs"),
        ("e.py:wrong", "right on 100% of samples, got 0%"),
        ("e.py:short", "expected 6 samples"),
    ],
)
def test_every_fault_is_found(address, reason):
    assert any(reason in found.reason for found in examine(f"./{address}") if found.failed)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("m.py:wrong_shape", "to have shape"),
        ("p.py:raises", "KeyError: 'nowhere'"),
        ("e.py:empty", "got a truth of zeros"),
    ],
)
def test_the_command_tells_faults_and_fails(call, address, reason):
    code, output, _ = call("doctor", f"./{address}")
    assert code == 3
    assert any(reason in line for line in output.splitlines() if line.startswith("FAILED"))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "name",
    ["./m.py:good", "gradcam", "centre", "single_deletion", "sensitivity_n", "./e.py:right"],
)
def test_what_keeps_the_rules_passes(call, name):
    code, output, _ = call("doctor", name)
    assert code == 0
    assert "FAILED" not in output
    assert sum(line.startswith("ok") for line in output.splitlines()) >= 4


@pytest.mark.usefixtures("home")
def test_what_applies_nowhere_is_not_called_right():
    findings = list(examine("./m.py:nowhere"))
    assert {f.status for f in findings} == {"n/a"}
    for finding in findings:
        assert "needs sunshine" in finding.reason or "promises nothing" in finding.reason


def test_what_cannot_be_examined_is_said(call, home):
    (home / "broken.py").write_text("1 / 0")
    for name, message in (
        ("./broken.py:x", "cannot be imported: ZeroDivisionError"),
        ("./nowhere.py:x", "no file"),
        ("gradcm", "Did you mean `gradcam`"),
        ("assay.data.folders:csv", "got a dataset"),
    ):
        code, output, errors = call("doctor", name)
        assert code == 2
        assert message in errors.replace("\n", " ")
        assert "Traceback" not in output + errors


@pytest.mark.usefixtures("home")
def test_an_undeclared_cost_is_a_remark_not_a_fault():
    (finding,) = [
        f for f in examine("./m.py:good") if f.check.startswith("The number of network passes")
    ]
    assert (finding.status, "makes 1 per sample" in finding.reason) == ("n/a", True)
