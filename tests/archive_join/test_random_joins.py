"""Random queries over a stream and its past: every access finds what the judge says."""

from collections import Counter
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError
from ensue.planner.access_paths import ACCESSES
from ensue.runtime.query_spec import open_archives
from ensue.runtime.tasks import task_state as key_group_state
from support.archive_joins import Story, judged_rows, random_story, random_try, shown_rows
from support.key_groups import Stream, delayed, workload_of
from support.seeds import of_round
from support.streams import random_nature, random_slices

SEEDS = 400

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    monkeypatch.setattr("ensue.codegen.kernel_cache.interpreted", True)


def found_by(story: Story, access: str | None, **options: object) -> pa.Table:
    archives = {
        name: ensue.archive(table, time=story.nature.columns, type="type", key="k", order="row")
        for name, table in story.archives.items()
    }
    return ensue.match(
        story.live, story.text, time=story.nature.columns, type="type", order="row",
        archives=ensue.Archives(archives, own=story.own, access=access), **options,
    )  # fmt: skip


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_every_access_finds_what_the_query_means(start):
    ways = Counter()
    for seed in of_round(start // 20, 20):
        story = random_story(Random(seed))
        wanted = judged_rows(story)
        ids = None
        for access in ACCESSES:
            try:
                found = found_by(story, access)
            except EventError as error:
                if "impossible here" not in str(error):
                    raise
                continue
            assert shown_rows(story.archive_join, found) == wanted, f"seed {seed}, {access}: {story.text}"
            own = Counter(found["match_id"].to_pylist())
            assert ids is None or own == ids, f"seed {seed}, {access}: {story.text}"
            ids = own
            ways[access] += bool(wanted)
    assert all(ways[access] > 1 for access in ("eager", "lazy", "grouped"))


def streamed(story: Story, random: Random, access: str) -> pa.Table:
    """The same in key groups, delayed, cut and interrupted at random."""
    time, latency = story.nature.columns, random.choice((None, 0, 2, 5))
    if latency is not None and story.nature.time.startswith("timestamp"):
        latency = f"{latency} seconds"
    archives = {
        name: ensue.archive(table, time=time, type="type", key="k", order="row")
        for name, table in story.archives.items()
    }
    job = workload_of(
        story.text, story.live.schema, time, "type", ("row",), key_groups=random.randint(1, 3),
        archive_set=open_archives(ensue.Archives(archives, own=story.own, access=access, latency=latency)),
    )  # fmt: skip
    _ = job.chains
    arriving, delay = delayed(random, story.live, job.source)
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


@pytest.mark.parametrize("access", ACCESSES)
@pytest.mark.parametrize("seed", [20207, 22143])
def test_a_negation_at_the_end_of_what_is_kept(seed, access):
    """Decided by events behind the range, which may belong to the next range."""
    random = Random(seed)
    story = random_try(random, random_nature(random))
    try:
        found = found_by(story, access)
    except EventError as error:
        assert "impossible here" in str(error)  # noqa: PT017
        return
    assert shown_rows(story.archive_join, found) == judged_rows(story)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("start", range(0, SEEDS, 20))
def test_a_stream_finds_the_same_however_it_is_cut(start, monkeypatch):
    streams = 0
    for seed in of_round(start // 20, 20):
        random = Random(seed)
        story = random_story(random)
        monkeypatch.setattr(key_group_state, "SMALL", random.choice((0, 2_000, 1 << 20)))
        for access in ACCESSES:
            try:
                found = streamed(story, random, access)
            except EventError as error:
                if "impossible here" not in str(error):
                    raise
                continue
            except QueryError:
                continue  # streams need WITHIN
            assert shown_rows(story.archive_join, found) == judged_rows(story), f"seed {seed}, {access}: {story.text}"
            streams += 1
    assert streams > 15
