"""Parses OPSL to subscriptions; texts that differ only in constants share a parse tree."""

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput
from lark.tree import Meta

from ensue.analyzer.subscription import check_subscription, get_used_variables
from ensue.errors import QueryError, did_you_mean
from ensue.ir.subscription import Select, Subscription
from ensue.parser.expressions import Node, get_children, get_span
from ensue.parser.grammar import load_grammar
from ensue.parser.opsl.opsl_errors import explain_opsl_error
from ensue.parser.opsl.opsl_transformer import (
    NameExpansion,
    build_length,
    build_subscription_expression,
    parse_distance,
    parse_variable,
)
from ensue.parser.registry import NO_REGIONS

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
