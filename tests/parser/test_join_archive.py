"""JOIN ARCHIVE: a live pattern, and what happened before."""

import pytest
from hypothesis import HealthCheck, given, settings
from tests.parser.strategies import archive_joins

import ensue
from ensue.analyzer.join_checks import check_archive_join_structure
from ensue.analyzer.query import iterate_result_columns
from ensue.ir.archive_join import ArchiveJoinQuery, JoinKind, RangeAnchor
from ensue.ir.canonical_form import canonical_form
from ensue.ir.selection import ByTime, ByUnits
from ensue.parser.pattern_parser import parse_statement
from ensue.printing.pattern_printer import format_query
from support.seeds import scaled

DAY = 86_400_000_000_000

TRAVEL = """\
EVENT Travel AS
PATTERN SEQ(Pass p)
WHERE p.kind = 'toll'
JOIN ARCHIVE passes SEQ(Pass q)
    RANGE 6 hours BEFORE START LAST 1
    ON [tag]
        and q.point != p.point
RETURN p.tag, q.point AS came_from, p.ts - q.ts AS travel"""

COMEBACK = """\
PATTERN SEQ(Trade s, Trade{3,} d[])
WHERE partition_contiguity(s, d[]) {
    [symbol]
    and d[i].price < d[i-1].price
}
WITHIN 10 minutes
LEFT JOIN ARCHIVE trades SEQ(Trade a, Trade+ b[], Trade+ c[])
    WHERE partition_contiguity(a, b[], c[]) {
        [symbol]
        and b[i].price < b[i-1].price
    }
    WITHIN 1 hour
    AFTER MATCH SKIP PAST LAST EVENT
    RANGE BETWEEN 30 days AND 1 day BEFORE END
    ON [symbol]
ANTI JOIN ARCHIVE halts SEQ(Halt h)
    RANGE 1 day BEFORE START
HAVING c[c.LEN].price > avg(d.price)
LIMIT 3"""


@pytest.mark.parametrize("text", [TRAVEL, COMEBACK])
def test_the_one_spelling_reads_back(text):
    found = ensue.parse(text)
    assert isinstance(found, ArchiveJoinQuery)
    assert ensue.show(found) == text
    assert ensue.parse(ensue.show(found)) == found


def test_every_clause_ends_in_the_algebra():
    found = parse_statement(COMEBACK)
    past, halts = found.joins
    assert found.live.returns == ()
    assert (past.archive, past.kind, past.last) == ("trades", JoinKind.LEFT, None)
    assert past.range.far == ByTime(30 * DAY)
    assert past.range.near == ByTime(DAY)
    assert past.range.anchor is RangeAnchor.END
    assert [e.field_name for e in past.equivalence] == ["symbol"]
    assert past.query.after is not None
    assert (halts.kind, halts.on, halts.range.anchor) == (JoinKind.ANTI, (), RangeAnchor.START)
    assert found.limit.count == 3


def test_keywords_are_in_any_case_and_comments_may_stand_between_them():
    found = parse_statement("A a left -- or not\njoin /* x */ archive old B b range 5 before end last 2")
    assert found.joins[0].kind is JoinKind.LEFT
    assert (found.joins[0].range.far, found.joins[0].last) == (ByUnits(5), 2)


def test_names_that_are_keywords_of_the_clause_stay_names():
    for text in (
        "PATTERN SEQ(join archive, B left, C on)",
        "PATTERN A range",
        "PATTERN range join\nWHERE join.on = join.range",
        "PATTERN A+ last[]\nWHERE last[1].before = 3",
        "PATTERN SEQ(A start, B end)\nWHERE start.last = end.join",
        "PATTERN A anti\nAFTER MATCH SKIP TO FIRST anti",
    ):
        assert format_query(parse_statement(text)) == text
    found = parse_statement("A range JOIN ARCHIVE archive SEQ(range left) RANGE 5 BEFORE START")
    assert (found.live.pattern.variable, found.joins[0].archive) == ("range", "archive")
    assert found.joins[0].query.pattern.variable == "left"


def test_a_variable_before_the_join_is_not_read_with_it():
    found = parse_statement('A "left" JOIN ARCHIVE old B b RANGE 5 BEFORE START')
    assert found.joins[0].kind is JoinKind.INNER
    assert parse_statement(format_query(found)) == found


def test_events_without_a_variable_get_names_of_their_own():
    found = parse_statement("SEQ(A, B) JOIN ARCHIVE old SEQ(A, B b) RANGE 5 BEFORE START")
    names = [part.variable for part in found.joins[0].query.pattern.parts]
    assert names == ["A2", "b"]


@settings(max_examples=scaled(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(archive_joins())
def test_any_archive_join_survives_printing(archive_join):
    text = format_query(archive_join)
    again = parse_statement(text)
    assert again == archive_join
    assert repr(again) == repr(archive_join)  # in Python 1, 1.0 and True are equal
    assert format_query(again) == text
    assert repr(check_archive_join_structure(archive_join)) == repr(archive_join)
    assert canonical_form(again) == canonical_form(archive_join)


def test_the_canonical_form_tells_every_clause():
    texts = [
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START",
        "A a JOIN ARCHIVE older B b RANGE 5 BEFORE START",
        "A a JOIN ARCHIVE old B c RANGE 5 BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 6 BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 5.0 BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 5 seconds BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE END",
        "A a JOIN ARCHIVE old B b RANGE BETWEEN 5 AND 1 BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START LAST 1",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START ON [k]",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START ON a.k = b.k",
        "A a LEFT JOIN ARCHIVE old B b RANGE 5 BEFORE START",
        "A a ANTI JOIN ARCHIVE old B b RANGE 5 BEFORE START",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START RETURN b.x",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START HAVING b.x",
        "A a JOIN ARCHIVE old B b RANGE 5 BEFORE START LIMIT 1",
        "A a WITHIN 3 JOIN ARCHIVE old B b RANGE 5 BEFORE START",
    ]
    assert len({canonical_form(parse_statement(text)) for text in texts}) == len(texts)
    assert len({format_query(parse_statement(text)) for text in texts}) == len(texts)


def test_the_columns_are_those_of_return_or_the_variables_that_a_row_has():
    text = """SEQ(A a, !N n, B+ b[]) LEFT JOIN ARCHIVE old C c RANGE 5 BEFORE START
        ANTI JOIN ARCHIVE old D d RANGE 5 BEFORE START"""
    assert [name for name, _ in iterate_result_columns(parse_statement(text))] == ["a", "b", "c"]
    returned = parse_statement(f"{text} RETURN c.x AS one, a.x")
    assert [name for name, _ in iterate_result_columns(returned)] == ["one", "x"]
