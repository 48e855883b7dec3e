"""`assay explain IMAGE --best DIR`: the run's first method, and how far to trust it."""

import numpy as np
import pytest
import torch
from PIL import Image

import assay
from assay.answers.best import Place, explain_best
from assay.plugins import registry
from assay.ranking.answer import Answer
from assay.ranking.overall import OverallRow

NET = """
import torch
from torch import nn

class Linear(nn.Module):
    "f(x) = <w, x>: input x gradient is the exact map."
    def __init__(self, seed):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(3, 3, 8, 8, generator=generator))

    def forward(self, x):
        return torch.einsum("bchw,kchw->bk", x, self.weight)

def build(seed=0):
    return Linear(seed)

def other():
    return Linear(1)
"""
BAD = """
import torch

def negated(model, batch):
    "The exact map, turned round."
    x = batch.inputs.clone().requires_grad_(True)
    chosen = model(x).gather(1, batch.targets[:, None]).sum()
    return -x.detach() * torch.autograd.grad(chosen, x)[0]
"""
LOOK = ["--size", "8", "--mean", ".5", "--std", ".25"]
MODEL = {"./net.py:build": {"size": 8, "mean": [0.5], "std": [0.25]}}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A network, 24 pictures it is right about, and a run over them."""
    folder = tmp_path_factory.mktemp("user")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (folder / "net.py").write_text(NET)
        noise = np.random.default_rng(0)
        net = registry.get("model", "./net.py:build").function()
        rows = ["path,label"]
        for i in range(24):
            pixels = noise.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{i}.png")
            x = (torch.tensor(pixels).permute(2, 0, 1) / 255 - 0.5) / 0.25
            rows.append(f"{i}.png,{int(net(x[None]).argmax())}")
        (folder / "list.csv").write_text("\n".join(rows))
    return folder


@pytest.fixture
def here(home, monkeypatch):
    monkeypatch.chdir(home)
    return home


RUN = ["--model", "./net.py:build", "--data", "list.csv", *LOOK, "--protocols",
       "single_deletion,deletion"]  # fmt: skip


@pytest.fixture
def run(here, call):
    """The run, made once."""
    if not (here / "run").exists():
        methods = "saliency,random,input_x_gradient,constant"
        assert call("run", *RUN, "--methods", methods, "--out", "run")[0] == 0
    return here / "run"


def test_the_first_method_explains_and_says_how_sure(run, here, call):
    code, output, _ = call(
        "explain", "0.png", "--model", "./net.py:build", *LOOK, "--best", "run", "-o", "a b/m.png"
    )
    assert code == 0
    row = next(r for r in assay.load(run).leaderboard().overall if not r["control"])
    assert row["method"] == "input_x_gradient"
    assert "input_x_gradient explains it: the first of 2 methods on list" in output
    assert f"It is {row['difference']:.2f} above random" in " ".join(output.split())
    assert "No other method is unbeaten" in output
    assert output.count("Caveat: ") == 1
    assert Image.open(here / "a b" / "m.png").size == (256, 256)


@pytest.mark.usefixtures("run")
def test_the_score_here_is_the_one_the_run_has(call):
    """A picture of the run itself, explained for its label, gets the run's own score."""
    _, output, _ = call("explain", "3.png", "--model", "./net.py:build", *LOOK, "--best", "run")
    found = (
        assay.load("run")
        .query(
            "select value from scores where sample = '3.png' and method = 'input_x_gradient' "
            "and protocol = 'single_deletion'"
        )["value"]
        .to_pylist()
    )
    assert f"Here it scores {found[0]:.3f} under single_deletion (higher is better" in output


@pytest.mark.usefixtures("run")
def test_another_class_than_the_network_says_is_the_first_caveat():
    predicted = explain_best("0.png", MODEL, "run", None)[0][0]
    for target in range(3):
        said, _ = explain_best("0.png", MODEL, "run", target)
        same = said[0] == predicted
        assert ("the network itself predicts" in said[-1]) != same


@pytest.mark.usefixtures("here")
def test_few_samples_are_a_caveat_and_tie_everyone(call):
    call("run", *RUN, "--methods", "saliency,input_x_gradient,random", "--out", "few",
         "--limit", "6")  # fmt: skip
    said, _ = explain_best("0.png", MODEL, "few", None)
    assert any(text.startswith("6 independent samples: too few to separate") for text in said)
    sure = "unsure" not in said[-1]
    assert ("only 6 independent samples" in said[-1]) == sure


def test_a_control_that_comes_first_is_a_caveat(call, here):
    (here / "bad.py").write_text(BAD)
    call("run", *RUN, "--methods", "./bad.py:negated,random", "--out", "control")
    sentences = {
        explain_best(f"{i}.png", MODEL, "control", None, trust_code=True)[0][-1] for i in range(24)
    }  # some pictures have a caveat of their own
    assert any(
        "the control random, which ignores the network, is better under" in text
        for text in sentences
    )


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "./net.py:other", "--best", "run"], "of another model: it has `build`"),
        (["--model", "./net.py:build", "--best", "nowhere"], "Expected a run in `nowhere`"),
        (["--model", "./net.py:build", "--best", "run", "--method", "x"], "not both"),
    ],
)
def test_mistakes_are_said(call, arguments, message):
    code, _, errors = call("explain", "0.png", *LOOK, *arguments)
    assert code == 2
    assert message in errors.replace("\n", " ")


@pytest.mark.usefixtures("here")
def test_a_run_from_python_can_be_asked_too(tmp_path):
    from assay.plan.resolving import build_one

    model, data = build_one("model", MODEL), build_one("dataset", {"csv": {"path": "list.csv"}})
    methods = [{"integrated_gradients": {"steps": 3, "label": "ig"}}, "random"]
    assay.benchmark(model, data, methods, ["single_deletion"], out=tmp_path / "a", progress=False)
    assert "ig explains it" in explain_best("0.png", MODEL, tmp_path / "a", None)[0][1]

    def mine(model, batch):
        return batch.inputs

    assay.benchmark(
        model, data, [mine, "random"], ["single_deletion"], out=tmp_path / "b", progress=False
    )
    with pytest.raises(assay.PrerequisiteError, match="`mine` lived only in the process"):
        explain_best("0.png", MODEL, tmp_path / "b", None)


@pytest.mark.usefixtures("run")
def test_a_file_name_that_is_no_picture(call):
    code, _, errors = call(
        "explain", "0.png", "--model", "./net.py:build", *LOOK, "--best", "run", "-o", "map.txt"
    )
    assert code == 2
    assert "Expected `-o` to end in .png" in errors


@pytest.mark.parametrize(("difference", "protocols", "groups"), [(-0.05, 1, 40), (1.5, 3, 4)])
def test_the_sentence_of_a_place_says_the_side_and_no_more_than_is_known(
    difference: float, protocols: int, groups: int
) -> None:
    row = OverallRow(
        "imgs", "net", "", "ig", "", 1, difference, None, None, True, "", groups, 1, protocols
    )  # fmt: skip
    place = Place([row], row, Answer(row.setting, ("ig",), ("ig",), n_groups=groups), [], "")
    side = "below" if difference < 0 else "above"
    assert f"It is {abs(difference):.2f} {side} random" in place.sentence
    assert ("over 1 protocol." in place.sentence) == (protocols == 1)
    assert ("that no other one beats" in place.sentence) == (groups >= 10)
