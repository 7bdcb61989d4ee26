"""The negation of a disjunction is negations of its parts."""

import pytest

from ensue.ir.expression import Binary, FieldRef
from ensue.ir.pattern import Atom, Not, Or, Seq
from ensue.ir.query import Query
from ensue.planner.rewrites import split_negations

A, B, C, D = (Atom(t, t.lower()) for t in "ABCD")


def test_each_alternative_is_negated():
    query = Query(Seq((A, Not(Or((B, C))), D)))
    assert split_negations(query).pattern == Seq((A, Not(B), Not(C), D))


def test_inside_other_parts():
    query = Query(Or((D, Seq((A, Not(Or((B, Seq((C, D)))))))))).pattern
    after = split_negations(Query(query)).pattern
    assert after == Or((D, Seq((A, Not(B), Not(Seq((C, D)))))))


def test_conditions_that_tie_the_alternatives_keep_them_together():
    tied = Binary("=", FieldRef("b", "x"), FieldRef("c", "x"))
    query = Query(Seq((A, Not(Or((B, C))), D)), where=(tied,))
    assert split_negations(query) == query


@pytest.mark.parametrize(
    "text",
    [
        "SEQ(A a, !OR(B b, C c), D d) WITHIN 6",
        "SEQ(A a, !OR(B b, C c), D d) WHERE b.x > a.x and c.x > d.x WITHIN 6",
        "SEQ(!OR(B b, C c), A a, D d) WHERE b.x > 1 WITHIN 4",
        "SEQ(A a, D d, !OR(B b, C c)) WHERE [k] WITHIN 4",
        "SEQ(A a, !OR(B b, SEQ(C c, B e)), D d) WITHIN 6",
        "AND(A a, D d, !OR(B b, C c)) WITHIN 6",
        "SEQ(A+ a[], !OR(B b, C c), D d) WHERE b.x = d.x and c.x < count(a) WITHIN 6",
        "SEQ(A a, !OR(B b, C c), D d) WHERE skip_till_next_match(a, d) { b.x = d.x } WITHIN 6",
    ],
)
def test_it_keeps_the_matches(keeps_matches, text):
    keeps_matches(split_negations, text)
