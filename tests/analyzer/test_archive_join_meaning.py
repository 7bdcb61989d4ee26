"""What JOIN ARCHIVE means, on streams that can be read at a glance."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from ensue.analyzer.join_checks import check_archive_join
from ensue.engine.reference_events import read_events
from ensue.ir.archive_join import JoinKind
from ensue.parser.pattern_parser import parse_statement
from ensue.reference import Event, join_matches
from ensue.schema import ValueKind, build_table_schema
from support.archive_joins import stories
from support.seeds import scaled

SCHEMA = build_table_schema(
    {"t": ValueKind.INTEGER, "type": ValueKind.STRING, "k": ValueKind.INTEGER, "x": ValueKind.INTEGER},
    time="t",
    type_column="type",
)


def stream(text):
    """Events from words like A3 (type and time), A3k1 (with a key), A3x5 (with a value)."""
    events = []
    for position, word in enumerate(text.split()):
        rest, x = word.partition("x")[::2]
        rest, k = rest.partition("k")[::2]
        time = int(rest[1:])
        values = {"k": int(k) if k else None, "x": int(x) if x else None, "word": word}
        events.append(Event(position, rest[0], time, time, values | {"t": time}))
    return events


def rows(text, live, **archives):
    """The rows as words: the live match, then the archived ones, - where there is none."""
    schemas = dict.fromkeys(archives, SCHEMA)
    archive_join = check_archive_join(parse_statement(text), SCHEMA, schemas)
    past = {name: stream(events) for name, events in archives.items()}
    found = join_matches(archive_join, stream(live), past)
    return [" ".join([words(row.live), *map(words, row.past)]) for row in found]


def words(binding):
    if binding is None:
        return "-"
    return "+".join(event.values["word"] for events in binding.values() for event in events)


def test_a_row_for_each_archived_match_that_fits():
    text = "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START"
    assert rows(text, "A10 A12", old="B4 B5 B7 B9") == ["A10 B5", "A10 B7", "A10 B9", "A12 B7", "A12 B9"]


def test_the_range_ends_before_the_anchor_and_begins_with_its_far_end():
    past = "B4 B5 B8 B9 B10 B11"
    assert rows("A a JOIN ARCHIVE old B b RANGE 5 BEFORE START", "A10", old=past) == ["A10 B5", "A10 B8", "A10 B9"]
    near = "A a JOIN ARCHIVE old B b RANGE BETWEEN 5 AND 2 BEFORE START"
    assert rows(near, "A10", old=past) == ["A10 B5", "A10 B8"]


def test_the_anchor_is_the_start_or_the_end_of_the_live_match():
    past = "B4 B11 B13"
    start = "SEQ(A a, C c) JOIN ARCHIVE old B b RANGE 8 BEFORE START"
    assert rows(start, "A10 C14", old=past) == ["A10+C14 B4"]
    end = "SEQ(A a, C c) JOIN ARCHIVE old B b RANGE 8 BEFORE END"
    assert rows(end, "A10 C14", old=past) == ["A10+C14 B11", "A10+C14 B13"]


def test_an_archived_match_lies_in_the_range_as_a_whole():
    text = "A a JOIN ARCHIVE old SEQ(B b, C c) RANGE 5 BEFORE START"
    assert rows(text, "A10", old="B4 B6 C8 C12") == ["A10 B6+C8"]


def test_an_archived_match_is_one_over_the_whole_archive():
    after = """A a JOIN ARCHIVE old SEQ(B b, C c) AFTER MATCH SKIP PAST LAST EVENT
        RANGE 5 BEFORE START"""
    # B4 C6 uses up the B5 that the range would begin with
    assert rows(after, "A10", old="B4 B5 C6 B7 C8") == ["A10 B7+C8"]
    absent = "A a JOIN ARCHIVE old SEQ(!N n, B b) WITHIN 3 RANGE 5 BEFORE START"
    assert rows(absent, "A10", old="N4 B6 B8") == ["A10 B8"]
    late = "A a JOIN ARCHIVE old SEQ(B b, !N n) WITHIN 3 RANGE 5 BEFORE START"
    assert rows(late, "A10", old="B6 B8 N11") == ["A10 B6"]


def test_on_compares_the_sides_and_null_is_equal_to_nothing():
    same = "A a JOIN ARCHIVE old B b RANGE 9 BEFORE START ON [k]"
    assert rows(same, "A10k1 A11", old="B4k1 B5k2 B6") == ["A10k1 B4k1"]
    more = "A a JOIN ARCHIVE old B b RANGE 9 BEFORE START ON b.x > a.x and b.k = a.k"
    assert rows(more, "A10k1x5", old="B4k1x6 B5k2x7 B6k1x5 B7x9 B8k1") == ["A10k1x5 B4k1x6"]


def test_attr_holds_for_every_event_of_both_sides():
    text = "SEQ(A a, C c) JOIN ARCHIVE old SEQ(B b, D d) RANGE 9 BEFORE START ON [k]"
    live = "A10k1 C11k2 C12k1"
    assert rows(text, live, old="B4k1 B5k2 D6k1") == ["A10k1+C12k1 B4k1+D6k1"]


def test_on_speaks_of_kleene_variables_as_return_does():
    text = """A+ a[] JOIN ARCHIVE old B+ b[] RANGE 9 BEFORE START
        ON b[1].x < a[a.LEN].x and count(b) = 2 and avg(b.x) > 3"""
    live, past = "A10x4", "B5x3 B6x5 B7x2"
    assert rows(text, live, old=past) == ["A10x4 B5x3+B6x5"]


def test_what_is_not_bound_does_not_hold():
    text = "A a JOIN ARCHIVE old SEQ(B b, C? c) RANGE 9 BEFORE START ON c.x = a.x"
    assert rows(text, "A10x1", old="B4x1 C5x1") == ["A10x1 B4x1+C5x1"]


def test_last_keeps_the_latest_by_end_then_start_then_order():
    text = "A a JOIN ARCHIVE old SEQ(B b, C c) RANGE 9 BEFORE START LAST 2"
    assert rows(text, "A10", old="B4 B5 C6 B7 C8") == ["A10 B5+C8", "A10 B7+C8"]
    tied = "A a JOIN ARCHIVE old B b RANGE 9 BEFORE START LAST 1"

    assert rows(tied, "A10", old="B5x2 B5x1") == ["A10 B5x1"]
    assert rows(tied, "A10", old="B5x1 B5x2") == ["A10 B5x2"]


def test_left_keeps_live_matches_without_a_past_and_anti_only_those():
    past = "B4k1 B5k1"
    live = "A10k1 A11k2"
    clauses = "JOIN ARCHIVE old B b RANGE 9 BEFORE START ON [k]"
    assert rows(f"A a {clauses}", live, old=past) == ["A10k1 B4k1", "A10k1 B5k1"]
    assert rows(f"A a LEFT {clauses}", live, old=past) == ["A10k1 B4k1", "A10k1 B5k1", "A11k2 -"]
    assert rows(f"A a ANTI {clauses}", live, old=past) == ["A11k2"]


def test_several_joins_are_judged_against_the_live_match():
    text = """A a LEFT JOIN ARCHIVE old B b RANGE 9 BEFORE START LAST 1 ON [k]
        JOIN ARCHIVE other C c RANGE 9 BEFORE START ON {on}"""
    each = text.format(on="c.x = a.x")
    assert rows(each, "A10k1x1 A11k2x2", old="B4k1", other="C9x1 C9x2") == ["A10k1x1 B4k1 C9x1", "A11k2x2 - C9x2"]
    between = text.format(on="c.x = b.x")
    assert rows(between, "A10k1 A11k2", old="B4k1x7", other="C9x7 C9") == ["A10k1 B4k1x7 C9x7"]


def test_having_and_limit_speak_of_rows():
    text = "A a JOIN ARCHIVE old B b RANGE 9 BEFORE START {}"
    past = "B4x1 B5x2 B6x3"
    assert rows(text.format("HAVING b.x > a.x"), "A10x1", old=past) == ["A10x1 B5x2", "A10x1 B6x3"]
    limited = text.format("HAVING b.x > 1 LIMIT 1")
    assert rows(limited, "A10 A11", old=past) == ["A10 B5x2", "A11 B5x2"]


def test_limit_counts_the_rows_of_each_live_match():
    text = "SEQ(A a, C c) JOIN ARCHIVE old B b RANGE 9 BEFORE END LIMIT 1"
    assert rows(text, "A8 A9 C10", old="B4 B5") == ["A8+C10 B4", "A9+C10 B4"]


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_the_kinds_of_a_join_divide_the_live_matches(story):
    schema, unit = story.shape.schema, story.shape.unit
    join = story.archive_join.joins[0]
    past = {join.archive: read_events(story.past(join.archive), schema, unit)}
    live = read_events(story.live, schema, unit)

    plain = replace(story.archive_join, returns=(), having=None, limit=None)

    def found(kind):
        alone = replace(plain, joins=(replace(join, kind=kind),))
        return join_matches(alone, live, past)

    inner, left, anti = map(found, (JoinKind.INNER, JoinKind.LEFT, JoinKind.ANTI))
    assert [row for row in left if row.past[0] is not None] == inner
    assert [row.live for row in left if row.past[0] is None] == [row.live for row in anti]


def test_an_archive_that_is_not_there_is_no_empty_one():
    found = parse_statement("A a JOIN ARCHIVE old B b RANGE 5 BEFORE START")
    with pytest.raises(KeyError):
        join_matches(found, [], {})
