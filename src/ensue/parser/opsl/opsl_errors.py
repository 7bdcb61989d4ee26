"""Explains syntax errors of OPSL and suggests fixes."""

import re
from collections.abc import Iterator

from lark import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from ensue.errors import QueryError, Span
from ensue.parser.syntax_errors import TerminalGroups, find_error_start, get_tail, name_terminals

_WORDS = {
    "LPAR": "'('", "RPAR": "')'", "COMMA": "','", "DOT": "'.'", "COLON": "':'",
    "SEMICOLON": "';'", "_EQUALS": "'='", "_OR": "'||'", "_AND": "'&&'", "_WITH": "WITH",
    "NUMBER": "a number", "STRING": "a text in single quotes", "NAME": "a name",
    "QUOTED": "a name", "UNIT": "a unit of time", "OPERATOR": "an operator such as =",
    "_LIKE": "LIKE", "_IN": "IN", "TRUTH": "TRUE or FALSE", "TIMESTAMP": "TIMESTAMP '...'",
    "DATE": "DATE '...'", "VARIABLE": "a variable such as $x;", "$END": "the end",
}  # fmt: skip
# Terminals with a common name, which is used if the first set is expected.
_GROUPS: TerminalGroups = (
    (
        "an event, '(' or an operator",
        {"WHEN", "WHERE"},
        {"WHEN", "WHERE", "_BAR", "_DIST", "REGION", "VARIABLE", "NAME", "LPAR"},
    ),
    ("a value", {"NUMBER", "STRING", "TRUTH"}, {"NUMBER", "STRING", "TRUTH", "TIMESTAMP", "DATE", "VARIABLE"}),
)
_EXAMPLE = "=|(A; 5 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)"
_BLANKS = re.compile(r"(?:--[^\n]*|/\*[\s\S]*?\*/|\s)*+")
_PIECE = re.compile(r"\$?[^\W\d]\w*(?:-\w+)*|[0-9.]+|=\||\|=|&&?|\|\|?|[<>!]=|[\s\S]")
_UNENDED = re.compile(r"\$[^\W\d]\w*(?:-\w+)*(?!\s*;)")
_PARENTHESES = re.compile(r"'[^']*'|--[^\n]*|/\*(?:[\s\S]*?\*/|[\s\S]*)|(?P<sign>[()])")
_LITERALS = {"'": "text", '"': "quoted name", "`": "quoted name"}
_TYPES = r"(ARITH|STRING|BOOL|TIME)"
_LAST_WITH = re.compile(r"(?i)\bWITH\b[^()]*=$")
_OPERATOR = re.compile(r"(?i)(!|=\||\|=|\||DIST)\s*$")
_REGIONS = re.compile(r"(?i)(CIRCLE|(MULTI)?(POINT|LINESTRING|POLYGON))$")


def explain_opsl_error(error: UnexpectedInput, text: str) -> QueryError:
    """Converts an error of the parser to one that names the problem and a fix."""
    if _BLANKS.fullmatch(text):
        return QueryError("the subscription is empty", hint=f"write one, as in {_EXAMPLE}")
    assert isinstance(error, UnexpectedToken | UnexpectedCharacters)
    expected: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    start = find_error_start(error, text)
    piece = _PIECE.match(text.rstrip(), start)
    found = piece[0] if piece else ""
    span = Span(start, start + len(found))
    if found in _LITERALS or text.startswith("/*", span.start):
        literal = _LITERALS.get(found, "comment")
        return QueryError(f"this {literal} has no end", hint="close it", span=span, text=text)
    if _UNENDED.match(text, span.start):
        return QueryError(
            f"the variable {found} does not end in ';'",
            hint=f"write {found};, and another ';' where a separator follows: ({found};; 5)",
            span=span,
            text=text,
        )
    terminals = name_terminals(expected, _GROUPS, _WORDS)
    return QueryError(
        f"expected {terminals}, found {repr(found) if found else 'the end'}",
        hint=next(_hints(text, span, found, expected), None),
        span=span,
        text=text,
    )


def _hints(text: str, span: Span, found: str, expected: set[str]) -> Iterator[str]:
    """Yields possible causes of an error, the most likely first."""
    before = text[: span.start].rstrip()
    yield from _word_hints(before, found)
    yield from _predicate_hints(before, found, expected)
    yield from _definition_hints(text, before, found, expected)
    if found == "(" and _REGIONS.search(before):
        yield "close the parentheses of the region, or write it as POLYGON ((0 0, 9 0, 9 9, 0 0))"
    if found == "(" and re.search(r"\w$", before):
        yield "operators are !, =|, |=, |, @, IN, OVLP, SPL and DIST"
    yield from _operator_hints(text, before, found, expected)
    if expected == {"NUMBER"} and re.match(r"\w", found):
        yield "write the number itself: names stand for events and regions"
    if re.search(r"(&&|\|\|)$", before):
        yield f"something is missing after {before[-2:]}"
    if not found and "WHERE" in expected:
        yield "an operator applies to the part after it: |(A)(B)"
    if _find_open_parenthesis(text, len(text)) >= 0:
        yield from _find_unbalanced(text, span.start, found)
    if found == "," and _find_open_parenthesis(text, span.start) >= 0:
        yield "write A && B for both, A || B for one of them"
    if "_AND" in expected and re.match(r"[\w$(!@|=]", found):
        yield "join two parts by && or ||, and definitions by ','"
    yield from _find_unbalanced(text, span.start, found)


def _predicate_hints(before: str, found: str, expected: set[str]) -> Iterator[str]:
    if found == ":" and re.search(_TYPES + r"$", before, re.IGNORECASE):
        yield "predicates stand in parentheses: (ARITH:id = 17)"
    if "COLON" in expected and re.search(r"\b" + _TYPES + r"$", before, re.IGNORECASE):
        yield "a ':' follows the type: ARITH:id = 17"
    if "_LIKE" in expected or (found == ")" and "TRUTH" in expected):
        yield "a predicate is ARITH:id = 17, STRING:name LIKE 'ab%' or ARITH:id IN (1, 2)"


def _definition_hints(text: str, before: str, found: str, expected: set[str]) -> Iterator[str]:
    if expected == {"NAME", "NUMBER"} and _LAST_WITH.search(get_tail(before)):
        yield "definitions stand before WITH"
    if expected == {"_EQUALS"} or (before.endswith(",") and "VARIABLE" in expected):
        yield "a definition has the form $x; = ..., or Name = ..., and options follow WITH"
    if found == ";" and _find_open_parenthesis(text, len(before)) < 0:
        yield "definitions are joined by ','; only variables end in ';'"


def _word_hints(before: str, found: str) -> Iterator[str]:
    if found == "&":
        yield "write && for both"
    if found.upper() in ("AND", "OR") and before:
        yield "write && for both, || for one of them"
    if found and found in "\u2018\u2019\u201c\u201d\u00b4":
        yield "texts stand in straight single quotes: 'truck'"
    if found.lower() in ("nan", "inf", "infinity"):
        yield "it is not a number that values can be compared with"
    if found.upper() == "NULL":
        yield "NULL satisfies no predicate"


def _operator_hints(text: str, before: str, found: str, expected: set[str]) -> Iterator[str]:
    """Yields hints for the parentheses of an operator."""
    if "SEMICOLON" in expected and before.endswith(";") and "$" in before and found != ")":
        variable = before[before.rindex("$") :]
        yield f"this ';' ends the variable, another one is to follow: {variable}; {found}"
    if expected == {"LPAR"}:
        sign = before[-1:] if before.endswith("!") else before[-2:]
        yield f"its operand follows in parentheses: {sign}(A; 5 minutes)(B)"
    opened = _find_open_parenthesis(text, len(before))
    operator = _OPERATOR.search(text[:opened]) if opened >= 0 else None
    if operator is None:
        return
    sign = operator[1].upper()
    if sign == "DIST" and expected <= {"SEMICOLON", "OPERATOR", "NUMBER", "RPAR", "_AND", "_OR"}:
        yield "say how far, in the units of places: DIST(place; <; 300), or = or > for <"
    if sign == "|" and found == ";":
        yield "it takes one event and a tolerance at most: |(A; 5 seconds)(B)"
    if sign in ("!", "=|", "|=") and (
        found in (";", ")") or expected & {"SEMICOLON", "UNIT"} or expected == {"NUMBER"}
    ):
        yield f"an interval is {sign}(A; 5 minutes), {sign}(A; B), or {sign}(moment; 5 minutes)"


def _find_open_parenthesis(text: str, end: int) -> int:
    """Returns the position of the innermost open parenthesis, or -1."""
    opened: list[int] = []
    for found in _PARENTHESES.finditer(text, 0, end):
        if found["sign"] == "(":
            opened.append(found.start())
        elif found["sign"] == ")" and opened:
            opened.pop()
    return opened[-1] if opened else -1


def _find_unbalanced(text: str, start: int, found: str) -> Iterator[str]:
    opened = _find_open_parenthesis(text, start)
    if found == ")" and opened < 0:
        yield "this ')' has no matching opening bracket"
    elif opened >= 0 and found != ")":
        line, column = text.count("\n", 0, opened) + 1, opened - text.rfind("\n", 0, opened)
        yield f"the '(' of line {line}, column {column} is not closed"
