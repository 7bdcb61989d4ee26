"""A traced match as text: a tree with a line for each event."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ensue.tracing.members import Node, in_time_order
from ensue.tracing.values import clock, listed, said_below, several_days, telling, times

WIDTH = 99
MOST = 8  # of the events of one variable, or of two neighbours of the same kind
_KEPT = 3  # at each end of a longer list


def tree(root: Node, width: int = WIDTH) -> str:
    """The tree, from the match above to the events that came in."""
    return "\n".join(_lines(root, width))


def _lines(root: Node, width: int) -> Iterator[str]:
    days = several_days(root)
    rows = list(_rows(root, "", "", {}))
    widest = max(len(f"{lead}{_name(node)}") for lead, node, _ in rows if node is not None)
    moments = max(
        (len(times(n, days)) for _, n, _ in rows if n is not None and n.variable), default=0
    )
    for lead, node, said in rows:
        if node is None:
            yield f"{lead}{said}"
            continue
        if not node.variable:
            when = f"{clock(root.start, day=True)} to {clock(root.end, days)}"
            when = when if root.start is not None else ""
        else:
            when = times(node, days)
        name = f"{lead}{_name(node)}".ljust(widest)
        head = f"{name}  {when.ljust(moments)}" if moments else name
        fields = listed(said, max(20, width - len(head) - 2))
        yield f"{head}  {fields}".rstrip()


def _rows(
    node: Node, lead: str, below: str, known: Mapping[str, Any]
) -> Iterator[tuple[str, Node | None, Any]]:
    """Each line: what stands before the name, the event, and its fields."""
    fields = telling(node, known)
    yield lead, node, fields
    known = said_below(node, known)
    shown = shortened(node.members)
    for place, member in enumerate(shown):
        last = place == len(shown) - 1
        branch, further = ("└─ ", "   ") if last else ("├─ ", "│  ")
        if isinstance(member, int):
            yield f"{below}{branch}", None, more(member)
        else:
            yield from _rows(member, below + branch, below + further, known)


def more(count: int) -> str:
    """What stands for events that are left out."""
    return f"… and {count} more"


def shortened(members: tuple[Node, ...]) -> list[Node | int]:
    """The members; of a long list the ends, and the number of those between.

    >>> many = tuple(Node(f"a[{n}]", {}, path=("a",)) for n in range(1, 21))
    >>> [m if isinstance(m, int) else m.variable for m in shortened(many)]
    ['a[1]', 'a[2]', 'a[3]', 14, 'a[18]', 'a[19]', 'a[20]']
    """
    found: list[Node | int] = []
    for path in dict.fromkeys(member.path for member in members):
        group = [member for member in members if member.path == path]
        if len(group) > MOST:
            found += [*group[:_KEPT], len(group) - 2 * _KEPT, *group[-_KEPT:]]
        else:
            found += group
    return found


def in_time(members: Sequence[Node]) -> list[Node | str]:
    """The members in the order of time; where some are left out, how many and of which.

    >>> many = [Node(f"a[{n}]", {}, n, n, path=("a",)) for n in range(1, 21)]
    >>> late = Node("b", {}, 2, 2, path=("b",))
    >>> [m if isinstance(m, str) else m.variable for m in in_time([*many, late])]
    ['a[1]', 'a[2]', 'b', 'a[3]', '… and 14 more of a', 'a[18]', 'a[19]', 'a[20]']
    """
    found: list[tuple[Any, Node | str]] = []
    at, last = None, ""
    for member in shortened(tuple(in_time_order(members))):
        if isinstance(member, Node):
            at, last = member.start, member.path[-1]
            found.append((at, member))
        else:
            found.append((at, f"{more(member)} of {last}"))
    if not any(start is None for start, _ in found):
        found.sort(key=lambda one: one[0])
    return [member for _, member in found]


def _name(node: Node) -> str:
    if not node.variable:
        return node.type or "match"
    return f"{node.variable}  {node.type}" if node.type else node.variable
