"""Parses texts with several definitions, `EVENT Name AS ...;`, and a query after them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ensue.errors import QueryError, Span
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Definition, Hierarchy, build_hierarchy, get_pattern_types
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_atoms
from ensue.ir.user_operator import UserOperator
from ensue.parser.parameters import NO_PARAMETERS, Parameters
from ensue.parser.pattern_parser import parse_statement
from ensue.parser.query_files import find_nearest_file

_PIECES = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
       | --[^\n]* | /\*(?:[\s\S]*?\*/|[\s\S]*) | (?P<end>;)""",
    re.VERBOSE,
)
_BLANK = re.compile(r"(?:\s|--[^\n]*|/\*[\s\S]*?\*/)*")
_IMPORT = re.compile(r"""IMPORT\s*(?P<file>'(?:[^']|'')*'|"(?:[^"]|"")*")\s*$""", re.IGNORECASE)
_EMIT = re.compile(r"EMIT\s+(?P<names>[^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)\s*$", re.IGNORECASE)
_NAME = re.compile(r"EVENT\s+(?P<name>`(?:[^`]|``)*`|\w+)", re.IGNORECASE)
_BEGINS = re.compile(r"(?P<word>IMPORT|EMIT)(?!\w)", re.IGNORECASE)


def parse_definitions(
    text: str,
    folder: Path | None = None,
    operators: Iterable[UserOperator] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> tuple[Definition, ...]:
    """Parses a text that contains nothing but definitions.

    >>> [d.name for d in parse_definitions("EVENT Hot AS SEQ(T a, T b) WITHIN 5")]
    ['Hot']
    """
    positions = list(_statements(text))
    reader = _Reader(folder or Path(), tuple(operators), parameters)
    definitions, emit = reader.definitions(text, positions, file=None, folder=reader.folder)
    unnamed = next((d for d in definitions if not d.name), None)
    if emit or not definitions or unnamed is not None:
        raise QueryError(
            "a definition has the form EVENT Name AS pattern",
            hint="pass a query without a name, and EMIT, to match",
            span=None if unnamed is None else unnamed.span,
            text=text,
        )
    return tuple(definitions)


def parse_pattern_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[UserOperator] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> Query | Hierarchy | ArchiveJoinQuery:
    """Parses a query, also one with JOIN ARCHIVE, or definitions with a query that uses them.

    Imported files are searched in `folder`, by default the current one. Of two definitions of the
    same name, that of the text takes precedence over that of `definitions`.

    >>> parse_pattern_text("EVENT Hot AS SEQ(T a, T b) WITHIN 5; SEQ(Hot x, Hot y)").names
    ('Hot',)
    """
    external = {d.name: d for d in definitions}
    positions = list(_statements(text))
    if _is_one(text, positions):
        match parse_statement(text, operators, parameters):
            case Query() as query:
                return add_definitions(query, external.values())
            case ArchiveJoinQuery() as archive_join:
                _require_no_definitions(archive_join, external)
                return archive_join
    reader = _Reader(folder or Path(), tuple(operators), parameters)
    return reader.hierarchy(text, positions, external)


def is_single_query(text: str) -> bool:
    """Whether a text is one query, without definitions or files to import.

    >>> is_single_query("SEQ(A a, B b)"), is_single_query('IMPORT "x"; SEQ(A a, B b)')
    (True, False)
    """
    return _is_one(text, list(_statements(text)))


def _is_one(text: str, positions: list[Span]) -> bool:
    return len(positions) < 2 and not any(_BEGINS.match(text, p.start) for p in positions)


def add_definitions(query: Query, definitions: Iterable[Definition] = ()) -> Query | Hierarchy:
    """Adds the definitions that a query uses."""
    external = {d.name: d for d in definitions}
    external.pop(query.name or "", None)
    if not any(name in external for name in get_pattern_types(query)):
        return query
    return build_hierarchy(list(external.values()), query)


def _require_no_definitions(archive_join: ArchiveJoinQuery, external: Mapping[str, Definition]) -> None:
    for query in archive_join.sides:
        for atom in iterate_atoms(query.pattern):
            if atom.type in external and atom.type != archive_join.name:
                raise _refuse_definitions(archive_join, atom.span, f"'{atom.type}' is a defined event, and ")


def _refuse_definitions(archive_join: ArchiveJoinQuery, span: Span | None, why: str = "") -> QueryError:
    return QueryError(
        f"{why}JOIN ARCHIVE together with definitions is not supported yet",
        hint="match the raw events, or write the matches of the definitions to a table first",
        span=span,
        text=archive_join.text,
    )


def _statements(text: str) -> Iterator[Span]:
    """Yields the positions of the statements, without the semicolons between them."""
    begin = 0
    ends = [m.start() for m in _PIECES.finditer(text) if m["end"]]
    for end in (*ends, len(text)):
        first = _BLANK.match(text, begin, end)
        assert first is not None
        if first.end() < end:
            yield Span(first.end(), begin + len(text[begin:end].rstrip()))
        begin = end + 1


@dataclass(frozen=True, slots=True)
class _Reader:
    """Parses a text and the files it imports, each once."""

    folder: Path
    operators: tuple[UserOperator, ...]
    parameters: Parameters
    imported: set[Path] = field(default_factory=set)

    def hierarchy(self, text: str, positions: list[Span], external: Mapping[str, Definition]) -> Hierarchy:
        parsed, emit = self.definitions(text, positions, file=None, folder=self.folder)
        if not parsed or parsed[-1].file is not None:
            raise QueryError(
                "there are definitions, but no query that uses them",
                hint="end the text with a pattern, as in SEQ(Incident a, Repair b) WITHIN 1 hour",
                span=positions[-1],
                text=text,
            )
        *definitions, last = parsed
        for definition in definitions:
            if not definition.name:
                raise QueryError(
                    "only the last query may have no name",
                    hint="write EVENT Name AS ... to define an event",
                    span=definition.span,
                    text=definition.query.text,
                )
        local_names = {definition.name for definition in parsed}
        others = [d for name, d in external.items() if name not in local_names]
        return build_hierarchy([*others, *definitions], last.query, emit)

    def definitions(
        self, text: str, positions: list[Span], *, file: str | None, folder: Path
    ) -> tuple[list[Definition], list[str]]:
        parsed: list[Definition] = []
        emit: list[str] = []
        for position in positions:
            word = _BEGINS.match(text, position.start)
            if word is None:
                query = _parse_statement(text, position, self.operators, self.parameters)
                parsed.append(Definition(query.name or "", query, file, _name_position(text, position)))
            elif word["word"].upper() == "IMPORT":
                parsed += self._import(text, position, folder)
            else:
                emit += _parse_emit(text, position)
        return parsed, emit

    def _import(self, text: str, position: Span, folder: Path) -> list[Definition]:
        match_ = _IMPORT.match(position.over(text))
        if match_ is None:
            raise QueryError(
                "IMPORT is followed by the name of a file in quotes",
                hint='as in IMPORT "incidents.ensue";',
                span=position,
                text=text,
            )
        path = (folder / match_["file"][1:-1]).resolve()
        if path in self.imported:
            return []
        self.imported.add(path)
        try:
            content = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            suggestion = find_nearest_file(path) if isinstance(error, FileNotFoundError) else None
            raise QueryError(
                f"{match_['file']} cannot be imported: {reason}",
                hint=f"it was looked for in {path.parent}" + (f"; did you mean '{suggestion}'?" if suggestion else ""),
                span=position,
                text=text,
            ) from None
        name = match_["file"][1:-1]
        try:
            definitions, emit = self.definitions(content, list(_statements(content)), file=name, folder=path.parent)
        except QueryError as error:
            raise QueryError(f"in {name}: {error.problem}", hint=error.hint, span=error.span, text=error.text) from None
        unnamed = next((d for d in definitions if not d.name), None)
        if emit or unnamed is not None:
            raise QueryError(
                f"{name} contains more than definitions",
                hint="an imported file may only contain EVENT Name AS ...;",
                span=position,
                text=text,
            )
        return definitions


def _parse_statement(text: str, position: Span, operators: tuple[UserOperator, ...], parameters: Parameters) -> Query:
    """Parses one statement at its position in the text."""
    before = re.sub(r"[^\n]", " ", text[: position.start])
    try:
        match parse_statement(before + position.over(text), operators, parameters):
            case Query() as query:
                return replace(query, text=text)
            case ArchiveJoinQuery() as archive_join:
                raise _refuse_definitions(archive_join, archive_join.joins[0].span)
    except QueryError as error:
        error.text = text
        if text[position.end : position.end + 1] == ";" and "is not closed" in str(error.hint):
            error.hint = f"{error.hint}: ';' ends a query, and parts are separated by commas"
        raise


def _name_position(text: str, position: Span) -> Span:
    """Returns the position of a definition's name, or the whole statement if it has none."""
    match_ = _NAME.match(text, position.start, position.end)
    return position if match_ is None else Span(*match_.span("name"))


def _parse_emit(text: str, position: Span) -> list[str]:
    match_ = _EMIT.match(position.over(text))
    if match_ is None:
        raise QueryError(
            "EMIT is followed by names of defined events", hint="as in EMIT Incident, Outage;", span=position, text=text
        )
    return [name.strip() for name in match_["names"].split(",")]
