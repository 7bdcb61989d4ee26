"""A table gives the same rows in the same order with any number of threads."""

import threading
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache
from ensue.engine.interrupts import run_in_threads
from ensue.errors import EventError, LimitError, QueryError
from ensue.operators.match import parallel_match, shared_engine
from ensue.runtime import table_parts
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.edges import random_edges
from support.groups import random_groups
from support.negations import random_negations
from support.parts import make_parts_small, match
from support.queries import random_query, random_repeats
from support.seeds import of_round, some
from support.streams import random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
WRITERS = (random_query, random_query, random_repeats, random_negations, random_groups, random_edges)
ANSWERS = ("", "", "", " RETURN COUNT(*) AS n", " RETURN EXISTS", " LIMIT 1")
EACH = 60
TIMED = {"time": "t", "type": "type"}
PAIRS = "SEQ(A a, B b) USING next WHERE [k] WITHIN 50"


@pytest.fixture
def small_parts(monkeypatch):
    """Tables of a few events are matched in parts, too."""
    make_parts_small(monkeypatch)


@pytest.fixture
def interpreted(monkeypatch):
    monkeypatch.setattr(kernel_cache, "interpreted", True)


def make_events(count: int = 400, keys: int = 7) -> pa.Table:
    random = Random(count + keys)
    return pa.table(
        {
            "t": range(count),
            "type": [random.choice("AB") for _ in range(count)],
            "k": [random.choice([None, *map(str, range(keys))]) for _ in range(count)],
        }
    )


def count_calls(monkeypatch, name: str) -> Counter[str]:
    """Counts how often a function of `parallel_match` returns something true."""
    calls, run = Counter[str](), getattr(parallel_match, name)

    def counted(*arguments):
        result = run(*arguments)
        calls[name] += bool(result)
        return result

    monkeypatch.setattr(parallel_match, name, counted)
    return calls


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("round", some(1, 8))
def test_random_queries_find_the_same(round, small_parts, interpreted, monkeypatch):
    calls = count_calls(monkeypatch, "match_in_parallel")
    for seed in of_round(round, EACH):
        random = Random(seed)
        nature = random_nature(random)
        query = random.choice(WRITERS)(random, nature)
        if "RETURN" not in query:
            query += random.choice(ANSWERS)
        events = random_events(random, random.randint(10, 28), nature)
        if random.random() < 0.3:  # duplicates, which the ids of matches number
            events = pa.concat_tables([events, events.slice(0, 5)])
        if random.random() < 0.5:  # their codes need no hash table
            plain, known = events["k"].to_pylist(), dict[object, int]()
            numbers = [None if key is None else 8 * known.setdefault(key, len(known)) for key in plain]
            keys = random.choice([pa.array(plain).dictionary_encode(), pa.array(numbers, pa.int64())])
            events = events.set_column(events.column_names.index("k"), "k", keys)
        options = {"time": nature.columns, "type": "type"}
        try:
            one = match(events, query, 1, **options)
        except (QueryError, EventError, LimitError):
            continue
        for threads in (2, 7):
            found = match(events, query, threads, **options)
            assert str(found.to_pylist()) == str(one.to_pylist()), (seed, query)  # NaN equals no NaN
    assert calls["match_in_parallel"] > len(of_round(round, EACH)) // 3


def test_a_block_without_relevant_events_comes_before_one_that_has_only_those(small_parts):
    events = pa.table({"t": range(16), "type": ["X"] * 8 + ["A"] * 8})
    for threads in (1, 2):
        found = match(events, "SEQ(A a) WITHIN 4", threads, time="t", type="type")
        assert found["start"].to_pylist() == list(range(8, 16))


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("round", some(1, 8))
def test_random_queries_find_the_same_in_slices_of_time(round, small_parts, interpreted, monkeypatch):
    calls = count_calls(monkeypatch, "can_match_in_slices")
    for seed in of_round(round, EACH):
        random = Random(seed)
        nature = replace(random_nature(random), intervals=False)
        text = random.choice(WRITERS)(random, nature)
        events = random_events(random, random.randint(6, 9), nature)
        options = {"time": nature.columns, "type": "type"}
        try:
            query = replace(ensue.parse(text), equivalence=(), after=None)
            one = match(events, query, 1, **options)
        except (QueryError, EventError, LimitError):
            continue
        for threads in (2, 7):
            found = match(events, query, threads, **options)
            assert str(found.to_pylist()) == str(one.to_pylist()), (seed, text)
    assert calls["can_match_in_slices"] > len(of_round(round, EACH)) // 3


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("round", some(1, 8))
def test_several_random_queries_find_the_same(round, small_parts, interpreted, monkeypatch):
    alone, together, run = count_calls(monkeypatch, "match_in_parallel"), [], shared_engine.SharedTableMatcher._in_parts
    monkeypatch.setattr(shared_engine.SharedTableMatcher, "_in_parts", lambda *some: together.append(1) or run(*some))
    for seed in of_round(round, EACH // 2):
        random = Random(seed)
        nature = random_nature(random)
        events = random_events(random, random.randint(8, 14), nature)
        options = {"time": nature.columns, "type": "type"}
        queries = ["SEQ(A a, B b) WHERE [k] RETURN COUNT(*)"]
        for _ in range(12):
            text, before = random.choice(WRITERS)(random, nature), alone.total()
            if "[k]" not in text:
                continue
            with suppress(QueryError, EventError, LimitError):
                match(events, text, 2, **options)
                queries += [text] if alone.total() > before else []
        one = match(events, queries, 1, **options)
        for threads in (2, 20):  # a thread for each query, or for some keys
            found = match(events, queries, threads, **options)
            for name, table in one.items():
                assert str(found[name].to_pylist()) == str(table.to_pylist()), (seed, queries)
    assert len(together) > len(of_round(round, EACH // 2)) // 2


@pytest.mark.filterwarnings("ignore")  # types that do not occur
def test_several_random_queries_without_a_common_key_find_the_same(small_parts, interpreted, monkeypatch):
    alone = count_calls(monkeypatch, "match_in_parallel")
    tasks, run = [], shared_engine.run_in_threads

    def note(some, threads, *arguments):
        tasks.append((len(some), threads))
        return run(some, threads, *arguments)

    monkeypatch.setattr(shared_engine, "run_in_threads", note)
    for seed in range(EACH // 12):
        random = Random(seed)
        nature = random_nature(random)
        events = random_events(random, random.randint(8, 14), nature)
        options, queries = {"time": nature.columns, "type": "type"}, ["SEQ(A a, B b) RETURN COUNT(*)"]
        for _ in range(6):
            text, before = random.choice(WRITERS)(random, nature), alone.total()
            with suppress(QueryError, EventError, LimitError):
                match(events, text, 2, **options)
                queries += [text] if alone.total() > before else []
        one = match(events, queries, 1, **options)
        found = match(events, queries, 2, **options)
        for name, table in one.items():
            assert str(found[name].to_pylist()) == str(table.to_pylist()), (seed, queries)
    assert any(count > 1 and threads == 2 for count, threads in tasks)


@pytest.mark.parametrize("least", [2, 8])
@pytest.mark.parametrize(
    "queries",
    [
        [PAIRS, "SEQ(A a, D d) WHERE [k] WITHIN 50"],  # no event of a type
        [PAIRS, "SEQ(ANY a, B b) USING next WHERE [k] WITHIN 9"],  # events of all types
        [PAIRS, "SEQ(A a, B b) WHERE [k] WITHIN 4 EVENTS"],  # events are counted
    ],
)
def test_events_that_no_query_of_several_reads_are_left_out(queries, least, small_parts, monkeypatch):
    monkeypatch.setattr(table_parts, "LEAST", least)
    events = pa.concat_tables([make_events(), make_events(300, 40).set_column(1, "type", [["C"] * 300])])
    events = pa.table({**dict(zip(events.column_names, events.columns, strict=True)), "t": range(700)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = match(events, queries, 1, **TIMED)
        for threads in (2, 7):
            assert match(events, queries, threads, **TIMED) == one
    assert one[0].num_rows


def test_limits_of_several_queries_hold_for_all_threads_together(small_parts):
    events, queries = make_events(), [PAIRS, "SEQ(B a, A b) USING next WHERE [k] WITHIN 50"]
    counts = [table.num_rows for table in match(events, queries, 1, **TIMED).values()]
    for threads in (1, 2, 7):
        most = ensue.Limits(threads=threads, max_matches=max(counts))
        found = ensue.match(events, queries, options=most, **TIMED).values()
        assert [table.num_rows for table in found] == counts
        with pytest.raises(LimitError, match=f"more matches than max_matches={max(counts) - 1}"):
            ensue.match(events, queries, options=ensue.Limits(threads=threads, max_matches=max(counts) - 1), **TIMED)
        with pytest.raises(LimitError, match="needs"):
            ensue.match(events, queries, options=ensue.Limits(threads=threads, memory=1_000), **TIMED)


@pytest.mark.parametrize("dictionary", [False, True])
@pytest.mark.parametrize("keys", [1, 3, 300])
def test_any_number_of_keys(keys, dictionary, small_parts):
    events = make_events(keys=keys)
    if dictionary:
        events = events.set_column(2, "k", events.column("k").dictionary_encode())
    one = match(events, PAIRS, 1, **TIMED)
    assert one.num_rows
    for threads in (2, 3, 7):
        assert match(events, PAIRS, threads, **TIMED).equals(one)
    chunks = pa.concat_tables([events.slice(0, 90), events.slice(90)])
    assert match(chunks, PAIRS, 2, **TIMED).equals(one)


def test_events_of_another_kind_in_each_block(small_parts):
    """Blocks without relevant events, and blocks with few and with many keys."""
    types = ["C"] * 40 + ["A", "B"] * 30 + ["C"] * 20 + ["A", "B"] * 20
    keys = [None] * 40 + ["x", "x"] * 30 + ["y"] * 20 + [f"{n // 2}" for n in range(40)]
    events = pa.table({"t": range(160), "type": types, "k": keys})
    one = match(events, PAIRS, 1, **TIMED)
    assert one.num_rows == 50
    assert match(events, PAIRS, 2, **TIMED).equals(one)


@pytest.mark.parametrize(
    "query",
    ["SEQ(A a, B b)", "SEQ(A a, !A n, B b)", "SEQ(A a, B b, !A n)", "SEQ(A+ a[], B b) USING next", "AND(A a, B b)"],
)
@pytest.mark.parametrize("scale", [1, 0.1, 1e9])
def test_slices_of_time(query, scale, small_parts):
    """Windows end on both sides of a cut, at several events of one time."""
    events = make_events(120).append_column("x", pa.array(range(120)))
    times = pa.array([n // 3 * scale - 20 * scale for n in range(120)])
    events = events.set_column(0, "t", times)
    text = f"{query} WITHIN {5 * scale}"
    one = match(events, text, 1, **TIMED)
    assert one.num_rows
    for threads in (2, 3, 7):
        assert match(events, text, threads, **TIMED).equals(one)


def test_long_windows_are_matched_as_a_whole(small_parts, monkeypatch):
    monkeypatch.setattr(parallel_match, "MOST_OVERLAP", 1 / 8)
    events = make_events()
    for length, slices in ((2, True), (300, False)):
        ranges = []
        cut = parallel_match._ParallelMatch._cut_slices

        def note(run, blocks, ranges=ranges, cut=cut):
            ranges += cut(run, blocks)
            return ranges

        with monkeypatch.context() as context:
            context.setattr(parallel_match._ParallelMatch, "_cut_slices", note)
            found = match(events, f"SEQ(A a, B b) USING next WITHIN {length}", 2, **TIMED)
        assert (len(ranges) > 1) == slices
        assert found.equals(match(events, f"SEQ(A a, B b) USING next WITHIN {length}", 1, **TIMED))


def test_limits_hold_for_all_threads_together(small_parts):
    events = make_events()
    count = match(events, PAIRS, 1, **TIMED).num_rows
    for threads in (1, 2, 7):
        most = ensue.Limits(threads=threads, max_matches=count)
        assert ensue.match(events, PAIRS, options=most, **TIMED).num_rows == count
        with pytest.raises(LimitError, match=f"more matches than max_matches={count - 1}"):
            ensue.match(events, PAIRS, options=ensue.Limits(threads=threads, max_matches=count - 1), **TIMED)
        with pytest.raises(LimitError, match="needs"):
            ensue.match(events, PAIRS, options=ensue.Limits(threads=threads, memory=1_000), **TIMED)


@pytest.mark.parametrize(
    "query",
    [PAIRS, "SEQ(A a, B b) WITHIN 50", [PAIRS, "SEQ(B a, A b) WHERE [k] WITHIN 50"], ["SEQ(A a)", "SEQ(A a, B b)"]],
)
def test_a_limit_has_the_error_of_one_thread(query, small_parts):
    for limit in ({"max_matches": 20}, {"memory": 100_000}, {"memory": 1_000}):
        errors = set()
        for threads in (1, 2, 7):
            with pytest.raises(LimitError) as error:
                ensue.match(make_events(2_000), query, options=ensue.Limits(threads=threads, **limit), **TIMED)
            errors.add(str(error.value))
        assert len(errors) == 1


def test_a_scan_that_failed_is_lent_again():
    shape = create_schema(make_events().schema, time="t", type="type", order=())
    pool = table_parts.ScanPool(compile_query(ensue.parse(PAIRS), shape).program, 1)
    with pytest.raises(ValueError, match="no"), pool.lend():
        raise ValueError("no")
    with pool.lend() as scan:
        assert len(scan.get_roles(make_events())) == 400


def test_progress_ends_with_all_events(small_parts):
    seen = []
    match(make_events(), PAIRS, 2, progress=lambda done, total: seen.append((done, total)), **TIMED)
    assert seen == sorted(seen)
    assert seen[-1] == (400, 400)


def test_an_unseen_type_is_reported(small_parts):
    with pytest.warns(UserWarning, match="no event is of type 'D'"):
        match(make_events(), "SEQ(A a, D d) WHERE [k]", 2, **TIMED)


def test_the_first_error_stops_all_tasks():
    started = threading.Barrier(2)

    def fail():
        started.wait()
        raise ValueError("no")

    def wait():
        started.wait()

    with pytest.raises(ValueError, match="no"):
        run_in_threads([wait, fail], 2)
    assert run_in_threads([lambda n=n: n for n in range(9)], 4) == list(range(9))


def test_the_environment_says_how_many_threads(monkeypatch):
    monkeypatch.setenv("ENSUE_THREADS", "3")
    assert ensue.Limits().thread_count == 3
    assert ensue.Limits(threads=2).thread_count == 2
    assert ensue.Limits(per_core=True).thread_count == 1
    monkeypatch.setenv("ENSUE_THREADS", "many")
    with pytest.raises(EventError, match="ENSUE_THREADS='many' must be a positive whole number"):
        match(make_events(), PAIRS, None, **TIMED)
