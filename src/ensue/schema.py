"""What is known of events before any is seen: types, fields, and the columns that carry time."""

import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ensue.errors import QueryError, Span, did_you_mean


def _frozen(fields: dict[str, object]) -> "MappingProxyType[str, object]":
    return MappingProxyType(fields)


# plans travel to other processes, and schemas with them
copyreg.pickle(MappingProxyType, lambda mapping: (_frozen, (dict(mapping),)))


class ValueKind(Enum):
    """What a value is, as far as predicates care."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    DURATION = "duration"
    PLACE = "place"  # a point, a segment, a region: computed, never a column as it stands
    OTHER = "other"  # binary and nested values: carried through, tested only for NULL
    NULL = "null"

    @property
    def numeric(self) -> bool:
        return self in (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)


@dataclass(frozen=True, slots=True)
class TypeUnion:
    """Several types of events, `(A|B) x`; without names every type there is, `ANY x`."""

    names: tuple[str, ...] = ()


ANY = TypeUnion()
Types = str | TypeUnion  # which events a variable takes: those of one type, or of one of several


def get_type_names(types: Types) -> tuple[str, ...]:
    """The types that are named.

    >>> get_type_names("A"), get_type_names(TypeUnion(("A", "B"))), get_type_names(ANY)
    (('A',), ('A', 'B'), ())
    """
    return (types,) if isinstance(types, str) else types.names


def accepts_type(types: Types, name: str) -> bool:
    """Whether events of a type are meant.

    >>> accepts_type("A", "B"), accepts_type(TypeUnion(("A", "B")), "B"), accepts_type(ANY, "B")
    (False, True, True)
    """
    return types == ANY or name in get_type_names(types)


def types_overlap(left: Types, right: Types) -> bool:
    """Whether both may take the same event.

    >>> types_overlap("A", "B"), types_overlap("A", TypeUnion(("A", "B"))), types_overlap(ANY, "A")
    (False, True, True)
    """
    return ANY in (left, right) or not set(get_type_names(left)).isdisjoint(get_type_names(right))


@dataclass(frozen=True, slots=True)
class EventType:
    """A named type of events and the fields each of them has.

    Of several types: the fields that some of them have. `unlike` are those that are not of the
    same kind in all of them.
    """

    name: str
    fields: Mapping[str, ValueKind]
    unlike: frozenset[str] = frozenset()

    def kind_of(self, field: str, span: Span | None, owner: str) -> ValueKind:
        if field in self.unlike:
            raise QueryError(
                f"field '{field}' of event {owner} does not have the same kind in all its types: "
                f"{self.name}",
                hint="use the same kind everywhere, or events of one type",
                span=span,
            )
        try:
            return self.fields[field]
        except KeyError:
            raise QueryError(
                f"unknown field '{field}' of event {owner} ({self.name})",
                hint=did_you_mean(field, [f for f in self.fields if not f.startswith("__")]),
                span=span,
            ) from None


@dataclass(frozen=True, slots=True)
class Schema:
    """The event types of a stream.

    `types` lists them by name. Where one table holds events of every type (`common` is set),
    any name is a type: which ones occur is only known from the data.
    """

    types: Mapping[str, EventType]
    start: str  # the column an event's start time is in
    end: str  # the column of its end time: the same one for simple events
    time_kind: ValueKind
    common: Mapping[str, ValueKind] | None = None
    typed: bool = True  # False: no type column, all events are of one type
    order: tuple[str, ...] = ()  # tie-breaker columns, after time
    type_column: str | None = None
    location: str | tuple[str, str] | None = None  # the column of where it happened, or x and y
    space: str = "plane"  # or "earth": x and y are degrees, lengths metres
    # of the fields whose times have one
    zones: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    session: str | None = None  # the zone of all of them, where a session says it and not a type

    def event_type(self, name: Types, span: Span | None) -> EventType:
        """The type of that name; of several types, what their events have."""
        if isinstance(name, TypeUnion):
            return self._one_of(name, span)
        if name in self.types:
            return self.types[name]
        if self.common is not None:
            return EventType(name, self.common)
        raise QueryError(
            f"unknown event type '{name}'", hint=did_you_mean(name, self.types), span=span
        )

    def _one_of(self, several: TypeUnion, span: Span | None) -> EventType:
        if several == ANY and self.common is not None:
            return EventType("ANY", self.common)
        found = [self.event_type(name, span) for name in several.names or self.types]
        fields: dict[str, ValueKind] = {}
        unlike = set()
        for one in found:
            for name, kind in one.fields.items():
                if fields.setdefault(name, kind) is not kind:
                    unlike.add(name)
        shown = "|".join(several.names) or "ANY"
        kept = {name: kind for name, kind in fields.items() if name not in unlike}
        return EventType(shown, MappingProxyType(kept), frozenset(unlike))

    @property
    def intervals(self) -> bool:
        return self.start != self.end


def build_table_schema(
    fields: Mapping[str, ValueKind],
    *,
    time: str | tuple[str, str],
    type_column: str | None = None,
    order: tuple[str, ...] = (),
    zones: Mapping[str, str] = MappingProxyType({}),
) -> Schema:
    """The schema of a single table of events, typed by a column or all of one type."""
    start, end = (time, time) if isinstance(time, str) else time
    frozen = MappingProxyType(dict(fields))
    return Schema(
        types=MappingProxyType({}),
        start=start,
        end=end,
        time_kind=fields[end],
        common=frozen,
        typed=type_column is not None,
        order=order,
        type_column=type_column,
        zones=MappingProxyType(dict(zones)),
    )
