"""A reader of the documentation: has the files the pages speak of, and does what they say."""

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import nn

from assay.cli import main
from assay.types import Pixels, Preprocess
from small_texts import make_texts, predicted_by_bert, save_bert

# A fence with its language and title, and what stands before it where it is not to be run.
BLOCK = re.compile(
    r"(?P<skip><!-- not run: (?P<why>[^>]+) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^ *```",
    flags=re.S | re.M,
)
NET = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 2),
    )
"""


@dataclass(frozen=True)
class Block:
    """A piece of a page that is set as code."""

    language: str
    text: str
    title: str = ""
    skipped: str = ""  # why it is not run


def blocks(page: Path) -> list[Block]:
    return [
        Block(m["language"], m["text"], m["title"] or "", m["why"] or "")
        for m in BLOCK.finditer(page.read_text())
    ]


def commands(block: Block) -> list[list[str]]:
    """The `assay` commands of a block, each as words."""
    lines = block.text.replace("\\\n", " ").splitlines()
    typed = [shlex.split(line, comments=True) for line in lines]
    return [words[1:] for words in typed if words and words[0] == "assay"]


def follow(block: Block, space: dict[str, object], page: Path) -> None:
    """Do what a block says: write the file it shows, run it, or type its commands."""
    if block.skipped or block.language in ("text", "html"):
        return
    if block.title:
        Path(block.title).write_text(block.text)
    elif block.language == "python":
        exec(compile(block.text, str(page), "exec"), space)
    elif block.language == "bash":
        for words in commands(block):
            assert typed(words) == 0, f"{page.name}: assay {shlex.join(words)}"


def typed(words: list[str]) -> int:
    """The exit code of one command."""
    before, sys.argv = sys.argv, ["assay", *words]
    try:
        main()
    except SystemExit as stop:
        return int(stop.code or 0)
    finally:
        sys.argv = before
    return 0


def save_images(folder: Path, each: int, noise: np.random.Generator) -> None:
    """Noise in one folder per class: cats are brighter in the first channel, dogs in the second."""
    for number, label in enumerate(("cat", "dog")):
        (folder / label).mkdir(parents=True)
        for i in range(each):
            pixels = noise.integers(0, 190, (70, 80, 3), dtype=np.uint8)
            pixels[:, :, number] += 65
            Image.fromarray(pixels).save(folder / label / f"{i}.png")


def train(folder: Path) -> None:
    """Store weights of three seeds, trained on the images of `train` as the pages read them."""
    space: dict[str, object] = {}
    exec(NET, space)
    files = sorted((folder / "train").rglob("*.png"))[::4]  # enough for two colours
    prepare = Preprocess(64, Pixels((0.5,) * 3, (0.25,) * 3))
    inputs = torch.stack([prepare(Image.open(file)) for file in files])
    labels = torch.tensor([int(file.parent.name == "dog") for file in files])
    for seed, name in enumerate(("best.pt", "early.pt", "late.pt")):
        torch.manual_seed(seed)
        net: nn.Module = space["build"]()  # type: ignore[operator]
        optimizer = torch.optim.Adam(net.parameters(), 0.01)
        for _ in range(8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
        torch.save(net.state_dict(), folder / name)


def furnish(folder: Path) -> None:
    """What the pages take for granted: a trained network, images, texts, a saved BERT."""
    (folder / "my_net.py").write_text(NET)
    noise = np.random.default_rng(0)
    save_images(folder / "val", 6, noise)
    save_images(folder / "train", 20, noise)
    train(folder)
    rows = ["path,label"]
    for number, label in enumerate(("cat", "dog")):
        rows += [f"val/{label}/{i}.png,{number}" for i in range(6)]
    (folder / "val.csv").write_text("\n".join(rows))
    Image.open(folder / "val" / "cat" / "0.png").convert("RGB").save(folder / "cat.jpg")
    files = sorted((folder / "val").rglob("*.png"))
    images = [{"bytes": file.read_bytes(), "path": file.name} for file in files]
    labels = [int(file.parent.name == "dog") for file in files]
    pq.write_table(pa.table({"image": images, "label": labels}), folder / "val.parquet")
    texts, _ = make_texts(12)
    save_bert(folder / "bert", texts=texts)
    numbers = predicted_by_bert(folder / "bert", texts)
    named = [("negative", "positive")[number] for number in numbers]
    lines = [f'"{text}",{name}' for text, name in zip(texts, named, strict=True)]
    (folder / "reviews.csv").write_text("\n".join(["text,label", *lines]))
