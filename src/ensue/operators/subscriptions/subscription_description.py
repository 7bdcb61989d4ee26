"""Describes how a set of subscriptions runs."""

import math
from collections import Counter
from collections.abc import Iterator

from ensue.ir.subscription import EventTest
from ensue.ir.values import format_duration
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.query_template import QueryTemplate
from ensue.operators.subscriptions.subscription_set import SubscriptionSet, compile_subscription_set
from ensue.operators.subscriptions.template_table import is_pattern
from ensue.options import Limits, format_count
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.planner.explain.plan_description import describe_plan
from ensue.planner.explain.plan_node import PlanNode, Shape
from ensue.planner.subscription_network import (
    NetworkAbsence,
    NetworkFilter,
    NetworkJoin,
    NetworkLeaf,
    NetworkNode,
    plan_network,
)
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.schema import ValueKind

FEW = 8  # with at most this many subscriptions, the nodes of each are listed
MOST_SHAPES = 8  # templates whose plans are shown
MOST_NAMES = 5  # in a list


def describe_subscription_set(subscribed: SubscriptionsSpec, source: SourceSchema, limits: Limits) -> PlanNode:
    """Describes which subscriptions of a set share what, and how each runs on known events."""
    changes = [change for _, change in subscribed.log.alive(subscribed.version)]
    if source.inferred:
        patterns = sum(map(is_pattern, changes))
        return PlanNode(
            f"subscriptions  {len(changes)}, at version {subscribed.version}: "
            f"{len(changes) - patterns} in OPSL, {patterns} in the pattern language",
            lines=("how they are run depends on the events: ensue.explain(subscriptions, events)",),
        )
    subscriptions = compile_subscription_set(subscribed, source)
    sections = [_summarize(subscriptions, subscribed, limits)]
    if len(changes) <= FEW:
        sections += [_describe_network(c, subscriptions) for c in changes if not is_pattern(c)]
    templates = [s for s in subscriptions.patterns.shapes.values() if s.mode.alone is None]
    sections += [_describe_template(shape, subscriptions) for shape in templates[:MOST_SHAPES]]
    if len(templates) > MOST_SHAPES:
        sections.append(PlanNode(f"... and {len(templates) - MOST_SHAPES} templates more"))
    sections += _describe_separate(subscriptions)
    return PlanNode(children=tuple(sections), shape=Shape.PLAN)


def _summarize(subscriptions: SubscriptionSet, subscribed: SubscriptionsSpec, limits: Limits) -> PlanNode:
    patterns, counters = subscriptions.patterns, subscriptions.counters()
    templates = [s for s in patterns.shapes.values() if s.mode.alone is None]
    shared = sum(template.users for template in templates)
    place = "in memory" if subscribed.folder is None else "in a folder"
    requests, nodes, leaves = subscriptions.nodes.requests, counters["nodes"], counters["leaves"]
    counted = Counter(subscriptions.index.paths()).most_common()
    paths = ", ".join(f"{count} by {path}" for path, count in counted)
    most = limits.max_partial_matches
    return PlanNode(
        properties=(
            ("subscriptions", f"{len(subscriptions)}, at version {subscribed.version} of a log {place}"),
            ("  on nodes", f"{len(subscriptions.members)}"),
            ("  in templates", f"{shared}, as {format_count(len(templates), 'plan')}"),
            ("  separately", f"{len(patterns) - shared}"),
            ("nodes", f"{nodes}, {leaves} of them leaves; used {requests} times, so sharing saved {requests - nodes}"),
            ("index", f"{format_count(len(subscriptions.index), 'atom')}{': ' * bool(paths)}{paths}"),
            ("limits", "as memory allows" if most is None else f"{most} partial matches of each engine"),
        )
    )


# --------------------------------------------------------------------------------- nodes


def _describe_network(change: SubscriptionChange, subscriptions: SubscriptionSet) -> PlanNode:
    assert change.text is not None
    roots = plan_network(parse_subscription(change.text, change.regions), subscriptions.units)
    nodes = tuple(_describe_node(root.node, subscriptions) for root in roots)
    return PlanNode(f"'{change.name}' on nodes", children=nodes)


def _describe_node(node: NetworkNode, subscriptions: SubscriptionSet) -> PlanNode:
    def described(text: str, *children: PlanNode) -> PlanNode:
        users = subscriptions.nodes.count_users(node.key)
        return PlanNode(f"{text} (shared by {users})" if users > 1 else text, children=children)

    match node:
        case NetworkLeaf(test):
            return described(f"event {_describe_test(test)}")
        case NetworkFilter(child, tests):
            return described(
                f"values that pass {format_count(len(tests), 'test')}", _describe_node(child, subscriptions)
            )
        case NetworkJoin(left, right, tests):
            waits = " and ".join(
                f"the {side} waits {_length(length, subscriptions)}"
                for side, length in (("first", node.left_waits), ("second", node.right_waits))
            )
            sides = (_describe_node(side, subscriptions) for side in (left, right))
            return described(f"pairs that pass {format_count(len(tests), 'test')}: {waits}", *sides)
        case NetworkAbsence(child):
            waits = f"forbidding events wait {_length(node.bars_wait, subscriptions)}"
            children = [] if child is None else [_describe_node(child, subscriptions)]
            bars = (PlanNode("forbidden:", children=(_describe_node(bar.node, subscriptions),)) for bar in node.bars)
            return described(f"absence, decided when its interval has passed: {waits}", *children, *bars)


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


def _describe_template(shape: QueryTemplate, subscriptions: SubscriptionSet) -> PlanNode:
    names = [m.name for m in subscriptions.patterns.members.values() if m.shape is shape]
    constants = ", ".join(kind.value for kind in shape.kinds) or "none"
    users = format_count(len(names), "subscription")
    return PlanNode(
        f"one plan for {users} of a template, over the events that are routed to them",
        lines=(_quote_names(names), f"constants: {constants}"),
        children=(describe_plan(shape.plan),),
    )


def _describe_separate(subscriptions: SubscriptionSet) -> Iterator[PlanNode]:
    reasons: dict[str, list[str]] = {}
    for member in subscriptions.patterns.members.values():
        if member.shape.mode.alone is not None:
            reasons.setdefault(member.shape.mode.alone, []).append(member.name)
    if reasons:
        lines = tuple(f"{_quote_names(names)}: {reason}" for reason, names in reasons.items())
        yield PlanNode("on separate engines", lines=lines)


def _quote_names(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    return shown if len(names) <= MOST_NAMES else f"{shown}, ... ({len(names)})"
