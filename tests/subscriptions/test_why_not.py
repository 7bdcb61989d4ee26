"""Why not? Stories of what stops events, and that what it finds is what is meant."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from tests.docs.subscription_examples import asked_of
from tests.support.fleets import random_corners, random_events
from tests.support.paper_subscriptions import BORDERS, REGIONS, VARIABLES, Case
from tests.support.seeds import some
from tests.support.subscriptions import Bounds, random_subscription

import ensue
from ensue.diagnostics import MatchCandidate, WhyNot, why_not
from ensue.diagnostics.search_context import build_region_box
from ensue.geo import geometry as places
from ensue.ir.subscription import Region, RegionTest, Select, SpatialRelation
from ensue.operators.subscriptions.subscription_why_not import explain_missing_match
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, find_subscription_matches
from ensue.vector.event_table import StreamSchema, add_location, create_schema
from support.seeds import scaled

TRUCK = "(ARITH:id = 17, STRING:type = 'truck')"
LEFT = f"=|(@(Depot)(A); 25 minutes)(DIST(Depot; >; 20)(A)), A = {TRUCK}"
DEPOT = {"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"}
TEN = datetime(2026, 1, 31, 10, tzinfo=UTC)


def told(text: str, stream: str, **given: Any) -> WhyNot:
    """Of events such as `1: a1 b0, 2: b1 (5,5)`; A and B are events of that type."""
    asked = asked_of(text, stream)
    return why_not(asked.subscription, ReferenceStream(asked.events, asked.corners), **given)


def of_rows(text: str, rows: list[dict[str, Any]], **given: Any) -> WhyNot:
    """Of events that are rows with a time `t`."""
    events = [Event(n, "", row["t"], row["t"], row) for n, row in enumerate(rows)]
    return why_not(parse_subscription(text), ReferenceStream(events), **given)


def whys(answer: WhyNot) -> list[str]:
    return [candidate.why for way in answer.ways for candidate in way.stuck.shown]


def furthest(answer: WhyNot) -> MatchCandidate:
    return answer.ways[0].stuck.shown[0]


def positions(candidate: MatchCandidate) -> list[int]:
    return [event.position for event in candidate.events]


# ---------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("text", "stream", "why"),
    [
        ("=|(A; 2)B", "1: a1, 4: b1", "e2 came 3 after e1, at most 2 is allowed"),
        ("=|(A; 2)B", "1: b1, 3: a1", "e2 came 2 before e1, and must come after it"),
        ("=|(A; 2)B", "3: a1 b1", "e2 came at the same time as e1, and must come after it"),
        ("|=(A; 2)B", "1: a1, 2: b1", "e2 came 1 after e1, more than 2 is required"),
        ("|=(A; B)C", "1: a1, 2: b1 c1",
         "e3 came at the same time as e2, and must come after it"),
        ("=|(A; B)C", "1: a1, 3: b1, 4: c1", "e3 came 1 after e2, and must not come later"),
        ("=|(A; B)C", "1: b1, 4: a1, 5: c1", "e2 came 3 before e1, and must come after it"),
        ("=|(10; 5)A", "16: a1", "e1 came 6 after 10, at most 5 is allowed"),
        ("|=(10; 5)A", "14: a1", "e1 came 4 after 10, more than 5 is required"),
        ("|(A; 1)B", "1: a1, 4: b1", "e2 came 3 after e1, at most 1 is allowed"),
        ("|(A; 1)B", "1: b1, 4: a1", "e1 came 3 after e2, at most 1 is allowed"),
        ("A && B WITH within = 5", "1: a1, 9: b1",
         "from the first to the last event it is 8, at most 5 is allowed"),
        ("=|(A; 5)B", "1: a1, 3-7: b1", "e2 ended 6 after e1 ended, at most 5 is allowed"),
        ("=|($x;; 2)C, $x; = A && B", "1: a1, 2: b1, 6: c1",
         "e3 came 4 after $x;, at most 2 is allowed"),
    ],
)  # fmt: skip
def test_an_event_out_of_time_is_told_by_how_much(text: str, stream: str, why: str) -> None:
    answer = told(text, stream)
    assert whys(answer) == [why]
    assert answer.matched == 0


def test_the_demand_that_stopped_a_candidate_counts_it_and_points_at_the_length() -> None:
    answer = told("=|(A; 2)B", "1: a1, 4: b1, 5: b2")
    stopped = furthest(answer)
    assert stopped.demand is not None
    demand = answer.ways[0].demands[stopped.demand]
    assert (demand.said, demand.kind, demand.stopped) == ("e2 at most 2 after e1", "time", 2)
    assert stopped.span is not None
    assert answer.subscription is not None
    assert stopped.span.over(answer.subscription) == "2"


@pytest.mark.parametrize(
    ("text", "stream", "place"),
    [
        ("=|(A; 2)B", "1: b1, 3: a1", "=|(A; 2)B"),
        ("C || |=(A; B)C", "1: a1, 2: b1 c1", "|=(A; B)C"),
        ("|(A)B", "1: a1, 2: b1", "|(A)B"),
        ("!(A; B)C", "1: a1, 2: c1, 3: b1", "!(A; B)C"),
        ("|(A; 9)B && DIST(A; <; 5)C", "1: a1 (0,0) b1, 2: a2 (0,0) c1 (9,0)",
         "DIST(A; <; 5)C"),
    ],
)  # fmt: skip
def test_a_candidate_points_at_the_operator_that_stopped_it(text: str, stream: str, place: str) -> None:
    answer = told(text, stream)
    candidates = [c for way in answer.ways for c in way.stuck.shown]
    assert answer.subscription is not None
    assert place in [c.span.over(answer.subscription) for c in candidates if c.span]


def test_of_events_outside_of_the_window_the_nearest_is_told() -> None:
    assert positions(furthest(told("=|(A; 2)B", "1: a1, 4: b1, 5: b2, 9: b3"))) == [0, 1]


@pytest.mark.parametrize("text", ["=|(A; 2)A", "|=(A; 2)A", "|(A; 2)A"])
def test_an_event_is_not_told_to_be_out_of_time_for_itself(text: str) -> None:
    answer = told(text, "3: a1")
    assert whys(answer) == ["no other event passed the tests of e2"]
    assert positions(furthest(answer)) == [0]


def test_events_that_got_further_come_before_newer_ones() -> None:
    text = "=|(A; 5)B && =|(A; 3)C WITH within = 20"
    answer = told(text, "1: a1, 3: b1, 4: c1, 9: a2, 19: b2, 60: a3", max_candidates=3)
    depths = [len(candidate.events) for candidate in answer.ways[0].stuck.shown]
    assert depths == sorted(depths, reverse=True)
    assert answer.ways[0].stuck.count >= 3


# --------------------------------------------------------------------------------- places


@pytest.mark.parametrize(
    ("text", "stream", "why"),
    [
        ("DIST(A; <; 5)B", "1: a1 (0,0), 2: b1 (3,4)",
         "e2 was 5 away from e1, less than 5 is required"),
        ("DIST(A; >; 5)B", "1: a1 (0,0), 2: b1 (3,3)",
         "e2 was 4.243 away from e1, more than 5 is required"),
        ("DIST(A; =; 9)B", "1: a1 (0,0), 2: b1 (3,4)",
         "e2 was 5 away from e1, 9 plus or minus 0.5 is required"),
        ("SPL(A; 2)B", "1: a1 (0,0), 2: b1 (3,4)",
         "the centre of e2 was 5 away from that of e1, less than 2 is required"),
        ("IN(A)B", "1: a1 (0,0), 2: b1 (3,4)", "e2 was 5 away from e1, and must be inside"),
        ("OVLP(A)B", "1: a1 (0,0), 2: b1 (3,4)",
         "e2 was 5 away from e1, and must share a point with it"),
        ("@(R)(A && B)", "1: a1 (5,5), 2: b1 (13,14)", "e1 and e2 were not completely inside R"),
        ("@(R)(A && B)", "1: a1 (13,14), 2: b1 (13,15)",
         "e1 and e2 were 5 away from R, and must be inside"),
        ("DIST(A; <; 5)B", "1: a1, 2: b1 (3,4)", "e1 has no place"),
        ("DIST(A; <; 5)B", "1: a1 (3,4), 2: b1", "e2 has no place"),
    ],
)  # fmt: skip
def test_an_event_in_the_wrong_place_is_told_where_it_was(text: str, stream: str, why: str) -> None:
    assert whys(told(text, stream)) == [why]


def test_of_events_in_the_wrong_place_the_nearest_is_told() -> None:
    answer = told("DIST(A; <; 5)B", "1: a1 (0,0), 2: b1 (9,0), 3: b2 (6,0), 4: b3 (30,0)")
    assert positions(furthest(answer)) == [0, 2]


def test_a_distance_that_is_just_too_small_is_not_rounded_to_what_is_asked_for() -> None:
    answer = told("DIST(A; >; 5)B", "1: a1 (0,0), 2: b1 (4.99999,0)")
    assert whys(answer) == ["e2 was 4.99999 away from e1, more than 5 is required"]


# --------------------------------------------------------------------------------- fields


@pytest.mark.parametrize(
    ("operator", "field", "id", "why"),
    [
        ("=", "id", 18, "id 18 is not that of $A; (17)"),
        ("=", "load", 18, "id 18 is not load of $A; (3)"),
        ("!=", "id", 17, "id 17 is that of $A; (17), and must be different"),
        ("<", "load", 18, "id 18 is not less than load of $A; (3)"),
        (">=", "id", 16, "id 16 is not at least that of $A; (17)"),
        ("=", "id", None, "id of $B; is NULL, which satisfies nothing"),
        ("!=", "id", None, "id of $B; is NULL, which satisfies nothing"),
        ("=", "nothing", 18, "nothing of $A; is NULL, which satisfies nothing"),
    ],
)
def test_another_value_is_told_beside_the_one_that_is_asked_for(
    operator: str, field: str, id: int | None, why: str
) -> None:
    text = f"=|($A;; 5)($B;), $A; = (STRING:kind = 'a'), $B; = (STRING:kind = 'b', ARITH:id {operator} $A;.{field})"
    rows = [
        {"t": 1, "kind": "a", "id": 17, "load": 3, "nothing": None},
        {"t": 2, "kind": "b", "id": id, "load": 4, "nothing": None},
    ]
    answer = of_rows(text, rows)
    assert whys(answer) == [why]
    span = furthest(answer).span
    assert span is not None
    assert span.over(text) == f"ARITH:id {operator} $A;.{field}"
    (compared,) = [demand for demand in answer.ways[0].demands if demand.kind == "field"]
    assert compared.stopped == 1


def test_a_field_may_be_read_of_an_event_that_stands_further_on() -> None:
    text = """=|($C;; 5)($A;), $A; = (STRING:kind = 'a'),
        $C; = (STRING:kind = 'c', ARITH:id = $A;.load)"""
    rows = [{"t": 1, "kind": "c", "id": 3, "load": 8}, {"t": 2, "kind": "a", "id": 17, "load": 3},
            {"t": 3, "kind": "a", "id": 3, "load": 17}]  # fmt: skip
    answer = of_rows(text, rows)
    assert answer.matched == 1
    (compared,) = [demand for demand in answer.ways[0].demands if demand.kind == "field"]
    assert (compared.said, compared.stopped) == ("id of $C; = load of $A;", 1)


def test_an_event_may_be_on_both_sides_of_an_operator() -> None:
    text = "|(B && $x;)($x;), $x; = A WITH select = all"
    assert told(text, "1: b1, 5: a1, 9: b2").matched == 2


def test_nan_equals_no_nan() -> None:
    text = "=|($A;; 5)($B;), $A; = (ARITH:v != 1), $B; = (ARITH:v = $A;.v)"
    nan = float("nan")
    answer = of_rows(text, [{"t": 1, "v": nan}, {"t": 2, "v": nan}])
    assert answer.matched == 0
    assert "v nan is not that of $A; (nan)" in whys(answer)
    json.dumps(answer.as_dict(), allow_nan=False)


def test_no_event_plays_two_roles() -> None:
    answer = told("A && B, B = (STRING:name LIKE 'a%')", "1: a1")
    assert whys(answer) == ["no other event passed the tests of e2"]
    assert [demand.kind for demand in answer.ways[0].demands] == ["role"]
    assert furthest(answer).demand == 0


# ------------------------------------------------------------------------------- absences


@pytest.mark.parametrize(
    ("text", "stream", "why"),
    [
        ("!(A; 5)B", "1: a1, 3: b1", "an event that must not come did come: type 'b' at 3"),
        ("!(A; B)C", "1: a1, 2: c1, 3: b1", "an event that must not come did come: type 'c' at 2"),
        ("!(10; 5)A", "12: a1", "an event that must not come did come: type 'a' at 12"),
        ("!(A; 5)(B && C)", "1: a1, 3: b1, 4: c1",
         "events that must not come did come: type 'b' at 3 and type 'c' at 4"),
        ("!(A; 5)(!(10; 5)B)", "9: a1, 30: b1", None),
        ("!(A; 9)(!(B; 2)C)", "1: a1, 3: b1",
         "an event that must not come did come: type 'b' at 3"),
    ],
)  # fmt: skip
def test_what_came_although_it_must_not_is_told(text: str, stream: str, why: str | None) -> None:
    answer = told(text, stream)
    assert whys(answer) == ([] if why is None else [why])
    assert answer.matched == (1 if why is None else 0)
    demands = [demand for demand in answer.ways[0].demands if demand.kind == "absence"]
    assert sum(demand.stopped for demand in demands) == len(whys(answer))


def test_an_absence_of_the_same_object_asks_for_no_other() -> None:
    text = """!($x;; 5)(STRING:kind = 'shipped', ARITH:id = $x;.id),
        $x; = (STRING:kind = 'order')"""
    rows = [{"t": 1, "kind": "order", "id": 17}, {"t": 2, "kind": "order", "id": 18},
            {"t": 4, "kind": "shipped", "id": 18}]  # fmt: skip
    answer = of_rows(text, rows)
    assert answer.matched == 1
    assert whys(answer) == ["an event that must not come did come: kind 'shipped', id 18 at 4"]
    assert positions(furthest(answer)) == [1]
    (absence,) = answer.ways[0].demands
    assert absence.said == "no (kind = 'shipped', id = id of $x;) for 5 after $x;"


def test_what_must_not_come_may_still_come() -> None:
    answer = told("!(A; 5)B", "1: a1, 3: a2, 4: c1", now=6)
    assert (answer.matched, answer.waiting) == (0, 2)
    newest = answer.ways[0].waiting.shown[0]
    assert newest.why == "still waiting: nothing may come until 8"
    assert (positions(newest), newest.until) == ([1], 8)
    assert told("!(A; 5)B", "1: a1, 3: a2, 4: c1", now=7).matched == 1
    assert told("!(A; 5)B", "1: a1, 3: a2, 4: c1").matched == 2


def test_an_absence_that_is_not_over_bars_nothing_yet() -> None:
    assert told("!(A; 9)(!(B; 5)C)", "1: a1, 3: b1", now=4).waiting == 1
    assert told("!(A; 9)(!(B; 5)C)", "1: a1, 3: b1").matched == 0


def test_an_event_that_may_still_come_is_waited_for() -> None:
    answer = told("=|(A; 5)B", "1: a1, 4: a2", now=6)
    assert [c.why for c in answer.ways[0].waiting.shown] == [
        "still waiting: e2 may come until 9", "still waiting: e2 may come until 6",
    ]  # fmt: skip
    assert told("=|(A; 5)B", "1: a1, 4: a2", now=10).waiting == 0


def test_what_nothing_bounds_is_not_said_to_wait() -> None:
    answer = told("DIST(A; <; 5)B", "1: a1 (0,0), 2: b1 (9,0)", now=2)
    assert answer.waiting == 0
    assert whys(answer) == ["e2 was 9 away from e1, less than 5 is required"]


# ------------------------------------------------------------------------------ selecting


def test_a_match_that_gave_way_to_a_newer_one_says_so() -> None:
    answer = told("=|(A; 5)B", "1: a1, 2: a2, 3: b1")
    assert (answer.matched, answer.delivered) == (2, 1)
    (older,) = answer.ways[0].undelivered.shown
    assert positions(older) == [0, 2]
    assert older.why == "a newer one was delivered instead, from 2 on (select = latest)"


def test_a_match_of_events_that_are_used_up_says_so() -> None:
    answer = told("=|(A; 5)B WITH select = once", "1: a1, 2: a2, 3: b1, 4: b2")
    assert (answer.matched, answer.delivered) == (4, 1)
    reasons = {tuple(positions(c)): c.why for c in answer.ways[0].undelivered.shown}
    used = "used by an earlier match, which ended at 3 (select = once)"
    instead = "a newer one was delivered instead, from 2 on (select = once)"
    assert reasons == {(0, 2): instead, (0, 3): used, (1, 3): used}


def test_with_select_all_every_match_is_delivered() -> None:
    answer = told("=|(A; 5)B WITH select = all", "1: a1, 2: a2, 3: b1, 4: b2")
    assert (answer.matched, answer.delivered) == (4, 4)
    assert answer.ways[0].undelivered.count == 0


# ---------------------------------------------------------------------------------- atoms


def test_an_atom_is_a_funnel_with_what_nearly_passed() -> None:
    rows = [
        {"t": 1, "type": "van", "id": 17, "load": 5},
        {"t": 2, "type": "truck", "id": 18, "load": 5},
        {"t": 3, "type": "truck", "id": 17, "load": 1},
        {"t": 4, "type": "truck", "id": 17, "load": None},
        {"t": 5, "type": "van", "id": 3, "load": 9},
    ]
    answer = of_rows("(STRING:type = 'truck', ARITH:id = 17, ARITH:load > 2)", rows)
    (atom,) = answer.ways[0].atoms
    assert (atom.name, atom.events, atom.passed) == ("e1", 5, 0)
    assert [(t.said, t.stopped, t.passed) for t in atom.tests] == [
        ("type = 'truck'", 2, 3), ("id = 17", 1, 2), ("load > 2", 2, 0),
    ]  # fmt: skip
    assert [[miss.why for miss in test.near] for test in atom.tests] == [
        ["type is 'van', type = 'truck' is required"],
        ["id is 18, id = 17 is required"],
        ["load is NULL, which satisfies nothing", "load is 1, load > 2 is required"],
    ]
    assert [test.near[0].event.position for test in atom.tests] == [0, 1, 3]
    text = answer.subscription
    assert text is not None
    assert [t.span.over(text) for t in atom.tests if t.span] == [
        "STRING:type = 'truck'", "ARITH:id = 17", "ARITH:load > 2",
    ]  # fmt: skip


def test_equal_tests_of_two_atoms_point_at_their_own_places() -> None:
    text = "=|(ARITH:id = 17; 5)(ARITH:id = 17)"
    answer = of_rows(text, [{"t": 1, "id": 18}])
    starts = [atom.tests[0].span.start for atom in answer.ways[0].atoms if atom.tests[0].span]
    assert starts == [text.index("ARITH"), text.rindex("ARITH")]


@pytest.mark.parametrize(
    ("predicate", "value", "why"),
    [
        ("ARITH:v IN (1, 2)", 3, "v is 3, v IN (1, 2) is required"),
        ("STRING:v LIKE 'tr%'", "van", "v is 'van', v LIKE 'tr%' is required"),
        ("BOOL:v = TRUE", False, "v is FALSE, v = TRUE is required"),
        ("ARITH:v != 3", 3.0, "v is 3, v != 3 is required"),
        ("TIME:v < TIMESTAMP '2026-01-31 10:00:00'", TEN,
         "v is 2026-01-31 10:00:00+00:00, v < 2026-01-31 10:00:00 is required"),
    ],
)  # fmt: skip
def test_a_value_that_fails_is_told_beside_the_predicate(predicate: str, value: Any, why: str) -> None:
    (test,) = of_rows(f"({predicate})", [{"t": 1, "v": value}]).ways[0].atoms[0].tests
    assert [miss.why for miss in test.near] == [why]


@pytest.mark.parametrize(
    ("text", "stream", "why", "distance"),
    [
        ("@(R)A", "1: a1 (24,5)", "it was 14 away from R, and must be inside", 14),
        ("OVLP(R)A", "1: a1 (13,14)", "it was 5 away from R, and must share a point with it", 5),
        ("SPL(R)A", "1: a1 (5,8)",
         "its centre was 3 away from that of R, less than 1 is required", 0),
        ("DIST(R; >; 20)A", "1: a1 (24,5)",
         "it was 14 away from R, more than 20 is required", 14),
        ("DIST(R; <; 4)A", "1: a1 (24,5)", "it was 14 away from R, less than 4 is required", 14),
        ("@(CIRCLE (0 0, 5))A", "1: a1 (9,0)",
         "it was 4 away from CIRCLE (0 0, 5), and must be inside", 4),
        ("@(R)A", "1: a1", "it has no place", None),
    ],
)  # fmt: skip
def test_an_event_beside_a_region_is_told_how_far_its_border_is(
    text: str, stream: str, why: str, distance: float | None
) -> None:
    (miss,) = told(text, stream).ways[0].atoms[0].tests[-1].near
    assert (miss.why, miss.distance) == (why, distance)


def test_an_event_in_time_that_nearly_passed_is_a_candidate() -> None:
    text = "=|(@(R)A; 25)(DIST(R; >; 20)A)"
    answer = told(text, "0: a1 (5,5), 20: a2 (24,5), 40: a3 (60,5)")
    assert whys(answer) == [
        "e2 was 14 away from R, more than 20 is required",
        "e2 came 40 after e1, at most 25 is allowed",
    ]
    assert [positions(c) for c in answer.ways[0].stuck.shown] == [[0, 1], [0, 2]]


def test_another_object_is_no_candidate_of_an_atom_that_names_one() -> None:
    rows = [{"t": 1, "id": 17, "kind": "a"}, {"t": 2, "id": 18, "kind": "b"}]
    text = "=|(ARITH:id = 17, STRING:kind = 'a'; 5)(ARITH:id = 17, STRING:kind = 'b')"
    answer = of_rows(text, rows)
    assert whys(answer) == ["no event passed the tests of e2"]
    assert [d.said for d in answer.ways[0].demands if d.stopped] == ["an event that passes the tests of e2"]


def test_each_alternative_is_told_by_itself() -> None:
    answer = told("=|(A; 2)B || A && C", "1: a1, 4: b1, 5: c1")
    assert [way.matched for way in answer.ways] == [0, 1]
    assert (answer.matched, answer.delivered) == (1, 1)
    assert len(answer.ways[0].atoms) == len(answer.ways[1].atoms) == 2
    assert "way 2 of 2: 1 match" in answer.text()


def test_a_subscription_without_events_has_nothing_to_fill() -> None:
    answer = told("!(10; 5)A", "16: a1")
    assert answer.matched == 1
    assert answer.ways[0].atoms == ()


def test_no_events_at_all_are_answered() -> None:
    answer = why_not(parse_subscription("=|(ARITH:id = 1; 5)(ARITH:id = 2)"), ReferenceStream(()))
    assert (answer.events, answer.matched, answer.cut) == (0, 0, False)
    assert [atom.events for atom in answer.ways[0].atoms] == [0, 0]


# ------------------------------------------------------------------------------- it is bounded


@pytest.mark.parametrize("most", [0, 1, 7, 100, 5_000])
@pytest.mark.parametrize(
    "text",
    [
        "A && A && A && A && A && A",
        "!(A; 50)(B && B && B && B)",
        "DIST(A && A && A; >; 5000)(A && A)",
        "@(R)A || OVLP(R)A || SPL(R)B",
    ],
)
def test_no_more_steps_are_taken_than_allowed(text: str, most: int) -> None:
    stream = ", ".join(f"{n}: a{n} ({n % 20},{n % 9}) b{n}" for n in range(60))
    answer = told(text, stream, max_steps=most, max_candidates=4)
    assert answer.steps <= most
    assert answer.cut
    for way in answer.ways:
        assert len(way.stuck.shown) <= 4
    json.dumps(answer.as_dict())
    answer.text()


def test_what_is_cut_is_the_oldest_for_every_atom() -> None:
    """A match is not found where what bars it was not looked at."""
    stream = "1: a1, 2: b1 (5,5), " + ", ".join(f"{n}: b{n} (5,5)" for n in range(9, 60))
    cut = 0
    for most in range(0, 20_000, 500):
        answer = told("!(A; 5)(@(R)B)", stream, max_steps=most)
        assert answer.matched == 0, most
        cut += answer.cut
    assert 2 < cut < 40


def test_no_candidates_are_shown_where_none_are_asked_for() -> None:
    answer = told("=|(A; 2)B", "1: a1, 4: b1", max_candidates=0)
    assert answer.ways[0].stuck.count == 1
    assert answer.ways[0].stuck.shown == ()


# ---------------------------------------------------------------- it is what is meant


@pytest.mark.parametrize("space", ["plane", "earth"])
def test_what_the_box_of_a_region_tells_is_so(space: str) -> None:
    regions = (
        "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))",
        "POLYGON ((170 -5, -170 -5, -175 5, 170 -5))",
        "POLYGON ((-180 50, 180 50, 180 60, -180 60, -180 50))",
        "MULTIPOLYGON (((0 6, 3 6, 3 9, 0 6)), ((70 0, 100 0, 100 3, 70 0)))",
        "CIRCLE (5 5, 3)",
    )
    told_at_once = 0
    for seed in range(scaled(600)):
        random = Random(f"{space} {seed}")
        text = random.choice(regions)
        region = build_region_box(text, space)
        corners = [
            (random.choice((-190.0, -180.0, 0.0, 5.0, 10.0, 175.0, 180.0)) + random.randint(-1, 1),
             random.choice((-80.0, 0.0, 3.0, 10.0, 55.0)) + random.randint(-1, 1))
            for _ in range(random.choice((1, 1, 2)))
        ]  # fmt: skip
        place = places.locate_event(tuple(corners), space)
        assert place is not None
        where, scale = random.choice(list(SpatialRelation)), 1.0 if space == "plane" else 111_195.0
        number, comparison = random.randint(0, 60) * scale, random.choice("<=>")
        test = RegionTest(where, Region(text), comparison, number, scale)
        settled = region.decide(test, place)
        if settled is not None:
            told_at_once += 1
            asked = comparison, number, scale, space
            assert places.evaluate_relation(where, region.shape, place, *asked) == settled, (seed, test)
    assert told_at_once > scaled(600) / 6


def case(seed: int) -> tuple[Any, ReferenceStream]:
    random = Random(f"why not {seed}")
    bounds = Bounds(
        atoms=random.choice((2, 3, 4)),
        depth=random.choice((1, 2, 3)),
        negations=random.choice((1, 1, 2)),
        places=random.random() < 0.5,
    )
    events = random_events(random, random.choice((4, 6, 8, 10)), points=random.random() < 0.5)
    corners = random_corners(random, events)
    space = random.choice(("plane", "earth"))
    return random_subscription(random, bounds), ReferenceStream(events, corners, space)


@pytest.mark.parametrize("seed", some(3, 80))
def test_it_counts_exactly_the_matches_of_the_oracle(seed: int) -> None:
    counted = 0
    for number in range(40 * seed, 40 * (seed + 1)):
        subscription, stream = case(number)
        everything = find_subscription_matches(replace(subscription, select=Select.ALL), stream)
        answer = why_not(subscription, stream)
        assert not answer.cut
        assert answer.matched == len(everything), (number, subscription)
        assert answer.delivered == len(find_subscription_matches(subscription, stream)), (number, subscription)
        now = max(event.end for event in stream.events)
        known = [m for m in everything if m.known[1] == 0 or m.known[0] < now]
        assert why_not(subscription, stream, now=now).matched == len(known), number
        json.dumps(answer.as_dict(), allow_nan=False)
        assert answer.text().startswith(f"{len(stream.events)} events, {answer.matched} match")
        counted += answer.matched
    assert counted > 20


def test_it_finds_matches_again_in_the_tables_of_the_paper() -> None:
    def found(case: Case) -> int:
        rows = case.events
        events = [Event(n, "", row["ts"], row["ts"], row) for n, row in enumerate(rows)]  # type: ignore[arg-type]
        corners: Any = {n: ((r["x"], r["y"]),) for n, r in enumerate(rows) if r["x"] is not None}
        return why_not(parse_subscription(case.opsl, REGIONS), ReferenceStream(events, corners)).matched

    for one in (*BORDERS, *VARIABLES):
        assert found(one) == len(one.matches), one


def test_every_pair_matches_or_is_stopped_by_one_demand() -> None:
    for seed in range(scaled(40)):
        random = Random(f"pairs {seed}")
        text = random.choice(("=|(A; 3)B", "|=(A; 3)B", "|(A; 2)B", "A && B WITH within = 4", "DIST(A; <; 4)B"))
        names = [f"{random.choice('ab')}{n}" for n in range(random.randint(2, 12))]
        stream = ", ".join(
            f"{random.randint(0, 3) + n}: {name} ({random.randint(0, 9)},0)" for n, name in enumerate(names)
        )
        asked = asked_of(text, stream)
        events = sorted(asked.events, key=lambda e: e.end)
        ordered = [replace(e, position=n) for n, e in enumerate(events)]
        corners = {n: asked.corners[e.position] for n, e in enumerate(events)}
        answer = why_not(asked.subscription, ReferenceStream(ordered, corners))
        (way,) = answer.ways
        first, second = (atom.passed for atom in way.atoms)
        stopped = sum(demand.stopped for demand in way.demands if demand.kind != "event")
        assert stopped + way.matched == first * second, (seed, text, stream)


# ------------------------------------------------------------------------------- tables


def trucks(*at: tuple[int, float]) -> pa.Table:
    """Truck 17, by minutes after ten."""
    return pa.table(
        {
            "t": pa.array([TEN + timedelta(minutes=m) for m, _ in at], pa.timestamp("us", "UTC")),
            "type": ["truck"] * len(at),
            "id": [17] * len(at),
            "x": [float(x) for _, x in at],
            "y": [5.0] * len(at),
        }
    )


def shape(table: pa.Table, **given: Any) -> StreamSchema:
    options = {"time": "t", "type": "type", "order": ()} | given
    space = options.pop("space", "plane")
    return add_location(create_schema(table.schema, **options), ("x", "y"), space)  # type: ignore[arg-type]


def test_lengths_between_timestamps_are_durations() -> None:
    table = trucks((0, 5), (31, 60))
    answer = explain_missing_match(table, shape(table), LEFT, DEPOT)
    assert "e2 came 31 minutes after e1, at most 25 minutes are allowed" in whys(answer)
    (stopped,) = [c for c in answer.ways[0].stuck.shown if "31 minutes" in c.why]
    assert [event.end for event in stopped.events] == [
        "2026-01-31T10:00:00+00:00", "2026-01-31T10:31:00+00:00",
    ]  # fmt: skip
    assert stopped.events[1].values["t"] == "2026-01-31T10:31:00+00:00"
    assert stopped.span is not None
    assert stopped.span.over(LEFT) == "25 minutes"
    assert "e2 at most 25 minutes after e1" in answer.text()


def test_time_has_come_as_far_as_the_last_event_unless_it_is_said() -> None:
    table = trucks((0, 5), (3, 12))
    (waits,) = explain_missing_match(table, shape(table), LEFT, DEPOT).ways[0].waiting.shown
    assert waits.why == "still waiting: e2 may come until 2026-01-31 10:25:00"
    assert waits.until == "2026-01-31T10:25:00+00:00"
    later = TEN + timedelta(minutes=26)
    assert explain_missing_match(table, shape(table), LEFT, DEPOT, now=later).waiting == 0
    assert explain_missing_match(table, shape(table), LEFT, DEPOT, ended=True).waiting == 0


def test_on_the_earth_distances_are_metres() -> None:
    table = trucks((0, 0.0))
    table = table.set_column(table.column_names.index("y"), "y", pa.array([0.001]))
    circle = {"Depot": "CIRCLE (0 0, 50)"}
    answer = explain_missing_match(table, shape(table, space="earth"), f"@(Depot){TRUCK}", circle)
    (miss,) = answer.ways[0].atoms[0].tests[-1].near
    assert miss.why == "it was 61.2 m away from Depot, and must be inside"


def test_events_are_put_in_order_and_the_newest_are_taken() -> None:
    table = trucks((31, 60), (0, 5), (5, 5), (10, 60))
    everything = explain_missing_match(table, shape(table), LEFT, DEPOT, ended=True)
    assert (everything.events, everything.matched, everything.cut) == (4, 2, False)
    newest = explain_missing_match(table, shape(table), LEFT, DEPOT, ended=True, most_events=3)
    assert (newest.events, newest.matched, newest.cut) == (3, 1, True)


def test_a_pattern_is_refused_with_a_way_out() -> None:
    table = trucks((0, 5))
    with pytest.raises(ensue.QueryError, match="this one is a pattern\n  hint: "):
        explain_missing_match(table, shape(table), "SEQ(truck a, truck b) WITHIN 5 minutes")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(ARITH:idd = 17)", "unknown field 'idd'"),
        ("(STRING:id = 'x')", "STRING:id = ...: column 'id' is integer"),
        ("=|((ARITH:id = 17); 25)(ARITH:id = 17)", "25: the time column holds timestamps"),
        ("=|(10; 5 minutes)(ARITH:id = 17)", "a moment is TIMESTAMP"),
        ("@(Depto)(ARITH:id = 17)", "unknown name 'Depto'"),
        ("@(POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0)))(ARITH:id = 17)", "a region: "),
        ("$a; && (ARITH:id = $a;.type), $a; = (ARITH:id = 1)", "ARITH means a number"),
    ],
)
def test_what_does_not_fit_the_events_is_refused_where_it_stands(text: str, problem: str) -> None:
    table = trucks((0, 5))
    with pytest.raises(ensue.QueryError) as refused:
        explain_missing_match(table, shape(table), text, DEPOT)
    assert problem in str(refused.value)
    assert refused.value.span is not None
    assert refused.value.text == text


def test_the_field_type_is_the_column_that_the_call_names() -> None:
    table = trucks((0, 5)).rename_columns(["t", "sort", "id", "x", "y"])
    answer = explain_missing_match(table, shape(table, type="sort"), "(STRING:type = 'van')")
    (test,) = answer.ways[0].atoms[0].tests
    assert test.near[0].why == "type is 'truck', type = 'van' is required"
    assert explain_missing_match(table, shape(table, type="sort"), "(STRING:type = 'truck')").matched == 1


def test_decimals_and_dates_are_compared_as_everywhere() -> None:
    table = pa.table(
        {
            "t": [1, 2],
            "load": pa.array([Decimal("0.10"), Decimal("2.50")]),
            "day": pa.array([date(2026, 1, 30), date(2026, 1, 31)]),
        }
    )
    events = create_schema(table.schema, time="t", type=None, order=())
    for text in (
        "(ARITH:load = 0.1)",
        "(ARITH:load IN (0.1, 7))",
        "(ARITH:load < 2.5)",
        "(TIME:day < TIMESTAMP '2026-01-31 00:00:00')",
    ):
        assert explain_missing_match(table, events, text).matched == 1, text
        fleet = ensue.Subscriptions(time="t")
        fleet.add("it", text)
        assert ensue.match(table, fleet).num_rows == 1, text
    json.dumps(explain_missing_match(table, events, "(ARITH:load > 7)").as_dict())


@pytest.mark.filterwarnings("ignore::ensue.SubscriptionWarning")
def test_a_table_is_answered_as_it_is_matched() -> None:
    from ensue.printing.opsl_printer import format_subscription

    delivered = 0
    for seed in range(12):
        random = Random(f"table {seed}")
        events = random_events(random, 10)
        rows = [{**e.values, "t": e.end, "n": e.position, "x": random.uniform(0, 10), "y": 2.0} for e in events]
        text = format_subscription(random_subscription(random, Bounds(atoms=3, depth=2)))
        table = pa.Table.from_pylist(rows)
        given = shape(table, type=None, order=("n",))
        fleet = ensue.Subscriptions(time="t", location=("x", "y"), order="n")
        fleet.add("it", text)
        found = ensue.match(table, fleet).num_rows
        assert explain_missing_match(table, given, text, ended=True).delivered == found, (seed, text)
        delivered += found
    assert delivered


def test_the_answer_reads_as_a_page() -> None:
    table = trucks((0, 5), (20, 24), (31, 60))
    answer = explain_missing_match(table, shape(table), LEFT, DEPOT, ended=True)
    seventeen = "(id 17, type 'truck') at 2026-01-31"
    assert (
        answer.text().replace(seventeen, "17")
        == """\
3 events, 0 matches, 0 delivered, 0 waiting

e1: 3 events
  id = 17         3
  type = 'truck'  3
  inside Depot    1
    nearly: 17 10:31:00: it was 50 away from Depot, and must be inside
    nearly: 17 10:20:00: it was 14 away from Depot, and must be inside

e2: 3 events
  id = 17                       3
  type = 'truck'                3
  more than 20 away from Depot  1
    nearly: 17 10:20:00: it was 14 away from Depot, more than 20 is required
    nearly: 17 10:00:00: it was 0 away from Depot, more than 20 is required

what has to hold                  stopped
  e2 after e1                           0
  e2 at most 25 minutes after e1        1

how far it got: 2 of 2
  e1 17 10:00:00; e2 17 10:20:00: e2 was 14 away from Depot, more than 20 is required
  e1 17 10:00:00; e2 17 10:31:00: e2 came 31 minutes after e1, at most 25 minutes are allowed
"""
    )
