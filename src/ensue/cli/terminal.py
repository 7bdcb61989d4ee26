"""Console output: matches on standard output, messages on standard error, and exit codes."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

from rich.console import Console
from rich.text import Text


class ExitCode(IntEnum):
    """Exit codes."""

    FINE = 0
    WRONG = 2  # wrong usage, or a query that cannot be run
    EVENTS = 3
    ENGINE = 4
    INTERRUPTED = 130


class UsageError(Exception):
    """An invalid command line."""


def get_output_console() -> Console:
    """Return the console for matches, with long lines if the output is a pipe."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=200, soft_wrap=False)


def get_message_console() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True)


def print_notice(text: str) -> None:
    get_message_console().print(Text(text, style="dim"))


def print_error(text: str) -> None:
    """Print an error: the problem in red, then its position in the query and the hint."""
    problem, newline, rest = text.partition("\n")
    get_message_console().print(Text("error: ", style="bold red"), Text(problem, style="red"), sep="")
    for line in rest.splitlines() if newline else ():
        underline = bool(line.strip()) and not line.strip().strip("^")
        get_message_console().print(Text(line, style="bold red" if underline else ""))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Format warnings without the source line they come from."""
    before = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = before


def format_count(count: int, one: str, several: str) -> str:
    """Format a count with its noun.

    >>> format_count(1, "match", "matches"), format_count(1_200, "match", "matches")
    ('1 match', '1,200 matches')
    """
    return f"{count:,} {one if count == 1 else several}"
