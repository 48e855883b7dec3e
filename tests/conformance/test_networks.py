"""Every method on networks as people have them, at least one of them with trained weights."""

import functools
from dataclasses import replace

import pytest

import real_networks
from assay.conformance.methods import (
    maps_are_whole,
    neighbours_do_not_matter,
    nothing_is_left_behind,
)
from assay.conformance.worlds import Fault
from assay.errors import NotApplicable
from assay.plugins import registry

# A pass for each of a thousand channels or more.
SLOW = {("scorecam", real_networks.lite0), ("scorecam", real_networks.squeezenet)}
NAMES = [name for name in registry.names("method") if name != "maps"]  # those come from a file
CHECKS = (maps_are_whole, nothing_is_left_behind, neighbours_do_not_matter)


@functools.cache
def world_of(network, shared):
    return replace(network(shared), made_for=real_networks.MADE_FOR.get(network, ""))


@pytest.mark.parametrize("name", NAMES)
def test_rules_on_networks(name, shared):
    """On every network where it applies; these are two at least, one of them trained."""
    applies, broken = set(), []
    for network in (*real_networks.TRAINED, *real_networks.RANDOM):
        if (name, network) in SLOW:
            continue
        world = world_of(network, shared)
        try:
            for check in CHECKS:
                check(world, name)
        except NotApplicable:
            continue
        except Fault as fault:
            broken.append(f"{network.__name__}: {fault}")
        applies.add(network)
    assert not broken
    assert len(applies) >= 2
    assert applies & set(real_networks.TRAINED)
