"""Nested sequences, conjunctions and disjunctions of one kind are one."""

from dataclasses import replace

import pytest

from ensue.ir.pattern import And, Atom, Maybe, Not, Or, Seq
from ensue.ir.query import Query
from ensue.ir.selection import ByUnits
from ensue.planner.rewrites import flatten

A, B, C, D = (Atom(t, t.lower()) for t in "ABCD")
D2 = Atom("D", "d2")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Seq((A, Seq((B, C)))), Seq((A, B, C))),
        (Seq((Seq((A, Seq((B,)))), C)), Seq((A, B, C))),
        (And((A, And((B, C)))), And((A, B, C))),
        (Or((Or((A, B)), C)), Or((A, B, C))),
        (Seq((A,)), A),
        (Seq((A, Maybe(Maybe(B)))), Seq((A, Maybe(B)))),
        (Seq((A, Maybe(Seq((B, Seq((C, D))))))), Seq((A, Maybe(Seq((B, C, D)))))),
        (Seq((A, Not(Seq((B, Seq((C,))))), D)), Seq((A, Not(Seq((B, C))), D))),
    ],
)
def test_what_it_splices(before, after):
    assert flatten(Query(before)).pattern == after


@pytest.mark.parametrize(
    "pattern",
    [
        Seq((A, And((B, C)))),
        And((A, Seq((B, C)))),
        Or((A, Seq((B, C)))),
        A,
        Seq((A, Seq((Not(D), B)))),  # anywhere before B, not only after A
        Seq((Seq((A, Not(D))), B)),
        Seq((A, Seq((Maybe(B), Not(D), C)))),
        And((A, And((B, C, Not(D))))),  # between B and C only
    ],
)
def test_what_it_leaves(pattern):
    assert flatten(Query(pattern)).pattern == pattern


@pytest.mark.parametrize(
    "pattern",
    [
        Seq((A, Seq((B, C)))),
        Seq((A, Seq((B, Not(D), C)))),
        Seq((Seq((A, Not(D), B)), Not(D2), C)),
        And((A, And((B, C)))),
        Or((Or((A, B)), Seq((C, Seq((D,)))))),
        Seq((A, Maybe(Maybe(B)), C)),
    ],
)
def test_it_keeps_the_matches(keeps_matches, case, pattern):
    text = "SEQ(A a, B b, C c, D d) WITHIN 5"
    query = replace(case(text).checked, pattern=pattern, within=ByUnits(5))
    keeps_matches(flatten, text, query=query)
