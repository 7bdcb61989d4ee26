"""What is planned is kept between calls, and never taken for another call."""

import gc
import os
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import ensue
from ensue.codegen import kernel_cache as cache
from ensue.ir.expression import Literal
from ensue.ir.traversal import rewrite_expr
from ensue.runtime import workload as kept_works
from ensue.runtime.source_schema import SourceSchema

QUERY = "SEQ(A a, B b) WHERE a.x < b.x WITHIN 10"


def events(x: Any = None, **others: Any) -> pa.Table:
    return pa.table(
        {
            "t": [1, 2, 3, 4, 5],
            "type": ["A", "B", "A", "B", "C"],
            "x": x if x is not None else [1, 2, 3, 4, 5],
            **others,
        }
    )


def matched(table: pa.Table, query: Any = QUERY, **given: Any) -> pa.Table:
    return ensue.match(table, query, **{"time": "t", "type": "type", **given})


def planned() -> int:
    """How often something was planned."""
    return kept_works._plan_call.cache_info().misses


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(cache, "interpreted", True)  # nothing here needs machine code
    kept_works._plan_call.cache_clear()
    yield
    kept_works._plan_call.cache_clear()


def test_an_equal_call_is_planned_once() -> None:
    first, second = matched(events()), matched(events())
    assert first.equals(second)
    assert planned() == 1


def test_so_is_a_query_that_is_made_anew_each_time() -> None:
    for _ in range(2):
        made = ensue.pattern("a", "A").then("b", "B").within(10)
        assert matched(events(), made).num_rows == 2
    assert planned() == 1


def test_columns_of_other_types_are_another_call() -> None:
    whole = matched(events())
    real = matched(events(pa.array([1.5, 1.25, 3.0, 4.0, 5.0])))
    assert whole.num_rows == 3
    assert real.num_rows == 2
    assert real.schema.field("a").type.field("x").type == pa.float64()
    texts = matched(events(["b", "a", "b", "c", "d"]))
    assert texts.num_rows == 2
    coded = matched(events(pa.array(["b", "a", "b", "c", "d"]).dictionary_encode()))
    assert coded.schema.field("a").type.field("x").type == pa.dictionary(pa.int32(), pa.string())
    assert coded.column("match_id") == texts.column("match_id")
    with pytest.raises(ensue.QueryError, match="compare"):
        matched(events([[1]] * 5))


def test_so_are_columns_with_other_metadata_and_other_columns() -> None:
    matched(events())
    matched(events().replace_schema_metadata({"source": "a file"}))
    matched(events(y=[1, 2, 3, 4, 5]))
    field = pa.field("x", pa.struct([pa.field("v", pa.int64(), metadata={"unit": "m"})]))
    other = pa.field("x", pa.struct([pa.field("v", pa.int64(), metadata={"unit": "s"})]))
    for own in (field, other):
        nested = events(pa.array([{"v": 1}] * 5, own.type))
        found = matched(nested, "SEQ(A a, B b) WITHIN 10")
        assert found.schema.field("a").type.field("x").type.field("v").metadata == {
            b"unit": b"m" if own is field else b"s"
        }
    assert planned() == 5


def test_values_that_are_missing_after_a_call_without() -> None:
    assert matched(events()).num_rows == 3
    assert matched(events([1, None, 3, 4, 5])).num_rows == 2
    assert matched(events()).num_rows == 3


def test_one_and_one_point_zero_are_equal_but_not_the_same_query() -> None:
    query = ensue.parse("SEQ(A a, B b) WITHIN 10 RETURN a.x + 1 AS more")
    assert isinstance(query, ensue.Query)

    def real(node: Any) -> Any:
        return replace(node, value=1.0) if node == Literal(1) else node

    (column,) = query.returns
    other = replace(query, returns=(replace(column, expr=rewrite_expr(column.expr, real)),))
    assert other == query
    assert matched(events(), query).schema.field("more").type == pa.int64()
    assert matched(events(), other).schema.field("more").type == pa.float64()


def test_errors_point_into_the_text_of_their_own_call() -> None:
    for text in ("SEQ(A a, B b) WHERE a.y > 1", "SEQ(A a,\n    B b)\nWHERE a.y > 1"):
        for _ in range(2):
            with pytest.raises(ensue.QueryError) as raised:
                matched(events(), text)
            assert text.splitlines()[-1] in str(raised.value)


@pytest.mark.parametrize(
    "other",
    [
        {"time": "u"},
        {"order": "u"},
        {"location": ("t", "x")},
        {"location": ensue.Location("t", "x", space="earth")},
        {"options": ensue.OutputOptions(emit_timeouts=True)},
        {"options": ensue.Limits(max_matches=1_000)},
        {"options": ensue.Limits(memory="1 GB")},
        {"options": ensue.PlannerOptions(off="stacks")},
        {"options": ensue.PlannerOptions(structure="tree")},
        {"options": ensue.PlannerOptions(adaptive=True)},
        {"options": ensue.OutputOptions(flat=True)},
        {"options": ensue.PlannerOptions(statistics=ensue.Statistics.given(rates={"A": 1, "B": 2}))},
    ],
)
def test_other_arguments_are_another_call(other: dict[str, Any]) -> None:
    table = events(u=[5, 4, 3, 2, 1])
    before = matched(table)
    new = matched(table, **other)
    kept_works._plan_call.cache_clear()
    assert matched(table, **other).equals(new)
    matched(table)
    assert planned() == 2
    assert matched(table).equals(before)


def test_the_zone_of_clocks_is_a_part_of_it() -> None:
    """That of a session of Spark, which may change between two calls."""
    source = SourceSchema(pa.schema([("t", pa.timestamp("us", "UTC"))]), "t")
    zones = {replace(source, zone=zone).key for zone in (None, "UTC", "Asia/Tokyo")}
    assert len(zones) == 3


def test_limits_are_those_of_the_call() -> None:
    assert matched(events()).num_rows == 3
    with pytest.raises(ensue.LimitError):
        matched(events(), options=ensue.Limits(max_matches=1))
    assert matched(events()).num_rows == 3


def test_levels_are_those_of_the_call() -> None:
    hierarchy = "EVENT Pair AS SEQ(A a, B b) WITHIN 1; SEQ(Pair p, C c) WITHIN 10"
    assert matched(events(), hierarchy).num_rows == 2
    assert set(matched(events(), hierarchy, options=ensue.OutputOptions(levels="all"))) == {"Pair", ""}
    assert matched(events(), hierarchy).num_rows == 2
    assert planned() == 2


def test_several_queries_go_by_their_names() -> None:
    one = matched(events(), {"p": QUERY, "q": "SEQ(B b, C c) WITHIN 9"})
    other = matched(events(), {"q": QUERY, "p": "SEQ(B b, C c) WITHIN 9"})
    assert one["p"].equals(other["q"])
    assert one["q"].equals(other["p"])
    assert list(other) == ["q", "p"]


def test_definitions_that_are_given_count() -> None:
    text = "SEQ(Pair p, C c) WITHIN 10"
    for window, found in ((1, 2), (3, 3), (1, 2)):
        pair = ensue.define(f"EVENT Pair AS SEQ(A a, B b) WITHIN {window}")
        assert matched(events(), text, definitions=pair).num_rows == found
    with pytest.warns(UserWarning, match="no event is of type 'Pair'"):
        assert matched(events(), text).num_rows == 0


def test_an_imported_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "query.ensue"
    file.write_text('IMPORT "pairs.ensue"; SEQ(Pair p, C c) WITHIN 10')
    for window, found in ((1, 2), (3, 3)):
        (tmp_path / "pairs.ensue").write_text(f"EVENT Pair AS SEQ(A a, B b) WITHIN {window};")
        assert matched(events(), file).num_rows == found


def test_a_query_file_that_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "query.ensue"
    for window, found in ((1, 2), (3, 3)):
        file.write_text(f"SEQ(A a, B b) WITHIN {window}")
        assert matched(events(), file).num_rows == found


def test_an_operator_that_is_given_counts() -> None:
    text = "near(A a, B b) r"
    short = ensue.operator("near", q=lambda a, b: b.start - a.end <= 1)
    long = ensue.operator("near", q=lambda a, b: b.start - a.end <= 3)
    for given, found in ((short, 2), (long, 3), (short, 2)):
        assert matched(events(), text, definitions=given).num_rows == found
    with pytest.raises(ensue.QueryError, match="unknown operator"):
        matched(events(), text)
    assert planned() == 0  # functions of users may change: they are planned anew each time


def test_events_and_results_are_not_kept() -> None:
    table = events()
    found = matched(table)
    gone = weakref.ref(table), weakref.ref(found)
    del table, found
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def test_only_so_many_are_kept() -> None:
    for window in range(1, kept_works.MAX_CACHED_PLANS + 10):
        matched(events(), f"SEQ(A a, B b) WITHIN {window}")
    info = kept_works._plan_call.cache_info()
    assert info.currsize == info.maxsize == kept_works.MAX_CACHED_PLANS


def test_how_kernels_run_is_decided_by_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    compiled = cache.compile_function

    def seen(*given: Any, python: bool = False) -> Any:
        asked.append(python)
        return compiled(*given, python=python)

    monkeypatch.setattr(cache, "compile_function", seen)
    for setting in ("never", "always", "never"):
        monkeypatch.setenv("ENSUE_COMPILE", setting)
        monkeypatch.setattr(cache, "interpreted", False)
        matched(events())
    assert planned() == 1
    assert len(asked) >= 3
    assert asked[0] is asked[-1] is True


def test_threads_may_ask_at_the_same_time() -> None:
    expected = {window: matched(events(), f"SEQ(A a, B b) WITHIN {window}") for window in (1, 3)}
    kept_works._plan_call.cache_clear()
    wrong: list[int] = []
    start = threading.Barrier(8)

    def ask(number: int) -> None:
        start.wait()
        for k in range(20):
            window = 1 if (number + k) % 2 else 3
            if not matched(events(), f"SEQ(A a, B b) WITHIN {window}").equals(expected[window]):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_goes_on_with_what_is_kept() -> None:
    expected = matched(events())
    child = os.fork()
    if not child:
        same = matched(events()).equals(expected)
        os._exit(0 if same and planned() == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
