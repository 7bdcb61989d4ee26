"""From a checked query to matches: plan, engine and results in one."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from ensue.algebra.check import check
from ensue.algebra.query import Query
from ensue.compile.engine import Engine
from ensue.compile.identity import fingerprint
from ensue.compile.matches import Matches
from ensue.compile.reference import ReferenceEngine
from ensue.compile.results import build
from ensue.compile.stream import Shape
from ensue.plan.choose import choose
from ensue.plan.physical import Plan, Reference
from ensue.plan.planning import DEFAULT, Planning


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query made ready for a stream of a known shape."""

    query: Query  # checked, as the user wrote it
    plan: Plan  # in terms of columns
    shape: Shape
    identity: bytes | None = None  # what sets the ids of its matches apart; None: the query

    def engine(self, *, nullable: bool = False, counted: bool = False) -> Engine | ReferenceEngine:
        """A matcher with no events yet; `counted`: it counts what it tries."""
        _, schema = self.shape.physical(self.query)
        if isinstance(self.plan.structure, Reference):
            return ReferenceEngine(self.plan, schema, self.shape.unit)
        return Engine(self.plan, schema, self.shape.unit, nullable=nullable, counted=counted)


def prepare(
    query: Query,
    shape: Shape,
    planning: Planning = DEFAULT,
    *,
    streaming: bool = False,
    off: Collection[str] = (),
) -> Prepared:
    """Checks a query against a stream's shape and plans it."""
    checked = check(query, shape.schema, streaming=streaming)
    physical, schema = shape.physical(checked)
    return Prepared(checked, choose(physical, schema, planning, off=off), shape)


def build_result(prepared: Prepared, matches: Matches, events: pa.Table) -> pa.Table:
    """Matches as the table the query asks for."""
    query, schema = prepared.shape.physical(prepared.query)
    return build(
        matches,
        events,
        query,
        schema,
        prepared.plan.residual,
        columns_of=prepared.shape.columns_of(query),
        query_fingerprint=prepared.identity or fingerprint(prepared.query),
    )


def slices(events: pa.Table, size: int) -> list[pa.Table]:
    """Pieces of bounded size: a kernel cannot be interrupted inside one."""
    return [events.slice(k, size) for k in range(0, events.num_rows, size)]
