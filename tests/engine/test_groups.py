"""Repeated groups: what the semantics says of them, and the reference engine piece by piece."""

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.engine.reference_engine import ReferenceEngine
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.ir.expression import Binary, EventPosition, FieldRef
from ensue.ir.pattern import Atom, Kleene, LoopExit, Repeat, Seq
from ensue.ir.query import Query
from ensue.ir.selection import Strategy
from ensue.parser.pattern_parser import parse
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.reference import TooManyBindings
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.groups import random_groups
from support.seeds import scaled
from support.streams import random_events, random_nature, random_slices

A, B, C = Atom("A", "a"), Atom("B", "b"), Atom("C", "c")
RISING = Binary(">", FieldRef("b", "x", EventPosition.CURRENT), FieldRef("b", "x", EventPosition.PREVIOUS))


def found(query: Query, events: pa.Table) -> list[dict[str, list[int]]]:
    shape = create_schema(events.schema, time="t", type="type", order=())
    matches = semantics.find_matches(query, read_events(events, shape.schema, shape.unit))
    return [{v: [e.position for e in es] for v, es in sorted(b.items())} for b in matches]


@pytest.mark.parametrize("leave", LoopExit)
@pytest.mark.parametrize("strategy", Strategy)
def test_a_group_of_one_event_is_a_kleene_variable(strategy, leave):
    random = Random(1)
    for _ in range(scaled(60)):
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
    for _ in range(scaled(120)):
        events = random_events(random, random.randint(4, 9))
        group = Query(Seq((Repeat(Seq((A, B)), 2, 2), C)), strategy=strategy)
        flat = Query(Seq((*first, *second, C)), strategy=strategy)
        expected = [{"a": m["a1"] + m["a2"], "b": m["b1"] + m["b2"], "c": m["c"]} for m in found(flat, events)]
        assert found(group, events) == expected


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.first_rounds(1)
def test_the_reference_engine_gives_the_same_piece_by_piece(seed):
    random, outcomes = Random(seed), Counter()
    for _ in range(scaled(150)):
        nature = random_nature(random)
        text = random_groups(random, nature)
        events = random_events(random, random.randint(3, 8), nature)
        try:
            shape = create_schema(events.schema, time=nature.columns, type="type", order=())
            prepared = compile_query(parse(text), shape)
        except QueryError:
            outcomes["refused"] += 1
            continue
        plan = PhysicalPlan(prepared.plan.query, ReferencePlan("asked for"))
        schema = shape.physical(prepared.query)[1]
        expected = semantics.find_matches(prepared.query, read_events(events, shape.schema, shape.unit))
        engine = ReferenceEngine(plan, schema, shape.unit)
        given = []
        for piece in random_slices(random, events):
            given.append(engine.process(piece))
            if random.random() < 0.3:
                saved = engine.snapshot()
                engine = ReferenceEngine(plan, schema, shape.unit)
                engine.restore(saved)
        given.append(engine.on_watermark(math.inf))
        assert sum(m.count for m in given) == len(expected), text
        outcomes["matches" if expected else "nothing"] += 1
    assert outcomes["matches"] > scaled(15), outcomes


def test_there_is_a_bound_on_the_ways_to_repeat_a_group():
    events = random_events(Random(3), 60)
    shape = create_schema(events.schema, time="t", type="type", order=())
    stream = read_events(events, shape.schema, shape.unit)
    for text in ("(A a, B b)+", "(A a, B b){9}", "(A? a, B? b, C c){12}"):
        with pytest.raises(TooManyBindings):
            semantics.find_matches(parse(text), stream, most=1_000)


def test_there_is_a_bound_on_partial_matches_that_time_out():
    events = random_events(Random(3), 60)
    shape = create_schema(events.schema, time="t", type="type", order=())
    stream = read_events(events, shape.schema, shape.unit)
    query = replace(parse("SEQ(A a, B b, C c) WITHIN 30"), unfinished=True)
    assert len(semantics.find_matches(query, stream)) > 10
    with pytest.raises(TooManyBindings):
        semantics.find_matches(query, stream, most=10)
