"""How far long work has come: a bar on a terminal or in a notebook, nothing elsewhere.

On a terminal rich draws it, on standard error. In a notebook it is plain HTML: rich would need
ipywidgets there.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from ensue.errors import EventError

Report = Callable[[int, int], None]  # events done, events in all

_PATIENCE = 1.0  # seconds that work may take before anything is shown
_GLANCE = 0.1  # seconds between two pictures


class ProgressDisplay(Protocol):
    """Where progress is shown, in one line that changes."""

    def show(self, said: str, done: int | None = None, total: int | None = None) -> None:
        """What is going on, and how much of it is done, where that is known."""

    def close(self) -> None:
        """The work is over."""


@contextmanager
def progress_bar(asked: "Report | bool | None", doing: str) -> Iterator[Report | None]:
    """The function that a matcher reports to: the user's own, or one that draws a bar."""
    if asked is None or asked is False:
        yield None
    elif asked is not True:
        if not callable(asked):
            raise EventError(
                f"progress={asked!r}: it takes True for a bar, or a function of the number of "
                "events done and of all events"
            )
        yield asked
    else:
        with find_display() as board:
            yield None if board is None else _reporting(board, doing)


def _reporting(board: ProgressDisplay, doing: str) -> Report:
    began = drawn = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - began < _PATIENCE or (now - drawn < _GLANCE and done < total):
            return
        drawn = now
        board.show(f"{doing} {done:,} of {total:,} events{_left(now - began, done, total)}",
                   done, total)  # fmt: skip

    return report


def _left(seconds: float, done: int, total: int) -> str:
    """How much longer it takes, if it goes on like that.

    >>> _left(3.0, 25, 100), _left(3.0, 0, 100), _left(300.0, 50, 100)
    (', 9 s left', '', ', 5:00 left')
    """
    if not 0 < done < total:
        return ""
    rest = round(seconds * (total - done) / done)
    return f", {rest // 60}:{rest % 60:02} left" if rest >= 60 else f", {rest} s left"


@contextmanager
def find_display() -> Iterator[ProgressDisplay | None]:
    """The board of this process; None where nobody looks: in a pipe, in a test, in a service."""
    board: ProgressDisplay | None = None
    if _in_notebook():
        board = NotebookDisplay()
    elif sys.stderr is not None and sys.stderr.isatty():
        board = TerminalDisplay()
    try:
        yield board
    finally:
        if board is not None:
            board.close()


def _in_notebook() -> bool:
    """Whether this is a kernel, which shows HTML; IPython on a terminal is none."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class TerminalDisplay:
    """A line on standard error that goes away with the work."""

    def __init__(self, file: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=file or sys.stderr, highlight=False)
        self._bar = Progress(
            BarColumn(bar_width=30), TextColumn("{task.description}", markup=False),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)

    def show(self, said: str, done: int | None = None, total: int | None = None) -> None:
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, description=said, completed=done, total=total)

    def close(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()


class NotebookDisplay:
    """A bar below the cell, which stays there with what it said last."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last: tuple[str, int | None] = ("", None)

    def show(self, said: str, done: int | None = None, total: int | None = None) -> None:
        self._last = said, total
        self._put(said, done, total)

    def close(self) -> None:
        said, total = self._last
        if said:
            self._put(said, total, total)

    def _put(self, said: str, done: int | None, total: int | None) -> None:
        from IPython.display import display

        bar = "" if total is None else f'<progress value="{done}" max="{total}"></progress> '
        bundle = {"text/html": f"<div>{bar}{escape(said)}</div>", "text/plain": said}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
