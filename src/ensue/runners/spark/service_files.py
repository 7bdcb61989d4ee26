"""Files between a service and its stream: steps that go there, and what was found.

    steps/FIRST-LAST.arrow   steps that are matched together, by the numbers of the first and last
    found/BATCH.arrow        what a micro-batch found

Each is written under another name, made durable, and then gets its own: who sees it sees all of
it, and it is there after a power cut.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ensue.errors import StateError

STEPS = pa.schema({"position": pa.int64(), "head": pa.string(), "body": pa.binary()})
FOUND = pa.schema(  # a row with `counted` is the last of its lane, and says how far it has come
    {"lane": pa.int32(), "position": pa.int64(), "found": pa.binary(), "counted": pa.string()}
)
STEPS_FOLDER, FOUND_FOLDER = "steps", "found"
_HALF_WRITTEN = ".tmp-"
_SUFFIX = ".arrow"
_DIGITS = 16
_PIECE = 1 << 20  # bytes of steps from which on a task is worth it


class StepFiles:
    """The steps that are on their way, and the last ones that have arrived."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / STEPS_FOLDER

    def __iter__(self) -> Iterator[tuple[int, int, Path]]:
        """The numbers of the first and the last step of each file, in order."""
        for path in sorted(self.folder.glob(f"[0-9]*{_SUFFIX}")):
            first, _, last = path.stem.partition("-")
            yield int(first), int(last), path

    @property
    def last(self) -> int:
        """The number of the last step; 0: there is none."""
        return max((last for _, last, _ in self), default=0)

    def put(self, steps: pa.Table) -> None:
        """Sends steps."""
        first, last = steps["position"][0].as_py(), steps["position"][-1].as_py()
        name = f"{first:0{_DIGITS}}-{last:0{_DIGITS}}{_SUFFIX}"
        rows = max(1, steps.num_rows * _PIECE // max(_PIECE, steps.nbytes))
        _write(self.folder / name, steps, rows)

    def forget(self, upto: int) -> None:
        """Removes those that nobody reads again."""
        for _, last, path in self:
            if last <= upto:
                path.unlink(missing_ok=True)

    def between(self, after: int, upto: int) -> list[tuple[Path, int]]:
        """The pieces of the files that lie between two numbers."""
        found: list[tuple[Path, int]] = []
        if after < upto and not any(last == upto for _, last, _ in self):
            raise StateError(
                f"the steps behind {after} up to {upto} are missing in {self.folder}\n"
                "  hint: restore the folder together with the file of the service"
            )
        for _, last, path in self:
            if after < last <= upto:
                with pa.ipc.open_file(path) as reader:
                    found += [(path, piece) for piece in range(reader.num_record_batches)]
        return found


def steps_in(path: Path, piece: int) -> pa.RecordBatch:
    """A piece of a file."""
    with pa.ipc.open_file(path) as reader:
        return reader.get_batch(piece)


class FoundFiles:
    """What was found and is not delivered yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOUND_FOLDER

    def put(self, batch: int, found: pa.Table) -> None:
        """Leaves what a micro-batch found. One that is repeated takes its own place."""
        _write(self.folder / f"{batch:0{_DIGITS}}{_SUFFIX}", found)

    def oldest(self) -> tuple[int, Path] | None:
        """The oldest micro-batch that is there, and its file."""
        path = min(self.folder.glob(f"[0-9]*{_SUFFIX}"), default=None)
        return None if path is None else (int(path.stem), path)


def make_folders(folder: Path) -> None:
    """Makes the folders, and clears away what a writer has left that was killed."""
    for name in (STEPS_FOLDER, FOUND_FOLDER):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for left in (folder / name).glob(f"{_HALF_WRITTEN}*"):
            left.unlink(missing_ok=True)


def _write(path: Path, table: pa.Table, rows: int | None = None) -> None:
    written = path.with_name(f"{_HALF_WRITTEN}{path.name}")
    with written.open("wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
        file.flush()
        os.fsync(file.fileno())
    written.rename(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
