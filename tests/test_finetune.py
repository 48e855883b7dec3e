"""`assay finetune`, as a user types it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

import assay
from assay.commands.tuned_tables import SDS, print_scores
from assay.plugins.addresses import load_object
from assay.ranking.leaderboard import Leaderboard
from assay.ranking.rows import BoardRow

SOURCE = """
import torch
from torch import nn
from assay.types import Dataset, Sample


class Tiny(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


def make(seed: int = 0):
    return Tiny(seed)


def samples(n: int = 60, seed: int = 1, labels: bool = True):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, 8, 8, generator=generator)
    y = torch.arange(n) % 3
    x[torch.arange(n), y] += 1
    return (x, y) if labels else (x, None)


def fresh():
    return samples(seed=2)


def shared():  # the first sample to score is a training sample of another id
    (x, y), (old, _) = samples(seed=2), samples()
    x[0] = old[33]
    return x, y


def unlabelled():
    return samples(labels=False)


def frozen():
    return Tiny(0).requires_grad_(False)
"""


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tiny.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def arguments(*more: str) -> tuple[str, ...]:
    return (
        "finetune", "--model", "./tiny.py:make", "--data", "./tiny.py:samples", "--out", "tuned",
        "--epochs", "2", "--rate", "0.02", *more,
    )  # fmt: skip


def test_one_command_tunes_prints_the_card_and_scores(call, tiny):
    torch.save(load_object("./tiny.py:make")[0](1).state_dict(), "other.pt")
    code, output, errors = call(
        *arguments("--placebo", "--seeds", "other.pt", "--score", "./tiny.py:fresh", "--limit",
                   "12", "--score-limit", "9", "--methods", "saliency,random")
    )  # fmt: skip
    assert code == 0, errors
    card = json.loads((tiny / "tuned" / "card.json").read_text())
    assert card["placebo_mad_softmax"] > 0
    assert card["seeds_mad_softmax"] > 0
    assert "the same network" in output
    assert f"{card['accuracy_after']:.1%}" in output
    results = assay.load(tiny / "tuned" / "run")
    assert len(set(results.scores["sample"].to_pylist())) == 9
    statuses = {(c["model"], c["protocol"].partition("[")[0], c["status"]) for c in results.cells}
    assert statuses == {
        ("fine-tuned", "in_domain_single_deletion", "ok"),
        ("fine-tuned", "single_deletion", "ok"),
        ("before", "in_domain_single_deletion", "n/a"),
        ("before", "single_deletion", "ok"),
    }
    for row in results.leaderboard().by_protocol:
        if row.mean is not None:
            text = f"{row.mean:z.3f}  {row.low:z.2f} to {row.high:z.2f}"
            assert text in output, (row.model, row.protocol, row.method)
    assert "mean rank" not in output
    assert "Not applicable" not in output  # that the network before has no card is no news
    assert output.count("IDSDS is a score of the fine-tuned network only.") == 1
    assert not (tiny / "tuned" / "resume.safetensors").exists()
    weights = {p: p.read_bytes() for p in tiny.glob("tuned/**/weights.safetensors")}
    assert len(weights) == 2  # of the network and of the placebo
    code, output, _ = call(*arguments("--limit", "12"))
    assert code == 0
    assert "Already finished" in output
    assert {p: p.read_bytes() for p in weights} == weights
    run = ("run", "--model", "./tiny.py:make", "--weights", "tuned/weights.safetensors", "--card",
           "tuned/card.json", "--data", "./tiny.py:samples", "--methods", "saliency", "--protocols",
           "in_domain_single_deletion", "--limit", "4", "--out", "again")  # fmt: skip
    code, output, errors = call(*run)
    assert code == 0, errors
    other = [word if word != "tuned/weights.safetensors" else "other.pt" for word in run]
    code, _, errors = call(*other)
    assert code == 2
    assert "other weights" in errors


def test_an_interrupted_command_continues(call, tiny, monkeypatch):
    from assay.training import fitting

    assert call(*arguments())[0] == 0
    whole = load_file(tiny / "tuned" / "weights.safetensors")
    inner, epochs = fitting._one_epoch, []

    def stop(*told):
        if len(epochs) == 1:
            raise KeyboardInterrupt
        epochs.append(1)
        return inner(*told)

    again = [word if word != "tuned" else "second" for word in arguments()]
    with monkeypatch.context() as patched:
        patched.setattr(fitting, "_one_epoch", stop)
        code, _, errors = call(*again)
    assert code == 130
    assert "Run the same command again" in errors
    assert (tiny / "second" / "resume.safetensors").is_file()
    assert call(*again)[0] == 0
    resumed = load_file(tiny / "second" / "weights.safetensors")
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def test_a_folder_of_other_settings_is_refused(call, tiny):
    assert call(*arguments())[0] == 0
    before = (tiny / "tuned" / "card.json").read_bytes()
    code, _, errors = call(*arguments("--grid", "2"))
    assert code == 2
    assert "`grid` 2, got one with 4" in errors
    assert (tiny / "tuned" / "card.json").read_bytes() == before


def test_a_folder_of_another_network_is_refused(call, tiny):
    make = load_object("./tiny.py:make")[0]
    hashes = [assay.model(make(seed)).weights_hash for seed in range(3)]
    torch.save(make(0).state_dict(), "base.pt")
    torch.save(make(1).state_dict(), "other.pt")
    base = ("--weights", "base.pt")
    assert call(*arguments(*base, "--seeds", "other.pt"))[0] == 0
    assert json.loads((tiny / "tuned/card.json").read_text())["seeds_sha256"] == hashes[1]
    assert call(*arguments(*base, "--seeds", "other.pt"))[0] == 0
    before = (tiny / "tuned" / "card.json").read_bytes()
    torch.save(make(2).state_dict(), "other.pt")
    code, _, errors = call(*arguments(*base, "--seeds", "other.pt"))
    assert code == 2
    assert all(words in errors for words in (hashes[1], hashes[2], "--out"))
    torch.save(make(2).state_dict(), "base.pt")
    for more in (("--placebo",), ("--score", "./tiny.py:fresh", "--methods", "saliency")):
        code, _, errors = call(*arguments(*base, *more))
        assert code == 2
        assert all(words in errors for words in (hashes[0], hashes[2], "--out"))
    assert (tiny / "tuned" / "card.json").read_bytes() == before
    assert not (tiny / "tuned" / "run").exists()
    assert not (tiny / "tuned" / "placebo").exists()


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_damaged_settings_are_named(call, tiny, text):
    (tiny / "tuned").mkdir()
    (tiny / "tuned" / "settings.json").write_text(text)
    code, _, errors = call(*arguments())
    assert code == 2
    assert "settings.json" in errors
    assert "--out" in errors


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--data", "./tiny.py:unlabelled"), "labels"),
        (("--fill", "blur(sigma)"), "blur(sigma=5)"),
        (("--fill", "nothing"), "Unknown fill"),
        (("--train-limit", "7"), "--measure"),
        (("--grid", "9"), "at most 8 cells"),
        (("--rate", "-1"), "rate"),
        (("--rate", "0"), "rate"),
        (("--rate", "1e30"), "Choose a smaller rate"),
        (("--measure", "./tiny.py:samples"), "60 of 60 with the content of a training sample"),
        (
            ("--measure", "./tiny.py:shared"),
            "1 of 60 with the content of a training sample: `0000`",
        ),
        (("--score", "./tiny.py:shared"), "1 of 60 with the content of a training sample: `0000`"),
        (("--model", "./tiny.py:frozen"), "requires_grad"),
    ],
)
def test_bad_input_is_one_line(call, tiny, more, message):
    code, _, errors = call(*arguments(*more))
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_a_command_that_trained_nothing_leaves_the_folder_to_the_next(call, tiny):
    code, _, errors = call(*arguments("--grid", "9"))
    assert code == 2
    assert call(*arguments("--grid", "2"))[0] == 0
    other = tiny / "other"
    other.mkdir()
    (other / "settings.json").write_text('{"editor": "mine"}')  # not ours
    code, _, errors = call(*arguments("--out", "other"))
    assert code == 2
    assert "--out" in errors
    assert json.loads((other / "settings.json").read_text()) == {"editor": "mine"}


def test_methods_that_differ_in_an_option_are_told_apart(capsys):
    row = BoardRow(
        "data", "fine-tuned", "", SDS, "saliency[abs=True]", -1e-9, None, None, 3, 3, "ok", "", "",
        "correlation", True, 0, 0, "",
    )  # fmt: skip
    board = Leaderboard([row, replace(row, method="saliency", low=-1e-9, high=0.5)])
    entries = SimpleNamespace(protocols={SDS: SimpleNamespace(name=SDS)})
    print_scores(SimpleNamespace(leaderboard=lambda: board, entries=entries))
    output = capsys.readouterr().out
    assert "saliency[abs=True]" in output
    assert "fine-tuned: SDS" in output
    assert "before" not in output
    assert "0.000  0.00 to 0.50" in output
    assert "-0.0" not in output


def test_scores_of_training_samples_are_refused_or_warned_of(call, tiny):
    assert call(*arguments("--limit", "12"))[0] == 0
    again = arguments("--limit", "12", "--score", "./tiny.py:shared", "--methods", "random")
    code, _, errors = call(*again, "--score-limit", "60")  # the folder knows what it was trained on
    assert code == 2
    assert "1 of 60" in errors
    run = ("run", "--model", "./tiny.py:make", "--weights", "tuned/weights.safetensors", "--card",
           "tuned/card.json", "--data", "./tiny.py:shared", "--methods", "random", "--protocols",
           "in_domain_single_deletion", "--out")  # fmt: skip
    code, output, errors = call(*run, "known")
    assert code == 0
    (line,) = [line for line in errors.splitlines() if "Warning" in line]
    assert line.startswith("Warning: `make` was fine-tuned on 1 of the 60 scored samples")
    assert "Not known which samples" not in output
    (tiny / "tuned" / "training_samples.safetensors").unlink()
    code, output, errors = call(*run, "unknown")
    assert code == 0
    assert "Warning" not in errors
    assert output.count("Not known which samples fine-tuned make.") == 1


def test_a_fill_with_options(call, tiny):
    assert call(*arguments("--fill", "blur(sigma=1.5)"))[0] == 0
    assert json.loads((tiny / "tuned" / "card.json").read_text())["fill"] == {
        "blur": {"sigma": 1.5}
    }


def test_the_help_names_the_protocol_it_is_for(call):
    code, output, _ = call("finetune", "--help")
    assert code == 0
    assert "IDSDS" in output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--score", "./tiny.py:samples", "--methods", "nonsense"), "nonsense"),
        (("--score", "./nosuch.parquet"), "nosuch"),
        (("--methods", "saliency"), "`--score` with `--methods`"),
    ],
)
def test_what_is_scored_is_checked_before_training(call, tiny, more, message):
    code, output, errors = call(*arguments(*more))
    assert code == 2
    assert message in " ".join((output + errors).split())
    assert not (tiny / "tuned").exists()
