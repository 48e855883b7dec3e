"""Every method on networks as people have them, at least one of them with trained weights."""

import functools

import pytest

import real_networks
from assay import registry
from assay.conformance.methods import (
    CHEAP,
    maps_are_whole,
    neighbours_do_not_matter,
    nothing_is_left_behind,
)
from assay.errors import NotApplicable

# Beside the defaults: what makes a method cheap enough here without changing what it does.
FEW: dict[str, dict[str, object]] = {
    **CHEAP,
    "integrated_gradients": {"steps": 3},
    "integrated_gradients_uniform": {"steps": 3},
    **{name: {"steps": 2, "noise": {"samples": 2}} for name in ("ig_sg", "ig_sg_sq", "ig_var")},
    **{
        name: {"noise": {"samples": 2}}
        for name in ("smoothgrad", "smoothgrad_sq", "vargrad", "ixg_sg")
    },
    **{name: {"masks": 12, "side": 4} for name in ("rise", "rise_uniform")},
    **{name: {"of": {"integrated_gradients": {"steps": 3}}} for name in ("rect", "pooling")},
    **{name: {"steps": 3} for name in ("bt_head", "bt_token")},
}
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


@functools.cache
def holds(name: str, network, shared) -> str:
    """Nothing where the method keeps its rules on the network, else why it does not apply."""
    if (name, network) in SLOW:
        return "takes minutes"
    try:
        for check in CHECKS:
            check(world_of(network, shared), {name: FEW.get(name, {})})
    except NotApplicable as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize("network", [*real_networks.TRAINED, *real_networks.RANDOM])
@pytest.mark.parametrize("name", NAMES)
def test_rules_on_networks(name, network, shared):
    reason = holds(name, network, shared)
    if reason:
        pytest.skip(f"n/a: {reason}")


@pytest.mark.parametrize("name", NAMES)
def test_every_method_applies_to_two_networks_one_of_them_trained(name, shared):
    if name in OF_THEIR_OWN_KIND:
        pytest.skip("no trained network of its kind")
    applies = {
        network
        for network in (*real_networks.TRAINED, *real_networks.RANDOM)
        if not holds(name, network, shared)
    }
    assert len(applies) >= 2
    assert applies & set(real_networks.TRAINED)
