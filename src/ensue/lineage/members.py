"""The members of a match as a tree, read from its row."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import EnsueError

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
    """Converts a match of any library to a dict."""
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
