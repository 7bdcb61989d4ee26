"""The table of query languages. A new one is a file beside this one, and its name here."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower
from ensue.errors import QueryError, did_you_mean
from ensue.languages import opsl_language, towers
from ensue.languages.language import NO_REGIONS, Language
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.row_patterns import language as row_patterns

PATTERNS = towers.LANGUAGE  # it takes every text that no other language claims
OPSL = opsl_language.LANGUAGE
SQL = row_patterns.LANGUAGE
LANGUAGES: dict[str, Language] = {language.name: language for language in (PATTERNS, OPSL, SQL)}


def language_of(text: str) -> Language:
    """The language that a text is in, by how it looks.

    >>> language_of("SEQ(A a, B b) WITHIN 5 minutes").name
    'patterns'
    >>> language_of("=|(A; 5 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)").name
    'opsl'
    >>> language_of("MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > 3)").name
    'sql'
    """
    others = (known for known in LANGUAGES.values() if known is not PATTERNS)
    return next((known for known in others if known.claims(text)), PATTERNS)


def language_named(name: str) -> Language:
    """A language by its name, or a QueryError that lists those there are.

    >>> language_named("paterns")
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
    operators: Iterable[Operator] = (),
    language: str | None = None,
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Query | Tower | Correlation | Subscription | Recognition:
    """A text in the language of this name, or else in the one that it looks like."""
    read = language_of(text) if language is None else language_named(language)
    return read.parse(
        text,
        folder,
        definitions=definitions,
        operators=operators,
        regions=regions,
        parameters=parameters,
    )


def show(
    query: Query | Tower | Correlation | Subscription | Recognition,
    language: str = PATTERNS.name,
) -> str:
    """The one spelling of a query in a language."""
    return language_named(language).show(query)
