"""What a read of an archive must give: every row judged by itself, in Python."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ensue.archives.archive import KEY, SINCE, UNTIL, ArchiveRead


def asked(
    rows: list[dict[str, Any]],
    wanted: ArchiveRead,
    *,
    time: tuple[str, str] = ("t", "t"),
    type: str | None = None,
    order: tuple[str, ...] = (),
) -> list[dict[str, Any]]:
    """The rows that belong to a piece, by (end, start, order, arrival)."""
    start, end = time
    pieces = wanted.pieces.to_pylist()
    found = [
        (row[end], row[start], tuple(row[o] for o in order), number, row)
        for number, row in enumerate(rows)
        if row[start] is not None
        and row[end] is not None
        and row[end] >= row[start]
        and (wanted.types is None or type is None or row[type] in wanted.types)
        and any(_belongs(row, piece, wanted.field, start, end) for piece in pieces)
    ]
    found.sort(key=lambda one: one[:4])
    columns = wanted.columns
    return [dict(r) if columns is None else {c: r[c] for c in columns} for *_, r in found]


def _belongs(row: Mapping[str, Any], piece: Mapping[str, Any], field: str | None, start: str, end: str) -> bool:
    if field is not None and (row[field] is None or row[field] != piece[KEY]):
        return False
    return (piece[SINCE] is None or row[start] >= piece[SINCE]) and (piece[UNTIL] is None or row[end] <= piece[UNTIL])


def pieces(*given: tuple[Any, Any, Any], key: pa.DataType, time: pa.DataType) -> pa.Table:
    """A table of (key, since, until)."""
    keys, since, until = zip(*given, strict=True) if given else ((), (), ())
    return pa.table({KEY: pa.array(keys, key), SINCE: pa.array(since, time), UNTIL: pa.array(until, time)})
