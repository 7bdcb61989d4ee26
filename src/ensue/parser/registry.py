"""The registry of query languages: how a text is recognized, parsed and printed."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.query import Query
from ensue.ir.row_pattern import RowPatternQuery
from ensue.ir.subscription import Subscription
from ensue.ir.user_operator import UserOperator
from ensue.optional_deps import require_extra
from ensue.parser.definitions import parse_pattern_text
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.printing.pattern_printer import format_query

AnyQuery = Query | Hierarchy | ArchiveJoinQuery | Subscription | RowPatternQuery

NO_REGIONS: Mapping[str, str] = MappingProxyType({})
_BLANK = r"(?>\s|--[^\n]*|/\*[\s\S]*?\*/)*"  # atomic, so that no match begins inside a comment
_MATCH_RECOGNIZE = re.compile(rf"{_BLANK}MATCH_RECOGNIZE(?!\w)", re.IGNORECASE)
_BEGINNING = re.compile(rf"(?:{_BLANK}\()*{_BLANK}")
_NAME = r"[^\W\d]\w*(?:-\w+)*"
_OPSL = re.compile(
    rf"""=\| | \| | @ | \$ | (?:ARITH|STRING|BOOL|TIME){_BLANK}:
       | {_NAME}{_BLANK}(?:&&|\|\|)
       | {_NAME}{_BLANK},{_BLANK}(?:\${_NAME}\s*;|{_NAME}){_BLANK}=""",
    re.VERBOSE,
)
_PREFIX = re.compile(r"(?:(?P<word>IN|OVLP|SPL|DIST)\b|!)\s*(?=\()")
_SEPARATED = re.compile(r"'[^']*'|[();]")


@dataclass(frozen=True, slots=True)
class Language:
    """A query language.

    `claims` decides by the beginning of a text whether it is in this language; it also claims
    invalid texts of the language, so that the language reports their errors. `parse` takes a text,
    the folder of its imports, and the arguments of `registry.parse` that `takes` names. `show`
    prints the canonical form of a query, which parses back to the same query.
    """

    name: str
    claims: Callable[[str], bool]
    parse: Callable[..., AnyQuery]
    show: Callable[[AnyQuery], str]
    takes: tuple[str, ...] = ()


def claims_opsl(text: str) -> bool:
    """Whether a text begins like OPSL.

    >>> [claims_opsl(text) for text in ("=|(A; 5)B", "!(A; 5 minutes)B", "!(A a)", "SEQ(A a)")]
    [True, True, False, False]
    """
    beginning = _BEGINNING.match(text)
    start = beginning.end() if beginning else 0
    if _OPSL.match(text, start):
        return True
    prefix = _PREFIX.match(text, start)
    if prefix is None:
        return False
    return prefix["word"] is not None or _has_separator(text, prefix.end())


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


def claims_match_recognize(text: str) -> bool:
    """Whether a text begins like a MATCH_RECOGNIZE clause.

    >>> claims_match_recognize("-- rising\\nMatch_Recognize (PATTERN (A)")
    True
    """
    return _MATCH_RECOGNIZE.match(text) is not None


def _parse_patterns(
    text: str,
    folder: Path | None = None,
    definitions: Iterable[Definition | UserOperator] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> AnyQuery:
    events = [one for one in definitions if isinstance(one, Definition)]
    operators = [one for one in definitions if isinstance(one, UserOperator)]
    return parse_pattern_text(text, folder, definitions=events, operators=operators, parameters=parameters)


def _parse_opsl(text: str, _folder: Path | None = None, regions: Mapping[str, str] = NO_REGIONS) -> Subscription:
    from ensue.parser.opsl.opsl_parser import parse_subscription

    return parse_subscription(text, regions)


def _parse_clause(text: str, _folder: Path | None = None, parameters: Parameters = NO_PARAMETERS) -> RowPatternQuery:
    with require_extra("MATCH_RECOGNIZE", "sql"):
        from ensue.parser.sql.clause_parser import parse_clause

    return parse_clause(text, parameters)


def _show_pattern(query: AnyQuery) -> str:
    if isinstance(query, Subscription):
        from ensue.parser.opsl.pattern_translation import translate_subscription

        return translate_subscription(query)
    if isinstance(query, RowPatternQuery):
        raise QueryError("MATCH_RECOGNIZE cannot be converted to a pattern", hint='show it with language="sql"')
    return format_query(query)


def _show_opsl(query: AnyQuery) -> str:
    if isinstance(query, Subscription):
        from ensue.printing.opsl_printer import format_subscription

        return format_subscription(query)
    language = "sql" if isinstance(query, RowPatternQuery) else "patterns"
    raise QueryError(
        "this query is a pattern, and patterns cannot be converted to OPSL", hint=f'show it with language="{language}"'
    )


def _show_clause(query: AnyQuery) -> str:
    if isinstance(query, RowPatternQuery):
        from ensue.printing.sql_printer import format_clause

        return format_clause(query)
    raise QueryError(
        "this query is not a MATCH_RECOGNIZE clause, and cannot be converted to one",
        hint='show it with language="patterns"',
    )


PATTERNS = Language("patterns", lambda _: True, _parse_patterns, _show_pattern, ("definitions", "parameters"))
OPSL = Language("opsl", claims_opsl, _parse_opsl, _show_opsl, ("regions",))
SQL = Language("sql", claims_match_recognize, _parse_clause, _show_clause, ("parameters",))
LANGUAGES: dict[str, Language] = {language.name: language for language in (PATTERNS, OPSL, SQL)}


def detect_language(text: str, definitions: Iterable[Definition | UserOperator] = ()) -> Language:
    """Detects the language of a text; texts that no other language claims are patterns.

    So are texts that begin with an operator among `definitions`, whatever its name.

    >>> detect_language("MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > 3)").name
    'sql'
    """
    beginning = _BEGINNING.match(text)
    prefix = _PREFIX.match(text, beginning.end() if beginning else 0)
    if prefix is not None and prefix["word"] in {one.name for one in definitions}:
        return PATTERNS
    others = (language for language in LANGUAGES.values() if language is not PATTERNS)
    return next((language for language in others if language.claims(text)), PATTERNS)


def get_language(name: str) -> Language:
    """Returns a language by its name, or raises a QueryError with the known names."""
    if name not in LANGUAGES:
        raise QueryError(f"there is no query language '{name}'", hint=did_you_mean(name, LANGUAGES))
    return LANGUAGES[name]


def parse(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition | UserOperator] = (),
    language: str | None = None,
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> AnyQuery:
    """Parses a text in the language of this name, or in the one detected."""
    definitions = tuple(definitions)
    parser = detect_language(text, definitions) if language is None else get_language(language)
    arguments: dict[str, Any] = {"definitions": definitions, "regions": regions}
    for name, values in arguments.items():
        if values and name not in parser.takes:
            other = next(other.name for other in LANGUAGES.values() if name in other.takes)
            raise QueryError(
                f"{name}= is for the language {other}, and this text is in {parser.name}",
                hint=f'leave it out, or pass language="{other}"',
            )
    arguments["parameters"] = parameters
    return parser.parse(text, folder, **{name: arguments[name] for name in parser.takes})


def show(query: AnyQuery, language: str = PATTERNS.name) -> str:
    """Prints the canonical form of a query in a language."""
    return get_language(language).show(query)
