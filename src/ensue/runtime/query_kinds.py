"""The registry of query kinds; their modules are loaded on demand."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pyarrow as pa

from ensue.ir.query import Query
from ensue.runtime.options import NO_ARCHIVES, ArchiveSet, RunOptions
from ensue.runtime.query_spec import QuerySpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import OutputTable

if TYPE_CHECKING:
    from ensue.runtime.stage import QueryOperator


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """All queries of a call, with their source and options."""

    specs: Sequence[QuerySpec]
    source: SourceSchema
    options: RunOptions
    archive_set: ArchiveSet = NO_ARCHIVES

    @property
    def is_single(self) -> bool:
        """Whether it is a single query, not a list."""
        return len(self.specs) == 1 and self.specs[0].name is None


@dataclass(frozen=True, slots=True)
class PlannedQueries:
    """The queries of one kind in a call, planned."""

    delivered: Mapping[QuerySpec, Sequence[OutputTable]]  # not numbered yet
    works: Callable[[Mapping[QuerySpec, Sequence[OutputTable]]], "Iterable[QueryOperator]"]  # for numbered outputs


def build_output(spec: QuerySpec, schema: pa.Schema, meaning: Query | None) -> OutputTable:
    """The only output of a query, not numbered yet."""
    return OutputTable(0, "" if spec.name is None else spec.name, schema, spec.number, meaning)


@dataclass(frozen=True, slots=True)
class QueryKind:
    """A kind of query: its node, and the functions for it, each as "module:name"."""

    name: str
    node: str
    plan: str  # (the call's queries of this kind, call) -> PlannedQueries

    def accepts(self, query: object) -> bool:
        """Checks the type of a query without importing its module."""
        return f"{type(query).__module__}:{type(query).__qualname__}" == self.node

    def plan_queries(self, specs: Sequence[QuerySpec], call: PlanRequest) -> PlannedQueries:
        """Plans the call's queries of this kind."""
        planned: PlannedQueries = resolve_name(self.plan)(specs, call)
        return planned


KINDS = (
    QueryKind("pattern", "ensue.ir.query:Query", "ensue.operators.match.match_operator:plan_queries"),
    QueryKind(
        "archive join",
        "ensue.ir.archive_join:ArchiveJoinQuery",
        "ensue.operators.archive_join.join_operator:plan_archive_joins",
    ),
    QueryKind(
        "row pattern",
        "ensue.ir.row_pattern:RowPatternQuery",
        "ensue.operators.row_match.row_operator:plan_row_patterns",
    ),
    QueryKind("hierarchy", "ensue.ir.hierarchy:Hierarchy", "ensue.operators.hierarchy.hierarchy_plan:plan_hierarchies"),
    QueryKind(
        "subscriptions",
        "ensue.runtime.query_spec:SubscriptionsSpec",
        "ensue.operators.subscriptions.subscription_operator:plan_subscriptions",
    ),
)
