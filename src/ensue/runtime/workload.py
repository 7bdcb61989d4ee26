"""A workload: the queries over one stream, and their plan.

The plan is a DAG from the source to named outputs. Its operators consist of stages, each
partitioned by one key; stages that send each other complex events are a pipeline.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from ensue.cached import cached_property
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.user_operator import UserOperator
from ensue.runtime.grouping import require_finite_result, split_result_modifiers
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.query_kinds import KINDS, OPERATORS, find_kind
from ensue.runtime.query_spec import NO_ARCHIVES, STREAM_INPUT, ArchiveSet, Name, QuerySpec, RunOptions
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import InputFilter, OutputTable, QueryOperator, is_partitioned, union_types
from ensue.vector.event_table import sort_events

if TYPE_CHECKING:
    import pyarrow as pa

    from ensue.archives.archive import Archive
    from ensue.planner.explain.plan_node import PlanNode


def plan_operators(workload: "Workload") -> tuple[QueryOperator, ...]:
    """Plans queries. Their outputs are numbered in the order of the call."""
    specs: Sequence[QuerySpec] = workload.specs
    options = workload.options
    if options.output.trace:  # a hierarchy without definitions reports the events of its matches
        specs = [replace(q, query=Hierarchy((), q.query)) if isinstance(q.query, Query) else q for q in specs]
    if options.streaming:
        require_finite_result(specs)
        if not options.output.ids:
            raise QueryError(
                "the matches of a stream need their ids: a repeated micro-batch is recognized by them",
                hint="leave out ids=False, and the column where you read the matches",
            )
    specs, finishing = split_result_modifiers(specs, emit_timeouts=options.output.emit_timeouts)
    wanted = replace(options.output, ids=True) if finishing else options.output  # ids order equal rows
    workload = replace(workload, specs=tuple(specs), options=replace(options, output=wanted))
    by_kind = [(kind, [spec for spec in specs if find_kind(spec.query) is kind]) for kind in KINDS]
    works: list[QueryOperator] = []
    for kind, queries in by_kind:
        works += resolve_name(kind.plan)(queries, workload) if queries else ()
    if workload.archive_set.own is not None:
        check_own = resolve_name(f"{OPERATORS}.archive_join.join_planner:require_columns")
        check_own(workload.archive_set, workload.source.shape)
    planned = sorted((output for work in works for output in work.outputs), key=lambda output: output.query_number)
    last = {output.query_number: output for output in planned}  # that of the query itself
    delivered = {}
    for number, output in enumerate(planned):
        finish = finishing.get(output.query_number) if output is last[output.query_number] else None
        delivered[id(output)] = _deliver(replace(output, number=number, finishing=finish), options)
    return tuple(work.with_outputs([delivered[id(output)] for output in work.outputs]) for work in works)


def _deliver(output: OutputTable, options: RunOptions) -> OutputTable:
    """An output in the form that the call asks for."""
    if not options.output.ids:
        output = output.leave_out_ids()
    output = output.flatten() if options.output.flat else output
    _ = output.finished  # raises before anything runs, if it cannot be sorted
    return output


MAX_CACHED_PLANS = 64
_NO_PART = ("access", "coming")  # options that are not in the key of the plan cache


@dataclass(frozen=True, slots=True)
class _Call:
    """The input of the planner, hashed and compared by its key."""

    key: Hashable
    workload: "Workload" = field(compare=False)


def plan_operators_cached(workload: "Workload") -> tuple[QueryOperator, ...]:
    """Plans queries, or returns the cached plan of an equal call."""
    specs, options = workload.specs, workload.options
    if options.streaming or workload.archive_set.archives or not all(map(_is_cacheable, specs)):
        return plan_operators(workload)
    values = (getattr(options, f.name) for f in fields(options) if f.name not in _NO_PART)
    # equality of plans ignores limits; operators depend on them
    key = (*map(_query_key, specs), workload.source.key, options.planning.limits, *values)
    try:
        hash(key)
    except TypeError:  # the planner raises an error for a value of this type
        return plan_operators(workload)
    # the events are not in the key: without an archive the planner does not look at them
    return _plan_call(_Call(key, replace(workload, options=replace(options, coming=STREAM_INPUT))))


@lru_cache(maxsize=MAX_CACHED_PLANS)
def _plan_call(call: _Call) -> tuple[QueryOperator, ...]:
    return plan_operators(call.workload)


def _is_cacheable(spec: QuerySpec) -> bool:
    return isinstance(spec.query, Query | Hierarchy) and not any(True for _ in spec.operators)


def _query_key(spec: QuerySpec) -> Hashable:
    """A query and its text: 1 and 1.0 are equal but compute different types, and errors point
    into the text."""
    return spec, repr(spec.query), tuple(query.text for query in spec.queries)


@dataclass(frozen=True)
class Workload:
    """Queries over one stream, planned once; other processes receive the plan."""

    specs: tuple[QuerySpec, ...]
    source: SourceSchema
    options: RunOptions = RunOptions()  # noqa: RUF009  it is frozen
    key_groups: int = 1  # of a partitioned stage
    deliver_late: bool = False
    archive_set: ArchiveSet = NO_ARCHIVES

    @property
    def is_single(self) -> bool:
        """Whether it is a single query, not a list."""
        return len(self.specs) == 1 and self.specs[0].name is None

    @cached_property
    def works(self) -> tuple[QueryOperator, ...]:
        return plan_operators_cached(self)

    @cached_property
    def outputs(self) -> tuple[OutputTable, ...]:
        found = (output for work in self.works for output in work.outputs)
        return tuple(sorted(found, key=lambda output: output.number))

    @property
    def types(self) -> frozenset[str] | None:
        """The types of its input events. None: all types."""
        return union_types(work.reads for work in self.works)

    @cached_property
    def chains(self) -> tuple[PipelinePlan, ...]:
        """The stages as independent pipelines."""
        from ensue.runtime.job_fingerprint import format_pipeline

        found: list[PipelinePlan] = []
        read: tuple[InputFilter, ...] = ()
        several = [stages for work in self.works for stages in work.chains()]
        if self.options.streaming and self.archive_set.own is not None:
            if len(several) > 1:
                raise QueryError(
                    "the own archive of a stream goes with queries that share one key: events that several "
                    "key groups have would be archived several times",
                    hint="ask for the others in a call of their own, without own= of ensue.Archives",
                )
            add_writer = resolve_name(f"{OPERATORS}.archive_join.join_operator:add_archive_writer")
            several = [add_writer(several[0], self.source, self.archive_set)]
        for stages in several:
            numbers = {output.query_number for stage in stages for output in stage.outputs}
            specs = tuple(spec for spec in self.specs if spec.number in numbers)
            key_groups = self.key_groups if any(map(is_partitioned, stages)) else 1
            found.append(
                PipelinePlan(
                    specs,
                    self.source,
                    stages,
                    key_groups,
                    format_pipeline(specs, self.source, self.options, key_groups, self.archive_set),
                    self.deliver_late,
                    read,
                )
            )
            read = (*read, *(stage.reads for stage in stages))
        return tuple(found)

    def describe(self, events: "pa.Table | None" = None) -> "PlanNode":
        """Describes what its operators do, with the figures of a run if there is a table of events."""
        from ensue.planner.explain.plan_node import combine_plans

        ordered = None if events is None else sort_events(events, self.source.shape, types=self.types)
        plans: dict[Name, PlanNode] = {}
        for work in self.works:
            numbers = {output.query_number for output in work.outputs}
            name, *others = [spec.name or 0 for spec in self.specs if spec.number in numbers]
            plans["queries " + " and ".join(map(str, (name, *others))) if others else name] = work.describe(ordered)
        return combine_plans(plans)

    def with_own_archive(self, name: str, archive: "Archive") -> "Workload":
        """The workload with an archive that the stream writes."""
        return replace(self, archive_set=self.archive_set.with_own_archive(name, archive))

    def renew(self) -> "Workload":
        """The workload with the current end of the stream's own archive."""
        return replace(self, archive_set=self.archive_set.renew())

    @property
    def text(self) -> str:
        """The text that identifies it in a saved state."""
        from ensue.runtime.job_fingerprint import format_pipeline

        return format_pipeline(self.specs, self.source, self.options, 1, self.archive_set)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all stages, which `read` parses."""
        return tuple(chain.stage_text(number) for chain in self.chains for number in range(len(chain.stages)))

    @classmethod
    def read(cls, texts: Iterable[str], operators: Iterable[UserOperator] = ()) -> "Workload":
        """The workload of a stream, from the texts of its stages and its user operators."""
        from ensue.runtime.job_fingerprint import parse_stages

        return cls(**parse_stages(texts, operators))
