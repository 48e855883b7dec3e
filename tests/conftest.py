"""Models and data with known answers, small enough for any machine."""

import os
import random
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import assay  # noqa: F401, I001 - before torch: sets the environment that makes rows bit-equal

import numpy as np
import pytest
import torch
from assay.cli import main
from hypothesis import settings
from small_worlds import LinearImages, SmallNet, make_images, make_net
from torch import nn

settings.register_profile("seeded", derandomize=True)
settings.load_profile("seeded")
SEED = 1913  # none that a test gives a generator of its own, for then both would draw the same


def seed_everything() -> None:
    """What draws without a generator of its own draws the same, whatever ran before it."""
    random.seed(SEED)
    np.random.seed(SEED)
    torch.manual_seed(SEED)


@pytest.hookimpl(tryfirst=True)
def pytest_collectstart(collector: pytest.Collector) -> None:
    """Before a test module is read."""
    seed_everything()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef) -> None:
    """Before a fixture is made, shared by tests or not."""
    seed_everything()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Before a test is run."""
    seed_everything()


@pytest.fixture
def net() -> SmallNet:
    return make_net()


@pytest.fixture
def images() -> tuple[torch.Tensor, torch.Tensor]:
    return make_images(6)


@pytest.fixture
def linear() -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]:
    """f(x) = w x on vectors, inputs, targets and the exact map w x (the baseline is zero)."""
    torch.manual_seed(3)
    net = nn.Linear(12, 3, bias=False)
    x = torch.randn(8, 12)
    y = torch.arange(8) % 3
    return net, x, y, (x * net.weight[y]).detach()


@pytest.fixture
def linear_images() -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]:
    net = LinearImages()
    x = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(5))
    y = torch.arange(6) % 3
    return net, x, y, (x * net.weight[y]).sum(1).detach()


@pytest.fixture
def call(monkeypatch, capsys):
    """Type a command; gives exit code, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["assay", *arguments])
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
