"""Archive joins explained: both sides, how the archive is accessed and why; and their picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.analyzer.time_bounds import ReadRange
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, JoinSide, RowPatternSide
from ensue.ir.query import Equivalence
from ensue.planner.access_paths import AccessCandidate, AccessDecision, describe_unclustered
from ensue.planner.explain.plan_picture import draw_on_canvas
from ensue.planner.explain.plan_text import explain_plan
from ensue.planner.explain_analyze import format_rows
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.statistics import format_number
from ensue.printing.expression_printer import format_condition, format_expr, format_name, truncate_wkt
from ensue.printing.pattern_printer import format_pattern, format_range, format_return_item
from ensue.svg import DIM, LINE, Canvas

_GAP = 60.0  # between two sides of a picture
_KINDS = {
    JoinKind.LEFT: "left: live matches without a past, too",
    JoinKind.ANTI: "anti: only live matches without a past",
}


@dataclass(frozen=True, slots=True)
class ArchiveSummary:
    """Describes an archive in words."""

    kind: str  # delta, version 12
    events: str  # 20,000,000 events from 2026-01-01 to 2026-01-30
    layout: str  # by day and 16 buckets, sorted by symbol, ts
    reach: ReadRange
    read_by: str | None  # the field
    waits: str = ""  # how long a live match waits until its past is decided


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """Counts what was read of an archive."""

    reads: int
    files: int
    rows: int
    events: int
    found: int  # archived matches
    kept: int  # of these, in the result


def explain_archive_join(
    archive_join: ArchiveJoinQuery,
    decision: AccessDecision,
    archives: Sequence[ArchiveSummary],
    plans: Sequence[PhysicalPlan | None],  # None for a clause of SQL
    latency: str = "",
    more: Sequence[str] = (),
) -> str:
    """Explains the join, the four access paths, then the plans of all sides."""
    side = decision.live
    rate = "" if side is None else _describe_rate(side.matches, assumed=side.assumed)
    lines = ["live and archive", f"  live     {_describe_pattern(archive_join.live)}{rate}"]
    for number, (join, archive) in enumerate(zip(archive_join.joins, archives, strict=True)):
        lines += _explain_archive(join, archive, decision, number)
    if archive_join.returns:
        lines.append(f"  return   {', '.join(map(format_return_item, archive_join.returns))}")
    if archive_join.having is not None:
        lines.append(f"  having   {format_expr(archive_join.having)}")
    if archive_join.limit is not None:
        lines.append(f"  limit    {archive_join.limit.count} a live match")
    lines += _explain_access(decision, latency)
    for past in decision.archives:
        if (warning := describe_unclustered(past, decision)) is not None:
            lines.append("  warning  " + warning.replace("\n", "\n           "))
    names = ["live", *(f"archive {format_name(join.archive)}" for join in archive_join.joins)]
    sections = [truncate_wkt("\n".join(lines)), *more]
    for name, plan in zip(names, plans, strict=True):
        if plan is not None:
            sections.append(f"--- {name} ---\n{explain_plan(plan)}")
    return "\n\n".join(sections)


def _describe_pattern(query: JoinSide) -> str:
    if isinstance(query, RowPatternSide):
        keys = ", ".join(format_name(key.name) for key in query.row_pattern.partition)
        return f"MATCH_RECOGNIZE (...) AS {query.alias}" + (f", [{keys}]" if keys else "")
    return ", ".join([format_pattern(query.pattern), *_list_keys(query.equivalence)])


def _list_keys(equivalence: Sequence[Equivalence]) -> list[str]:
    fields = ", ".join(format_name(e.field_name) for e in equivalence)
    return [f"[{fields}]"] if fields else []


def _describe_rate(matches: float, *, assumed: bool) -> str:
    return f": {format_number(matches * 1_000)} in 1,000 events{', assumed' if assumed else ''}"


def _explain_archive(
    join: ArchiveJoin, archive: ArchiveSummary, decision: AccessDecision, number: int
) -> Iterator[str]:
    facts = [archive.kind, archive.events, *([archive.layout] if archive.layout else [])]
    yield f"  archive  {format_name(join.archive)}: {', '.join(facts)}"
    side = decision.archives[number] if decision.archives else None
    rate = "" if side is None else _describe_rate(side.matches, assumed=side.assumed)
    yield f"           {_describe_pattern(join.query)}{rate}, reach {archive.reach}"
    by = "all objects together, as ON has no key"
    if archive.read_by is not None:
        keys = "" if side is None or side.assumed else f", about {format_number(side.keys)} objects"
        by = f"by {format_name(archive.read_by)}{keys}"
    yield f"           read {by}"
    last = "" if join.last is None else f", the last {join.last}"
    yield f"  range    {format_range(join.range).removeprefix('RANGE ').lower()}{last}"
    conditions = [*_list_keys(join.equivalence), *map(format_condition, join.on)]
    how = [] if join.kind is JoinKind.INNER else [_KINDS[join.kind]]
    how += [f"on {' and '.join(conditions)}"] if conditions else []
    yield f"  join     {', '.join(how) or 'whatever is in the range'}"
    if archive.waits:
        undecided = "a negation at the end of the past"
        if isinstance(join.query, RowPatternSide):
            undecided = "how long the archived match is"
        yield f"  waits    {archive.waits}, until {undecided} is decided"


def format_access(candidate: AccessCandidate) -> str:
    """Formats an access path with its name in the paper."""
    return f"{candidate.name.replace('_', ' ')} ({candidate.paper})"


def _explain_access(decision: AccessDecision, latency: str) -> Iterator[str]:
    facts = [format_access(decision.candidate(decision.access))]
    facts += [decision.why] if decision.why else []
    facts += [f"latency {latency}"] if latency else []
    yield f"  access   {', '.join(facts)}"
    live = decision.live
    if live is not None:
        batch = format_number(min(live.batch, live.events))
        yield f"    {format_number(live.events)} live events, {batch} at a time"
    width = max(len(format_access(c)) for c in decision.candidates)
    digits = max(len(format_number(c.cost)) for c in decision.candidates)
    for candidate in decision.candidates:
        name = f"    {format_access(candidate):{width}}  "
        if candidate.impossible:
            yield f"{name}impossible: {candidate.impossible}"
        else:
            yield f"{name}{format_number(candidate.cost):>{digits}} µs per event, {candidate.words}"


def analyze_archive_join(
    decision: AccessDecision, names: Sequence[str], counts: Sequence[ReadCounts], live: int,
    events: int, rows: int, seconds: Sequence[tuple[str, float]],
) -> str:  # fmt: skip
    """Compares estimates with the actual numbers; only the last line depends on the machine."""
    side = decision.live
    expected = "-" if side is None else format_number(side.matches * events)
    table = [("live matches", expected, f"{live:,}", "")]
    for name, count in zip(names, counts, strict=True):
        reads = f"{count.reads:,} {'read' if count.reads == 1 else 'reads'}"
        files = f"{count.files:,} {'file' if count.files == 1 else 'files'}"
        past = next((p for p in decision.archives if p.name == name), None)
        all_found = "-" if past is None else format_number(past.rows * past.matches)
        table += [
            (f"{format_name(name)}: events", "", f"{count.events:,}",
             f"in {reads}, of {count.rows:,} rows in {files}"),
            (f"{format_name(name)}: archived matches", all_found, f"{count.found:,}",
             f"expected in all of it; {count.kept:,} kept in the end"),
        ]  # fmt: skip
    table.append(("rows in the result", "", f"{rows:,}", ""))
    lines = [f"analysis of {events:,} live events: estimate, actual", *format_rows(table)]
    phases = ", ".join(f"{phase} {took:.3f} s" for phase, took in seconds)
    return "\n".join([*lines, f"  time: {phases}"])


def draw_archive_join(archive_join: ArchiveJoinQuery, plans: Sequence[PhysicalPlan | None], access: str) -> str:
    """Draws the live side, and the archives that it is joined with on its right, as SVG."""
    canvas, x = Canvas(), 0.0
    titles = [("live", f"archive accessed: {access}")]
    titles += [
        (f"{join.kind.value} ARCHIVE {format_name(join.archive)}", format_range(join.range))
        for join in archive_join.joins
    ]
    for (title, more), plan in zip(titles, plans, strict=True):
        canvas.text((x, 0), title, bold=True)
        canvas.text((x, LINE), more, color=DIM)
        if plan is not None:
            canvas.put(draw_on_canvas(plan), (x, 3 * LINE))
        x = canvas.right + _GAP
    return canvas.to_svg(format_pattern(archive_join.live.pattern))
