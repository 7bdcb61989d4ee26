"""Registers OPSL as a query language."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator, is_registered
from ensue.parser.language import NO_REGIONS, Language
from ensue.parser.parameters import NO_PARAMETERS, Parameters

_BLANK = r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/)*"  # atomic, so that no match begins inside a comment
_BEGINNING = re.compile(rf"(?:{_BLANK}\()*{_BLANK}")
_NAME = r"[^\W\d]\w*(?:-\w+)*"
_SYNTAX = re.compile(
    rf"""=\| | \| | @ | \$ | (?:ARITH|STRING|BOOL|TIME){_BLANK}:
       | {_NAME}{_BLANK}(?:&&|\|\|)
       | {_NAME}{_BLANK},{_BLANK}(?:\${_NAME}\s*;|{_NAME}){_BLANK}=""",
    re.VERBOSE,
)
_PREFIX = re.compile(r"(?:(?P<word>IN|OVLP|SPL|DIST)\b|!)\s*(?=\()")
_SEPARATED = re.compile(r"'[^']*'|[();]")


def claims_opsl(text: str) -> bool:
    """Whether a text begins like OPSL.

    >>> (
    ...     claims_opsl("=|(A; 5)B"),
    ...     claims_opsl("@(Depot)(ARITH:id = 1)"),
    ...     claims_opsl("!(A; 5 minutes)B"),
    ... )
    (True, True, True)
    >>> claims_opsl("SEQ(A a, !B b)"), claims_opsl("!(A a)"), claims_opsl("(A a -> B b)")
    (False, False, False)
    """
    beginning = _BEGINNING.match(text)
    start = beginning.end() if beginning else 0
    if _SYNTAX.match(text, start):
        return True
    prefix = _PREFIX.match(text, start)
    if prefix is None:
        return False
    if prefix["word"]:
        return not is_registered(prefix["word"])  # else it is a user-defined operator of patterns
    return _has_separator(text, prefix.end())


def _has_separator(text: str, start: int) -> bool:
    """Whether the parenthesis that opens here contains a `;`."""
    depth = 0
    for sign in _SEPARATED.finditer(text, start):
        if sign[0] == ";":
            return True
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if depth == 0:
            return False
    return False


def parse_opsl_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[UserOperator] = (),
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Subscription:
    """Parses a subscription, in which definitions and operators of patterns are not allowed."""
    del folder, parameters
    for name, values in (("definitions", definitions), ("operators", operators)):
        if tuple(values):
            raise QueryError(
                f"{name}= is for patterns, and this text is OPSL",
                hint=f"leave {name}= out",
            )

    from ensue.parser.opsl.opsl_parser import parse_subscription

    return parse_subscription(text, regions)


def show_opsl(query: Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery) -> str:
    """Prints the canonical form of a subscription."""
    if isinstance(query, Subscription):
        from ensue.printing import opsl_printer

        return opsl_printer.format_subscription(query)
    raise QueryError(
        "this query is a pattern, and patterns cannot be converted to OPSL",
        hint=f'show it with language="{"sql" if isinstance(query, RowPatternQuery) else "patterns"}"',
    )


LANGUAGE = Language("opsl", claims_opsl, parse_opsl_text, show_opsl)
