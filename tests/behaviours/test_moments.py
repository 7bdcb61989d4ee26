"""A pattern that is only an absence between moments: one match without events."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import ensue
from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

QUIET = "!A a FROM 10 TO 15"
SCHEMA = pa.schema({"at": pa.int64(), "type": pa.string(), "x": pa.int64()})


def events(types, at, x=None):
    return pa.table({"at": at, "type": list(types), "x": x or [0] * len(types)}, schema=SCHEMA)


def spans(found):
    return [(m["start"], m["end"]) for m in found.to_pylist()]


@pytest.fixture(params=["semantics", "local", "live"], scope="module")
def matched(request):
    """Matches in a table: by the oracle, at once, and event by event."""

    def at_once(table, query):
        return spans(ensue.match(table, query, time="at", type="type"))

    def meant(table, query):
        from ensue import reference as semantics
        from ensue.engine.reference_events import read_events
        from ensue.runtime.compiled_query import compile_query
        from ensue.vector.event_table import create_schema

        shape = create_schema(table.schema, time="at", type="type", order=())
        prepared = compile_query(ensue.parse(query), shape)
        found = semantics.find_matches(prepared.query, read_events(table, shape.schema, shape.unit))
        return [(10, 15) for binding in found if binding == {}]

    def one_by_one(table, query):
        live = ensue.live(query, schema=table.schema, time="at", type="type")
        found = []
        for k in range(table.num_rows):
            found += spans(live.feed(table.slice(k, 1)))
            again = ensue.live(query, schema=table.schema, time="at", type="type")
            live = again.restore(live.save())
        return found + spans(live.finish())

    return {"semantics": meant, "local": at_once, "live": one_by_one}[request.param]


def test_one_match_without_events(matched):
    assert matched(events("AA", [10, 16]), QUIET) == [(10, 15)]
    assert matched(events("AX", [3, 99]), QUIET) == [(10, 15)]
    assert matched(events("", []), QUIET) == [(10, 15)]


def test_the_right_border_counts(matched):
    assert matched(events("A", [15]), QUIET) == []
    assert matched(events("AA", [11, 20]), QUIET) == []


def test_conditions_say_which_events_count(matched):
    query = f"{QUIET} WHERE a.x > 3"
    assert matched(events("AA", [11, 12], [1, 3]), query) == [(10, 15)]
    assert matched(events("AA", [11, 12], [1, 4]), query) == []


def test_it_fires_once_when_time_has_passed():
    live = ensue.live(QUIET, schema=SCHEMA, time="at", type="type")
    assert spans(live.feed(events("A", [9]))) == []
    assert spans(live.advance(15)) == []  # an event at 15 may still come
    assert spans(live.advance(16)) == [(10, 15)]
    assert spans(live.feed(events("A", [17]))) == []
    assert spans(live.finish()) == []


def test_other_events_let_time_pass_too():
    live = ensue.live(QUIET, schema=SCHEMA, time="at", type="type")
    assert spans(live.feed(events("XX", [12, 16]))) == [(10, 15)]


def test_timestamps():
    noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    table = pa.table({"at": [noon, noon + timedelta(minutes=9)], "type": ["A", "A"]})
    query = "!A a FROM TIMESTAMP '2026-03-01 12:00:00' TO TIMESTAMP '2026-03-01 12:05:00'"
    found = ensue.match(table, query, time="at", type="type")
    assert spans(found) == [(noon, noon + timedelta(minutes=5))]
    assert found.column_names == ["match_id", "start", "end"]
    assert found.schema.field("start").type == table.schema.field("at").type


def test_beside_other_queries():
    both = {"quiet": QUIET, "pairs": "SEQ(A a, B b)"}
    found = ensue.match(events("AB", [1, 2]), both, time="at", type="type")
    assert spans(found["quiet"]) == [(10, 15)]
    assert spans(found["pairs"]) == [(1, 2)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{QUIET} WHERE [x]", "cannot be combined with a pattern that is only an absence"),
        (f"{QUIET} WITHIN 5", "WITHIN cannot be combined"),
        (f"{QUIET} CHOOSE LATEST", "CHOOSE cannot be combined"),
        (f"{QUIET} AFTER MATCH SKIP PAST LAST EVENT", "AFTER MATCH cannot be combined"),
        (f"{QUIET} RETURN COUNT(*)", "a row for each last event cannot be combined"),
        (f"{QUIET} LIMIT 2", "LIMIT cannot be combined"),
        (f"{QUIET} RETURN COUNT(*)", "COUNT"),
        ("!A a FROM a.end TO 15", "a is negated"),
        ("!A a", "only says what must not happen"),
        ("!A a FROM 1.5 TO 15", "needs fixed times as its ends"),
        ("!A a FROM 1 + 2 TO 15", "needs fixed times as its ends"),
    ],
)
def test_what_is_refused(text, problem):
    with pytest.raises(QueryError, match=problem):
        ensue.match(events("A", [1]), text, time="at", type="type")


def test_not_on_spark_yet():
    from support.key_groups import workload_of

    job = workload_of(ensue.parse(QUIET), SCHEMA, "at", "type", ())
    with pytest.raises(QueryError, match="does not run on Spark yet"):
        _ = job.chains
