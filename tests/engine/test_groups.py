"""Repeated groups: what the semantics says of them, and the reference engine piece by piece."""

from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from ensue import semantics
from ensue.algebra.pattern import Atom, Kleene, Leave, Repeat, Seq
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Binary, Field
from ensue.algebra.query import Query
from ensue.columns.stream import shape_of
from ensue.engine.reference import ReferenceEngine
from ensue.engine.reference_events import events_of
from ensue.errors import QueryError
from ensue.languages.patterns import parse
from ensue.plan.physical import Plan, Reference
from ensue.semantics import TooManyWays
from ensue.workload.prepared import prepare
from support.groups import random_groups
from support.streams import random_events, random_nature, random_slices

A, B, C = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
RISING = Binary(">", Field("b", "x", At.CURRENT), Field("b", "x", At.PREVIOUS))


def found(query: Query, events: pa.Table) -> list[dict[str, list[int]]]:
    shape = shape_of(events.schema, time="t", type="type", order=())
    matches = semantics.matches(query, events_of(events, shape.schema, shape.unit))
    return [{v: [e.position for e in es] for v, es in sorted(b.items())} for b in matches]


@pytest.mark.parametrize("leave", Leave)
@pytest.mark.parametrize("strategy", Strategy)
def test_a_group_of_one_event_is_a_kleene_variable(strategy, leave):
    random = Random(1)
    for _ in range(60):
        events = random_events(random, random.randint(3, 7))
        least, most = random.choice([(1, None), (0, None), (2, 3), (2, 2)])
        where = random.choice([(), (RISING,)])
        kleene = Query(Seq((A, Kleene(B, least, most, leave=leave), C)), strategy=strategy)
        kleene = replace(kleene, where=where)
        if random.random() < 0.3:
            other = Atom(random.choice("BC"), "c")
            kleene = replace(kleene, pattern=Seq((A, Kleene(B, least, most, leave=leave), other)))
        part = kleene.pattern.parts[1]
        group = Repeat(B, part.least, part.most, leave)
        repeated = replace(kleene, pattern=Seq((A, group, kleene.pattern.parts[2])))
        assert found(repeated, events) == found(kleene, events)


@pytest.mark.parametrize("strategy", Strategy)
def test_a_group_of_fixed_times_is_that_many_sequences(strategy):
    random = Random(2)
    first, second = (Atom("A", "a1"), Atom("B", "b1")), (Atom("A", "a2"), Atom("B", "b2"))
    for _ in range(120):
        events = random_events(random, random.randint(4, 9))
        group = Query(Seq((Repeat(Seq((A, B)), 2, 2), C)), strategy=strategy)
        flat = Query(Seq((*first, *second, C)), strategy=strategy)
        expected = [
            {"a": m["a1"] + m["a2"], "b": m["b1"] + m["b2"], "c": m["c"]}
            for m in found(flat, events)
        ]
        assert found(group, events) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.first_rounds(1)
def test_the_reference_engine_gives_the_same_piece_by_piece(seed):
    random, outcomes = Random(seed), Counter()
    for _ in range(150):
        nature = random_nature(random)
        text = random_groups(random, nature)
        events = random_events(random, random.randint(3, 8), nature)
        try:
            shape = shape_of(events.schema, time=nature.columns, type="type", order=())
            prepared = prepare(parse(text), shape)
        except QueryError:
            outcomes["refused"] += 1
            continue
        plan = Plan(prepared.plan.query, Reference("asked for"))
        schema = shape.physical(prepared.query)[1]
        expected = semantics.matches(prepared.query, events_of(events, shape.schema, shape.unit))
        engine = ReferenceEngine(plan, schema, shape.unit)
        given = []
        for piece in random_slices(random, events):
            given.append(engine.feed(piece))
            if random.random() < 0.3:
                saved = engine.save()
                engine = ReferenceEngine(plan, schema, shape.unit)
                engine.restore(saved)
        given.append(engine.finish())
        assert sum(m.count for m in given) == len(expected), text
        outcomes["matches" if expected else "nothing"] += 1
    assert outcomes["matches"] > 15, outcomes


def test_there_is_a_bound_on_the_ways_to_repeat_a_group():
    events = random_events(Random(3), 60)
    shape = shape_of(events.schema, time="t", type="type", order=())
    stream = events_of(events, shape.schema, shape.unit)
    for text in ("(A a, B b)+", "(A a, B b){9}", "(A? a, B? b, C c){12}"):
        with pytest.raises(TooManyWays):
            semantics.matches(parse(text), stream, most=1_000)
