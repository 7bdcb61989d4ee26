"""The events that come in: their columns, and what each of them is for."""

import base64
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa

from ensue.columns.stream import Columns, Shape, located, shape_again
from ensue.computed import cached_property
from ensue.workload.arguments import Arguments
from ensue.workload.arranged import is_own
from ensue.workload.lanes.clock import Clock, clock_of


@dataclass(frozen=True)
class Source:
    """What is known of a stream's events before any of them has come."""

    arrow: pa.Schema
    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    by_type: Mapping[str, Columns] | None = None
    space: str = "plane"
    zone: str | None = None  # of all times that have one, where a session of Spark says it

    @classmethod
    def of(cls, shape: Shape, given: Arguments) -> "Source":
        """The source of events of a shape, as a call describes them."""
        return cls(
            shape.arrow, given.time, given.type, given.order, given.location, shape.by_type,
            given.space, shape.schema.session,
        )  # fmt: skip

    @cached_property
    def shape(self) -> Shape:
        shape = shape_again(
            self.arrow, self.by_type, time=self.time, type=self.type, order=self.order
        )
        if self.zone is not None:
            shape = replace(shape, schema=replace(shape.schema, session=self.zone))
        own = tuple(name for name in self.arrow.names if is_own(name))
        return located(replace(shape, hidden=own) if own else shape, self.location, self.space)

    @cached_property
    def key(self) -> Hashable:
        """Equal for sources whose columns have the same types and metadata, nested ones too."""
        by_type = None
        if self.by_type is not None:
            by_type = tuple((name, tuple(map(tuple, c))) for name, c in self.by_type.items())
        others = (
            getattr(self, f.name) for f in fields(self) if f.name not in ("arrow", "by_type")
        )
        return self.arrow.serialize().to_pybytes(), by_type, *others

    @cached_property
    def came(self) -> pa.Schema:
        """The columns of events as they came, without those that they got when they were read."""
        return pa.schema([field for field in self.arrow if not is_own(field.name)])

    @cached_property
    def clock(self) -> Clock:
        return clock_of(self.shape)

    def sortable(self, arrival: Sequence[str]) -> Shape:
        """The shape of events that know when they came: that decides between equal ones."""
        shape = self.shape
        schema = replace(shape.schema, order=(*shape.schema.order, *arrival))
        return replace(shape, schema=schema, arrow=self.arriving(arrival))

    def arriving(self, arrival: Sequence[str]) -> pa.Schema:
        """The columns of events that know when they came."""
        return pa.schema([*self.arrow, *(pa.field(name, pa.int64()) for name in arrival)])

    # ---------------------------------------------------------------------------- as text

    def described(self) -> dict[str, Any]:
        """As plain values; `again` reads them."""
        return {
            "time": self.time,
            "type": self.type,
            "order": self.order,
            "location": self.location,
            **({} if self.space == "plane" else {"space": self.space}),
            "columns": [f"{f.name} {f.type}" for f in self.arrow],
            "tables": None if self.by_type is None else dict(self.by_type),
            "arrow": base64.b64encode(self.arrow.serialize().to_pybytes()).decode(),
            **({} if self.zone is None else {"zone": self.zone}),
        }

    @classmethod
    def again(cls, described: Mapping[str, Any]) -> "Source":
        """The source that was described so."""
        time, tables = described["time"], described["tables"]
        location = described["location"]
        return cls(
            arrow=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(described["arrow"]))),
            time=time if isinstance(time, str) else (time[0], time[1]),
            type=described["type"],
            order=tuple(described["order"]),
            location=tuple(location) if isinstance(location, list) else location,
            space=described.get("space", "plane"),  # what was written before knew no other
            zone=described.get("zone"),
            by_type=None
            if tables is None
            else {n: [(f, c) for f, c in t] for n, t in tables.items()},
        )
