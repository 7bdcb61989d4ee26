"""*Why not?* for a subscription over a table: how far its events got, and what stopped them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ensue.algebra.check.subscription_fields import check_fields
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import (
    Atomic,
    Expression,
    FieldOf,
    Placed,
    Region,
    Subscription,
    parts_of,
)
from ensue.algebra.values import instant, microseconds
from ensue.columns.location import places_of
from ensue.columns.region_shapes import made
from ensue.columns.stream import Shape, in_order
from ensue.engine.reference_events import events_of
from ensue.errors import QueryError
from ensue.languages.language import NO_REGIONS
from ensue.languages.opsl import parse
from ensue.languages.table import PATTERNS, language_named, language_of
from ensue.plan.subscriptions.joins import roots_of
from ensue.schema import Kind
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Corners, Stream, Time
from ensue.semantics.why_not import MOST_CANDIDATES, MOST_STEPS, WhyNot, why_not
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.routing.asked import Readers
from ensue.workload.subscriptions.routing.fields import Fields

MOST_EVENTS = 50_000  # the newest, that are looked at

_EPOCH = instant(datetime(1970, 1, 1))


def why_not_of(
    events: pa.Table,
    shape: Shape,
    text: str,
    regions: Mapping[str, str] = NO_REGIONS,
    *,
    language: str | None = None,
    now: datetime | float | None = None,
    ended: bool = False,
    most_events: int = MOST_EVENTS,
    most_steps: int = MOST_STEPS,
    most_candidates: int = MOST_CANDIDATES,
) -> WhyNot:
    """Why a subscription has not found more in events of a shape, of which the newest are taken.

    `now` is how far time has come, the end of the last event unless it is said: what may still
    become a match waits. `ended`: nothing follows, so nothing waits.
    """
    subscription = _read(text, regions, language)
    try:
        columns = _columns(subscription, shape)
    except QueryError as error:
        raise error.at(None, text) from None
    ordered = in_order(events, shape, "drop")
    older = max(0, ordered.num_rows - most_events)
    stream = _stream(ordered.slice(older), shape, columns)
    come = None if ended else _come(now, stream)
    found = why_not(
        subscription, stream, now=come, most_steps=most_steps, most_candidates=most_candidates
    )
    return replace(found, cut=found.cut or older > 0)


def _read(text: str, regions: Mapping[str, str], language: str | None) -> Subscription:
    read = language_of(text) if language is None else language_named(language)
    if read is PATTERNS:
        raise QueryError(
            "why not? is answered for subscriptions in OPSL, and this one is a pattern",
            hint="ask parts of it: match its first events alone, then one more at a time",
        )
    return parse(text, regions)


# ---------------------------------------------------------------------------- does it fit?


def _columns(subscription: Subscription, shape: Shape) -> dict[str, str]:
    """The columns of the fields that are read. QueryError where it does not fit the events."""
    check_fields(subscription, shape.schema)
    roots_of(subscription, Fleet(shape).units)  # lengths and moments
    fields = Fields(shape)
    readers = Readers(fields, shape.unit)
    found = {}
    for expression in _expressions(subscription):
        if isinstance(expression, Placed) and isinstance(expression.place, Region):
            made(expression.place, shape.schema.space)
        for predicate in expression.predicates if isinstance(expression, Atomic) else ():
            found[predicate.name] = fields.of(predicate).column
            if isinstance(predicate.value, FieldOf):
                other = replace(predicate, name=predicate.value.name, span=predicate.value.span)
                found[other.name] = fields.of(other).column
            else:
                readers.read(EventTest((predicate,)))
    return found


def _expressions(subscription: Subscription) -> Iterator[Expression]:
    left = [subscription.root, *subscription.variables.values()]
    while left:
        expression = left.pop()
        yield expression
        left += parts_of(expression)


# ---------------------------------------------------------------------------------- events


def _stream(table: pa.Table, shape: Shape, columns: Mapping[str, str]) -> Stream:
    """The events in order, as the semantics sees them."""
    schema = shape.schema
    computed = set(columns.values())
    found = events_of(table, schema, shape.unit, computed=computed)
    renamed = {name: column for name, column in columns.items() if name != column}
    if renamed:
        found = [_with(event, renamed) for event in found]
    return Stream(
        found,
        _corners(table, shape),
        schema.space,
        _moments(shape),
        schema.type_column,
        timestamps=schema.time_kind in (Kind.TIMESTAMP, Kind.DATE),
    )


def _with(event: Event, renamed: Mapping[str, str]) -> Event:
    more = {name: event.values[column] for name, column in renamed.items()}
    return replace(event, values={**event.values, **more})


def _corners(table: pa.Table, shape: Shape) -> dict[int, Corners]:
    if shape.schema.location is None:
        return {}
    places = places_of(table, shape.schema)
    corners = list(zip(places.x.tolist(), places.y.tolist(), strict=True))
    rows = enumerate(pairwise(places.first.tolist()))
    return {row: tuple(corners[first:last]) for row, (first, last) in rows if first < last}


def _moments(shape: Shape) -> Callable[[Any], Time]:
    calendar = shape.schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
    return _nanoseconds if calendar else lambda at: at


def _nanoseconds(at: date) -> int:
    return 1_000 * microseconds(instant(at) - _EPOCH)


def _come(now: datetime | float | None, stream: Stream) -> Time | None:
    """How far time has come."""
    if now is None:
        return max((event.end for event in stream.events), default=None)
    return _nanoseconds(now) if isinstance(now, datetime) else now
