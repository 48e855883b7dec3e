"""Ends of runs: methods that end their process, dead workers, signals, lost files.

Processes are forked from this one, in which torch is loaded already; one test starts a real command
with real workers.
"""

import contextlib
import math
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import yaml

import assay
import hostile
from assay.errors import IncompleteRun, InputError, PrerequisiteError
from assay.processes import Stopped, Worker, stoppable, without_exit
from assay.run import dry_run as run_dry
from assay.run import run
from assay.run.started import StartedLog, Step
from assay.store import Store
from assay.suite.spec import Spec, make_suite
from hostile import ONCE
from stored_logs import stored_cells

HERE = Path(__file__).parent
HOSTILE = HERE / "hostile.py"
PROTOCOLS = ["single_deletion", {"deletion": {"steps": 3}}]
GOOD = ["saliency", "slow", "random"]
FORK = multiprocessing.get_context("fork")
PATIENCE = 120  # seconds for what takes a few on an idle machine


WAITING = """
import time

import assay


@assay.protocol("waiting", scope="set", metric="mean")
def waiting(trial, *, seconds: float = 0.0):
    time.sleep(seconds)
    return assay.Scores(trial.maps("scored").flatten(1).mean(1).double())
"""


def suite(*methods: str, samples: int = 16) -> dict[str, object]:
    """A suite of names, which worker processes can build."""
    named = [m if m in ("saliency", "random") else f"{HOSTILE}:{m}" for m in methods]
    return {
        "datasets": [{f"{HOSTILE}:images": {"samples": samples}}],
        "models": [f"{HOSTILE}:net"],
        "methods": named,
        "protocols": PROTOCOLS,
    }


def spec(*methods: str, samples: int = 16) -> Spec:
    return make_suite(suite(*methods, samples=samples))


def tables(folder: Path, *methods: str) -> list[list[tuple[object, ...]]]:
    """All scores and curves of these methods; NaN as text, so that equal means every bit."""
    results = assay.load(folder)
    wanted = pa.array(methods)
    scores = results.scores.filter(pa.compute.is_in(results.scores["method"], value_set=wanted))
    curves = results.curves
    curves = curves.filter(pa.compute.is_in(curves["cell"], value_set=scores["cell"].unique()))
    return [
        [
            tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row)
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
        ]
        for table in (scores, curves)
    ]


def failures(folder: Path) -> dict[str, set[str]]:
    """The messages of the failed cells, by method."""
    found: dict[str, set[str]] = {}
    for cell in assay.load(folder).failures:
        found.setdefault(cell["method"], set()).add(cell["message"])
    return found


@pytest.fixture(scope="module", autouse=True)
def forked() -> Iterator[None]:
    """Workers start at once: torch is loaded already, and one thread does not suffer from it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "context", FORK)
        yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An uninterrupted run in this process."""
    folder = tmp_path_factory.mktemp("whole")
    run(spec(*GOOD, "noise"), folder, progress=False)
    return folder


class TestInThisProcess:
    def test_methods_that_end_the_process_fail_and_the_run_goes_on(self, whole, tmp_path):
        ends = (
            "leaves", "leaves_with_success", "raises_system_exit", "vanishes",
            "vanishes_with_nine", "interrupts", "rude",
        )  # fmt: skip
        leave = os._exit
        run(spec("saliency", *ends, "random"), tmp_path, progress=False)
        assert os._exit is leave
        messages = failures(tmp_path)
        assert set(messages) == set(ends)
        assert "tried to end the program with os._exit(9)" in messages["vanishes_with_nine"].pop()
        for method in (hostile.vanishes, hostile.leaves):  # the line that calls, not one inside
            line = method.__code__.co_firstlineno + 1
            assert messages[method.__name__].pop().endswith(f"(hostile.py:{line})")
        assert "KeyboardInterrupt" in messages["interrupts"].pop()
        assert "Rude: its text cannot be read, ValueError" in messages["rude"].pop()
        assert tables(tmp_path, "saliency", "random") == tables(whole, "saliency", "random")

    def test_code_of_the_suite_cannot_end_the_program(self, tmp_path):
        (tmp_path / "gone.py").write_text("import sys\ndef net():\n    sys.exit(0)\n")
        fields = suite("random") | {"models": [f"{tmp_path}/gone.py:net"]}
        with pytest.raises(InputError, match=r"tried to end the program \(0\)"):
            run(make_suite(fields), tmp_path / "run", progress=False)
        with pytest.raises(InputError, match=r"tried to end the program \(0\)"):
            run_dry(make_suite(fields))

    def test_the_third_start_fails_the_cell_that_killed_the_process_twice(self, whole, tmp_path):
        for _ in range(2):
            assert in_a_process(spec("saliency", "killed", "random"), tmp_path) == -signal.SIGKILL
        results = run(spec("saliency", "killed", "random"), tmp_path, progress=False)
        assert results.complete
        (message,) = failures(tmp_path)["killed"]
        assert "The process ended 2 times while it was running this" in message
        assert tables(tmp_path, "saliency", "random") == tables(whole, "saliency", "random")

    def test_the_log_counts_only_ends_in_the_middle_of_a_step(self, tmp_path):
        log, step = StartedLog(Store(tmp_path), "one"), Step("method", "protocol")
        for _ in range(3):
            assert log.resume() == {}
            log.begin(step)
            log.stop()
        log.begin(step)
        assert log.resume() == {}
        log.begin(step)
        assert list(log.resume()) == [step]
        log.clear()
        assert log.resume() == {}

    def test_a_forked_process_may_end(self):
        with without_exit():
            child = os.fork()
            if child == 0:
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

    def test_signals_are_not_errors_of_methods(self):
        before = signal.getsignal(signal.SIGTERM)
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with pytest.raises(Stopped) as stop, stoppable():
                signal.raise_signal(number)
            assert stop.value.code == code
        assert signal.getsignal(signal.SIGTERM) is before


def in_a_process(what: Spec, folder: Path, after: Callable[[int], None] = lambda pid: None, **how):
    """The exit code of a process that runs a suite; `after` gets its id and may end it."""

    def work() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            run(what, folder, progress=False, **how)

    process = FORK.Process(target=work)
    process.start()
    after(process.pid)
    process.join(PATIENCE)
    return process.exitcode


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def wait_for(true: Callable[[], object]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def running(pid: int) -> bool:
    """Whether a process is running; one that has ended and is not collected is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class TestWorkers:
    def test_dead_workers_are_replaced_and_only_the_guilty_cells_fail(
        self, whole, tmp_path, monkeypatch
    ):
        monkeypatch.setenv(ONCE, str(tmp_path / "once"))
        methods = ("saliency", "killed_once", "killed", "vanishes", "hangs", "interrupts", "random")
        folder = tmp_path / "run"
        results = run(spec(*methods), folder, workers=2, progress=False, timeout="1s")
        assert results.complete
        messages = failures(folder)
        assert set(messages) == {"killed", "vanishes", "hangs", "interrupts"}
        assert all("ended (signal SIGKILL) while this was running" in m for m in messages["killed"])
        assert messages["hangs"] == {"Stopped while explaining: it took longer than 1 s."}
        assert tables(folder, "saliency", "random") == tables(whole, "saliency", "random")
        once = [v for *_, v in tables(folder, "killed_once")[1]]
        assert once == [v for *_, v in tables(whole, "noise")[1]]

    def test_a_worker_killed_from_outside_is_replaced(self, whole, tmp_path):
        def kill_a_worker(pid: int) -> None:
            wait_for(lambda: len(list(tmp_path.glob("scores/*"))) > 2)
            os.kill(random.Random(1).choice(children(pid)), signal.SIGKILL)

        assert in_a_process(spec(*GOOD), tmp_path, kill_a_worker, workers=2) == 0
        assert tables(tmp_path, *GOOD) == tables(whole, *GOOD)

    def test_a_process_that_cannot_start_workers_says_so(self, tmp_path, monkeypatch):
        monkeypatch.setattr("assay.run.executors._build", lambda *_: os.kill(os.getpid(), 9))
        with pytest.raises(PrerequisiteError, match=r"end while they start \(signal SIGKILL\)"):
            run(spec("random"), tmp_path, workers=2, progress=False)

    def test_set_protocols_have_the_timeout_too(self, tmp_path):
        path = tmp_path / "waiting.py"
        path.write_text(WAITING)
        fields = suite("noise", "killed")
        fields["protocols"] = [{f"{path}:waiting": {"seconds": s}} for s in (0.1, 600.0)]
        assert in_a_process(make_suite(fields), tmp_path / "run", workers=1, timeout="1s") == 0
        results = assay.load(tmp_path / "run")
        assert results.complete
        status = {(c["method"], c["protocol"]): c["status"] for c in results.cells}
        assert status["noise", "waiting[seconds=0.1]"] == "ok"
        assert list(status.values()).count("failed") == 3
        messages = failures(tmp_path / "run")
        assert messages["noise"] == {"Stopped while scoring: it took longer than 1 s."}
        assert all("signal SIGKILL" in message for message in messages["killed"])

    def test_a_timeout_needs_names(self, tmp_path):
        data = assay.data.memory.as_dataset((torch.randn(4, 3, 8, 8), [0, 1, 2, 0]))
        with pytest.raises(PrerequisiteError, match=r"suite of names for a timeout.*no timeout"):
            run(spec("random").model_copy(update={"datasets": [data]}), tmp_path, timeout=5)
        with pytest.raises(InputError, match="Expected `timeout` to be a time such as"):
            run(spec("random"), tmp_path, timeout="soon")


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
    def test_no_worker_outlives_the_run(self, whole, tmp_path, number):
        workers = []

        def stop(pid: int) -> None:
            wait_for(lambda: len(list(tmp_path.glob("scores/*"))) > 2)
            workers.extend(children(pid))
            os.kill(pid, number)

        code = in_a_process(spec(*GOOD), tmp_path, stop, workers=2)
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        assert len(workers) >= 2
        wait_for(lambda: not any(map(running, workers)))
        run(spec(*GOOD), tmp_path, progress=False)
        assert tables(tmp_path, *GOOD) == tables(whole, *GOOD)

    def test_the_command_line_with_fresh_workers(self, whole, tmp_path):
        """Ctrl-C reaches all processes of a terminal; SIGTERM only the one that it is sent to."""
        (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite(*GOOD)))
        code = "import sys; from assay.cli import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "run", "suite.yaml", "--out", "run", "--trust-code"]
        process = subprocess.Popen(
            [*command, "--workers", "2"], cwd=tmp_path, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        wait_for(lambda: len(children(process.pid)) >= 3)  # one of them keeps Python's records
        time.sleep(1)
        workers = children(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        errors = process.communicate(timeout=PATIENCE)[1]
        assert process.returncode == 130
        assert "Traceback" not in errors
        assert "Run the same command again to resume" in errors
        wait_for(lambda: not any(map(running, workers)))


class TestLostFiles:
    def test_a_run_whose_files_are_deleted_says_that_it_is_incomplete(
        self, tmp_path, monkeypatch, call
    ):
        folder = tmp_path / "run"
        monkeypatch.setenv(ONCE, str(folder))
        (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite("random", "deletes_the_run")))
        command = ("run", str(tmp_path / "suite.yaml"), "--out", str(folder), "--trust-code")
        code, _, errors = call(*command)
        assert code == 3
        assert "6 of 8 cells, counted per shard, have no whole tables" in " ".join(errors.split())
        monkeypatch.setenv(ONCE, str(tmp_path / "elsewhere"))
        code, _, errors = call(*command)
        assert code == 0
        assert assay.load(folder).complete

    def test_a_deleted_folder(self, tmp_path):
        def delete(pid: int) -> None:
            wait_for(lambda: len(list(tmp_path.glob("run/scores/*"))) > 2)
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

        def work() -> None:
            with contextlib.suppress(IncompleteRun):
                run(spec(*GOOD), tmp_path / "run", progress=False)
                os._exit(1)

        process = FORK.Process(target=work)
        process.start()
        delete(process.pid)
        process.join(PATIENCE)
        assert process.exitcode == 0


def kill_at_random(folder: Path, kills: int, seed: int) -> None:
    """Run until nothing is missing, but end processes of the run at random times on the way."""
    draw, what = random.Random(seed), spec(*GOOD, "noise")
    planned, hits = 16, 0  # two shards of four methods under two protocols

    def stored() -> int:
        return len(stored_cells(folder))

    def kill(pid: int) -> None:
        nonlocal hits
        goal = draw.randint(stored(), planned - 1)
        wait_for(lambda: stored() >= goal or not running(pid))
        time.sleep(draw.uniform(0, 0.05))
        target = draw.choice(["main", "worker", "both", "term"])
        workers = children(pid) if target in ("worker", "both") else []
        with contextlib.suppress(ProcessLookupError):
            if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
            if target in ("main", "both"):
                os.kill(pid, signal.SIGKILL)
            if target == "term":
                os.kill(pid, signal.SIGTERM)
            hits += stored() < planned

    while hits < kills:
        if stored() == planned:
            shutil.rmtree(folder)
        in_a_process(what, folder, kill, workers=draw.choice([1, 2]))
    for _ in range(3):  # cells whose processes ended twice are failed, and tried again
        results = run(what, folder, progress=False)
    assert not results.failures


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_random_kills_leave_the_same_tables(whole, tmp_path, kills):
    kill_at_random(tmp_path / "run", kills, seed=kills)
    assert tables(tmp_path / "run", *GOOD, "noise") == tables(whole, *GOOD, "noise")
