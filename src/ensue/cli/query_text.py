"""The QUERY of a command line: a file, the text itself, or standard input."""

import sys
from pathlib import Path

from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.cli.terminal import UsageError

_SUFFIXES = (".ensue", ".txt", ".sql")


def read_query(argument: str) -> Query | Tower:
    """The query, or the tower of definitions with a query on top. What a file imports is looked
    for beside it, what another text imports in the current folder."""
    from ensue.languages.towers import parse_text

    text = query_text(argument)
    return parse_text(text, Path(argument).parent if is_file(argument) else None)


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
    if is_file(argument):
        return _read(Path(argument))
    if _one_line(argument) and Path(argument).suffix.lower() in _SUFFIXES:
        raise UsageError(f"there is no query file {argument}")
    if not argument.strip():
        raise UsageError("the query is empty")
    return argument


def _one_line(argument: str) -> bool:
    return "\n" not in argument and len(argument) < 1024


def is_file(argument: str) -> bool:
    """Whether an argument names the file of a query."""
    return argument != "-" and _one_line(argument) and Path(argument).is_file()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the query file {path}: {error}") from None
