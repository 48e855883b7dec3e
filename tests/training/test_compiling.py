"""Compiled training: the same training, and a refusal where the compiler is wrong."""

import copy

import pytest
import torch
from torch import nn

from assay.models.residual import ResidualBlock, residual
from assay.models.small_vit import TransformerBlock
from assay.models.vgg import vgg
from assay.training import compiling
from assay.training.compiling import can_compile, compiled, repeated_blocks
from assay.training.fitting import Recipe, fit_network
from assay.training.zoo import zoo_model

RECIPE = Recipe(epochs=1, batch=16, rate=0.02)


@pytest.fixture(autouse=True)
def traced(monkeypatch):
    """A backend that traces forward and backward passes and generates no code."""
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    torch._dynamo.reset()


def samples():
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(0, 256, (48, 3, 32, 32), dtype=torch.uint8, generator=generator)
    return x, torch.arange(48) % 10


def wrong_gradients(graph, inputs):
    """A compiler whose code has the right values and half of the gradients."""

    def run(*args):
        return tuple((out + out.detach()) / 2 for out in graph(*args))

    return run


def test_the_outermost_repeated_blocks_are_compiled_and_else_the_whole():
    assert [type(b) for b in repeated_blocks(zoo_model("resnet20").net)] == [ResidualBlock] * 9
    assert [type(b) for b in repeated_blocks(zoo_model("vit_small").net)] == [TransformerBlock] * 6
    assert repeated_blocks(zoo_model("vgg11").net) == []


def test_training_ends_as_without_compiling_and_leaves_a_plain_network():
    plain, fast = (residual(depth=8, seed=1) for _ in range(2))
    losses = [
        fit_network(model, *samples(), RECIPE, progress=False, compile=on)
        for model, on in ((plain, False), (fast, True))
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    for one, other in zip(plain.net.parameters(), fast.net.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert all(m._compiled_call_impl is None for m in fast.net.modules())
    copy.deepcopy(fast.net)


def test_blocks_run_compiled_inside(monkeypatch):
    graphs = []

    def counted(graph, inputs):
        graphs.append(graph)
        return graph.forward

    monkeypatch.setattr(compiling, "BACKEND", counted)
    net, x = residual(depth=8).net, torch.zeros(2, 3, 32, 32)
    with compiled(net, False):
        net(x)
    assert not graphs
    with compiled(net):
        net(x)
    assert len(graphs) == 3  # one for each block: their shapes differ


def test_wrong_gradients_are_said_and_training_goes_on_without_compiling(monkeypatch):
    monkeypatch.setattr(compiling, "BACKEND", wrong_gradients)
    plain, refused = (vgg(depth=11, seed=1) for _ in range(2))
    fit_network(plain, *samples(), RECIPE, progress=False)
    with pytest.warns(RuntimeWarning, match=r"other gradients for `.*` .* without compiling"):
        fit_network(refused, *samples(), RECIPE, progress=False, compile=True)
    for one, other in zip(plain.net.parameters(), refused.net.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_compiler_that_fails_is_said():
    def failing(net: nn.Module) -> torch.Tensor:
        raise RuntimeError("no compiler")

    with pytest.warns(RuntimeWarning, match="cannot compile.*no compiler.*without compiling"):
        assert not can_compile(nn.Linear(2, 2), failing)


def test_the_check_changes_no_statistics_and_no_random_numbers():
    net, x = residual(depth=8).net.train(), torch.randn(4, 3, 32, 32)
    before, state = copy.deepcopy(net.state_dict()), torch.random.get_rng_state()
    assert can_compile(net, lambda n: n(x).square().mean())
    assert torch.equal(state, torch.random.get_rng_state())
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name])
