"""Explains syntax errors of the pattern language and suggests fixes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import cast

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ensue.errors import QueryError, Span
from ensue.ir.pattern import GROUPS
from ensue.ir.values import suggest_unit
from ensue.parser.expressions import POSITIONS
from ensue.parser.parameters import NO_PARAMETERS, Parameters, describe_constant

TerminalGroups = tuple[tuple[str, set[str], set[str]], ...]  # common name, signs, members

_WORD_HINTS = {
    "PARTITION": "partition by a field in brackets, among the conditions: WHERE [id]",
    "SELECT": "a query is a pattern, SEQ(A a, B b) WHERE ... RETURN a.price; SQL with MATCH_RECOGNIZE is for ensue.sql",
    "DEFINE": "this looks like MATCH_RECOGNIZE (PATTERN ... DEFINE ...), which stands in SQL, for "
    "ensue.sql; here it is SEQ(A a, B+ b[]) WHERE b[i].price > 3",
    "EVERY": "leave out EVERY: all matches are found anyway",
    "TOP": "write LIMIT 10 at the end",
    "SKIP": "write AFTER MATCH SKIP PAST LAST EVENT, or SKIP TO NEXT EVENT",
    "FOLLOWED": "write A a -> B b, or SEQ(A a, B b), for one event after the other",
    "FOLLOWEDBY": "write A a -> B b, or SEQ(A a, B b), for one event after the other",
}
_EVENTS = "a query names no table: pass the events in the call, ensue.match(events, query)"
_FUNCTIONS = {
    "CONTAINS": "contains(a.name, 'x')",
    "STARTSWITH": "starts_with(a.name, 'x')",
    "STARTS": "starts_with(a.name, 'x')",
    "ENDSWITH": "ends_with(a.name, 'x')",
    "ENDS": "ends_with(a.name, 'x')",
    "MATCHES": "regexp_matches(a.name, 'x+')",
    "SIMILAR": "regexp_matches(a.name, 'x+')",
    "GLOB": "a.name LIKE 'x%'",
    "DIV": "div(a.x, 2)",
    "MOD": "a.x % 2",
    "XOR": "(a and not b) or (b and not a)",
}
_LEADING_CLAUSES = ("WHERE", "WITHIN", "AFTER", "RETURN", "HAVING", "LIMIT", "CHOOSE")
_CONDITIONS = "conditions follow WHERE, after the pattern: SEQ(A a, B b) WHERE b.price > 3"
_TAIL = 200  # characters; patterns that end in $ take the square of the length
_COMPARES = re.compile(r"[=<>!≤≥≠]")
_OPEN = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|[()]""")


def get_tail(text: str) -> str:
    """Returns the end of a text, which is enough for the hints."""
    return text[-_TAIL:]


def get_last_word(text: str) -> str:
    """Returns the last word of a text in upper case; of a very long one its end."""
    last = re.search(r"\w*$", get_tail(text))
    return last[0].upper() if last else ""


@dataclass(frozen=True, slots=True)
class SyntaxErrorContext:
    """The position where the parser stopped: at `found`, between `before` and `rest`."""

    before: str
    found: str
    rest: str
    expected: set[str]

    @property
    def word(self) -> str:
        """The previous word, in upper case."""
        return get_last_word(self.before)

    @property
    def first(self) -> str:
        """The first word of the text, in upper case."""
        begins = re.match(r"(?:\s|--[^\n]*\n|/\*[\s\S]*?\*/)*(\w*)", self.before + " " + self.rest)
        return begins[1].upper() if begins else ""

    @property
    def in_brackets(self) -> bool:
        depth = 0
        for token in _OPEN.finditer(self.before):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
        return depth > 0

    @property
    def in_pattern(self) -> bool:
        """Whether the parser is inside a pattern, not in conditions."""
        return bool(self.expected & {"_ARROW", "_SEQ", "_THEN"})


def _statement_hints(place: SyntaxErrorContext) -> Iterator[str]:
    word = place.found.upper()
    if place.first == "SELECT":
        yield _WORD_HINTS["SELECT"]
    if place.first == "FROM" or (word == "FROM" and place.in_pattern and not place.in_brackets):
        yield _EVENTS
    conditions = re.search(r"(?i)\b(where|return|having|on)\b", place.before)
    if word == "," and not place.in_brackets and not conditions:
        yield "write SEQ(A a, B b) for one event after the other"
    if place.first in _LEADING_CLAUSES and place.in_pattern and not place.in_brackets:
        yield f"a query begins with its pattern: SEQ(A a, B b) {place.first} ..."
    if place.first == "EVERY" or word in _WORD_HINTS:
        yield _WORD_HINTS[word if word in _WORD_HINTS else "EVERY"]


def _pattern_hints(place: SyntaxErrorContext) -> Iterator[str]:
    found, before = place.found, place.before
    if "_SEQ" in place.expected and found[:1].isdigit():
        type_name = re.match(r"\w+", place.rest)
        assert type_name is not None
        yield f'a type that does not begin with a letter is quoted: "{type_name[0]}" a'
    if not place.in_pattern and place.word in ("SEQ", "AND", "OR") and place.expected == {"LPAR"}:
        if found == "[":
            yield f"parts stand in parentheses: {place.word}(A a, B b)"
        else:
            keyword = before[-len(place.word) :]
            yield f'a type called like a keyword is quoted: "{keyword}" {found}'
    is_where = found.upper() == "WHERE" or (place.word == "WHERE" and place.in_pattern)
    if place.in_brackets and is_where and ")" in place.rest:
        yield _CONDITIONS
    if not place.in_pattern:
        return
    if found in ("+", "*", "{", "?") and place.in_brackets:
        yield "a quantifier follows the type: B+ b[]"
    if place.word == "AS":
        yield "a variable follows its type, without AS: A a"
    if found == ":":
        yield "the type comes first, then the variable: A a"
    if found == "." or _COMPARES.match(found) or re.match(r"\w+\s*\.\s*\w+\s*[=<>!]", place.rest):
        yield _CONDITIONS
    if found.upper() in ("AND", "OR") and not place.in_brackets:
        yield ("AND(A a, B b) is both in any order, OR(A a, B b) one of them, and SEQ(A a, B b) one after the other")
    if "_SEQ" in place.expected and found == "," and before.endswith(","):
        yield "there is a comma too many"
    if "_SEQ" in place.expected and found == ")" and before.endswith("("):
        yield "name events, with a variable each: SEQ(A a, B b)"
    if place.rest.startswith("-->"):
        yield "write -> for one event after the other; a comment is -- and a blank"


def _condition_hints(place: SyntaxErrorContext) -> Iterator[str]:
    found, word = place.found, place.word
    if place.in_pattern:
        return
    if found.upper() in _FUNCTIONS:
        yield f"write {_FUNCTIONS[found.upper()]}"
    if word == "IS":
        yield "compare with =; IS asks for NULL, TRUE, FALSE or DISTINCT FROM"
    if re.search(r"(?i)\bbetween\s+\S+$", get_tail(place.before)) and found.upper() == "TO":
        yield "write BETWEEN 1 AND 3"
    if word in ("LIKE", "ILIKE"):
        yield "the pattern is a string in single quotes: LIKE 'x%'"
    if word == "IN" and place.expected == {"LPAR"}:
        yield "the values stand in parentheses: IN ('x', 'y')"
    if word == "IF":
        yield "if is a function: if(a.price > 3, 1, 0); or CASE WHEN a.price > 3 THEN 1 END"
    if place.rest.startswith("->"):
        yield "a field is written with a dot: a.price"
    if _COMPARES.match(found) and re.search(r"\|\|[^|]*$", get_tail(place.before)):
        yield "|| joins strings; between conditions write 'or'"
    if found == "," and re.match(r",\d{3}\b", place.rest):
        yield "a number has no commas: 1000"
    if found == "," and "_AND" not in place.expected and "COMMA" not in place.expected:
        yield "join conditions with 'and'"
    if found.isidentifier() and "_AS" in place.expected:
        yield f"a column is named with AS: AS {found}"
    if found in (".", "[") and word in ("NOT", "TRUE", "FALSE", "NULL"):
        yield f'a variable called like a keyword is quoted: "{word.lower()}".price'


def _sign_hints(place: SyntaxErrorContext) -> Iterator[str]:
    found, rest = place.found, place.rest
    named = re.match(r"[$@](\w+)|\$?\{(\w+)\}|\?", rest)
    if named and "NUMBER" in place.expected:
        name = named[1] or named[2] or "low"
        yield f'a parameter is written :{name}, and its value given by params={{"{name}": ...}}'
    if rest.startswith("::"):
        yield "write CAST(a.price AS int)"
    if found == "~":
        yield "regexp_matches(a.name, 'x+') asks for a regular expression"
    if found == "^" or (found == "*" and place.before.endswith("*")):
        yield "write power(a.x, 2)"
    if found == "#" or rest.startswith("//"):
        yield "a comment begins with --"
    if place.word == "WITHIN" and found[:1] == "'":
        yield f"write it without quotes: WITHIN {found[1:-1]}"


def _end_hints(place: SyntaxErrorContext) -> Iterator[str]:
    if place.found:
        return
    if place.word in ("AND", "OR", "WHERE"):
        yield f"a condition is missing after {place.word}"
    if place.word == "RETURN":
        yield "say what: RETURN a.price, b.price AS later"
    if place.before.endswith("->") or place.word == "THEN":
        yield "an event is missing at the end: A a -> B b"


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
# Terminals with a common name, which is used if the first set is expected.
_GROUPS: TerminalGroups = (
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
_LITERALS = {"'": "string", '"': "quoted name", "`": "quoted name"}
_CURLY = "\u2018\u2019\u201c\u201d\u00b4"
_SIGN_HINTS = {
    "&&": "write 'and'",
    "&": "write 'and'",
    "|": "write 'or'; join strings with ||",
    "{": "after WHERE, braces follow a strategy: skip_till_next_match(a[], b) { ... }",
}


def explain_syntax_error(error: UnexpectedInput, text: str, parameters: Parameters = NO_PARAMETERS) -> QueryError:
    """Converts an error of the parser to one that names the problem and a fix."""
    if _COMMENTS_AND_BLANKS.fullmatch(text):
        return QueryError("the query is empty", hint="write a pattern, as in SEQ(A a, B b) WITHIN 5 minutes")
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    expected: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    span = _error_span(error, text)
    if literal := _unclosed_literal(error, text, span.start):
        return QueryError(f"this {literal} has no end", hint="close it", span=span, text=text)
    found = span.over(text)
    if found[:1] == ":" and found[1:] in parameters.values:
        return _parameter_error(found[1:], expected, span, text, parameters)
    terminals = name_terminals(expected, _GROUPS, _WORDS)
    return QueryError(
        f"expected {terminals}, found {repr(found) if found else 'the end'}",
        hint=next(_hints(text, span.start, found, expected), None),
        span=span,
        text=text,
    )


def find_error_start(error: UnexpectedInput, text: str) -> int:
    """Returns the position where the parser stopped; the end of the text without blanks."""
    if isinstance(error, UnexpectedCharacters):
        return cast(int, error.pos_in_stream)
    assert isinstance(error, UnexpectedToken)
    at_end = error.token.type == "$END" or error.token.start_pos is None
    return len(text.rstrip()) if at_end else cast(int, error.token.start_pos)


def _error_span(error: UnexpectedInput, text: str) -> Span:
    start = find_error_start(error, text)
    if isinstance(error, UnexpectedToken):
        return Span(start, max(start, error.token.end_pos or 0) if error.token else start)
    run = _UNKNOWN.match(text, start)
    assert run is not None
    return Span(start, run.end())


def _parameter_error(name: str, expected: set[str], span: Span, text: str, parameters: Parameters) -> QueryError:
    """Reports a parameter whose value is not allowed here."""
    value = parameters.constants(name, span)
    described = "a list" if isinstance(value, list) else describe_constant(value)
    hint = None
    if "UNIT" not in expected and {"_INTERVAL", "NUMBER"} <= expected and isinstance(value, str):
        hint = f'pass a length of time: params={{"{name}": timedelta(minutes=5)}}'
    elif "_SEQ" in expected:
        hint = "a parameter is a value: types of events are written in the pattern"
    return QueryError(
        f"expected {name_terminals(expected, _GROUPS, _WORDS)}, and :{name} is {described}",
        hint=hint,
        span=span,
        text=text,
    )


def _unclosed_literal(error: UnexpectedInput, text: str, start: int) -> str | None:
    """Returns the kind of literal opened here, or one character earlier, and never closed."""
    if "/*" in text[max(start - 1, 0) : start + 2]:
        return "comment"
    # A closed string or name would have been a token.
    return _LITERALS.get(text[start]) if isinstance(error, UnexpectedCharacters) else None


def name_terminals(expected: set[str], groups: TerminalGroups, names: Mapping[str, str]) -> str:
    """Names the expected terminals, several of them by a common name."""
    left = set(expected)
    words: dict[str, None] = {}
    for word, signs, members in groups:
        if signs <= left:
            words[word] = None
            left -= members
    if "NUMBER" in left:
        left.discard("MINUS")
    for terminal in sorted(left):
        words[names.get(terminal, terminal.lstrip("_"))] = None
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def _hints(text: str, start: int, found: str, expected: set[str]) -> Iterator[str]:
    """Yields possible causes of an error, the most likely first."""
    before = text[:start].rstrip()
    word = get_last_word(before)
    if found.upper() == "CHOOSE" and "_CHOOSE" in expected:
        yield "say which: CHOOSE LATEST, CHOOSE ONCE or CHOOSE ALL"
    if found.upper() == "OFFSET" and re.search(r"\bLIMIT\s+\d+$", get_tail(before), re.IGNORECASE):
        yield "there is no OFFSET: take more rows, and slice the result"
    if found.upper() == "FETCH":
        yield "say how many: FETCH FIRST 10 ROWS ONLY"
    context = SyntaxErrorContext(before, found, text[start:], expected)
    for hints in (_statement_hints, _pattern_hints, _condition_hints, _sign_hints, _end_hints):
        yield from hints(context)
    yield from _misspelled_hints(found, expected)
    yield from _unbalanced_hints(text, start, found, expected)
    yield from _archive_hints(before, found.upper(), expected)
    if word == "WITHIN":
        yield "say how long: WITHIN 5 minutes, or WITHIN 20 EVENTS"
    if found.upper() == "LIMIT":
        yield "say how many: LIMIT 10"
    if found == "(":
        yield from _misspelled_before_hints(before, word)
    if found in _SIGN_HINTS:
        yield _SIGN_HINTS[found]
    if text[start - 1 : start + 1] == "=>":
        yield "write >= for 'at least'"
    if found and found in _CURLY:
        yield "strings stand in straight single quotes: 'IBM'"
    if found == "*" and before.endswith("("):
        yield "count the events of a variable: count(a)"
    if before.endswith(",") and found in _OPENING:
        yield "something is missing after the comma, or the comma is superfluous"
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
    yield from _unjoined_hints(found, expected)


def _archive_hints(before: str, found: str, expected: set[str]) -> Iterator[str]:
    """Yields hints for JOIN ARCHIVE."""
    joins = list(re.finditer(r"(?i)\bjoin\s+archive\b", before))
    join = before[joins[-1].start() :] if joins else ""
    if found in _JOINS and "JOIN_ARCHIVE" in expected:
        yield ("a join is written JOIN ARCHIVE name pattern ..., LEFT JOIN ARCHIVE ... or ANTI JOIN ARCHIVE ...")
    if found == "RANGE" and not join:
        yield "RANGE belongs to JOIN ARCHIVE name pattern: it says where its matches lie"
    if not join:
        return
    if found == "RANGE" or "_BEFORE" in expected:
        yield "say how far back: RANGE 30 days BEFORE START, or BEFORE END"
    if "ANCHOR" in expected:
        yield "BEFORE START is before the live match begins, BEFORE END before it ends"
    if "_AND" in expected and re.search(r"(?i)\brange\s+between\s+\S+\s*\w*$", get_tail(join)):
        yield "as in RANGE BETWEEN 30 days AND 1 day BEFORE START"
    if found in ("LAST", "ON") and not re.search(r"(?i)\brange\b", join):
        yield f"a RANGE comes before {found}, as in RANGE 30 days BEFORE START"
    if found in ("LAST", "ON"):
        yield "LAST follows RANGE, and ON comes last: RANGE 30 days BEFORE START LAST 1 ON [tag]"
    if re.fullmatch(r"\w+\s+\w+\s+\S+", join):
        yield "a pattern follows the archive's name: JOIN ARCHIVE trades SEQ(Trade a, Trade b)"


def _misspelled_hints(found: str, expected: set[str]) -> Iterator[str]:
    if not found.isidentifier():
        return
    keywords = [t.lstrip("_") for t in sorted(expected) if t not in _WORDS]
    near = get_close_matches(found.upper(), keywords, n=1, cutoff=0.7)
    if near and near[0] != found.upper():
        yield f"did you mean {near[0]}?"
    if "UNIT" in expected and (len(found) > 2 or "EVENTS" in expected):
        hint = suggest_unit(found)
        if "EVENTS" in expected or not hint.startswith("units"):
            yield hint


def _misspelled_before_hints(before: str, word: str) -> Iterator[str]:
    """Yields hints for an opening bracket after an unknown word."""
    first = re.search(r"\w+", before)
    for typed, keywords in ((word, GROUPS), (first[0].upper() if first else "", ("PATTERN", "EVENT"))):
        near = get_close_matches(typed, keywords, n=1, cutoff=0.6)
        if near and typed not in keywords:
            yield f"did you mean {near[0]}?"
    if word in GROUPS and first and first[0].upper() == "EVENT":
        yield f"name the new event with AS: EVENT Name AS {word}(...)"


def _unbalanced_hints(text: str, start: int, found: str, expected: set[str]) -> Iterator[str]:
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
    clause = {found.upper(), get_last_word(text[:start].rstrip())} & set(_CLAUSES)
    if not found or closed_wrongly or quantifier or clause:
        yield f"the '{bracket}' of line {line}, column {column} is not closed"


def _unjoined_hints(found: str, expected: set[str]) -> Iterator[str]:
    """Yields hints for two items with nothing between them."""
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
