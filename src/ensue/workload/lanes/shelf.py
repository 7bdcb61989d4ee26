"""Lanes that processes of one machine pass on to each other.

Spark gives a lane's next micro-batch to any of its Python workers. The worker that did the last
one has the lane in memory; the others find its bytes in a folder of the machine, which is far
quicker to read than Spark's state store. What is there is only ever a copy: a stamp says of which
state, and a lane that is not found is built from the store.

A stamp begins with what it has in common with all stamps of its lane. So a process keeps each
lane once: the one it did last. Where another process has gone on with a lane since, its copy has
taken the place of the one that was there, and the lane in memory is let go.
"""

import contextlib
import os
import tempfile
import time
from collections import OrderedDict
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ensue.workload.lanes.lane import Lane

MOST_LIVE = 256  # lanes kept in the memory of a process
MOST_BYTES = 1 << 30  # of their states; the lane of the last call is kept whatever its size
WORTH = 64 << 10  # bytes from which on a lane is worth a file
LONG = 3_600  # seconds after which a copy is taken for one of a stream that has ended
_SWEEP_EVERY = 600  # seconds
_LOOKED_AT = 8  # lanes in memory, of those not used for longest, that a call looks at
_OF_LANE = 8  # bytes of a stamp that all stamps of a lane have in common


@dataclass(frozen=True, slots=True)
class Live:
    """A lane in memory."""

    stamp: bytes
    lane: Lane
    bytes: int
    copy: Path | None  # where other processes find it


_live: OrderedDict[bytes, Live] = OrderedDict()  # by what the stamps of a lane have in common
_swept = float("-inf")  # when old copies were looked for


def next_stamp(before: bytes) -> bytes:
    """A new stamp of the lane that had the stamp `before`; of a new lane if that is empty."""
    return (before[:_OF_LANE] or os.urandom(_OF_LANE)) + os.urandom(16 - _OF_LANE)


class Shelf:
    """Live lanes by stamp: in the memory of the process, and as files beside it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def take(self, stamp: bytes) -> Lane | None:
        """The live lane, which the caller now changes: it is no longer on the shelf.

        Nor is one with another stamp of the lane: the store has gone another way.
        """
        found = _live.pop(stamp[:_OF_LANE], None)
        return None if found is None or found.stamp != stamp else found.lane

    def copy(self, stamp: bytes) -> bytes | None:
        """The bytes of a lane that another process left."""
        if self.folder is None:
            return None
        try:
            return self._path(stamp).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, stamp: bytes, lane: Lane) -> None:
        """Keeps a lane in memory, and lets go of what is stale or too much."""
        path = None if self.folder is None else self._path(stamp)
        copy = path if path is not None and path.exists() else None
        _live.pop(stamp[:_OF_LANE], None)
        for key, live in list(islice(_live.items(), _LOOKED_AT)):
            if live.copy is not None and not live.copy.exists():
                del _live[key]
        _live[stamp[:_OF_LANE]] = Live(stamp, lane, lane.state_bytes, copy)
        size = sum(live.bytes for live in _live.values())
        while len(_live) > 1 and (len(_live) > MOST_LIVE or size > MOST_BYTES):
            size -= _live.popitem(last=False)[1].bytes

    def leave(self, stamp: bytes, lane: Lane, before: bytes, saved: bytes | None = None) -> None:
        """Leaves a copy for other processes, in place of the one of the stamp `before`.

        `saved` are the bytes of the lane where they are known already.
        """
        if self.folder is None:
            return
        if lane.state_bytes >= WORTH:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(lane.save_apart() if saved is None else saved)
            Path(name).rename(self._path(stamp))
            self._sweep()
        if before:
            self._path(before).unlink(missing_ok=True)

    def drop_others(self, stamp: bytes) -> None:
        """Removes copies of the lane that no store has come to: its micro-batch was repeated."""
        if self.folder is None or not self.folder.exists():
            return
        for path in self.folder.glob(stamp[:_OF_LANE].hex() + "*"):
            if path.name != stamp.hex():
                path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Removes what streams that have ended and workers that were killed have left.

        A lane that has only been quiet so long is built from the store again.
        """
        global _swept  # noqa: PLW0603
        assert self.folder is not None
        if time.monotonic() - _swept < _SWEEP_EVERY:
            return
        _swept = time.monotonic()
        for path in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process does the same
                if time.time() - path.stat().st_mtime > LONG:
                    path.unlink()

    def _path(self, stamp: bytes) -> Path:
        assert self.folder is not None
        return self.folder / stamp.hex()


def live_lanes() -> list[tuple[bytes, Lane]]:
    """The lanes in the memory of this process by stamp, the last used one last."""
    return [(live.stamp, live.lane) for live in _live.values()]


def forget_live() -> None:
    """Drops the lanes in memory, as if the process had ended."""
    _live.clear()
