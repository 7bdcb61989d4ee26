"""OPSL as one of the query languages: which texts are in it, and what else a call may give."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator, is_registered
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower
from ensue.errors import QueryError
from ensue.languages import opsl, opsl_text
from ensue.languages.language import NO_REGIONS, Language
from ensue.languages.parameters import NO_PARAMETERS, Parameters

_BLANK = r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/)*"  # atomic: a comment is no text to look into
_BEGINNING = re.compile(rf"(?:{_BLANK}\()*{_BLANK}")
_NAME = r"[^\W\d]\w*(?:-\w+)*"
_OURS = re.compile(
    rf"""=\| | \| | @ | \$ | (?:ARITH|STRING|BOOL|TIME){_BLANK}:
       | {_NAME}{_BLANK}(?:&&|\|\|)
       | {_NAME}{_BLANK},{_BLANK}(?:\${_NAME}\s*;|{_NAME}){_BLANK}=""",
    re.VERBOSE,
)
_PREFIX = re.compile(r"(?:(?P<word>IN|OVLP|SPL|DIST)\b|!)\s*(?=\()")
_SEPARATED = re.compile(r"'[^']*'|[();]")


def claims(text: str) -> bool:
    """Whether a text is in OPSL, from how it begins.

    >>> claims("=|(A; 5)B"), claims("@(Depot)(ARITH:id = 1)"), claims("!(A; 5 minutes)B")
    (True, True, True)
    >>> claims("SEQ(A a, !B b)"), claims("!(A a)"), claims("(A a -> B b)")
    (False, False, False)
    """
    beginning = _BEGINNING.match(text)
    start = beginning.end() if beginning else 0
    if _OURS.match(text, start):
        return True
    prefix = _PREFIX.match(text, start)
    if prefix is None:
        return False
    if prefix["word"]:
        return not is_registered(prefix["word"])  # else someone's operator of patterns
    return _has_separator(text, prefix.end())


def _has_separator(text: str, start: int) -> bool:
    """Whether a `;` stands in the parenthesis that opens here."""
    depth = 0
    for found in _SEPARATED.finditer(text, start):
        if found[0] == ";":
            return True
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth == 0:
            return False
    return False


def parse_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Subscription:
    """A subscription. Definitions, operators and parameters of patterns, and files, have no place
    in it."""
    del folder, parameters
    for argument, given in (("definitions", definitions), ("operators", operators)):
        if tuple(given):
            raise QueryError(
                f"{argument}= is for patterns, and this text is OPSL",
                hint=f"leave {argument}= out",
            )
    return opsl.parse(text, regions)


def show(query: Query | Tower | Correlation | Subscription | Recognition) -> str:
    """The one spelling of a subscription."""
    if isinstance(query, Subscription):
        return opsl_text.show(query)
    raise QueryError(
        "this query is a pattern, and patterns cannot be converted to OPSL",
        hint=f'show it with language="{"sql" if isinstance(query, Recognition) else "patterns"}"',
    )


LANGUAGE = Language("opsl", claims, parse_text, show)
