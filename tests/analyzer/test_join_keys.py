"""Which equalities of ON an archive can be read by."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from ensue.analyzer.join_checks import add_join_keys, find_join_keys
from ensue.engine.reference_events import read_events
from ensue.ir.archive_join import JoinKind
from ensue.parser.pattern_parser import parse_statement
from ensue.printing.expression_printer import format_expr
from ensue.reference import compute_value, join_matches
from support.archive_joins import random_story


def keys(past, on, live="SEQ(A a, B b)"):
    text = f"{live} JOIN ARCHIVE old {past} RANGE 5 BEFORE START ON {on}"
    found = parse_statement(text)
    assert len(found.joins) == 1
    return [
        f"{key.field} = {format_expr(key.live)}{' added' if key.added else ''}"
        for key in find_join_keys(found.joins[0], found.live)
    ]


@pytest.mark.parametrize(
    ("past", "on", "expected"),
    [
        ("Q q", "[k]", ["k = a.k"]),
        ("Q q", "[k] and q.s = b.t", ["k = a.k", "s = b.t"]),
        ("Q q", "b.t = q.s", ["s = b.t"]),
        ("Q q WHERE strict_contiguity(q) { }", "[k]", ["k = a.k"]),
        ("Q q AFTER MATCH SKIP PAST LAST EVENT", "q.k = a.k", ["k = a.k"]),
        ("SEQ(Q q, R r) WHERE [k]", "[k]", ["k = a.k"]),
        ("SEQ(Q q, R r) WHERE [k]", "r.k = a.x", ["k = a.x"]),
        ("SEQ(Q q, R r) WHERE q.k = r.k", "r.k = a.x", ["k = a.x"]),
        ("SEQ(Q q, R+ r[]) WHERE [k]", "r[1].k = a.x and r[r.LEN].k = b.x", ["k = a.x"]),
        ("SEQ(Q q, !N n, R r) WHERE [k] WITHIN 5 EVENTS AFTER MATCH SKIP PAST LAST EVENT", "[k]", ["k = a.k"]),
        ("SEQ(Q q, R+ r[]) WITHIN 5", "[k]", ["k = a.k added"]),
        ("OR(Q q, SEQ(R r, S? s))", "[k, v]", ["k = a.k added", "v = a.v added"]),
        ("SEQ(Q q, R r) WHERE [k]", "[v]", ["v = a.v added"]),
    ],
)
def test_what_an_archive_is_read_by(past, on, expected):
    assert keys(past, on) == expected


@pytest.mark.parametrize(
    ("past", "on"),
    [
        ("SEQ(Q q, R r)", "q.k = a.k"),  # r may be of another object
        ("SEQ(Q q, R r) WHERE [v]", "q.k = a.k"),
        ("SEQ(Q q, R r) WHERE strict_contiguity(q, r) { [k] }", "[k]"),
        ("SEQ(Q q, R r) WHERE skip_till_next_match(q, r) { }", "[k]"),
        ("SEQ(Q q, !N n, R r)", "[k]"),  # an n of another object counts
        ("SEQ(Q q, R r) WITHIN 5 EVENTS", "[k]"),
        ("SEQ(Q q, R r) AFTER MATCH SKIP PAST LAST EVENT", "[k]"),
        ("Q q", "q.k > a.k"),
        ("Q q", "q.k + 1 = a.k"),
        ("Q q", "q.k = 3"),
        ("Q q", "(q.k = a.k or q.k = b.k)"),
    ],
)
def test_what_an_archive_is_not_read_by(past, on):
    assert keys(past, on) == []


def test_the_past_of_an_earlier_join_is_no_key():
    text = "A a JOIN ARCHIVE o P p RANGE 5 BEFORE START JOIN ARCHIVE o Q q RANGE 5 BEFORE START"
    found = parse_statement(f"{text} ON q.k = p.k")
    assert find_join_keys(found.joins[1], found.live) == ()


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ("SEQ(A? a, B b)", "k = b.k"),
        ("SEQ(A* a[], B+ b[])", "k = b[1].k"),
        ("OR(A a, SEQ(B b, C c))", "k = coalesce(a.k, b.k, c.k)"),
        ("AND(OR(A a, B b), C c)", "k = c.k"),
    ],
)
def test_the_value_is_that_of_an_event_that_every_live_match_has(live, expected):
    assert keys("Q q", "[k]", live) == [expected]


@pytest.mark.parametrize("round", range(24))
@pytest.mark.first_rounds(1)
def test_an_archive_read_by_a_key_gives_the_same_rows(round):
    outcomes = Counter()
    for seed in range(round * 40, (round + 1) * 40):
        story = random_story(Random(seed))
        join = replace(story.archive_join.joins[0], kind=JoinKind.INNER, last=None)
        alone = replace(story.archive_join, joins=(join,), returns=(), having=None, limit=None)
        past = read_events(story.past(join.archive), story.shape.schema, story.shape.unit)
        whole = rows(story, alone, past)
        for key in find_join_keys(join, alone.live):
            parted = replace(alone, joins=(add_join_keys(join, (key,)),))
            found = []
            for value in {e.values[key.field] for e in past} - {None}:
                events = [e for e in past if e.values[key.field] == value]
                of_value = rows(story, parted, events)
                found += [pair for pair in of_value if compute_value(key.live, pair[0]) == value]
            assert in_words(found) == in_words(whole), (seed, story.text, key)
            outcomes[bool(whole)] += 1
    assert outcomes[True], outcomes


def rows(story, archive_join, past):
    """Live matches, and the rows that they are in."""
    live = read_events(story.live, story.shape.schema, story.shape.unit)
    numbered = [replace(e, position=k) for k, e in enumerate(past)]
    archive = archive_join.joins[0].archive
    found = join_matches(archive_join, live, {archive: numbered})
    return [(row.live, row.binding) for row in found]


def in_words(pairs):
    return sorted(sorted((v, [e.values["row"] for e in es]) for v, es in binding.items()) for _, binding in pairs)
