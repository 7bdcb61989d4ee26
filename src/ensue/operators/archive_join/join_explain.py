"""Explains queries with JOIN ARCHIVE: as text, with the figures of a run, and as a picture."""

from time import perf_counter

import pyarrow as pa

from ensue.archives.archive import ArchiveLayout
from ensue.cached import cached_property
from ensue.engine.program import format_kernel
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.values import format_duration
from ensue.operators.archive_join.join_matcher import ArchiveJoinMatcher
from ensue.operators.archive_join.join_operator import ArchiveJoinOperator
from ensue.operators.archive_join.join_planner import compile_archive_join
from ensue.operators.archive_join.join_sides import CompiledSide, PatternSide, select_patterns
from ensue.operators.archive_join.joining import CompiledArchiveJoin, CompiledJoin
from ensue.planner.explain.join_text import (
    ArchiveSummary,
    ReadCounts,
    analyze_archive_join,
    draw_archive_join,
    explain_archive_join,
)
from ensue.planner.physical_plan import PhysicalPlan
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.runtime.query_spec import ArchiveSet, RunOptions
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import OutputTable, StageInput, run_to_end


class ArchiveJoinExplainer:
    """Explains a query with JOIN ARCHIVE."""

    def __init__(
        self, query: ArchiveJoinQuery, source: SourceSchema | None, options: RunOptions, archive_set: ArchiveSet
    ) -> None:
        if source is None or not archive_set.archives:
            name = query.joins[0].archive
            raise QueryError(
                "the plan for JOIN ARCHIVE depends on the archive: pass events, time= and archives=",
                hint=f'archives={{"{name}": ensue.archive(place, time=..., key=...)}}',
                span=query.joins[0].span,
                text=query.text,
            )
        self.query, self.source, self.options, self.archive_set = query, source, options, archive_set

    @cached_property
    def prepared(self) -> CompiledArchiveJoin:
        options, (query, _) = self.options, strip_result_modifiers(self.query)
        return compile_archive_join(
            query, self.source.shape, self.archive_set, options.planning,
            streaming=options.streaming, coming=options.coming, explain=True,
        )  # fmt: skip

    @property
    def types(self) -> frozenset[str] | None:
        """The relevant event types; None means all."""
        return self._operator.reads.types

    @property
    def _operator(self) -> ArchiveJoinOperator:
        compiled = self.prepared
        output = OutputTable(0, "", compiled.joining.result, 0, compiled.meaning)
        return ArchiveJoinOperator((compiled,), (output,), self.archive_set, self.source)

    def explain(self, *more: str) -> str:
        """Returns the plan as text."""
        compiled = self.prepared
        joins = zip(compiled.archive_join.joins, compiled.joins, strict=True)
        summaries = [self._summarize_archive(join.archive, c) for join, c in joins]
        text = explain_archive_join(
            compiled.archive_join, compiled.decision, summaries, self._plans, self._latency, more
        )
        _, last = strip_result_modifiers(self.query)
        return text if last is None else f"{text}\n\n{describe_result_modifiers(last)}"

    @property
    def _sides(self) -> tuple[CompiledSide, ...]:
        return (self.prepared.live, *(join.lookup.prepared for join in self.prepared.joins))

    @property
    def _plans(self) -> list[PhysicalPlan | None]:
        return [s.prepared.plan if isinstance(s, PatternSide) else None for s in self._sides]

    @property
    def _latency(self) -> str:
        if self.prepared.access != "grouped" or not self.prepared.latency:
            return ""
        return self._format_length(self.prepared.latency)

    def _format_length(self, length: float) -> str:
        if self.source.shape.schema.time_kind.numeric:
            return f"{length:g}"
        if length == float("inf"):
            return "to the end"
        return format_duration(int(length) * (1 if self.prepared.unit == "ns" else 1_000))

    def _summarize_archive(self, name: str, join: CompiledJoin) -> ArchiveSummary:
        layout = self.archive_set.archives[name].layout()
        waits = self._format_length(join.waits - 1) if join.waits else ""
        return ArchiveSummary(
            _kind(layout, own=name == self.archive_set.own),
            _events(layout),
            _layout(layout),
            join.lookup.prepared.reach,
            join.lookup.field,
            waits,
        )

    def analyze(self, ordered: pa.Table) -> str:
        """Returns the plan with the reads and matches of a run over ordered events."""
        stage = self._operator.as_single_stage()
        began = perf_counter()
        matcher = stage.table_matcher()
        assert isinstance(matcher, ArchiveJoinMatcher)
        result = run_to_end(matcher, StageInput.from_events(ordered))
        seconds = perf_counter() - began
        names = list(dict.fromkeys(join.archive for join in self.query.joins))
        reading = {name: matcher.archived[name].reading for name in names}
        read = [
            ReadCounts(c.reads, c.files, c.rows, c.events, *matcher.count_matches(name)) for name, c in reading.items()
        ]
        reading_seconds = sum(counts.seconds for counts in reading.values())
        rows = sum(table.num_rows for table in result)
        figures = analyze_archive_join(
            self.prepared.decision, names, read, matcher.lookup_count, ordered.num_rows, rows,
            (("reading", reading_seconds), ("all", seconds)),
        )  # fmt: skip
        return self.explain(figures)

    def kernels(self) -> str:
        """Returns the source of the kernel of each side."""
        return "\n\n\n".join(
            format_kernel(side.plan, side.physical[1], side.shape.unit) for side in select_patterns(self._sides)
        )

    def picture(self) -> str:
        """Draws the plans of all sides."""
        return draw_archive_join(self.prepared.archive_join, self._plans, self.prepared.access)


def _kind(layout: ArchiveLayout, *, own: bool) -> str:
    kind = "a table in memory" if layout.kind == "table" else layout.kind
    version = "" if layout.version is None else f" version {layout.version}"
    return f"{kind}{version}{' and the stream' if own else ''}"


def _events(layout: ArchiveLayout) -> str:
    rows = "some" if layout.rows is None else f"{layout.rows:,}"
    if layout.since is None or layout.until is None:
        return f"{rows} events"
    return f"{rows} events from {layout.since} to {layout.until}"


def _layout(layout: ArchiveLayout) -> str:
    facts = []
    if layout.files:
        facts.append(f"{layout.files:,} {'file' if layout.files == 1 else 'files'}")
    if layout.partitioned_by or layout.buckets:
        buckets = (f"{layout.buckets} buckets",) if layout.buckets else ()
        parts = (*layout.partitioned_by, *buckets)
        facts.append(f"by {' and '.join(dict.fromkeys(parts))}")
    if layout.sorted_by:
        facts.append(f"sorted by {', '.join(layout.sorted_by)}")
    return ", ".join(facts)
