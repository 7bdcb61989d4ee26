"""A stream that writes its own archive: no gap, no overlap, whatever is killed."""

from collections import Counter
from dataclasses import replace
from itertools import count
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.archives.delta_writer import create
from ensue.errors import EventError, QueryError
from ensue.planner.access_paths import ACCESSES
from ensue.runtime.query_spec import ArchiveSet, open_archives
from ensue.runtime.stage import ArchiveSink
from ensue.runtime.tasks import task_state as key_group_state
from ensue.runtime.tasks.backfill import BackfillCut
from support.archive_joins import Story, random_story
from support.archiving import ArchivingStream
from support.key_groups import delayed, workload_of
from support.past import whole
from support.seeds import in_blocks
from support.streams import REAL, STAMPS, WHOLE, Nature, random_slices

SEEDS = 120

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def own_story(random: Random) -> Story:
    """A story whose events belong to an archive."""
    nature = Nature(random.choice((WHOLE, WHOLE, REAL, STAMPS)), random.random() < 0.2,
                    random.choice((None, None, 2)))  # fmt: skip
    while True:
        story = random_story(random, nature)
        if story.own is not None:
            return story


def archived(place, story: Story):
    """The own archive of a story as a table that Ensue writes."""
    assert story.own is not None
    events = story.archives[story.own]
    made = create(
        place, events.schema, time=story.nature.columns, key=["k"], type="type", order=["row"],
        buckets=4, day=5 if story.nature.time in (WHOLE, REAL) else None,
    )  # fmt: skip
    if events.num_rows:
        ensue.archive(place).append(events)
    return made


def pasts(story: Story, own, random: Random, access: str | None = None) -> ArchiveSet:
    given = {
        name: ensue.archive(t, time=story.nature.columns, type="type", key="k", order="row")
        for name, t in story.archives.items()
    }
    found = open_archives(ensue.Archives(given | {story.own: own}, own=story.own, access=access), streaming=True)
    age = random.choice((None, 2, 5))
    if age is not None and story.nature.time == STAMPS:
        age *= 1_000_000
    return replace(found, archiving=ArchiveSink(own, random.choice((1, 1, 3, 6)), age))


def streamed(story: Story, text, place, random: Random, access: str | None = None):
    own = archived(place, story)
    job = workload_of(
        text, story.live.schema, story.nature.columns, "type", ("row",),
        key_groups=random.randint(1, 3), archive_set=pasts(story, own, random, access),
    )  # fmt: skip
    _ = job.chains
    arriving, delay = delayed(random, story.live, job.source)
    stream = ArchivingStream(job, delay, own, random)
    for piece in random_slices(random, arriving):
        stream.tried(lambda piece=piece: stream.feed(piece))
        if random.random() < 0.5:
            stream.tried(stream.pause)
    stream.tried(stream.pause)
    return stream, stream.ended()


def require_each_once(stream: ArchivingStream, story: Story) -> None:
    """The archive has what it had, and what key groups released and do not have, once."""
    before = Counter(story.archives[story.own].column("row").to_pylist())
    now = Counter(whole(stream.archive).column("row").to_pylist())
    assert before <= now
    assert set((now - before).values()) <= {1}
    recent = Counter(stream.recent().column("row").to_pylist())
    assert set(recent.values()) <= {1}
    assert not recent.keys() & (now - before).keys()


@pytest.mark.parametrize("seeds", in_blocks(4, 20, SEEDS))
def test_kills_change_no_row_and_archive_each_event_once(seeds, monkeypatch, tmp_path):
    told = Counter()
    places = count()
    for seed in seeds:
        random = Random(seed)
        story = own_story(random)
        monkeypatch.setattr(key_group_state, "SMALL", random.choice((0, 2_000, 1 << 20)))
        tables = {
            name: ensue.archive(t, time=story.nature.columns, type="type", key="k", order="row")
            for name, t in story.archives.items()
        }
        for access in ACCESSES:
            place = tmp_path / str(next(places))
            try:
                wanted = ensue.match(
                    story.live, story.text, time=story.nature.columns, type="type", order="row",
                    archives=ensue.Archives(tables, own=story.own, access=access),                 )  # fmt: skip
                stream, rows = streamed(story, story.text, place, random, access)
            except EventError as error:
                if "impossible here" not in str(error):
                    raise
                continue
            except QueryError:
                continue  # streams need WITHIN
            same = Counter(map(repr, rows)) == Counter(map(repr, wanted.to_pylist()))
            assert same, f"seed {seed}, {access}: {story.text}"
            require_each_once(stream, story)
            told["streams"] += 1
            told["kills"] += stream.kills
            told["commits"] += stream.commits
            told["compactions"] += stream.compactions
            told["rows"] += len(rows)
    assert all(told[name] > 0 for name in ("streams", "kills", "commits", "rows"))


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_begins_with_its_archive_as_history_and_goes_on_writing_it(seed, tmp_path):
    random = Random(seed)
    while True:
        story = own_story(random)
        past = story.archives[story.own]
        try:
            own = archived(tmp_path / f"{random.random()}", story)
            job = workload_of(
                story.text, story.live.schema, story.nature.columns, "type", ("row",), key_groups=2,
                archive_set=pasts(story, own, random),
            )  # fmt: skip
            _ = job.chains
        except QueryError:
            continue  # streams need WITHIN
        if past.num_rows and job.archive_set.own is not None:
            break
    arriving, delay = delayed(random, story.live, job.source)
    stream = ArchivingStream(job, delay, own, random)
    stream.begin_with(past, BackfillCut(job.archive_set.first_cut("us")))
    stream.checks_gap = False  # as with gap="allow"
    stream._deliver_rows(stream.delivered)
    for piece in random_slices(random, arriving):
        stream.tried(lambda piece=piece: stream.feed(piece))
    stream.tried(stream.pause)
    tables = {
        name: ensue.archive(t, time=story.nature.columns, type="type", key="k", order="row")
        for name, t in story.archives.items()
    }
    both = pa.concat_tables([past, story.live])
    wanted = ensue.match(
        both,
        story.text,
        time=story.nature.columns,
        type="type",
        order="row",
        archives=ensue.Archives(tables, own=story.own),
    )
    assert Counter(map(repr, stream.ended())) == Counter(map(repr, wanted.to_pylist()))
    require_each_once(stream, story)


def plain_story(random: Random) -> tuple[Story, str]:
    story = own_story(random)
    return story, random.choice(
        ("SEQ(A a, B b) WHERE [k] WITHIN 4", "SEQ(A a, !B b, C c) WITHIN 5", "SEQ(C c) WITHIN 5")
    ).replace("WITHIN 4", f"WITHIN 4{unit(story)}").replace("WITHIN 5", f"WITHIN 5{unit(story)}")


def unit(story: Story) -> str:
    return " seconds" if story.nature.time == STAMPS else ""


@pytest.mark.parametrize("seed", range(6))
def test_a_query_without_a_past_writes_an_archive_too(seed, tmp_path):
    random = Random(seed)
    story, text = plain_story(random)
    stream, rows = streamed(story, text, tmp_path / "old", random)
    wanted = ensue.match(story.live, text, time=story.nature.columns, type="type", order="row")
    assert Counter(map(repr, rows)) == Counter(map(repr, wanted.to_pylist()))
    require_each_once(stream, story)


def test_several_keys_and_hierarchies_do_not_archive_yet(tmp_path):
    story = own_story(Random(2))
    own = archived(tmp_path / "old", story)
    given = pasts(story, own, Random(0))

    def chains(text):
        named = (story.live.schema, story.nature.columns, "type")
        return workload_of(text, *named, key_groups=2, archive_set=given).chains

    window = f"WITHIN 4{unit(story)}"
    with pytest.raises(QueryError, match="share one key"):
        chains([f"SEQ(A a, B b) WHERE [k] {window}", f"SEQ(A a, B b) WHERE [s] {window}"])
    with pytest.raises(QueryError, match="definitions"):
        chains(f"EVENT D AS SEQ(A a, B b) {window}; SEQ(D d, C c) {window}")


def test_late_events_are_not_archived(tmp_path):
    columns = {"t": pa.int64(), "k": pa.int64(), "type": pa.string()}
    own = create(tmp_path / "a", pa.schema(columns), time="t", key=["k"], type="type", day=10)
    found = replace(open_archives(ensue.Archives({"a": own}, own="a"), streaming=True), archiving=ArchiveSink(own, 1))
    job = workload_of("SEQ(A a) WITHIN 5", pa.schema(columns), "t", "type", archive_set=found, deliver_late=True)
    stream = ArchivingStream(job, 1, own, Random(0))
    for times in ([1, 9], [2, 12], [20]):
        piece = pa.table({"t": times, "k": [1] * len(times), "type": ["A"] * len(times)})
        stream.tried(lambda piece=piece: stream.feed(piece))
    stream.tried(stream.pause)
    assert stream.late == 1
    assert sorted(whole(own).column("t").to_pylist()) == [1, 9, 12]


def test_an_event_right_behind_the_archive_belongs_to_the_past(tmp_path):
    """Delta cuts the statistics of timestamps to milliseconds: the cut must not."""
    stamps = pa.timestamp("us", "UTC")
    columns = {"t": stamps, "k": pa.int64(), "type": pa.string()}

    def events(*micros: int) -> pa.Table:
        count = len(micros)
        times = pa.array(micros, pa.int64()).cast(stamps)
        return pa.table({"t": times, "k": [1] * count, "type": ["A"] * count}, pa.schema(columns))

    own = create(tmp_path / "a", pa.schema(columns), time="t", key=["k"], type="type")
    ensue.archive(tmp_path / "a").append(events(1_000_500))
    found = open_archives(ensue.Archives({"a": own}, own="a"), streaming=True)
    assert found.first_cut("us") == 1_000_501
    found = replace(found, archiving=ArchiveSink(own, 1))
    text = "SEQ(A a) WITHIN 5 seconds JOIN ARCHIVE a SEQ(A p) RANGE 1 minute BEFORE START ON [k]"
    job = workload_of(text, pa.schema(columns), "t", "type", archive_set=found)
    stream = ArchivingStream(job, 1, own, Random(1))
    for micros in ((1_000_500, 1_000_900), (1_002_000,), (9_000_000,)):
        stream.tried(lambda micros=micros: stream.feed(events(*micros)))
    stream.tried(stream.pause)
    assert stream.before_cut == 1
    pairs = sorted((r["a"]["t"].microsecond, r["p"]["t"].microsecond) for r in stream.ended())
    assert pairs == [
        (0, 500), (0, 900), (0, 2000), (900, 500), (2000, 500), (2000, 900),
    ]  # fmt: skip
    assert [t.microsecond for t in whole(own)["t"].to_pylist()] == [500, 900, 2000]


def test_why_one_key_group_has_all_events():
    columns = pa.schema({"t": pa.int64(), "k": pa.int64(), "s": pa.string(), "type": pa.string()})
    old = ensue.archive(columns.empty_table(), time="t", type="type", key="k")
    live = "SEQ(A a, B b) WHERE [k] WITHIN 3"

    def stage(on: str, own: str | None):
        text = f"{live} JOIN ARCHIVE old SEQ(A p) RANGE 9 BEFORE START ON {on}"
        (chain,) = workload_of(
            text, columns, "t", "type", archive_set=open_archives(ensue.Archives({"old": old}, own=own))
        ).chains
        return chain.stages[0]

    assert stage("[k]", "old").key == ("k",)
    assert stage("[s]", None).key == ("k",)
    assert stage("[s]", "old").key == ()
    assert "which ON does not join by [k]: one task" in stage("[s]", "old").whole_stream
