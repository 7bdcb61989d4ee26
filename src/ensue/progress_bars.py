"""Progress bars on a terminal or in a notebook; elsewhere nothing is shown.

On a terminal rich draws the bar on standard error. In a notebook it is plain HTML, since rich
would need ipywidgets there.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from ensue.errors import EventError

Report = Callable[[int, int], None]  # events done, events in all

_DELAY = 1.0  # seconds before the bar appears
_INTERVAL = 0.1  # seconds between two updates


class ProgressDisplay(Protocol):
    """A line that shows the progress."""

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None: ...

    def close(self) -> None: ...


@contextmanager
def progress_bar(progress: "Report | bool | None", activity: str) -> Iterator[Report | None]:
    """Provides the function that a matcher reports to: the user's, or one that draws a bar."""
    if progress is None or progress is False:
        yield None
    elif progress is not True:
        if not callable(progress):
            raise EventError(
                f"progress={progress!r}: it takes True for a bar, or a function of the number of "
                "events done and of all events"
            )
        yield progress
    else:
        with find_display() as display:
            yield None if display is None else _build_report(display, activity)


def _build_report(display: ProgressDisplay, activity: str) -> Report:
    began = drawn = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal drawn
        now = time.monotonic()
        if now - began < _DELAY or (now - drawn < _INTERVAL and done < total):
            return
        drawn = now
        left = _format_time_left(now - began, done, total)
        display.show(f"{activity} {done:,} of {total:,} events{left}", done, total)

    return report


def _format_time_left(seconds: float, done: int, total: int) -> str:
    """The time left at the current speed.

    >>> [_format_time_left(3.0, 25, 100), _format_time_left(300.0, 50, 100)]
    [', 9 s left', ', 5:00 left']
    """
    if not 0 < done < total:
        return ""
    rest = round(seconds * (total - done) / done)
    return f", {rest // 60}:{rest % 60:02} left" if rest >= 60 else f", {rest} s left"


@contextmanager
def find_display() -> Iterator[ProgressDisplay | None]:
    """Provides the display of this process; None in a pipe, in a test or in a service."""
    display: ProgressDisplay | None = None
    if _in_notebook():
        display = NotebookDisplay()
    elif sys.stderr is not None and sys.stderr.isatty():
        display = TerminalDisplay()
    try:
        yield display
    finally:
        if display is not None:
            display.close()


def _in_notebook() -> bool:
    """Whether this is a notebook kernel, which shows HTML; IPython on a terminal is not."""
    if "IPython" not in sys.modules:
        return False
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


class TerminalDisplay:
    """A line on standard error that disappears at the end."""

    def __init__(self, file: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=file or sys.stderr, highlight=False)
        self._bar = Progress(
            BarColumn(bar_width=30), TextColumn("{task.description}", markup=False),
            console=console, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("", total=None)

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        if not self._bar.live.is_started:
            self._bar.start()
        self._bar.update(self._task, description=text, completed=done, total=total)

    def close(self) -> None:
        if self._bar.live.is_started:
            self._bar.stop()


class NotebookDisplay:
    """A bar below the cell, which stays with its last text."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last: tuple[str, int | None] = ("", None)

    def show(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self._last = text, total
        self._put(text, done, total)

    def close(self) -> None:
        text, total = self._last
        if text:
            self._put(text, total, total)

    def _put(self, text: str, done: int | None, total: int | None) -> None:
        from IPython.display import display

        bar = "" if total is None else f'<progress value="{done}" max="{total}"></progress> '
        bundle = {"text/html": f"<div>{bar}{escape(text)}</div>", "text/plain": text}
        if self._handle is None:
            self._handle = display(bundle, raw=True, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bundle, raw=True)
