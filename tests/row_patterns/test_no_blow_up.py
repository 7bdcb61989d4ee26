"""Patterns with very many ways to map rows: time and memory grow with the rows, not with the ways.

Where rows alone decide, a search never comes back. With conditions on the match it does, but not
twice to a place of the pattern with the same things remembered. Steps are counted: the generated
search runs uncompiled, and what it reads at every step counts.
"""

import tracemalloc
from itertools import islice
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.engine.row_match import predicates as plain
from ensue.engine.row_match.row_partitions import partition_rows
from ensue.engine.row_match.search import Reachability, RowMatchFinder, SearchState
from ensue.errors import LimitError, SkipError
from ensue.ir.row_pattern import Concatenation, Repetition, RowTerm, RowVariable
from ensue.operators.row_match.compiled_clause import CompiledClause, compile_clause
from ensue.options import Limits
from ensue.parser.sql.clause_parser import parse_clause
from ensue.planner.row_pattern_plan import RowPatternAutomaton, _merge_repetitions
from ensue.reference.row_pattern_matches import _Rows, _ways
from support.seeds import scaled

# Every row may be any variable, but for those of DEFINE.
PATTERNS = {
    "nested": "(A+)+ Z",
    "overlapping": "(A | B | A B)* Z",
    "empty": "(A? B?)* Z",
    "counted": "(A{1,3} B?){2,} Z",
    "permuted": "PERMUTE(A, B, C, D, E, F) Z",
    "permuted, many": "(PERMUTE(A, B, C, D, E, F))+ Z",
}
ON_ROWS = "Z AS Z.x < 0"
ON_THE_MATCH = "Z AS SUM(Z.x) < 0"
WITH_A_COUNT = "A AS COUNT(A.*) > 0, Z AS SUM(Z.x) < COUNT(A.*) - COUNT(*)"
INTERPRETED = bool(numba.config.DISABLE_JIT)

patterns = pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)


def rows(count: int, last: int = 1) -> pa.Table:
    """One partition; only its last row may be below 0."""
    x = np.ones(count, np.int64)
    x[-1] = last
    return pa.table({"id": np.arange(count), "x": x})


def clause(pattern: str, define: str) -> CompiledClause:
    text = f"(ORDER BY id MEASURES COUNT(*) AS n PATTERN ({pattern}) DEFINE {define})"
    return compile_clause(parse_clause(text), rows(1).schema, Limits(), ids=False)


def found(clause: CompiledClause, table: pa.Table) -> list[int]:
    """How many rows each match has."""
    return clause.match_complete(table)["n"].to_pylist()


class Counted:
    """An array that counts how often it is read."""

    def __init__(self, array: Any, most: int) -> None:
        self.array = array
        self.most = most
        self.reads = 0

    def __getitem__(self, place: int) -> Any:
        self.reads += 1
        assert self.reads <= self.most, f"more than {self.most:,} steps"
        return self.array[place]


def steps(clause: CompiledClause, table: pa.Table, most: int) -> int:
    """How many choices are looked at until the end; an AssertionError beyond so many."""
    finder = RowMatchFinder(clause.plan)
    offsets, variables, entries, flags = finder._choices
    counted = Counted(variables, most)
    finder._choices = (offsets, counted, entries, flags)  # type: ignore[assignment]
    partitions = partition_rows(table, (), clause.row_pattern.order)
    assert not sum(map(len, finder.find(partitions, SearchState.from_complete(partitions.bounds))))
    return counted.reads


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generated searches run as plain Python."""
    monkeypatch.setattr(cache, "interpreted", True)


def choices(clause: CompiledClause) -> int:
    return sum(map(len, clause.plan.automaton.entries))


# ------------------------------------------------------------------------------- the automaton


def of_pattern(pattern: str) -> RowPatternAutomaton:
    return clause(pattern, ON_ROWS).plan.automaton


@pytest.mark.parametrize(
    "pattern", ["(A{{0,1}}){{{n}}} A{{{n}}}", "A{{{n}}}", "(A{{1,2}}){{{n}}}", "A{{{n}}} A{{0,{n}}} A", "(A??){{{n}}}"]
)
def test_choices_grow_with_the_numbers_of_quantifiers(pattern: str) -> None:
    for n in (100, 1_000):
        entries = of_pattern(pattern.format(n=n) + " Z").entries
        assert len(entries) <= 3 * n
        assert max(map(len, entries)) <= 3


@pytest.mark.parametrize("pattern", ["A{{{n}}}", "(A{{0,1}}){{{n}}} A{{{n}}}", "(A B C){{{n}}}"])
def test_a_step_back_takes_as_many_operations_for_a_long_pattern(pattern: str) -> None:
    """Entries that lead equally far are moved together, as bits of one number."""
    few, many = (len(Reachability(of_pattern(pattern.format(n=n) + " Z"))._moves) for n in (10, 2_000))
    assert many == few <= 5


counts = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(lambda c: (c[0], c[0] + c[1]))
repeated = st.recursive(
    st.sampled_from([RowVariable("A"), RowVariable("B")]),
    lambda part: st.one_of(
        st.builds(lambda p, c, greedy: Repetition(p, *c, greedy), part, counts, st.booleans()),
        st.lists(part, min_size=1, max_size=3).map(lambda parts: Concatenation(tuple(parts))),
    ),
    max_leaves=4,
)


@settings(max_examples=scaled(100), deadline=None)
@given(repeated)
def test_merged_repetitions_keep_the_order_of_preference(term: RowTerm) -> None:
    def ways(one: RowTerm) -> list[object]:
        every_row_fits = _Rows(0, 5, lambda mapped: True)
        return list(dict.fromkeys(islice(_ways(one, (), every_row_fits, False), 20_000)))

    assert ways(_merge_repetitions(term)) == ways(term)


# --------------------------------------------------------------------------- rows alone decide


@patterns
def test_rows_that_fail_take_no_steps(pattern: str, uncompiled: None) -> None:
    assert steps(clause(pattern, ON_ROWS), rows(2_000), 1_000) == 0


@patterns
def test_there_are_few_states(pattern: str) -> None:
    asked = clause(pattern, ON_ROWS)
    finder = RowMatchFinder(asked.plan)
    partitions = partition_rows(rows(2_000, last=-1), (), asked.row_pattern.order)
    assert sum(map(len, finder.find(partitions, SearchState.from_complete(partitions.bounds))))
    assert len(finder._possible.sets) <= 16


@patterns
def test_long_rows_that_fail(pattern: str) -> None:
    assert found(clause(pattern, ON_ROWS), rows(2_000 if INTERPRETED else 200_000)) == []


@pytest.mark.parametrize("name", ["nested", "overlapping", "empty", "counted"])
def test_one_match_of_long_rows(name: str) -> None:
    count = 2_000 if INTERPRETED else 200_000
    assert found(clause(PATTERNS[name], ON_ROWS), rows(count, last=-1)) == [count]


# ------------------------------------------------------------------- conditions on the match


@patterns
def test_from_each_row_every_choice_is_looked_at_once(pattern: str, uncompiled: None) -> None:
    """Some steps more are allowed: a search begins to remember places when it has taken many."""
    count = 30
    asked = clause(pattern, ON_THE_MATCH)
    once = choices(asked) * count * count
    assert steps(asked, rows(count), 4 * once) <= 4 * once


@patterns
def test_and_once_for_each_count_that_is_remembered(pattern: str, uncompiled: None) -> None:
    count = 16
    asked = clause(pattern, WITH_A_COUNT)
    once = choices(asked) * count * count * count
    assert steps(asked, rows(count), 4 * once) <= 4 * once


@pytest.mark.parametrize("name", ["nested", "overlapping", "empty", "counted"])
def test_steps_grow_with_the_square_of_the_rows(name: str, uncompiled: None) -> None:
    """Each row begins a search of its own over those behind it."""
    asked = clause(PATTERNS[name], ON_THE_MATCH)
    few, many = (steps(asked, rows(count), 10**6) for count in (40, 80))
    assert many <= 5 * few


@patterns
def test_compiled_searches_end_too(pattern: str) -> None:
    assert found(clause(pattern, ON_THE_MATCH), rows(30 if INTERPRETED else 600)) == []
    assert found(clause(pattern, WITH_A_COUNT), rows(10 if INTERPRETED else 60)) == []


# -------------------------------------------------------------------------------------- memory


def peak(clause: CompiledClause, table: pa.Table) -> int:
    """The most bytes that arrays hold at a time."""
    tracemalloc.start()
    try:
        clause.match_complete(table)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(INTERPRETED, reason="a million rows are for compiled loops")
@pytest.mark.parametrize(
    ("pattern", "define", "last"),
    [
        ("A+ Z+", ON_ROWS, 1),
        ("A+ Z+", ON_ROWS, -1),
        ("(A+)+ Z", ON_ROWS, 1),
        ("A+ Z", ON_THE_MATCH, -1),
        ("(A | B | A B)* Z", ON_THE_MATCH, -1),
    ],
)
def test_memory_grows_with_the_rows(pattern: str, define: str, last: int) -> None:
    asked = clause(pattern, define)
    found(asked, rows(10, -1))  # what is compiled stays
    few, many = (peak(asked, rows(count, last)) for count in (250_000, 1_000_000))
    assert many <= 4.5 * few
    assert many <= 300 * 1_000_000


@pytest.mark.parametrize(
    ("pattern", "define", "count"),
    [
        ("(A | B | A B)* Z", "Z AS string_agg(to_string(A.id)) = '?'", 60),
        ("^ (A | B)* Z $", "Z AS string_agg(CLASSIFIER(), '') = 'x'", 40),
        ("(A | B)* Z", "Z AS string_agg(CLASSIFIER(), '') = 'x'", 40),
        ("(A | B)* C Z", "A AS A.x > 0, Z AS median(A.id) < -1 AND median(B.id) < -1", 40),
    ],
)
def test_a_search_without_an_end_is_given_up(
    pattern: str, define: str, count: int, uncompiled: None, monkeypatch: Any
) -> None:
    """No kernel takes these aggregates, and every way to map rows has a value of its own."""
    monkeypatch.setattr(plain, "_WORK", 10_000)
    with pytest.raises(LimitError, match="begins with the row id = 0") as error:
        steps(clause(pattern, define), rows(count), 20_000)
    assert "WITHIN" in str(error.value)


def test_one_way_through_all_rows_is_never_given_up(uncompiled: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(plain, "_WORK", 0)
    asked = clause("A+", "A AS string_agg(to_string(A.id)) <> '?'")
    assert found(asked, rows(100)) == [100]


def test_what_cannot_be_skipped_to_is_told_by_computed_keys() -> None:
    with pytest.raises(SkipError, match="which begins with the row up = 'A', id = 1"):
        ensue.sql(
            "SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY upper(k) AS up ORDER BY id MEASURES 1 "
            "AS x AFTER MATCH SKIP TO B PATTERN (A B?) DEFINE B AS id > 9)",
            tables={"t": pa.table({"k": ["a", "a"], "id": [1, 2]})},
        )
