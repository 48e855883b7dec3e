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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import torch
import yaml
from PIL import Image

import assay
import hostile
from assay.cli import main
from assay.errors import IncompleteRun, InputError, PrerequisiteError
from assay.plan.plan import Shard
from assay.processes import Stopped, Worker, stoppable, without_exit
from assay.run import dry_run as run_dry
from assay.run import run
from assay.run.budget import fit
from assay.run.started import StartedLog, Step
from assay.suite.spec import Spec, make_suite
from hostile import ONCE

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

OWN = """
import os
import signal
import time

import assay


def scores(case):
    return assay.Scores(case.attribution.flatten(1).mean(1).double())


@assay.protocol("hangs", metric="mean")
def hangs(case):
    time.sleep(600)


@assay.protocol("kills", metric="mean")
def kills(case):
    os.kill(os.getpid(), signal.SIGKILL)


@assay.protocol("good", metric="mean")
def good(case):
    return scores(case)


def hanging_fill(batch):
    time.sleep(600)


def hanging_engine(model, batch, engine):
    time.sleep(600)
"""

SECOND = """
import torch
from torch import nn

import assay


def net():
    torch.manual_seed(3)
    return assay.model(nn.Sequential(nn.Flatten(), nn.Linear(768, 4)), name="second")
"""


def suite(*methods: str, samples: int = 16) -> dict[str, object]:
    """A suite of names, which worker processes can build."""
    named = [m if m in ("saliency", "random") else f"{HOSTILE}:{m}" for m in methods]
    return {
        "datasets": [{f"{HOSTILE}:images": {"samples": samples}}],
        "models": [f"{HOSTILE}:net"],
        "methods": named,
        "protocols": PROTOCOLS,
        "controls": "off",
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
    return [as_rows(table) for table in (scores, curves)]


def as_rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a table, comparable."""
    return [
        tuple("nan" if isinstance(v, float) and math.isnan(v) else v for v in row)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]


def cells_stored(folder: Path) -> int:
    """How many cells of a run have scores, while it is running."""
    try:
        return assay.load(folder).progress[0]
    except InputError:  # it has not begun
        return 0


def rows(results: assay.Results) -> list[dict[str, object]]:
    """The scores as dicts."""
    return results.scores.to_pylist()


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

    @pytest.mark.parametrize("leave", ["sys.exit(0)", "exit()", "os._exit(0)", "quit()"])
    def test_no_code_makes_a_command_succeed(self, tmp_path, call, monkeypatch, leave):
        """While it is imported, called, or checked."""
        monkeypatch.chdir(tmp_path)
        Path("gone.py").write_text(f"import os, sys\n{leave}\n")
        Path("late.py").write_text(f"import os, sys\ndef late(*_):\n    {leave}\n")
        Image.new("RGB", (8, 8)).save("a.png")
        for name in ("images/a", "images/b"):
            Path(name).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(f"{name}/0.png")
        picture = ("--size", "8", "--mean", ".5", "--std", ".5", "-o", "map.png")
        commands = [
            ("explain", "a.png", "--model", "./gone.py:net", *picture),
            ("explain", "a.png", "--model", "./late.py:late", *picture),
            ("run", "--model", "./gone.py:net", "--data", "images"),
            ("check", "./gone.py:method", "--samples", "2"),
            ("doctor", "./gone.py:method"),
            ("finetune", "--model", "./gone.py:net", "--data", "images", "--out", "tuned"),
        ]
        for command in commands:
            code, _, errors = call(*command)
            assert code == 2, (command, errors)
            assert "tried to end the program" in errors
        code, output, _ = call("doctor", "./late.py:late")
        assert code == 3
        assert "SystemExit" in output

    def test_the_third_start_at_a_shard_fails_the_cell_that_killed_the_process(
        self, whole, tmp_path
    ):
        """Two ends at the first shard; one is enough at the second, where it is known by then."""
        for _ in range(3):
            assert in_a_process(spec("saliency", "killed", "random"), tmp_path) == -signal.SIGKILL
        results = run(spec("saliency", "killed", "random"), tmp_path, progress=False)
        assert results.complete
        messages = sorted(failures(tmp_path)["killed"])
        assert "The process ended 2 times while it was running this" in messages[0]
        assert "The process ended once, as it had at other samples before" in messages[1]
        assert tables(tmp_path, "saliency", "random") == tables(whole, "saliency", "random")

    def test_a_deadly_shard_takes_no_cells_of_other_shards_with_it(self, whole, tmp_path):
        """One sample kills; the third start gives up its shard, the other shard is scored."""
        deadly = {f"{HOSTILE}:kills_at": {"sample": "003"}}
        fields = suite("saliency", "noise") | {"methods": ["saliency", deadly, f"{HOSTILE}:noise"]}
        for _ in range(2):
            assert in_a_process(make_suite(fields), tmp_path) == -signal.SIGKILL
        results = run(make_suite(fields), tmp_path, progress=False)
        assert results.complete
        status = {
            (r["method"].startswith("kills_at"), r["sample"] < "008"): set() for r in rows(results)
        }
        for row in rows(results):
            status[row["method"].startswith("kills_at"), row["sample"] < "008"].add(row["status"])
        assert status == {
            (True, True): {"failed"}, (True, False): {"ok"},
            (False, True): {"ok"}, (False, False): {"ok"},
        }  # fmt: skip
        assert tables(tmp_path, "noise") == tables(whole, "noise")
        assert not list(tmp_path.glob("started/*"))

    def test_the_log_counts_only_ends_in_the_middle_of_a_step(self, tmp_path):
        step, other = Step("method", "protocol"), Step("method")
        first, second, alien = (Shard(name, "data", "net", 0, ()) for name in "abc")
        alien = replace(alien, model="another net")

        def process(end: Shard | None) -> StartedLog:
            """A process that begins steps at two shards; it is killed in the middle of one."""
            log = StartedLog(tmp_path / "started" / "shards.jsonl")
            log.resume()
            for shard in (first, second, alien):
                log.begin(shard, other)
                log.begin(shard, step)
                if shard == end:
                    return log
                log.stop()
            return log

        def given_up() -> list[list[Step]]:
            log = StartedLog(tmp_path / "started" / "shards.jsonl")
            log.resume()
            return [list(log.given_up(shard)) for shard in (first, second, alien, None)]

        for _ in range(3):
            process(None)
        assert given_up() == [[], [], [], []]
        process(first)
        process(second)
        assert given_up() == [[], [], [], []]  # one end at each shard
        process(None)
        assert given_up() == [[], [], [], []]
        process(second)
        assert given_up() == [[step], [step], [], []]  # known to be deadly: one end is enough
        process(alien)
        assert given_up() == [[step], [step], [], []]
        assert given_up() == given_up()
        log = process(alien)
        assert given_up() == [[step], [step], [step], []]
        assert len(log.path.read_bytes().splitlines()) == 5  # nothing but the ends
        log.clear()
        assert given_up() == [[], [], [], []]

    def test_set_cells_fail_only_where_their_own_maps_were_given_up(self, tmp_path):
        """A method given up for one model is still used by the set cells of another."""
        (tmp_path / "waiting.py").write_text(WAITING)
        (tmp_path / "second.py").write_text(SECOND)
        fields = suite("noise") | {
            "models": [f"{HOSTILE}:net", {f"{tmp_path}/second.py:net": {"as": "second"}}],
            "methods": [{f"{HOSTILE}:kills_model": {"name": "net"}}, f"{HOSTILE}:noise"],
            "protocols": [f"{tmp_path}/waiting.py:waiting"],
        }
        codes = [in_a_process(make_suite(fields), tmp_path / "run") for _ in range(4)]
        assert codes == [-signal.SIGKILL] * 3 + [0]
        results = assay.load(tmp_path / "run")
        assert results.complete
        failed = {(cell["model"], cell["method"]) for cell in results.failures}
        assert failed == {("net", "kills_model[name=net]")}

    def test_a_protocol_that_kills_the_process_fails_from_the_third_start_on(self, whole, tmp_path):
        """It does not run before the run has begun: an end there would be met at every start."""
        (tmp_path / "own.py").write_text(OWN)
        fields = suite("saliency")
        fields["protocols"] = [f"{tmp_path}/own.py:kills", *fields["protocols"]]
        codes = [in_a_process(make_suite(fields), tmp_path / "run") for _ in range(4)]
        assert codes == [-signal.SIGKILL] * 3 + [0]
        results = assay.load(tmp_path / "run")
        assert results.complete
        assert {cell["protocol"] for cell in results.failures} == {"kills"}
        left = [row for row in tables(tmp_path / "run", "saliency")[0] if "kills" not in row]
        assert left == tables(whole, "saliency")[0]

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
            wait_for(lambda: cells_stored(tmp_path) > 2)
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

    def test_no_code_of_users_outlives_the_timeout(self, whole, tmp_path):
        """Nor does it run in the process that counts the passes, with a budget or without."""
        (tmp_path / "own.py").write_text(OWN)
        own = f"{tmp_path}/own.py"
        fields = suite("saliency")
        fill = {"fill": f"{own}:hanging_fill"}
        fields["methods"] = ["saliency", f"{own}:hanging_engine", {"occlusion": fill}]
        fields["protocols"] = [
            *PROTOCOLS, f"{own}:hangs", f"{own}:kills", f"{own}:good",
            {"sensitivity_n": {"subsets": 3, **fill}},
        ]  # fmt: skip

        def begin() -> None:
            before = make_suite(fields)
            fitted, _, _ = fit(before, tmp_path / "run", "100h", timeout="1s")
            assert fitted.methods == before.methods
            run(before, tmp_path / "run", progress=False, workers=2, timeout="1s")

        process = FORK.Process(target=begin)
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 0
        results = assay.load(tmp_path / "run")
        assert results.complete
        failed = {(cell["method"], cell["protocol"].split("[")[0]) for cell in results.failures}
        assert {p for m, p in failed if m == "saliency"} == {"hangs", "kills", "sensitivity_n"}
        slow = {cell["message"] for cell in results.failures if "engine" in cell["method"]}
        assert slow == {"Stopped while explaining: it took longer than 1 s."}
        assert len({m for m, _ in failed}) == 3
        alone = tables(whole, "saliency")[0]
        shared = {row[0] for row in alone}  # the keys of its cells
        mine = tables(tmp_path / "run", "saliency")[0]
        assert [row for row in mine if row[0] in shared] == alone

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
            wait_for(lambda: cells_stored(tmp_path) > 2)
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

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    @pytest.mark.parametrize(
        ("options", "place"),
        [
            (["--dry-run"], "assay.run.suite_run.measure"),
            (["--dry-run"], "assay.commands.printing.forecast_table"),
            (["--budget", "1h"], "assay.run.suite_run.measure"),
            (["--budget", "1h"], "assay.run.budget._find"),
            ([], "assay.results.Results.report"),
        ],
    )
    def test_signals_outside_of_the_run_itself(self, tmp_path, monkeypatch, number, options, place):
        """While passes are counted, timed and cut, and while the page is made."""
        (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite("random")))
        command = ["run", f"{tmp_path}/suite.yaml", "--out", f"{tmp_path}/run", "--trust-code"]
        monkeypatch.setattr(place, lambda *_, **__: signal.raise_signal(number))
        monkeypatch.setattr(sys, "argv", ["assay", *command, *options])

        def work() -> None:
            errors = (tmp_path / "errors").open("w")
            os.dup2(errors.fileno(), 2)
            sys.stderr = errors
            main()

        process = FORK.Process(target=work)
        process.start()
        process.join(PATIENCE)
        assert process.exitcode == 128 + number
        errors = (tmp_path / "errors").read_text()
        assert errors.splitlines()[-1].startswith("Stopped.")
        assert "Traceback" not in errors
        assert ("again to resume" in errors) == ("--dry-run" not in options)

    @pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    def test_other_commands(self, call, monkeypatch, number, code):
        def stop(*_: object, **__: object) -> None:
            signal.raise_signal(number)

        monkeypatch.setattr("assay.answers.refutation.refute", stop)
        ended, _, errors = call("check", "saliency")
        assert (ended, errors) == (code, "Stopped.\n")


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
            wait_for(lambda: cells_stored(tmp_path / "run") > 2)
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


def everything(folder: Path) -> list[list[tuple[object, ...]]]:
    """All rows of all tables; NaN as text, so that equal means every bit."""
    results = assay.load(folder)
    return [as_rows(table) for table in (results.scores, results.curves, results.checks)]


def seconds_of_a_run(folder: Path, workers: int) -> float:
    """How long a run takes that nothing interrupts."""
    began = time.monotonic()
    assert in_a_process(spec(*GOOD, "noise"), folder, workers=workers) == 0
    return time.monotonic() - began


def kill_at_random(folder: Path, kills: int, seed: int, whole: Path) -> Counter[str]:
    """End processes of runs at random times, and continue each run until it is whole.

    The result counts what was killed while it was running. Times are drawn over the whole run, from
    before its folder exists until its manifest is written.
    """
    draw, hits = random.Random(seed), Counter()
    longest = {n: seconds_of_a_run(folder.with_name(f"{folder.name}-{n}"), n) for n in (1, 2)}
    expected = everything(whole)

    while sum(hits.values()) < kills:
        workers = draw.choice([1, 2, 2])
        target = draw.choice(
            ["main", "worker", "worker", "both", "term"] if workers > 1 else ["main", "term"]
        )
        pause = draw.uniform(0, longest[workers])

        def kill(pid: int, target: str = target, pause: float = pause) -> None:
            time.sleep(pause)
            employed = children(pid) if target in ("worker", "both") else []
            if not running(pid) or (target == "worker" and not employed):
                return
            with contextlib.suppress(ProcessLookupError):
                for victim in [draw.choice(employed)] if employed else []:
                    os.kill(victim, signal.SIGKILL)
                if target != "worker":
                    os.kill(pid, signal.SIGTERM if target == "term" else signal.SIGKILL)
                hits[target] += 1

        code = in_a_process(spec(*GOOD, "noise"), folder, kill, workers=workers)
        assert code in (0, -signal.SIGKILL), f"{target} after {pause:.3f} s of {workers} workers"
        if code == 0 and is_whole(folder):
            assert everything(folder) == expected
            shutil.rmtree(folder)
    for _ in range(3):  # a cell in which processes ended often has failed, and is tried again
        results = run(spec(*GOOD, "noise"), folder, progress=False)
    assert results.complete
    assert not results.failures
    assert everything(folder) == expected
    return hits


def is_whole(folder: Path) -> bool:
    """Whether a run is complete and no cell has failed."""
    try:
        results = assay.load(folder)
    except InputError:  # it was stopped before it began
        return False
    return results.complete and not results.failures


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_random_kills_leave_the_same_tables(whole, tmp_path, kills):
    hits = kill_at_random(tmp_path / "run", kills, kills, whole)
    print(dict(hits))
    assert kills < 100 or min(hits[t] for t in ("main", "worker", "both", "term")) >= 10
