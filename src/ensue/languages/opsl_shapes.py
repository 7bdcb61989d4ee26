"""Syntax trees of texts that differ in their constants only: parsed once, then filled in.

Of a million subscriptions most are the same text with other numbers, texts and regions. What the
parser makes of a text does not depend on these, so a tree is kept by the text without them, and
the next text of that shape puts its own constants, and where everything stands, into it.
"""

import re
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from lark import Token, Tree
from lark.tree import Meta

from ensue.languages.expressions import Node, span_of

KEPT = 1_024  # shapes
LONGEST = 4_096  # characters of a text whose shape is kept

# As the grammar's tokens, but only where none of them begins within a name.
_CONSTANT = re.compile(
    r"""(?P<r>\b(?:CIRCLE|(?:MULTI)?POLYGON)\s*\((?:[^()']|\((?:[^()']|\([^()']*\))*\))*\))
       |(?P<s>'(?:[^']|'')*')
       |(?P<n>(?<![\w.-])(?:[+-]\s*)?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)""",
    re.VERBOSE | re.IGNORECASE,
)
_TYPES = {"r": "REGION", "s": "STRING", "n": "NUMBER"}
_HOLE = "\0"

Parse = Callable[[str], Node]


class Shapes(threading.local):
    """The shapes that a thread has met: each has trees of its own, which are written into."""

    def __init__(self) -> None:
        self._kept: dict[str, _Shape | None] = {}

    def tree(self, text: str, parse: Parse) -> Node:
        """The tree of a text, to be read before the next one is asked for."""
        if _HOLE in text or len(text) > LONGEST:
            return parse(text)
        constants: list[re.Match[str]] = []

        def hole(found: re.Match[str]) -> str:
            constants.append(found)
            return f"{_HOLE}{found.lastgroup}"

        key = _CONSTANT.sub(hole, text)
        if key in self._kept:
            shape = self._kept[key]
            return parse(text) if shape is None else shape.filled(constants)
        tree = parse(text)
        if len(self._kept) >= KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[key] = _Shape.of(tree, constants)
        return tree


@dataclass(frozen=True, slots=True)
class _Place:
    """Something that stands in the text, and how many constants stand before its two ends."""

    of: Token | Meta
    start: int
    before_start: int
    end: int
    before_end: int


@dataclass(frozen=True, slots=True)
class _Shape:
    tree: Node
    lengths: tuple[int, ...]  # of the constants that it was parsed with
    holes: tuple[tuple[list[Token | Node], int], ...]  # where in the tree the constants are
    places: tuple[_Place, ...]

    @classmethod
    def of(cls, tree: Node, constants: list[re.Match[str]]) -> "_Shape | None":
        """None if a constant of the text is no token: it may stand in a comment."""
        ends = [found.end() for found in constants]
        wanted = {found.span(): (k, found) for k, found in enumerate(constants)}
        holes: dict[int, tuple[list[Token | Node], int]] = {}
        places = []
        for node in _nodes(tree):
            places.append(_place(node.meta, node, ends))
            for index, child in enumerate(node.children):
                if not isinstance(child, Token):
                    continue
                span = span_of(child)
                number, found = wanted.get((span.start, span.end), (-1, None))
                if found is not None and child.type == _TYPES[str(found.lastgroup)]:
                    holes[number] = (node.children, index)
                else:
                    places.append(_place(child, child, ends))
        if len(holes) != len(constants):
            return None
        lengths = tuple(len(found[0]) for found in constants)
        return cls(tree, lengths, tuple(holes[k] for k in range(len(constants))), tuple(places))

    def filled(self, constants: list[re.Match[str]]) -> Node:
        """The tree of another text of this shape."""
        for found, (children, index) in zip(constants, self.holes, strict=True):
            start, end = found.span()
            type = _TYPES[str(found.lastgroup)]
            children[index] = Token(type, found[0], start_pos=start, end_pos=end)
        longer = [len(c[0]) - length for c, length in zip(constants, self.lengths, strict=True)]
        shifts = list(accumulate(longer, initial=0))
        for place in self.places:
            place.of.start_pos = place.start + shifts[place.before_start]
            place.of.end_pos = place.end + shifts[place.before_end]
        return self.tree


def _nodes(tree: Node) -> Iterator[Node]:
    left = [tree]
    while left:
        node = left.pop()
        yield node
        left += [child for child in node.children if isinstance(child, Tree)]


def _place(of: Token | Meta, node: Node | Token, ends: list[int]) -> _Place:
    span = span_of(node)
    return _Place(
        of, span.start, bisect_right(ends, span.start), span.end, bisect_right(ends, span.end)
    )
