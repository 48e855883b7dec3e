"""Processes: workers that end with their parent, and the signals that end a program in order."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Generic, NoReturn, TypeVar

Message = TypeVar("Message")
SECONDS = 5.0  # a worker without work may take to end


class Stopped(KeyboardInterrupt):
    """The program was asked to end, by Ctrl-C or SIGTERM; its own code never raises this."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        """Keep the number of the signal."""
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.code = 128 + number  # the exit code of a program that ends for this reason


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Raise `Stopped` at Ctrl-C and at SIGTERM inside. Only the main thread receives signals."""
    before = {}
    if threading.current_thread() is threading.main_thread():

        def stop(number: int, frame: FrameType | None) -> None:
            raise Stopped(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def without_exit() -> Iterator[None]:
    """Let `os._exit` raise SystemExit inside, so that no code ends this process with success.

    Processes that are forked inside can still end in this way.
    """
    leave, owner = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != owner:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


class Worker(Generic[Message]):
    """A process that exchanges messages with this one, and ends when this one is gone.

    It does not see Ctrl-C: this process decides when it ends. It leads a process group, with which
    the processes that it starts end, too.
    """

    context = multiprocessing.get_context("spawn")  # fresh: threads do not survive a fork

    def __init__(self, work: Callable[..., None], *arguments: object) -> None:
        """Start `work(connection, *arguments)` in a fresh process."""
        self.connection, theirs = self.context.Pipe()
        self.process = self.context.Process(target=_work, args=(work, theirs, arguments))
        with _interrupts_blocked():
            self.process.start()
        theirs.close()

    def send(self, message: Message | None) -> None:
        """Send a message; a process that has ended is noticed by `ended`, not here."""
        with contextlib.suppress(OSError):
            self.connection.send(message)

    @property
    def ended(self) -> bool:
        """Whether the process is gone and nothing that it sent is left to read."""
        return not self.process.is_alive() and not self.connection.poll()

    @property
    def fate(self) -> str:
        """How the process ended, in words."""
        self.process.join()
        code = self.process.exitcode or 0
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def dismiss(self) -> None:
        """End a worker that has no work."""
        self.send(None)
        self.process.join(SECONDS)
        self.kill()

    def kill(self) -> None:
        """End the process at once, with those that it started."""
        if self.process.is_alive() and self.process.pid is not None:
            with contextlib.suppress(OSError, AttributeError):  # it does not lead a group yet
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.kill()
        self.process.join()
        self.connection.close()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C inside; processes that start inside never receive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # which would end the block when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(work: Callable[..., None], connection: Connection, arguments: tuple[object, ...]) -> None:
    """The process of a worker."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    work(connection, *arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        with contextlib.suppress(AttributeError):
            os.killpg(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGTERM)
