"""Queries and hierarchies in one call: each has the matches that it has alone, on every runner."""

import os
import warnings
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.backends.spark.frames import WholeStreamWarning
from ensue.errors import QueryError
from ensue.runtime.workload import Workload
from support.key_groups import Stream, workload_of

EVENTS = {"time": "t", "type": "type", "order": "row"}
RISE = "EVENT Rise AS SEQ(A a, A b) WHERE [k] and b.x > a.x WITHIN 5 RETURN b.x AS x, a.u AS u;"
NEAR = ensue.operator("near_in_x", q=lambda a, b, by: b.x - a.x <= by)
ASKED = {
    "pairs": "SEQ(A a, B b) WHERE [k] WITHIN 6",
    "twice": f"{RISE} SEQ(Rise x, Rise y) WHERE [k] and y.x > x.x WITHIN 20",
    "by user": "SEQ(A a, !B b) WHERE [u] WITHIN 3",
    "stopped": f"{RISE} SEQ(Rise x, C c) WHERE [u] WITHIN 9 RETURN x.x AS x, c.row AS row",
    "near": "SEQ(near_in_x(A a, B b, 1) r, C c) WHERE [k] WITHIN 9",
}


def events(count: int = 60, seed: int = 1) -> pa.Table:
    random = Random(seed)
    return pa.table(
        {
            "t": pa.array([n // 2 for n in range(count)], pa.int64()),
            "type": [random.choice("AAABC") for _ in range(count)],
            "k": [random.choice("pq") for _ in range(count)],
            "u": pa.array([random.randrange(3) for _ in range(count)], pa.int64()),
            "x": pa.array([random.randrange(5) for _ in range(count)], pa.int64()),
            "row": pa.array(range(count), pa.int64()),
        }
    )


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def alone(name: str, table: pa.Table, **options) -> dict[str, list[str]]:
    """The outputs of one query in a call of its own, by the names that they have among others."""
    options = {"definitions": NEAR, **EVENTS, **options}
    found = ensue.match(table, ASKED[name], **options)
    if not isinstance(found, dict):
        return {name: rows(found)}
    return {f"{name}.{level}" if level else name: rows(t) for level, t in found.items()}


@pytest.fixture
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


@pytest.mark.usefixtures("_uncompiled")
def test_queries_and_hierarchies_together_have_the_matches_they_have_alone():
    table = events()
    found = ensue.match(table, ASKED, definitions=[NEAR], **EVENTS)
    assert list(found) == list(ASKED)
    for name in ASKED:
        assert {name: rows(found[name])} == alone(name, table), name
        assert found[name].num_rows, name


@pytest.mark.usefixtures("_uncompiled")
def test_levels_of_several_hierarchies_go_by_the_names_of_both():
    table = events()
    hierarchies = {name: ASKED[name] for name in ("pairs", "twice", "stopped")}
    found = ensue.match(table, hierarchies, options=ensue.OutputOptions(levels="all"), **EVENTS)
    assert list(found) == ["pairs", "twice.Rise", "twice", "stopped.Rise", "stopped"]
    for name in ("twice", "stopped"):
        for output, wanted in alone(name, table, options=ensue.OutputOptions(levels="all")).items():
            assert rows(found[output]) == wanted
    emit = {"one": f"{RISE} EMIT Rise; SEQ(Rise x, C c) WITHIN 4", "other": ASKED["twice"]}
    assert list(ensue.match(table, emit, **EVENTS)) == ["one.Rise", "one", "other"]


@pytest.mark.usefixtures("_uncompiled")
def test_timed_out_partial_matches_of_queries_and_hierarchies():
    table = events()
    asked = {name: ASKED[name] for name in ("pairs", "twice")}
    found = ensue.match(table, asked, options=ensue.OutputOptions(emit_timeouts=True), **EVENTS)
    for name, matches in found.items():
        assert {name: rows(matches)} == alone(name, table, options=ensue.OutputOptions(emit_timeouts=True))
        assert set(matches["timed_out"].to_pylist()) == {True, False}


def test_a_list_goes_by_the_names_that_all_give_themselves():
    named = ["EVENT One AS SEQ(A a, B b)", f"{RISE} EVENT Two AS SEQ(Rise x, C c)"]
    assert list(ensue.match(events(), named, **EVENTS)) == ["One", "Two"]
    assert list(ensue.match(events(), [named[0], ASKED["twice"]], **EVENTS)) == [0, 1]


def test_an_error_in_one_of_several_hierarchies_says_in_which():
    bad = f"{RISE} SEQ(Rise x, C c) WHERE x.colour = 3"
    with pytest.raises(QueryError, match="query 'bad': unknown field 'colour'"):
        ensue.match(events(), {"good": ASKED["pairs"], "bad": bad}, **EVENTS)


def test_hierarchies_that_define_a_name_alike_share_its_layer():
    workload = workload_of({name: ASKED[name] for name in ("twice", "stopped")}, events().schema, "t", "type")
    (work,) = workload.works
    assert [layer.layer.name for layer in work.hierarchy.layers].count("Rise") == 1
    assert Workload.read(workload.texts).texts == workload.texts


@pytest.mark.usefixtures("_uncompiled")
def test_late_events_are_delivered_once_whatever_the_keys():
    texts = {name: ASKED[name] for name in ("pairs", "by user", "stopped")}
    table = events()
    workload = workload_of(texts, table.schema, "t", "type", ("row",), deliver_late=True, key_groups=2)
    assert len(workload.chains) == 3
    stream = Stream(workload, 2)
    stream.feed(table.slice(0, 40))
    stream.feed(events(20, seed=7))  # ten time units, long gone
    stream.feed(table.slice(40))
    found = stream.end()
    late = stream.late_events()
    wanted = [row for row in events(20, seed=7).to_pylist() if row["t"] < table["t"][39].as_py() - 2]
    assert sorted(map(repr, late.to_pylist())) == sorted(map(repr, wanted))
    assert stream.late == len(wanted)
    for name in texts:
        assert {name: rows(found[name])} == alone(name, table), name


@pytest.mark.slow
@pytest.mark.spark
def test_one_pass_over_a_dataframe(spark):
    frame = spark.createDataFrame(events())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WholeStreamWarning)
        found = ensue.match(
            frame, ASKED, definitions=[NEAR], options=ensue.OutputOptions(levels=["Rise"]), **EVENTS
        ).cache()
    for name, text in ASKED.items():
        options = {"options": ensue.OutputOptions(levels="all")} if "Rise" in text else {}
        for output, wanted in alone(name, events(), **options).items():
            assert rows(found[output].toArrow()) == wanted, output
    found.unpersist()


@pytest.mark.spark
@pytest.mark.slow
def test_one_stream_of_queries_and_hierarchies_with_late_events(spark, tmp_path):
    source, table = tmp_path / "events", events()
    source.mkdir()
    for number, piece in enumerate((table.slice(0, 40), events(20, seed=7), table.slice(40))):
        pq.write_table(piece, source / f"{number}.parquet")
        os.utime(source / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    schema = spark.read.parquet(str(source)).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    found = ensue.match(
        reader.parquet(str(source)),
        ASKED,
        definitions=[NEAR],
        watermark=2,
        options=ensue.StreamOptions(key_groups=2, late_events="deliver"),
        **EVENTS,
    )
    late: list[pa.Table] = []
    ensue.start(
        found, tmp_path / "out", checkpoint=tmp_path / "checkpoint", once=True, flush=True,
        late=lambda frame, _: late.append(frame.toArrow()),
    )  # fmt: skip
    for name in ASKED:
        assert {name: rows(pq.read_table(tmp_path / "out" / name))} == alone(name, table), name
    behind = [row["row"] for t in late for row in t.to_pylist()]
    assert sorted(behind) == list(range(20))
