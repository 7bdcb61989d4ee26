"""WHERE: what conditions make of values of every kind."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from ensue.errors import QueryError

pytestmark = [pytest.mark.stateless, pytest.mark.filterwarnings("ignore:no event is of type")]

NAN = float("nan")


def chosen(matched, condition, values, field="x"):
    """The positions of the A events that meet a condition."""
    return [a for (a,) in matched(f"A a WHERE {condition}", "A" * len(values), **{field: values})]


def followed(matched, condition, first, second):
    """Whether a condition holds between two events."""
    return matched(f"SEQ(A a, B b) WHERE {condition}", "AB", x=[first, second]) == [(0, 1)]


# ------------------------------------------------------------------------------- unknown values


@pytest.mark.everywhere
def test_null_is_unknown(matched):
    assert chosen(matched, "a.x > 1", [2, None, 1]) == [0]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("not (a.x > 1)", [2]),
        ("a.x = a.x", [0, 2]),
        ("a.x != 5", [0, 2]),
        ("a.x is null", [1]),
        ("a.x is not null", [0, 2]),
        ("a.x > 1 or a.x is null", [0, 1]),
        ("a.x > 1 or 1 = 1", [0, 1, 2]),
        ("(a.x > 1) is null", [1]),
        ("a.x in (2, null)", [0]),
        ("a.x not in (2, null)", []),
        ("a.x between 1 and 2", [0, 2]),
        ("coalesce(a.x, 9) = 9", [1]),
        ("a.x + 1 > 0", [0, 2]),
        ("null = null", []),
    ],
)
def test_three_valued_logic(matched, condition, expected):
    assert chosen(matched, condition, [2, None, 1]) == expected


@pytest.mark.everywhere
def test_null_between_events(matched):
    query = "SEQ(A a, B b) WHERE a.x < b.x"
    assert matched(query, "AABB", x=[1, None, None, 2]) == [(0, 3)]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a.x > 1", [1]),
        ("a.x <= 1", [2]),
        ("not (a.x <= 1)", [0, 1]),
        ("a.x = a.x", [1, 2]),
        ("a.x != a.x", [0]),
        ("a.x between 0 and 9", [1, 2]),
    ],
)
def test_nan_is_unordered(matched, condition, expected):
    assert chosen(matched, condition, [NAN, 2.0, 1.0]) == expected


@pytest.mark.everywhere
def test_nan_between_events(matched):
    query = "SEQ(A a, B b) WHERE not (a.x < b.x)"
    assert matched(query, "AB", x=[NAN, 1.0]) == [(0, 1)]
    assert matched("SEQ(A a, B b) WHERE a.x < b.x", "AB", x=[NAN, 1.0]) == []


# ------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("a.x / b.x = 3.5", True),
        ("a.x % b.x = 1", True),
        ("-a.x % b.x = -1", True),
        ("a.x / (b.x - 2) is null", True),
        ("a.x % (b.x - 2) is null", True),
        ("b.x < 80% * a.x", True),
        ("abs(b.x - a.x) = 5", True),
        ("greatest(a.x, b.x, null) = 7", True),
        ("power(b.x, 3) = 8", True),
        ("sqrt(b.x - a.x) is null", True),
        ("ln(b.x - 2) is null", True),
        ("a.x * b.x > 14", False),
        ("a.x - b.x <> 5", False),
    ],
)
def test_arithmetic_between_events(matched, condition, holds):
    assert followed(matched, condition, 7, 2) is holds


def test_large_integers_are_exact(matched):
    big = 2**53
    assert chosen(matched, f"a.x > {big}", [big, big + 1]) == [1]
    assert followed(matched, "a.x < b.x", big, big + 1)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("round(a.x) = 3", [0, 1]),
        ("round(a.x) = -3", [2]),
        ("floor(a.x) = 2", [0]),
        ("ceil(a.x) = 3", [0, 1]),
        ("sign(a.x) = -1", [2]),
    ],
)
def test_rounding_is_half_away_from_zero(matched, condition, expected):
    assert chosen(matched, condition, [2.5, 3.0, -2.5]) == expected


@pytest.mark.everywhere
def test_decimals(matched):
    prices = pa.array([Decimal("1.10"), Decimal("1.11"), Decimal("1.09")], pa.decimal128(10, 2))
    query = "SEQ(A a, B b) WHERE b.x > a.x and a.x = 1.10"
    assert matched(query, "ABB", x=prices) == [(0, 1)]


@pytest.mark.in_process("types that Spark does not have")
def test_unsigned_and_small_integers(matched):
    assert chosen(matched, "a.x > 100", pa.array([100, 200], pa.uint8())) == [1]
    assert chosen(matched, "a.x + 100 > 200", pa.array([100, 120], pa.int8())) == [1]


# ------------------------------------------------------------------------------- texts

NAMES = ["Anna", "anna", "Hannah", "", None, "Ännchen"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a.x = 'Anna'", [0]),
        ("a.x != 'Anna'", [1, 2, 3, 5]),
        ("a.x < 'B'", [0, 3]),
        ("a.x in ('anna', 'Hannah')", [1, 2]),
        ("a.x like 'A%'", [0]),
        ("a.x like '%nn%'", [0, 1, 2, 5]),
        ("a.x like '_nna'", [0, 1]),
        ("a.x not like '%a%'", [3, 5]),
        ("lower(a.x) = 'anna'", [0, 1]),
        ("upper(a.x) = 'ANNA'", [0, 1]),
        ("length(a.x) = 7", [5]),
        ("length(a.x) = 0", [3]),
        ("substring(a.x, 2, 2) = 'nn'", [0, 1, 5]),
        ("starts_with(a.x, 'Ä')", [5]),
        ("ends_with(a.x, 'na')", [0, 1]),
        ("contains(a.x, 'ann')", [1, 2]),
        ("a.x || '!' = 'Anna!'", [0]),
        ("concat(a.x, 'x') = 'x'", [3]),
        ("a.x between 'A' and 'B'", [0]),
        ("a.x is null", [4]),
    ],
)
def test_texts(matched, condition, expected):
    assert chosen(matched, condition, NAMES) == expected


@pytest.mark.everywhere
def test_texts_between_events(matched):
    query = "SEQ(A a, B b) WHERE a.x = lower(b.x) and a.x != 'q'"
    assert matched(query, "AABBB", x=["p", "q", "P", "Q", None]) == [(0, 2)]


def test_texts_in_order_between_events(matched):
    assert followed(matched, "a.x < b.x", "a", "ä")
    assert not followed(matched, "a.x < b.x", "b", "a")


def test_a_quote_in_a_text(matched):
    assert chosen(matched, "a.x = 'it''s'", ["it's", "its"]) == [0]


# ------------------------------------------------------------------------------- the others


def test_booleans(matched):
    flags = [True, False, None]
    assert chosen(matched, "a.x", flags) == [0]
    assert chosen(matched, "not a.x", flags) == [1]
    assert chosen(matched, "a.x = false", flags) == [1]
    assert matched("SEQ(A a, B b) WHERE a.x != b.x", "ABB", x=[True, True, False]) == [(0, 2)]


BERLIN = pa.array(
    [datetime(2026, 1, 1, 9, tzinfo=UTC), datetime(2026, 1, 1, 10, tzinfo=UTC), None],
    pa.timestamp("us", "Europe/Berlin"),
)


@pytest.mark.everywhere
def test_timestamps_with_a_zone(matched):
    query = "SEQ(A a, B b) WHERE a.x < TIMESTAMP '2026-01-01 10:30:00+01:00' and b.x > a.x"
    assert matched(query, "ABB", x=BERLIN) == [(0, 1)]


def test_timestamps_and_durations(matched):
    stamps = pa.array([datetime(2026, 1, 1, 9), datetime(2026, 1, 1, 9, 30)])
    condition = "b.x - a.x = 30 minutes and b.x = a.x + INTERVAL '30' MINUTE"
    assert matched(f"SEQ(A a, B b) WHERE {condition}", "AB", x=stamps) == [(0, 1)]
    assert chosen(matched, "a.x >= TIMESTAMP '2026-01-01 09:30:00'", stamps) == [1]
    assert chosen(matched, "minute(a.x) = 30 and hour(a.x) = 9", stamps) == [1]


def test_dates_and_their_parts(matched):
    days = [date(2026, 1, 31), date(2026, 2, 1)]
    assert chosen(matched, "a.x < DATE '2026-02-01'", days) == [0]
    assert chosen(matched, "month(a.x) = 2 and day(a.x) = 1 and year(a.x) = 2026", days) == [1]


def test_durations(matched):
    lengths = [timedelta(minutes=1), timedelta(minutes=5)]
    assert chosen(matched, "a.x > 2 minutes", lengths) == [1]


def test_nested_values_can_only_be_missing(matched):
    assert chosen(matched, "a.x is not null", [[1], None]) == [0]
    with pytest.raises(QueryError):
        chosen(matched, "a.x = 1", [[1], None])


@pytest.mark.parametrize("condition", ["a.x > 'p'", "a.x like 'p'", "a.x + 'p' > 1", "lower(a.x)"])
def test_kinds_that_do_not_go_together(matched, condition):
    with pytest.raises(QueryError):
        chosen(matched, condition, [1, 2])


def test_a_condition_that_speaks_of_no_event(matched):
    assert chosen(matched, "1 = 1", [1, 2]) == [0, 1]
    assert chosen(matched, "1 = 2", [1, 2]) == []


def test_names_in_quotes(matched):
    assert matched('A a WHERE a."x y" > 1', "AA", **{"x y": [1, 2]}) == [(1,)]
