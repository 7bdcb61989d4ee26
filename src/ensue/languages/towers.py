"""Several definitions in one text: `EVENT Name AS ...;` as often as wanted, then a query."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ensue.algebra.correlation import Correlation
from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.subscription import Subscription
from ensue.algebra.tower import Definition, Tower, tower, types_of
from ensue.algebra.walk import atoms
from ensue.errors import QueryError
from ensue.languages import opsl_patterns
from ensue.languages.language import NO_REGIONS, Language
from ensue.languages.parameters import NO_PARAMETERS, Parameters
from ensue.languages.patterns import statement
from ensue.languages.printing import show
from ensue.languages.query_files import nearest
from ensue.span import Span

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


_known: dict[str, Definition] = {}  # that `define` has made known


def define(
    text: str,
    folder: Path | None = None,
    operators: Iterable[Operator] = (),
    parameters: Parameters = NO_PARAMETERS,
) -> tuple[Definition, ...]:
    """The definitions of a text that has nothing else in it.

    >>> [d.name for d in define("EVENT Hot AS SEQ(T a, T b) WITHIN 5")]
    ['Hot']
    """
    places = list(_statements(text))
    reader = _Reader(folder or Path(), tuple(operators), parameters)
    found, emit = reader.definitions(text, places, file=None, folder=reader.folder)
    unnamed = next((d for d in found if not d.name), None)
    if emit or not found or unnamed is not None:
        raise QueryError(
            "a definition has the form EVENT Name AS pattern",
            hint="pass a query without a name, and EMIT, to match",
            span=None if unnamed is None else unnamed.span,
            text=text,
        )
    return tuple(found)


def make_known(definitions: Iterable[Definition]) -> None:
    """Queries may use these definitions from now on."""
    _known.update({d.name: d for d in definitions})


def parse_text(
    text: str,
    folder: Path | None = None,
    *,
    definitions: Iterable[Definition] = (),
    operators: Iterable[Operator] = (),
    regions: Mapping[str, str] = NO_REGIONS,
    parameters: Parameters = NO_PARAMETERS,
) -> Query | Tower | Correlation:
    """A query, also one with JOIN ARCHIVE, or a tower of definitions with a query on top.

    Files to import are looked for in `folder`, by default the current one. `definitions` are
    known beside those that `define` has made known; those of the text come first.

    >>> found = parse_text("EVENT Hot AS SEQ(T a, T b) WITHIN 5; SEQ(Hot x, Hot y) WITHIN 60")
    >>> [definition.name for definition in found.definitions]
    ['Hot']
    """
    if regions:
        raise QueryError(
            "regions= is for OPSL, and this text is a pattern",
            hint='leave them out, or say language="opsl"',
        )
    outside = {**_known, **{d.name: d for d in definitions}}
    places = list(_statements(text))
    if _is_one(text, places):
        match statement(text, operators, parameters):
            case Query() as query:
                return built_on(query, outside.values())
            case Correlation() as correlation:
                _require_no_definitions(correlation, outside)
                return correlation
    reader = _Reader(folder or Path(), tuple(operators), parameters)
    return reader.tower(text, places, outside)


def is_one_query(text: str) -> bool:
    """Whether a text is one query, without definitions or files to import.

    >>> is_one_query("SEQ(A a, B b)"), is_one_query('IMPORT "x"; SEQ(A a, B b)')
    (True, False)
    """
    return _is_one(text, list(_statements(text)))


def _is_one(text: str, places: list[Span]) -> bool:
    return len(places) < 2 and not any(_BEGINS.match(text, p.start) for p in places)


def built_on(query: Query, definitions: Iterable[Definition] = ()) -> Query | Tower:
    """A query together with those of the definitions, and of the known ones, that it uses."""
    outside = {**_known, **{d.name: d for d in definitions}}
    outside.pop(query.name or "", None)
    if not any(name in outside for name in types_of(query)):
        return query
    return tower(list(outside.values()), query)


def _require_no_definitions(correlation: Correlation, outside: Mapping[str, Definition]) -> None:
    for query in (correlation.live, *(join.query for join in correlation.joins)):
        for atom in atoms(query.pattern):
            if atom.type in outside and atom.type != correlation.name:
                raise _no_tower(correlation, atom.span, f"'{atom.type}' is a defined event, and ")


def _no_tower(correlation: Correlation, span: Span | None, why: str = "") -> QueryError:
    return QueryError(
        f"{why}JOIN ARCHIVE together with definitions is not supported yet",
        hint="match the raw events, or write the matches of the definitions to a table first",
        span=span,
        text=correlation.text,
    )


def _statements(text: str) -> Iterator[Span]:
    """Where the statements stand, without the semicolons between them."""
    begin = 0
    ends = [m.start() for m in _PIECES.finditer(text) if m["end"]]
    for end in (*ends, len(text)):
        first = _BLANK.match(text, begin, end)
        assert first is not None
        if first.end() < end:
            yield Span(first.end(), begin + len(text[begin:end].rstrip()))
        begin = end + 1


class _Reader:
    """Reads a text and the files it imports, each once."""

    def __init__(
        self, folder: Path, operators: tuple[Operator, ...], parameters: Parameters
    ) -> None:
        self.folder = folder
        self.operators = operators
        self.parameters = parameters
        self.read: set[Path] = set()

    def tower(self, text: str, places: list[Span], outside: Mapping[str, Definition]) -> Tower:
        found, emit = self.definitions(text, places, file=None, folder=self.folder)
        if not found or found[-1].file is not None:
            raise QueryError(
                "there are definitions, but no query that uses them",
                hint="end the text with a pattern, as in SEQ(Incident a, Repair b) WITHIN 1 hour",
                span=places[-1],
                text=text,
            )
        *definitions, last = found
        for definition in definitions:
            if not definition.name:
                raise QueryError(
                    "only the last query may have no name",
                    hint="write EVENT Name AS ... to define an event",
                    span=definition.span,
                    text=definition.query.text,
                )
        own = {definition.name for definition in found}
        others = [d for name, d in outside.items() if name not in own]
        return tower([*others, *definitions], last.query, emit)

    def definitions(
        self, text: str, places: list[Span], *, file: str | None, folder: Path
    ) -> tuple[list[Definition], list[str]]:
        found: list[Definition] = []
        emit: list[str] = []
        for place in places:
            word = _BEGINS.match(text, place.start)
            if word is None:
                query = _alone(text, place, self.operators, self.parameters)
                found.append(Definition(query.name or "", query, file, _named(text, place)))
            elif word["word"].upper() == "IMPORT":
                found += self._imported(text, place, folder)
            else:
                emit += _emitted(text, place)
        return found, emit

    def _imported(self, text: str, place: Span, folder: Path) -> list[Definition]:
        stated = _IMPORT.match(place.over(text))
        if stated is None:
            raise QueryError(
                "IMPORT is followed by the name of a file in quotes",
                hint='as in IMPORT "incidents.ensue";',
                span=place,
                text=text,
            )
        path = (folder / stated["file"][1:-1]).resolve()
        if path in self.read:
            return []
        self.read.add(path)
        try:
            inside = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            near = nearest(path) if isinstance(error, FileNotFoundError) else None
            raise QueryError(
                f"{stated['file']} cannot be imported: {reason}",
                hint=f"it was looked for in {path.parent}"
                + (f"; did you mean '{near}'?" if near else ""),
                span=place,
                text=text,
            ) from None
        name = stated["file"][1:-1]
        try:
            found, emit = self.definitions(
                inside, list(_statements(inside)), file=name, folder=path.parent
            )
        except QueryError as error:
            raise QueryError(
                f"in {name}: {error.problem}", hint=error.hint, span=error.span, text=error.text
            ) from None
        unnamed = next((d for d in found if not d.name), None)
        if emit or unnamed is not None:
            raise QueryError(
                f"{name} contains more than definitions",
                hint="an imported file may only contain EVENT Name AS ...;",
                span=place,
                text=text,
            )
        return found


def _alone(
    text: str, place: Span, operators: tuple[Operator, ...], parameters: Parameters
) -> Query:
    """One statement, parsed where it stands in the text."""
    before = re.sub(r"[^\n]", " ", text[: place.start])
    try:
        match statement(before + place.over(text), operators, parameters):
            case Query() as query:
                return replace(query, text=text)
            case Correlation() as correlation:
                raise _no_tower(correlation, correlation.joins[0].span)
    except QueryError as error:
        error.text = text
        if text[place.end : place.end + 1] == ";" and "is not closed" in str(error.hint):
            error.hint = f"{error.hint}: ';' ends a query, and parts are separated by commas"
        raise


def _named(text: str, place: Span) -> Span:
    """Where a definition says its name; the whole statement, if it does not."""
    stated = _NAME.match(text, place.start, place.end)
    return place if stated is None else Span(*stated.span("name"))


def _emitted(text: str, place: Span) -> list[str]:
    stated = _EMIT.match(place.over(text))
    if stated is None:
        raise QueryError(
            "EMIT is followed by names of defined events",
            hint="as in EMIT Incident, Outage;",
            span=place,
            text=text,
        )
    return [name.strip() for name in stated["names"].split(",")]


def show_text(query: Query | Tower | Correlation | Subscription | Recognition) -> str:
    """The one spelling of a query as a pattern."""
    if isinstance(query, Subscription):
        return opsl_patterns.show(query)
    if isinstance(query, Recognition):
        raise QueryError(
            "MATCH_RECOGNIZE cannot be converted to a pattern", hint='show it with language="sql"'
        )
    return show(query)


LANGUAGE = Language("patterns", lambda _: True, parse_text, show_text)
