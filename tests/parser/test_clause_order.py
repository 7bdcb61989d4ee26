"""The clauses of a query come in any order."""

from itertools import permutations

import pytest

import ensue

CLAUSES = (
    "USING next",
    "WHERE [id] and b.x > a.x",
    "WITHIN 5 minutes",
    "AFTER MATCH SKIP PAST LAST EVENT",
    "RETURN a.id AS id, b.x AS x",
    "HAVING b.x > 3",
)
WRITTEN = ensue.parse("SEQ(A a, B b) " + " ".join(CLAUSES))


@pytest.mark.parametrize("order", list(permutations(range(len(CLAUSES))))[::37])
def test_any_order_means_the_same(order):
    assert ensue.parse("SEQ(A a, B b) " + " ".join(CLAUSES[n] for n in order)) == WRITTEN


def test_behind_its_range_clauses_are_no_longer_about_the_archive():
    first = """A a WHERE a.x > 1 WITHIN 5 minutes
        JOIN ARCHIVE old B b WHERE b.x > 2 WITHIN 9 minutes RANGE 1 day BEFORE START ON [id]
        RETURN a.x AS x"""
    last = """A a RETURN a.x AS x
        JOIN ARCHIVE old B b WITHIN 9 minutes WHERE b.x > 2 RANGE 1 day BEFORE START ON [id]
        WITHIN 5 minutes WHERE a.x > 1"""
    assert ensue.parse(first) == ensue.parse(last)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_clause_that_is_there_twice_is_an_error(clause):
    with pytest.raises(ensue.QueryError, match="a second"):
        ensue.parse(f"SEQ(A a, B b) {clause} WITHIN 7 seconds {clause} WITHIN 8 seconds")
