"""One plug-in, as one option set has it, in every small world that it applies to."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from assay.conformance.worlds import Fault
from assay.errors import NotApplicable

Rule = Callable[[Any, Any], None]


@functools.cache
def made(make: Callable[[], Any]) -> Any:
    """A world that all plug-ins of a test run are tried in."""
    return make()


def check_everywhere(
    item: Any,
    worlds: Sequence[Callable[[], Any]],
    applies: Callable[[Any, Any], object],
    rules: Iterable[Rule],
) -> None:
    """Every rule holds in every world where the plug-in applies, and that is one at least.

    Only `NotApplicable`, raised by `applies`, leaves a world out.
    """
    tried, broken, rules = [], [], list(rules)
    for make in worlds:
        world = made(make)
        try:
            applies(world, item)
        except NotApplicable:
            continue
        tried.append(make.__name__)
        broken += [f"{item} in {make.__name__}: {fault}" for fault in _faults(world, item, rules)]
    assert tried, f"{item} applies in no world"
    assert not broken, "\n".join(broken)


def _faults(world: Any, item: Any, rules: Iterable[Rule]) -> Iterable[str]:
    for rule in rules:
        try:
            rule(world, item)
        except Fault as fault:
            yield f"{rule.__name__}: {fault}"
