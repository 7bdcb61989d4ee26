"""What a user sees of a stream with a limit: counters, refusals, errors, saved states."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ensue
from ensue.runtime.spill.spilling_matcher import SpillingMatcher
from support.seeds import scaled

QUERY = "SEQ(A a, B b, C c) WHERE [k] WITHIN 1000"
ABSENT = "SEQ(A a, !B b) WHERE [k] WITHIN 50"
COLUMNS = {"time": "t", "type": "type"}


def objects(count: int, seed: int = 0) -> pa.Table:
    """Each object goes A, B, C; there is time between."""
    random = np.random.default_rng(seed)
    begin = np.arange(count)
    gaps = random.integers(1, 400, (2, count))
    times = np.concatenate([begin, begin + gaps[0], begin + gaps.sum(0)])
    keys, types = np.tile(np.arange(count), 3), np.repeat(np.array(list("ABC")), count)
    order = np.argsort(times, kind="stable")
    table = {"t": times[order], "k": keys[order], "type": types[order]}
    return pa.table(table | {"text": [f"some text of {k}" for k in keys[order]]})


def run(events: pa.Table, query: str, size: int = 500, **limits) -> tuple[Any, pa.Table]:
    live = ensue.live(query, schema=events.schema, **COLUMNS, **limits)
    found = [live.feed(events.slice(k, size)) for k in range(0, events.num_rows, size)]
    return live, pa.concat_tables([*found, live.finish()])


def ids(matches: pa.Table) -> list[str]:
    return sorted(matches["match_id"].to_pylist())


@pytest.mark.parametrize("evict", ["need", "tpm", "stpm"])
@pytest.mark.parametrize("query", [QUERY, ABSENT])
def test_memory_is_bounded_and_nothing_is_lost(query, evict, monkeypatch):
    events, most = objects(scaled(3_000)), []
    shrunk = SpillingMatcher._shrink

    def watched(self):
        found = shrunk(self)
        most.append(self.usage.held_bytes)
        return found

    monkeypatch.setattr(SpillingMatcher, "_shrink", watched)
    wanted = ensue.match(events, query, **COLUMNS)
    live, found = run(events, query, options=ensue.Limits(memory="60 KB", evict=evict))
    assert ids(found) == ids(wanted)
    assert max(most) <= 60_000
    assert live.progress.stored_bytes >= 0
    assert live.progress.misses > 0 if query is QUERY else True


def test_counters_say_what_is_stored():
    events = objects(1_000)
    live = ensue.live(QUERY, schema=events.schema, **COLUMNS, options=ensue.Limits(memory="40 KB"))
    live.feed(events.slice(0, 900))
    counts = live.progress
    assert counts.stored_keys > 100
    assert counts.stored_bytes > counts.stored_keys
    before = counts.misses
    live.feed(events.slice(900))
    assert live.progress.misses > before


def test_without_a_word_of_memory_nothing_is_stored():
    live, _ = run(objects(300), QUERY)
    assert live.progress.stored_keys == live.progress.misses == 0


@pytest.mark.parametrize("first", [None, "40 KB"])
@pytest.mark.parametrize("second", [None, "40 KB", "20 KB"])
@pytest.mark.parametrize("several", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_saved_state_goes_on_with_another_limit(first, second, several):
    events = objects(800)
    query = [QUERY, ABSENT] if several else ABSENT
    wanted = ensue.match(events, query, **COLUMNS)

    def made(memory):
        return ensue.live(query, schema=events.schema, **COLUMNS, options=ensue.Limits(memory=memory))

    live, found = made(first), []
    found.append(live.feed(events.slice(0, 1_000)))
    live = made(second).restore(live.save())
    found.append(live.feed(events.slice(1_000, 500)))
    live = made(first).restore(live.save())
    found += [live.feed(events.slice(1_500)), live.finish()]
    if not several:
        found, wanted = [{0: one} for one in found], {0: wanted}
    for name, table in wanted.items():
        assert ids(pa.concat_tables([one[name] for one in found])) == ids(table)


def test_a_limit_below_one_key_names_the_key():
    count = 2_000
    events = pa.table({"t": range(count), "k": [7 if t % 10 else t for t in range(count)], "type": ["A"] * count})
    with pytest.raises(ensue.LimitError, match=r"one key alone needs .* k = 7") as error:
        run(events, "SEQ(A a, B b) WHERE [k] WITHIN 5000", options=ensue.Limits(memory="20 KB"))
    assert "and ensue.Limits(memory=...) allows 20 KB" in str(error.value)
    assert "hint: allow more memory," in str(error.value)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SEQ(A a, B b) WITHIN 10", r"no \[attr\]"),
        ("SEQ(A a, B b) WHERE [k]", "without WITHIN"),
        ("SEQ(A a, B b) WHERE [k] WITHIN 10 EVENTS", "counts events"),
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) { [k] } WITHIN 10", "strict contiguity"),
        ("SEQ(A a, B b) WHERE [k] WITHIN 10 AFTER MATCH SKIP PAST LAST EVENT", "AFTER MATCH"),
        ("EVENT X AS SEQ(A a, B b) WHERE [k] WITHIN 9; SEQ(X x, C c) WITHIN 9", "complex events of a hierarchy"),
    ],
)
def test_a_query_that_cannot_be_evicted_says_why(query, why):
    events = objects(10)
    with pytest.raises(ensue.QueryError, match=f"cannot be evicted: .*{why}") as error:
        run(events, query, options=ensue.Limits(memory="1 MB", evict="need"))
    assert "leave out evict of ensue.Limits" in str(error.value)
    run(events, query, options=ensue.Limits(memory="1 MB"))  # it is a bound then


def test_queries_without_a_common_key_cannot_be_evicted_together():
    events = objects(10)
    queries = [QUERY, "SEQ(A a, B b) WHERE [text] WITHIN 9"]
    with pytest.raises(ensue.QueryError, match=r"no \[attr\] in common"):
        ensue.live(queries, schema=events.schema, **COLUMNS, options=ensue.Limits(memory="1 MB", evict="need"))


def test_evict_is_for_streams():
    with pytest.raises(ensue.QueryError, match=r"Limits\(evict=...\) is for streams"):
        ensue.match(objects(3), QUERY, **COLUMNS, options=ensue.Limits(evict="need"))
    with pytest.raises(ensue.EventError, match="evict='lru' is not an eviction policy"):
        run(objects(3), QUERY, options=ensue.Limits(evict="lru"))


def test_a_full_disk_stops_the_stream_and_a_restart_goes_on(monkeypatch):
    import errno
    from pathlib import Path

    events = objects(900)
    wanted = ensue.match(events, QUERY, **COLUMNS)
    live = ensue.live(QUERY, schema=events.schema, **COLUMNS, options=ensue.Limits(memory="40 KB"))
    found = [live.feed(events.slice(0, 600))]
    saved = live.save()
    with monkeypatch.context() as patched:

        def full(*_, **__):
            raise OSError(errno.ENOSPC, "No space left on device")

        patched.setattr(Path, "open", full)
        with pytest.raises(ensue.LimitError, match="the disk for stored keys is full"):
            live.feed(events.slice(600))
    live = ensue.live(QUERY, schema=events.schema, **COLUMNS, options=ensue.Limits(memory="40 KB")).restore(saved)
    found += [live.feed(events.slice(600)), live.finish()]
    assert ids(pa.concat_tables(found)) == ids(wanted)


def test_explain_says_what_is_stored_and_why_not():
    told = ensue.explain(ABSENT, options=ensue.Limits(memory="256 MB"))
    assert told.endswith(
        "memory     256 MB: keys beyond it go to disk, by need\n"
        "  stored for a key [k] are its events of the last 50\n"
        "  they are matched again before an event of the key, and when one of its windows ends"
    )
    told = ensue.explain("SEQ(A a, B b) WITHIN 5", options=ensue.Limits(memory="50%", evict="tpm"))
    assert told.endswith(
        "memory     50% of the machine's at most, then a stream stops: it has no [attr] to split its events into keys"
    )
    assert "\nmemory " not in ensue.explain(ABSENT)
