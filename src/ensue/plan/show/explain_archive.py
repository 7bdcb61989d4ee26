"""A query over a stream and its past as text: both sides, how the archive is accessed, and why."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ensue.algebra.correlation import AnySide, ArchiveJoin, ClauseSide, Correlation, JoinKind
from ensue.algebra.query import Equivalence
from ensue.algebra.reach import Reach
from ensue.algebra.text import (
    shortened,
    show_condition,
    show_expr,
    show_name,
    show_pattern,
    show_range,
    show_returned,
)
from ensue.plan.access import Candidate, Decision, unclustered
from ensue.plan.estimates.decisions import figure
from ensue.plan.physical import Plan
from ensue.plan.show.explain import explain


@dataclass(frozen=True, slots=True)
class Stored:
    """An archive in words."""

    kind: str  # delta, version 12
    events: str  # 20,000,000 events from 2026-01-01 to 2026-01-30
    layout: str  # by day and 16 buckets, sorted by symbol, ts
    reach: Reach
    read_by: str | None  # the field
    waits: str = ""  # how long a live match waits until its past is decided


@dataclass(frozen=True, slots=True)
class Looked:
    """What was read of an archive, beside what was expected."""

    reads: int
    files: int
    rows: int
    events: int
    found: int  # archived matches
    kept: int  # of them, in the end


def explain_archive(
    correlation: Correlation,
    decision: Decision,
    stored: Sequence[Stored],
    plans: Sequence[Plan | None],  # a clause of SQL has none
    latency: str = "",
    more: Sequence[str] = (),
) -> str:
    """The whole: what is joined, the four accesses, then the plans of all sides."""
    lines = ["live and archive", *_live(correlation, decision)]
    for number, (join, one) in enumerate(zip(correlation.joins, stored, strict=True)):
        lines += _archive(join, one, decision, number)
    lines += _result(correlation)
    lines += _access(decision, latency)
    for past in decision.pasts:
        if (warning := unclustered(past, decision)) is not None:
            lines.append(f"  warning  {_indented(warning)}")
    names = ["live", *(f"archive {show_name(join.archive)}" for join in correlation.joins)]
    sections = [shortened("\n".join(lines)), *more]
    for name, plan in zip(names, plans, strict=True):
        if plan is not None:
            sections.append(f"--- {name} ---\n{explain(plan)}")
    return "\n\n".join(sections)


def _live(correlation: Correlation, decision: Decision) -> Iterator[str]:
    side = decision.live
    often = "" if side is None else _often(side.matches, assumed=side.assumed)
    yield f"  live     {_pattern(correlation.live)}{often}"


def _pattern(query: AnySide) -> str:
    if isinstance(query, ClauseSide):
        keys = ", ".join(show_name(key.name) for key in query.recognition.partition)
        return f"MATCH_RECOGNIZE (...) AS {query.alias}" + (f", [{keys}]" if keys else "")
    return ", ".join([show_pattern(query.pattern), *_keys(query.equivalence)])


def _keys(equivalence: Sequence[Equivalence]) -> list[str]:
    fields = ", ".join(show_name(e.field_name) for e in equivalence)
    return [f"[{fields}]"] if fields else []


def _often(matches: float, *, assumed: bool) -> str:
    return f": {figure(matches * 1_000)} in 1,000 events{', assumed' if assumed else ''}"


def _archive(join: ArchiveJoin, stored: Stored, decision: Decision, number: int) -> Iterator[str]:
    facts = [stored.kind, stored.events, *([stored.layout] if stored.layout else [])]
    yield f"  archive  {show_name(join.archive)}: {', '.join(facts)}"
    side = decision.pasts[number] if decision.pasts else None
    often = "" if side is None else _often(side.matches, assumed=side.assumed)
    yield f"           {_pattern(join.query)}{often}, reach {stored.reach}"
    by = "all objects together, as ON has no key"
    if stored.read_by is not None:
        many = "" if side is None or side.assumed else f", about {figure(side.keys)} objects"
        by = f"by {show_name(stored.read_by)}{many}"
    yield f"           read {by}"
    last = "" if join.last is None else f", the last {join.last}"
    conditions = [*_keys(join.equivalence), *map(show_condition, join.on)]
    how = [] if join.kind is JoinKind.INNER else [KINDS[join.kind]]
    how += [f"on {' and '.join(conditions)}"] if conditions else []
    yield f"  range    {show_range(join.range).removeprefix('RANGE ').lower()}{last}"
    yield f"  join     {', '.join(how) or 'whatever is in the range'}"
    if stored.waits:
        what = "a negation at the end of the past"
        if isinstance(join.query, ClauseSide):
            what = "how long the archived match is"
        yield f"  waits    {stored.waits}, until {what} is decided"


def _result(correlation: Correlation) -> Iterator[str]:
    if correlation.returns:
        yield f"  return   {', '.join(map(show_returned, correlation.returns))}"
    if correlation.having is not None:
        yield f"  having   {show_expr(correlation.having)}"
    if correlation.limit is not None:
        yield f"  limit    {correlation.limit.count} a live match"


KINDS = {
    JoinKind.LEFT: "left: live matches without a past, too",
    JoinKind.ANTI: "anti: only live matches without a past",
}
NAMES = {"archive_first": "archive first"}


def called(candidate: Candidate) -> str:
    """An access, and what the paper calls it."""
    return f"{NAMES.get(candidate.name, candidate.name)} ({candidate.paper})"


def _access(decision: Decision, latency: str) -> Iterator[str]:
    chosen = decision.candidate(decision.access)
    facts = [called(chosen), *([decision.why] if decision.why else [])]
    facts += [f"latency {latency}"] if latency else []
    yield f"  access   {', '.join(facts)}"
    live = decision.live
    if live is not None:
        yield f"    {_basis(decision)}"
    width = max(len(called(c)) for c in decision.candidates)
    costs = {c.name: figure(c.cost) for c in decision.candidates}
    space = max(map(len, costs.values()))
    for candidate in decision.candidates:
        name = f"    {called(candidate):{width}}  "
        if candidate.impossible:
            yield f"{name}impossible: {candidate.impossible}"
        else:
            yield f"{name}{costs[candidate.name]:>{space}} µs an event, {candidate.words}"


def _basis(decision: Decision) -> str:
    """What the figures are of."""
    live = decision.live
    assert live is not None
    events = f"{figure(live.events)} live events"
    return f"{events}, {figure(min(live.batch, live.events))} at a time"


def looked(
    decision: Decision, names: Sequence[str], read: Sequence[Looked], live: int, events: int,
    rows: int, seconds: Sequence[tuple[str, float]],
) -> str:  # fmt: skip
    """What was read and found, beside what was expected; only the last line is of the machine."""
    lines = [f"analysis of {events:,} live events: estimate, actual"]
    side = decision.live
    expected = "-" if side is None else figure(side.matches * events)
    table = [("live matches", expected, f"{live:,}", "")]
    for name, one in zip(names, read, strict=True):
        reads = f"{one.reads:,} {'read' if one.reads == 1 else 'reads'}"
        files = f"{one.files:,} {'file' if one.files == 1 else 'files'}"
        past = next((p for p in decision.pasts if p.name == name), None)
        all_found = "-" if past is None else figure(past.rows * past.matches)
        table += [
            (f"{show_name(name)}: events", "", f"{one.events:,}",
             f"in {reads}, of {one.rows:,} rows in {files}"),
            (f"{show_name(name)}: archived matches", all_found, f"{one.found:,}",
             f"expected in all of it; {one.kept:,} kept in the end"),
        ]  # fmt: skip
    table.append(("rows in the result", "", f"{rows:,}", ""))
    widths = [max(len(row[k]) for row in table) for k in range(3)]
    lines += [
        f"  {what:{widths[0]}}  {estimate:>{widths[1]}}  {actual:>{widths[2]}}  {note}".rstrip()
        for what, estimate, actual, note in table
    ]
    phases = ", ".join(f"{phase} {took:.3f} s" for phase, took in seconds)
    return "\n".join([*lines, f"  time: {phases}"])


def _indented(text: str) -> str:
    return text.replace("\n", "\n           ")
