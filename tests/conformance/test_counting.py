"""Passes are counted on images, vectors and texts alike, and a wrong count is found on each."""

import functools
from dataclasses import replace

import pytest
import torch

from assay.conformance.counting import counting
from assay.conformance.methods import choose, passes_are_as_declared
from assay.conformance.worlds import (
    Fault,
    linear_vector_model,
    small_image_network,
    words_in_a_network,
)

everywhere = pytest.mark.parametrize(
    "make", [small_image_network, linear_vector_model, words_in_a_network]
)


def occlusion(before):
    """Occlusion that does something before it asks, told how often it was called."""
    plugin, calls = choose("occlusion").plugin, []

    @functools.wraps(plugin.function)
    def changed(model, batch, *told, **options):
        calls.append(batch)
        maps = before(model, batch, len(calls))
        return plugin.function(model, batch, *told, **options) if maps is None else maps

    return replace(choose("occlusion"), plugin=replace(plugin, function=changed))


@everywhere
def test_an_honest_one_passes(make):
    passes_are_as_declared(make(), occlusion(lambda model, batch, call: None))


@everywhere
def test_who_asks_beside_the_engine_is_found(make):
    def beside(model, batch, call):
        model(batch.inputs)

    with pytest.raises(Fault, match="calls the network directly"):
        passes_are_as_declared(make(), occlusion(beside))


@everywhere
def test_what_a_dry_run_does_not_foretell_is_found(make):
    """The third call is the rehearsal."""

    def idle_at_last(model, batch, call):
        return torch.zeros(len(batch), *batch.map_shape) if call == 3 else None

    with pytest.raises(Fault, match=r"forecasts 0 forward passes, but it makes \d+"):
        passes_are_as_declared(make(), occlusion(idle_at_last))


@everywhere
def test_rows_are_counted_forward_and_backward(make):
    world = make()
    net, rows = world.model.net, len(world.batch)
    with counting(net) as made, world.model.evaluating():
        with torch.no_grad():
            world.model.logits(world.batch.inputs[:3])
        inside = world.model.continuous(world.batch.inputs).detach().requires_grad_()
        logits = world.model.logits(world.batch.inputs, at=inside)
        torch.autograd.grad(logits.sum(), inside)
    assert (made.forward, made.backward, made.calls) == (3 + rows, rows, 2)
