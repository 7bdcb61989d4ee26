"""Queries exactly as papers print them."""

import pytest

from ensue.ir.expression import Aggregate, Binary, EventPosition, FieldRef, Literal
from ensue.ir.pattern import Atom, Kleene, Not, Seq
from ensue.ir.query import Equivalence
from ensue.ir.selection import ByTime, ByUnits, Strategy
from ensue.parser.pattern_parser import parse
from ensue.printing.pattern_printer import format_query

SASE = "EVENT SEQ(A a, B b, ! (C c), D d)\nWHERE [ attr1 ] ∧ d. attr2 = '1'\nWITHIN20"
SASE_PLUS = """PATTERN SEQ(Stock+ a[ ], Stock b)
WHERE skip_till_next_match(a[ ], b) {
    [symbol]
    and a[1]. volume > 1000
    and a[i]. price > avg(a[.. i-1]. price)
    and b. volume < 80% * a[a.LEN]. volume }
WITHIN 1 hour"""
THEFT = (
    "EVENT SEQ (SHELF_READING x , ! (COUNT_READING y), EXIT_READING z) WHERE x.id = y.id ∧ y.id = z.id WITHIN 12 hours"
)
THEFT_BY_ID = "EVENT SEQ (SHELF_READING x , ! (COUNT_READING y), EXIT_READING z) WHERE [id] WITHIN 12 hours"
ZEUS = (
    "PATTERN ClientPMs+ A[] -> DataTransPMs+ B[] -> ClientCancel C "
    "WHERE skip_till_next_match(A[], B[], C) { A[i].appId = 'app1' and "
    "B[i].endpoint = 'zeus-1' and C.appId = 'app1' } WITHIN 5 min "
    "RETURN percentile(A.responseTime, 90), avg(B.inTransferRate) "
    "HAVING percentile(A.responseTime, 90) > 100 or avg(B.inTransferRate) < 128"
)


def test_a_query_with_negation_between_events():
    query = parse(SASE)
    assert query.pattern == Seq((Atom("A", "a"), Atom("B", "b"), Not(Atom("C", "c")), Atom("D", "d")))
    assert query.equivalence == (Equivalence("attr1"),)
    assert query.where == (Binary("=", FieldRef("d", "attr2"), Literal("1")),)
    assert query.within == ByUnits(20)
    assert query.strategy is Strategy.ANY


def test_rising_prices_and_then_a_fall_in_volume():
    query = parse(SASE_PLUS)
    assert query.pattern == Seq((Kleene(Atom("Stock", "a"), 1, None), Atom("Stock", "b")))
    assert query.strategy is Strategy.NEXT
    assert query.equivalence == (Equivalence("symbol"),)
    before = Aggregate("avg", "a", FieldRef("a", "price", EventPosition.BEFORE), EventPosition.BEFORE)
    assert query.where == (
        Binary(">", FieldRef("a", "volume", EventPosition.NTH, 1), Literal(1000)),
        Binary(">", FieldRef("a", "price", EventPosition.CURRENT), before),
        Binary("<", FieldRef("b", "volume"), Binary("*", Literal(0.8), FieldRef("a", "volume", EventPosition.LAST))),
    )
    assert query.within == ByTime(3600 * 10**9)


def test_a_theft_is_an_exit_without_a_counter():
    query = parse(THEFT)
    assert query.where == (
        Binary("=", FieldRef("x", "id"), FieldRef("y", "id")),
        Binary("=", FieldRef("y", "id"), FieldRef("z", "id")),
    )
    assert parse(THEFT_BY_ID).equivalence == (Equivalence("id"),)
    assert parse(THEFT_BY_ID).pattern == query.pattern


def test_aggregates_over_a_match():
    query = parse(ZEUS)
    assert [r.name for r in query.returns] == ["percentile(A.responseTime, 90)", "avg(B.inTransferRate)"]
    assert query.returns[0].expr == Aggregate(
        "percentile", "A", FieldRef("A", "responseTime", EventPosition.ALL), EventPosition.ALL, 90.0
    )


def test_the_canonical_text():
    assert (
        format_query(parse(SASE_PLUS))
        == """PATTERN SEQ(Stock+ a[], Stock b)
WHERE skip_till_next_match(a[], b) {
    [symbol]
    and a[1].volume > 1000
    and a[i].price > avg(a[..i-1].price)
    and b.volume < 0.8 * a[a.LEN].volume
}
WITHIN 1 hour"""
    )


@pytest.mark.parametrize("text", [SASE, SASE_PLUS, THEFT, THEFT_BY_ID, ZEUS])
def test_they_survive_printing(text):
    assert parse(format_query(parse(text))) == parse(text)
