"""Parses OPSL to subscriptions; texts that differ only in constants share a parse tree."""

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from lark import Lark, Token, Tree, UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.tree import Meta

from ensue.analyzer.subscription import check_subscription, get_used_variables
from ensue.errors import QueryError, Span, did_you_mean
from ensue.ir.subscription import Select, Subscription
from ensue.parser.expressions import Node, get_children, get_span
from ensue.parser.grammar import load_grammar
from ensue.parser.opsl.opsl_transformer import (
    NameExpansion,
    build_length,
    build_subscription_expression,
    parse_distance,
    parse_variable,
)
from ensue.parser.registry import NO_REGIONS
from ensue.parser.syntax_errors import TerminalGroups, find_error_start, get_tail, name_terminals

MAX_CACHED_TREES = 1_024  # parse trees per thread
MAX_CACHED_LENGTH = 4_096  # characters of a text whose parse tree is cached

# The grammar's tokens, unless they begin within a name.
_CONSTANT = re.compile(
    r"""(?P<r>\b(?:CIRCLE|(?:MULTI)?POLYGON)\s*\((?:[^()']|\((?:[^()']|\([^()']*\))*\))*\))
       |(?P<s>'(?:[^']|'')*')
       |(?P<n>(?<![\w.-])(?:[+-]\s*)?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)""",
    re.VERBOSE | re.IGNORECASE,
)
_TYPES = {"r": "REGION", "s": "STRING", "n": "NUMBER"}
_HOLE = "\0"


class ParseTreeCache(threading.local):
    """Caches parse trees per thread, by texts whose constants are replaced; trees are mutated."""

    def __init__(self) -> None:
        self._templates: dict[str, _TreeTemplate | None] = {}

    def tree(self, text: str, parse: Callable[[str], Node]) -> Node:
        """Returns the parse tree of a text, which is valid until the next call."""
        if _HOLE in text or len(text) > MAX_CACHED_LENGTH:
            return parse(text)
        constants: list[re.Match[str]] = []

        def replace_constant(constant: re.Match[str]) -> str:
            constants.append(constant)
            return f"{_HOLE}{constant.lastgroup}"

        key = _CONSTANT.sub(replace_constant, text)
        if key in self._templates:
            template = self._templates[key]
            return parse(text) if template is None else template.fill(constants)
        tree = parse(text)
        if len(self._templates) >= MAX_CACHED_TREES:
            self._templates.pop(next(iter(self._templates)))
        self._templates[key] = _TreeTemplate.create(tree, constants)
        return tree


@dataclass(frozen=True, slots=True)
class _TextPosition:
    """A token or node, and how many constants precede its start and its end."""

    item: Token | Meta
    start: int
    before_start: int
    end: int
    before_end: int


@dataclass(frozen=True, slots=True)
class _TreeTemplate:
    tree: Node
    lengths: tuple[int, ...]  # of the constants in the parsed text
    holes: tuple[tuple[list[Token | Node], int], ...]  # the positions of the constants in the tree
    positions: tuple[_TextPosition, ...]

    @classmethod
    def create(cls, tree: Node, constants: list[re.Match[str]]) -> "_TreeTemplate | None":
        """Creates a template; None if a constant of the text is no token, as in a comment."""
        ends = [constant.end() for constant in constants]
        by_span = {constant.span(): (k, constant) for k, constant in enumerate(constants)}
        holes: dict[int, tuple[list[Token | Node], int]] = {}
        positions = []
        for node in _nodes(tree):
            positions.append(_position(node.meta, node, ends))
            for index, child in enumerate(node.children):
                if not isinstance(child, Token):
                    continue
                span = get_span(child)
                number, constant = by_span.get((span.start, span.end), (-1, None))
                if constant is not None and child.type == _TYPES[str(constant.lastgroup)]:
                    holes[number] = (node.children, index)
                else:
                    positions.append(_position(child, child, ends))
        if len(holes) != len(constants):
            return None
        lengths = tuple(len(constant[0]) for constant in constants)
        return cls(tree, lengths, tuple(holes[k] for k in range(len(constants))), tuple(positions))

    def fill(self, constants: list[re.Match[str]]) -> Node:
        """Fills in the constants of another text."""
        for constant, (children, index) in zip(constants, self.holes, strict=True):
            start, end = constant.span()
            type = _TYPES[str(constant.lastgroup)]
            children[index] = Token(type, constant[0], start_pos=start, end_pos=end)
        growth = [len(c[0]) - length for c, length in zip(constants, self.lengths, strict=True)]
        shifts = list(accumulate(growth, initial=0))
        for position in self.positions:
            position.item.start_pos = position.start + shifts[position.before_start]
            position.item.end_pos = position.end + shifts[position.before_end]
        return self.tree


def _nodes(tree: Node) -> Iterator[Node]:
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += [child for child in node.children if isinstance(child, Tree)]


def _position(item: Token | Meta, node: Node | Token, ends: list[int]) -> _TextPosition:
    span = get_span(node)
    return _TextPosition(item, span.start, bisect_right(ends, span.start), span.end, bisect_right(ends, span.end))


MAX_TEXT_BYTES = 65_536  # bytes of a text

_OPTIONS = ("select", "concurrent", "same_place", "equal", "within")


def parse_subscription(text: str, regions: Mapping[str, str] = NO_REGIONS) -> Subscription:
    """Parses a subscription; `regions` are known by their names, in canonical WKT.

    >>> parse_subscription("=|(A; 25 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)").select
    <Select.LATEST: 'latest'>
    """
    length = len(text.encode("utf-8", "surrogatepass"))
    if length > MAX_TEXT_BYTES:
        raise QueryError(
            f"this text has {length:,} bytes; the limit is {MAX_TEXT_BYTES:,}",
            hint='pass large regions in the call: regions={"Depot": ...}',
        )
    try:
        return _subscription(_shapes.tree(text, _grammar().parse), text, regions)
    except UnexpectedInput as error:
        raise explain_opsl_error(error, text) from None
    except QueryError as error:
        raise error.at(None, text) from None


_shapes = ParseTreeCache()


@cache
def _grammar() -> Lark:
    return load_grammar("ensue.parser.opsl", "opsl.lark")


def _subscription(tree: Node, text: str, regions: Mapping[str, str]) -> Subscription:
    root, *definitions, options = get_children(tree)
    variables, abbreviations = _collect_definitions(definitions, regions)
    names = NameExpansion({name: get_children(node)[1] for name, node in abbreviations.items()}, regions)
    subscription = Subscription(
        build_subscription_expression(root, names),
        {name: build_subscription_expression(get_children(node)[1], names) for name, node in variables.items()},
        text=text,
        **_options(options),
    )
    check_subscription(subscription)
    _require_used(subscription, variables, abbreviations, names)
    return subscription


def _collect_definitions(
    definitions: Iterable[Node], regions: Mapping[str, str]
) -> tuple[dict[str, Node], dict[str, Node]]:
    """Collects the definitions of variables and of names."""
    variables: dict[str, Node] = {}
    abbreviations: dict[str, Node] = {}
    for node in definitions:
        token = get_children(node)[0]
        if node.data == "variable":
            (name, span), known = parse_variable(token), variables
            shown = f"${name};"
        else:
            name, span, known = str(token), get_span(token), abbreviations
            shown = f"'{name}'"
        if name in known:
            raise QueryError(f"{shown} is defined twice", hint="rename one of the two, or delete it", span=span)
        if known is abbreviations and name in regions:
            raise QueryError(
                f"{shown} is defined here and also passed in the call",
                hint="rename it here, or leave it out of regions=",
                span=span,
            )
        known[name] = node
    return variables, abbreviations


def _require_used(
    subscription: Subscription, variables: Mapping[str, Node], abbreviations: Mapping[str, Node], names: NameExpansion
) -> None:
    """Refuses unused definitions: they are mistakes, and would wait for events in vain."""
    used = get_used_variables(subscription) if variables else frozenset[str]()
    unused = [(f"${name};", node) for name, node in variables.items() if name not in used]
    unused += [(f"'{n}'", node) for n, node in abbreviations.items() if n not in names.used]
    for shown, node in unused:
        raise QueryError(f"{shown} is defined and never used", hint="delete its definition", span=get_span(node))


def _options(node: Node | None) -> dict[str, Any]:
    """Parses the options after WITH to arguments of a subscription."""
    options: dict[str, Any] = {}
    for option in get_children(node) if node else ():
        token, value = get_children(option)
        name = token.lower()
        if name not in _OPTIONS:
            raise QueryError(f"unknown option '{token}'", hint=did_you_mean(name, _OPTIONS), span=get_span(token))
        if name in options:
            raise QueryError(f"the option '{name}' is given twice", hint="keep one", span=get_span(option))
        options[name] = _select(value) if name == "select" else _amount(name, value)
    return options


def _select(value: Node | Token) -> Select:
    known = [select.value for select in Select]
    word = value.lower() if isinstance(value, Token) else ""
    if word not in known:
        raise QueryError(
            "select takes latest, once or all",
            hint=did_you_mean(word, known) if word else f"known here: {', '.join(known)}",
            span=get_span(value),
        )
    return Select(word)


def _amount(name: str, value: Node | Token) -> Any:
    if isinstance(value, Token):
        example = "5 minutes" if name in ("concurrent", "within") else "2.5"
        raise QueryError(
            f"{name} takes a {'length of time' if example[0] == '5' else 'number'}",
            hint=f"write {name} = {example}",
            span=get_span(value),
        )
    if name in ("concurrent", "within"):
        return build_length(value)
    amount, unit = get_children(value)
    if unit is not None:
        raise QueryError(
            f"{name} is a number in the units of places, without a unit",
            hint=f"write {name} = {amount}",
            span=get_span(unit),
        )
    return parse_distance(amount, name, positive=name == "same_place")


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
_TYPE_WORDS = r"(ARITH|STRING|BOOL|TIME)"
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
    if found == ":" and re.search(_TYPE_WORDS + r"$", before, re.IGNORECASE):
        yield "predicates stand in parentheses: (ARITH:id = 17)"
    if "COLON" in expected and re.search(r"\b" + _TYPE_WORDS + r"$", before, re.IGNORECASE):
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
