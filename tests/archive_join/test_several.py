"""Several queries over one stream and its past."""

import pyarrow as pa
import pytest

import ensue
from ensue.operators.archive_join import archive_access as access
from ensue.runtime.query_spec import open_archives
from ensue.runtime.stage import StageInput
from support.key_groups import workload_of

LIVE = pa.table({"t": [100, 110, 120, 130], "type": ["A", "B", "A", "B"], "k": ["x", "y", "x", "y"]})
PAST = pa.table({"t": [10, 60, 95, 105, 40], "type": ["A", "B", "A", "A", "B"], "k": ["x", "x", "y", "x", "y"]})
AFTER_A = "SEQ(A a) JOIN ARCHIVE old SEQ(A o) RANGE {} BEFORE START ON [k]"


def archives():
    return {"old": ensue.archive(PAST, time="t", type="type", key="k")}


@pytest.fixture
def reads(monkeypatch):
    """How often the archive was read."""
    seen = []
    read = access.GroupedAccess.instances

    def counted(self, asked):
        seen.append(len(asked))
        return read(self, asked)

    monkeypatch.setattr(access.GroupedAccess, "instances", counted)
    return seen


def test_queries_that_look_for_the_same_are_looked_up_together(reads):
    queries = {"near": AFTER_A.format(30), "far": AFTER_A.format(100)}
    found = ensue.match(LIVE, queries, time="t", type="type", archives=ensue.Archives(archives(), access="grouped"))
    assert {name: rows.num_rows for name, rows in found.items()} == {"near": 1, "far": 2}
    assert reads == [4]  # two live matches of each query, in one read
    for name, query in queries.items():
        alone = ensue.match(LIVE, query, time="t", type="type", archives=ensue.Archives(archives(), access="grouped"))
        assert found[name].equals(alone)


def test_with_a_past_and_without_one_in_one_call():
    queries = {"plain": "SEQ(A a, B b) WITHIN 15", "past": AFTER_A.format(100)}
    found = ensue.match(LIVE, queries, time="t", type="type", archives=archives())
    assert {name: rows.num_rows for name, rows in found.items()} == {"plain": 2, "past": 2}


def test_live_finds_the_same_piece_by_piece():
    wanted = ensue.match(
        LIVE, AFTER_A.format(100), time="t", type="type", archives=ensue.Archives(archives(), own="old")
    )
    live = ensue.live(
        AFTER_A.format(100), schema=LIVE, time="t", type="type", archives=ensue.Archives(archives(), own="old")
    )
    pieces = [live.feed(LIVE.slice(k, 1)) for k in range(4)]
    assert pa.concat_tables([*pieces, live.finish()]).equals(wanted)


def test_a_past_that_nobody_asks_for_any_more_is_dropped():
    text = "SEQ(A a) WITHIN 5 JOIN ARCHIVE old SEQ(A o) WITHIN 5 RANGE 10 BEFORE START ON [k]"
    job = workload_of(
        text,
        LIVE.schema,
        "t",
        "type",
        archive_set=open_archives(ensue.Archives(archives(), own="old")),
        streaming=False,
    )
    matcher = job.works[0].as_single_stage().matcher()
    for step in range(200):
        matcher.process(StageInput.from_events(LIVE.set_column(0, "t", [[200 + 4 * step + k for k in range(4)]])))
    assert matcher.archived["old"].rows < 40
