"""The loop over all worlds: what leaves a world out, and what does not."""

import pytest

from assay.conformance.methods import usual_maps
from assay.conformance.worlds import Fault, linear_image_model, small_image_network
from assay.errors import InputError, NotApplicable
from conformance.everywhere import check_everywhere

WORLDS = (small_image_network, linear_image_model)


def applies(world, item):
    pass


def nowhere(world, item):
    raise NotApplicable("needs sunshine")


def test_every_rule_is_tried_in_every_world():
    seen = []
    check_everywhere("it", WORLDS, applies, [lambda world, item: seen.append(world)] * 2)
    assert [len(seen), len(set(map(id, seen)))] == [4, 2]


def test_what_applies_nowhere_is_a_failure():
    with pytest.raises(AssertionError, match="it applies in no world"):
        check_everywhere("it", WORLDS, nowhere, [])


def test_all_faults_are_told():
    def broken(world, item):
        raise Fault("bent")

    with pytest.raises(AssertionError) as told:
        check_everywhere("it", WORLDS, applies, [broken])
    for make in WORLDS:
        assert f"it in {make.__name__}: broken: bent" in str(told.value)


def test_other_errors_are_not_taken_for_not_applicable():
    def no_layer(world, item):
        raise InputError("The network has no layer `relu1`.")

    with pytest.raises(InputError):
        check_everywhere("it", WORLDS, no_layer, [])
    with pytest.raises(NotApplicable):
        check_everywhere("it", WORLDS, applies, [nowhere])


def test_a_named_layer_is_a_need():
    """And an error about a layer that is there is an error."""
    usual_maps(small_image_network(), {"gradcam": {"layer": "relu1"}})
    with pytest.raises(NotApplicable, match="reads the layer `relu7`"):
        usual_maps(small_image_network(), {"gradcam": {"layer": "relu7"}})
    with pytest.raises(InputError, match="layer"):
        usual_maps(small_image_network(), {"gradcam": {"layer": "head"}})
