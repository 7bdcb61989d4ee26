"""How a set of subscriptions is run, in words."""

import math
from collections import Counter
from collections.abc import Iterator

from ensue.algebra.durations import show_duration
from ensue.algebra.event_test import EventTest
from ensue.languages.opsl import parse
from ensue.plan.limits import Limits
from ensue.plan.show.explain import explain
from ensue.plan.subscriptions.joins import roots_of
from ensue.plan.subscriptions.nodes import Absence, Join, Leaf, Node, Sieve
from ensue.schema import Kind
from ensue.workload.source import Source
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.fleet import Fleet, fleet_of
from ensue.workload.subscriptions.routing.index import AtomIndex
from ensue.workload.subscriptions.shapes.shape import PatternShape
from ensue.workload.subscriptions.shapes.table import is_pattern
from ensue.workload.subscriptions.subscribed import Subscribed

FEW = 8  # subscriptions whose nodes are listed one by one
MOST_SHAPES = 8  # whose plans are shown
MOST_NAMES = 5  # in a list


class ExplainedSubscriptions:
    """A set that is looked at, with the events that it is for if they are known."""

    def __init__(self, subscribed: Subscribed, source: Source | None, limits: Limits) -> None:
        self.subscribed = subscribed
        self.limits = limits
        self.source = source

    def told(self) -> str:
        """What shares what, and what runs how."""
        changes = [change for _, change in self.subscribed.log.alive(self.subscribed.version)]
        if self.source is None:
            patterns = sum(map(is_pattern, changes))
            return (
                f"subscriptions  {len(changes)}, at version {self.subscribed.version}: "
                f"{len(changes) - patterns} in OPSL, {patterns} in the pattern language\n"
                "  how they are run depends on the events: ensue.explain(fleet, events)"
            )
        fleet = fleet_of(self.subscribed, self.source)
        sections = [list(self._whole(fleet))]
        if len(changes) <= FEW:
            sections += [list(_nodes_of(c, fleet)) for c in changes if not is_pattern(c)]
        shared = [s for s in fleet.patterns.shapes.values() if s.way.alone is None]
        sections += [list(_shape(shape, fleet)) for shape in shared[:MOST_SHAPES]]
        if len(shared) > MOST_SHAPES:
            sections.append([f"... and {len(shared) - MOST_SHAPES} shapes more"])
        sections.append(list(_alone(fleet)))
        return "\n\n".join("\n".join(lines) for lines in sections if lines)

    def _whole(self, fleet: Fleet) -> Iterator[str]:
        patterns = fleet.patterns
        shared = sum(s.users for s in patterns.shapes.values() if s.way.alone is None)
        shapes = sum(1 for s in patterns.shapes.values() if s.way.alone is None)
        place = "in memory" if self.subscribed.folder is None else "in a folder"
        yield f"subscriptions  {len(fleet)}, at version {self.subscribed.version} of a log {place}"
        yield f"  on nodes     {len(fleet.members)}"
        yield f"  in shapes    {shared}, as {_several(shapes, 'plan')}"
        yield f"  on their own {len(patterns) - shared}"
        counted = fleet.counters()
        saved = fleet.nodes.asked - counted["nodes"]
        yield (
            f"nodes          {counted['nodes']}, {counted['leaves']} of them leaves; asked for "
            f"{fleet.nodes.asked} times, so sharing saved {saved}"
        )
        paths = ", ".join(f"{count} by {path}" for path, count in _paths(fleet.index).items())
        yield f"routing        {_several(len(fleet.index), 'atom')}{': ' * bool(paths)}{paths}"
        most = self.limits.max_partial_matches
        yield "limits         " + (
            "as memory allows" if most is None else f"{most} partial matches of each engine"
        )


def _paths(index: AtomIndex) -> dict[str, int]:
    """How many atoms are found by what."""
    return dict(Counter(index.paths()).most_common())


# --------------------------------------------------------------------------------- nodes


def _nodes_of(change: Change, fleet: Fleet) -> Iterator[str]:
    assert change.text is not None
    yield f"'{change.name}' on nodes"
    for root in roots_of(parse(change.text, change.regions), fleet.units):
        yield from _node(root.node, fleet, 1)


def _node(node: Node, fleet: Fleet, depth: int) -> Iterator[str]:
    blank = "  " * depth
    shared = "" if (row := fleet.nodes.rows.get(node.key)) is None else _users(row.users)
    match node:
        case Leaf(test):
            yield f"{blank}event {_test(test)}{shared}"
        case Sieve(child, tests):
            yield f"{blank}those that pass {_several(len(tests), 'test')}{shared}"
            yield from _node(child, fleet, depth + 1)
        case Join(left, right, tests):
            waits = " and ".join(
                f"the {side} waits {_length(length, fleet)}"
                for side, length in (("first", node.left_waits), ("second", node.right_waits))
            )
            yield f"{blank}pairs that pass {_several(len(tests), 'test')}: {waits}{shared}"
            yield from _node(left, fleet, depth + 1)
            yield from _node(right, fleet, depth + 1)
        case Absence(child):
            waits = f"what bars waits {_length(node.bars_wait, fleet)}"
            yield f"{blank}absence, told when time has passed its interval: {waits}{shared}"
            if child is not None:
                yield from _node(child, fleet, depth + 1)
            for bar in node.bars:
                yield f"{blank}  barred by"
                yield from _node(bar.node, fleet, depth + 2)


def _users(users: int) -> str:
    return f" (shared by {users})" if users > 1 else ""


def _test(test: EventTest) -> str:
    parts = [f"{p.name} {p.operator} {p.value!r}" for p in test.predicates]
    parts += [f"{place.where.value} a region" for place in test.places]
    return ", ".join(parts) or "any"


def _length(waits: float, fleet: Fleet) -> str:
    if waits < 0:
        return "for none"
    if math.isinf(waits):
        return "for ever"
    if fleet.shape.schema.time_kind not in (Kind.TIMESTAMP, Kind.DATE):
        return f"{waits:g}"
    scale = 1 if fleet.shape.unit == "ns" else 1_000
    return show_duration(round(waits) * scale)


# --------------------------------------------------------------------------------- shapes


def _shape(shape: PatternShape, fleet: Fleet) -> Iterator[str]:
    names = [m.name for m in fleet.patterns.members.values() if m.shape is shape]
    yield (
        f"one plan for {_several(len(names), 'subscription')} of a shape, over the events that "
        "are routed to them"
    )
    yield f"  {_listed(names)}"
    yield f"  constants: {', '.join(kind.value for kind in shape.kinds) or 'none'}"
    yield from (f"  {line}".rstrip() for line in explain(shape.plan).splitlines())


def _alone(fleet: Fleet) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for member in fleet.patterns.members.values():
        if member.shape.way.alone is not None:
            reasons.setdefault(member.shape.way.alone, []).append(member.name)
    if reasons:
        yield "on engines of their own"
    for reason, names in reasons.items():
        yield f"  {_listed(names)}: {reason}"


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, ... ({len(names)})"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
