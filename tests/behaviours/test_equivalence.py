"""`[attr]`: every event of a match has the same value, and partitions are what shares it."""

from datetime import datetime
from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.codegen import kernel_cache as cache
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.matching import match_in_order
from support.seeds import of_round, scaled
from support.streams import Nature, random_events

pytestmark = [
    pytest.mark.filterwarnings("ignore:no event is of type"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # uncompiled, scalars warn
]

BY_KEY = "SEQ(A a, B b) WHERE [k]"


@pytest.mark.everywhere
def test_events_of_one_key(matched):
    assert matched(BY_KEY, "AABB", k="pqqp") == [(0, 3), (1, 2)]


@pytest.mark.everywhere
def test_null_equals_nothing(matched):
    assert matched(BY_KEY, "AABB", k=["p", None, None, "p"]) == [(0, 3)]


@pytest.mark.everywhere
def test_nan_equals_not_even_itself(matched):
    nan = float("nan")
    assert matched(BY_KEY, "AABB", k=[1.0, nan, nan, 1.0]) == [(0, 3)]


@pytest.mark.everywhere
def test_negative_zero_is_zero(matched):
    assert matched(BY_KEY, "AB", k=[0.0, -0.0]) == [(0, 1)]


@pytest.mark.everywhere
def test_several_attributes(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "ABBB", k="pppq", s="xyxx") == [(0, 2)]


def test_attributes_one_by_one(matched):
    query = "SEQ(A a, B b) WHERE [k] and [s]"
    assert matched(query, "ABBB", k="pppq", s="xyxx") == [(0, 2)]


def test_a_null_in_one_of_several(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "AB", k="pp", s=["x", None]) == []


def test_texts_that_would_be_equal_when_glued_together(matched):
    query = "SEQ(A a, B b) WHERE [k, s]"
    assert matched(query, "AB", k=["ab", "a"], s=["c", "bc"]) == []


@pytest.mark.in_process("types that Spark does not have")
@pytest.mark.parametrize(
    "keys",
    [
        pa.array([True, False, True]),
        pa.array([1, 2, 1], pa.int8()),
        pa.array([1, 2, 1], pa.uint64()),
        pa.array([Decimal("1.10"), Decimal("1.20"), Decimal("1.10")]),
        pa.array([datetime(2026, 1, 1), datetime(2026, 1, 2), datetime(2026, 1, 1)]),
        pa.array(["ä", "b", "ä"]).dictionary_encode(),
        pa.array(["ä", "b", "ä"], pa.large_string()),
        pa.array(["", "b", ""]),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_every_kind(matched, keys):
    assert matched(BY_KEY, "ABB", k=keys) == [(0, 2)]


def test_a_kleene_variable_shares_the_key(matched):
    query = "SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [k] }"
    assert matched(query, "AAAB", k="pqpp") == [((0, 2), 3), ((2,), 3)]


# ------------------------------------------------------------------------------- by equalities


def test_equalities_of_all_variables(matched):
    query = "SEQ(A a, B b, C c) WHERE a.k = b.k and a.k = c.k"
    assert matched(query, "ABBCC", k="pqpqp") == [(0, 2, 4)]


def test_equalities_of_some_variables(matched):
    query = "SEQ(A a, B b, C c) WHERE a.k = c.k"
    assert matched(query, "ABC", k="pqp") == [(0, 1, 2)]


def test_an_equality_with_null_is_not_true(matched):
    assert matched("SEQ(A a, B b) WHERE a.k = b.k", "AB", k=pa.array([None, None], "string")) == []


@pytest.mark.everywhere(slow=True)
def test_partition_contiguity_takes_equalities_of_all_variables_as_its_key(matched):
    query = "SEQ(A c, B a) USING partition WHERE {}"
    assert matched(query.format("a.k = c.k"), "AAB", k=[1, 2, 1]) == [(0, 2)]
    assert matched(query.format("[k]"), "AAB", k=[1, 2, 1]) == [(0, 2)]
    counted = query.format("a.k = c.k") + " WITHIN 2 EVENTS"
    assert matched(counted, "AAB", k=[1, 2, 1]) == [(0, 2)]


@pytest.mark.parametrize(
    ("query", "by_key", "by_filter"),
    [
        ("A c THEN B a WHERE {}", [(0, 2), (1, 3)], []),
        ("SEQ(A c, B a) WHERE {} WITHIN 2 EVENTS", [(0, 2), (1, 3)], []),
        ("SEQ(A c, B a) WHERE {} AFTER MATCH SKIP PAST LAST EVENT", [(0, 2), (1, 3)], [(0, 2)]),
    ],
)
def test_equalities_change_neither_neighbours_nor_counts_nor_what_is_used_up(matched, query, by_key, by_filter):
    assert matched(query.format("[k]"), "AABB", k=[1, 2, 1, 2]) == by_key
    assert matched(query.format("a.k = c.k"), "AABB", k=[1, 2, 1, 2]) == by_filter


def test_an_absence_alone_lets_the_key_be_null(matched):
    keys = pa.array([None, 1], pa.int64())
    assert matched("SEQ(A a, !B b) WHERE a.k = b.k WITHIN 2", "AB", k=keys) == [(0,)]
    assert matched("SEQ(A a, !B b) WHERE [k] WITHIN 2", "AB", k=keys) == []


def test_a_chain_through_an_absent_sequence(matched):
    query = "AND(C a, !SEQ(B c, A d), B b) WHERE {} WITHIN 9"
    keys = pa.array([None, 1, 1, 2], pa.int64())
    for condition in ("[k]", "a.k = c.k and c.k = d.k and d.k = b.k"):
        assert matched(query.format(condition), "CCBB", k=keys) == [(1, 2)]


class Chained:
    """A random pattern of single events, and equalities that tie all of its variables."""

    def __init__(self, random: Random, *, in_order: bool) -> None:
        self.random = random
        self.names = iter("abcdefgh")
        self.positive: list[str] = []
        self.negated: list[str] = []
        self.pattern = self.several("SEQ" if in_order else random.choice(("SEQ", "AND")), in_order)
        self.in_order = in_order

    def several(self, operator: str, flat: bool) -> str:
        parts = [self.part(flat)]
        if self.random.random() < 0.4:
            parts.append(self.absence())
        parts += [self.part(flat) for _ in range(self.random.choice((1, 1, 2)))]
        if flat and not self.negated and self.random.random() < 0.5:
            follow = (f"THEN {self.random.choice(('NEXT', 'ANY', 'STRICT'))} {p}" for p in parts[1:])
            return " ".join([parts[0], *follow])
        return f"{operator}({', '.join(parts)})"

    def part(self, flat: bool) -> str:
        if not flat and self.random.random() < 0.2:
            event, other = self.event(self.positive), self.event(self.positive)
            return f"{self.random.choice(('SEQ', 'AND'))}({event}, {other})"
        return self.event(self.positive)

    def absence(self) -> str:
        if self.random.random() < 0.4:
            return f"!SEQ({self.event(self.negated)}, {self.event(self.negated)})"
        return f"!{self.event(self.negated)}"

    def event(self, among: list[str]) -> str:
        among.append(next(self.names))
        return f"{self.random.choice('ABC')} {among[-1]}"

    def chain(self) -> str:
        """In order each positive variable is tied to an earlier one, else to any other."""
        order = [*self.positive, *self.negated]
        if not self.in_order:
            self.random.shuffle(order)
        ties = [(self.random.choice(order[:k]), v) for k, v in enumerate(order) if k]
        self.random.shuffle(ties)
        return " and ".join("{}.k = {}.k".format(*self.random.sample(tie, 2)) for tie in ties)


STRATEGIES = ("", "", " USING strict", " USING next", " USING partition")


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(4))
def test_a_chain_of_equalities_means_the_key(round, monkeypatch):
    monkeypatch.setattr(cache, "interpreted", True)
    found = 0
    for seed in of_round(round, 40):
        random = Random(f"chains {seed}")
        using = random.choice(STRATEGIES)
        chained = Chained(random, in_order="next" in using)
        more = random.choice(("", f" and {chained.positive[0]}.x < 3"))
        within = random.choice((" WITHIN 6", " WITHIN 3", " WITHIN 6 LIMIT 1"))
        events = random_events(random, 14, Nature(nulls_from=random.choice((None, 0))))
        shape = create_schema(events.schema, time="t", type="type", order=())
        texts = [f"{chained.pattern}{using} WHERE {key}{more}{within}" for key in ("[k]", chained.chain())]
        try:
            queries = [compile_query(parse(text), shape) for text in texts]
        except QueryError:
            continue
        by_key, by_chain = (
            semantics.find_matches(q.query, read_events(events, shape.schema, shape.unit)) for q in queries
        )
        assert by_chain == by_key, (seed, texts)
        counts = [match_in_order(query, events).num_rows for query in queries]
        assert counts == [len(by_key)] * 2, (seed, texts)
        found += len(by_key)
    assert found > scaled(15)


THEFT = "EVENT SEQ (SHELF_READING x , ! (COUNT_READING y), EXIT_READING z) WHERE {} WITHIN 12 hours"
READINGS = pa.table(
    {
        "ts": [datetime(2026, 1, 5, hour) for hour in (8, 8, 9, 10, 11, 12, 21)],
        "reader": [
            "SHELF_READING",
            "SHELF_READING",
            "SHELF_READING",
            "COUNT_READING",
            "EXIT_READING",
            "EXIT_READING",
            "EXIT_READING",
        ],
        "id": ["bought", "stolen", "left late", "bought", "bought", "stolen", "left late"],
    }
)


@pytest.mark.everywhere
@pytest.mark.parametrize("condition", ["[id]", "x.id = y.id ∧ y.id = z.id"])
def test_the_theft_query_as_the_papers_print_it(runner, condition):
    found = runner.match(READINGS, THEFT.format(condition), time="ts", type="reader")
    assert sorted(row["x"]["id"] for row in found.to_pylist()) == ["left late", "stolen"]


# ------------------------------------------------------------------------------- mistakes


def test_an_unknown_attribute(matched):
    with pytest.raises(QueryError, match="unknown field 'kk'"):
        matched("SEQ(A a, B b) WHERE [kk]", "AB", k="pp")


def test_nested_values_are_no_keys(matched):
    with pytest.raises(QueryError, match="nested"):
        matched(BY_KEY, "AB", k=[[1], [1]])
