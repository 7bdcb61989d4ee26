"""The schema of events: types, fields, and the columns of their times."""

import copyreg
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ensue.errors import QueryError, Span, did_you_mean


def _freeze(fields: dict[str, object]) -> "MappingProxyType[str, object]":
    return MappingProxyType(fields)


# schemas are parts of plans, which are sent to other processes
copyreg.pickle(MappingProxyType, lambda mapping: (_freeze, (dict(mapping),)))


class ValueKind(Enum):
    """The kinds of values that predicates distinguish."""

    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DATE = "date"
    DURATION = "duration"
    PLACE = "place"  # a point, a segment or a region, which is computed
    OTHER = "other"  # binary and nested values, tested only for NULL
    NULL = "null"

    @property
    def numeric(self) -> bool:
        return self in (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)


@dataclass(frozen=True, slots=True)
class TypeUnion:
    """Several event types, `(A|B) x`; without names all types, `ANY x`."""

    names: tuple[str, ...] = ()


ANY = TypeUnion()
Types = str | TypeUnion  # the events that a variable takes


def get_type_names(types: Types) -> tuple[str, ...]:
    """Returns the names of types.

    >>> get_type_names("A"), get_type_names(TypeUnion(("A", "B"))), get_type_names(ANY)
    (('A',), ('A', 'B'), ())
    """
    return (types,) if isinstance(types, str) else types.names


def accepts_type(types: Types, name: str) -> bool:
    """Returns whether events of a type are accepted.

    >>> accepts_type("A", "B"), accepts_type(TypeUnion(("A", "B")), "B"), accepts_type(ANY, "B")
    (False, True, True)
    """
    return types == ANY or name in get_type_names(types)


def types_overlap(left: Types, right: Types) -> bool:
    """Returns whether both accept the same event.

    >>> types_overlap("A", "B"), types_overlap("A", TypeUnion(("A", "B"))), types_overlap(ANY, "A")
    (False, True, True)
    """
    return ANY in (left, right) or not set(get_type_names(left)).isdisjoint(get_type_names(right))


@dataclass(frozen=True, slots=True)
class EventType:
    """An event type and its fields; for several types the fields that some of them have."""

    name: str
    fields: Mapping[str, ValueKind]
    unlike: frozenset[str] = frozenset()  # fields whose kind differs among several types

    def get_kind(self, field: str, span: Span | None, owner: str) -> ValueKind:
        if field in self.unlike:
            raise QueryError(
                f"field '{field}' of event {owner} does not have the same kind in all its types: {self.name}",
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

    If one table has the events of all types (`common` is set), any name is a type: only the data
    tell which ones occur.
    """

    types: Mapping[str, EventType]
    start: str  # the column of start times
    end: str  # the column of end times; the same one for simple events
    time_kind: ValueKind
    common: Mapping[str, ValueKind] | None = None
    typed: bool = True  # False: no type column, all events are of one type
    order: tuple[str, ...] = ()  # tie-breaker columns, after time
    type_column: str | None = None
    location: str | tuple[str, str] | None = None  # the column of locations, or those of x and y
    space: str = "plane"  # or "earth": x and y are degrees, lengths metres
    # time zones by field
    zones: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    session: str | None = None  # the session's time zone, for types without one

    def event_type(self, name: Types, span: Span | None) -> EventType:
        """Returns the type of a name, or the fields of several types."""
        if isinstance(name, TypeUnion):
            return self._combine_types(name, span)
        if name in self.types:
            return self.types[name]
        if self.common is not None:
            return EventType(name, self.common)
        raise QueryError(f"unknown event type '{name}'", hint=did_you_mean(name, self.types), span=span)

    def _combine_types(self, several: TypeUnion, span: Span | None) -> EventType:
        if several == ANY and self.common is not None:
            return EventType("ANY", self.common)
        kinds: dict[str, set[ValueKind]] = {}
        for type_name in several.names or self.types:
            for name, kind in self.event_type(type_name, span).fields.items():
                kinds.setdefault(name, set()).add(kind)
        fields = {name: next(iter(same)) for name, same in kinds.items() if len(same) == 1}
        unlike = frozenset(kinds.keys() - fields.keys())
        return EventType("|".join(several.names) or "ANY", MappingProxyType(fields), unlike)

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
    """Builds the schema of one table of events, typed by a column or all of one type."""
    start, end = (time, time) if isinstance(time, str) else time
    return Schema(
        types=MappingProxyType({}),
        start=start,
        end=end,
        time_kind=fields[end],
        common=MappingProxyType(dict(fields)),
        typed=type_column is not None,
        order=order,
        type_column=type_column,
        zones=MappingProxyType(dict(zones)),
    )


def parse_columns(text: str) -> str | tuple[str, str]:
    """Parse COLUMN or START,END.

    >>> parse_columns("ts"), parse_columns("begin, end")
    ('ts', ('begin', 'end'))
    """
    first, comma, second = (part.strip() for part in text.partition(","))
    return (first, second) if comma else first
