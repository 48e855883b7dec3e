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
from assay.errors import NotApplicable

# Beside the defaults: what makes a method cheap enough here without changing what it does.
FEW: dict[str, dict[str, object]] = {
    "integrated_gradients": {"steps": 3},
    "integrated_gradients_uniform": {"steps": 3},
    **{name: {"steps": 2, "noise": {"samples": 2}} for name in ("ig_sg", "ig_sg_sq", "ig_var")},
    **{
        name: {"noise": {"samples": 2}}
        for name in ("smoothgrad", "smoothgrad_sq", "vargrad", "ixg_sg")
    },
    **{name: {"masks": 12, "side": 4} for name in ("rise", "rise_uniform")},
}
CHECKS = (maps_are_whole, nothing_is_left_behind, neighbours_do_not_matter)


@functools.cache
def world_of(network, shared):
    return network(shared)


@functools.cache
def holds(name: str, network, shared) -> str:
    """Nothing where the method keeps its rules on the network, else why it does not apply."""
    try:
        for check in CHECKS:
            check(world_of(network, shared), {name: FEW.get(name, {})})
    except NotApplicable as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize("network", [*real_networks.TRAINED, *real_networks.RANDOM])
@pytest.mark.parametrize("name", registry.names("method"))
def test_rules_on_networks(name, network, shared):
    reason = holds(name, network, shared)
    if reason:
        pytest.skip(f"n/a: {reason}")


@pytest.mark.parametrize("name", registry.names("method"))
def test_every_method_applies_to_two_networks_one_of_them_trained(name, shared):
    applies = {
        network
        for network in (*real_networks.TRAINED, *real_networks.RANDOM)
        if not holds(name, network, shared)
    }
    assert len(applies) >= 2
    assert applies & set(real_networks.TRAINED)
