"""A workload: what is asked of a stream of events, and the plan by which it is found.

It is a DAG. Its nodes are the source of the events and what is matched: queries, and layers of
events that others are made of. Nodes that find all they need in the key groups of one key are a stage,
stages that give each other events a chain, and what comes out are named outputs.
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
from ensue.runtime.stage import (
    InputFilter,
    OutputTable,
    QueryOperator,
    is_partitioned,
    union_types,
)

if TYPE_CHECKING:
    from ensue.archives.archive import Archive


def plan_operators(
    asked: Sequence[QuerySpec],
    source: SourceSchema,
    wishes: RunOptions,
    pasts: ArchiveSet = NO_ARCHIVES,
) -> tuple[QueryOperator, ...]:
    """The works of some queries. Their outputs are numbered in the order of the call."""
    asked = [_traced(one) if wishes.trace else one for one in asked]
    if wishes.streaming:
        require_finite_result(asked)
    asked, finishing = split_result_modifiers(asked, emit_timeouts=wishes.emit_timeouts)
    if pasts.own is not None:
        from ensue.operators.archive_join.join_planner import require_columns

        require_columns(pasts, source.shape)
    call = PlanRequest(asked, source, wishes, pasts)
    by_kind = [(kind, [one for one in asked if kind.is_of(one.query)]) for kind in KINDS]
    planned = [kind.planned(queries, call) for kind, queries in by_kind if queries]
    delivered = {one: found for kind in planned for one, found in kind.delivered.items()}
    numbers = count()
    outputs: dict[QuerySpec, list[OutputTable]] = {
        one: [replace(output, number=next(numbers)) for output in delivered[one]] for one in asked
    }
    for one in asked:  # the query itself comes after the levels below it
        if one.number in finishing:
            outputs[one][-1] = replace(outputs[one][-1], finishing=finishing[one.number])
    if wishes.flat:
        outputs = {one: [output.flattened() for output in outputs[one]] for one in outputs}
    for output in (output for of_one in outputs.values() for output in of_one):
        _ = output.finished  # what cannot be ordered is told before anything runs
    return tuple(work for kind in planned for work in kind.works(outputs))


def _traced(one: QuerySpec) -> QuerySpec:
    """A query whose matches tell their members: one that stands on no definitions."""
    return replace(one, query=Hierarchy((), one.query)) if isinstance(one.query, Query) else one


MAX_CACHED_PLANS = 64  # calls of which works are kept
_NO_PART = ("access", "coming")  # of the key


@dataclass(frozen=True, slots=True)
class _Call:
    """All that works depend on. Two are equal where their keys are."""

    key: Hashable
    asked: tuple[QuerySpec, ...] = field(compare=False)
    source: SourceSchema = field(compare=False)
    wishes: RunOptions = field(compare=False)


def plan_operators_cached(
    asked: Sequence[QuerySpec],
    source: SourceSchema,
    wishes: RunOptions,
    pasts: ArchiveSet = NO_ARCHIVES,
) -> tuple[QueryOperator, ...]:
    """The works of some queries: those of an equal call before, or new ones."""
    if wishes.streaming or pasts.archives or not all(map(_depends_on_nothing_else, asked)):
        return plan_operators(asked, source, wishes, pasts)
    key = (*map(_query_key, asked), source.key, _wishes_key(wishes))
    try:
        hash(key)
    except TypeError:  # something is of a type that planning refuses, in words
        return plan_operators(asked, source, wishes, pasts)
    # the events are no part of it: without an archive nobody looks at them before they are matched
    return _works(_Call(key, tuple(asked), source, replace(wishes, coming=STREAM_INPUT)))


@lru_cache(maxsize=MAX_CACHED_PLANS)
def _works(call: _Call) -> tuple[QueryOperator, ...]:
    return plan_operators(call.asked, call.source, call.wishes)


def _depends_on_nothing_else(one: QuerySpec) -> bool:
    return isinstance(one.query, Query | Hierarchy) and not any(True for _ in one.operators)


def _query_key(one: QuerySpec) -> Hashable:
    """A query and how it is written: 1 and 1.0 are equal, but not what is computed with them, and
    errors point into the text."""
    texts = tuple(query.text for query in one.queries)
    return one, repr(one.query), texts


def _wishes_key(wishes: RunOptions) -> Hashable:
    # whatever they come to hold is a part of the key, unless it is named here
    others = (getattr(wishes, f.name) for f in fields(wishes) if f.name not in _NO_PART)
    # plans are equal whatever the limits are; works are not
    return wishes.planning.limits, *others


@dataclass(frozen=True)
class Workload:
    """Queries over one stream. It is planned once; other processes get the plan."""

    asked: tuple[QuerySpec, ...]
    source: SourceSchema
    wishes: RunOptions = RunOptions()  # noqa: RUF009  it is frozen
    key_groups: int = 1  # of a stage that has a key
    deliver_late: bool = False
    pasts: ArchiveSet = NO_ARCHIVES

    @property
    def alone(self) -> bool:
        """Whether it is one query of its own, not one of a list."""
        return len(self.asked) == 1 and self.asked[0].name is None

    @cached_property
    def works(self) -> tuple[QueryOperator, ...]:
        return plan_operators_cached(self.asked, self.source, self.wishes, self.pasts)

    @cached_property
    def outputs(self) -> tuple[OutputTable, ...]:
        found = (output for work in self.works for output in work.outputs)
        return tuple(sorted(found, key=lambda output: output.number))

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return union_types(work.reads for work in self.works)

    @cached_property
    def chains(self) -> tuple[Pipeline, ...]:
        """The stages that key groups run, as chains that do not wait for each other."""
        from ensue.runtime.job_fingerprint import format_pipeline

        found: list[Pipeline] = []
        read: tuple[InputFilter, ...] = ()
        several = [stages for work in self.works for stages in work.chains()]
        if self.wishes.streaming and self.pasts.own is not None:
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
                    format_pipeline(asked, self.source, self.wishes, key_groups, self.pasts),
                    self.deliver_late,
                    read,
                )
            )
            read = (*read, *(stage.reads for stage in stages))
        return tuple(found)

    def owning(self, name: str, archive: "Archive") -> "Workload":
        """The same where the events belong to an archive."""
        return replace(self, pasts=self.pasts.owning(name, archive))

    def renewed(self) -> "Workload":
        """The same where the archive that the events belong to ends as it does now."""
        return replace(self, pasts=self.pasts.renewed())

    @property
    def text(self) -> str:
        """What a saved state of all of it is known by."""
        from ensue.runtime.job_fingerprint import format_pipeline

        return format_pipeline(self.asked, self.source, self.wishes, 1, self.pasts)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of all stages; `read` gives the workload back."""
        return tuple(
            chain.stage_text(number)
            for chain in self.chains
            for number in range(len(chain.stages))
        )

    @classmethod
    def read(cls, texts: Iterable[str], operators: Iterable[UserOperator] = ()) -> "Workload":
        """The workload of a stream, from the texts of its stages.

        Operators of users are known by name and must be the same ones.
        """
        from ensue.runtime.job_fingerprint import parse_stages

        return cls(**parse_stages(texts, operators))
