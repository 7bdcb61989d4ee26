"""A query over a stream, described so that a checkpoint can tell whose it is."""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from ensue.algebra.query import Query
from ensue.compile.matcher import Prepared
from ensue.compile.stream import Columns, Shape, located, shape_again
from ensue.compile.timeouts import Bundle, bundle
from ensue.languages.patterns import parse
from ensue.languages.printing import show
from ensue.plan.planning import DEFAULT, Planning
from ensue.runners.clock import Clock, clock_of
from ensue.runners.lane import Watch

LATE = "late_event"


@dataclass(frozen=True)
class StreamJob:
    """Everything a lane needs to know; engines are made anew where it runs."""

    query: Query
    arrow: pa.Schema  # of the events
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None
    lanes: int
    emit_timeouts: bool = False
    deliver_late: bool = False
    planning: Planning = DEFAULT

    @cached_property
    def shape(self) -> Shape:
        shape = shape_again(
            self.arrow, self.by_type, time=self.time, type=self.type, order=self.order
        )
        return located(shape, self.location)

    @cached_property
    def clock(self) -> Clock:
        return clock_of(self.shape)

    @cached_property
    def queries(self) -> Bundle:
        return bundle(
            self.query,
            self.shape,
            self.planning,
            emit_timeouts=self.emit_timeouts,
            streaming=True,
        )

    @property
    def prepared(self) -> Prepared:
        return self.queries.main

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.queries.queries)

    @cached_property
    def result(self) -> pa.Schema:
        """The columns of what is delivered."""
        result = self.queries.result
        return result.append(pa.field(LATE, self._event)) if self.deliver_late else result

    @property
    def _event(self) -> pa.DataType:
        return pa.struct(list(self.arrow))

    def delivered(self, found: list[pa.Table], late: pa.Table) -> pa.Table:
        """Matches, and late events where they are asked for, as one table."""
        matches = self.queries.merged(found)
        if not self.deliver_late:
            return matches
        matches = matches.append_column(LATE, pa.nulls(matches.num_rows, self._event))
        events = pa.chunked_array([b.to_struct_array() for b in late.to_batches()], self._event)
        columns = [pa.nulls(late.num_rows, field.type) for field in self.queries.result]
        return pa.concat_tables([matches, pa.table([*columns, events], schema=self.result)])

    # ---------------------------------------------------------------------------- as text

    @cached_property
    def text(self) -> str:
        """The job as text; `read` gives it back."""
        planned = {} if self.planning == DEFAULT else {"planning": self.planning.described()}
        return json.dumps(
            {
                "query": show(self.query),
                "time": self.time,
                "type": self.type,
                "order": self.order,
                "location": self.location,
                "columns": [f"{f.name} {f.type}" for f in self.arrow],
                "tables": None if self.by_type is None else dict(self.by_type),
                "lanes": self.lanes,
                "emit_timeouts": self.emit_timeouts,
                **planned,  # a job of an earlier release has none
                "arrow": base64.b64encode(self.arrow.serialize().to_pybytes()).decode(),
            }
        )

    @classmethod
    def read(cls, text: str) -> "StreamJob":
        job: dict[str, Any] = json.loads(text)
        tables = job["tables"]
        return cls(
            parse(job["query"]),
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(job["arrow"]))),
            job["time"] if isinstance(job["time"], str) else (job["time"][0], job["time"][1]),
            job["type"],
            tuple(job["order"]),
            job["location"],
            None if tables is None else {n: [(f, c) for f, c in t] for n, t in tables.items()},
            job["lanes"],
            job["emit_timeouts"],
            planning=Planning.of(job.get("planning")),
        )
