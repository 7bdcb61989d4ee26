"""The registry of query languages."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.errors import QueryError, did_you_mean
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator
from ensue.parser import definitions as pattern_language
from ensue.parser.language import NO_REGIONS, Language
from ensue.parser.opsl import opsl_language
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.row_pattern import row_pattern_language

PATTERNS = pattern_language.LANGUAGE
OPSL = opsl_language.LANGUAGE
SQL = row_pattern_language.LANGUAGE
LANGUAGES: dict[str, Language] = {language.name: language for language in (PATTERNS, OPSL, SQL)}


def detect_language(text: str) -> Language:
    """Detects the language of a text; texts that no other language claims are patterns.

    >>> detect_language("SEQ(A a, B b) WITHIN 5 minutes").name
    'patterns'
    >>> detect_language("=|(A; 5 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)").name
    'opsl'
    >>> detect_language("MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > 3)").name
    'sql'
    """
    others = (language for language in LANGUAGES.values() if language is not PATTERNS)
    return next((language for language in others if language.claims(text)), PATTERNS)


def get_language(name: str) -> Language:
    """Returns a language by its name, or raises a QueryError with the known names.

    >>> get_language("paterns")
    Traceback (most recent call last):
    ensue.errors.QueryError: there is no query language 'paterns'
      hint: did you mean 'patterns'?
    """
    if name not in LANGUAGES:
        raise QueryError(
            f"there is no query language '{name}'", hint=did_you_mean(name, LANGUAGES)
        )
    return LANGUAGES[name]


def parse(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[UserOperator] = (),
    language: str | None = None,
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery:
    """Parses a text in the language of this name, or in the one detected."""
    parser = detect_language(text) if language is None else get_language(language)
    return parser.parse(
        text,
        folder,
        definitions=definitions,
        operators=operators,
        regions=regions,
        parameters=parameters,
    )


def show(
    query: Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery,
    language: str = PATTERNS.name,
) -> str:
    """Prints the canonical form of a query in a language."""
    return get_language(language).show(query)
