"""Clauses over rows that keep coming: what is found is what is found in all of them at once."""

import math
import random
from dataclasses import replace

import pyarrow as pa
import pytest

import ensue
from ensue.errors import SkipError, StateError
from ensue.ir.row_pattern import RowPatternQuery
from ensue.operators.row_match.compiled_clause import compile_clause
from ensue.operators.row_match.row_matcher import RowPatternMatcher
from ensue.options import Limits
from ensue.planner.row_pattern_plan import build_row_automaton
from ensue.runtime.live_matcher import CompositeMatcher
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.tasks.backfill import BackfillCut
from ensue.runtime.workload import Workload
from ensue.vector.event_table import sort_events
from support.key_groups import Stream, delayed, workload_of
from support.row_patterns import a_clause, some_rows, streamed_clause, tied_rows, written
from support.seeds import of_round

NO_WAY_ON = "no way on"


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Conditions on a match are compiled for each clause: as plain Python they are quicker."""
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def rows_of(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def whole(row_pattern: RowPatternQuery, table: pa.Table) -> list[str] | str:
    try:
        return rows_of(compile_clause(row_pattern, table.schema, Limits(), ids=True).match_complete(table))
    except SkipError:
        return NO_WAY_ON


def matcher_of(row_pattern: RowPatternQuery, table: pa.Table, order: tuple[str, ...] = ()):
    clause = compile_clause(row_pattern, table.schema, Limits(), ids=True)
    return RowPatternMatcher(clause, SourceSchema(table.schema, "id", order=order))


def streamed(
    rng: random.Random, row_pattern: RowPatternQuery, table: pa.Table, order: tuple[str, ...] = ()
) -> list[str] | str:
    """What comes out piece by piece: time passes between pieces, and it moves on by its bytes."""
    matcher = matcher_of(row_pattern, table, order)
    times = table["id"].to_pylist()
    found, at = [], 0
    try:
        while at < table.num_rows:
            count = rng.randint(0, 4)
            found.append(matcher.process(table.slice(at, count)))
            at = min(at + count, table.num_rows)
            if rng.random() < 0.4:
                now = times[at] if at < len(times) else times[-1] + rng.randint(0, 9)
                due = matcher.next_timer()
                late = matcher.on_watermark(now - rng.choice([0, 0, 1]))
                assert due is not None or not late.num_rows
                found.append(late)
            if rng.random() < 0.3:
                saved = matcher.snapshot()
                matcher = matcher_of(row_pattern, table, order)
                matcher.restore(saved)
            assert matcher.usage.state_bytes >= 0
            assert matcher.usage.partial_matches >= 0
        found.append(matcher.on_watermark(math.inf))
    except SkipError:
        return NO_WAY_ON
    return rows_of(pa.concat_tables(found))


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(20))
def test_pieces_of_a_stream_find_what_the_whole_does(how, block):
    for seed in of_round(block, 60):
        rng = random.Random(seed)
        row_pattern = written(a_clause(rng, how, streaming=True))
        table = some_rows(rng, 16)
        assert streamed(rng, row_pattern, table) == whole(row_pattern, table), seed


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(12))
def test_rows_of_one_time_and_equal_rows_too(how, block):
    for seed in of_round(block, 60):
        rng = random.Random(seed)
        row_pattern, table, order = streamed_clause(rng, how), tied_rows(rng), ()
        if rng.random() < 0.5 and len(row_pattern.order) > 1:
            names = tuple(by.expr.name for by in row_pattern.order[1:])
            if not any(by.descending for by in row_pattern.order):
                order = names
        shape = SourceSchema(table.schema, "id", order=order).shape
        assert streamed(rng, row_pattern, sort_events(table, shape), order) == whole(row_pattern, table), seed


# ------------------------------------------------------------------------- live, and in key groups


def a_bounded_clause(rng: random.Random, how: str) -> RowPatternQuery:
    """A clause that every stream takes."""
    while True:
        clause = written(a_clause(rng, how, streaming=True))
        bounded = clause.within is not None or build_row_automaton(clause.pattern).longest is not None
        if bounded and clause.defines:  # a text has a DEFINE
            return clause


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(10))
def test_live_with_rows_out_of_order(how, block):
    for seed in of_round(block, 30):
        rng = random.Random(seed)
        row_pattern, table = written(a_clause(rng, how, streaming=True)), some_rows(rng, 16)
        delay = rng.randint(0, 5)
        arrival = sorted(range(table.num_rows), key=lambda row: row + rng.uniform(0, delay))
        live = ensue.live(row_pattern, schema=table.schema, watermark=delay)
        found, at = [], 0
        try:
            while at < table.num_rows:
                count = rng.randint(1, 4)
                found.append(live.feed(table.take(pa.array(arrival[at : at + count]))))
                at += count
                if rng.random() < 0.3:
                    saved = live.save()
                    live = ensue.live(row_pattern, schema=table.schema, watermark=delay)
                    live.restore(saved)
            assert not live.late
            found.append(live.finish())
            told = rows_of(pa.concat_tables(found))
        except SkipError:
            told = NO_WAY_ON
        assert told == whole(row_pattern, table), seed


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("how", ["alone", "matched"])
@pytest.mark.parametrize("block", range(10))
def test_key_groups_that_are_forgotten_and_built_anew(how, block):
    for seed in of_round(block, 20):
        rng = random.Random(seed)
        clauses = [a_bounded_clause(rng, how) for _ in range(rng.choice([1, 1, 2]))]
        table = some_rows(rng, 16)
        asked = clauses[0] if len(clauses) == 1 else dict(enumerate(clauses))
        workload = workload_of(asked, table.schema, "id", None, key_groups=2)
        again = Workload.read(workload.texts)
        assert again.texts == workload.texts
        arriving, delay = delayed(rng, table, workload.source)
        forgotten = random.Random(seed)
        stream = Stream(rng.choice([workload, again]), delay, forget=lambda r=forgotten: r.random() < 0.3)
        expected = [whole(clause, table) for clause in clauses]
        try:
            at = 0
            while at < arriving.num_rows:
                count = rng.randint(1, 6)
                stream.feed(arriving.slice(at, count))
                at += count
                if rng.random() < 0.4:
                    stream.pause()
            told = [rows_of(found) for found in stream.end().values()]
            assert not stream.late
        except SkipError:
            told = NO_WAY_ON
        assert told == (NO_WAY_ON if NO_WAY_ON in expected else expected), seed


def test_a_stream_that_begins_with_a_history():
    clause = ensue.parse(RISING % "")
    for cut in (0, 7, 20, 39):
        stream = Stream(workload_of(clause, ROWS.schema, "t", None, key_groups=2), 0)
        stream.begin_with(ROWS.slice(0, cut), BackfillCut(cut))
        stream.feed(ROWS.slice(max(0, cut - 1)))
        assert rows_of(stream.finish()) == rows_of(ensue.match(ROWS, clause))


def test_late_rows_come_back_as_they_came():
    clause = (RISING % "").replace("BY k", "BY upper(k) AS k")
    live = ensue.live(clause, schema=ROWS.schema, options=ensue.StreamOptions(late_events="deliver"))
    live.feed(ROWS.slice(5, 5))
    live.feed(ROWS.slice(2, 1))
    assert live.late_events().to_pylist() == ROWS.slice(2, 1).to_pylist()


# --------------------------------------------------------------------------------- what is kept


ROWS = pa.table(
    {
        "k": pa.array([f"k{n % 5}" for n in range(40)], pa.string()),
        "t": pa.array(range(40), pa.int64()),
        "v": pa.array([n * 7 % 11 for n in range(40)], pa.int64()),
    }
)
RISING = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(v) AS low, LAST(v) AS high
    PATTERN (A B{1,2}) %s DEFINE B AS v > PREV(v))"""


def test_a_match_comes_with_the_row_that_decides_it():
    live = ensue.live(RISING % "", schema=ROWS.schema)
    came = [live.feed({"k": "a", "t": t, "v": v}).num_rows for t, v in enumerate((1, 2, 3, 9))]
    assert came == [0, 0, 1, 0]


def test_time_alone_decides_what_is_within():
    live = ensue.live(RISING % "WITHIN 10", schema=ROWS.schema)
    for t, v in enumerate((1, 2)):
        assert not live.feed({"k": "a", "t": t, "v": v}).num_rows
    assert not live.advance(9).num_rows
    assert live.advance(10)["high"].to_pylist() == [2]  # rows at 10 are out of its window
    assert not live.finish().num_rows


def test_rows_of_other_partitions_let_time_pass():
    live = ensue.live(RISING % "WITHIN 10", schema=ROWS.schema)
    live.feed([{"k": "a", "t": 0, "v": 1}, {"k": "a", "t": 1, "v": 2}])
    assert live.feed({"k": "b", "t": 10, "v": 1})["k"].to_pylist() == ["a"]


def test_nothing_is_kept_of_partitions_that_are_idle():
    clause = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES %s AS m
        PATTERN (A) DEFINE A AS v > 3)"""
    rows = pa.table({"k": pa.array(range(20_000)), "t": range(20_000), "v": [1] * 20_000})
    forgets, remembers = (ensue.live(clause % measure, schema=rows.schema) for measure in ("A.v", "MATCH_NUMBER()"))
    for live in (forgets, remembers):
        for k in range(0, 20_000, 2_000):
            live.feed(rows.slice(k, 2_000))
    assert forgets.progress.state_bytes < 100_000 < remembers.progress.state_bytes


def test_a_pattern_without_an_end_is_bounded_by_memory():
    clause = """MATCH_RECOGNIZE (ORDER BY t MEASURES count(*) AS n
        PATTERN (A+ B) DEFINE A AS v < 99, B AS v = 99)"""
    live = ensue.live(clause, schema=ROWS.schema, options=ensue.Limits(memory=20_000))

    def feed(count: int) -> None:
        live.feed(pa.table({"k": ["a"] * count, "t": range(count), "v": [1] * count}))

    with pytest.raises(ensue.LimitError, match=r"keeps .* of rows, and 20 KB are allowed"):
        feed(10_000)


def test_more_matches_than_are_allowed():
    with pytest.raises(ensue.LimitError, match="max_matches=2"):
        ensue.match(ROWS, RISING % "", options=ensue.Limits(max_matches=2))


# --------------------------------------------------------------------------------- what is refused


def refused(clause: str, **options) -> str:
    with pytest.raises(ensue.QueryError) as error:
        ensue.live(clause, schema=ROWS.schema, **options)
    return str(error.value)


def test_a_stream_goes_by_time():
    clause = "MATCH_RECOGNIZE (%s MEASURES A.v AS v PATTERN (A) DEFINE A AS v > 3)"
    assert "there is no ORDER BY" in refused(clause % "")
    assert "descending" in refused(clause % "ORDER BY t DESC")
    assert "computed" in refused(clause % "ORDER BY t + 1")
    assert "events are ordered by time='v'" in refused(clause % "ORDER BY t", time="v")


def test_a_stream_has_no_last_row():
    clause = "MATCH_RECOGNIZE (ORDER BY t MEASURES A.v AS v PATTERN (A $) DEFINE A AS v > 3)"
    assert "a stream has no last row" in refused(clause)


def test_what_does_not_go_with_a_clause():
    measured = ensue.statistics(ROWS, "SEQ(A a, A b) WITHIN 3", time="t")
    for name, options in (
        ("ensue.OutputOptions(emit_timeouts=...)", ensue.OutputOptions(emit_timeouts=True)),
        ("ensue.Limits(evict=...)", ensue.Limits(evict="need")),
        ("ensue.PlannerOptions(structure=...)", ensue.PlannerOptions(structure="runs")),
        ("ensue.PlannerOptions(adaptive=...)", ensue.PlannerOptions(adaptive=True)),
        ("ensue.PlannerOptions(statistics=...)", ensue.PlannerOptions(statistics=measured)),
    ):
        assert f"{name} cannot be combined with MATCH_RECOGNIZE" in refused(RISING % "", options=options)
    assert "location= cannot be combined with MATCH_RECOGNIZE" in refused(RISING % "", location="k")


def test_a_stream_of_spark_keeps_no_row_for_ever():
    clause = ensue.parse((RISING % "").replace("{1,2}", "+"))
    with pytest.raises(ensue.QueryError, match="WITHIN INTERVAL '1' HOUR"):
        _ = workload_of(clause, ROWS.schema, "t", None).chains
    bounded = replace(clause, within=10)
    assert workload_of(bounded, ROWS.schema, "t", None).chains


def test_a_column_that_is_called_like_the_id_of_a_match():
    with pytest.raises(ensue.QueryError, match="the id of a match"):
        ensue.match(ROWS, "MATCH_RECOGNIZE (MEASURES A.v AS Match_Id PATTERN (A) DEFINE A AS v > 3)")


def test_a_state_of_other_clauses_is_refused():
    saved = CompositeMatcher([Saved()]).snapshot()
    CompositeMatcher([Saved()]).restore(saved)
    with pytest.raises(StateError, match="another set of queries"):
        CompositeMatcher([Saved(), Saved()]).restore(saved)


class Saved:
    """As much of a matcher as saving takes."""

    def snapshot(self) -> bytes:
        return b"state"

    def restore(self, data: bytes) -> None:
        assert data == b"state"
