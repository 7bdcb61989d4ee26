"""How far beyond a range a pattern looks: what is read then gives the matches of the whole."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from ensue.analyzer.time_bounds import ReadRange, UnboundedRead, compute_read_range
from ensue.engine.reference_events import read_events
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.user_operator import operator
from ensue.parser.pattern_parser import parse
from ensue.reference import find_matches, members
from support.archive_joins import random_story
from support.seeds import of_round, scaled

HOUR = 3_600_000_000_000
dedup = operator("dedup", q=lambda last, e, period: e.start - last.start >= period, over="repeat")
near = operator("near", q=lambda a, b, apart: b.start - a.end <= apart)
moved = operator("moved", q=lambda a: a.x > 1, f=lambda a: (a.start - 5, a.end), over="each")


@pytest.mark.parametrize(
    ("text", "expected", "shown"),
    [
        ("SEQ(A a, B+ b[], C c) WHERE [k] WITHIN 5", ReadRange(), "0"),
        ("SEQ(A a, !C c, B b)", ReadRange(), "0"),
        ("AND(A a, !C c, B b) WITHIN 5", ReadRange(), "0"),
        ("SEQ(A a, B b) WHERE strict_contiguity(a, b) { }", ReadRange(), "0"),
        ("SEQ(A a, B b) WITHIN 5 EVENTS", ReadRange(), "0"),
        ("near(A a, B b, 3) n", ReadRange(), "0"),
        ("SEQ(near(A a, B b, 3) n, !C c, D d)", ReadRange(), "0"),
        ("SEQ(A a, !B b) WITHIN 1 hour", ReadRange(None, ByTime(HOUR)), "1 hour after"),
        ("SEQ(!B b, A a) WITHIN 5", ReadRange(ByUnits(5)), "5 before"),
        ("SEQ(C? c, !B b, A a) WITHIN 5", ReadRange(ByUnits(5)), "5 before"),
        ("AND(A a, SEQ(!B b, C c)) WITHIN 5", ReadRange(ByUnits(5)), "5 before"),
        ("SEQ(!B b, A a, !C c) WITHIN 5", ReadRange(ByUnits(5), ByUnits(5)), "5 before, 5 after"),
        ("SEQ(!B b, A a)", ReadRange(UnboundedRead.OBJECT), "from the first event of the key"),
        ("SEQ(!B b, A a) WITHIN 5 EVENTS", ReadRange(UnboundedRead.OBJECT), "from the first event of the key"),
        ("SEQ(A a, !B b) WITHIN 5 EVENTS", ReadRange(None, UnboundedRead.OBJECT), "to the last event of the key"),
        (
            "SEQ(A a, B b) WITHIN 5 AFTER MATCH SKIP PAST LAST EVENT",
            ReadRange(UnboundedRead.OBJECT),
            "from the first event of the key",
        ),
        ("SEQ(dedup(A a, 5) d, B b)", ReadRange(UnboundedRead.OBJECT), "from the first event of the key"),
        (
            "SEQ(moved(A a) m, !C c, B b)",
            ReadRange(UnboundedRead.OBJECT, UnboundedRead.OBJECT),
            "from the first event of the key, to the last event of the key",
        ),
    ],
)
def test_what_decides_how_far_a_pattern_looks(text, expected, shown):
    found = compute_read_range(parse(text, (dedup, near, moved)))
    assert found == expected
    assert str(found) == shown


def test_an_event_that_began_before_the_range_may_stand_between_two_inside():
    for text in (
        "SEQ(A a, B b) WHERE strict_contiguity(a, b) { }",
        "AND(A a, B b) WHERE skip_till_next_match(a, b) { } WITHIN 5",
        "SEQ(A a, B b) WITHIN 5 EVENTS",
    ):
        assert compute_read_range(parse(text), intervals=True) == ReadRange(UnboundedRead.OBJECT)
    assert compute_read_range(parse("SEQ(A a, B b) WITHIN 5"), intervals=True) == ReadRange()


def read(events, since, until, beyond):
    """The events that a reader gets, numbered anew."""
    low = {UnboundedRead.OBJECT: float("-inf")}.get(beyond.before, since - length(beyond.before))
    high = {UnboundedRead.OBJECT: float("inf")}.get(beyond.after, until + length(beyond.after))
    inside = [e for e in events if e.start >= low and e.end <= high]
    return [replace(e, position=k) for k, e in enumerate(inside)]


def length(far):
    match far:
        case ByTime(nanoseconds=amount) | ByUnits(amount=amount):
            return amount
        case _:
            return 0


def lying(query, events, since, until):
    found = []
    for binding in find_matches(query, events):
        inside = members(binding)
        if min(e.start for e in inside) >= since and max(e.end for e in inside) <= until:
            found.append(sorted((v, [e.values["row"] for e in es]) for v, es in binding.items()))
    return sorted(found)


@pytest.mark.parametrize("round", range(8))
@pytest.mark.first_rounds(1)
def test_what_is_read_gives_the_matches_of_the_whole_archive(round):
    outcomes = Counter()
    for seed in of_round(round, 40):
        random = Random(seed)
        story = random_story(random)
        schema = story.shape.schema
        for join in story.archive_join.joins:
            events = read_events(story.past(join.archive), schema, story.shape.unit)
            beyond = compute_read_range(join.query, intervals=schema.intervals)
            for _ in range(3 if events else 0):
                since, until = sorted(random.choice(events).end for _ in range(2))
                whole = lying(join.query, events, since, until)
                part = lying(join.query, read(events, since, until, beyond), since, until)
                assert part == whole, (seed, story.text, since, until, str(beyond))
                outcomes[bool(whole)] += 1
    assert outcomes[True] > scaled(40) / 2, outcomes
