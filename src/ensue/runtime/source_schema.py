"""The input of a workload: schema, order, computed columns, and the options of a call."""

import base64
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from ensue.cached import cached_property
from ensue.errors import EventError
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.options import DEFAULT, StreamOptions
from ensue.runtime.tasks.watermark import WatermarkClock, create_clock
from ensue.vector.arrow_types import time_unit
from ensue.vector.column_values import Vector, from_arrow, to_arrow
from ensue.vector.evaluation import evaluate
from ensue.vector.event_table import COMPUTED, PLACE, Columns, StreamSchema, add_location, restore_schema
from ensue.vector.take import create_empty_table


@dataclass(frozen=True, slots=True)
class ComputedColumn:
    """A column that is computed when events are read."""

    name: str
    expr: Expr  # over the columns of one event


@dataclass(frozen=True, slots=True)
class InputOrder:
    """The columns by which events are sorted, and computed columns."""

    time: str | tuple[str, str]  # PLACE: arrival order
    order: tuple[str, ...] = ()
    computed: tuple[ComputedColumn, ...] = ()

    @property
    def numbered(self) -> bool:
        """Whether events get a column of their arrival order."""
        return self.time == PLACE

    def with_computed(self, events: pa.Table) -> pa.Table:
        """Appends the computed columns."""
        unit = time_unit(events.schema)

        def lookup(field: FieldRef | Aggregate) -> Vector:
            assert isinstance(field, FieldRef)
            assert field.name is not None
            return from_arrow(events.column(field.name), unit, field.name)

        whole = events
        for column in self.computed:
            vector = evaluate(column.expr, lookup, events.num_rows, unit)
            whole = whole.append_column(column.name, to_arrow(vector, unit))
        return whole

    def schema(self, arrow: pa.Schema) -> pa.Schema:
        """The columns of events with the computed ones."""
        return self.with_computed(create_empty_table(arrow)).schema

    def in_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Appends the computed columns to the batches of a Spark task."""
        for batch in batches:
            yield from self.with_computed(pa.Table.from_batches([batch])).to_batches()


InputOrderFactory = Callable[..., InputOrder]  # from the columns of events, and a session's zone


def is_internal_column(name: str) -> bool:
    """Whether a column was added when events were read.

    >>> is_internal_column("__key_3f"), is_internal_column("name")
    (True, False)
    """
    return name == PLACE or name.startswith(COMPUTED)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a call says of its events: their columns, and how they are read."""

    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    space: str = "plane"
    arranging: InputOrderFactory | None = None  # where queries have ORDER BY themselves
    progress: Callable[[int, int], None] | None = None
    watermark: Any = None
    stream: StreamOptions = StreamOptions()  # noqa: RUF009  it is frozen
    number: int = 1  # of the stream in one Spark query, for the names of its counters

    def require_table(self) -> None:
        """Raises an EventError for options of streams."""
        refused = {
            "max_ahead": (self.stream.max_ahead, DEFAULT, "in a table no event moves the others"),
            "watermark": (self.watermark, None, "a table is sorted by time as a whole"),
            "late_events": (self.stream.late_events, "count", "in a table no event is late"),
        }
        for name, (value, default, reason) in refused.items():
            if value != default:
                raise EventError(f"{name}={value!r} is only for streams: {reason}\n  hint: leave it out")


@dataclass(frozen=True)
class SourceSchema:
    """The schema of a stream's events."""

    arrow: pa.Schema
    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    by_type: Mapping[str, Columns] | None = None
    space: str = "plane"
    zone: str | None = None  # of all times that have one, where a session of Spark says it
    inferred: bool = False  # from the queries: there are no events

    @classmethod
    def from_options(cls, shape: StreamSchema, options: SourceOptions) -> "SourceSchema":
        return cls(
            shape.arrow, options.time, options.type, options.order, options.location,
            shape.by_type, options.space, shape.schema.session,
        )  # fmt: skip

    @cached_property
    def shape(self) -> StreamSchema:
        shape = restore_schema(self.arrow, self.by_type, time=self.time, type=self.type, order=self.order)
        if self.zone is not None:
            shape = replace(shape, schema=replace(shape.schema, session=self.zone))
        own = tuple(name for name in self.arrow.names if is_internal_column(name))
        return add_location(replace(shape, hidden=own) if own else shape, self.location, self.space)

    @cached_property
    def key(self) -> Hashable:
        """Equal for sources whose columns have the same types and metadata, nested ones too."""
        by_type = None
        if self.by_type is not None:
            by_type = tuple((name, tuple(map(tuple, c))) for name, c in self.by_type.items())
        others = (getattr(self, f.name) for f in fields(self) if f.name not in ("arrow", "by_type"))
        return self.arrow.serialize().to_pybytes(), by_type, *others

    @cached_property
    def came(self) -> pa.Schema:
        """The columns of events, without those that were added when they were read."""
        return pa.schema([field for field in self.arrow if not is_internal_column(field.name)])

    @cached_property
    def clock(self) -> WatermarkClock:
        return create_clock(self.shape)

    def sortable(self, arrival: Sequence[str]) -> StreamSchema:
        """The schema of events with columns of their arrival order, which breaks ties."""
        shape = self.shape
        schema = replace(shape.schema, order=(*shape.schema.order, *arrival))
        return replace(shape, schema=schema, arrow=self.get_arrival_schema(arrival))

    def get_arrival_schema(self, arrival: Sequence[str]) -> pa.Schema:
        """The columns of events with those of their arrival order."""
        return pa.schema([*self.arrow, *(pa.field(name, pa.int64()) for name in arrival)])

    def to_dict(self) -> dict[str, Any]:
        """JSON values, which `from_dict` reads."""
        return {
            "time": self.time,
            "type": self.type,
            "order": self.order,
            "location": self.location,
            "space": self.space,
            "columns": [f"{f.name} {f.type}" for f in self.arrow],
            "tables": None if self.by_type is None else dict(self.by_type),
            "arrow": base64.b64encode(self.arrow.serialize().to_pybytes()).decode(),
            **({} if self.zone is None else {"zone": self.zone}),
        }

    @classmethod
    def from_dict(cls, described: Mapping[str, Any]) -> "SourceSchema":
        time, tables = described["time"], described["tables"]
        location = described["location"]
        return cls(
            arrow=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described["arrow"]))),
            time=time if isinstance(time, str) else (time[0], time[1]),
            type=described["type"],
            order=tuple(described["order"]),
            location=tuple(location) if isinstance(location, list) else location,
            space=described["space"],
            zone=described.get("zone"),
            by_type=None if tables is None else {n: [(f, c) for f, c in t] for n, t in tables.items()},
        )
