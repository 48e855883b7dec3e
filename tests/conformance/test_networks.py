"""Every method on networks as people have them, at least one of them with trained weights."""

import functools
from dataclasses import replace

import pytest

import real_networks
from assay.conformance.methods import (
    maps_are_whole,
    neighbours_do_not_matter,
    nothing_is_left_behind,
    usual_maps,
)
from assay.conformance.worlds import Fault
from assay.errors import NotApplicable
from assay.plugins import registry

# A pass for each of a thousand channels or more.
SLOW = {("scorecam", real_networks.lite0), ("scorecam", real_networks.squeezenet)}
NAMES = [name for name in registry.names("method") if name != "maps"]  # those come from a file
RULES = (maps_are_whole, nothing_is_left_behind, neighbours_do_not_matter)


@functools.cache
def world_of(network):
    """The network with its samples; None where its weights are not at hand."""
    try:
        world = network()
    except pytest.skip.Exception:
        if network not in real_networks.BESIDE:
            raise
        return None
    return replace(world, made_for=real_networks.MADE_FOR.get(network, ""))


def tried_on(name):
    """The networks at hand that a method applies to; what another computes is read on fewer."""
    networks = real_networks.PACKAGED
    if not registry.get("method", name).formula:
        networks += (*real_networks.BESIDE, *real_networks.RANDOM)
    for network in networks:
        world = world_of(network)
        if world is None or (name, network) in SLOW:
            continue
        try:
            usual_maps(world, name)
        except NotApplicable:
            continue
        yield network, world


@pytest.mark.parametrize("name", NAMES)
def test_rules_on_networks(name):
    """On all it applies to: two at least, one of them trained and at hand in any clone."""
    applies, broken = set(), []
    for network, world in tried_on(name):
        applies.add(network)
        for check in RULES:
            try:
                check(world, name)
            except Fault as fault:
                broken.append(f"{check.__name__} on {network.__name__}: {fault}")
    assert not broken
    assert len(applies) >= 2
    assert applies & set(real_networks.PACKAGED)
