"""The lineage of a match as text: a tree of events, and a timeline for terminals; and the axes of times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import floor, log10
from typing import Any

from ensue.lineage.trace import MemberNode, sort_by_time
from ensue.svg import cut_text

TREE_WIDTH, TIMELINE_WIDTH = 99, 80
_MAX_LISTED = 8  # events of one variable
_LISTED_ENDS = 3  # at each end of a longer list
_MAX_VALUE = 28  # characters of a value
_MAX_NAME = 28  # characters of a name beside a timeline


# -------------------------------------------------------------------------------- time axes

_SECOND = 1_000_000  # calendar times are counted in microseconds
_DAY = 86_400 * _SECOND
_STEPS = (
    *(factor * 10**power for power in range(6) for factor in (1, 2, 5)),
    *(s * _SECOND for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)),
    *(h * 3600 * _SECOND for h in (3, 6, 12)),
    *(d * _DAY for d in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6, *(12 * factor * 10**power for power in range(4) for factor in (1, 2, 5)))
_MONDAY = datetime(1970, 1, 5)  # weeks begin on Mondays


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times from the first to the last, from left to right."""

    first: Any
    last: Any
    left: float
    width: float

    def locate(self, time: Any) -> float:
        """Returns the position of a time; the middle if the axis has one time only."""
        first, last = to_number(self.first), to_number(self.last)
        share = (to_number(time) - first) / (last - first) if last > first else 0.5
        return self.left + share * self.width

    def list_ticks(self, limit: int = 8) -> list[tuple[Any, str]]:
        """Lists round times of the axis, with their labels.

        >>> [label for _, label in TimeAxis(0, 40, 0, 100).list_ticks(5)]
        ['0', '10', '20', '30', '40']
        >>> [label for _, label in TimeAxis(1_700_000_003, 1_700_000_009, 0, 100).list_ticks(3)]
        ['1700000004', '1700000006', '1700000008']
        """
        if to_number(self.last) <= to_number(self.first):
            return [(self.first, format_time(self.first))]
        if isinstance(self.first, date):
            first, last = _to_datetime(self.first), _to_datetime(self.last)
            return list(_list_calendar_ticks(first, last, limit))
        return list(_list_number_ticks(self.first, self.last, limit))


def to_number(time: Any) -> float:
    """Converts a time to a number; seconds, for dates and timestamps."""
    if isinstance(time, date):
        time = _to_datetime(time)
        return float((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    return float(time)


def format_time(time: Any, day: bool = False) -> str:
    """Formats a time of day, with `day` also its date; a number stays as it is.

    >>> format_time(datetime(2026, 3, 2, 9, 5, 1, 250000))
    '09:05:01.25'
    >>> format_time(datetime(2026, 3, 2, 9), day=True)
    '2026-03-02 09:00:00'
    """
    if isinstance(time, datetime):
        fraction = f".{time.microsecond:06}".rstrip("0") if time.microsecond else ""
        return f"{time:%Y-%m-%d %H:%M:%S}{fraction}" if day else f"{time:%H:%M:%S}{fraction}"
    return f"{time:.6g}" if isinstance(time, float) else str(time)


def _to_datetime(time: Any) -> datetime:
    return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)


def _list_number_ticks(first: Any, last: Any, limit: int) -> Iterator[tuple[Any, str]]:
    """Yields multiples of a round step, computed in decimals, which are exact."""
    begin, end = Decimal(str(first)), Decimal(str(last))
    step = _round_up((end - begin) / limit)
    for number in range(-floor(-begin / step), floor(end / step) + 1):
        tick = (number * step).normalize()
        yield (int(tick) if tick == int(tick) else float(tick)), f"{tick:f}"


def _round_up(length: Decimal) -> Decimal:
    """Rounds a length up to 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** floor(log10(length))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= length)


def _list_calendar_ticks(first: datetime, last: datetime, limit: int) -> Iterator[tuple[datetime, str]]:
    """Yields times that are round on the clock of the events' time zone."""
    begin, end = first.replace(tzinfo=None), last.replace(tzinfo=None)
    if first.tzinfo is not None:
        end = last.astimezone(first.tzinfo).replace(tzinfo=None)
    shortest = (end - begin) / timedelta(microseconds=limit)
    several_days = begin.date() != end.date()
    for local, step in _list_local_times(begin, end, shortest):
        if local > end:
            return
        time = _to_zone(local, first)
        if time.replace(tzinfo=None) == local:  # no clock shows the hour that summer time skips
            yield time, _label_tick(local, step, several_days)


def _list_local_times(begin: datetime, end: datetime, shortest: float) -> Iterator[tuple[datetime, int]]:
    """Yields round times from `begin` on, and their distance in microseconds."""
    step = next((step for step in _STEPS if step >= shortest), None)
    if step is not None:
        length = timedelta(microseconds=step)
        time = begin + (_MONDAY - begin) % length
        while time <= end:
            yield time, step
            time += length
        return
    months = next(months for months in _MONTHS if months * 28 * _DAY >= shortest)
    number = begin.year * 12 + begin.month - 1
    for month_number in range(number + -number % months, end.year * 12 + 12, months):
        year, month = divmod(month_number, 12)
        if (time := datetime(year, month + 1, 1)) >= begin:
            yield time, months * 28 * _DAY


def _to_zone(local: datetime, like: datetime) -> datetime:
    """Returns the time at which a clock of the zone shows `local`."""
    if like.tzinfo is None:
        return local
    offset = like.utcoffset()
    for _ in range(2):  # the zone may have another offset at that time
        assert offset is not None
        time = (local - offset).replace(tzinfo=UTC).astimezone(like.tzinfo)
        offset = time.utcoffset()
    return time


def _label_tick(time: datetime, step: int, several_days: bool) -> str:
    if step >= 28 * _DAY:
        return f"{time:%b %Y}"
    if step >= _DAY or (several_days and not (time.hour or time.minute or time.second)):
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M}" if step >= 60 * _SECOND else format_time(time)


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
