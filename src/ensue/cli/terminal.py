"""What the command says, and where: matches on standard output, all else on standard error."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from rich.console import Console
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
