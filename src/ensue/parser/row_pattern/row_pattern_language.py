"""Registers MATCH_RECOGNIZE as a query language."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator
from ensue.parser.language import NO_REGIONS, Language
from ensue.parser.parameters import NO_PARAMETERS, Parameters

_BEGINNING = re.compile(r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/)*MATCH_RECOGNIZE(?!\w)", re.IGNORECASE)


def claims_match_recognize(text: str) -> bool:
    """Whether a text begins like a MATCH_RECOGNIZE clause.

    >>> (
    ...     claims_match_recognize("-- rising\\nMatch_Recognize (PATTERN (A)"),
    ...     claims_match_recognize("SEQ(A a, B b)"),
    ... )
    (True, False)
    """
    return _BEGINNING.match(text) is not None


def parse_clause_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[UserOperator] = (),
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> RowPatternQuery:
    """Parses a clause, in which definitions, operators and regions are not allowed."""
    del folder
    for name, values in (
        ("definitions", tuple(definitions)),
        ("operators", tuple(operators)),
        ("regions", tuple(regions)),
    ):
        if values:
            raise QueryError(
                f"{name}= is not for SQL, and this text is MATCH_RECOGNIZE",
                hint=f"leave {name}= out",
            )

    from ensue.parser.row_pattern.clause import read_clause_text

    return read_clause_text(text, parameters)


def show_match_recognize(
    query: Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery,
) -> str:
    """Prints the canonical form of a clause."""
    if isinstance(query, RowPatternQuery):
        from ensue.printing.sql_printer import format_clause

        return format_clause(query)
    raise QueryError(
        "this query is not a MATCH_RECOGNIZE clause, and cannot be converted to one",
        hint='show it with language="patterns"',
    )


LANGUAGE = Language("sql", claims_match_recognize, parse_clause_text, show_match_recognize)
