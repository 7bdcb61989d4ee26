"""SQL in which a clause over live rows is joined with one over an archive: the node of JOIN ARCHIVE
finds what the judge says and what a join of two tables gives."""

from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.errors import EventError, QueryError
from ensue.languages.sql.joins import MisfitError, read_joined
from ensue.plan.access import ACCESSES
from ensue.workload.correlations.prepare import Wanted
from ensue.workload.correlations.prepared import pasts_of
from support.joined_clauses import Told, random_told, rows_of
from support.lanes import Stream, delayed, workload_of
from support.streams import random_slices

SEEDS = 200


def archive_of(told: Told) -> object:
    return ensue.archive(told.past, time="ts", key="k", order="row")


def found_by(told: Told, access: str | None) -> pa.Table:
    return ensue.sql(
        told.text, tables={"live": told.live}, archives={"old": archive_of(told)},
        archive="old" if told.own else None, access=access,
    )  # fmt: skip


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("start", range(0, SEEDS, 25))
def test_every_access_finds_what_the_query_means(start):
    ways = Counter()
    for seed in range(start, start + 25):
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
    assert all(ways[access] > 2 for access in ("eager", "lazy", "grouped"))


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("start", range(0, SEEDS, 25))
def test_it_is_what_a_join_of_tables_gives(start):
    for seed in range(start, start + 25):
        told = random_told(Random(seed))
        joined = ensue.sql(told.text, tables={"live": told.live, "old": told.whole})
        assert rows_of(joined) == told.meant, f"seed {seed}: {told.text}"


@pytest.mark.parametrize("seed", range(40))
def test_its_text_is_read_as_the_same(seed):
    meant = random_told(Random(seed)).correlation
    again = read_joined(ensue.show(meant))
    assert ensue.show(again) == ensue.show(meant)
    assert (again.joins[0].range, again.columns) == (meant.joins[0].range, meant.columns)


def streamed(told: Told, random: Random, access: str) -> pa.Table:
    """In lanes, delayed, cut and interrupted at random."""
    pasts = pasts_of({"old": archive_of(told)}, "old" if told.own else None)
    job = workload_of(
        told.correlation, told.live.schema, "ts", None, ("row",), lanes=random.randint(1, 3),
        pasts=pasts, access=Wanted(access, random.choice((None, 0, 3))),
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


@pytest.mark.first_rounds(2)
@pytest.mark.parametrize("start", range(0, SEEDS, 25))
def test_a_stream_finds_the_same_however_it_is_cut(start):
    streams = 0
    for seed in range(start, start + 25):
        told = random_told(Random(seed))
        random = Random(seed)
        try:
            found = streamed(told, random, random.choice(ACCESSES))
        except (EventError, QueryError) as error:
            known = ("impossible here", "would keep its rows for ever", "only when it ends")
            assert any(words in str(error) for words in known), error  # noqa: PT017
            continue
        assert rows_of(found) == told.meant, f"seed {seed}: {told.text}"
        streams += bool(told.meant)
    assert streams > 2
