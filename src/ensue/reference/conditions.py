"""Events, bindings, and the evaluation of conditions in a match."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from ensue.analyzer.interval_negation import iterate_bound_interval_negations
from ensue.functions.interpreter import compute_aggregate, evaluate
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef
from ensue.ir.pattern import Interval, Pattern
from ensue.ir.traversal import iterate_references
from ensue.ir.values import to_instant, to_number


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream; `position` is its rank in the whole stream.

    `start` and `end` are numbers: nanoseconds for timestamps, else the units of the time column.
    """

    position: int
    type: str
    start: int | float
    end: int | float
    values: Mapping[str, object]
    made_of: tuple["Event", ...] = ()  # the inputs of an operator result
    first: int = -1  # the position of the first input or member
    numbers: Mapping[str, Any] = field(default_factory=dict)  # attributes of an operator result
    match: Mapping[str, tuple["Event", ...]] = field(default_factory=dict)  # of a complex event

    @property
    def begin(self) -> int:
        """The position of its first event; `position` is that of the last."""
        return self.position if self.first < 0 else self.first


Binding = dict[str, tuple[Event, ...]]  # variable -> its events; unbound variables are missing


def is_before(a: Event, b: Event) -> bool:
    """Whether `a` precedes `b` in a sequence; simple events are in the order of the stream.

    Results are ordered by their start and end; if `a` ends when `b` starts, the order of the
    stream decides.
    """
    return a.end < b.start or (a.end == b.start and a.position < b.begin)


def members(binding: Mapping[str, tuple[Event, ...]]) -> list[Event]:
    """Returns the events of a match in stream order, without operator results."""
    return sorted((e for es in binding.values() for e in es if not e.made_of), key=lambda e: e.position)


def select_outer_events(binding: Mapping[str, tuple[Event, ...]]) -> list[Event]:
    """Returns the events that a surrounding sequence orders: a result replaces its inputs."""
    events = [e for es in binding.values() for e in es]
    inputs = {id(part) for e in events for part in e.made_of}
    return [e for e in events if id(e) not in inputs] if inputs else events


INDEXED_POSITIONS = (EventPosition.CURRENT, EventPosition.PREVIOUS, EventPosition.BEFORE, EventPosition.THROUGH)


def holds(condition: Expr, binding: Mapping[str, tuple[Event, ...]]) -> bool:
    """Whether a conjunct is true in a match, for every `[i]` in it.

    A conjunct with an unbound variable or a missing element does not apply.
    """
    first = 0
    ends: dict[str, int] = {}  # the end of i for each variable with [i]
    refs = list(iterate_references(condition))
    several = len({ref.variable for ref in refs if ref.at in INDEXED_POSITIONS}) > 1
    for ref in refs:
        count = len(binding.get(ref.variable, ()))
        if isinstance(ref, FieldRef) and count < (ref.nth if ref.at is EventPosition.NTH else 1):
            return True
        if ref.at in INDEXED_POSITIONS:
            earlier = ref.at in (EventPosition.PREVIOUS, EventPosition.BEFORE)
            # the current round of a group may have reached only the other variable
            end = count + 1 if earlier and several else count
            ends[ref.variable] = min(end, ends.get(ref.variable, end))
            first = max(first, int(earlier))
    if not ends:
        return is_true(condition, binding)
    return all(is_true(condition, binding, i) for i in range(first, min(ends.values())))


def is_true(condition: Expr, binding: Mapping[str, tuple[Event, ...]], i: int | None = None) -> bool:
    return compute_value(condition, binding, i) is True


def compute_value(expr: Expr, binding: Mapping[str, tuple[Event, ...]], i: int | None = None) -> object:
    """Evaluates an expression in a match; `i` is the current element, from 0."""

    def lookup(ref: FieldRef | Aggregate) -> object:
        events = binding.get(ref.variable, ())
        if isinstance(ref, FieldRef):
            event = _element(ref, events, i)
            if ref.at is EventPosition.ALL:
                return [e.values if ref.name is None else e.values.get(ref.name) for e in events]
            if event is None or ref.name is None:
                return None if event is None else dict(event.values)
            return event.values.get(ref.name)
        if ref.at in (EventPosition.BEFORE, EventPosition.THROUGH):
            assert i is not None
            events = events[:i] if ref.at is EventPosition.BEFORE else events[: i + 1]
        if ref.argument is None:
            return len(events)
        argument = ref.argument
        values = [evaluate(argument, _get_field_reader(event)) for event in events]
        return compute_aggregate(ref.function, values, ref.parameter)

    return evaluate(expr, lookup)


def _get_field_reader(event: Event) -> Callable[[FieldRef | Aggregate], object]:
    def lookup(ref: FieldRef | Aggregate) -> object:
        assert isinstance(ref, FieldRef)
        return event.values.get(ref.name or "")

    return lookup


def _element(ref: FieldRef, events: tuple[Event, ...], i: int | None) -> Event | None:
    match ref.at:
        case EventPosition.ONLY | EventPosition.LAST:
            k: int | None = len(events) - 1
        case EventPosition.NTH:
            k = ref.nth - 1
        case EventPosition.CURRENT:
            k = i
        case EventPosition.PREVIOUS:
            k = None if i is None else i - 1
        case _:
            k = None
    return events[k] if k is not None and 0 <= k < len(events) else None


# ------------------------------------------------------------------ explicit intervals

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
TimeNumber = int | float


def compute_interval(
    interval: Interval, binding: Mapping[str, tuple[Event, ...]]
) -> tuple[TimeNumber, TimeNumber] | None:
    """Returns the bounds of an interval in a match; None if an event or a time is missing."""
    after, until = (compute_value(end, binding) for end in (interval.after, interval.until))
    return None if after is None or until is None else (convert_time(after), convert_time(until))


def convert_time(value: object) -> TimeNumber:
    """Converts a time to nanoseconds, or to the units of the time column.

    >>> convert_time(date(1970, 1, 2)), convert_time(5)
    (86400000000000, 5)
    """
    if isinstance(value, date):
        return (to_instant(value) - _EPOCH) // _MICROSECOND * 1000
    return to_number(value)


def compute_certain_time(pattern: Pattern, binding: Mapping[str, tuple[Event, ...]]) -> TimeNumber | None:
    """Returns the time until which intervals keep a match uncertain."""
    negations = iterate_bound_interval_negations(pattern, binding)
    ends = [compute_interval(interval, binding) for _, interval in negations]
    return max((end[1] for end in ends if end is not None), default=None)
