"""A workload: the queries over one stream, and their plan.

The plan is a DAG from the source to named outputs. Its operators consist of stages, each
partitioned by one key; stages that send each other complex events are a pipeline.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING

from ensue.cached import cached_property
from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.user_operator import UserOperator
from ensue.runtime.grouping import require_finite_result, split_result_modifiers
from ensue.runtime.options import NO_ARCHIVES, STREAM_INPUT, ArchiveSet, RunOptions
from ensue.runtime.pipeline import Pipeline
from ensue.runtime.query_kinds import KINDS, PlanRequest
from ensue.runtime.query_spec import QuerySpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import InputFilter, OutputTable, QueryOperator, is_partitioned, union_types

if TYPE_CHECKING:
    from ensue.archives.archive import Archive


def plan_operators(
    asked: Sequence[QuerySpec], source: SourceSchema, options: RunOptions, pasts: ArchiveSet = NO_ARCHIVES
) -> tuple[QueryOperator, ...]:
    """Plans queries. Their outputs are numbered in the order of the call."""
    if options.trace:  # a hierarchy without definitions reports the events of its matches
        asked = [replace(q, query=Hierarchy((), q.query)) if isinstance(q.query, Query) else q for q in asked]
    if options.streaming:
        require_finite_result(asked)
    asked, finishing = split_result_modifiers(asked, emit_timeouts=options.emit_timeouts)
    if pasts.own is not None:
        from ensue.operators.archive_join.join_planner import require_columns

        require_columns(pasts, source.shape)
    call = PlanRequest(asked, source, options, pasts)
    by_kind = [(kind, [one for one in asked if kind.accepts(one.query)]) for kind in KINDS]
    planned = [kind.plan_queries(queries, call) for kind, queries in by_kind if queries]
    delivered = {one: found for kind in planned for one, found in kind.delivered.items()}
    numbers = count()
    outputs: dict[QuerySpec, list[OutputTable]] = {
        one: [replace(output, number=next(numbers)) for output in delivered[one]] for one in asked
    }
    for one in asked:  # the last output is that of the query itself
        if one.number in finishing:
            outputs[one][-1] = replace(outputs[one][-1], finishing=finishing[one.number])
    if options.flat:
        outputs = {one: [output.flatten() for output in outputs[one]] for one in outputs}
    for output in (output for of_one in outputs.values() for output in of_one):
        _ = output.finished  # raises before anything runs, if it cannot be sorted
    return tuple(work for kind in planned for work in kind.works(outputs))


MAX_CACHED_PLANS = 64
_NO_PART = ("access", "coming")  # options that are not in the key of the plan cache


@dataclass(frozen=True, slots=True)
class _Call:
    """The input of the planner, hashed and compared by its key."""

    key: Hashable
    asked: tuple[QuerySpec, ...] = field(compare=False)
    source: SourceSchema = field(compare=False)
    options: RunOptions = field(compare=False)


def plan_operators_cached(
    asked: Sequence[QuerySpec], source: SourceSchema, options: RunOptions, pasts: ArchiveSet = NO_ARCHIVES
) -> tuple[QueryOperator, ...]:
    """Plans queries, or returns the cached plan of an equal call."""
    if options.streaming or pasts.archives or not all(map(_is_cacheable, asked)):
        return plan_operators(asked, source, options, pasts)
    values = (getattr(options, f.name) for f in fields(options) if f.name not in _NO_PART)
    # equality of plans ignores limits; operators depend on them
    key = (*map(_query_key, asked), source.key, options.planning.limits, *values)
    try:
        hash(key)
    except TypeError:  # the planner raises an error for a value of this type
        return plan_operators(asked, source, options, pasts)
    # the events are not in the key: without an archive the planner does not look at them
    return _plan_call(_Call(key, tuple(asked), source, replace(options, coming=STREAM_INPUT)))


@lru_cache(maxsize=MAX_CACHED_PLANS)
def _plan_call(call: _Call) -> tuple[QueryOperator, ...]:
    return plan_operators(call.asked, call.source, call.options)


def _is_cacheable(one: QuerySpec) -> bool:
    return isinstance(one.query, Query | Hierarchy) and not any(True for _ in one.operators)


def _query_key(one: QuerySpec) -> Hashable:
    """A query and its text: 1 and 1.0 are equal but compute different types, and errors point
    into the text."""
    return one, repr(one.query), tuple(query.text for query in one.queries)


@dataclass(frozen=True)
class Workload:
    """Queries over one stream, planned once; other processes receive the plan."""

    asked: tuple[QuerySpec, ...]
    source: SourceSchema
    options: RunOptions = RunOptions()  # noqa: RUF009  it is frozen
    key_groups: int = 1  # of a partitioned stage
    deliver_late: bool = False
    pasts: ArchiveSet = NO_ARCHIVES

    @property
    def alone(self) -> bool:
        """Whether it is a single query, not a list."""
        return len(self.asked) == 1 and self.asked[0].name is None

    @cached_property
    def works(self) -> tuple[QueryOperator, ...]:
        return plan_operators_cached(self.asked, self.source, self.options, self.pasts)

    @cached_property
    def outputs(self) -> tuple[OutputTable, ...]:
        found = (output for work in self.works for output in work.outputs)
        return tuple(sorted(found, key=lambda output: output.number))

    @property
    def types(self) -> frozenset[str] | None:
        """The types of its input events. None: all types."""
        return union_types(work.reads for work in self.works)

    @cached_property
    def chains(self) -> tuple[Pipeline, ...]:
        """The stages as independent pipelines."""
        from ensue.runtime.job_fingerprint import format_pipeline

        found: list[Pipeline] = []
        read: tuple[InputFilter, ...] = ()
        several = [stages for work in self.works for stages in work.chains()]
        if self.options.streaming and self.pasts.own is not None:
            if len(several) > 1:
                raise QueryError(
                    "archive= goes with queries that share one key: events that several key groups "
                    "have would be archived several times",
                    hint="ask for the others in a call of their own, without archive=",
                )
            from ensue.operators.archive_join.join_operator import add_archive_writer

            several = [add_archive_writer(several[0], self.source, self.pasts)]
        for stages in several:
            numbers = {output.asked for stage in stages for output in stage.outputs}
            asked = tuple(one for one in self.asked if one.number in numbers)
            key_groups = self.key_groups if any(map(is_partitioned, stages)) else 1
            found.append(
                Pipeline(
                    asked,
                    self.source,
                    stages,
                    key_groups,
                    format_pipeline(asked, self.source, self.options, key_groups, self.pasts),
                    self.deliver_late,
                    read,
                )
            )
            read = (*read, *(stage.reads for stage in stages))
        return tuple(found)

    def with_own_archive(self, name: str, archive: "Archive") -> "Workload":
        """The workload with an archive that the stream writes."""
        return replace(self, pasts=self.pasts.with_own_archive(name, archive))

    def renew(self) -> "Workload":
        """The workload with the current end of the stream's own archive."""
        return replace(self, pasts=self.pasts.renew())

    @property
    def text(self) -> str:
        """The text that identifies it in a saved state."""
        from ensue.runtime.job_fingerprint import format_pipeline

        return format_pipeline(self.asked, self.source, self.options, 1, self.pasts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all stages, which `read` parses."""
        return tuple(chain.stage_text(number) for chain in self.chains for number in range(len(chain.stages)))

    @classmethod
    def read(cls, texts: Iterable[str], operators: Iterable[UserOperator] = ()) -> "Workload":
        """The workload of a stream, from the texts of its stages and its user operators."""
        from ensue.runtime.job_fingerprint import parse_stages

        return cls(**parse_stages(texts, operators))
