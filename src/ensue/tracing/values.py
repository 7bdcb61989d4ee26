"""Values and times as a person reads them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ensue.tracing.members import Node

_WIDEST = 28  # characters of a value


def shown(value: Any) -> str:
    """A value, short.

    >>> shown(0.1 + 0.2), shown("x" * 40)
    ('0.3', 'xxxxxxxxxxxxxxxxxxxxxxxxxxx…')
    """
    match value:
        case bool():
            text = "true" if value else "false"
        case float():
            text = f"{value:.6g}"
        case datetime():
            text = clock(value)
        case _:
            text = " ".join(str(value).split())
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def clock(time: Any, day: bool = False) -> str:
    """A time of day, with the day if asked; a number as it is.

    >>> clock(datetime(2026, 3, 2, 9, 5, 1, 250000)), clock(datetime(2026, 3, 2, 9), day=True)
    ('09:05:01.25', '2026-03-02 09:00:00')
    """
    if not isinstance(time, datetime):
        return shown(time)
    fraction = f".{time.microsecond:06}".rstrip("0") if time.microsecond else ""
    return f"{time:%Y-%m-%d %H:%M:%S}{fraction}" if day else f"{time:%H:%M:%S}{fraction}"


def times(node: Node, days: bool) -> str:
    """When an event was: a moment, or from when to when."""
    if node.start is None:
        return ""
    if node.end is None or node.end == node.start:
        return clock(node.start, days)
    return f"{clock(node.start, days)} to {clock(node.end, days)}"


def several_days(root: Node) -> bool:
    """Whether the day belongs to each time."""
    first, last = root.start, root.end
    return (
        isinstance(first, datetime) and isinstance(last, datetime) and first.date() != last.date()
    )


def telling(node: Node, known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields worth showing: single values that the events above do not say already.

    >>> telling(Node("a", {"symbol": "X", "price": 3, "note": None}), {"symbol": "X"})
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


def said_below(node: Node, known: Mapping[str, Any]) -> dict[str, Any]:
    """What need not be said of the members: fields that the event and all of them share.

    >>> members = (Node("a", {"symbol": "X", "price": 3}), Node("b", {"symbol": "X", "price": 4}))
    >>> said_below(Node("x", {"symbol": "X", "price": 4}, members=members), {})
    {'symbol': 'X'}
    """
    every = {**known, **node.fields}
    return {
        name: value
        for name, value in every.items()
        if all(member.fields.get(name, value) == value for member in node.members)
    }


def listed(fields: Mapping[str, Any], room: int) -> str:
    """As many fields as there is room for.

    >>> listed({"price": 3, "volume": 1200}, 19), listed({"price": 3, "volume": 1200}, 40)
    ('price 3, …', 'price 3, volume 1200')
    """
    return _fitting((f"{name} {shown(value)}" for name, value in fields.items()), room)


def _fitting(parts: Iterable[str], room: int) -> str:
    text = ""
    for part in parts:
        longer = f"{text}, {part}" if text else part
        if len(longer) > room:
            return f"{text}, …" if text else ""
        text = longer
    return text
