"""How a query over a stream and its past is run: in words, analysed, as a picture."""

from dataclasses import dataclass, field
from time import perf_counter

import pyarrow as pa

from ensue.algebra.correlation import Correlation
from ensue.algebra.durations import show_duration
from ensue.archives.contract import Layout
from ensue.columns.arrow_kinds import Unit
from ensue.columns.stream import slices
from ensue.computed import cached_property
from ensue.engine.shown_kernel import shown_kernel
from ensue.plan.physical import Plan
from ensue.plan.planning import Planning
from ensue.plan.show.explain_archive import Looked, Stored, explain_archive, looked
from ensue.plan.show.picture_archive import picture_archive
from ensue.workload.correlations.expected import Coming
from ensue.workload.correlations.matcher import CorrelatedMatcher
from ensue.workload.correlations.prepare import Wanted, prepare_correlation
from ensue.workload.correlations.prepared import Pasts, PreparedCorrelation, PreparedJoin
from ensue.workload.correlations.sides import PatternSide, PreparedSide, patterns_of
from ensue.workload.correlations.work import CorrelationWork
from ensue.workload.source import Source
from ensue.workload.stage import Fed, Output
from ensue.workload.whole_results import matches_of, told_of_whole
from ensue.workload.work import SLICE


@dataclass(frozen=True)
class ExplainedCorrelation:
    """A query with JOIN ARCHIVE that is looked at."""

    asked: Correlation
    source: Source
    planning: Planning
    pasts: Pasts
    wanted: Wanted = field(default_factory=Wanted)
    coming: Coming = field(default_factory=Coming)
    streaming: bool = False

    @cached_property
    def prepared(self) -> PreparedCorrelation:
        return prepare_correlation(
            matches_of(self.asked)[0], self.source.shape, self.pasts, self.planning, self.wanted,
            streaming=self.streaming, coming=self.coming, told=True,
        )  # fmt: skip

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return self._work.reads.types

    @property
    def _work(self) -> CorrelationWork:
        made = self.prepared
        output = Output(0, "", made.joining.result, 0, made.meaning)
        return CorrelationWork((made,), (output,), self.pasts, self.source)

    def told(self) -> str:
        """The plan in words."""
        return self._told()

    def _told(self, *more: str) -> str:
        made = self.prepared
        joins = zip(made.correlation.joins, made.joins, strict=True)
        stored = [self._stored(asked.archive, join) for asked, join in joins]
        told = explain_archive(
            made.correlation, made.decision, stored, self._plans, self._latency, more
        )
        _, last = matches_of(self.asked)
        return told if last is None else f"{told}\n\n{told_of_whole(last)}"

    @property
    def _sides(self) -> tuple[PreparedSide, ...]:
        return (self.prepared.live, *(join.lookup.prepared for join in self.prepared.joins))

    @property
    def _plans(self) -> list[Plan | None]:
        return [
            side.prepared.plan if isinstance(side, PatternSide) else None for side in self._sides
        ]

    @property
    def _latency(self) -> str:
        if self.prepared.access != "grouped" or not self.prepared.latency:
            return ""
        return _length(self.prepared.latency, self._calendar, self.prepared.unit)

    @property
    def _calendar(self) -> bool:
        return not self.source.shape.schema.time_kind.numeric

    def _stored(self, name: str, join: PreparedJoin) -> Stored:
        archive = self.pasts.archives[name]
        layout = archive.layout()
        waits = ""
        if join.waits:
            waits = _length(join.waits - 1, self._calendar, self.prepared.unit)
        return Stored(
            _kind(layout, own=name == self.pasts.own),
            _events(layout),
            _layout(layout),
            join.lookup.prepared.reach,
            join.lookup.field,
            waits,
        )

    def analysed(self, ordered: pa.Table) -> str:
        """The same, with what was read and found for events that are in order."""
        stage = self._work.whole()
        began = perf_counter()
        matcher = stage.matcher()
        assert isinstance(matcher, CorrelatedMatcher)
        found = [matcher.feed(Fed.of(piece)) for piece in slices(ordered, SLICE)]
        found.append(matcher.finish())
        seconds = perf_counter() - began
        names = list(dict.fromkeys(join.archive for join in self.asked.joins))
        reading = {name: matcher.pasts[name].reading for name in names}
        read = [
            Looked(
                one.reads, one.files, one.rows, one.events,
                matcher.found_in(name), matcher.kept_of(name),
            )
            for name, one in reading.items()
        ]  # fmt: skip
        inside = sum(one.seconds for one in reading.values())
        rows = sum(table.num_rows for tables in found for table in tables)
        told = looked(
            self.prepared.decision, names, read, matcher.looked_for, ordered.num_rows, rows,
            (("reading", inside), ("all", seconds)),
        )  # fmt: skip
        return self._told(told)

    def kernels(self) -> str:
        """The source of the kernel of each side."""
        return "\n\n\n".join(
            shown_kernel(side.plan, side.physical[1], side.shape.unit)
            for side in patterns_of(self._sides)
        )

    def picture(self) -> str:
        """The plans of all sides as a drawing."""
        return picture_archive(self.prepared.correlation, self._plans, self.prepared.access)


def _length(length: float, calendar: bool, unit: Unit) -> str:
    if not calendar:
        return f"{length:g}"
    if length == float("inf"):
        return "to the end"
    return show_duration(int(length) * (1 if unit == "ns" else 1_000))


def _kind(layout: Layout, *, own: bool) -> str:
    kind = "a table in memory" if layout.kind == "table" else layout.kind
    version = "" if layout.version is None else f" version {layout.version}"
    return f"{kind}{version}{' and what comes' if own else ''}"


def _events(layout: Layout) -> str:
    rows = "some" if layout.rows is None else f"{layout.rows:,}"
    if layout.since is None or layout.until is None:
        return f"{rows} events"
    return f"{rows} events from {layout.since} to {layout.until}"


def _layout(layout: Layout) -> str:
    facts = []
    if layout.files:
        facts.append(f"{layout.files:,} {'file' if layout.files == 1 else 'files'}")
    if layout.partitioned_by or layout.buckets:
        parts = [
            *layout.partitioned_by,
            *([f"{layout.buckets} buckets"] if layout.buckets else []),
        ]
        facts.append(f"by {' and '.join(dict.fromkeys(parts))}")
    if layout.sorted_by:
        facts.append(f"sorted by {', '.join(layout.sorted_by)}")
    return ", ".join(facts)
