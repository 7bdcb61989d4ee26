"""The saved form of a matcher that stores keys: the events of all keys, and what it has learned.

Events are its whole state, so a matcher without a limit goes on from it too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.rows import rows_taken
from ensue.columns.stream import Shape, ends
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError

SPILLED = "spilled"
FORMAT = 1

Described = tuple[list[Any], npt.NDArray[np.bool_]]  # of a segment, and which rows are needed
Find = Callable[[str], Path | bytes]  # a segment by its name


@dataclass(frozen=True)
class Saved:
    """What a matcher goes on from."""

    now: float | None  # up to which everything is decided
    resident: pa.Table  # events of keys in memory; those of one key are in order
    stored: pa.Table  # of keys that are not, as far as they are not in segments
    misses: int = 0
    unknown_before: float | None = None  # events of keys in memory may be missing before
    plain: bytes | None = None  # then this is the state of a matcher that has matched them
    learned: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    segments: Sequence[Described] = ()  # that are kept elsewhere, once

    def packed(self) -> bytes:
        header: dict[str, Any] = {"format": FORMAT, "now": self.now, "misses": self.misses}
        header |= {"unknown before": self.unknown_before}
        header |= {"segments": [described for described, _ in self.segments]}
        marks = {f"alive {d[0]}": np.packbits(alive) for d, alive in self.segments}
        blobs = {"plain": self.plain} if self.plain is not None else {}
        blobs |= {"resident": to_bytes(self.resident), "stored": to_bytes(self.stored)}
        return packed({}, {}, {SPILLED: packed(header, self.learned | marks, blobs)})

    @classmethod
    def unpacked(cls, data: bytes, arrow: pa.Schema) -> "Saved":
        _, _, saved = unpacked(data)
        header, arrays, blobs = unpacked(saved[SPILLED])
        if header["format"] != FORMAT:
            raise StateError(
                f"stored keys were saved in format {header['format']}, this release reads "
                f"{FORMAT}\n  hint: use the release that saved it"
            )
        resident, stored = (from_bytes(blobs[n]).cast(arrow) for n in ("resident", "stored"))
        unknown, plain = header["unknown before"], blobs.get("plain")
        segments = []
        for described in header.get("segments", ()):
            marks = np.unpackbits(arrays.pop(f"alive {described[0]}"), count=described[1])
            segments.append((described, marks.astype(np.bool_)))
        given = (int(header["misses"]), unknown, plain, arrays, segments)
        return cls(header["now"], resident, stored, *given)

    def together(self, find: Find) -> "Saved":
        """The same with the events of all segments in it."""
        tables = [self.stored]
        for (name, *_), alive in self.segments:
            found = find(name)
            data = found if isinstance(found, bytes) else found.read_bytes()
            events = pa.ipc.open_file(data).read_all().cast(self.stored.schema)
            tables.append(events.filter(pa.array(alive)))
        return replace(self, stored=pa.concat_tables(tables), segments=())


class Plain(Protocol):
    """A matcher without a limit."""

    def replay(self, events: pa.Table, now: float | None, /) -> None: ...
    def restore(self, data: bytes, /) -> None: ...


def is_spilled(data: bytes) -> bool:
    """Whether a saved state is that of a matcher that stores keys."""
    return SPILLED in unpacked(data)[2]


def in_one(data: bytes, arrow: pa.Schema, find: Find) -> bytes:
    """A saved state whose segments are elsewhere, as one that has them inside."""
    if not is_spilled(data):
        return data
    return Saved.unpacked(data, arrow).together(find).packed()


def go_on(matcher: Plain, data: bytes, shape: Shape) -> None:
    """Lets a matcher without a limit go on where one that stored keys stopped."""
    saved = Saved.unpacked(data, shape.arrow)
    if saved.plain is not None:
        matcher.restore(saved.plain)
    else:
        events = pa.concat_tables([saved.resident, saved.stored])
        matcher.replay(ordered(events, shape), saved.now)


def ordered(events: pa.Table, shape: Shape) -> pa.Table:
    """Events by time; those of one key, which are in order, stay so."""
    times = ends(events, shape)
    if not len(times) or bool((times[1:] >= times[:-1]).all()):
        return events
    return rows_taken(events, np.argsort(times, kind="stable")).combine_chunks()
