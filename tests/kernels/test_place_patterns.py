"""Conditions on places in compiled patterns find what the semantics says, however it is cut."""

import math
from dataclasses import replace
from functools import lru_cache
from random import Random

import numba
import pyarrow as pa
import pytest

from ensue import reference as semantics
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.reference_events import read_events
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.vector.event_table import create_schema
from ensue.vector.match_rows import Matches
from support.seeds import scaled

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

UNCOMPILED = bool(numba.config.DISABLE_JIT)
QUERIES = {
    "distance": "SEQ(A a, B b) WHERE distance(a.location, b.location) <= 1",
    "same place": "SEQ(A a, B b) WHERE same_place(a.location, b.location, b.y)",
    "overlap": "AND(A a, B b) WHERE not overlaps(a.location, b.location)",
    "equal": "SEQ(A a, B b) WHERE inside(b.location, a.location)",
    "inside": "SEQ(A a, B b, C c, D d) WHERE inside(d.location, hull(a.location, b.location, c.location))",
    "hulls": "SEQ(A a, B b, C c, D d) WHERE overlaps(hull(a.location, d.location), hull(b.location, c.location))",
    "far": "SEQ(A a, B b, C c) WHERE distance(c.location, hull(a.location, b.location)) >= 1",
    "centre": "SEQ(A a, B b, C c) WHERE same_place(hull(a.location, b.location, c.location), b.location, 0.6)",
    "steps": "SEQ(A+ a[], B b) WHERE distance(a[i].location, a[i-1].location) <= 1 "
    "and distance(a[a.LEN].location, b.location) < 2",
    "absence": "SEQ(A a, !C c, B b) WHERE distance(a.location, c.location) < 2 WITHIN 6",
    "next": "SEQ(A a, B b) WHERE skip_till_next_match(a, b) { distance(a.location, b.location) < 2 }",
    "mixed": "SEQ(A a, B b) WHERE distance(a.location, point(1, b.y)) < 2 or b.location is null",
    "aggregate": "SEQ(A+ a[], B b) WHERE max(distance(a.location, point(180, 1))) < 180 + 150000 * b.y",
}
EVERY_DAY = ("distance", "inside", "steps")  # the others take a second or two to compile
GRID = (0.0, 1.0, 2.0, 3.0, None, math.nan)
DATE_LINE = (-180.0, -179.0, 179.0, 180.0, 181.0, None)


def cases() -> list:
    slow = () if UNCOMPILED else (pytest.mark.slow,)
    return [pytest.param(text, id=name, marks=() if name in EVERY_DAY else slow) for name, text in QUERIES.items()]


def events(random: Random, types: str, xs: tuple) -> pa.Table:
    rows = random.randrange(4, 11)
    return pa.table(
        {
            "t": pa.array(range(rows), pa.int64()),
            "type": pa.array([random.choice(types) for _ in range(rows)], pa.string()),
            "x": pa.array([random.choice(xs) for _ in range(rows)], pa.float64()),
            "y": pa.array([random.choice((0, 1, 2, None)) for _ in range(rows)], pa.int64()),
        }
    )


def prepared_for(text: str, table: pa.Table, space: str) -> CompiledQuery:
    return _prepared(text, table.schema, space)


@lru_cache(maxsize=1)  # many streams of one query come one after the other
def _prepared(text: str, columns: pa.Schema, space: str) -> CompiledQuery:
    shape = create_schema(columns, time="t", type="type", order=())
    schema = replace(shape.schema, location=("x", "y"), space=space)
    return compile_query(parse(text), replace(shape, schema=schema))


def rows_of(matches: Matches) -> list[tuple]:
    segments = {v: matches.segments(v) for v in sorted(matches.variables)}
    return sorted(
        tuple((v, *rows[at[k] : at[k + 1]].tolist()) for v, (at, rows) in segments.items())
        for k in range(matches.count)
    )


def wanted(prepared: CompiledQuery, table: pa.Table) -> list[tuple]:
    found = semantics.find_matches(prepared.query, read_events(table, prepared.shape.schema, "us"))
    return sorted(tuple((v, *(e.position for e in match[v])) for v in sorted(match)) for match in found)


@pytest.mark.parametrize("space", ["plane", "earth"])
@pytest.mark.parametrize("text", cases())
def test_an_engine_finds_what_the_semantics_says(text, space):
    random, found = Random(text), 0
    types = "".join(sorted({c for c in text if c in "ABCD"}))
    for number in range(60):
        if found and number >= scaled(20):
            break
        table = events(random, types, GRID if space == "plane" else DATE_LINE)
        prepared = prepared_for(text, table, space)
        engine = prepared.engine(nullable=True)
        assert isinstance(engine, Engine)
        assert prepared.plan.residual == ()  # nothing waits for finished matches
        cut = random.randrange(table.num_rows + 1)
        parts = [engine.process(table.slice(0, cut)), engine.process(table.slice(cut)), engine.on_watermark(math.inf)]
        matches = rows_of(concat_matches(parts, engine.program.source.output))
        meant = wanted(prepared, table)
        assert matches == meant, f"{text}\n{table.to_pydict()}"
        found += len(meant)
    assert found
