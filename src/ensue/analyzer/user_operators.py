"""Checks of user-defined operators, and resolution of their inputs and results."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from ensue.errors import QueryError, did_you_mean
from ensue.ir.pattern import OperatorCall, OperatorField, Pattern
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.ir.traits import is_event, is_input, is_operator_call
from ensue.ir.traversal import iterate_operator_calls, map_results_to_events, rewrite_pattern
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.schema import EventType, Schema, ValueKind

READABLE_KINDS = (
    ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL, ValueKind.BOOLEAN, ValueKind.TIMESTAMP, ValueKind.DATE,
    ValueKind.DURATION, ValueKind.STRING, ValueKind.NULL,
)  # fmt: skip


def check_operators(query: Query) -> None:
    """Raises a QueryError if operators cannot be combined with the rest of a query."""
    applied = next(iterate_operator_calls(query.pattern), None)
    if applied is None:
        return
    others = sorted(s.value for s in query.strategies - {Strategy.ANY})
    if others:
        raise QueryError(
            f"{others[0]} cannot be combined with an operator ({applied.operator.name})",
            hint="leave out the strategy: every combination of events is tried",
            span=applied.span,
        )
    calls = {call.variable: call for call in iterate_operator_calls(query.pattern)}
    if query.after is not None and query.after.variable in calls:
        inputs = [p.variable for p in calls[query.after.variable].inputs if is_event(p)]
        raise QueryError(
            f"'{query.after.variable}' is a result, so there is no event to skip to",
            hint=did_you_mean(query.after.variable, inputs),
            span=query.after.span,
        )


def get_result_time_kind(schema: Schema) -> ValueKind:
    """Returns the kind of a result's start and end."""
    computed = {ValueKind.DATE: ValueKind.TIMESTAMP, ValueKind.DECIMAL: ValueKind.FLOAT}
    return computed.get(schema.time_kind, schema.time_kind)


def get_result_types(pattern: Pattern, types: Mapping[str, EventType], schema: Schema) -> dict[str, EventType]:
    """Returns the types of results: times, attributes, and the fields of a single input."""
    types_of_results: dict[str, EventType] = {}
    sources = map_results_to_events(pattern)
    for applied in iterate_operator_calls(pattern):
        fields: dict[str, ValueKind] = {}
        if applied.variable in sources:
            fields |= types[sources[applied.variable]].fields
        fields |= dict.fromkeys(TIME_ATTRIBUTES, get_result_time_kind(schema))
        fields |= dict(applied.operator.z)
        name = f"result of {applied.operator.name}"
        types_of_results[applied.variable] = EventType(name, fields)
    return types_of_results


def resolve_operators(pattern: Pattern, types: Mapping[str, EventType], schema: Schema) -> Pattern:
    """Resolves the fields that operators read; `types` are those of events and results."""

    def fill(node: Pattern) -> Pattern:
        if not is_operator_call(node):
            return node
        _check_parameters(node, schema)
        reads = tuple(_list_read_fields(node, k, types) for k in range(len(node.inputs)))
        return replace(node, reads=reads, time=get_result_time_kind(schema))

    return rewrite_pattern(pattern, fill)


def _list_read_fields(node: OperatorCall, k: int, types: Mapping[str, EventType]) -> tuple[OperatorField, ...]:
    part = node.inputs[k]
    assert is_input(part)
    fields = types[part.variable].fields
    for name in sorted(node.operator.takes[k] - set(TIME_ATTRIBUTES)):
        if name not in fields:
            raise QueryError(
                f"{node.operator.name} reads '{name}', which {part.variable} "
                f"({types[part.variable].name}) does not have",
                hint=did_you_mean(name, fields),
                span=part.span,
            )
    readings = []
    for name, kind in fields.items():
        if name in TIME_ATTRIBUTES or name not in node.operator.reads:
            continue
        if kind not in READABLE_KINDS:
            raise QueryError(
                f"{node.operator.name} reads {part.variable}.{name}, a nested or binary value",
                hint="operators read numbers, times, durations, strings and truth values",
                span=part.span,
            )
        readings.append(OperatorField(name, name, kind))
    return tuple(readings)


def _check_parameters(node: OperatorCall, schema: Schema) -> None:
    for parameter in node.parameters:
        if isinstance(parameter.value, timedelta) and schema.time_kind.numeric:
            raise QueryError(
                f"the time column {schema.end} holds numbers, which have no unit",
                hint="give the length in the same numbers, as in 300",
                span=parameter.span,
            )


def set_resolution(pattern: Pattern, tick: int) -> Pattern:
    """Sets the resolution of the times and durations of results."""

    def set_tick(node: Pattern) -> Pattern:
        return replace(node, tick=tick) if is_operator_call(node) else node

    return rewrite_pattern(pattern, set_tick) if any(iterate_operator_calls(pattern)) else pattern


def get_result_columns(pattern: Pattern, places: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Returns the columns of fields that results inherit; `places` are the columns of events."""
    columns: dict[str, dict[str, str]] = {}
    sources = map_results_to_events(pattern)
    for applied in iterate_operator_calls(pattern):
        own = (*TIME_ATTRIBUTES, *(name for name, _ in applied.operator.z))
        fields = places.get(sources.get(applied.variable, ""), {})
        columns[applied.variable] = {f: c for f, c in fields.items() if f not in own}
    return columns


def bind_operator_columns(pattern: Pattern, places: Mapping[str, Mapping[str, str]]) -> Pattern:
    """Binds the fields that operators read to columns."""

    def renamed(node: Pattern) -> Pattern:
        if not is_operator_call(node):
            return node
        reads = tuple(
            tuple(replace(r, column=places[part.variable].get(r.field, r.field)) for r in fields)
            for part, fields in zip(node.inputs, node.reads, strict=True)
            if is_input(part)
        )
        return replace(node, reads=reads)

    return rewrite_pattern(pattern, renamed)


def get_read_columns(pattern: Pattern) -> set[str]:
    """Returns the columns that the operators of a pattern read."""
    return {
        reading.column for applied in iterate_operator_calls(pattern) for fields in applied.reads for reading in fields
    }


def get_constant_arguments(node: OperatorCall) -> tuple[object, ...]:
    """Returns the constants passed to an operator's functions; durations are in nanoseconds."""
    return tuple(
        p.value // timedelta(microseconds=1) * 1000 if isinstance(p.value, timedelta) else p.value
        for p in node.parameters
    )
