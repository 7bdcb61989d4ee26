"""A subscription as a text of the pattern language."""

import re
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

import ensue
from ensue.errors import QueryError
from ensue.ir.subscription import Select
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.parser.opsl.pattern_translation import translate_subscription
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, find_subscription_matches
from support.seeds import scaled
from support.subscriptions import Bounds, random_subscription

A, B, C = (f"(STRING:type = '{letter}')" for letter in "abc")
DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"


def lines(text, select="all"):
    """The pattern and its conditions."""
    written = text.format(A=A, B=B, C=C, R=DEPOT) + f" WITH select = {select}"
    pattern, *rest = translate_subscription(parse_subscription(written)).splitlines()
    assert pattern.startswith("PATTERN ")
    return pattern.removeprefix("PATTERN "), [re.sub(r"^(WHERE|    and) ", "", r) for r in rest]


TIMES = [
    ("=|({A}; 5){B}", "AND(a e1, b e2)", ["e2.start > e1.end", "e2.end <= e1.end + 5"]),
    ("=|({A}; 5 minutes){B}", "AND(a e1, b e2)",
     ["e2.start > e1.end", "e2.end <= e1.end + 5 minutes"]),
    ("=|(10; 5){A}", "a e1", ["e1.start > 10", "e1.end <= 15"]),
    ("=|(TIMESTAMP '2026-01-31 10:00:00'; 5 minutes){A}", "a e1",
     ["e1.start > TIMESTAMP '2026-01-31 10:00:00'", "e1.end <= TIMESTAMP '2026-01-31 10:05:00'"]),
    ("=|({A}; {B}){C}", "AND(a e1, b e2, c e3)",
     ["e2.start > e1.end", "e3.start > e1.end", "e3.end <= e2.start"]),
    ("|=({A}; 5){B}", "AND(a e1, b e2)", ["e2.start > e1.end + 5"]),
    ("|=(10; 5){A}", "a e1", ["e1.start > 15"]),
    ("|=({A}; {B}){C}", "AND(a e1, b e2, c e3)", ["e2.start > e1.end", "e3.start > e2.end"]),
    ("!({A}; 5){B}", "AND(a e1, !b e2 FROM e1.end TO e1.end + 5)", []),
    ("!({A}; {B}){C}", "AND(a e1, b e2, !c e3 FROM e1.end TO e2.start)", ["e2.start > e1.end"]),
    ("!(10; 5){A}", "!a e1 FROM 10 TO 15", []),
    ("!(10; 5){A} && =|(!(20; 5){A}; 2){B}",
     "AND(b e1, !a e2 FROM 10 TO 15, !a e3 FROM 20 TO 25)", ["e1.start > 25", "e1.end <= 27"]),
    ("=|(!(10; 5){A}; 20)(!(16; 5){B}) && {C}",
     "AND(c e1, !a e2 FROM 10 TO 15, !b e3 FROM 16 TO 21)", []),
    ("{C} || =|(!(10; 5){A}; 2)(!(16; 5){B}) && {C}", "c e1", []),
    ("!({A}; 5)({B} || {C})",
     "AND(a e1, !b e2 FROM e1.end TO e1.end + 5, !c e3 FROM e1.end TO e1.end + 5)", []),
    ("!({A}; 5){B} && {B}", "AND(a e1, b e2, !b e3 FROM e1.end TO e1.end + 5)",
     ["NOT coalesce(e2.start > e1.end and e2.end <= e1.end + 5, FALSE)"]),
    ("!({A}; 5){B} && {C}", "AND(a e1, c e2, !b e3 FROM e1.end TO e1.end + 5)", []),
    ("|({A}){B}", "AND(a e1, b e2)", ["e2.start <= e1.end", "e1.start <= e2.end"]),
    ("|({A}; 2 s){B}", "AND(a e1, b e2)",
     ["e2.start <= e1.end + 2 seconds", "e1.start <= e2.end + 2 seconds"]),
    ("=|({A} && {B}; 5){C}", "AND(a e1, b e2, c e3)",
     ["e3.start > greatest(e1.end, e2.end)", "e3.end <= greatest(e1.end, e2.end) + 5"]),
    ("=|(!({A}; 5){B}; 2){C}", "AND(a e1, c e2, !b e3 FROM e1.end TO e1.end + 5)",
     ["e2.start > e1.end + 5", "e2.end <= e1.end + 5 + 2"]),
]  # fmt: skip
PLACES = [
    ("@({R}){A}", "a e1", [f"inside(e1.location, WKT '{DEPOT}')"]),
    ("@(CIRCLE (1 2, 3)){A}", "a e1", ["inside(e1.location, CIRCLE(1, 2, 3))"]),
    ("@({A}){B}", "AND(a e1, b e2)", ["inside(e2.location, e1.location)"]),
    ("OVLP({R}){A}", "a e1", [f"overlaps(WKT '{DEPOT}', e1.location)"]),
    ("OVLP({A} && {B}){C}", "AND(a e1, b e2, c e3)",
     ["overlaps(hull(e1.location, e2.location), e3.location)"]),
    ("SPL({A}){B}", "AND(a e1, b e2)", ["same_place(e1.location, e2.location, 1)"]),
    ("SPL({A}; 2.5){B}", "AND(a e1, b e2)", ["same_place(e1.location, e2.location, 2.5)"]),
    ("DIST({R}; >; 300){A}", "a e1", [f"distance(WKT '{DEPOT}', e1.location) > 300"]),
    ("DIST({A}; =; 3){B}", "AND(a e1, b e2)",
     ["abs(distance(e1.location, e2.location) - 3) <= 0.5"]),
]  # fmt: skip
OTHERS = [
    ("{A} || {B} && {C}", "OR(a e1, AND(b e2, c e3))", []),
    ("{A} || |=({B}; 1){C}", "OR(a e1, AND(b e2, c e3))", ["e3.start > e2.end + 1"]),
    ("(STRING:type = 'a', ARITH:id IN (1, 2), STRING:name LIKE 'x\\%')", "a e1",
     ["e1.id IN (1, 2)", "e1.name LIKE 'x\\\\%'"]),
    ("(ARITH:id = 1) && (BOOL:ok = TRUE)", "AND(Any e1, Any e2)", ["e1.id = 1", "e2.ok = TRUE"]),
    ("$x; && (STRING:type = 'b', ARITH:id = $x;.id), $x; = {A}", "AND(a e1, b e2)",
     ["e2.id = e1.id"]),
    ("!($x;; 5)(STRING:type = 'b', ARITH:id = $x;.id), $x; = {A}",
     "AND(a e1, !b e2 FROM e1.end TO e1.end + 5)", ["e2.id = e1.id"]),
    ("|($x;)$y; && OVLP($x;)$y;, $x; = {A}, $y; = {B}", "AND(a e1, b e2)",
     ["e2.start <= e1.end", "e1.start <= e2.end", "overlaps(e1.location, e2.location)"]),
    ("(STRING:type = 'steam engine')", '"steam engine" e1', []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "pattern", "conditions"), [*TIMES, *PLACES, *OTHERS])
def test_each_operator_is_conditions_on_groups(text, pattern, conditions):
    assert lines(text) == (pattern, conditions)


def test_what_is_selected_is_chosen_last():
    assert lines("{A}", "latest") == ("a e1", ["CHOOSE LATEST"])
    assert lines("=|(10; 5){A}", "once")[1][-1] == "CHOOSE ONCE"
    assert lines("!(10; 5){A}", "once") == ("!a e1 FROM 10 TO 15", [])


def test_within_is_a_condition_on_all_events():
    written = translate_subscription(parse_subscription(f"{A} && {B} WITH within = 5, select = all"))
    assert written.splitlines()[1:] == ["WHERE greatest(e1.end, e2.end) <= least(e1.start, e2.start) + 5"]


def test_it_is_shown_by_ensue():
    subscription = ensue.parse(f"=|({A}; 5){B}")
    assert ensue.show(subscription) == ensue.show(subscription, "patterns") == translate_subscription(subscription)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{A} && (ARITH:id = 1)", "does not test the type of"),
        (f"!({A}; 5)({B} && {C})", "has several events"),
        (f"{A} || !(10; 5){A}", "no event that must occur"),
        (f"!(10; 5){A} && !(10; 5){B}", "no event that must occur"),
        (f"=|(!(10; 5){A}; 2)(!(16; 5){B})", "nothing satisfies this"),
        (f"@(CIRCLE (1 2, 3))(!(10; 5){A})", "nothing satisfies this"),
        (f"=|({A}; 1 ns){B}", "whole microseconds"),
        (f"=|(10; 5 minutes){A}", "do not fit together"),
    ],
)
def test_what_cannot_be_a_pattern_says_why(text, problem):
    with pytest.raises(QueryError, match=problem) as error:
        translate_subscription(parse_subscription(text))
    assert error.value.hint


# ------------------------------------------------------------------------- the same matches

SMALL = Bounds(atoms=3, depth=2, variables=2)


def random_rows(random):
    times = sorted(random.randint(0, 12) for _ in range(9))
    return [
        {
            "t": time, "id": random.randint(1, 3), "kind": random.choice("abc"),
            "v": random.randint(0, 9), "x": float(random.randint(0, 10)),
            "y": float(random.randint(0, 10)), "n": number,
        }
        for number, time in enumerate(times)
    ]  # fmt: skip


def as_subscription(subscription, rows):
    events = [Event(row["n"], "Any", row["t"], row["t"], row) for row in rows]
    corners = {row["n"]: ((row["x"], row["y"]),) for row in rows}
    return [match.members for match in find_subscription_matches(subscription, ReferenceStream(events, corners))]


def as_pattern(text, rows):
    found = ensue.match(
        pa.Table.from_pylist(rows), text,
        time="t", location=("x", "y"), options=ensue.PlannerOptions(structure="reference"),
    )  # fmt: skip
    return [tuple(sorted(value["n"] for value in row.values() if isinstance(value, dict))) for row in found.to_pylist()]


@settings(max_examples=scaled(60), deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_pattern_finds_what_the_subscription_does(random: Random):
    subscription, rows = random_subscription(random, SMALL), random_rows(random)
    try:
        text = translate_subscription(subscription)
    except QueryError:
        reject()  # it says why, see above
    wanted, found = as_subscription(subscription, rows), as_pattern(text, rows)
    if subscription.select is Select.ALL:
        wanted, found = set(wanted), set(found)  # a set of events once, whatever their roles
    assert sorted(found) == sorted(wanted)
