"""SQL in which a clause over live rows is joined with one over an archive.

The node of JOIN ARCHIVE finds what the judge says, and what a join of two tables gives.
"""

from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError
from ensue.parser.sql.clause_join import parse_archive_join_text
from ensue.parser.sql.sql_query import UnsupportedJoinError
from ensue.planner.access_paths import ACCESSES
from ensue.runtime.query_spec import open_archives
from support.joined_clauses import Told, random_told, rows_of
from support.key_groups import Stream, delayed, workload_of
from support.seeds import of_round
from support.streams import random_slices

SEEDS = 200


def archive_of(told: Told) -> object:
    return ensue.archive(told.past, time="ts", key="k", order="row")


def found_by(told: Told, access: str | None) -> pa.Table:
    return ensue.sql(
        told.text,
        tables={"live": told.live},
        archives=ensue.Archives({"old": archive_of(told)}, own="old" if told.own else None, access=access),
    )


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("start", range(0, SEEDS, 15))
def test_every_access_finds_what_the_query_means(start):
    ways = Counter()
    for seed in of_round(start // 15, 15):
        told = random_told(Random(seed))
        for access in ACCESSES:
            try:
                found = found_by(told, access)
            except EventError as error:
                if "impossible here" not in str(error):
                    raise
                continue
            assert rows_of(found) == told.meant, f"seed {seed}, {access}: {told.text}"
            ways[access] += bool(told.meant)
    assert all(ways[access] > 1 for access in ("eager", "lazy", "grouped"))


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("start", range(0, SEEDS, 15))
def test_it_is_what_a_join_of_tables_gives(start):
    for seed in of_round(start // 15, 15):
        told = random_told(Random(seed))
        joined = ensue.sql(told.text, tables={"live": told.live, "old": told.whole})
        assert rows_of(joined) == told.meant, f"seed {seed}: {told.text}"


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(20))
def test_ids_do_not_tell_how_the_archive_was_read(seed):
    told = random_told(Random(seed))
    named = Told(
        told.text.replace("SELECT", "SELECT match_id, L.match_id AS mine,"),
        told.live, told.past, told.own,
    )  # fmt: skip
    ids = [
        Counter(zip(*(found[name].to_pylist() for name in ("match_id", "mine")), strict=True))
        for access in ("eager", "lazy", "grouped")
        for found in [found_by(named, access)]
    ]
    assert ids[0] == ids[1] == ids[2]
    assert len(ids[0]) == sum(told.meant.values())


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("seed", range(20))
def test_events_that_are_fed_one_by_one(seed):
    told = random_told(Random(seed))
    live = ensue.live(
        told.archive_join,
        schema=told.live.schema,
        time="ts",
        order="row",
        archives=ensue.Archives({"old": archive_of(told)}, own="old" if told.own else None, access="eager"),
    )
    rows = sorted(told.live.to_pylist(), key=lambda row: (row["ts"], row["row"]))
    found = [live.feed([row]) for row in rows] + [live.finish()]
    assert sum(map(rows_of, found), Counter()) == told.meant


@pytest.mark.first_rounds(4)
@pytest.mark.parametrize("seed", range(40))
def test_its_text_is_read_as_the_same(seed):
    meant = random_told(Random(seed)).archive_join
    again = parse_archive_join_text(ensue.show(meant))
    assert ensue.show(again) == ensue.show(meant)
    assert (again.joins[0].range, again.columns) == (meant.joins[0].range, meant.columns)


def streamed(told: Told, random: Random, access: str) -> pa.Table:
    """In key groups, delayed, cut and interrupted at random."""
    own, latency = "old" if told.own else None, random.choice((None, 0, 3))
    pasts = open_archives(ensue.Archives({"old": archive_of(told)}, own=own, access=access, latency=latency))
    job = workload_of(
        told.archive_join, told.live.schema, "ts", None, ("row",), key_groups=random.randint(1, 3),
        archive_set=pasts,
    )  # fmt: skip
    _ = job.chains
    arriving, delay = delayed(random, told.live, job.source)
    early = random.random() < 0.5
    stream = Stream(job, delay, forget=lambda: random.random() < 0.3, early=early)
    for piece in random_slices(random, arriving):
        stream.feed(piece)
        if random.random() < 0.5:
            stream.pause()
    stream.pause()
    found = stream.finish()
    assert stream.late == 0
    return found


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("start", range(0, SEEDS, 15))
def test_a_stream_finds_the_same_however_it_is_cut(start):
    streams = 0
    for seed in of_round(start // 15, 15):
        told = random_told(Random(seed))
        random = Random(seed)
        try:
            found = streamed(told, random, random.choice(ACCESSES))
        except (EventError, QueryError) as error:
            known = ("impossible here", "would keep its rows forever", "only when it ends")
            assert any(words in str(error) for words in known), error  # noqa: PT017
            continue
        assert rows_of(found) == told.meant, f"seed {seed}: {told.text}"
        streams += bool(told.meant)
    assert streams


# ------------------------------------------------------------------------------- what fits, or not

NOW = datetime(2026, 1, 31)
COLUMNS = pa.schema({"ts": pa.timestamp("us"), "k": pa.string(), "v": pa.float64()})
SINGLE = """MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES X.ts AS at_, X.v AS v
    PATTERN (X) DEFINE X AS X.v > 0)"""
JOINED = f"""SELECT L.k, L.at_ AS at_, A.at_ AS before, A.v AS v FROM live {SINGLE} AS L
    JOIN old {SINGLE} AS A ON A.k = L.k AND A.at_ < L.at_
    AND A.at_ >= L.at_ - INTERVAL '3' DAY"""


def days(*rows: tuple[float, str, float]) -> pa.Table:
    made = [(NOW + timedelta(days=day), key, value) for day, key, value in rows]
    return pa.table([list(c) for c in zip(*made, strict=True)], schema=COLUMNS)


LIVE = days((0, "a", 1.0), (0.5, "b", 2.0), (1, "a", 3.0))
PAST = days((-4, "a", 4.0), (-3, "a", 5.0), (-1, "b", 6.0), (-0.5, "a", 7.0), (-0.1, "a", -1.0))


def asked(text: str, **more: str) -> pa.Table:
    archives = ensue.Archives({"old": ensue.archive(PAST, time="ts", key="k")}, **more)
    return ensue.sql(text, tables={"live": LIVE}, archives=archives)


def values(table: pa.Table, name: str = "v") -> list[float]:
    return sorted(table[name].to_pylist())


@pytest.fixture
def nodes(monkeypatch):
    """How often a live clause was joined with an archive, and not a table with a table."""
    from ensue.operators.archive_join.join_matcher import ArchiveJoinMatcher

    made = []
    plain = ArchiveJoinMatcher.__init__
    monkeypatch.setattr(ArchiveJoinMatcher, "__init__", lambda self, *given: (made.append(1), plain(self, *given))[1])
    return made


def test_times_and_intervals(nodes):
    assert values(asked(JOINED)) == [5.0, 6.0, 7.0, 7.0]
    assert nodes


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("L.at_ - A.at_ <= INTERVAL '3' DAY", [5.0, 6.0, 7.0, 7.0]),
        ("A.at_ + INTERVAL '2' DAY >= L.at_", [6.0, 7.0, 7.0]),
        ("A.at_ > L.at_ - INTERVAL '3' DAY", [6.0, 7.0, 7.0]),
        ("A.at_ BETWEEN L.at_ - INTERVAL '3' DAY AND L.at_ - INTERVAL '1' DAY", [5.0, 6.0, 7.0]),
    ],
)
def test_the_range_may_be_written_in_other_ways(nodes, written, found):
    text = JOINED.replace("A.at_ >= L.at_ - INTERVAL '3' DAY", written)
    assert values(asked(text)) == found
    assert nodes


def test_columns_are_those_of_select_in_any_case(nodes):
    text = JOINED.replace("L.k, L.at_ AS at_", "l.K, abs(a.v - L.v) AS Far, MATCH_ID")
    found = asked(text)
    assert found.column_names == ["k", "Far", "match_id", "before", "v"]
    assert len(set(found["match_id"].to_pylist())) == found.num_rows == 4
    assert nodes


def test_ids_of_the_sides(nodes):
    found = asked(JOINED.replace("L.k,", "L.match_id AS mine, A.match_id AS other,"))
    assert len(set(found["mine"].to_pylist())) == 3
    assert len(set(found["other"].to_pylist())) == 3
    assert nodes


def test_several_archives(nodes):
    text = JOINED.replace("A.v AS v", "A.v AS v, B.v AS w") + (
        f" LEFT JOIN older {SINGLE} AS B ON B.k = L.k AND B.at_ < L.at_ - INTERVAL '2' DAY "
        "AND B.at_ > L.at_ - INTERVAL '9' DAY AND B.v < A.v"
    )
    archives = {name: ensue.archive(PAST, time="ts", key="k") for name in ("old", "older")}
    found = ensue.sql(text, tables={"live": LIVE}, archives=archives)
    assert nodes
    plain = ensue.sql(text, tables={"live": LIVE, "old": PAST, "older": PAST})
    assert rows_of(found) == rows_of(plain)


@pytest.mark.parametrize(
    "text",
    [
        JOINED + " ORDER BY v LIMIT 9",
        JOINED.replace("A.at_ < L.at_", "A.at_ <= L.at_"),
        JOINED.replace("JOIN old", "FULL JOIN old").replace("L.at_ AS at_, ", ""),
        f"SELECT A.v AS v FROM old {SINGLE} AS A",
        "SELECT v FROM old",
        JOINED.replace("SELECT", "SELECT DISTINCT"),
        JOINED.replace("X.v > 0)", "X.v > 0)", 1).replace("PATTERN (X)", "PATTERN (X?)"),
        JOINED.replace("X.v AS v", "X.v AS w").replace("PATTERN", "ALL ROWS PER MATCH PATTERN"),
    ],
)
def test_what_does_not_fit_is_a_join_of_tables(nodes, text):
    plain = ensue.sql(text, tables={"live": LIVE, "old": PAST})
    assert rows_of(asked(text)) == rows_of(plain)
    assert not nodes


def test_pandas_stay_pandas():
    frame = LIVE.to_pandas()
    archives = {"old": ensue.archive(PAST, time="ts", key="k")}
    for text in (JOINED, JOINED + " ORDER BY v"):
        found = ensue.sql(text, tables={"live": frame}, archives=archives)
        assert sorted(found["v"]) == [5.0, 6.0, 7.0, 7.0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("A.at_ < L.at_", "A.v < L.v"), "ON must bound how long before L the match A"),
        (("JOIN old", "RIGHT JOIN old"), "with JOIN or LEFT JOIN"),
        (("L.k,", "count(*) AS n,"), "count aggregates many rows"),
        (("L.k,", "A.wrong,"), "unknown column 'wrong'"),
        (("L.k,", "L.v + 1,"), "a column has no name"),
        (("AS A ON", "AS L ON"), "two clauses are called L"),
        (("PATTERN (X)", "PATTERN (X*)"), "may be empty"),
        (("ORDER BY ts", "ORDER BY v"), "must begin with its time column"),
        (("SELECT", "SELECT DISTINCT"), "it has DISTINCT"),
    ],
)
def test_beside_its_own_archive_it_has_to_fit(change, words):
    with pytest.raises(UnsupportedJoinError) as error:
        asked(JOINED.replace(*change), own="old")
    assert words in str(error.value)


def test_names_and_ways_that_are_unknown():
    with pytest.raises(EventError, match="is in both tables= and archives="):
        ensue.sql(JOINED, tables={"old": PAST}, archives={"old": ensue.archive(PAST, time="ts")})
    with pytest.raises(EventError, match="own='new' is none of the archives"):
        asked(JOINED, own="new")
    with pytest.raises(EventError, match="access='quick'"):
        asked(JOINED, access="quick")


def test_an_archive_of_another_unit_of_time(nodes):
    older = PAST.set_column(0, "ts", PAST["ts"].cast(pa.timestamp("ns")))
    archives = {"old": ensue.archive(older, time="ts", key="k")}
    for access in ("eager", "lazy", "grouped"):
        found = ensue.sql(JOINED, tables={"live": LIVE}, archives=ensue.Archives(archives, access=access))
        assert values(found) == [5.0, 6.0, 7.0, 7.0]
    assert nodes


def test_zones_and_dictionaries(nodes):
    def changed(table: pa.Table) -> pa.Table:
        times = table["ts"].cast(pa.timestamp("us", "UTC"))
        return table.set_column(0, "ts", times).set_column(1, "k", table["k"].dictionary_encode())

    archives = {"old": ensue.archive(changed(PAST), time="ts", key="k")}
    for access in ("eager", "lazy", "grouped"):
        found = ensue.sql(JOINED, tables={"live": changed(LIVE)}, archives=ensue.Archives(archives, access=access))
        assert values(found) == [5.0, 6.0, 7.0, 7.0]
        assert found.schema.field("before").type == pa.timestamp("us", "UTC")
    assert nodes


def test_explain(nodes):
    told = random_told(Random(3))
    shown = ensue.explain(told.archive_join, told.live, time="ts", order="row", archives={"old": archive_of(told)})
    assert "MATCH_RECOGNIZE (...) AS L, [k]" in str(shown)


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark(spark, tmp_path):
    """A DataFrame, a view, a stream, and what does not fit."""
    ensue.create_archive(tmp_path / "old", PAST, time="ts", key="k")
    archives = {"old": ensue.archive(tmp_path / "old")}
    live = spark.createDataFrame(LIVE)
    assert values(ensue.sql(JOINED, tables={"live": live}, archives=archives).toArrow()) == [
        5.0, 6.0, 7.0, 7.0,
    ]  # fmt: skip
    live.createOrReplaceTempView("live_view")
    text = JOINED.replace("FROM live", "FROM live_view")
    assert values(ensue.sql(text, spark=spark, archives=archives).toArrow()) == [
        5.0, 6.0, 7.0, 7.0,
    ]  # fmt: skip
    sorted_ = ensue.sql(JOINED + " ORDER BY v", tables={"live": live}, archives=archives)
    assert values(sorted_.toArrow()) == [5.0, 6.0, 7.0, 7.0]
    live.write.parquet(str(tmp_path / "live"))
    coming = spark.readStream.schema(live.schema).parquet(str(tmp_path / "live"))
    with pytest.raises(UnsupportedJoinError, match="it has ORDER"):
        ensue.sql(JOINED + " ORDER BY v", tables={"live": coming}, archives=archives, watermark="1 day")
    found = ensue.sql(
        JOINED.replace("SELECT", "SELECT match_id,"),
        tables={"live": coming},
        archives=ensue.Archives(archives, own="old"),
        watermark="1 day",
        options=ensue.StreamOptions(key_groups=1),
    )
    ensue.start(
        found, tmp_path / "found", checkpoint=tmp_path / "checkpoint", archive="old", once=True,
        flush=True,
    )  # fmt: skip
    got = spark.read.parquet(str(tmp_path / "found")).toArrow()
    assert got.column_names == ["match_id", "k", "at_", "before", "v"]
    assert values(got) == [1.0, 5.0, 6.0, 7.0, 7.0]
