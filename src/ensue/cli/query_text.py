"""The QUERY of a command line: a file, the text itself, or standard input."""

import sys
from pathlib import Path

from ensue.cli.terminal import UsageError

_SUFFIXES = (".ensue", ".txt", ".sql")


def query_text(argument: str) -> str:
    """The text of a query.

    >>> query_text("SEQ(A a, B b) WITHIN 5 minutes")
    'SEQ(A a, B b) WITHIN 5 minutes'
    >>> query_text("missing.ensue")
    Traceback (most recent call last):
    ensue.cli.terminal.UsageError: there is no query file missing.ensue
    """
    if argument == "-":
        return sys.stdin.read()
    one_line = "\n" not in argument and len(argument) < 1024
    path = Path(argument)
    if one_line and path.is_file():
        return _read(path)
    if one_line and path.suffix.lower() in _SUFFIXES:
        raise UsageError(f"there is no query file {argument}")
    if not argument.strip():
        raise UsageError("the query is empty")
    return argument


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the query file {path}: {error}") from None
