"""Explains how a set of subscriptions runs."""

import math
from collections import Counter
from collections.abc import Iterator

from ensue.ir.subscription import EventTest
from ensue.ir.values import format_duration
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.query_template import QueryTemplate
from ensue.operators.subscriptions.subscription_set import SubscriptionSet, compile_subscription_set
from ensue.operators.subscriptions.template_table import is_pattern
from ensue.options import Limits
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.planner.explain.plan_text import explain_plan
from ensue.planner.subscription_network import (
    NetworkAbsence,
    NetworkFilter,
    NetworkJoin,
    NetworkLeaf,
    NetworkNode,
    plan_network,
)
from ensue.runtime.query_spec import ArchiveSet, RunOptions, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.schema import ValueKind

FEW = 8  # with at most this many subscriptions, the nodes of each are listed
MOST_SHAPES = 8  # templates whose plans are shown
MOST_NAMES = 5  # in a list


class SubscriptionsExplainer:
    """Explains which subscriptions of a set share what, and how each runs on known events."""

    def __init__(
        self, subscribed: SubscriptionsSpec, source: SourceSchema | None, options: RunOptions, _archive_set: ArchiveSet
    ) -> None:
        self.subscribed, self.source, self.limits = subscribed, source, options.planning.limits

    def explain(self) -> str:
        """The plan as text."""
        subscribed, source = self.subscribed, self.source
        changes = [change for _, change in subscribed.log.alive(subscribed.version)]
        if source is None:
            patterns = sum(map(is_pattern, changes))
            return (
                f"subscriptions  {len(changes)}, at version {subscribed.version}: "
                f"{len(changes) - patterns} in OPSL, {patterns} in the pattern language\n"
                "  how they are run depends on the events: ensue.explain(subscriptions, events)"
            )
        subscriptions = compile_subscription_set(subscribed, source)
        sections = [list(_summarize(subscriptions, subscribed, self.limits))]
        if len(changes) <= FEW:
            sections += [list(_explain_nodes(c, subscriptions)) for c in changes if not is_pattern(c)]
        templates = [s for s in subscriptions.patterns.shapes.values() if s.mode.alone is None]
        sections += [list(_explain_template(shape, subscriptions)) for shape in templates[:MOST_SHAPES]]
        if len(templates) > MOST_SHAPES:
            sections.append([f"... and {len(templates) - MOST_SHAPES} templates more"])
        sections.append(list(_explain_separate(subscriptions)))
        return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _summarize(subscriptions: SubscriptionSet, subscribed: SubscriptionsSpec, limits: Limits) -> Iterator[str]:
    patterns = subscriptions.patterns
    templates = [s for s in patterns.shapes.values() if s.mode.alone is None]
    shared = sum(template.users for template in templates)
    place = "in memory" if subscribed.folder is None else "in a folder"
    version = subscribed.version
    yield f"subscriptions  {len(subscriptions)}, at version {version} of a log {place}"
    yield f"  on nodes     {len(subscriptions.members)}"
    yield f"  in templates {shared}, as {_count(len(templates), 'plan')}"
    yield f"  separately   {len(patterns) - shared}"
    counters = subscriptions.counters()
    saved = subscriptions.nodes.requests - counters["nodes"]
    yield (
        f"nodes          {counters['nodes']}, {counters['leaves']} of them leaves; used "
        f"{subscriptions.nodes.requests} times, so sharing saved {saved}"
    )
    counted = Counter(subscriptions.index.paths()).most_common()
    paths = ", ".join(f"{count} by {path}" for path, count in counted)
    atoms = _count(len(subscriptions.index), "atom")
    yield f"index          {atoms}{': ' * bool(paths)}{paths}"
    most = limits.max_partial_matches
    yield "limits         " + ("as memory allows" if most is None else f"{most} partial matches of each engine")


# --------------------------------------------------------------------------------- nodes


def _explain_nodes(change: SubscriptionChange, subscriptions: SubscriptionSet) -> Iterator[str]:
    assert change.text is not None
    yield f"'{change.name}' on nodes"
    for root in plan_network(parse_subscription(change.text, change.regions), subscriptions.units):
        yield from _explain_node(root.node, subscriptions, 1)


def _explain_node(node: NetworkNode, subscriptions: SubscriptionSet, depth: int) -> Iterator[str]:
    blank = "  " * depth
    shared = _users(subscriptions.nodes.count_users(node.key))
    match node:
        case NetworkLeaf(test):
            yield f"{blank}event {_describe_test(test)}{shared}"
        case NetworkFilter(child, tests):
            yield f"{blank}values that pass {_count(len(tests), 'test')}{shared}"
            yield from _explain_node(child, subscriptions, depth + 1)
        case NetworkJoin(left, right, tests):
            waits = " and ".join(
                f"the {side} waits {_length(length, subscriptions)}"
                for side, length in (("first", node.left_waits), ("second", node.right_waits))
            )
            yield f"{blank}pairs that pass {_count(len(tests), 'test')}: {waits}{shared}"
            yield from _explain_node(left, subscriptions, depth + 1)
            yield from _explain_node(right, subscriptions, depth + 1)
        case NetworkAbsence(child):
            waits = f"forbidding events wait {_length(node.bars_wait, subscriptions)}"
            yield f"{blank}absence, decided when its interval has passed: {waits}{shared}"
            if child is not None:
                yield from _explain_node(child, subscriptions, depth + 1)
            for bar in node.bars:
                yield f"{blank}  forbidden:"
                yield from _explain_node(bar.node, subscriptions, depth + 2)


def _users(users: int) -> str:
    return f" (shared by {users})" if users > 1 else ""


def _describe_test(test: EventTest) -> str:
    parts = [f"{p.name} {p.operator} {p.value!r}" for p in test.predicates]
    parts += [f"{place.where.value} a region" for place in test.places]
    return ", ".join(parts) or "any"


def _length(waits: float, subscriptions: SubscriptionSet) -> str:
    if waits < 0:
        return "for none"
    if math.isinf(waits):
        return "forever"
    if subscriptions.shape.schema.time_kind not in (ValueKind.TIMESTAMP, ValueKind.DATE):
        return f"{waits:g}"
    scale = 1 if subscriptions.shape.unit == "ns" else 1_000
    return format_duration(round(waits) * scale)


# --------------------------------------------------------------------------------- shapes


def _explain_template(shape: QueryTemplate, subscriptions: SubscriptionSet) -> Iterator[str]:
    names = [m.name for m in subscriptions.patterns.members.values() if m.shape is shape]
    yield (f"one plan for {_count(len(names), 'subscription')} of a template, over the events that are routed to them")
    yield f"  {_quote_names(names)}"
    yield f"  constants: {', '.join(kind.value for kind in shape.kinds) or 'none'}"
    yield from (f"  {line}".rstrip() for line in explain_plan(shape.plan).splitlines())


def _explain_separate(subscriptions: SubscriptionSet) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for member in subscriptions.patterns.members.values():
        if member.shape.mode.alone is not None:
            reasons.setdefault(member.shape.mode.alone, []).append(member.name)
    if reasons:
        yield "on separate engines"
    for reason, names in reasons.items():
        yield f"  {_quote_names(names)}: {reason}"


def _quote_names(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, ... ({len(names)})"


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
