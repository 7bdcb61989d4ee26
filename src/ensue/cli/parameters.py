"""`--param NAME=VALUE`: the values of parameters in a query, typed by how they are written."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from ensue.algebra.durations import parse_duration
from ensue.cli.terminal import UsageError
from ensue.errors import EventError
from ensue.languages.parameters import Parameters

_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_WORDS = {"true": True, "false": False, "null": None}
_QUOTED = re.compile(r"'(?:[^']|'')*'")


def parameter_option(parser: ArgumentParser) -> None:
    """Adds the option."""
    parser.add_argument(
        "--param",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help='the value of :NAME in the query: 5, 0.5, "5 minutes", 2026-01-31, true, null, else '
        "a text (also '...'); several times for a list",
    )


def parameters_of(options: Namespace) -> Parameters:
    """The values that the command line gives."""
    values: dict[str, list[Any]] = {}
    for given in options.param:
        name, equals, text = given.partition("=")
        name = name.removeprefix(":")
        if not equals or not name.isidentifier():
            raise UsageError(f"--param {given}\n  hint: --param NAME=VALUE, as in --param gap=5")
        values.setdefault(name, []).append(value_of(text))
    several = {name: v if len(v) > 1 else v[0] for name, v in values.items()}
    return Parameters(several, lambda name: f"give it one: --param {name}=...")


def value_of(text: str) -> bool | int | float | str | date | datetime | timedelta | None:
    """The value that a text is written as.

    >>> value_of("5"), value_of("5 minutes"), value_of("2026-01-31"), value_of("IBM")
    (5, datetime.timedelta(seconds=300), datetime.date(2026, 1, 31), 'IBM')
    >>> value_of("'5'"), value_of("true")
    ('5', True)
    """
    stripped = text.strip()
    if _QUOTED.fullmatch(stripped):
        return stripped[1:-1].replace("''", "'")
    if stripped.lower() in _WORDS:
        return _WORDS[stripped.lower()]
    if _INTEGER.fullmatch(stripped):
        return int(stripped)
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    read: tuple[Callable[[str], Any], ...] = (date.fromisoformat, datetime.fromisoformat, _length)
    for of in read:
        try:
            return of(stripped)  # type: ignore[no-any-return]
        except (ValueError, EventError):
            continue
    return text


def _length(text: str) -> timedelta:
    length = parse_duration(text.removeprefix("-"))
    if length % 1_000:
        raise ValueError(text)
    return timedelta(microseconds=(-length if text.startswith("-") else length) // 1_000)
