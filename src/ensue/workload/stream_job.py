"""A query over a stream, described so that a checkpoint can tell whose it is."""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from ensue.algebra.operator import Operator, known_operator
from ensue.algebra.query import Query
from ensue.algebra.walk import results
from ensue.columns.stream import Columns, Shape, located, shape_again
from ensue.computed import cached_property
from ensue.errors import QueryError, StateError
from ensue.languages.patterns import parse
from ensue.languages.printing import show
from ensue.plan.planning import DEFAULT, Planning
from ensue.workload.arguments import Arguments
from ensue.workload.clock import Clock, clock_of
from ensue.workload.lane import Watch
from ensue.workload.pickled_queries import arrived, carried
from ensue.workload.prepared import Prepared
from ensue.workload.relevance import types_that_matter
from ensue.workload.timed_out import Bundle

LATE = "late_event"
_BEGUN: dict[tuple[str, str], Operator] = {}  # of streams that this process has begun


class OfEvents:
    """What a job says of its events."""

    arrow: pa.Schema
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None

    @cached_property
    def shape(self) -> Shape:
        shape = shape_again(
            self.arrow, self.by_type, time=self.time, type=self.type, order=self.order
        )
        return located(shape, self.location)

    @cached_property
    def clock(self) -> Clock:
        return clock_of(self.shape)

    def described(self) -> dict[str, Any]:
        """As plain values; with `columns` under "arrow", `events_again` gives it back."""
        return {
            "time": self.time,
            "type": self.type,
            "order": self.order,
            "location": self.location,
            "columns": [f"{f.name} {f.type}" for f in self.arrow],
            "tables": None if self.by_type is None else dict(self.by_type),
        }

    @property
    def columns(self) -> str:
        """The events' columns, exactly."""
        return base64.b64encode(self.arrow.serialize().to_pybytes()).decode()


def events_again(job: Mapping[str, Any]) -> dict[str, Any]:
    """What a job says of its events, from plain values."""
    time, tables = job["time"], job["tables"]
    return {
        "arrow": pa.ipc.read_schema(pa.py_buffer(base64.b64decode(job["arrow"]))),
        "time": time if isinstance(time, str) else (time[0], time[1]),
        "type": job["type"],
        "order": tuple(job["order"]),
        "location": job["location"],
        "by_type": None
        if tables is None
        else {n: [(f, c) for f, c in t] for n, t in tables.items()},
    }


@dataclass(frozen=True)
class StreamJob(OfEvents):
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

    def __getstate__(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        return state | {"query": carried(self.query)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, query=arrived(state["query"]))

    @property
    def given(self) -> Arguments:
        return Arguments(
            time=self.time,
            type=self.type,
            order=self.order,
            location=self.location,
            emit_timeouts=self.emit_timeouts,
            planning=self.planning,
        )

    @cached_property
    def queries(self) -> Bundle:
        return self.given.bundle(self.query, self.shape, streaming=True)

    @property
    def prepared(self) -> Prepared:
        return self.queries.main

    @cached_property
    def watch(self) -> Watch:
        return Watch(self.queries.queries)

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return types_that_matter(self.watch.queries)

    @cached_property
    def result(self) -> pa.Schema:
        """The columns of what is delivered."""
        result = self.queries.result
        return result.append(pa.field(LATE, self._event)) if self.deliver_late else result

    @property
    def _event(self) -> pa.DataType:
        return pa.struct(list(self.arrow))

    def matches(self, found: list[pa.Table]) -> int:
        """How many of what was found are matches."""
        return sum(table.num_rows for table in found)

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
        # only where there are some: texts of older checkpoints stay what they are
        operators = {a.operator.name: a.operator.fingerprint for a in results(self.query.pattern)}
        return json.dumps(
            {
                "query": show(self.query),
                **self.described(),
                "lanes": self.lanes,
                "emit_timeouts": self.emit_timeouts,
                **planned,  # a job of an earlier release has none
                "arrow": self.columns,
                **({"operators": operators} if operators else {}),
            }
        )

    @classmethod
    def read(cls, text: str, operators: Iterable[Operator] = ()) -> "StreamJob":
        """The job of a text. Its operators are known by name and must be the same ones."""
        job: dict[str, Any] = json.loads(text)
        return cls(
            query_again(job["query"], job.get("operators", {}), operators),
            **events_again(job),
            lanes=job["lanes"],
            emit_timeouts=job["emit_timeouts"],
            planning=Planning.of(job.get("planning")),
        )


def remember(query: Query) -> None:
    """Keeps the operators of a stream, so that its end finds them."""
    for applied in results(query.pattern):
        _BEGUN[applied.operator.name, applied.operator.fingerprint] = applied.operator


def query_again(text: str, used: Mapping[str, str], operators: Iterable[Operator]) -> Query:
    """The query of a checkpoint, with its operators as they were when it began."""
    operators = tuple(operators)
    for name, fingerprint in used.items():
        if (name, fingerprint) in _BEGUN:
            operators = (*operators, _BEGUN[name, fingerprint])
            continue
        try:
            found = known_operator(name, operators, None)
        except QueryError:
            raise StateError(
                f"the stream's query uses the operator {name}, which is not known here\n"
                f"  hint: run its ensue.operator({name!r}, ...) first"
            ) from None
        if found.fingerprint != fingerprint:
            raise StateError(
                f"the operator {name} is not what it was when the stream began\n"
                "  hint: give it the functions and attributes it had, or begin a new checkpoint"
            )
    return parse(text, operators)
