"""From a checked query to matches: plan, engine and results in one."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from ensue.algebra.form import is_lapse
from ensue.algebra.query import Query
from ensue.columns.checking import check_with_regions
from ensue.columns.matches import Matches
from ensue.columns.stream import Shape
from ensue.computed import cached_property
from ensue.engine.adaptive import AdaptiveEngine, why_not_adaptive
from ensue.engine.advice import Watchful
from ensue.engine.allowance import Allowance, Holding
from ensue.engine.engine import Engine
from ensue.engine.moments import MomentEngine
from ensue.engine.output import joined
from ensue.engine.program import Program
from ensue.engine.reference import ReferenceEngine
from ensue.plan.choose import choose
from ensue.plan.physical import Plan, Reference
from ensue.plan.planning import DEFAULT, Planning
from ensue.results.identity import RowHashes, fingerprint
from ensue.results.size import result_bytes
from ensue.results.table import Result
from ensue.results.time_order import in_time_order
from ensue.schema import Schema, names_of
from ensue.source.operator_functions import run_as_python

FEW = 10_000  # matches whose table is never too large
AnyEngine = Engine | AdaptiveEngine | ReferenceEngine


@dataclass(frozen=True)
class Prepared:
    """A query made ready for a stream of a known shape."""

    query: Query  # checked, as the user wrote it
    plan: Plan  # in terms of columns
    shape: Shape
    identity: bytes | None = None  # what sets the ids of its matches apart; None: the query
    planning: Planning = DEFAULT

    @cached_property
    def physical(self) -> tuple[Query, Schema]:
        """The query in terms of columns."""
        return self.shape.physical(self.query)

    @cached_property
    def result(self) -> Result:
        """How its result is built."""
        query, schema = self.physical
        return Result(
            query,
            schema,
            self.shape.arrow,
            self.plan.residual,
            columns_of=self.shape.columns_of(query),
            whole_of=self.shape.whole_of(query),
            named_by=self.shape.identity_of(query),
            query_fingerprint=self.identity or fingerprint(self.query),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # not what follows from it

    def engine(self, *, nullable: bool = False, counted: bool = False) -> AnyEngine:
        """A matcher with no events yet; `counted`: it counts what it tries."""
        query, schema = self.physical
        limits = self.planning.limits
        if isinstance(self.plan.structure, Reference):
            kind = MomentEngine if is_lapse(query.pattern) else ReferenceEngine
            return kind(self.plan, schema, self.shape.unit, limits)
        if self.planning.adaptive and why_not_adaptive(self.plan) is None:
            adviser = Watchful(self, query, schema, self.planning)
            return AdaptiveEngine(
                self.plan, schema, self.shape.unit, adviser, nullable=nullable, limits=limits
            )
        known = None if nullable or counted else self.program.again()
        return Engine(
            self.plan, schema, self.shape.unit, nullable=nullable, counted=counted, limits=limits,
            program=known,
        )  # fmt: skip

    @cached_property
    def program(self) -> Program:
        """Its kernel is written once, however many engines follow."""
        _, schema = self.physical
        return Program(self.plan, schema, self.shape.unit, nullable=False)


def prepare(
    query: Query,
    shape: Shape,
    planning: Planning = DEFAULT,
    *,
    streaming: bool = False,
    off: Collection[str] = (),
) -> Prepared:
    """Checks a query against a stream's shape and plans it; the options are those of `choose`."""
    checked = check_with_regions(query, shape.schema, streaming=streaming)
    physical, schema = shape.physical(checked)
    plan = choose(physical, schema, planning, off=off, python=run_as_python(physical))
    return Prepared(checked, plan, shape, planning=planning)


def build_result(
    prepared: Prepared, matches: Matches, events: pa.Table, hashes: RowHashes | None = None
) -> pa.Table:
    """Matches as the table the query asks for; the events' hashes may be known already."""
    query, schema = prepared.physical
    chosen_from = prepared.plan.residual or query.having is not None or query.limit is not None
    if matches.count > FEW and not chosen_from:
        whole_of = prepared.shape.whole_of(query)
        size = matches.nbytes + result_bytes(matches, events, query, whole_of)
        held = Holding(0, matches.number, size, events.num_rows - 1, None)
        Allowance(prepared.planning.limits, prepared.query, schema, prepared.shape.unit).ask(held)
    return prepared.result.build(matches, events, hashes)


def time_ordered(prepared: Prepared, matches: Matches, events: pa.Table) -> Matches:
    """Matches in the order of their times."""
    query, schema = prepared.physical
    return in_time_order(matches, events, query, schema, prepared.shape.unit)


def result_of(prepared: Prepared) -> pa.Schema:
    """The columns of a query's result."""
    return prepared.result.wanted


def joined_of(matcher: AnyEngine, found: Sequence[Matches]) -> Matches:
    """Several deliveries of a matcher as one."""
    if isinstance(matcher, ReferenceEngine):
        output: Sequence[str] = matcher.output
    else:
        output = matcher.program.source.output
    return joined([f for f in found if f.count], output)


def unseen_types(prepared: Prepared, matcher: AnyEngine) -> frozenset[str]:
    """The types of events that a query asks for and that no event had, as far as is known."""
    if isinstance(matcher, ReferenceEngine):
        return frozenset()
    wanted = {n for role in prepared.plan.roles if not role.negative for n in names_of(role.type)}
    return frozenset(wanted.intersection(matcher.scan.unseen_types()))
