"""A negation pushed, looked up or left to a filter: always the matches of the semantics."""

from collections import Counter
from random import Random

import pytest
from tests.kernels.test_engine import UNCOMPILED, cases, given_by, interrupted, prepared_for, rows_of, wanted

from ensue.errors import QueryError
from ensue.planner.physical_plan import InstanceStacks, ReferencePlan
from support.negations import random_negations
from support.seeds import of_round, scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

WAYS = ((), ("push_negation",), ("negation_in_construction",), ("stacks",), ("stacks", "push_negation"))
SEEDS_AT_ONCE = 20
# compiled, a stream that lacks values from some row on has both kernels of a plan
NATURES = (PLAIN, Nature(nulls_from=5)) if UNCOMPILED else (Nature(nulls_from=5),)


def assert_every_way_is_exact(random: Random, *, simple: bool) -> str:
    nature = random_nature(random)
    text = random_negations(random, nature, simple=simple)
    events = random_events(random, random.randint(5, 12), nature)
    try:
        for way in WAYS if simple else WAYS[:2]:
            prepared = prepared_for(text, events, nature, way)
            if isinstance(prepared.plan.structure, ReferencePlan):
                return f"reference: {prepared.plan.structure.reason}"
            expected = wanted(prepared, events)
            pieces = [p for s in random_slices(random, events) for p in random_slices(random, s)]
            shown = f"{text} {way}\n{events.to_pydict()}\n{[p.num_rows for p in pieces]}"
            whole = given_by(prepared.engine(nullable=random.random() < 0.2), [events])
            assert rows_of(prepared, whole, events) == expected, shown
            cut = interrupted(random, prepared, events, pieces)
            assert rows_of(prepared, cut, events) == expected, shown
    except QueryError:
        return "refused"
    return "matches" if expected else "nothing"


@pytest.mark.skipif(not UNCOMPILED, reason="thousands of queries would be compiled")
@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("round", range(20))
@pytest.mark.parametrize("simple", [True, False], ids=["sequences", "every form"])
def test_every_way_is_exact(simple, round, monkeypatch):
    outcomes: Counter[str] = Counter()
    for seed in of_round(round, SEEDS_AT_ONCE):
        monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", (1, 2, 4, 1_024)[seed % 4])
        monkeypatch.setattr("ensue.engine.engine.FEW_CODES", (0, 4_096)[seed % 2])
        try:
            outcomes[assert_every_way_is_exact(Random(seed), simple=simple)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
    assert outcomes["matches"] > scaled(SEEDS_AT_ONCE) / 16, outcomes


CHOSEN = {
    "between": "SEQ(A a, !C c, B b) WHERE [k] WITHIN 6",
    "two adjacent": "SEQ(A a, !C c, !X x, B b, A d) WITHIN 8",
    "in two places": "SEQ(A a, !C c, B b, !C d, A e) WHERE c.x > 1 WITHIN 8",
    "of its neighbours' types": "SEQ(A a, !A c, !B d, B b) WHERE [k]",
    "beside one that is looked up": "SEQ(A a, !C c, !X x, B b) WHERE x.x = a.x WITHIN 4 EVENTS",
}


@pytest.mark.parametrize("text", CHOSEN.values(), ids=CHOSEN.keys())
def test_chosen_queries_are_exact_in_every_way(text, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    monkeypatch.setattr("ensue.engine.engine.FEW_CODES", 0)
    random = Random(text)
    for nature in NATURES:
        for way in WAYS[:3] if UNCOMPILED or text == CHOSEN["between"] else WAYS[:1]:
            for _ in range(6):
                events = random_events(random, random.randint(5, 10), nature)
                prepared = prepared_for(text, events, nature, way)
                structure = prepared.plan.structure
                assert isinstance(structure, InstanceStacks)
                assert bool(structure.pushed) == (way == ())
                pieces = random_slices(random, events)
                found = rows_of(prepared, interrupted(random, prepared, events, pieces), events)
                assert found == wanted(prepared, events)


OTHER_FORMS = {
    "of a sequence, on stacks": ("SEQ(A a, !SEQ(B n, C m), A b) WHERE n.s = a.s and m.x <= b.x WITHIN 8"),
    "of a sequence, at the end": "SEQ(A a, B+ b[], !SEQ(C n, X m)) WHERE [k] and n.x > 0 WITHIN 6",
    "of alternatives": "SEQ(!OR(SEQ(C n, B m), X o), A a, B b) WHERE m.x != o.x WITHIN 7",
    "in AND": "AND(A a, B+ b[], !C n, !SEQ(X m, C o)) WHERE n.x >= a.x WITHIN 5",
    "pushed into runs": "SEQ(A+ a[], B b, !C n, A d) WHERE [k] WITHIN 8",
    "beside a count": "SEQ(A a, B? x, !C n, A b) WHERE n.x >= count(x) + 1 WITHIN 8",
    "before what is counted": "SEQ(A a, !C n, (B x, A y)?, B b) WHERE n.x > count(y) WITHIN 8",
    "in AND beside its own": "SEQ(C c, AND(A a, A{1,2} b[], B d, !A n)) WHERE n.x > c.x WITHIN 8",
}


DEAR = ("in AND", "in AND beside its own", "of a sequence, at the end", "of alternatives")


@pytest.mark.parametrize("text", cases(OTHER_FORMS, DEAR))
def test_other_forms_are_exact(text, monkeypatch):
    monkeypatch.setattr("ensue.physical.structure.INITIAL_ROWS", 2)
    monkeypatch.setattr("ensue.engine.engine.FEW_CODES", 0)
    random, total = Random(text), 0
    for nature in NATURES:
        for _ in range(10):
            events = random_events(random, random.randint(6, 12), nature)
            prepared = prepared_for(text, events, nature)
            assert not isinstance(prepared.plan.structure, ReferencePlan)
            pieces = random_slices(random, events)
            found = rows_of(prepared, interrupted(random, prepared, events, pieces), events)
            assert found == wanted(prepared, events)
            total += len(found)
    assert total


def test_what_a_pushed_negation_forbids_is_not_held():
    events = random_events(Random(1), 10)
    events = events.set_column(events.column_names.index("type"), "type", [list("AAAACXXXXX")])
    engine = prepared_for("SEQ(A a, !C c, B b)", events).engine()
    engine.process(events.slice(0, 4))
    assert engine.get_held_rows().tolist() == [0, 1, 2, 3]
    engine.process(events.slice(4))
    assert engine.get_held_rows().tolist() == []
    assert engine.usage.partial_matches == 0
