"""`ensue.trace(match)` opens a match down to its input events: its members as a tree, read from its row."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import EnsueError, QueryError, did_you_mean
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.notebook_repr import Picture

OWN_COLUMNS = ("match_id", "start", "end", "members")  # of every complex event


@dataclass(frozen=True, slots=True)
class MemberNode:
    """An event of a match: a complex event with its members, or an input event."""

    variable: str  # "a", "a[2]"; "" for the match itself
    fields: dict[str, Any]
    start: Any = None
    end: Any = None
    members: tuple["MemberNode", ...] = ()
    type: str | None = None
    path: tuple[str, ...] = field(default=(), repr=False)  # the variables down to it

    @property
    def complex(self) -> bool:
        return bool(self.members)

    def walk(self) -> Iterator["MemberNode"]:
        """Yields this node and all nodes below it, in depth-first order."""
        yield self
        for member in self.members:
            yield from member.walk()

    def height(self) -> int:
        """Returns 0 for an input event, 1 for an event with input events as members, and so on."""
        return 1 + max(m.height() for m in self.members) if self.members else 0


@dataclass(frozen=True, slots=True)
class Trace:
    """A match opened down to its input events.

    `str` is a tree, `timeline` shows the times on a terminal, `svg` is a picture.
    """

    root: MemberNode

    def __str__(self) -> str:
        from ensue.lineage.text import format_tree

        return format_tree(self.root)

    def __repr__(self) -> str:
        return str(self)

    @property
    def svg(self) -> Picture:
        """Bars for complex events and dots for input events, over one time axis."""
        from ensue.lineage.pictures import draw_lineage

        return Picture(draw_lineage(self.root))

    @property
    def timeline(self) -> str:
        """The same as text, in 80 columns."""
        from ensue.lineage.text import format_timeline

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


# ------------------------------------------------------------------------- the row of a match


def read_members(match: Any) -> MemberNode:
    """Reads the tree of a match, without the times of input events.

    >>> row = {"start": 1, "end": 2, "members": {"a": {"t": 1}, "b": [{"t": 2}, {"t": 2}]}}
    >>> [node.variable for node in read_members(row).walk()]
    ['', 'a', 'b[1]', 'b[2]']
    >>> plain = {"match_id": "x", "start": 1, "end": 2, "a": {"t": 1}, "b": [{"t": 2}]}
    >>> [node.variable for node in read_members(plain).walk()]
    ['', 'a', 'b[1]']
    """
    row = _read_row(match)
    if not isinstance(row.get("members"), Mapping):  # without RETURN each variable is a column
        events = {n: v for n, v in row.items() if n not in OWN_COLUMNS and _has_events(v)}
        if not events:
            raise EnsueError(
                "this match does not contain its members\n"
                "  hint: ensue.match(..., options=ensue.OutputOptions(trace=True)) gives matches a column "
                "'members', without flat=True"
            )
        row = {**row, "members": events}
    return _build_complex("", row, ())


def _has_events(value: Any) -> bool:
    """Returns whether a value is an event or a list of events; pandas has arrays of them."""
    if isinstance(value, Mapping):
        return True
    items = value.tolist() if hasattr(value, "tolist") else value
    is_list = isinstance(items, list | tuple) and len(items) > 0
    return is_list and all(isinstance(item, Mapping) for item in items)


def _read_row(match: Any) -> dict[str, Any]:
    for method in ("collect", "to_arrow_table"):  # a LazyFrame, a relation of DuckDB
        if not isinstance(match, dict) and hasattr(match, method):
            match = getattr(match, method)()
    row = match
    for method in ("to_pylist", "to_dicts", "as_py", "asDict", "to_dict"):
        if not isinstance(match, dict) and hasattr(match, method):
            if method == "to_dict" and getattr(match, "ndim", 1) == 2:
                row = match.to_dict("records")
            else:
                row = getattr(match, method)(**({"recursive": True} if method == "asDict" else {}))
            break
    if isinstance(row, list):
        if len(row) != 1:
            raise EnsueError(
                f"a trace is of one match, and these are {len(row)}\n"
                "  hint: take one of them, as in matches.slice(0, 1) or matches.to_pylist()[0]"
            )
        row = row[0]
    if not isinstance(row, Mapping):
        raise EnsueError(
            f"a match must be a row of a result of ensue.match, not a {type(match).__name__}\n"
            "  hint: ensue.trace(matches.to_pylist()[0])"
        )
    return dict(row)


def _build_complex(variable: str, row: Mapping[str, Any], path: tuple[str, ...]) -> MemberNode:
    members = tuple(
        node for name, value in row["members"].items() for node in _build_members(name, value, (*path, name))
    )
    fields = {name: value for name, value in row.items() if name not in OWN_COLUMNS}
    return MemberNode(variable, fields, row.get("start"), row.get("end"), members, path=path)


def _build_members(variable: str, value: Any, path: tuple[str, ...]) -> Iterator[MemberNode]:
    """Builds the events that a variable is bound to: none, one, or a list."""
    if value is None:
        return
    if isinstance(value, Mapping):
        if isinstance(value.get("members"), Mapping):
            yield _build_complex(variable, value, path)
        else:
            yield MemberNode(variable, dict(value), path=path)
        return
    for number, item in enumerate(value, 1):
        for node in _build_members(variable, item, path):
            yield replace(node, variable=f"{variable}[{number}]")


def sort_by_time(members: Iterable[MemberNode]) -> list[MemberNode]:
    """Sorts events by their start; events without times keep their order."""
    nodes = list(members)
    if any(node.start is None for node in nodes):
        return nodes
    return sorted(nodes, key=lambda node: (node.start, node.end))


def add_times(root: MemberNode, time: str | tuple[str, str] | None) -> MemberNode:
    """Adds the times of input events.

    Without `time` the time columns are those whose earliest value is the start of the match and
    whose latest value is its end.
    """
    if time is None:
        start, end = _find_time_columns(root)
    else:
        start, end = (time, time) if isinstance(time, str) else time

    def visit(node: MemberNode) -> MemberNode:
        if node.complex:
            return replace(node, members=tuple(map(visit, node.members)))
        others = {k: v for k, v in node.fields.items() if k not in (start, end)}
        begin, until = (None if n is None else node.fields.get(n) for n in (start, end))
        return replace(node, fields=others, start=begin, end=until)

    return visit(root)


def _find_time_columns(root: MemberNode) -> tuple[str | None, str | None]:
    events = [node for node in root.walk() if not node.complex]
    names = [n for n in events[0].fields if all(n in e.fields for e in events)] if events else []
    starts = [n for n in names if _find_extreme(min, events, n) == root.start is not None]
    ends = [n for n in names if _find_extreme(max, events, n) == root.end is not None]
    both = [name for name in starts if name in ends]
    return next(iter(both or starts), None), next(iter(both or ends), None)


def _find_extreme(function: Any, events: list[MemberNode], name: str) -> Any:
    try:
        return function(event.fields[name] for event in events)
    except TypeError:  # values without an order, or NULL
        return None


def add_types(root: MemberNode, types: Mapping[tuple[str, ...], str]) -> MemberNode:
    """Adds the types of events, by the variables that lead to them."""
    return replace(
        root, type=types.get(root.path, root.type), members=tuple(add_types(member, types) for member in root.members)
    )
