"""Lanes that processes of one machine pass on to each other.

Spark gives a lane's next micro-batch to any of its Python workers. The worker that did the last
one has the lane in memory; the others find its bytes in a folder of the machine, which is far
quicker to read than Spark's state store. What is there is only ever a copy: a stamp says of which
state, and a lane that is not found is built from the store.
"""

import contextlib
import os
import tempfile
from collections import OrderedDict
from pathlib import Path

from ensue.runners.lane_kinds import AnyLane

MOST_LIVE = 256  # lanes kept in the memory of a process
WORTH = 64 << 10  # bytes from which on a lane is worth a file

_live: OrderedDict[bytes, AnyLane] = OrderedDict()  # by stamp


class Shelf:
    """Live lanes by stamp: in the memory of the process, and as files beside it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder

    def take(self, stamp: bytes) -> AnyLane | None:
        """The live lane, which the caller now changes: it is no longer on the shelf."""
        return _live.pop(stamp, None)

    def copy(self, stamp: bytes) -> bytes | None:
        """The bytes of a lane that another process left."""
        if self.folder is None:
            return None
        try:
            return self._path(stamp).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, stamp: bytes, lane: AnyLane) -> None:
        """Keeps a lane in memory."""
        _live[stamp] = lane
        while len(_live) > MOST_LIVE:
            _live.popitem(last=False)

    def leave(
        self, stamp: bytes, lane: AnyLane, before: bytes, saved: bytes | None = None
    ) -> None:
        """Leaves a copy for other processes, in place of the one of the stamp `before`.

        `saved` are the bytes of the lane where they are known already.
        """
        if self.folder is None:
            return
        if lane.state_bytes >= WORTH:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(lane.save() if saved is None else saved)
            Path(name).rename(self._path(stamp))
        if before:
            with contextlib.suppress(FileNotFoundError):
                self._path(before).unlink()

    def _path(self, stamp: bytes) -> Path:
        assert self.folder is not None
        return self.folder / stamp.hex()


def forget_live() -> None:
    """Drops the lanes in memory, as if the process had ended."""
    _live.clear()
