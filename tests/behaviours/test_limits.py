"""A query that explodes is stopped, with an error that says where, what was held, what helps."""

import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue.runtime.workload import Workload

EXPLODES = "SEQ(A+ a[], B b) WITHIN 1000"  # every subset of the As
STRUCTURES = ("runs", "tree", "compact", "reference")


def events(text: str, **columns: Any) -> pa.Table:
    return pa.table({"t": range(len(text)), "type": list(text), **columns})


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def match(table: pa.Table, query: str, **options: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ensue.LimitWarning)
        return ensue.match(table, query, time="t", type="type", **options)


# ------------------------------------------------------------------------------- every structure


@pytest.mark.parametrize("structure", STRUCTURES)
def test_more_matches_than_allowed(structure: str, uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError, match="more matches than max_matches=100 allows"):
        match(
            events("A" * 9 + "B"),
            EXPLODES,
            options=[ensue.Limits(max_matches=100), ensue.PlannerOptions(structure=structure)],
        )


@pytest.mark.parametrize("structure", [*STRUCTURES, "stacks"])
def test_as_many_matches_as_allowed(structure: str, uncompiled: None) -> None:
    query = "SEQ(A a, B b)" if structure == "stacks" else EXPLODES
    table = events("A" * 7 + "B")
    found = match(table, query, options=[ensue.Limits(max_matches=127), ensue.PlannerOptions(structure=structure)])
    assert found.num_rows == (7 if structure == "stacks" else 127)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_more_memory_than_allowed(structure: str, uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError, match=r"(ensue.Limits\(memory=...\) allows 2 MB|ways to arrange)"):
        match(
            events("A" * 16 + "B"),
            EXPLODES,
            options=[ensue.Limits(memory="2 MB"), ensue.PlannerOptions(structure=structure)],
        )


@pytest.mark.parametrize("structure", ["runs", "tree"])
def test_memory_that_the_system_refuses(structure: str, uncompiled: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under `ulimit -v`: a table cannot become larger, whatever memory= allows."""

    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError("Unable to allocate 8 EiB for an array")

    monkeypatch.setattr("ensue.engine.memory_budget.TableAllocator.make", refuse)
    with pytest.raises(ensue.LimitError, match="more memory than the system gives") as error:
        match(
            events("A" * 13 + "B"),
            EXPLODES,
            options=[ensue.Limits(memory="64 GB"), ensue.PlannerOptions(structure=structure)],
        )
    assert "where: event" in str(error.value)
    assert "shorter WITHIN" in str(error.value)


def test_one_event_completes_too_many_matches(uncompiled: None) -> None:
    table = events("A" * 150 + "B" * 150 + "C")
    for structure in ("stacks", "tree", "compact", "runs"):
        with pytest.raises(ensue.LimitError, match="max_matches=500"):
            match(
                table,
                "SEQ(A a, B b, C c)",
                options=[ensue.Limits(max_matches=500), ensue.PlannerOptions(structure=structure)],
            )
        with pytest.raises(ensue.LimitError, match="memory="):
            match(
                table,
                "SEQ(A a, B b, C c)",
                options=[ensue.Limits(memory=900_000), ensue.PlannerOptions(structure=structure)],
            )


@pytest.mark.parametrize("structure", ["runs", "tree", "reference"])
def test_more_partial_matches_than_allowed(structure: str, uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError, match=r"max_partial_matches=50|ways to arrange"):
        match(
            events("A" * 12),
            EXPLODES,
            options=[ensue.Limits(max_partial_matches=50), ensue.PlannerOptions(structure=structure)],
        )


def test_what_waits_for_time_is_bounded_too(uncompiled: None) -> None:
    query = "SEQ(A+ a[], B b, !C c) WITHIN 1000"
    with pytest.raises(ensue.LimitError, match="max_matches=100"):
        match(events("A" * 9 + "B"), query, options=ensue.Limits(max_matches=100))


def test_a_negated_complex_event_is_bounded_too(uncompiled: None) -> None:
    query = "SEQ(A a, !SEQ(B b, C c), D d) WITHIN 1000"
    with pytest.raises(ensue.LimitError, match="max_partial_matches=40"):
        match(events("A" + "B" * 60 + "CD"), query, options=ensue.Limits(max_partial_matches=40))


def test_the_table_of_matches_is_bounded_too(uncompiled: None) -> None:
    wide = events("A" * 150 + "B" * 150, note=["x" * 1_000] * 300)
    with pytest.raises(ensue.LimitError, match=r"needs 4[0-9] MB, and ensue.Limits\(memory=...\) allows 20 MB"):
        match(wide, "SEQ(A a, B b)", options=ensue.Limits(memory="20 MB"))
    narrow = match(wide, "SEQ(A a, B b) RETURN a.t AS a, b.t AS b", options=ensue.Limits(memory="20 MB"))
    assert narrow.num_rows == 150 * 150


# ------------------------------------------------------------------------------- every call


def test_several_queries_are_bounded_together(uncompiled: None) -> None:
    queries = {"one": EXPLODES, "other": "SEQ(A a, B b)"}
    with pytest.raises(ensue.LimitError, match="max_matches=100"):
        match(events("A" * 9 + "B"), queries, options=ensue.Limits(max_matches=100))  # type: ignore[arg-type]


def test_a_layer_of_a_hierarchy_is_bounded(uncompiled: None) -> None:
    hierarchy = "EVENT Many AS SEQ(A+ a[], B b) WITHIN 1000 RETURN b.t AS at; SEQ(Many m, C c)"
    with pytest.raises(ensue.LimitError, match="the query Many finds more matches"):
        match(events("A" * 9 + "BC"), hierarchy, options=ensue.Limits(max_matches=100))


def test_an_adaptive_query_is_bounded(uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError, match="max_matches=100"):
        match(
            events("A" * 9 + "B"),
            EXPLODES,
            options=[ensue.Limits(max_matches=100), ensue.PlannerOptions(adaptive=True)],
        )


def test_timed_out_partial_matches_are_bounded(uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError, match="max_matches=100"):
        match(
            events("A" * 9 + "X" * 30),
            "SEQ(A+ a[], B b) WITHIN 20",
            options=[ensue.Limits(max_matches=100), ensue.OutputOptions(emit_timeouts=True)],
        )


# ------------------------------------------------------------------------------- the error


def test_the_error_says_where_what_and_what_helps(uncompiled: None) -> None:
    with pytest.raises(ensue.LimitError) as caught:
        match(events("A" * 9 + "BXXX"), EXPLODES, options=ensue.Limits(max_matches=100))
    lines = str(caught.value).splitlines()
    assert lines[0] == "the query finds more matches than max_matches=100 allows"
    assert lines[1] == f"  query: {EXPLODES}"
    assert lines[2].startswith("  where: event 13 of the stream, at 12: 511 matches found, ")
    assert lines[3] == "  hint: try one of these"
    shown = " ".join(lines[4:])
    for way in (
        "USING next",
        "docs/strategies.md",
        "{3,5}",
        "WHERE [column]",
        "WITHIN",
        "LIMIT n",
        "COUNT(*)",
        "memory=",
    ):
        assert way in shown


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_matches": 0}, "max_matches=0 must be a positive whole number"),
        ({"max_matches": True}, "max_matches=True must be a positive whole number"),
        ({"max_partial_matches": 1.5}, "max_partial_matches=1.5 must be a positive whole number"),
        ({"memory": "lots"}, "memory='lots' is not a size"),
        ({"memory": "200%"}, "memory='200%' is not a size"),
        ({"memory": -1}, "memory=-1 is not a size"),
    ],
)
def test_bounds_that_are_none(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ensue.EventError) as caught:
        ensue.Limits(**given)
    assert problem in str(caught.value)


@pytest.mark.parametrize("memory", ["unlimited", "1 GB", "50%", "3 MiB", 10**9])
def test_ways_to_say_how_much_memory(memory: Any, uncompiled: None) -> None:
    assert match(events("AB"), "SEQ(A a, B b)", options=ensue.Limits(memory=memory)).num_rows == 1


# ------------------------------------------------------------------------------- the warning


def test_a_warning_comes_before_a_query_that_explodes(uncompiled: None) -> None:
    table = events("AAAAAAAAB" * 40)
    query = "SEQ(A+ a[], B b) WITHIN 200"
    with pytest.warns(ensue.LimitWarning, match="more than fit into"), pytest.raises(ensue.LimitError):
        ensue.match(table, query, time="t", type="type", options=ensue.Limits(memory="3 MB"))


@pytest.mark.parametrize("limit", ["max_matches", "max_partial_matches"])
def test_a_warning_comes_before_a_query_exceeds_what_it_is_given(limit: str, uncompiled: None) -> None:
    query = "SEQ(A{3,} a[], B b) WITHIN 30"
    with pytest.warns(ensue.LimitWarning, match=f"more than {limit}=1,000 allows"), pytest.raises(ensue.LimitError):
        ensue.match(events("A" * 14 + "BA"), query, time="t", type="type", options=ensue.Limits(**{limit: 1_000}))


@pytest.mark.parametrize(
    ("stream", "query"),
    [
        ("AAB" * 5, "SEQ(A+ a[], B b) WITHIN 6"),
        ("AAAAAAAAB" * 40, "(A a THEN)+ THEN B b"),
        ("AAAAAAAAB" * 40, "(A a THEN)++"),
    ],
)
def test_no_warning_for_what_gets_through(stream: str, query: str, uncompiled: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ensue.match(events(stream), query, time="t", type="type", options=ensue.Limits(memory="30 MB"))


def test_statistics_warn_where_there_is_no_table_to_look_at() -> None:
    from ensue.backends.dataframe_libs import read_event_table
    from ensue.planner.planner_options import PlannerOptions
    from ensue.runtime.compiled_query import compile_query
    from ensue.runtime.event_pruning import predict_overflow

    known = ensue.Statistics.given(rates={"A": 50.0, "B": 1.0})
    query = ensue.parse("SEQ(A a, A b, A c, B d) WITHIN 100000")
    _, shape = read_event_table(events("AAB"), time="t", type="type")
    assert predict_overflow(compile_query(query, shape)) is None
    found = predict_overflow(compile_query(query, shape, PlannerOptions(statistics=known)))
    assert found is not None
    assert "more than fit into" in found


# ------------------------------------------------------------------------------- streams


def job(query: str, table: pa.Table, **limits: Any) -> Workload:
    from ensue.options import Limits
    from ensue.planner.planner_options import PlannerOptions
    from support.key_groups import workload_of

    planning = PlannerOptions(limits=Limits(**limits))
    return workload_of(query, table.schema, "t", "type", planning=planning)


def test_a_stream_stops_and_goes_on_with_a_higher_bound(uncompiled: None) -> None:
    from support.key_groups import Stream, tables_of

    table = events("AABXX" + "A" * 8 + "BXAB")
    pieces = [table.slice(0, 5), table.slice(5, 10), table.slice(15)]
    query = "SEQ(A+ a[], B b) WITHIN 12"
    stream = Stream(job(query, table, max_matches=100), 0)
    stream.feed(pieces[0])
    assert tables_of(stream.delivered, 0, stream.workload.outputs[0].schema).num_rows == 3
    with pytest.raises(ensue.LimitError):
        stream.feed(pieces[1])
    stream.workload = job(query, table, max_matches=10_000)  # the same checkpoint
    stream.feed(pieces[1])
    stream.feed(pieces[2])
    whole = match(table, query)
    assert sorted(stream.finish()["match_id"].to_pylist()) == sorted(whole["match_id"].to_pylist())


def test_a_key_group_in_memory_takes_over_the_bounds_of_a_stream_that_is_started_anew(uncompiled: None) -> None:
    from support.key_groups import Stream

    table = events("AABAX" + "A" * 8 + "BXAB")
    query = "SEQ(A+ a[], B b) WITHIN 12"
    stream = Stream(job(query, table, max_matches=100), 0)
    stream.feed(table.slice(0, 5))
    stream.workload = job(query, table, max_matches=10_000)
    stream.feed(table.slice(5))
    assert stream.finish().num_rows == match(table, query).num_rows


def test_a_stream_hands_its_matches_over(uncompiled: None) -> None:
    from support.key_groups import Stream

    table = events("AAAB" * 30)
    stream = Stream(job("SEQ(A+ a[], B b) WITHIN 3", table, max_matches=8), 0)
    for k in range(0, table.num_rows, 4):
        stream.feed(table.slice(k, 4))
    assert stream.finish().num_rows == 7 * 30


@pytest.mark.spark
def test_on_spark_the_error_names_the_bound(spark: Any) -> None:
    from ensue.backends.spark.spark_errors import get_error_types, translate_error

    frame = spark.createDataFrame(events("A" * 9 + "B"))
    found = ensue.match(frame, EXPLODES, time="t", type="type", options=ensue.Limits(max_matches=100))
    with pytest.raises(get_error_types()) as caught:
        found.toArrow()
    error = translate_error(caught.value)
    assert isinstance(error, ensue.LimitError)
    assert "max_matches=100" in str(error)
    assert "LIMIT n" in str(error)


@pytest.mark.slow
@pytest.mark.spark
def test_a_stream_on_spark_says_why_it_stopped_and_goes_on(spark: Any, tmp_path: Any) -> None:
    import pyarrow.parquet as pq

    table = events("AABAX" + "A" * 8 + "BXAB")
    (tmp_path / "in").mkdir()
    pq.write_table(table.slice(0, 5), tmp_path / "in" / "0.parquet")
    schema = spark.read.parquet(str(tmp_path / "in")).schema
    query = "SEQ(A+ a[], B b) WITHIN 12"

    def run(*, once: bool = True, **limits: Any) -> Any:
        frame = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
        found = ensue.match(
            frame,
            query,
            time="t",
            type="type",
            watermark=0,
            options=[ensue.StreamOptions(key_groups=1), ensue.Limits(**limits)],
        )
        return ensue.start(found, tmp_path / "out", checkpoint=tmp_path / "checkpoint", once=once)

    run(max_matches=100)
    before = pq.read_table(tmp_path / "out").num_rows
    pq.write_table(table.slice(5), tmp_path / "in" / "1.parquet")
    stopped = run(once=False, max_matches=100)
    with pytest.raises(ensue.LimitError, match="max_matches=100"):
        stopped.wait()
    last = stopped.progress()[-1]
    assert last.stopped is not None
    assert "max_matches=100" in last.stopped
    assert pq.read_table(tmp_path / "out").num_rows == before
    run(max_matches=10_000)
    left = ensue.remaining(spark, tmp_path / "checkpoint").toArrow()
    ids = pq.read_table(tmp_path / "out")["match_id"].to_pylist() + left["match_id"].to_pylist()
    whole = ensue.match(table, query, time="t", type="type")
    assert sorted(ids) == sorted(whole["match_id"].to_pylist())


# ------------------------------------------------------------------------------- Ctrl-C

LONG = """
import numpy as np, pyarrow as pa, ensue
number = np.arange(COUNT)
events = pa.table({"t": number, "type": np.array(["A", "B"])[number % 2], "k": number // 2 % 2})
query = "SEQ(A a, A b, A c, B d) WHERE CONDITION"
print("begun", flush=True)
try:
    ensue.match(events, query, time="t", type="type", options=OPTIONS)
except KeyboardInterrupt:
    again = ensue.match(events.slice(0, 4), "SEQ(A a, B b)", time="t", type="type")
    print("stopped", again.num_rows, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["stacks", "tree", "threads"])
def test_ctrl_c_stops_a_kernel_that_would_run_for_hours(way: str) -> None:
    condition, count, options = "a.t + b.t + c.t < 0", "40_000", f"ensue.PlannerOptions(structure={way!r})"
    if way == "threads":
        condition, count, options = f"[k] AND {condition}", "200_000", "ensue.Limits(threads=2)"
    code = LONG.replace("CONDITION", condition).replace("COUNT", count).replace("OPTIONS", options)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(4)  # compiled by now; if not, the compiler is interrupted
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=120)
    finally:
        process.kill()  # it would run for hours
    assert said == "stopped 3\n"
    assert process.returncode == 0
