"""Fuzzed suites, calls and command lines: no raw traceback, no hang, nothing wrong in silence.

About 500 cases are in the ordinary tests and 10,000 in the slow ones. A case is made from one
number, which hypothesis draws without randomness of its own, so every run has the same cases. To
repeat one: `fuzzing.attempt("suite", 17, folder)` in a folder with `fuzzing.write_world(folder)`.
"""

import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import fuzzing

ORDINARY = {"suite": 180, "choice": 120, "call": 130, "command": 70}
TIMES = 20  # as many in the slow tests
PATIENCE = 20  # CPU seconds for a case that takes some hundredths
ASLEEP = 300  # seconds, on a machine that has other work
SHARE = 0.05  # of the cases must be taken, and of them must be refused: else nothing is tested


class Hang(BaseException):
    """A case took too long; no code of a method can catch this as its own error."""


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory) -> Iterator[Path]:
    """A folder of files, which is also the working folder, and one thread."""
    folder, before = tmp_path_factory.mktemp("world"), torch.get_num_threads()
    here = Path.cwd()
    os.chdir(folder)
    torch.set_num_threads(1)
    fuzzing.write_world(folder)
    yield folder
    torch.set_num_threads(before)
    os.chdir(here)


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise Hang(f"longer than {PATIENCE} CPU s, or {ASLEEP} s")

    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGPROF)}
    yield
    watch(0, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def watch(working: int, asleep: int) -> None:
    """Send a signal after so much time of work, or of the clock; 0 and 0: none."""
    signal.setitimer(signal.ITIMER_PROF, working)
    signal.alarm(asleep)


def attempt_all(door: str, count: int, folder: Path) -> Counter[str]:
    """Attempt so many cases; the result counts how they ended."""
    ends: Counter[str] = Counter()

    @settings(
        max_examples=count, deadline=None, derandomize=True, database=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.integers(0, 2**64))
    def attempt(number: int) -> None:
        watch(PATIENCE, ASLEEP)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ends[fuzzing.attempt(door, number, folder)] += 1
        watch(0, 0)

    attempt()
    return ends


@pytest.mark.parametrize("door", ORDINARY)
@pytest.mark.parametrize("times", [1, pytest.param(TIMES, marks=pytest.mark.slow)])
def test_whatever_comes_in_is_taken_whole_or_refused_in_words(door, times, world):
    ends = attempt_all(door, times * ORDINARY[door], world)
    print(f"{door}: {dict(ends)}")
    assert sum(ends.values()) >= 0.95 * times * ORDINARY[door]
    assert min(ends["taken"], ends["refused"]) >= SHARE * sum(ends.values())


@pytest.mark.parametrize(
    ("value", "default"),
    [
        (True, 3),
        (float("nan"), 0.5),
        (float("-inf"), None),
        (2**63, None),
        ("\ud800", "a"),
        (1j, 0),
    ],
)
def test_the_oracle_knows_what_would_be_lost(value, default):
    assert fuzzing.lost_by(value, default)
    with pytest.raises(fuzzing.SilentlyAccepted):
        fuzzing.refuse_taken({"option": value}, {"option": default})


@pytest.mark.parametrize(("value", "default"), [(True, False), (3, 3), (1e30, 0.5), ("é", "a")])
def test_the_oracle_lets_the_rest_pass(value, default):
    assert not fuzzing.lost_by(value, default)
