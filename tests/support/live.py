"""A live matcher fed in pieces, now and then saved and built anew."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa

import ensue


def fed(
    pieces: Sequence[pa.Table], query: Any, *, schema: Any = None, random: Random | None = None, **options: Any
) -> dict[Any, pa.Table]:
    """All that a live matcher gives, by output; with `random` it is forgotten in between."""
    schema = pieces[0].schema if schema is None else schema
    live = ensue.live(query, schema=schema, **options)
    found: dict[Any, list[pa.Table]] = {}

    def keep(given: Any) -> None:
        for name, table in (given if isinstance(given, Mapping) else {"": given}).items():
            found.setdefault(name, []).append(table)

    for piece in pieces:
        rows = random is not None and random.random() < 0.3
        keep(live.feed(piece.to_pylist() if rows else piece))
        if random is not None and random.random() < 0.3:
            live = ensue.live(query, schema=schema, **options).restore(live.save())
    keep(live.finish())
    assert live.late == live.dropped == 0
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


def by_output(found: Any) -> dict[Any, pa.Table]:
    """What `ensue.match` gives, in the same shape."""
    return dict(found) if isinstance(found, Mapping) else {"": found}


def rows(found: Mapping[Any, pa.Table]) -> dict[Any, Counter[str]]:
    """The rows of each output, whatever their order."""
    return {name: Counter(map(repr, table.to_pylist())) for name, table in found.items()}
