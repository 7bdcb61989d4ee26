"""An engine against the semantics, on one query and one stream that is cut into pieces."""

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from random import Random

import pyarrow as pa

from ensue import reference as semantics
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.reference_events import read_events
from ensue.errors import QueryError
from ensue.parser.pattern_parser import parse
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.vector.event_table import create_schema
from support.seeds import scaled
from support.streams import PLAIN, Nature, random_events, random_nature, random_slices


def prepared_for(text: str, events: pa.Table, nature: Nature, off: tuple[str, ...] = ()) -> CompiledQuery:
    return _prepared(text, events.schema, nature, off)


@lru_cache(maxsize=1)  # many streams of one query come one after the other
def _prepared(text: str, schema: pa.Schema, nature: Nature, off: tuple[str, ...]) -> CompiledQuery:
    shape = create_schema(schema, time=nature.columns, type="type", order=())
    return compile_query(parse(text), shape, off=off)


def judged(
    text: str,
    events: pa.Table,
    pieces: list[pa.Table],
    nature: Nature,
    off: tuple[str, ...] = (),
    *,
    saved: bool = False,
) -> str:
    """Compares an engine with the semantics; says how it went.

    With `saved`, another engine takes up the state after each piece.
    """
    prepared = prepared_for(text, events, nature, off)
    shape, engine = prepared.shape, prepared.engine()
    if not isinstance(engine, Engine):
        return "reference"
    found = []
    for piece in pieces:
        found.append(engine.process(piece))
        if saved:
            data, engine = engine.snapshot(), prepared.engine()
            engine.restore(data)
    found.append(engine.on_watermark(math.inf))
    matches = concat_matches(found, engine.program.source.output)
    table = build_result(prepared, matches, events).select(list(matches.variables))
    given = [_written({v: _rows(row[v]) for v in row}) for row in table.to_pylist()]
    expected = [
        _written({v: [e.position for e in es] for v, es in binding.items()})
        for binding in semantics.find_matches(prepared.query, read_events(events, shape.schema, shape.unit))
    ]
    assert sorted(given) == sorted(expected), f"{text}\n{events.to_pydict()}"
    return "matches" if expected else "nothing"


def judged_often(text: str, random: Random, rounds: int, sizes: tuple[int, int]) -> None:
    """Compares a query that a kernel takes with the semantics on many streams."""
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        events = random_events(random, random.randint(*sizes))
        outcomes[judged(text, events, random_slices(random, events), PLAIN)] += 1
    assert outcomes["matches"]
    assert not outcomes["reference"]


def judged_at_random(seed: int, write: Callable[[Random, Nature], str], left_out: tuple[tuple[str, ...], ...]) -> None:
    """Compares random queries with the semantics, each without some rules of the planner."""
    random, outcomes = Random(seed), Counter[str]()
    for _ in range(scaled(30)):
        nature = random_nature(random)
        text, off = write(random, nature), random.choice(left_out)
        for _ in range(2):
            events = random_events(random, random.randint(3, 9), nature)
            try:
                outcomes[judged(text, events, random_slices(random, events), nature, off)] += 1
            except QueryError:
                outcomes["refused"] += 1
    assert outcomes["matches"] > 1, outcomes


def _rows(bound: object) -> list[int]:
    events = bound if isinstance(bound, list) else [] if bound is None else [bound]
    return [event["row"] for event in events]


def _written(binding: dict[str, list[int]]) -> tuple:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))
