"""MATCH_RECOGNIZE as one of the query languages: which texts are in it."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower
from ensue.errors import QueryError
from ensue.languages.language import NO_REGIONS, Language
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.row_patterns.clause import read_bare
from ensue.languages.row_patterns.text import show_clause

_BEGINNING = re.compile(r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/)*MATCH_RECOGNIZE(?!\w)", re.IGNORECASE)


def claims(text: str) -> bool:
    """Whether a text is a MATCH_RECOGNIZE clause, from how it begins.

    >>> claims("-- rising\\nMatch_Recognize (PATTERN (A)"), claims("SEQ(A a, B b)")
    (True, False)
    """
    return _BEGINNING.match(text) is not None


def parse_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Recognition:
    """A clause. Definitions, operators, regions and files have no place in it."""
    del folder
    for argument, given in (
        ("definitions", tuple(definitions)),
        ("operators", tuple(operators)),
        ("regions", tuple(regions)),
    ):
        if given:
            raise QueryError(
                f"{argument}= is not for SQL, and this text is MATCH_RECOGNIZE",
                hint=f"leave {argument}= out",
            )
    return read_bare(text, parameters)


def show(query: Query | Tower | Correlation | Subscription | Recognition) -> str:
    """The one spelling of a clause."""
    if isinstance(query, Recognition):
        return show_clause(query)
    raise QueryError(
        "this query is not a MATCH_RECOGNIZE clause, and cannot be converted to one",
        hint='show it with language="patterns"',
    )


LANGUAGE = Language("sql", claims, parse_text, show)
