"""`ensue.trace(match)` opens a match down to its input events."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.lineage.members import OWN_COLUMNS, MemberNode, add_times, add_types, read_members
from ensue.lineage.pictures import draw_lineage
from ensue.lineage.text import format_timeline, format_tree
from ensue.notebook_repr import Picture


@dataclass(frozen=True, slots=True)
class Trace:
    """A match opened down to its input events.

    `str` is a tree, `timeline` shows the times on a terminal, `svg` is a picture.
    """

    root: MemberNode

    def __str__(self) -> str:
        return format_tree(self.root)

    def __repr__(self) -> str:
        return str(self)

    @property
    def svg(self) -> Picture:
        """Bars for complex events and dots for input events, over one time axis."""
        return Picture(draw_lineage(self.root))

    @property
    def timeline(self) -> str:
        """The same as text, in 80 columns."""
        return format_timeline(self.root)

    def _repr_svg_(self) -> str:
        return str(self.svg)

    def _repr_html_(self) -> str:
        return str(self.svg)

    def events(self) -> Iterator[MemberNode]:
        """Yields the input events, as often as they are members."""
        return (node for node in self.root.walk() if not node.complex)


def trace_match(
    match: Any,
    query: Query | Hierarchy | None = None,
    level: str | None = None,
    time: str | tuple[str, str] | None = None,
) -> Trace:
    """Traces a match.

    A query gives the types of its members; `level` names the definition of a hierarchy that the
    match belongs to, which is otherwise derived from the members.
    """
    root = add_times(read_members(match), time)
    if query is None:
        return Trace(root)
    return Trace(add_types(root, _list_types(query, _find_level(query, root, level))))


def _list_types(query: Query | Hierarchy, top: Query) -> dict[tuple[str, ...], str]:
    """Lists the types of events by the variables that lead to them."""
    types: dict[tuple[str, ...], str] = {(): top.name} if top.name else {}

    def visit(layer: Query, path: tuple[str, ...]) -> None:
        for atom in iterate_positive_atoms(layer.pattern):
            if isinstance(atom.type, str):  # of several types, the query does not tell which
                here = (*path, atom.variable)
                types[here] = atom.type
                if (definition := _find_definition(query, atom.type)) is not None:
                    visit(definition, here)

    visit(top, ())
    return types


def _find_level(query: Query | Hierarchy, root: MemberNode, level: str | None) -> Query:
    if isinstance(query, Query):
        return query
    if level in ("", query.query.name):
        return query.query
    levels = (query.query, *(d.query for d in reversed(query.definitions)))
    if level is None:
        return next((q for q in levels if _fits(query, q, root)), query.query)
    definition = _find_definition(query, level)
    if definition is None:
        names = [q.name for q in levels if q.name]
        raise QueryError(f"'{level}' is not defined here", hint=did_you_mean(level, names))
    return definition


def _fits(hierarchy: Hierarchy, query: Query, node: MemberNode) -> bool:
    """Returns whether an event can be a match of a query, by its members and its fields."""
    if not {item.name for item in query.returns} <= node.fields.keys() | set(OWN_COLUMNS):
        return False
    types = {atom.variable: atom.type for atom in iterate_positive_atoms(query.pattern)}
    for member in node.members:
        name = types.get(member.path[-1])
        if name is None:
            return False
        definition = _find_definition(hierarchy, name) if isinstance(name, str) else None
        if (definition is not None) != member.complex:
            return False
        if definition is not None and not _fits(hierarchy, definition, member):
            return False
    return True


def _find_definition(query: Query | Hierarchy, name: str) -> Query | None:
    definition = query.defined(name) if isinstance(query, Hierarchy) else None
    return None if definition is None else definition.query
