"""Describes queries with JOIN ARCHIVE: both sides, how the archive is accessed and why, and the figures of a run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import pyarrow as pa

from ensue.analyzer.output_mode import ResultAggregation
from ensue.archives.archive import ArchiveLayout
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, JoinSide, RowPatternSide
from ensue.ir.query import Equivalence
from ensue.ir.values import format_duration
from ensue.operators.archive_join.join_matcher import ArchiveJoinMatcher
from ensue.operators.archive_join.join_sides import CompiledSide, PatternSide
from ensue.operators.archive_join.joining import CompiledArchiveJoin, CompiledJoin
from ensue.options import format_count
from ensue.planner.access_paths import AccessCandidate, AccessDecision, ArchiveStatistics, describe_unclustered
from ensue.planner.explain.plan_node import Metric, PlanNode, Shape
from ensue.planner.explain.run_metrics import format_phases
from ensue.planner.statistics import format_number
from ensue.printing.expression_printer import format_condition, format_expr, format_name
from ensue.printing.pattern_printer import format_pattern, format_range, format_return_item
from ensue.runtime.grouping import describe_result_modifiers
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import ArchiveSet
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import PipelineStage, StageInput

_KINDS = {
    JoinKind.LEFT: "left: live matches without a past, too",
    JoinKind.ANTI: "anti: only live matches without a past",
}


@dataclass(frozen=True)
class ArchiveJoinDescription:
    """Describes a query with JOIN ARCHIVE."""

    compiled: CompiledArchiveJoin
    finishing: ResultAggregation | None  # what becomes of the joined rows
    archive_set: ArchiveSet
    source: SourceSchema

    def describe(self, *figures: PlanNode) -> PlanNode:
        """Describes the join and the four access paths, the figures of a run, then the plans of all sides."""
        compiled = self.compiled
        modifiers = () if self.finishing is None else (describe_result_modifiers(self.finishing),)
        overview = PlanNode(
            "live and archive",
            tuple(self._list_facts(compiled.archive_join, compiled.decision)),
            children=(_describe_access(compiled.decision, self._latency),),
        )
        sides = _describe_sides(compiled.archive_join, compiled.sides, compiled.access)
        return PlanNode(children=(overview, *figures, *sides, *modifiers), shape=Shape.PLAN, label="live and archive")

    def _list_facts(self, query: ArchiveJoinQuery, decision: AccessDecision) -> Iterator[tuple[str, str]]:
        live = decision.live
        rate = "" if live is None else _format_rate(live.matches, assumed=live.assumed)
        yield "live", f"{_format_side(query.live)}{rate}"
        for number, (join, compiled) in enumerate(zip(query.joins, self.compiled.joins, strict=True)):
            side = decision.archives[number] if decision.archives else None
            yield from self._list_archive_facts(join, compiled, side)
        if query.returns:
            yield "return", ", ".join(map(format_return_item, query.returns))
        if query.having is not None:
            yield "having", format_expr(query.having)
        if query.limit is not None:
            yield "limit", f"{query.limit.count} a live match"
        for past in decision.archives:
            for number, line in enumerate((describe_unclustered(past, decision) or "").splitlines()):
                yield "" if number else "warning", line

    def _list_archive_facts(
        self, join: ArchiveJoin, compiled: CompiledJoin, side: ArchiveStatistics | None
    ) -> Iterator[tuple[str, str]]:
        layout, lookup = self.archive_set.archives[join.archive].layout(), compiled.lookup
        yield "archive", f"{format_name(join.archive)}: {_format_layout(layout, join.archive == self.archive_set.own)}"
        rate = "" if side is None else _format_rate(side.matches, assumed=side.assumed)
        yield "", f"{_format_side(join.query)}{rate}, reach {lookup.prepared.reach}"
        by = "all objects together, as ON has no key"
        if lookup.field is not None:
            keys = "" if side is None or side.assumed else f", about {format_number(side.keys)} objects"
            by = f"by {format_name(lookup.field)}{keys}"
        yield "", f"read {by}"
        last = "" if join.last is None else f", the last {join.last}"
        yield "range", f"{format_range(join.range).removeprefix('RANGE ').lower()}{last}"
        conditions = [*_format_keys(join.equivalence), *map(format_condition, join.on)]
        how = [] if join.kind is JoinKind.INNER else [_KINDS[join.kind]]
        how += [f"on {' and '.join(conditions)}"] if conditions else []
        yield "join", ", ".join(how) or "whatever is in the range"
        if compiled.waits:
            by_rows = isinstance(join.query, RowPatternSide)
            undecided = "how long the archived match is" if by_rows else "a negation at the end of the past"
            yield "waits", f"{self._format_length(compiled.waits - 1)}, until {undecided} is decided"

    @property
    def _latency(self) -> str:
        if self.compiled.access != "grouped" or not self.compiled.latency:
            return ""
        return self._format_length(self.compiled.latency)

    def _format_length(self, length: float) -> str:
        if self.source.shape.schema.time_kind.numeric:
            return f"{length:g}"
        if length == float("inf"):
            return "to the end"
        return format_duration(int(length) * (1 if self.compiled.unit == "ns" else 1_000))


def run_join(compiled: CompiledArchiveJoin, stage: PipelineStage, ordered: pa.Table) -> PlanNode:
    """Runs the stage of a query over events in stream order, and describes its reads and matches."""
    began = perf_counter()
    matcher = stage.table_matcher()
    assert isinstance(matcher, ArchiveJoinMatcher)
    rows = sum(table.num_rows for table in run_to_end(matcher, StageInput.from_events(ordered)))
    return _describe_run(compiled, matcher, ordered.num_rows, rows, perf_counter() - began)


# ------------------------------------------------------------------------------- the overview


def _format_side(query: JoinSide) -> str:
    if isinstance(query, RowPatternSide):
        keys = ", ".join(format_name(key.name) for key in query.row_pattern.partition)
        return f"MATCH_RECOGNIZE (...) AS {query.alias}" + (f", [{keys}]" if keys else "")
    return ", ".join([format_pattern(query.pattern), *_format_keys(query.equivalence)])


def _format_keys(equivalence: Sequence[Equivalence]) -> list[str]:
    fields = ", ".join(format_name(e.field_name) for e in equivalence)
    return [f"[{fields}]"] if fields else []


def _format_rate(matches: float, *, assumed: bool) -> str:
    return f": {format_number(matches * 1_000)} in 1,000 events{', assumed' if assumed else ''}"


def _format_layout(layout: ArchiveLayout, own: bool) -> str:
    kind = "a table in memory" if layout.kind == "table" else layout.kind
    version = "" if layout.version is None else f" version {layout.version}"
    known = layout.since is not None and layout.until is not None
    span = f" from {layout.since} to {layout.until}" if known else ""
    rows = "some" if layout.rows is None else f"{layout.rows:,}"
    facts = [f"{kind}{version}{' and the stream' if own else ''}", f"{rows} events{span}"]
    if layout.files:
        facts.append(format_count(layout.files, "file"))
    if layout.partitioned_by or layout.buckets:
        buckets = (f"{layout.buckets} buckets",) if layout.buckets else ()
        facts.append(f"by {' and '.join(dict.fromkeys((*layout.partitioned_by, *buckets)))}")
    if layout.sorted_by:
        facts.append(f"sorted by {', '.join(layout.sorted_by)}")
    return ", ".join(facts)


def _format_access(candidate: AccessCandidate) -> str:
    """Formats an access path with its name in the paper."""
    return f"{candidate.name.replace('_', ' ')} ({candidate.paper})"


def _describe_access(decision: AccessDecision, latency: str) -> PlanNode:
    facts = [_format_access(decision.candidate(decision.access)), decision.why, latency and f"latency {latency}"]
    live, lines = decision.live, []
    if live is not None:
        batch = format_number(min(live.batch, live.events))
        lines.append(f"{format_number(live.events)} live events, {batch} at a time")
    digits = max(len(format_number(c.cost)) for c in decision.candidates)
    candidates = tuple(
        (
            _format_access(candidate),
            f"impossible: {candidate.impossible}"
            if candidate.impossible
            else f"{format_number(candidate.cost):>{digits}} µs per event, {candidate.words}",
        )
        for candidate in decision.candidates
    )
    return PlanNode(
        f"access   {', '.join(filter(None, facts))}", lines=tuple(lines), children=(PlanNode(properties=candidates),)
    )


def _describe_sides(query: ArchiveJoinQuery, sides: Sequence[CompiledSide], access: str) -> Iterator[PlanNode]:
    """Describes the plans of both sides; a clause of SQL has none here."""
    archives = [join.archive for join in query.joins]
    names = [
        f"archive {format_name(archive)}" + (f", join {number}" if archives.count(archive) > 1 else "")
        for number, archive in enumerate(archives, 1)
    ]
    edges = tuple(
        PlanNode(
            f"looks up {name} ({access})",
            shape=Shape.EDGE,
            label=f"{join.kind.value} ARCHIVE {format_name(join.archive)} {format_range(join.range)} ({access})",
            target=name,
        )
        for name, join in zip(names, query.joins, strict=True)
    )
    for name, side in zip(["live", *names], sides, strict=True):
        clause = PlanNode(lines=("a MATCH_RECOGNIZE clause",), shape=Shape.PLAN)
        plan = side.prepared.describe() if isinstance(side, PatternSide) else clause
        yield replace(plan, title=name, children=(*(edges if name == "live" else ()), *plan.children))


def _describe_run(
    compiled: CompiledArchiveJoin, matcher: ArchiveJoinMatcher, events: int, rows: int, seconds: float
) -> PlanNode:
    """Describes a run: estimates beside the actual figures; only the last line depends on the machine."""
    decision = compiled.decision
    expected = "-" if decision.live is None else format_number(decision.live.matches * events)
    figures = [Metric("live matches", expected, f"{matcher.lookup_count:,}")]
    reading = 0.0
    for archive in dict.fromkeys(join.archive for join in compiled.archive_join.joins):
        counts, name = matcher.archived[archive].reading, format_name(archive)
        found, kept = matcher.count_matches(archive)
        past = next((p for p in decision.archives if p.name == archive), None)
        all_found = "-" if past is None else format_number(past.rows * past.matches)
        reads = (
            f"in {format_count(counts.reads, 'read')}, of {counts.rows:,} rows in {format_count(counts.files, 'file')}"
        )
        kept_words = f"expected in all of it; {kept:,} kept in the end"
        figures.append(Metric(f"{name}: events", "", f"{counts.events:,}", reads))
        figures.append(Metric(f"{name}: archived matches", all_found, f"{found:,}", kept_words))
        reading += counts.seconds
    figures.append(Metric("rows in the result", "", f"{rows:,}"))
    phases = PlanNode(format_phases((("reading", reading), ("all", seconds))))
    title = f"analysis of {events:,} live events: estimate, actual"
    return PlanNode(title, metrics=tuple(figures), children=(phases,))
