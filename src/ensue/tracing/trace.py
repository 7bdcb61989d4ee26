"""`ensue.trace(match)`: what a match is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.algebra.walk import positives
from ensue.errors import QueryError, did_you_mean
from ensue.rendering import Picture
from ensue.tracing.drawing import draw
from ensue.tracing.members import OWN, Node, opened, timed, typed
from ensue.tracing.text import tree
from ensue.tracing.timeline import timeline


@dataclass(frozen=True, slots=True)
class Trace:
    """A match opened down to the events that came in.

    `str` is a tree, `timeline` shows when they were on a terminal, `svg` is a picture.
    """

    root: Node

    def __str__(self) -> str:
        return tree(self.root)

    def __repr__(self) -> str:
        return str(self)

    @property
    def svg(self) -> Picture:
        """Bars for complex events, dots for those that came in, over one time axis."""
        return Picture(draw(self.root))

    @property
    def timeline(self) -> str:
        """The same as text, in 80 columns."""
        return timeline(self.root)

    def _repr_svg_(self) -> str:
        return str(self.svg)

    def _repr_html_(self) -> str:
        return str(self.svg)

    def events(self) -> Iterator[Node]:
        """The events that came in, as often as they are members."""
        return (node for node in self.root.walk() if not node.complex)


def trace_of(
    match: Any,
    query: Query | Tower | None = None,
    level: str | None = None,
    time: str | tuple[str, str] | None = None,
) -> Trace:
    """The trace of a match. A query says the types of its members, `level` which of a tower's
    definitions the match is of; by default that is seen from the members."""
    root = timed(opened(match), time)
    if query is None:
        return Trace(root)
    return Trace(typed(root, _types(query, _level(query, root, level))))


def _types(query: Query | Tower, top: Query) -> dict[tuple[str, ...], str]:
    """The types of events by the variables that lead to them."""
    found: dict[tuple[str, ...], str] = {(): top.name} if top.name else {}

    def visit(of: Query, path: tuple[str, ...]) -> None:
        for atom in positives(of.pattern):
            here = (*path, atom.variable)
            if not isinstance(atom.type, str):
                continue  # of several types: which one, the query does not say
            found[here] = atom.type
            if (inside := _defined(query, atom.type)) is not None:
                visit(inside, here)

    visit(top, ())
    return found


def _level(query: Query | Tower, root: Node, level: str | None) -> Query:
    if isinstance(query, Query) or level in ("", query.query.name):
        return query if isinstance(query, Query) else query.query
    levels = (query.query, *(d.query for d in reversed(query.definitions)))
    if level is not None:
        named = _defined(query, level)
        if named is None:
            raise QueryError(
                f"'{level}' is not defined here",
                hint=did_you_mean(level, [q.name for q in levels if q.name]),
            )
        return named
    return next((q for q in levels if _fits(query, q, root)), query.query)


def _fits(tower: Tower, query: Query, node: Node) -> bool:
    """Whether an event can be one of a query, by its members and its fields."""
    types = {atom.variable: atom.type for atom in positives(query.pattern)}
    if not {item.name for item in query.returns} <= node.fields.keys() | set(OWN):
        return False
    for member in node.members:
        name = types.get(member.path[-1])
        if name is None:
            return False
        inside = _defined(tower, name) if isinstance(name, str) else None
        if (inside is not None) != member.complex:
            return False
        if inside is not None and not _fits(tower, inside, member):
            return False
    return True


def _defined(query: Query | Tower, name: str) -> Query | None:
    definition = query.defined(name) if isinstance(query, Tower) else None
    return None if definition is None else definition.query
