"""Several queries over one stream: what a lane needs to know, and what it delivers."""

import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ensue.algebra.operator import Operator
from ensue.algebra.query import Query
from ensue.algebra.walk import results
from ensue.columns.rows import no_rows
from ensue.computed import cached_property
from ensue.engine.state import from_bytes, to_bytes
from ensue.languages.printing import show
from ensue.workload.arguments import bundles_of
from ensue.workload.lane import Watch
from ensue.workload.pickled_queries import arrived, carried
from ensue.workload.query_names import Name
from ensue.workload.stream_job import StreamJob, query_again
from ensue.workload.timed_out import Bundle

PACKED = pa.schema({"query": pa.int32(), "matches": pa.binary()})
LATE_EVENTS = -1  # in the place of a query's number
MOST_ROWS = 65_536  # of a packed table
_MOST_JOBS = 8

_ready: OrderedDict[str, list[Bundle]] = OrderedDict()  # of the jobs this process has seen


@dataclass(frozen=True)
class SeveralJob(StreamJob):
    """A job whose queries share a scan. `query` is the first of them.

    What is delivered is packed: the number of a query and a table of its matches in Arrow's
    stream format.
    """

    several: tuple[Query, ...] = ()
    numbers: tuple[int, ...] = ()  # of the queries, among all of the call
    names: tuple[Name, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """What is computed of it stays behind; where it goes it is known or computed again."""
        several = tuple(map(carried, self.several))
        return super().__getstate__() | {"several": several, "text": self.text}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state | {"several": tuple(map(arrived, state["several"]))})

    @property
    def bundles(self) -> list[Bundle]:
        if self.text not in _ready:
            named = dict(zip(self.names, self.several, strict=True))
            found = bundles_of(named, self.shape, self.given, streaming=True)
            _ready[self.text] = list(found.values())
            while len(_ready) > _MOST_JOBS:
                _ready.popitem(last=False)
        return _ready[self.text]

    @cached_property
    def watch(self) -> Watch:
        return Watch(tuple(q for bundle in self.bundles for q in bundle.queries), shared=True)

    @cached_property
    def result(self) -> pa.Schema:
        return PACKED

    def delivered(self, found: list[pa.Table], late: pa.Table) -> pa.Table:
        """What was found, packed, and late events where they are asked for."""
        rows: list[tuple[int, bytes]] = []
        tables = iter(found)
        if found:
            for number, bundle in zip(self.numbers, self.bundles, strict=True):
                mine = [next(tables) for _ in bundle.queries]
                if any(table.num_rows for table in mine):
                    rows += packed_rows(number, bundle.merged(mine))
        if self.deliver_late and late.num_rows:
            rows += packed_rows(LATE_EVENTS, late)
        numbers, blobs = [row[0] for row in rows], [row[1] for row in rows]
        return pa.table([numbers, blobs], schema=PACKED)

    @cached_property
    def text(self) -> str:
        """The job as text; `read_job` gives it back."""
        whole = json.loads(super().text)
        del whole["query"]
        whole["queries"] = [show(query) for query in self.several]
        whole["numbers"], whole["names"] = self.numbers, self.names
        used = {
            applied.operator.name: applied.operator.fingerprint
            for query in self.several
            for applied in results(query.pattern)
        }
        return json.dumps({**whole, "operators": used} if used else whole)


def packed_rows(number: int, table: pa.Table) -> list[tuple[int, bytes]]:
    """A query's matches in pieces of bounded size."""
    return [
        (number, to_bytes(table.slice(k, MOST_ROWS))) for k in range(0, table.num_rows, MOST_ROWS)
    ]


def unpacked(packed: pa.Table, number: int, schema: pa.Schema) -> pa.Table:
    """The matches of one query out of packed ones."""
    pairs = zip(packed["query"].to_pylist(), packed["matches"].to_pylist(), strict=True)
    tables = [from_bytes(blob).cast(schema) for query, blob in pairs if query == number]
    return pa.concat_tables([no_rows(schema), *tables])


def read_job(text: str, operators: Iterable[Operator] = ()) -> StreamJob:
    """The job that a checkpoint was written with; operators of users must be known or given."""
    whole: dict[str, Any] = json.loads(text)
    if "queries" not in whole:
        return StreamJob.read(text, operators)
    used = whole.get("operators", {})
    plain = StreamJob.read(json.dumps({**whole, "query": whole["queries"][0]}), operators)
    return SeveralJob(
        plain.query, plain.arrow, plain.time, plain.type, plain.order, plain.location,
        plain.by_type, plain.lanes, plain.emit_timeouts, planning=plain.planning,
        several=tuple(query_again(query, used, operators) for query in whole["queries"]),
        numbers=tuple(whole["numbers"]),
        names=tuple(whole["names"]),
    )  # fmt: skip
