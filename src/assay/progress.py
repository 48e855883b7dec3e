"""The progress bar of long work, on standard error."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

QUICK = 1.0  # seconds of work that needs no bar


@contextmanager
def bar(
    what: str, total: int | None, show: bool = True, note: Callable[[], str] | None = None
) -> Iterator[Callable[[int], None]]:
    """A bar of `total` steps; the result is called with how many were done.

    Args:
        what: What is being done, in front of the bar.
        total: The number of steps; None where it is unknown.
        show: Whether there is a bar.
        note: Called after each step; the text stands after the time left.
    """
    if not show or total == 0:
        yield lambda steps: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f}" if total is None else "{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, note="")
        yield lambda steps: shown.update(task, advance=steps, note=note() if note else "")


@contextmanager
def slow_bar(what: str, total: int, show: bool = True) -> Iterator[Callable[[int], None]]:
    """The same for work that is usually quick: the bar appears once it takes longer than that."""
    began, done = time.monotonic(), 0
    shown: list[Callable[[int], None]] = []
    with ExitStack() as stack:

        def listen(steps: int) -> None:
            nonlocal done
            done += steps
            if shown:
                shown[0](steps)
            elif show and time.monotonic() - began > QUICK:
                shown.append(stack.enter_context(bar(what, total)))
                shown[0](done)

        yield listen
