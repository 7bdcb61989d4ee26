"""The members of a match as a tree, read from its row."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ensue.errors import EnsueError

OWN = ("match_id", "start", "end", "members")  # columns that every complex event has


@dataclass(frozen=True, slots=True)
class Node:
    """An event of a match: a complex one with its members, or one that came in."""

    variable: str  # "a", "a[2]"; "" for the match itself
    fields: dict[str, Any]
    start: Any = None
    end: Any = None
    members: tuple["Node", ...] = ()
    type: str | None = None
    path: tuple[str, ...] = field(default=(), repr=False)  # the variables down to it

    @property
    def complex(self) -> bool:
        return bool(self.members)

    def walk(self) -> Iterator["Node"]:
        """This node and all below it, from above to below and from left to right."""
        yield self
        for member in self.members:
            yield from member.walk()

    def height(self) -> int:
        """0 for an event that came in, 1 for one made of such events, and so on."""
        return 1 + max(m.height() for m in self.members) if self.members else 0


def opened(match: Any) -> Node:
    """The tree of a match, without times of the events that came in.

    >>> row = {"start": 1, "end": 2, "members": {"a": {"t": 1}, "b": [{"t": 2}, {"t": 2}]}}
    >>> [node.variable for node in opened(row).walk()]
    ['', 'a', 'b[1]', 'b[2]']
    >>> plain = {"match_id": "x", "start": 1, "end": 2, "a": {"t": 1}, "b": [{"t": 2}]}
    >>> [node.variable for node in opened(plain).walk()]
    ['', 'a', 'b[1]']
    """
    row = _row(match)
    if not isinstance(row.get("members"), Mapping):
        row = {**row, "members": _events_of(row)}
    return _complex("", row, ())


def _events_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The events in a match of a query without RETURN: each variable is a column of its own."""
    found = {n: v for n, v in row.items() if n not in OWN and (_is_event(v) or _are_events(v))}
    if not found:
        raise EnsueError(
            "this match does not contain its members\n"
            "  hint: ensue.match(..., trace=True) gives matches a column 'members', without "
            "flat=True"
        )
    return found


def _is_event(value: Any) -> bool:
    return isinstance(value, Mapping)


def _are_events(value: Any) -> bool:
    """Whether it is a list of events; pandas has arrays of them."""
    items = value.tolist() if hasattr(value, "tolist") else value
    return isinstance(items, list | tuple) and bool(items) and all(map(_is_event, items))


def _row(match: Any) -> dict[str, Any]:
    """A match as a dict, wherever it comes from."""
    for way in ("collect", "to_arrow_table"):  # a LazyFrame, a relation of DuckDB
        if not isinstance(match, dict) and hasattr(match, way):
            match = getattr(match, way)()
    found = match
    for way in ("to_pylist", "to_dicts", "as_py", "asDict", "to_dict"):
        if not isinstance(match, dict) and hasattr(match, way):
            if way == "to_dict" and getattr(match, "ndim", 1) == 2:
                found = match.to_dict("records")
            else:
                found = match.asDict(recursive=True) if way == "asDict" else getattr(match, way)()
            break
    if isinstance(found, list):
        if len(found) != 1:
            raise EnsueError(
                f"a trace is of one match, and these are {len(found)}\n"
                "  hint: take one of them, as in matches.slice(0, 1) or matches.to_pylist()[0]"
            )
        found = found[0]
    if not isinstance(found, Mapping):
        raise EnsueError(
            f"a match must be a row of a result of ensue.match, not a {type(match).__name__}\n"
            "  hint: ensue.trace(matches.to_pylist()[0])"
        )
    return dict(found)


def _complex(variable: str, row: Mapping[str, Any], path: tuple[str, ...]) -> Node:
    members = tuple(
        node
        for name, value in row["members"].items()
        for node in _members(name, value, (*path, name))
    )
    return Node(
        variable,
        {name: value for name, value in row.items() if name not in OWN},
        row.get("start"),
        row.get("end"),
        members,
        path=path,
    )


def _members(variable: str, value: Any, path: tuple[str, ...]) -> Iterator[Node]:
    """The events a variable is bound to: none, one, or a list of them."""
    if value is None:
        return
    if isinstance(value, Mapping):
        if isinstance(value.get("members"), Mapping):
            yield _complex(variable, value, path)
        else:
            yield Node(variable, dict(value), path=path)
        return
    for number, item in enumerate(value, 1):
        for node in _members(variable, item, path):
            yield replace(node, variable=f"{variable}[{number}]")


def in_time_order(members: Iterable[Node]) -> list[Node]:
    """Events by when they began; those of which that is not known stay where they are."""
    found = list(members)
    if any(member.start is None for member in found):
        return found
    return sorted(found, key=lambda member: (member.start, member.end))


def timed(root: Node, time: str | tuple[str, str] | None) -> Node:
    """The same tree with the times of the events that came in.

    Without `time` the time columns are those whose earliest value is the start of the match and
    whose latest is its end.
    """
    raw = [node for node in root.walk() if not node.complex]
    start, end = (time, time) if isinstance(time, str) else time or _time_columns(root, raw)
    return _with_times(root, start, end)


def _with_times(node: Node, start: str | None, end: str | None) -> Node:
    if node.complex:
        return replace(node, members=tuple(_with_times(m, start, end) for m in node.members))
    begins = node.fields.get(start) if start else None
    ends = node.fields.get(end) if end else None
    others = {k: v for k, v in node.fields.items() if k not in (start, end)}
    return replace(node, fields=others, start=begins, end=ends)


def _time_columns(root: Node, raw: list[Node]) -> tuple[str | None, str | None]:
    names = [name for name in raw[0].fields if all(name in n.fields for n in raw)] if raw else []
    starts = [name for name in names if _extreme(min, raw, name) == root.start is not None]
    ends = [name for name in names if _extreme(max, raw, name) == root.end is not None]
    both = next((name for name in starts if name in ends), None)
    if both is not None:
        return both, both
    return next(iter(starts), None), next(iter(ends), None)


def _extreme(of: Any, raw: list[Node], name: str) -> Any:
    try:
        return of(node.fields[name] for node in raw)
    except TypeError:  # values that have no order, or none at all
        return None


def typed(root: Node, types: Mapping[tuple[str, ...], str]) -> Node:
    """The same tree with the types of events, known by the variables that lead to them."""
    return replace(
        root,
        type=types.get(root.path, root.type),
        members=tuple(typed(member, types) for member in root.members),
    )
