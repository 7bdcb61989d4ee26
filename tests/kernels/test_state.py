"""A matcher that is saved and restored goes on as if nothing had happened."""

import math
import struct
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.engine.state_format import MAGIC
from ensue.errors import StateError
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.live_matcher import LiveMatcher
from ensue.vector.event_table import create_schema
from samples.stocks import stocks
from support.saving import restored
from support.streams import PLAIN, Nature, random_events

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

QUERIES = {
    "runs": ("SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) { [k] and b.x >= a.x } WITHIN 9"),
    "kleene": (
        "SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) "
        "{ b[i].y >= avg(b[..i-1].y) and c.s = a.s } WITHIN 9"
    ),
    "stacks": "SEQ(A a, !B n, B b, C c) WHERE [k] and c.y != a.y WITHIN 9",
    "waiting": "SEQ(A a, B b, !C c) WHERE [k] and c.x > a.x WITHIN 6",
    "skipping": "SEQ(A a, B b) WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT",
    # these two save matches that wait for their turn
    "the first to begin": (
        "SEQ(A a, B+ b[], C c) WHERE a.x < c.x WITHIN 15 AFTER MATCH SKIP PAST LAST EVENT IN ORDER OF START"
    ),
    "skipping and waiting": (
        "OR(SEQ(A a, B b, !C c), SEQ(B d, A e)) WHERE c.x > a.x WITHIN 9 AFTER MATCH SKIP PAST LAST EVENT"
    ),
    "counted": "SEQ(A a, B b) WHERE [k] WITHIN 4 EVENTS",
}


def prepared(query: str, events: pa.Table, **options: str) -> CompiledQuery:
    shape = create_schema(events.schema, time=options.get("time", "t"), type=options.get("type", "type"), order=())
    return compile_query(ensue.parse(query), shape)


def in_pieces(query: str, events: pa.Table, size: int, **options: str) -> list[str]:
    ready = prepared(query, events, **options)
    matcher, found = LiveMatcher(ready), []
    for start in range(0, events.num_rows, size):
        found.append(matcher.process(events.slice(start, size)))
        matcher = restored(ready, matcher.snapshot())
    found.append(matcher.on_watermark(math.inf))
    return as_lines(pa.concat_tables(found))


def as_lines(matches: pa.Table) -> list[str]:
    return sorted(map(str, matches.to_pylist()))


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize(
    "nature", [pytest.param(PLAIN, id="plain"), pytest.param(Nature(nulls_from=20), id="nulls", marks=pytest.mark.slow)]
)
def test_saving_between_any_slices_keeps_the_matches(name, nature):
    events = random_events(Random(name), 45, nature)
    whole = as_lines(ensue.match(events, QUERIES[name], time="t", type="type"))
    assert whole
    for size in (7, 30) if nature is PLAIN else (1,):
        assert in_pieces(QUERIES[name], events, size) == whole


def test_only_events_that_may_still_matter_are_kept():
    events = stocks(5_000, 20, 1)
    query = "SEQ(A a, B b, C c) WHERE [symbol] WITHIN 2 seconds"
    matcher = LiveMatcher(prepared(query, events, time="ts"))
    kept = []
    for start in range(0, 5_000, 500):
        matcher.process(events.slice(start, 500))
        matcher.snapshot()  # which lets go what is not needed
        kept.append(len(matcher.store))
    assert 0 < max(kept) < 400  # two seconds are about 200 events


def test_time_passing_alone_delivers():
    events = pa.table({"t": [1, 2], "type": ["A", "B"], "k": [1, 1]})
    matcher = LiveMatcher(prepared("SEQ(A a, B b, !C c) WITHIN 6", events))
    assert matcher.process(events).num_rows == 0
    assert matcher.on_watermark(7).num_rows == 0  # an event at 7 could still forbid it
    assert matcher.on_watermark(8).num_rows == 1
    assert matcher.on_watermark(math.inf).num_rows == 0


# ------------------------------------------------------------------------------- bad state


def saved() -> tuple[CompiledQuery, bytes]:
    events = random_events(Random(3), 30)
    ready = prepared(QUERIES["runs"], events)
    matcher = LiveMatcher(ready)
    matcher.process(events)
    return ready, matcher.snapshot()


def test_what_is_no_state_is_refused():
    ready, _ = saved()
    for data in (b"", b"something else entirely, and long enough"):
        with pytest.raises(StateError, match="not a saved state"):
            restored(ready, data)


def test_an_unknown_version_is_refused():
    ready, data = saved()
    newer = MAGIC + struct.pack("<H", 999) + data[len(MAGIC) + 2 :]
    with pytest.raises(StateError, match="saved in version 999"):
        restored(ready, newer)


def test_a_damaged_state_is_refused():
    ready, data = saved()
    for place in (20, len(data) // 2, len(data) - 1):
        broken = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(StateError, match="damaged"):
            restored(ready, broken)
    with pytest.raises(StateError):
        restored(ready, data[:-1])


def test_the_state_of_another_query_is_refused():
    _, data = saved()
    other = prepared(QUERIES["stacks"], random_events(Random(3), 30))
    with pytest.raises(StateError, match="another query"):
        restored(other, data)
