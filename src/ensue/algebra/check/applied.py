"""Operators in a pattern against the events they are for: what they read, what they give."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from ensue.algebra.form import is_event, is_input, is_result
from ensue.algebra.operator import TIMES
from ensue.algebra.pattern import Apply, Pattern, Reading
from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import origins, results, rewrite
from ensue.errors import QueryError, did_you_mean
from ensue.schema import EventType, Kind, Schema

READABLE = (
    Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DATE,
    Kind.DURATION, Kind.STRING, Kind.NULL,
)  # fmt: skip


def check_operators(query: Query) -> None:
    """What operators ask of the rest of a query, as far as that needs no schema."""
    applied = next(results(query.pattern), None)
    if applied is None:
        return
    others = sorted(s.value for s in query.strategies - {Strategy.ANY})
    if others:
        raise QueryError(
            f"{others[0]} cannot be combined with an operator ({applied.operator.name})",
            hint="leave out the strategy: every combination of events is tried",
            span=applied.span,
        )
    made = {one.variable: one for one in results(query.pattern)}
    if query.after is not None and query.after.variable in made:
        inputs = [p.variable for p in made[query.after.variable].inputs if is_event(p)]
        raise QueryError(
            f"'{query.after.variable}' is a result, so there is no event to skip to",
            hint=did_you_mean(query.after.variable, inputs),
            span=query.after.span,
        )


def time_of(schema: Schema) -> Kind:
    """The kind of a result's start and end."""
    plainer = {Kind.DATE: Kind.TIMESTAMP, Kind.DECIMAL: Kind.FLOAT}
    return plainer.get(schema.time_kind, schema.time_kind)


def result_types(
    pattern: Pattern, types: Mapping[str, EventType], schema: Schema
) -> dict[str, EventType]:
    """What results have, by variable: times, attributes, and the fields of their only event."""
    found: dict[str, EventType] = {}
    sources = origins(pattern)
    for applied in results(pattern):
        fields: dict[str, Kind] = {}
        if applied.variable in sources:
            fields |= types[sources[applied.variable]].fields
        fields |= dict.fromkeys(TIMES, time_of(schema))
        fields |= dict(applied.operator.z)
        found[applied.variable] = EventType(f"result of {applied.operator.name}", fields)
    return found


def resolved(pattern: Pattern, types: Mapping[str, EventType], schema: Schema) -> Pattern:
    """The pattern with what its operators read; `types` are those of events and results."""

    def fill(node: Pattern) -> Pattern:
        if not is_result(node):
            return node
        _check_parameters(node, schema)
        reads = tuple(_reads(node, k, types) for k in range(len(node.inputs)))
        return replace(node, reads=reads, time=time_of(schema))

    return rewrite(pattern, fill)


def _reads(node: Apply, k: int, types: Mapping[str, EventType]) -> tuple[Reading, ...]:
    part = node.inputs[k]
    assert is_input(part)
    fields = types[part.variable].fields
    for name in sorted(node.operator.takes[k] - set(TIMES)):
        if name not in fields:
            raise QueryError(
                f"{node.operator.name} reads '{name}', which {part.variable} "
                f"({types[part.variable].name}) does not have",
                hint=did_you_mean(name, fields),
                span=part.span,
            )
    found = []
    for name, kind in fields.items():
        if name in TIMES or name not in node.operator.reads:
            continue
        if kind not in READABLE:
            raise QueryError(
                f"{node.operator.name} reads {part.variable}.{name}, a nested or binary value",
                hint="operators read numbers, times, durations, strings and truth values",
                span=part.span,
            )
        found.append(Reading(name, name, kind))
    return tuple(found)


def _check_parameters(node: Apply, schema: Schema) -> None:
    for parameter in node.parameters:
        if isinstance(parameter.value, timedelta) and schema.time_kind.numeric:
            raise QueryError(
                f"the time column {schema.end} holds numbers, which have no unit",
                hint="give the length in the same numbers, as in 300",
                span=parameter.span,
            )


def with_tick(pattern: Pattern, tick: int) -> Pattern:
    """The pattern with how fine the times and durations of its results are."""

    def set_tick(node: Pattern) -> Pattern:
        return replace(node, tick=tick) if is_result(node) else node

    return rewrite(pattern, set_tick) if any(results(pattern)) else pattern


def result_columns(
    pattern: Pattern, places: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, str]]:
    """The columns of the fields that results have from their only event; `places` of events."""
    found: dict[str, dict[str, str]] = {}
    sources = origins(pattern)
    for applied in results(pattern):
        own = (*TIMES, *(name for name, _ in applied.operator.z))
        fields = places.get(sources.get(applied.variable, ""), {})
        found[applied.variable] = {f: c for f, c in fields.items() if f not in own}
    return found


def read_from(pattern: Pattern, places: Mapping[str, Mapping[str, str]]) -> Pattern:
    """The pattern whose operators read columns."""

    def renamed(node: Pattern) -> Pattern:
        if not is_result(node):
            return node
        reads = tuple(
            tuple(replace(r, column=places[part.variable].get(r.field, r.field)) for r in fields)
            for part, fields in zip(node.inputs, node.reads, strict=True)
            if is_input(part)
        )
        return replace(node, reads=reads)

    return rewrite(pattern, renamed)


def read(pattern: Pattern) -> set[str]:
    """The columns that the operators of a pattern read."""
    return {
        reading.column
        for applied in results(pattern)
        for fields in applied.reads
        for reading in fields
    }


def arguments(node: Apply) -> tuple[object, ...]:
    """The constants as the functions get them: a duration is a number of nanoseconds.

    >>> from ensue.algebra.operator import operator
    >>> from ensue.algebra.pattern import Atom
    >>> from ensue.algebra.predicate import Literal
    >>> near = operator("near", q=lambda a, b, within: b.start - a.start <= within)
    >>> parts = Atom("A", "a"), Atom("B", "b")
    >>> arguments(Apply(near, parts, (Literal(timedelta(minutes=1)),), "n"))
    (60000000000,)
    """
    return tuple(
        p.value // timedelta(microseconds=1) * 1000 if isinstance(p.value, timedelta) else p.value
        for p in node.parameters
    )
