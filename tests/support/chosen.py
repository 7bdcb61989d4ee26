"""Random queries that a stream is fed to in pieces, against the reference semantics."""

from random import Random
from typing import Any

import pyarrow as pa

import ensue
from ensue import reference as semantics
from ensue.analyzer.output_mode import is_summarized
from ensue.engine.reference_events import read_events
from ensue.runtime.compiled_query import compile_query
from ensue.vector.event_table import create_schema
from support.live import fed
from support.streams import Nature, random_slices

Written = tuple[tuple[str, tuple[int, ...]], ...]


def expected(text: str, events: pa.Table, nature: Nature) -> list[Written] | list[int]:
    """The matches by the reference semantics, as rows of the events; of counted ones their numbers."""
    shape = create_schema(events.schema, time=nature.columns, type="type", order=())
    checked = compile_query(ensue.parse(text), shape).query
    given = read_events(events, shape.schema, shape.unit)
    if is_summarized(checked):
        return sorted(1 if checked.exists else row.count for row in semantics.summarize_matches(checked, given))
    found = semantics.find_matches(checked, given)
    return sorted(_written({v: [e.position for e in es] for v, es in b.items()}) for b in found)


def in_one(text: str, events: pa.Table, nature: Nature, **options: Any) -> list[Written] | list[int]:
    """What `ensue.match` finds in the whole table."""
    return written(ensue.match(events, text, time=nature.columns, type="type", **options))


def in_pieces(text: str, events: pa.Table, nature: Nature, random: Random) -> list[Written] | list[int]:
    """What a live matcher finds, fed in pieces, now and then saved and built anew."""
    cut = [piece for piece in random_slices(random, events) if piece.num_rows]
    found = fed(cut, text, random=random, time=nature.columns, type="type")
    return written(found[""])


def written(found: pa.Table) -> list[Written] | list[int]:
    """The matches of a result, as rows of the events; of counted ones their numbers."""
    names = [n for n in found.column_names if n not in ("match_id", "start", "end")]
    if names in ([], ["count(*)"]):
        return sorted(row.get("count(*)", 1) for row in found.to_pylist())
    return sorted(_written({n: _places(match[n]) for n in names}) for match in found.to_pylist())


def _places(bound: Any) -> list[int]:
    if bound is None:
        return []
    return [event["row"] for event in (bound if isinstance(bound, list) else [bound])]


def _written(binding: dict[str, list[int]]) -> Written:
    return tuple(sorted((v, tuple(rows)) for v, rows in binding.items() if rows))
