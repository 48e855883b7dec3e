"""No test depends on what ran before it: whatever draws at random begins from one seed."""

import random

import numpy as np
import pytest
import torch


def drawn():
    return random.random(), np.random.rand(), torch.rand(()).item()


WHEN_READ = drawn()


@pytest.fixture(scope="module")
def when_set_up():
    return drawn()


@pytest.mark.parametrize("time", range(2))
def test_all_begin_alike(when_set_up, time):
    assert drawn() == when_set_up == WHEN_READ
