"""WITHIN: how far apart the events of a match may be."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from ensue.errors import QueryError

pytestmark = pytest.mark.filterwarnings("ignore:no event is of type")

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.everywhere
def test_the_window_end_is_inclusive(matched):
    assert matched("SEQ(A a, B b) WITHIN 2", "AXB") == [(0, 2)]


def test_one_more_is_too_far(matched):
    assert matched("SEQ(A a, B b) WITHIN 2", "AXXB") == []


def test_it_spans_first_to_last_not_step_by_step(matched):
    assert matched("SEQ(A a, B b, C c) WITHIN 3", "AXBXC") == []
    assert matched("SEQ(A a, B b, C c) WITHIN 4", "AXBXC") == [(0, 2, 4)]


def test_numbers_may_be_real(matched):
    query = "SEQ(A a, B b) WITHIN 1.5"
    assert matched(query, "ABB", at=[0.0, 1.5, 1.75]) == [(0, 1)]


def test_whole_times_with_a_real_window(matched):
    assert matched("SEQ(A a, B b) WITHIN 1.5", "AB", at=[0, 2]) == []
    assert matched("SEQ(A a, B b) WITHIN 2.5", "AB", at=[0, 2]) == [(0, 1)]


def test_decimal_times(matched):
    at = pa.array(["0.0", "1.5", "1.6"]).cast(pa.decimal128(5, 2))
    assert matched("SEQ(A a, B b) WITHIN 1.5", "ABB", at=at) == [(0, 1)]


@pytest.mark.parametrize(
    ("length", "seconds"),
    [
        ("10 seconds", 10),
        ("10 s", 10),
        ("5 minutes", 300),
        ("5 min", 300),
        ("1 hour", 3600),
        ("12 h", 43200),
        ("1.5 hours", 5400),
        ("2 days", 172800),
        ("1 week", 604800),
        ("500 ms", 0.5),
        ("250 us", 0.00025),
    ],
)
def test_units(matched, length, seconds):
    apart = timedelta(seconds=seconds)
    query = f"SEQ(A a, B b) WITHIN {length}"
    at = [NOON, NOON + apart, NOON + apart + timedelta(microseconds=1)]
    assert matched(query, "ABB", at=at) == [(0, 1)]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_every_resolution_of_timestamps(matched, unit):
    at = pa.array([NOON, NOON + timedelta(minutes=5), NOON + timedelta(minutes=6)])
    at = at.cast(pa.timestamp(unit, "UTC"))
    assert matched("SEQ(A a, B b) WITHIN 5 minutes", "ABB", at=at) == [(0, 1)]


@pytest.mark.in_process("Spark has no nanoseconds")
def test_nanoseconds_are_not_rounded(matched):
    at = pa.array([0, 100, 101], pa.timestamp("ns"))
    assert matched("SEQ(A a, B b) WITHIN 100 ns", "ABB", at=at) == [(0, 1)]


@pytest.mark.streams(slow=True)
def test_timestamps_with_a_zone(matched):
    at = pa.array([NOON, NOON + timedelta(hours=1)], pa.timestamp("us", "Europe/Berlin"))
    assert matched("SEQ(A a, B b) WITHIN 1 hour", "AB", at=at) == [(0, 1)]


def test_dates(matched):
    at = [date(2026, 1, 1), date(2026, 1, 3), date(2026, 1, 4)]
    assert matched("SEQ(A a, B b) WITHIN 2 days", "ABB", at=at) == [(0, 1)]


def test_times_before_1970(matched):
    at = [datetime(1969, 12, 31, 23, 59, 59), datetime(1970, 1, 1, 0, 0, 1)]
    assert matched("SEQ(A a, B b) WITHIN 2 seconds", "AB", at=at) == [(0, 1)]
    assert matched("SEQ(A a, B b) WITHIN 1 second", "AB", at=at) == []


# ------------------------------------------------------------------------------- events


@pytest.mark.everywhere
def test_events_are_counted_whatever_their_type(matched):
    assert matched("SEQ(A a, B b) WITHIN 3 EVENTS", "AXB") == [(0, 2)]
    assert matched("SEQ(A a, B b) WITHIN 3 EVENTS", "AXXB") == []


@pytest.mark.everywhere
def test_events_of_the_partition_are_counted(matched):
    query = "SEQ(A a, B b) WHERE [k] WITHIN 2 EVENTS"
    assert matched(query, "AXXB", k="pqqp") == [(0, 3)]
    assert matched(query, "AXXB", k="pqpp") == []


def test_one_event_is_a_window_of_one(matched):
    assert matched("A a WITHIN 1 EVENTS", "AA") == [(0,), (1,)]


# ------------------------------------------------------------------------------- mistakes


def test_a_number_needs_a_unit_where_time_is_a_timestamp(matched):
    with pytest.raises(QueryError, match="WITHIN 20 of what"):
        matched("SEQ(A a, B b) WITHIN 20", "AB", at=[NOON, NOON])


def test_a_unit_needs_timestamps(matched):
    with pytest.raises(QueryError, match="holds numbers"):
        matched("SEQ(A a, B b) WITHIN 5 minutes", "AB")
