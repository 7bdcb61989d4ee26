"""What the operators of users make of events."""

from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

from ensue.algebra.check.applied import arguments
from ensue.algebra.form import is_input
from ensue.algebra.operator import Operator
from ensue.algebra.pattern import Apply, Pattern, Reading
from ensue.algebra.values import instant, microseconds, number
from ensue.algebra.walk import results
from ensue.errors import OperatorError
from ensue.schema import Kind
from ensue.semantics.events import Binding, Event

Fired = Mapping[str, Mapping[int, Event]]  # by variable, then by the position of the event

_EPOCH = datetime(1970, 1, 1)
_IN_NANOSECONDS = (Kind.TIMESTAMP, Kind.DURATION)


def made_of(applied: Apply, inputs: Sequence[Event], members: tuple[Event, ...]) -> Event | None:
    """The result of an operator over its inputs, if Q is true of them."""
    views = [view(applied, k, event) for k, event in enumerate(inputs)]
    if any(v is None for v in views) or not _asked(applied, views):
        return None
    return _result(applied, views, inputs, members)


def repeats(applied: Apply, events: Iterable[Event]) -> dict[int, Event]:
    """The results of a repeat, by position: it fires at the first event, then if Q says so."""
    found: dict[int, Event] = {}
    last = None
    for event in events:
        result, last = fires(applied, event, last)
        if result is not None:
            found[event.position] = result
    return found


def fires(applied: Apply, event: Event, last: Any) -> tuple[Event | None, Any]:
    """The result of a repeat at an event, or None, and what Q sees of the event as the last one.

    An event that is absorbed is the last one too: it goes on with the attributes of the result
    that it repeats.
    """
    seen = view(applied, 0, event)
    if seen is None:
        return None, last
    own = [name for name, _ in applied.operator.z]
    if last is not None and not _asked(applied, [last, seen]):
        result, attributes = None, [getattr(last, name) for name in own]
    else:
        result = _result(applied, [seen], [event], (event,))
        attributes = [result.numbers[name] for name in own]
    fields = [getattr(seen, r.field) for r in applied.reads[0] if r.field not in own]
    made = record("Last", last_names(applied))(seen.start, seen.end, *fields, *attributes)
    return result, made


def derived(pattern: Pattern, binding: Binding) -> Binding:
    """A match's events together with the results of its operators, which decide nothing here."""
    whole = dict(binding)
    for applied in results(pattern):
        names = [p.variable for p in applied.inputs if is_input(p)]
        if all(name in whole for name in names):
            inputs = [whole[name][0] for name in names]
            members = tuple(m for e in inputs for m in (e, *e.made_of))
            views = [view(applied, k, event) for k, event in enumerate(inputs)]
            whole[applied.variable] = (_result(applied, views, inputs, members),)
    return whole


# -------------------------------------------------------------------------- what functions see


@cache
def record(name: str, fields: tuple[str, ...]) -> Any:
    """The class of what functions get: numbers by name."""
    return namedtuple(name, fields)


def view(applied: Apply, k: int, event: Event) -> Any:
    """An input as functions see it; None if a field that they name is NULL."""
    values = [_read(event, reading) for reading in applied.reads[k]]
    if any(value is None for value in values):
        return None
    names = tuple(reading.field for reading in applied.reads[k])
    return record("Event", ("start", "end", *names))(event.start, event.end, *values)


def last_names(applied: Apply) -> tuple[str, ...]:
    """What Q sees of a repeat's last event: its times and fields, and its result's attributes."""
    own = [name for name, _ in applied.operator.z]
    return ("start", "end", *(r.field for r in applied.reads[0] if r.field not in own), *own)


def _read(event: Event, reading: Reading) -> object:
    if reading.field in event.numbers:
        return event.numbers[reading.field]
    return plain(event.values.get(reading.column))


def plain(value: object) -> object:
    """A field as functions see it: times and durations are numbers of nanoseconds."""
    match value:
        case date():
            return microseconds(instant(value) - instant(_EPOCH)) * 1000
        case timedelta():
            return microseconds(value) * 1000
        case bool():
            return value
        case int() | Decimal():
            return number(value)
        case _:
            return value


# ---------------------------------------------------------------------------------- Q, F and Z


def _asked(applied: Apply, views: Sequence[Any]) -> bool:
    operator = applied.operator
    return operator.q is None or bool(_called(applied, operator.q, "q", views))


def _called(applied: Apply, function: Any, which: str, views: Sequence[Any]) -> Any:
    operator = applied.operator
    constants = arguments(applied) if function is operator.q or operator.constants_for_f else ()
    try:
        return function(*views, *constants)
    except Exception as error:
        shown = ", ".join(map(repr, [*views, *constants]))
        raise OperatorError(
            f"{which} of operator {operator.name} failed: "
            f"{type(error).__name__}: {error}\n  it was called with {shown}"
        ) from error


def _result(
    applied: Apply, views: Sequence[Any], inputs: Sequence[Event], members: tuple[Event, ...]
) -> Event:
    operator = applied.operator
    low, high = min(e.start for e in members), max(e.end for e in members)
    if operator.f is None:
        given: tuple[Any, ...] = (min(e.start for e in inputs), max(e.end for e in inputs))
    else:
        given = _given(operator, _called(applied, operator.f, "f", views))
    start, end = within(low, high, *(_time(applied, value) for value in given[:2]))
    values = dict(inputs[0].values) if len(inputs) == 1 else {}
    assert applied.time is not None
    values |= {"start": _typed(applied.time, start)}
    values |= {"end": _typed(applied.time, end)}
    numbers: dict[str, Any] = {}
    for (name, kind), value in zip(operator.z, given[2:], strict=True):
        numbers[name] = _rounded(applied, kind, value)
        values[name] = _typed(kind, numbers[name])
    positions = [e.begin for e in members] + [e.position for e in members]
    name = f"result of {operator.name}"
    return Event(max(positions), name, start, end, values, members, min(positions), numbers)


def within(low: Any, high: Any, start: Any, end: Any) -> tuple[Any, Any]:
    """A result's times inside those of its events; it ends no earlier than it starts.

    >>> within(2, 9, 1, 5), within(2, 9, 7, 12), within(2, 9, 5, 4)
    ((2, 5), (7, 9), (5, 5))
    """
    start = min(high, max(low, start))
    return start, min(high, max(start, end))


def _given(operator: Operator, given: object) -> tuple[Any, ...]:
    wanted = 2 + len(operator.z)
    if not isinstance(given, tuple | list) or len(given) != wanted:
        names = ", ".join(["start", "end", *(name for name, _ in operator.z)])
        raise OperatorError(
            f"f of operator {operator.name} gave {given!r}\n  hint: it must return ({names})"
        )
    return tuple(given)


def _time(applied: Apply, value: Any) -> Any:
    assert applied.time is not None
    return float(value) if applied.time is Kind.FLOAT else _whole(applied, applied.time, value)


def _whole(applied: Apply, kind: Kind, value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise OperatorError(
            f"f of operator {applied.operator.name} gave {value!r} where a number is expected"
        ) from None
    return number // applied.tick * applied.tick if kind in _IN_NANOSECONDS else number


def _rounded(applied: Apply, kind: Kind, value: Any) -> Any:
    match kind:
        case Kind.FLOAT:
            return float(value)
        case Kind.BOOLEAN:
            return bool(value)
        case Kind.STRING:
            return str(value)
        case _:
            return _whole(applied, kind, value)


def _typed(kind: Kind, value: Any) -> object:
    """A number as the value that conditions see."""
    match kind:
        case Kind.TIMESTAMP:
            return _EPOCH + timedelta(microseconds=value // 1000)
        case Kind.DURATION:
            return timedelta(microseconds=value // 1000)
        case _:
            return value
