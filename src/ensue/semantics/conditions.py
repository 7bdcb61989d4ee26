"""What a condition says of a match."""

from collections.abc import Callable, Mapping

from ensue.algebra.evaluate import aggregate, evaluate
from ensue.algebra.predicate import Aggregate, At, Expr, Field
from ensue.algebra.walk import references
from ensue.semantics.events import Event

MOVING = (At.CURRENT, At.PREVIOUS, At.BEFORE, At.THROUGH)


def holds(condition: Expr, binding: Mapping[str, tuple[Event, ...]]) -> bool:
    """Whether a conjunct is true of a match, for every `[i]` it speaks of.

    A conjunct that mentions an unbound variable or a missing element does not apply.
    """
    first = 0
    ends: dict[str, int] = {}  # of each list that [i] runs over, where i ends
    found = list(references(condition))
    several = len({ref.variable for ref in found if ref.at in MOVING}) > 1
    for ref in found:
        count = len(binding.get(ref.variable, ()))
        if isinstance(ref, Field) and count < (ref.nth if ref.at is At.NTH else 1):
            return True
        if ref.at in MOVING:
            earlier = ref.at in (At.PREVIOUS, At.BEFORE)
            # of a group the current time may have come as far as the other variable only
            end = count + 1 if earlier and several else count
            ends[ref.variable] = min(end, ends.get(ref.variable, end))
            first = max(first, int(earlier))
    if not ends:
        return is_true(condition, binding)
    return all(is_true(condition, binding, i) for i in range(first, min(ends.values())))


def is_true(
    condition: Expr, binding: Mapping[str, tuple[Event, ...]], i: int | None = None
) -> bool:
    return value_of(condition, binding, i) is True


def value_of(expr: Expr, binding: Mapping[str, tuple[Event, ...]], i: int | None = None) -> object:
    """The value of an expression in a match; `i` is the current element, from 0."""

    def lookup(ref: Field | Aggregate) -> object:
        events = binding.get(ref.variable, ())
        if isinstance(ref, Field):
            event = _element(ref, events, i)
            if ref.at is At.ALL:
                return [e.values if ref.name is None else e.values.get(ref.name) for e in events]
            if event is None or ref.name is None:
                return None if event is None else dict(event.values)
            return event.values.get(ref.name)
        if ref.at in (At.BEFORE, At.THROUGH):
            assert i is not None
            events = events[:i] if ref.at is At.BEFORE else events[: i + 1]
        if ref.argument is None:
            return len(events)
        argument = ref.argument
        values = [evaluate(argument, _fields_of(event)) for event in events]
        return aggregate(ref.function, values, ref.parameter)

    return evaluate(expr, lookup)


def _fields_of(event: Event) -> Callable[[Field | Aggregate], object]:
    def lookup(ref: Field | Aggregate) -> object:
        assert isinstance(ref, Field)
        return event.values.get(ref.name or "")

    return lookup


def _element(ref: Field, events: tuple[Event, ...], i: int | None) -> Event | None:
    match ref.at:
        case At.ONLY | At.LAST:
            k: int | None = len(events) - 1
        case At.NTH:
            k = ref.nth - 1
        case At.CURRENT:
            k = i
        case At.PREVIOUS:
            k = None if i is None else i - 1
        case _:
            k = None
    return events[k] if k is not None and 0 <= k < len(events) else None
