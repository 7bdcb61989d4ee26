"""The lineage of a match as text: a tree of events, and a timeline for terminals."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ensue.lineage.members import MemberNode, sort_by_time
from ensue.lineage.time_axis import TimeAxis, format_time
from ensue.svg import cut_text

TREE_WIDTH, TIMELINE_WIDTH = 99, 80
_MAX_LISTED = 8  # events of one variable
_LISTED_ENDS = 3  # at each end of a longer list
_MAX_VALUE = 28  # characters of a value
_MAX_NAME = 28  # characters of a name beside a timeline


# ----------------------------------------------------------------------------------- values


def format_value(value: Any) -> str:
    """Formats a value, cut if it is long.

    >>> format_value(0.1 + 0.2), format_value("x" * 40)
    ('0.3', 'xxxxxxxxxxxxxxxxxxxxxxxxxxx…')
    """
    match value:
        case bool():
            text = "true" if value else "false"
        case float() | datetime():
            text = format_time(value)
        case _:
            text = " ".join(str(value).split())
    return cut_text(text, _MAX_VALUE)


def format_times(node: MemberNode, days: bool) -> str:
    """Formats the time of an event, or its start and end."""
    if node.start is None:
        return ""
    if node.end is None or node.end == node.start:
        return format_time(node.start, days)
    return f"{format_time(node.start, days)} to {format_time(node.end, days)}"


def spans_days(root: MemberNode) -> bool:
    """Returns whether a match spans several days, so that times need their day."""
    days = [time.date() for time in (root.start, root.end) if isinstance(time, datetime)]
    return len(set(days)) > 1


def select_fields(node: MemberNode, known: Mapping[str, Any]) -> dict[str, Any]:
    """Selects single values that are not known from the events above.

    >>> select_fields(MemberNode("a", {"symbol": "X", "price": 3, "note": None}), {"symbol": "X"})
    {'price': 3}
    """
    return {
        name: value
        for name, value in node.fields.items()
        if value is not None
        and not isinstance(value, Mapping | list | tuple | bytes)
        and not (name in known and known[name] == value)
        and not (isinstance(value, str) and value == node.type)
        and not (isinstance(value, datetime) and value in (node.start, node.end))
    }


def inherit_fields(node: MemberNode, known: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that an event shares with all its members.

    >>> members = tuple(MemberNode("a", {"symbol": "X", "price": p}) for p in (3, 4))
    >>> inherit_fields(MemberNode("x", {"symbol": "X", "price": 4}, members=members), {})
    {'symbol': 'X'}
    """
    fields = {**known, **node.fields}.items()
    return {n: v for n, v in fields if all(m.fields.get(n, v) == v for m in node.members)}


def format_fields(fields: Mapping[str, Any], room: int) -> str:
    """Formats as many fields as there is room for.

    >>> format_fields({"price": 3, "volume": 1200}, 19)
    'price 3, …'
    """
    text = ""
    for name, value in fields.items():
        longer = f"{text}{', ' if text else ''}{name} {format_value(value)}"
        if len(longer) > room:
            return f"{text}, …" if text else ""
        text = longer
    return text


def format_more(count: int) -> str:
    """Formats the number of events that are left out."""
    return f"… and {count} more"


def shorten_members(members: Sequence[MemberNode]) -> list[MemberNode | int]:
    """Replaces the middle of long lists by the number of events left out.

    >>> many = [MemberNode(f"a[{n}]", {}, path=("a",)) for n in range(1, 21)]
    >>> [m if isinstance(m, int) else m.variable for m in shorten_members(many)]
    ['a[1]', 'a[2]', 'a[3]', 14, 'a[18]', 'a[19]', 'a[20]']
    """
    shown: list[MemberNode | int] = []
    for path in dict.fromkeys(member.path for member in members):
        group = [member for member in members if member.path == path]
        if len(group) > _MAX_LISTED:
            left_out = len(group) - 2 * _LISTED_ENDS
            shown += [*group[:_LISTED_ENDS], left_out, *group[-_LISTED_ENDS:]]
        else:
            shown += group
    return shown


def list_by_time(members: Sequence[MemberNode]) -> list[MemberNode | str]:
    """Lists members in the order of time, with texts for those left out.

    >>> many = [MemberNode(f"a[{n}]", {}, n, n, path=("a",)) for n in range(1, 21)]
    >>> late = MemberNode("b", {}, 2, 2, path=("b",))
    >>> [m if isinstance(m, str) else m.variable for m in list_by_time([*many, late])]
    ['a[1]', 'a[2]', 'b', 'a[3]', '… and 14 more of a', 'a[18]', 'a[19]', 'a[20]']
    """
    timed: list[tuple[Any, MemberNode | str]] = []
    start, variable = None, ""
    for member in shorten_members(sort_by_time(members)):
        if isinstance(member, MemberNode):
            start, variable = member.start, member.path[-1]
            timed.append((start, member))
        else:
            timed.append((start, f"{format_more(member)} of {variable}"))
    if not any(start is None for start, _ in timed):
        timed.sort(key=lambda entry: entry[0])
    return [member for _, member in timed]


def name_node(node: MemberNode, separator: str = " ") -> str:
    """Names an event by its variable and type, and the match itself by its type."""
    return separator.join(filter(None, (node.variable, node.type))) or "match"


def format_tree(root: MemberNode, width: int = TREE_WIDTH) -> str:
    """Formats a match and its members as a tree, one line for each event."""
    days = spans_days(root)
    rows = list(_list_tree_rows(root, "", "", {}))
    nodes = [(lead + name_node(n, "  "), n) for lead, n, _ in rows if isinstance(n, MemberNode)]
    name_width = max(len(name) for name, _ in nodes)
    times_width = max((len(format_times(n, days)) for _, n in nodes if n.variable), default=0)
    lines = []
    for lead, node, fields in rows:
        if isinstance(node, str):
            lines.append(f"{lead}{node}")
            continue
        times = format_times(node, days)
        if not node.variable and root.start is not None:
            times = f"{format_time(root.start, day=True)} to {format_time(root.end, days)}"
        head = f"{lead}{name_node(node, '  ')}".ljust(name_width)
        head = f"{head}  {times.ljust(times_width)}" if times_width else head
        shown = format_fields(fields, max(20, width - len(head) - 2))
        lines.append(f"{head}  {shown}".rstrip())
    return "\n".join(lines)


def _list_tree_rows(
    node: MemberNode, lead: str, indent: str, known: Mapping[str, Any]
) -> Iterator[tuple[str, MemberNode | str, dict[str, Any]]]:
    """Yields the text before each event, the event or the note in its place, and its fields."""
    yield lead, node, select_fields(node, known)
    known = inherit_fields(node, known)
    members = shorten_members(node.members)
    for number, member in enumerate(members, 1):
        branch, further = ("└─ ", "   ") if number == len(members) else ("├─ ", "│  ")
        if isinstance(member, int):
            yield f"{indent}{branch}", format_more(member), {}
        else:
            yield from _list_tree_rows(member, indent + branch, indent + further, known)


def format_timeline(root: MemberNode, width: int = TIMELINE_WIDTH) -> str:
    """Formats bars for complex events and dots for input events over a time axis."""
    rows = list(_list_timeline_rows(root, 0))
    if root.start is None:
        return "\n".join(name for name, _ in rows)
    room = min(_MAX_NAME, max(len(name) for name, _ in rows))
    length = max(20, width - room - 2)
    axis = TimeAxis(root.start, root.end, 0, length - 1)
    lines = [(name, "") if node is None else (cut_text(name, room), _format_bar(node, axis)) for name, node in rows]
    lines += [("", line) for line in _format_axis(axis, length)]
    return "\n".join(f"{name:<{room}}  {line}".rstrip() for name, line in lines)


def _list_timeline_rows(node: MemberNode, depth: int) -> Iterator[tuple[str, MemberNode | None]]:
    yield "  " * depth + name_node(node), node
    for member in list_by_time(node.members):
        if isinstance(member, str):
            yield "  " * (depth + 1) + member, None
        else:
            yield from _list_timeline_rows(member, depth + 1)


def _format_bar(node: MemberNode, axis: TimeAxis) -> str:
    if node.start is None:
        return ""
    left = round(axis.locate(node.start))
    right = round(axis.locate(node.end)) if node.end is not None else left
    if not node.complex and left == right:
        return " " * left + "●"
    return " " * left + ("├" + "─" * (right - left - 1) + "┤" if right > left else "│")


def _format_axis(axis: TimeAxis, length: int) -> list[str]:
    """Formats the ticks of an axis, and below each its label where there is room."""
    ticks, labels, free = ["─"] * length, "", 0
    for time, label in axis.list_ticks(max(2, length // 12)):
        position = round(axis.locate(time))
        ticks[position] = "┴"
        begin = min(max(0, position - len(label) // 2), length - len(label))
        if begin >= free:
            labels = labels.ljust(begin) + label
            free = len(labels) + 1
    return ["".join(ticks), labels]
