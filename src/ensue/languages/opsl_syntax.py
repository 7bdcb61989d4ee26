"""Syntax errors of OPSL in plain words: what stands there, what could, and the slip behind it."""

import re
from collections.abc import Iterator
from typing import cast

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ensue.algebra.durations import unit_hint
from ensue.errors import QueryError
from ensue.span import Span

_WORDS = {
    "LPAR": "'('", "RPAR": "')'", "COMMA": "','", "DOT": "'.'", "COLON": "':'",
    "SEMICOLON": "';'", "_EQUALS": "'='", "_OR": "'||'", "_AND": "'&&'", "_WITH": "WITH",
    "NUMBER": "a number", "STRING": "a text in single quotes", "NAME": "a name",
    "QUOTED": "a name", "UNIT": "a unit of time", "OPERATOR": "an operator such as =",
    "_LIKE": "LIKE", "_IN": "IN", "TRUTH": "TRUE or FALSE", "TIMESTAMP": "TIMESTAMP '...'",
    "DATE": "DATE '...'", "VARIABLE": "a variable such as $x;", "$END": "the end",
}  # fmt: skip
# Terminals that say one thing together; the first ones tell that all of them are meant.
_GROUPS: tuple[tuple[str, set[str], set[str]], ...] = (
    (
        "an event, '(' or an operator",
        {"WHEN", "WHERE"},
        {"WHEN", "WHERE", "_BAR", "_DIST", "REGION", "VARIABLE", "NAME", "LPAR"},
    ),
    (
        "a value",
        {"NUMBER", "STRING", "TRUTH"},
        {"NUMBER", "STRING", "TRUTH", "TIMESTAMP", "DATE", "VARIABLE"},
    ),
)
_EXAMPLE = "=|(A; 5 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)"
_BLANKS = re.compile(r"--[^\n]*|/\*[\s\S]*?\*/|\s")
_PIECE = re.compile(r"\$?[^\W\d]\w*(?:-\w+)*|[0-9.]+|=\||\|=|&&?|\|\|?|[<>!]=|[\s\S]")
_UNENDED = re.compile(r"\$[^\W\d]\w*(?:-\w+)*(?!\s*;)")
_PARENTHESES = re.compile(r"'[^']*'|--[^\n]*|/\*[\s\S]*?\*/|(?P<sign>[()])")
_ENDLESS = {"'": "text", '"': "quoted name", "`": "quoted name"}
_TYPES = r"(ARITH|STRING|BOOL|TIME)"
_REGIONS = re.compile(r"(?i)(CIRCLE|(MULTI)?(POINT|LINESTRING|POLYGON))$")


def explain(error: UnexpectedInput, text: str) -> QueryError:
    """The error that the parser met, as one that a reader understands."""
    if not _BLANKS.sub("", text):
        return QueryError("the subscription is empty", hint=f"write one, as in {_EXAMPLE}")
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    expected: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    span = _place(error, text)
    found = span.over(text)
    if found in _ENDLESS or text.startswith("/*", span.start):
        what = _ENDLESS.get(found, "comment")
        return QueryError(f"this {what} has no end", hint="close it", span=span, text=text)
    if _UNENDED.match(text, span.start):
        return QueryError(
            f"the variable {found} does not end in ';'",
            hint=f"write {found};, and another ';' where a separator follows: ({found};; 5)",
            span=span,
            text=text,
        )
    return QueryError(
        f"expected {_in_words(expected)}, found {repr(found) if found else 'the end'}",
        hint=next(_hints(text, span, found, expected), None),
        span=span,
        text=text,
    )


def _place(error: UnexpectedToken | UnexpectedCharacters, text: str) -> Span:
    if isinstance(error, UnexpectedCharacters):
        start = cast(int, error.pos_in_stream)
    elif error.token.type == "$END" or error.token.start_pos is None:
        end = len(text.rstrip())
        return Span(end, end)
    else:
        start = error.token.start_pos
    piece = _PIECE.match(text, start)
    assert piece is not None
    return Span(start, piece.end())


def _in_words(expected: set[str]) -> str:
    left = set(expected)
    words: dict[str, None] = {}
    for word, signs, members in _GROUPS:
        if signs <= left:
            words[word] = None
            left -= members
    for terminal in sorted(left):
        words[_WORDS.get(terminal, terminal.lstrip("_"))] = None
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


# --------------------------------------------------------------------------------------- slips


def _hints(text: str, span: Span, found: str, expected: set[str]) -> Iterator[str]:
    """What may be behind the error, the surest first."""
    before, behind = text[: span.start].rstrip(), text[span.end :].lstrip()
    yield from _slips(before, found)
    if found == ":" and re.search(_TYPES + r"$", before, re.IGNORECASE):
        yield "predicates stand in parentheses: (ARITH:id = 17)"
    if found == "(" and _REGIONS.search(before):
        yield "close the parentheses of the region, or write it as POLYGON ((0 0, 9 0, 9 9, 0 0))"
    if "UNIT" in expected and re.fullmatch(r"[^\W\d]\w*", found):
        yield unit_hint(found)
    if "SEMICOLON" in expected:
        yield from _separators(text, before, found, expected)
    if "OPERATOR" in expected and "_LIKE" not in expected:
        yield "say how far: DIST(place; <; 300), DIST(place; =; 300) or DIST(place; >; 300)"
    if expected == {"NUMBER"} and re.match(r"\w", found):
        yield "write the number itself: names stand for events and regions"
    if found == "(" and re.search(r"\w$", before):
        yield "operators are !, =|, |=, |, @, IN, OVLP, SPL and DIST"
    if found == "," and ")" in behind:
        yield "write A && B for both, A || B for one of them"
    if "_AND" in expected and re.match(r"[\w$(!@|=]", found):
        yield "join two parts by && or ||, and definitions by ','"
    if before.endswith(",") or expected == {"_EQUALS"}:
        yield "a definition has the form $x; = ..., or Name = ..., and options follow WITH"
    yield from _unbalanced(text, span.start, found)
    if found.upper() in ("AND", "OR", "NOT"):
        yield "write &&, || and !(A; t)B"


def _slips(before: str, found: str) -> Iterator[str]:
    if found == "&":
        yield "write && for both"
    if found.upper() in ("AND", "OR") and before:
        yield "write && for both, || for one of them"
    if found and found in "\u2018\u2019\u201c\u201d\u00b4":
        yield "texts stand in straight single quotes: 'truck'"
    if found.lower() in ("nan", "inf", "infinity"):
        yield "it is no number that anything could be compared with"
    if found.upper() == "NULL":
        yield "NULL satisfies no predicate"


def _separators(text: str, before: str, found: str, expected: set[str]) -> Iterator[str]:
    """A `;` is missing, or what it should separate."""
    if before.endswith(";") and "$" in before and found != ")":
        variable = before[before.rindex("$") :]
        yield f"this ';' ends the variable, another one is to follow: {variable}; {found}"
    opened = _opened(text, len(before))
    operator = re.search(r"(?i)(!|=\||\|=|DIST)\s*$", text[:opened]) if opened >= 0 else None
    if operator is None:
        if found == ")" or "RPAR" not in expected:
            return
        yield "a ';' or a ')' is missing"
    elif operator[1].upper() == "DIST":
        yield "say how far: DIST(place; <; 300)"
    else:
        sign = operator[1]
        yield f"an interval is {sign}(A; 5 minutes), {sign}(A; B), or {sign}(moment; 5 minutes)"


def _opened(text: str, end: int) -> int:
    """Where the innermost parenthesis opens that is still open here, or -1."""
    opened: list[int] = []
    for found in _PARENTHESES.finditer(text, 0, end):
        if found["sign"] == "(":
            opened.append(found.start())
        elif found["sign"] == ")" and opened:
            opened.pop()
    return opened[-1] if opened else -1


def _unbalanced(text: str, start: int, found: str) -> Iterator[str]:
    opened = _opened(text, start)
    if found == ")" and opened < 0:
        yield "this ')' closes nothing"
    elif opened >= 0 and found != ")":
        line, column = text.count("\n", 0, opened) + 1, opened - text.rfind("\n", 0, opened)
        yield f"the '(' of line {line}, column {column} is not closed"
