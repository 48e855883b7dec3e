"""Explaining again and again keeps nothing: no tensor, no hook, no mode, no memory of autograd's.

Some thousand calls over all methods. A few of each are enough: what a call keeps, it keeps every
time, and tensors are counted exactly.
"""

import ctypes
import functools
import gc
import platform
from dataclasses import dataclass

import pytest
import torch
from torch.nn.modules import module as modules

import assay
from assay.conformance.methods import WORLDS, choose
from assay.conformance.worlds import World
from assay.errors import InputError, NotApplicable
from assay.plugins import registry

CALLS = 5
NOT_EXPLAINED_WITH = {"maps": "comes from a file", "oracle": "needs a dataset that knows the truth"}
NAMES = [name for name in registry.names("method") if name not in NOT_EXPLAINED_WITH]
GRAPH = 64 * 1024  # bytes a call: less than the graph of any network here with its activations
pytestmark = pytest.mark.filterwarnings("ignore:The mean and spread of a layer's units")


@pytest.fixture(scope="module", autouse=True)
def nothing_older_is_looked_at():
    """Tensors are found among all objects, so those of the rest of the process are set aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@functools.cache
def world_of(make) -> World:
    return make()


def explain(world: World, name: str) -> torch.Tensor:
    batch = world.batch
    return assay.explain(world.model, batch.inputs[:2], batch.targets[:2], choose(name))


@functools.cache
def worlds_for(name: str) -> list[World]:
    """The first images or vectors and the first texts that the method explains."""
    found: dict[bool, World] = {}
    for make in WORLDS:
        world = world_of(make)
        text = world.model.tokens is not None
        if text not in found:
            try:
                explain(world, name)
            except NotApplicable:
                continue
            found[text] = world
    return list(found.values())


@dataclass(frozen=True)
class Held:
    """What is alive: tensors, their bytes, hooks on a network, modes that see every operator."""

    tensors: int
    bytes: int
    hooks: int
    modes: int


def held(world: World) -> Held:
    gc.collect()
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    stores = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    hooks = [
        hook
        for part in world.model.net.modules()
        for kind, found in vars(part).items()
        if kind.endswith("_hooks")
        for hook in found
    ]
    everywhere = len(modules._global_forward_hooks) + len(modules._global_forward_pre_hooks)
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return Held(len(tensors), sum(stores.values()), len(hooks) + everywhere, modes)


class _Heap(ctypes.Structure):
    """What glibc's `mallinfo2` gives."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                     "uordblks", "fordblks", "keepcost")
    )  # fmt: skip


def allocated() -> int:
    """Bytes in use, those included that only autograd's graph holds, which no object shows."""
    if platform.libc_ver()[0] != "glibc":
        return 0
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _Heap
    heap = ask()
    return int(heap.uordblks + heap.hblkhd)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_kept(name):
    for world in worlds_for(name):
        explain(world, name)  # what is made once is made
        before, heap = held(world), allocated()
        for _ in range(CALLS):
            explain(world, name)
        assert held(world) == before
        assert (allocated() - heap) / CALLS < GRAPH


class Broken(Exception):
    """What the network raises."""


def explain_until(world: World, name: str, last: int) -> tuple[int, torch.Tensor | None]:
    """Module calls made, and the maps unless the network raised in the call number `last`."""
    calls = 0

    def count(*_) -> None:
        nonlocal calls
        calls += 1
        if calls == last:
            raise Broken

    with modules.register_module_forward_hook(count):
        try:
            maps = explain(world, name)
        except Broken:
            maps = None
        except InputError as error:
            if not isinstance(error.__cause__, Broken):  # what the engine makes of it
                raise
            maps = None
    return calls, maps


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_kept_when_the_network_raises_half_way(name):
    for world in worlds_for(name):
        calls, maps = explain_until(world, name, last=-1)
        if calls == explain_until(world, "constant", last=-1)[0]:
            continue  # the network was only looked at: the method runs it nowhere
        explain_until(world, name, calls - 1)
        before = held(world)
        for _ in range(2):
            assert explain_until(world, name, calls - 1) == (calls - 1, None)
        assert held(world) == before
        assert torch.equal(explain(world, name), maps)
