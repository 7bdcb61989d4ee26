"""What the command says, and where: matches on standard output, all else on standard error."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text


class Exit(IntEnum):
    """How the command ends."""

    FINE = 0
    DIFFERENT = 1  # the demo found other events than were planted
    WRONG = 2  # wrong usage, or a query that cannot be run
    EVENTS = 3
    ENGINE = 4
    INTERRUPTED = 130


class UsageError(Exception):
    """A command line that cannot be followed."""


def output() -> Console:
    """Where matches go. In a pipe there is no width to keep to, so lines may be long."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=200, soft_wrap=False)


def messages() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def notice(text: str) -> None:
    messages().print(Text(text, style="dim"))


def complain(text: str) -> None:
    """An error: the problem in red, the place in the query and the hint as they are."""
    problem, newline, rest = text.partition("\n")
    messages().print(Text("error: ", style="bold red"), Text(problem, style="red"), sep="")
    for line in rest.splitlines() if newline else ():
        underline = bool(line.strip()) and not line.strip().strip("^")
        messages().print(Text(line, style="bold red" if underline else ""))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings without the line of code they come from, which tells a user of commands nothing."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


Report = Callable[[int, int], None]  # events done, events in all


@contextmanager
def progress(doing: str, *, patience: float = 1.0) -> Iterator[Report]:
    """A bar on a terminal's standard error, if the work takes longer than `patience` seconds."""
    console = messages()
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    task = bar.add_task(doing, total=None)
    began = time.monotonic()

    def report(done: int, total: int) -> None:
        if not bar.live.is_started:
            if not console.is_terminal or time.monotonic() - began < patience:
                return
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
