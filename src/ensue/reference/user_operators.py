"""Evaluates user-defined operators on events."""

from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from ensue.analyzer.user_operators import get_constant_arguments
from ensue.errors import OperatorError
from ensue.ir.pattern import OperatorCall, OperatorField, Pattern
from ensue.ir.traits import is_input
from ensue.ir.traversal import iterate_operator_calls
from ensue.ir.user_operator import UserOperator
from ensue.ir.values import to_instant, to_microseconds, to_number
from ensue.reference.conditions import Binding, Event
from ensue.schema import ValueKind

RepeatResults = Mapping[str, Mapping[int, Event]]  # by variable, then by the position of the event

_EPOCH = datetime(1970, 1, 1)
_IN_NANOSECONDS = (ValueKind.TIMESTAMP, ValueKind.DURATION)


def apply_operator(applied: OperatorCall, inputs: Sequence[Event], members: tuple[Event, ...]) -> Event | None:
    """Returns the result of an operator on its inputs, or None if Q is false."""
    views = [build_view(applied, k, event) for k, event in enumerate(inputs)]
    if any(v is None for v in views) or not _evaluate_q(applied, views):
        return None
    return _result(applied, views, inputs, members)


def apply_repeat(applied: OperatorCall, events: Iterable[Event]) -> dict[int, Event]:
    """Returns the results of a repeat by position: at the first event, then where Q is true."""
    results_: dict[int, Event] = {}
    last = None
    for event in events:
        result, last = step_repeat(applied, event, last)
        if result is not None:
            results_[event.position] = result
    return results_


def step_repeat(applied: OperatorCall, event: Event, last: Any) -> tuple[Event | None, Any]:
    """Returns the result of a repeat at an event, or None, and the record of the last event for Q.

    An absorbed event becomes the last one too, with the attributes of the result it repeats.
    """
    record_ = build_view(applied, 0, event)
    if record_ is None:
        return None, last
    names = [name for name, _ in applied.operator.z]
    if last is not None and not _evaluate_q(applied, [last, record_]):
        result, attributes = None, [getattr(last, name) for name in names]
    else:
        result = _result(applied, [record_], [event], (event,))
        attributes = [result.numbers[name] for name in names]
    fields = [getattr(record_, r.field) for r in applied.reads[0] if r.field not in names]
    next_last = create_record_class("Last", list_last_fields(applied))(record_.start, record_.end, *fields, *attributes)
    return result, next_last


def add_operator_results(pattern: Pattern, binding: Binding) -> Binding:
    """Adds the results of a match's operators to its events, without evaluating Q."""
    extended = dict(binding)
    for applied in iterate_operator_calls(pattern):
        names = [p.variable for p in applied.inputs if is_input(p)]
        if all(name in extended for name in names):
            inputs = [extended[name][0] for name in names]
            members = tuple(m for e in inputs for m in (e, *e.made_of))
            views = [build_view(applied, k, event) for k, event in enumerate(inputs)]
            extended[applied.variable] = (_result(applied, views, inputs, members),)
    return extended


# ------------------------------------------------------------------ arguments of functions


@cache
def create_record_class(name: str, fields: tuple[str, ...]) -> Any:
    """Creates the record class that functions receive: numbers by name."""
    return namedtuple(name, fields)


def build_view(applied: OperatorCall, k: int, event: Event) -> Any:
    """Builds the record of an input; None if one of its fields is NULL."""
    values = [_read(event, reading) for reading in applied.reads[k]]
    if any(value is None for value in values):
        return None
    names = tuple(reading.field for reading in applied.reads[k])
    return create_record_class("Event", ("start", "end", *names))(event.start, event.end, *values)


def list_last_fields(applied: OperatorCall) -> tuple[str, ...]:
    """Returns the fields of a repeat's last event: times, fields, and its result's attributes."""
    attributes = [name for name, _ in applied.operator.z]
    fields = [r.field for r in applied.reads[0] if r.field not in attributes]
    return ("start", "end", *fields, *attributes)


def _read(event: Event, reading: OperatorField) -> object:
    if reading.field in event.numbers:
        return event.numbers[reading.field]
    return convert_field(event.values.get(reading.column))


def convert_field(value: object) -> object:
    """Converts a field for functions: times and durations become nanoseconds."""
    match value:
        case date():
            return to_microseconds(to_instant(value) - to_instant(_EPOCH)) * 1000
        case timedelta():
            return to_microseconds(value) * 1000
        case bool():
            return value
        case int() | Decimal():
            return to_number(value)
        case _:
            return value


# ---------------------------------------------------------------------------------- Q, F and Z


def _evaluate_q(applied: OperatorCall, views: Sequence[Any]) -> bool:
    operator = applied.operator
    return operator.q is None or bool(_call(applied, operator.q, "q", views))


def _call(applied: OperatorCall, function: Any, which: str, views: Sequence[Any]) -> Any:
    operator = applied.operator
    constants: tuple[object, ...] = ()
    if function is operator.q or operator.constants_for_f:
        constants = get_constant_arguments(applied)
    try:
        return function(*views, *constants)
    except Exception as error:
        shown = ", ".join(map(repr, [*views, *constants]))
        raise OperatorError(
            f"{which} of operator {operator.name} failed: {type(error).__name__}: {error}\n  it was called with {shown}"
        ) from error


def _result(applied: OperatorCall, views: Sequence[Any], inputs: Sequence[Event], members: tuple[Event, ...]) -> Event:
    operator = applied.operator
    low, high = min(e.start for e in members), max(e.end for e in members)
    if operator.f is None:
        returned: tuple[Any, ...] = (min(e.start for e in inputs), max(e.end for e in inputs))
    else:
        returned = _check_result(operator, _call(applied, operator.f, "f", views))
    start, end = clamp_times(low, high, *(_time(applied, value) for value in returned[:2]))
    values = dict(inputs[0].values) if len(inputs) == 1 else {}
    assert applied.time is not None
    values |= {"start": _convert_value(applied.time, start)}
    values |= {"end": _convert_value(applied.time, end)}
    numbers: dict[str, Any] = {}
    for (name, kind), value in zip(operator.z, returned[2:], strict=True):
        numbers[name] = _convert_attribute(applied, kind, value)
        values[name] = _convert_value(kind, numbers[name])
    positions = [e.begin for e in members] + [e.position for e in members]
    name = f"result of {operator.name}"
    return Event(max(positions), name, start, end, values, members, min(positions), numbers)


def clamp_times(low: Any, high: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """Clamps the times of a result to those of its events, with its end after its start.

    >>> clamp_times(2, 9, 1, 5), clamp_times(2, 9, 7, 12), clamp_times(2, 9, 5, 4)
    ((2, 5), (7, 9), (5, 5))
    """
    start = min(high, max(low, start))
    return start, min(high, max(start, end))


def _check_result(operator: UserOperator, returned: object) -> tuple[Any, ...]:
    count = 2 + len(operator.z)
    if not isinstance(returned, tuple | list) or len(returned) != count:
        names = ", ".join(["start", "end", *(name for name, _ in operator.z)])
        raise OperatorError(f"f of operator {operator.name} gave {returned!r}\n  hint: it must return ({names})")
    return tuple(returned)


def _time(applied: OperatorCall, value: Any) -> Any:
    assert applied.time is not None
    is_float = applied.time is ValueKind.FLOAT
    return float(value) if is_float else _to_integer(applied, applied.time, value)


def _to_integer(applied: OperatorCall, kind: ValueKind, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise OperatorError(
            f"f of operator {applied.operator.name} gave {value!r} where a number is expected"
        ) from None
    return number // applied.tick * applied.tick if kind in _IN_NANOSECONDS else number


def _convert_attribute(applied: OperatorCall, kind: ValueKind, value: Any) -> Any:
    match kind:
        case ValueKind.FLOAT:
            return float(value)
        case ValueKind.BOOLEAN:
            return bool(value)
        case ValueKind.STRING:
            return str(value)
        case _:
            return _to_integer(applied, kind, value)


def _convert_value(kind: ValueKind, value: Any) -> object:
    """Converts a number to the value that conditions read."""
    match kind:
        case ValueKind.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=value // 1000)
        case ValueKind.DURATION:
            return timedelta(microseconds=value // 1000)
        case _:
            return value
