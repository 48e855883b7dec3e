"""Every method on networks as people have them, at least one of them with trained weights."""

import functools

import pytest

import real_networks
from assay import registry
from assay.conformance.methods import (
    maps_are_whole,
    neighbours_do_not_matter,
    nothing_is_left_behind,
)
from assay.conformance.worlds import Fault
from assay.errors import NotApplicable

# A pass for each of a thousand channels or more.
SLOW = {("scorecam", real_networks.lite0), ("scorecam", real_networks.squeezenet)}
# These explain networks of a kind of which none with trained weights is at hand; their maps are
# checked in tests/methods/test_intrinsic.py.
OF_THEIR_OWN_KIND = {"bcos", "bagnet"}
NAMES = [name for name in registry.names("method") if name != "maps"]  # those come from a file
CHECKS = (maps_are_whole, nothing_is_left_behind, neighbours_do_not_matter)


@functools.cache
def world_of(network, shared):
    return network(shared)


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
    if name not in OF_THEIR_OWN_KIND:
        assert len(applies) >= 2
        assert applies & set(real_networks.TRAINED)
