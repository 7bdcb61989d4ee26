"""Explains why a subscription has no further match in a table: how far events got, and what
stopped them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise

import pyarrow as pa

from ensue.analyzer.subscription import check_subscription_fields
from ensue.diagnostics import MAX_CANDIDATES, MAX_STEPS, WhyNot, why_not
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.ir.subscription import (
    EventAtom,
    EventTest,
    Region,
    SpatialCondition,
    Subscription,
    VariableField,
    iterate_parts,
)
from ensue.ir.values import to_instant, to_microseconds
from ensue.operators.subscriptions.atom_encoder import PredicateReaders
from ensue.operators.subscriptions.field_values import IndexFields
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.parser.registry import NO_REGIONS, PATTERNS, detect_language, get_language
from ensue.planner.subscription_network import plan_network
from ensue.reference.subscription_matches import Corners, ReferenceStream, Time
from ensue.schema import ValueKind
from ensue.vector.event_table import StreamSchema, sort_events
from ensue.vector.geo_columns import read_places
from ensue.vector.geo_regions import build_region

MOST_EVENTS = 50_000  # newest events that are searched

_EPOCH = to_instant(datetime(1970, 1, 1))


def explain_missing_match(
    events: pa.Table,
    shape: StreamSchema,
    text: str,
    regions: Mapping[str, str] = NO_REGIONS,
    *,
    language: str | None = None,
    now: datetime | float | None = None,
    ended: bool = False,
    most_events: int = MOST_EVENTS,
    most_steps: int = MAX_STEPS,
    most_candidates: int = MAX_CANDIDATES,
) -> WhyNot:
    """Explains why a subscription has no further match in the newest events of a table.

    `now` is the current time, by default the end of the last event: partial matches that may
    still complete are waiting. With `ended` no event follows, so none is waiting.
    """
    subscription = _read(text, regions, language)
    try:
        columns = _columns(subscription, shape)
    except QueryError as error:
        raise error.at(None, text) from None
    ordered = sort_events(events, shape, "drop")
    older = max(0, ordered.num_rows - most_events)
    stream = _stream(ordered.slice(older), shape, columns)
    time = None if ended else _current_time(now, stream)
    result = why_not(subscription, stream, now=time, max_steps=most_steps, max_candidates=most_candidates)
    return replace(result, cut=result.cut or older > 0)


def _read(text: str, regions: Mapping[str, str], language: str | None) -> Subscription:
    read = detect_language(text) if language is None else get_language(language)
    if read is PATTERNS:
        raise QueryError(
            "why not? is answered for subscriptions in OPSL, and this one is a pattern",
            hint="match its first events alone, then add one event at a time",
        )
    return parse_subscription(text, regions)


# ---------------------------------------------------------------------------- checks


def _columns(subscription: Subscription, shape: StreamSchema) -> dict[str, str]:
    """Returns the columns of the fields that are read, if all fit the events."""
    check_subscription_fields(subscription, shape.schema)
    plan_network(subscription, SubscriptionSet(shape).units)  # checks lengths and moments
    fields = IndexFields(shape)
    readers = PredicateReaders(fields, shape.unit)
    columns = {}
    for expression in iterate_parts(subscription.root, *subscription.variables.values()):
        if isinstance(expression, SpatialCondition) and isinstance(expression.place, Region):
            build_region(expression.place, shape.schema.space)
        for predicate in expression.predicates if isinstance(expression, EventAtom) else ():
            columns[predicate.name] = fields.get_field(predicate).column
            if isinstance(predicate.value, VariableField):
                other = replace(predicate, name=predicate.value.name, span=predicate.value.span)
                columns[other.name] = fields.get_field(other).column
            else:
                readers.read(EventTest((predicate,)))
    return columns


# ---------------------------------------------------------------------------------- events


def _stream(table: pa.Table, shape: StreamSchema, columns: Mapping[str, str]) -> ReferenceStream:
    """Builds the stream that the reference semantics reads."""
    schema = shape.schema
    computed = set(columns.values())
    converted = read_events(table, schema, shape.unit, computed=computed)
    renamed = {name: column for name, column in columns.items() if name != column}
    if renamed:
        converted = [replace(e, values={**e.values, **{n: e.values[c] for n, c in renamed.items()}}) for e in converted]
    calendar = schema.time_kind in (ValueKind.TIMESTAMP, ValueKind.DATE)
    return ReferenceStream(
        converted,
        _read_corners(table, shape),
        schema.space,
        _nanoseconds if calendar else lambda at: at,
        schema.type_column,
        timestamps=calendar,
    )


def _read_corners(table: pa.Table, shape: StreamSchema) -> dict[int, Corners]:
    if shape.schema.location is None:
        return {}
    places = read_places(table, shape.schema)
    corners = list(zip(places.x.tolist(), places.y.tolist(), strict=True))
    rows = enumerate(pairwise(places.first.tolist()))
    return {row: tuple(corners[first:last]) for row, (first, last) in rows if first < last}


def _nanoseconds(at: date) -> int:
    return 1_000 * to_microseconds(to_instant(at) - _EPOCH)


def _current_time(now: datetime | float | None, stream: ReferenceStream) -> Time | None:
    if now is None:
        return max((event.end for event in stream.events), default=None)
    return _nanoseconds(now) if isinstance(now, datetime) else now
