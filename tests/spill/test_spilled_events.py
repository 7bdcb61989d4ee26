"""Events of files, datasets and readers that do not fit into memory give the same rows in the same order."""

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import ensue
from ensue.codegen import kernel_cache
from ensue.errors import EventError, LimitError, QueryError
from ensue.runtime.spill import spilled_events, spilled_keys
from support.edges import random_edges
from support.groups import random_groups
from support.negations import random_negations
from support.parts import make_parts_small
from support.queries import random_query, random_repeats
from support.seeds import of_round, some
from support.streams import random_events, random_nature

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, scalars warn
WRITERS = (random_query, random_query, random_repeats, random_negations, random_groups, random_edges)
ANSWERS = ("", "", "", " RETURN COUNT(*) AS n", " RETURN EXISTS", " LIMIT 1", " RETURN a.x AS x LIMIT 2")
EACH = 90
TIMED = {"time": "t", "type": "type"}
PAIRS = "SEQ(A a, B b) USING next WHERE [k] WITHIN 50"
LEVELS = """EVENT Two AS SEQ(A a, B b) USING next WHERE [k] WITHIN 9 RETURN b.x AS x, b.k AS k;
    SEQ(Two p, Two q) WHERE [k] and q.x >= p.x WITHIN 30"""
CLAUSE = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY t MEASURES FIRST(x) AS f, LAST(x) AS l
    PATTERN (P Q+) DEFINE Q AS x > PREV(x))"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Events of some bytes are spilled, into this folder."""
    place = tmp_path / "spilled"
    place.mkdir()
    monkeypatch.setattr(spilled_events, "SHARE", 1e9)
    monkeypatch.setattr(spilled_events, "GROUPS", 16)
    monkeypatch.setenv(spilled_keys.SPILL_VARIABLE, str(place))
    monkeypatch.setattr(kernel_cache, "interpreted", True)
    return place


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of the files that were written."""
    rows, write = list[int](), spilled_keys.SpillFolder.write

    def counted(folder: Any, table: pa.Table) -> Any:
        rows.append(table.num_rows)
        return write(folder, table)

    monkeypatch.setattr(spilled_keys.SpillFolder, "write", counted)
    return rows


def make_events(count: int = 400, keys: int = 7) -> pa.Table:
    random = Random(count + keys)
    return pa.table(
        {
            "t": sorted(random.randint(0, count // 2) for _ in range(count)),
            "type": [random.choice("ABC") for _ in range(count)],
            "k": [random.choice([None, *map(str, range(keys))]) for _ in range(count)],
            "x": [random.randint(0, 3) for _ in range(count)],
        }
    )


def in_batches(events: pa.Table, random: Random) -> pa.RecordBatchReader:
    cuts = sorted({0, events.num_rows, *(random.randint(0, events.num_rows) for _ in range(random.randint(0, 6)))})
    pieces = [events.slice(a, b - a).combine_chunks() for a, b in pairwise(cuts)]
    return pa.RecordBatchReader.from_batches(events.schema, [b for piece in pieces for b in piece.to_batches()])


def shuffle(events: pa.Table, random: Random) -> pa.Table:
    return events.take(random.sample(range(events.num_rows), events.num_rows))


def make_kinds(events: pa.Table, random: Random) -> list[Any]:
    return [in_batches(events, random), ds.dataset(events), ds.dataset(events).scanner(batch_size=5)]


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("round", some(1, 8))
def test_random_queries_find_the_same(round, written, monkeypatch, folder):
    compared = spilled = 0
    for seed in of_round(round, EACH):
        random = Random(seed)
        monkeypatch.setattr(spilled_events, "SHARE", random.choice([1e7, 3e7, 1e9]))  # some groups are large
        nature = random_nature(random)
        query = random.choice(WRITERS)(random, nature)
        if "RETURN" not in query:
            query += random.choice(ANSWERS)
        events = random_events(random, random.randint(10, 28), nature)
        if random.random() < 0.3:  # duplicates, which the ids of matches number
            events = pa.concat_tables([events, events.slice(0, 5)])
        if random.random() < 0.3:
            at = events.column_names.index("k")
            events = events.set_column(at, "k", pa.array(map(str, events["k"].to_pylist())).dictionary_encode())
        if random.random() < 0.5:
            events = shuffle(events, random)
        options = {"time": nature.columns, "type": "type", "order": random.choice([(), (), "row"])}
        queries: Any = query
        if random.random() < 0.3:
            queries = {"one": query, "two": "SEQ(A a, B b) WHERE [k]", "three": "A a"}
        elif random.random() < 0.2:
            options["options"] = ensue.OutputOptions(emit_timeouts=True)
        try:
            expected = ensue.match(events, queries, **options)
        except (QueryError, EventError, LimitError):
            continue
        written.clear()
        for given in make_kinds(events, random):
            found = ensue.match(given, queries, **options)
            if not isinstance(expected, dict):
                found = {"": found}
            for name, table in (expected if isinstance(expected, dict) else {"": expected}).items():
                assert found[name].schema == table.schema, (seed, query)
                # NaN equals no NaN
                assert str(found[name].to_pylist()) == str(table.to_pylist()), (seed, name, query)
        compared += 1
        spilled += bool(written)
    assert spilled > compared // 2
    assert not any(folder.iterdir())


@pytest.mark.filterwarnings("ignore")  # types that do not occur
@pytest.mark.parametrize("query", [LEVELS, [PAIRS, LEVELS], [LEVELS, LEVELS.replace("Two", "Three")]])
def test_definitions_with_one_key_find_the_same(query, written):
    random = Random(5)
    events = shuffle(make_events(300), random)
    options: dict[str, Any] = {**TIMED, "options": ensue.OutputOptions(trace=True)}
    expected = ensue.match(events, query, **options)
    for given in make_kinds(events, random):
        found = ensue.match(given, query, **options)
        assert found == expected if isinstance(found, dict) else found.equals(expected)
    assert len(written) > 20


def test_other_queries_need_their_events_in_memory(folder):
    events = make_events()
    fleet = ensue.Subscriptions(time="t", type="type")
    fleet.add("one", "=|(A; 10)(A), A = (ARITH:x = 1)")
    for query, options in ((LEVELS.replace("WHERE [k] and", "WHERE"), TIMED), (fleet, {}), (CLAUSE, {})):
        expected = ensue.match(events, query, **options)
        assert ensue.match(ds.dataset(events), query, **options).equals(expected)
        if query != CLAUSE:  # its rows are read at once
            with pytest.raises(LimitError, match=r"need more than the 2 KB .*\n  hint: a key"):
                ensue.match(ds.dataset(events), query, options=ensue.Limits(memory=2_000), **options)
    assert not any(folder.iterdir())


def test_without_a_key_events_are_sorted_on_disk(written):
    events = shuffle(make_events(800), Random(1))
    query = "SEQ(A a, B b, C c) USING next WHERE a.x = 0 and b.x = 1 and c.x < 2 WITHIN 3"
    expected = ensue.match(events, query, **TIMED)
    assert expected.num_rows > 5
    for table in (events, events.sort_by("t")):
        written.clear()
        batches = table.combine_chunks().to_batches(max_chunksize=100)
        found = ensue.match(pa.RecordBatchReader.from_batches(table.schema, batches), query, **TIMED)
        assert found.equals(ensue.match(table, query, **TIMED))
        assert len(written) == (16 if table is events else 8)  # sorted runs need no merging


@pytest.mark.parametrize("threads", [1, 3])
def test_large_groups_are_split_and_small_ones_joined(threads, written, monkeypatch):
    make_parts_small(monkeypatch)
    events = make_events(600, keys=60)
    limits = ensue.Limits(threads=threads)
    expected = ensue.match(events, PAIRS, options=limits, **TIMED)
    for share in (1e4, 1e6, 1e9):
        monkeypatch.setattr(spilled_events, "SHARE", ensue.engine.memory_budget.get_machine_memory() / 4 / share)
        assert ensue.match(ds.dataset(events), PAIRS, options=limits, **TIMED).equals(expected)
    assert written


def write_files(place: Path, *tables: pa.Table) -> Path:
    place.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, place / f"{number}.parquet", row_group_size=50)
    return place


def test_paths_of_parquet_files_are_read_in_batches(tmp_path, written):
    events = make_events()
    files = write_files(tmp_path / "events", events.slice(0, 150), events.slice(150))
    expected = ensue.match(events, PAIRS, **TIMED)
    for path in (files, str(files), files / "*.parquet"):
        written.clear()
        assert ensue.match(path, PAIRS, **TIMED).equals(expected)
        assert written


def test_files_with_other_columns_are_read_as_before(tmp_path, written):
    events = make_events()
    files = write_files(tmp_path / "events", events.slice(0, 150), events.slice(150).drop_columns(["x"]))
    found = ensue.match(files / "*.parquet", PAIRS, **TIMED)
    assert found.num_rows == ensue.match(events, PAIRS, **TIMED).num_rows
    assert not written


def test_files_whose_types_differ_are_refused(tmp_path, folder):
    events = make_events()
    other = events.slice(150).set_column(0, "t", pa.array(map(str, "x" * 250)))
    files = write_files(tmp_path / "events", events.slice(0, 150), other)
    with pytest.raises(EventError, match=r"cannot read events from .*events: "):
        ensue.match(files, PAIRS, **TIMED)
    assert not any(folder.iterdir())


def test_unreadable_files_are_named(tmp_path, folder):
    files = write_files(tmp_path / "events", make_events(), make_events())
    broken = files / "1.parquet"
    data = broken.read_bytes()
    broken.write_bytes(data[:100] + b"x" * 600 + data[700:])
    with pytest.raises(EventError, match=r"cannot read events from .*events: "):
        ensue.match(files, PAIRS, **TIMED)
    with pytest.raises(EventError, match="cannot read events: "):
        ensue.match(ds.dataset(files), PAIRS, **TIMED)
    assert not any(folder.iterdir())


def test_a_batch_with_other_columns_is_refused():
    def batches() -> Any:
        yield from make_events().to_batches()
        yield from make_events().drop_columns(["x"]).to_batches()

    reader = pa.RecordBatchReader.from_batches(make_events().schema, batches())
    with pytest.raises(
        EventError, match=r"cannot read events: a batch has other columns than the first one: .*x: int64"
    ):
        ensue.match(reader, PAIRS, **TIMED)


def test_columns_are_checked_before_events_are_read():
    dataset = ds.dataset(make_events())
    with pytest.raises(EventError, match="no column 'ts' for time="):
        ensue.match(dataset, PAIRS, time="ts", type="type")
    with pytest.raises(QueryError, match="kk"):
        ensue.match(dataset, PAIRS.replace("[k]", "[kk]"), **TIMED)


def test_an_empty_dataset_has_no_matches():
    events = make_events().slice(0, 0)
    expected = ensue.match(events, PAIRS, **TIMED)
    for given in make_kinds(events, Random(1)):
        assert ensue.match(given, PAIRS, **TIMED).equals(expected)


def test_events_without_time_are_refused_or_left_out():
    events = make_events()
    events = events.set_column(0, "t", pa.array([*events["t"].to_pylist()[:-1], None]))
    given = ds.dataset(pa.concat_tables([events.slice(0, 390), events.slice(390)]))
    if events["type"][-1].as_py() == "C":
        pytest.fail("it is not read")
    with pytest.raises(EventError, match=r"1 of 400 events have no usable time \(the first is row 399\)"):
        ensue.match(given, PAIRS, **TIMED)
    drop = ensue.StreamOptions(bad_events="drop")
    with pytest.warns(UserWarning, match="1 events without usable time"):
        found = ensue.match(given, PAIRS, options=drop, **TIMED)
    assert found.equals(ensue.match(events.slice(0, 399), PAIRS, **TIMED))


def test_types_that_do_not_occur_are_named():
    with pytest.warns(UserWarning, match="no event is of type 'D'"):
        ensue.match(ds.dataset(make_events()), PAIRS.replace("B b", "D b"), **TIMED)


def test_limits_hold_for_all_groups_together(folder):
    events = make_events(keys=60)
    with pytest.raises(LimitError, match="more matches than max_matches=20"):
        ensue.match(ds.dataset(events), PAIRS, options=ensue.Limits(max_matches=20), **TIMED)
    assert not any(folder.iterdir())


def test_the_disk_has_a_limit(folder, monkeypatch):
    monkeypatch.setattr(spilled_events, "DISK_SHARE", 1e-9)
    with pytest.raises(LimitError, match=rf"more than 0% of the free disk space in {folder}\n  hint: ENSUE_SPILL"):
        ensue.match(ds.dataset(make_events()), PAIRS, **TIMED)
    assert not any(folder.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_files_are_removed_after_an_error(error, folder, written):
    def batches() -> Any:
        yield from make_events().to_batches(max_chunksize=50)
        assert written
        assert any(folder.iterdir())
        raise error

    reader = pa.RecordBatchReader.from_batches(make_events().schema, batches())
    with pytest.raises(error):
        ensue.match(reader, PAIRS, **TIMED)
    assert not any(folder.iterdir())


def test_files_are_removed_after_an_interrupt_of_matching(folder, monkeypatch):
    def interrupt(*_: Any, **__: Any) -> None:
        assert any(folder.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(spilled_events, "select_matched_events", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ensue.match(ds.dataset(make_events()), PAIRS, **TIMED)
    assert not any(folder.iterdir())


def test_events_that_fit_are_not_written(written, monkeypatch):
    events = make_events()
    expected = ensue.match(events, "SEQ(A a, B b) WHERE a.x = 3 and b.x = 3 WITHIN 5", **TIMED)
    machine = ensue.engine.memory_budget.get_machine_memory() / 4
    monkeypatch.setattr(spilled_events, "SHARE", machine / (events.nbytes / 3))  # less than all, more than is kept
    found = ensue.match(ds.dataset(events), "SEQ(A a, B b) WHERE a.x = 3 and b.x = 3 WITHIN 5", **TIMED)
    assert found.equals(expected)
    assert not written


def test_progress_and_plans_of_datasets():
    events, done = make_events(), list[tuple[int, int]]()
    ensue.match(ds.dataset(events), PAIRS, progress=lambda *numbers: done.append(numbers), **TIMED)
    assert done == sorted(done)
    assert done[-1][0] == done[-1][1] > 0
    plan = ensue.explain(PAIRS, ds.dataset(events), analyze=True, **TIMED)
    assert f"{events.num_rows} events" in plan
    of_table = ensue.statistics(events, PAIRS, **TIMED)
    assert ensue.statistics(ds.dataset(events), PAIRS, **TIMED) == of_table


def test_texts_as_times_and_dicts_of_datasets_are_read_as_tables():
    events = make_events()
    stamps = pa.array([f"2026-01-01T00:{t // 60:02}:{t % 60:02}" for t in events["t"].to_pylist()])
    texts = events.set_column(0, "t", stamps)
    query = PAIRS.replace("WITHIN 50", "WITHIN 50 seconds")
    with pytest.warns(UserWarning, match="text"):
        expected = ensue.match(texts, query, **TIMED)
    with pytest.warns(UserWarning, match="text"):
        assert ensue.match(ds.dataset(texts), query, **TIMED).equals(expected)
    by_type = {name: events.filter(pa.compute.equal(events["type"], name)) for name in "AB"}
    expected = ensue.match(by_type, PAIRS, time="t")
    assert ensue.match({n: ds.dataset(t) for n, t in by_type.items()}, PAIRS, time="t").equals(expected)


def test_one_key_may_need_more_than_there_is(folder, monkeypatch):
    events = make_events(keys=1)
    monkeypatch.setattr(spilled_events, "SHARE", 8)
    with pytest.raises(LimitError, match="more than the 2 KB of memory that they may take: those of one group of keys"):
        ensue.match(ds.dataset(events).scanner(batch_size=20), PAIRS, options=ensue.Limits(memory=2_000), **TIMED)
    assert not any(folder.iterdir())
