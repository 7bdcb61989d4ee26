"""Operators that users add: Q says what combines, F and Z what comes of it."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

import ensue
from support.key_groups import Stream, workload_of

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")


def _sooner(last, e, period):
    return e.start - last.start >= period


def _higher(a, b, by=0):
    return b.x >= a.x + by


def _instant(a, b):
    return b.end, b.end, (a.x + b.x) / 2, b.start - a.start


def _rising(last, e):
    return e.x > last.top


OPERATORS = [
    ensue.operator("dedup", q=_sooner, over="repeat"),
    ensue.operator(
        "throttled",
        q=lambda last, e, period: e.start - last.since >= period,
        f=lambda e: (e.start, e.end, e.start),
        z={"since": "integer"},
        over="repeat",
    ),
    ensue.operator("follows"),
    ensue.operator("double_peak", q=_higher, f=_instant, z={"height": "float", "gap": "integer"}, passes=0.3),
    ensue.operator("both", order="any"),
    ensue.operator("close", q=lambda a, b, by: abs(b.x - a.x) <= by, order="any"),
    ensue.operator("at_start", f=lambda a, b: (a.start, a.start)),
    ensue.operator("big", q=lambda e, least: e.x >= least, over="each"),
    ensue.operator("doubled", f=lambda e: (e.start, e.end, 2 * e.x), z={"twice": "integer"}, over="each"),
    ensue.operator("record", q=_rising, f=lambda e: (e.start, e.end, e.x), z={"top": "integer"}, over="repeat"),
]


@pytest.fixture
def runner(runner):
    """What it runs may use the operators."""
    return Knowing(runner)


class Knowing:
    def __init__(self, runner: Any) -> None:
        self.runner, self.name = runner, runner.name

    def match(self, events: Any, query: str, definitions: Any = (), **options: Any) -> pa.Table:
        return self.runner.match(events, parse(query, definitions), **options)


def parse(query: str, definitions: Any = ()) -> Any:
    return ensue.parse(query, definitions=[OPERATORS, definitions])


# ------------------------------------------------------------------------------------- repeats


@pytest.mark.streams(slow=True)
def test_a_repeat_fires_at_the_first_event_and_absorbs_its_repetitions(matched):
    """Each repetition prolongs the silence."""
    times = [0, 6, 12, 18, 24, 60, 66]
    assert matched("dedup(A a, 10) d", "AAAAAAA", at=times) == [(0,), (5,)]


def test_a_repeat_that_is_silent_for_a_time_from_its_result_on(matched):
    times = [0, 6, 12, 18, 24, 60, 66]
    assert matched("throttled(A a, 10) d", "AAAAAAA", at=times) == [(0,), (2,), (4,), (5,)]


def test_a_repeat_needs_no_window_on_a_stream():
    times = [0, 6, 12, 18, 24, 60, 66]
    events = pa.table({"t": times, "type": ["A"] * 7, "host": ["h"] * 7})
    query = "dedup(A a, 10) d WHERE [host] RETURN d.start AS at"
    stream = Stream(workload_of(parse(query), events.schema, "t", "type", key_groups=2, streaming=True), 0)
    for k in range(7):
        stream.feed(events.slice(k, 1))
        stream.pause()
    assert sorted(stream.finish()["at"].to_pylist()) == [0, 60]
    pair = "follows(A a, A b) d WHERE [host]"
    with pytest.raises(ensue.QueryError, match="without a window"):
        _ = workload_of(parse(pair), events.schema, "t", "type", key_groups=2, streaming=True).chains


def test_the_period_is_inclusive(matched):
    assert matched("dedup(A a, 2) d", "AXAXXA") == [(0,), (2,), (5,)]


def test_a_repeat_remembers_longer_than_the_window(matched):
    query = "SEQ(dedup(A a, 6) d, B b) WITHIN 2"
    assert matched(query, "ABXXABABXXXXXAB") == [(0, 1), (13, 14)]


def test_each_partition_has_its_own_latest_result(matched):
    assert matched("dedup(A a, 9) d WHERE [x]", "AAAA", x=[1, 2, 1, 2]) == [(0,), (1,)]
    assert matched("dedup(A a, 9) d", "AAAA", x=[1, 2, 1, 2]) == [(0,)]


def test_conditions_on_the_event_choose_what_is_asked_about(matched):
    assert matched("dedup(A a, 9) d WHERE a.x > 1", "AAA", x=[1, 2, 3]) == [(1,)]


def test_conditions_on_the_result_judge_what_fired(matched):
    assert matched("dedup(A a, 9) d WHERE d.x > 1", "AAA", x=[1, 2, 3]) == []


def test_equalities_with_a_result_do_not_split_the_stream(matched):
    query = "SEQ(dedup(A a, 9) d, B b) WHERE a.x = b.x"
    assert matched(query, "AABB", x=[1, 2, 2, 1]) == [(0, 3)]


def test_the_latest_result_has_attributes(matched):
    assert matched("record(A a) r", "AAAAA", x=[3, 2, 3, 5, 4]) == [(0,), (3,)]


# --------------------------------------------------------------------------------------- pairs


@pytest.mark.everywhere(slow=True)
def test_a_pair_that_q_accepts_is_a_result(matched):
    query = "SEQ(double_peak(A a, A b) p, C c)"
    assert matched(query, "AAAC", x=[5, 3, 4, 0]) == [(1, 2, 3)]


def test_without_functions_a_pair_is_a_sequence(matched):
    for stream in ("ABAB", "BAABB", "AXBB"):
        assert matched("follows(A a, B b) r", stream) == matched("SEQ(A a, B b)", stream)


def test_constants_and_their_defaults(matched):
    assert matched("double_peak(A a, A b, 2) p", "AAA", x=[1, 2, 3]) == [(0, 2)]
    assert matched("double_peak(A a, A b, -1) p", "AA", x=[2, 1]) == [(0, 1)]
    assert matched("double_peak(A a, A b) p", "AAA", x=[1, 1, 0]) == [(0, 1)]


def test_any_order(matched):
    assert matched("both(A a, B b) r", "BA") == [(1, 0)]
    assert matched("both(A a, A b) r", "AA") == [(0, 1), (1, 0)]
    assert matched("close(A a, B b, 1) r", "BAAB", x=[1, 5, 2, 3]) == [(2, 0), (2, 3)]


def test_an_instant_leaves_room_before_it(matched):
    assert matched("SEQ(A a, follows(B b, C c) r)", "BAC") == []
    assert matched("SEQ(A a, double_peak(B b, C c) r)", "BAC", x=[1, 1, 1]) == [(1, 0, 2)]


def test_an_instant_leaves_room_behind_it(matched):
    assert matched("SEQ(follows(A a, B b) r, C c)", "ACB") == []
    assert matched("SEQ(at_start(A a, B b) r, C c)", "ACB") == [(0, 2, 1)]


def test_one_event_plays_one_part(matched):
    assert matched("SEQ(at_start(A a, B b) r, B c)", "AB") == []


def test_the_window_holds_all_events(matched):
    query = "SEQ(double_peak(A a, A b) p, C c) WITHIN 3"
    assert matched(query, "AXAXC", x=[1, 0, 1, 0, 0]) == []
    assert matched(query, "AXAC", x=[1, 0, 1, 0]) == [(0, 2, 3)]


# ----------------------------------------------------------------------------------- one event


def test_one_event(matched):
    assert matched("SEQ(big(A a, 2) r, B b)", "AAB", x=[1, 2, 0]) == [(1, 2)]


def test_results_of_results(matched):
    query = "follows(big(A a, 2) r, doubled(B b) s) t WHERE s.twice > 2"
    assert matched(query, "AABB", x=[1, 2, 1, 2]) == [(1, 3)]


# -------------------------------------------------------------------- with the rest of a query


@pytest.mark.everywhere
def test_attributes_in_conditions_and_columns(runner):
    events = pa.table({"t": [1, 4, 9, 10], "k": list("AAAB"), "x": [1, 3, 2, 0]})
    found = runner.match(
        events,
        """SEQ(double_peak(A a, A b) p, B c) WHERE p.gap > 3 WITHIN 20
        RETURN p.start AS s, p.height AS height, p.gap + 1 AS more, max(p.gap) AS most
        HAVING p.height < 4""",
        time="t",
        type="k",
    )
    columns = ["s", "height", "more", "most"]
    assert found.select(columns).to_pylist() == [{"s": 9, "height": 1.5, "more": 9, "most": 8}]


def test_without_return_a_result_is_a_column(runner):
    events = pa.table({"t": [1, 2], "k": ["A", "A"], "x": [1, 3]})
    found = runner.match(events, "double_peak(A a, A b) p", time="t", type="k")
    assert found.column("p").to_pylist() == [{"start": 2, "end": 2, "height": 2.0, "gap": 1}]
    assert found.column("b").to_pylist() == [{"t": 2, "k": "A", "x": 3}]


def test_a_result_of_one_event_has_its_fields(runner):
    events = pa.table({"t": [1, 2], "k": ["A", "B"], "host": ["n1", "n1"]})
    query = "SEQ(dedup(A a, 5) d, B b) WHERE d.host = b.host RETURN d.host, d.start"
    found = runner.match(events, query, time="t", type="k")
    assert found.select(["host", "start"]).to_pylist() == [{"host": "n1", "start": 1}]


def test_timestamps_are_nanoseconds(runner):
    noon = dt.datetime(2026, 1, 1, 12)
    minutes = [0, 4, 15, 16]
    times = [noon + dt.timedelta(minutes=m) for m in minutes]
    events = pa.table({"t": pa.array(times, pa.timestamp("us")), "k": list("AAAB")})
    query = "SEQ(dedup(A a, 10 minutes) d, B b) WITHIN 1 hour RETURN d.start AS s, d.end AS e"
    found = runner.match(events, query, time="t", type="k")
    assert sorted(found.column("s").to_pylist()) == [times[0], times[2]]
    assert sorted(found.column("e").to_pylist()) == [times[0], times[2]]


def test_durations_and_times_as_attributes(runner):
    stretch = ensue.operator(
        "stretch",
        f=lambda a, b: (a.start, b.end, (a.start + b.start) // 2, b.end - a.start),
        z={"middle": "timestamp", "took": "duration"},
    )
    noon = dt.datetime(2026, 1, 1, 12)
    times = [noon, noon + dt.timedelta(minutes=1)]
    events = pa.table({"t": pa.array(times, pa.timestamp("us")), "k": list("AB")})
    query = "stretch(A a, B b) s WHERE s.took = 1 minute AND s.middle > a.t RETURN s"
    (found,) = runner.match(events, query, stretch, time="t", type="k").column("s").to_pylist()
    assert found["middle"] == noon + dt.timedelta(seconds=30)
    assert found["took"] == dt.timedelta(minutes=1)


def test_negation_beside_results(matched):
    query = "SEQ(follows(A a, B b) r, !N n, C c)"
    assert matched(query, "ANBC") == [(0, 2, 3)]
    assert matched(query, "ABNC") == []
    assert matched("SEQ(double_peak(A a, A b) r, !N n) WITHIN 3", "ANAXXX", x=[1] * 6) == [(0, 2)]
    assert matched("SEQ(double_peak(A a, A b) r, !N n) WITHIN 3", "AANXXX", x=[1] * 6) == []


def test_alternatives_and_optional_results(matched):
    query = "SEQ(A a, OR(follows(B b, C c) r, D d))"
    assert matched(query, "ABCD") == [(0, None, None, 3), (0, 1, 2, None)]
    assert matched("SEQ(A a, (big(B b, 1) r)?, C c)", "ABC", x=[1, 1, 1]) == [(0, None, 2), (0, 1, 2)]


def test_after_match(matched):
    query = "follows(A a, B b) r AFTER MATCH SKIP PAST LAST EVENT"
    assert matched(query, "ABAB") == [(0, 1), (2, 3)]


def test_null_in_a_field_that_functions_name_takes_no_part(matched):
    assert matched("double_peak(A a, A b) p", "AAA", x=[1, None, 2]) == [(0, 2)]
    assert matched("dedup(A a, 3) d", "AA", x=[None, 1]) == [(0,)]


def test_tables_that_name_a_field_alike(runner):
    events = {"A": pa.table({"t": [1, 2], "x": [1, 5]}), "B": pa.table({"t": [3], "x": ["many"]})}
    query = "SEQ(doubled(A a) d, B b) WHERE d.twice > 5 AND d.x = 5 RETURN d.twice, d.x"
    found = runner.match(events, query, time="t")
    assert found.select(["twice", "x"]).to_pylist() == [{"twice": 10, "x": 5}]


# ----------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("dedub(A a, 3) d", "unknown operator 'dedub'", "did you mean 'dedup'?"),
        ("SEK(A a, B b)", "unknown operator 'SEK'", "did you mean 'SEQ'?"),
        ("dedup(A a) d", "takes one constant after its events (period), not 0", "10 minutes"),
        ("dedup(A a, B b, 3) d", "dedup takes one event, not 2", "dedup(A a)"),
        ("follows(A a) r", "follows takes two events, not 1", "follows(A a, B b)"),
        ("SEQ(A a, !follows(B b, C c) r, D d)", "the absence of a result", "negate an event"),
        ("follows(A+ a[], B b) r", "follows takes single events", "follows(A a, B b)"),
        ("dedup(big(A a, 1) b, 3) d", "dedup takes single events of the stream", "dedup(A a)"),
        ("follows(A a, B b) a", "are both called 'a'", "another name"),
        ("follows(A a, B b) r WHERE r.height > 1", "unknown field 'height'", "start"),
        ("double_peak(A a, B b) r WHERE r.heigt > 1", "unknown field 'heigt'", "'height'"),
        ("double_peak(follows(A a, B b) r, C c) s", "double_peak reads 'x', which r", "start"),
        ("dedup(A a, 3 minutes) d", "holds numbers, which have no unit", "same numbers"),
        (
            "follows(A a, B b) r WHERE skip_till_next_match(a, b) { a.x > 1 }",
            "skip_till_next_match cannot be combined with an operator (follows)",
            "leave out the strategy",
        ),
        ("follows(A a, B b) r AFTER MATCH SKIP TO LAST r", "'r' is a result", "known here: a, b"),
    ],
)
def test_mistakes_in_queries(query, message, hint):
    events = pa.table({"t": [1], "k": ["A"], "x": [1]})
    with pytest.raises(ensue.QueryError) as caught:
        ensue.match(events, query, time="t", type="k", definitions=OPERATORS)
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_timeouts_of_results_are_refused():
    events = pa.table({"t": [1], "k": ["A"], "x": [1]})
    with pytest.raises(ensue.QueryError, match="results of an operator"):
        ensue.match(
            events,
            "SEQ(dedup(A a, 3) d, B b) WITHIN 5",
            time="t",
            type="k",
            definitions=OPERATORS,
            options=ensue.OutputOptions(emit_timeouts=True),
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "SEQ"}, "be the name of an operator"),
        ({"name": "a b"}, "be the name of an operator"),
        ({"over": "many"}, "be 'pair', 'each' or 'repeat'"),
        ({"order": "up"}, "be 'sequence' or 'any'"),
        ({"over": "repeat"}, "needs q(last, e)"),
        ({"q": lambda a: True}, "must take two events"),
        ({"q": lambda a, b, n: True, "f": lambda a, b, m: (0, 0)}, "takes the same parameters"),
        ({"z": {"h": "float"}}, "there is no f to give them"),
        ({"z": {"h": "flaot"}, "f": lambda a, b: (0, 0, 1)}, "did you mean 'float'?"),
        ({"z": {"start": "float"}, "f": lambda a, b: (0, 0, 1)}, "every result has 'start'"),
        ({"passes": 2}, "passes above 0 and at most 1"),
    ],
)
def test_mistakes_in_operators(arguments, message):
    with pytest.raises(ensue.OperatorError) as caught:
        ensue.operator(**{"name": "new"} | arguments)
    assert message in str(caught.value)


def test_a_function_that_fails_says_on_what():
    op = ensue.operator("odd", q=lambda a, b: 1 // a.x > 0)
    events = pa.table({"t": [1, 2], "k": ["A", "B"], "x": [0, 1]})
    with pytest.raises(ensue.OperatorError, match="of operator odd failed: ZeroDivisionError"):
        ensue.match(events, "odd(A a, B b) o", time="t", type="k", definitions=[op])


def test_an_operator_for_one_call():
    op = ensue.operator("just_here", q=lambda a, b: a.x < b.x)
    events = pa.table({"t": [1, 2], "k": ["A", "B"], "x": [0, 1]})
    query = "just_here(A a, B b) o"
    assert ensue.match(events, query, time="t", type="k", definitions=[op]).num_rows == 1
    with pytest.raises(ensue.QueryError, match="unknown operator 'just_here'"):
        ensue.match(events, query, time="t", type="k")


def test_a_query_with_operators_reads_back():
    query = parse("SEQ(dedup(A a, 10 minutes) d, close(B b, C c, -0.5) e) WHERE d.x > 1")
    assert parse(ensue.show(query)) == query


def test_the_fingerprint_follows_the_code():
    limit = 3

    def judge(a, b):
        return a.x + limit < b.x

    one = ensue.operator("one", q=judge)
    again = ensue.operator("one", q=judge)
    limit = 4
    other = ensue.operator("one", q=judge)
    assert one.fingerprint == again.fingerprint != other.fingerprint
