"""Syntax errors in plain words: what stands there, what could, and the slip behind it."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import cast

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ensue.algebra.durations import unit_hint
from ensue.algebra.pattern import GROUPS
from ensue.errors import QueryError
from ensue.languages import slips
from ensue.languages.expressions import POSITIONS
from ensue.languages.parameters import NO_PARAMETERS, Parameters, told
from ensue.span import Span

_CLAUSES = ("WHERE", "WITHIN", "AFTER", "RETURN", "HAVING", "GROUP", "ORDER", "LIMIT", "CHOOSE")
_JOINS = ("JOIN", "LEFT", "ANTI", "INNER", "RIGHT", "FULL", "OUTER", "SEMI", "CROSS")
_WORDS = {
    "LPAR": "'('", "RPAR": "')'", "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'",
    "RBRACE": "'}'", "VBAR": "'|'", "COMMA": "','", "DOT": "'.'", "QMARK": "'?'", "PLUS": "'+'",
    "MINUS": "'-'", "STAR": "'*'", "_ARROW": "'->'", "_UP_TO": "'..'", "NUMBER": "a number",
    "STRING": "a string in single quotes", "NAME": "a name", "QUOTED": "a name",
    "UNIT": "a unit of time", "PAUSE_UNIT": "a unit of time", "$END": "the end",
    "SEMICOLON": "the end",
    "_INTERVAL": "INTERVAL '...'", "EVENTS": "EVENTS", "ANCHOR": "START or END",
    "JOIN_ARCHIVE": "JOIN ARCHIVE", "_UNTIL": "TO", "_DISTINCT_FROM": "DISTINCT FROM",
    "HOW": "STRICT, PARTITION, NEXT or ANY", "_THEN": "'->'", "THEN_AGAIN": "'->'",
    "_STOP": "'->'", "_REACH": "'->'", "_PAUSE": "WITHIN", "_OF": "OF", "_ORDER_OF": "ORDER OF",
    "_GROUP_BY": "GROUP BY", "_ORDER_BY": "ORDER BY", "_FETCH": "FETCH FIRST",
    "ALL_EVENTS": "ALL EVENTS", "DIRECTION": "ASC or DESC", "NULLS": "NULLS FIRST or NULLS LAST",
    "_ROWS": "ROWS ONLY", "_AT_TIME_ZONE": "AT TIME ZONE",
}  # fmt: skip
# Terminals that say one thing together; the first ones tell that all of them are meant.
_GROUPS: tuple[tuple[str, set[str], set[str]], ...] = (
    (
        f"an event type or {', '.join(f'{word}(...)' for word in GROUPS)}",
        {"_SEQ"},
        {*(f"_{word}" for word in GROUPS), "_NOT", "LPAR", "NAME", "QUOTED", "_PATTERN", "_EVENT"},
    ),
    (
        "a value",
        {"NUMBER", "STRING", "NAME"},
        {"NUMBER", "STRING", "NAME", "QUOTED", "PERCENT", "LPAR", "MINUS", "_NOT", "_TRUE",
         "_FALSE", "_NULL", "TIMESTAMP", "DATE", "WKT", "_INTERVAL", "STRATEGY", "EXISTS",
         "_CASE", "_CAST", "_EXTRACT", "_DISTINCT"},
    ),
    (
        "an operator",
        {"PLUS", "CONCATENATE"},
        {"PLUS", "MINUS", "STAR", "DIVIDE", "CONCATENATE", "COMPARISON", "NOT", "_IS", "_IN",
         "_BETWEEN", "_LIKE", "_ILIKE", "_RLIKE", "_AT_TIME_ZONE"},
    ),
    ("a quantifier", {"PLUS", "STAR", "QMARK"}, {"PLUS", "STAR", "QMARK", "LBRACE"}),
    (
        "the next clause",
        {"_HAVING", "_RETURN"},
        {"_USING", "_WHERE", "_WITHIN", "_AFTER", "_RANGE", "JOIN_ARCHIVE", "_RETURN", "_HAVING",
         "_GROUP_BY", "_ORDER_BY", "_LIMIT", "_FETCH", "_CHOOSE", "SEMICOLON", "$END"},
    ),
)  # fmt: skip
_SCAN = re.compile(
    r"""'[^']*' | "[^"]*" | `[^`]*` | --[^\n]*
       | /\*(?:[\s\S]*?\*/|[\s\S]*) | (?P<bracket>[()\[\]{}])""",
    re.VERBOSE,
)
_UNKNOWN = re.compile(r"\w+|&&?|\|\|?|[\s\S]")
_COMMENTS_AND_BLANKS = re.compile(r"(?:--[^\n]*|/\*[\s\S]*?\*/|[\s;])*+")
_OPENING = {")": "(", "]": "[", "}": "{"}
_ENDLESS = {"'": "string", '"': "quoted name", "`": "quoted name"}
_CURLY = "\u2018\u2019\u201c\u201d\u00b4"
_SLIPS = {
    "&&": "write 'and'",
    "&": "write 'and'",
    "|": "write 'or'; join strings with ||",
    "{": "after WHERE, braces follow a strategy: skip_till_next_match(a[], b) { ... }",
}


def explain(
    error: UnexpectedInput, text: str, parameters: Parameters = NO_PARAMETERS
) -> QueryError:
    """The error that the parser met, as one that a reader understands."""
    if _COMMENTS_AND_BLANKS.fullmatch(text):
        return QueryError(
            "the query is empty", hint="write a pattern, as in SEQ(A a, B b) WITHIN 5 minutes"
        )
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    expected: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    span = _place(error, text)
    if endless := _endless(error, text, span.start):
        return QueryError(f"this {endless} has no end", hint="close it", span=span, text=text)
    found = span.over(text)
    if found[:1] == ":" and found[1:] in parameters.values:
        return _misfit(found[1:], expected, span, text, parameters)
    return QueryError(
        f"expected {_in_words(expected)}, found {repr(found) if found else 'the end'}",
        hint=next(_hints(text, span.start, found, expected), None),
        span=span,
        text=text,
    )


def _place(error: UnexpectedToken | UnexpectedCharacters, text: str) -> Span:
    if isinstance(error, UnexpectedCharacters):
        start = cast(int, error.pos_in_stream)
        run = _UNKNOWN.match(text, start)
        assert run is not None
        return Span(start, run.end())
    if error.token.type == "$END" or error.token.start_pos is None:
        end = len(text.rstrip())
        return Span(end, end)
    return Span(error.token.start_pos, error.token.end_pos or error.token.start_pos)


def _misfit(
    name: str, expected: set[str], span: Span, text: str, parameters: Parameters
) -> QueryError:
    """A parameter whose value does not belong here."""
    value = parameters.constants(name, span)
    is_what = "a list" if isinstance(value, list) else told(value)
    hint = None
    if "UNIT" not in expected and {"_INTERVAL", "NUMBER"} <= expected and isinstance(value, str):
        hint = f'pass a length of time: params={{"{name}": timedelta(minutes=5)}}'
    elif "_SEQ" in expected:
        hint = "a parameter is a value: types of events are written in the pattern"
    return QueryError(
        f"expected {_in_words(expected)}, and :{name} is {is_what}",
        hint=hint,
        span=span,
        text=text,
    )


def _endless(error: UnexpectedInput, text: str, start: int) -> str | None:
    """What was opened here, or one character earlier, and never closed."""
    if "/*" in text[max(start - 1, 0) : start + 2]:
        return "comment"
    # A string or name that is closed would have been a token.
    return _ENDLESS.get(text[start]) if isinstance(error, UnexpectedCharacters) else None


def _in_words(expected: set[str]) -> str:
    left = set(expected)
    words: dict[str, None] = {}
    for word, signs, members in _GROUPS:
        if signs <= left:
            words[word] = None
            left -= members
    if "NUMBER" in left:
        left.discard("MINUS")
    for terminal in sorted(left):
        words[_WORDS.get(terminal, terminal.lstrip("_"))] = None
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


# --------------------------------------------------------------------------------------- slips


def _of_whole_results(before: str, found: str) -> Iterator[str]:
    """Slips of those who know the clauses of SQL."""
    if re.search(r"\bLIMIT\s+\d+$", slips.tail_of(before), re.IGNORECASE) and found == "OFFSET":
        yield "there is no OFFSET: take more rows, and slice the result"
    if found == "FETCH":
        yield "say how many: FETCH FIRST 10 ROWS ONLY"


def _hints(text: str, start: int, found: str, expected: set[str]) -> Iterator[str]:
    """What may be behind the error, the surest first."""
    before = text[:start].rstrip()
    word = slips.last_word(before)
    if found.upper() == "CHOOSE" and "_CHOOSE" in expected:
        yield "say which: CHOOSE LATEST, CHOOSE ONCE or CHOOSE ALL"
    yield from _of_whole_results(before, found.upper())
    yield from slips.hints(slips.Place(before, found, text[start:], expected))
    yield from _misspelt(found, expected)
    yield from _unbalanced(text, start, found, expected)
    yield from _archive_hints(before, found.upper(), expected)
    if word == "WITHIN":
        yield "say how long: WITHIN 5 minutes, or WITHIN 20 EVENTS"
    if found.upper() == "LIMIT":
        yield "say how many: LIMIT 10"
    if found == "(":
        yield from _misspelt_before(before, word)
    if found in _SLIPS:
        yield _SLIPS[found]
    if text[start - 1 : start + 1] == "=>":
        yield "write >= for 'at least'"
    if found and found in _CURLY:
        yield "strings stand in straight single quotes: 'IBM'"
    if found == "*" and before.endswith("("):
        yield "count the events of a variable: count(a)"
    if before.endswith(",") and found in _OPENING:
        yield "something is missing behind the comma, or the comma is too much"
    if expected == {"RSQB"}:
        yield "in a pattern the brackets stay empty: A+ a[]"
    if "RSQB" in expected and "COMMA" not in expected:
        yield f"positions are {POSITIONS}"
    if found and expected == {"$END"}:
        yield "the query ends at ';': one query at a time"
    if found == "USING" and "_USING" in expected:
        yield "say USING STRICT, USING PARTITION, USING NEXT or USING ANY"
    if found == "THEN" and expected & {"_THEN", "_WHERE"}:
        yield "a part follows THEN, as in A a THEN B b; a type called like a keyword is quoted"
    if {"_FIRST", "_NEXT"} <= expected:
        yield "say TO FIRST a, TO LAST a, or TO NEXT EVENT"
    yield from _unjoined(found, expected)


def _archive_hints(before: str, found: str, expected: set[str]) -> Iterator[str]:
    """What may be wrong about a JOIN ARCHIVE."""
    joins = list(re.finditer(r"(?i)\bjoin\s+archive\b", before))
    begun = before[joins[-1].start() :] if joins else ""
    if found in _JOINS and "JOIN_ARCHIVE" in expected:
        yield (
            "a join is written JOIN ARCHIVE name pattern ..., LEFT JOIN ARCHIVE ... "
            "or ANTI JOIN ARCHIVE ..."
        )
    if found == "RANGE" and not begun:
        yield "RANGE belongs to JOIN ARCHIVE name pattern: it says where its matches lie"
    if not begun:
        return
    if found == "RANGE" or "_BEFORE" in expected:
        yield "say how far back: RANGE 30 days BEFORE START, or BEFORE END"
    if "ANCHOR" in expected:
        yield "BEFORE START is before the live match begins, BEFORE END before it ends"
    if "_AND" in expected and re.search(
        r"(?i)\brange\s+between\s+\S+\s*\w*$", slips.tail_of(begun)
    ):
        yield "as in RANGE BETWEEN 30 days AND 1 day BEFORE START"
    if found in ("LAST", "ON") and not re.search(r"(?i)\brange\b", begun):
        yield f"a RANGE comes before {found}, as in RANGE 30 days BEFORE START"
    if found in ("LAST", "ON"):
        yield "LAST follows RANGE, and ON comes last: RANGE 30 days BEFORE START LAST 1 ON [tag]"
    if re.fullmatch(r"\w+\s+\w+\s+\S+", begun):
        yield "a pattern follows the archive's name: JOIN ARCHIVE trades SEQ(Trade a, Trade b)"


def _misspelt(found: str, expected: set[str]) -> Iterator[str]:
    if not found.isidentifier():
        return
    keywords = [t.lstrip("_") for t in sorted(expected) if t not in _WORDS]
    near = get_close_matches(found.upper(), keywords, n=1, cutoff=0.7)
    if near and near[0] != found.upper():
        yield f"did you mean {near[0]}?"
    if "UNIT" in expected and (len(found) > 2 or "EVENTS" in expected):
        hint = unit_hint(found)
        if "EVENTS" in expected or not hint.startswith("units"):
            yield hint


def _misspelt_before(before: str, word: str) -> Iterator[str]:
    """An opening bracket behind a word that is no operator."""
    first = re.search(r"\w+", before)
    for typed, keywords in (
        (word, GROUPS),
        (first[0].upper() if first else "", ("PATTERN", "EVENT")),
    ):
        near = get_close_matches(typed, keywords, n=1, cutoff=0.6)
        if near and typed not in keywords:
            yield f"did you mean {near[0]}?"
    if word in GROUPS and first and first[0].upper() == "EVENT":
        yield f"name the new event with AS: EVENT Name AS {word}(...)"


def _unbalanced(text: str, start: int, found: str, expected: set[str]) -> Iterator[str]:
    open_at: list[int] = []
    for token in _SCAN.finditer(text, 0, start):
        bracket = token["bracket"]
        if bracket in _OPENING:
            del open_at[-1:]
        elif bracket:
            open_at.append(token.start())
    if not open_at:
        if found in _OPENING:
            yield f"this '{found}' has no matching opening bracket"
        return
    bracket = text[open_at[-1]]
    line = text.count("\n", 0, open_at[-1]) + 1
    column = open_at[-1] - text.rfind("\n", 0, open_at[-1])
    closed_wrongly = _OPENING.get(found, bracket) != bracket
    quantifier = bracket == "{" and {"COMMA", "RBRACE"} <= expected
    clause = {found.upper(), slips.last_word(text[:start].rstrip())} & set(_CLAUSES)
    if not found or closed_wrongly or quantifier or clause:
        yield f"the '{bracket}' of line {line}, column {column} is not closed"


def _unjoined(found: str, expected: set[str]) -> Iterator[str]:
    """Two things side by side with nothing between them."""
    begins = found.isidentifier() or found[:1].isdigit() or found[:1] in ("'", '"', "`", "!", "[")
    if begins and "COMMA" in expected:
        yield f"is a comma missing before {found}?"
    if begins and "_ARROW" in expected:
        yield "write SEQ(A a, B b), or A a -> B b, for one event after the other"
    if begins and "_AND" in expected:
        yield "join conditions with 'and' or 'or'"
    if re.match(r"[=<>!≤≥≠]", found) and "_AND" in expected:
        yield "join two comparisons with 'and': 1 < a.x and a.x < 5, or use BETWEEN"
    if re.match(r"[=<>!.≤≥≠]", found) and "_WHERE" in expected:
        yield "conditions follow WHERE: SEQ(A a, B b) WHERE a.price > 3"
