"""Events that are read in batches, since there may be more than fit into memory: datasets, scanners, readers, files."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from ensue.backends.event_files import TEXT_FORMATS, EventFile, expand_pattern, open_dataset, require_files
from ensue.errors import EventError

ROWS = 1 << 17  # of a batch
READ_AHEAD = 4  # batches


@dataclass(frozen=True, eq=False)
class EventBatches:
    """Batches of events with one schema, read once."""

    schema: pa.Schema
    open: Callable[[], Iterable[pa.RecordBatch]]
    place: str = ""  # the files, for errors

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = None
        while True:
            try:
                batches = iter(self.open()) if batches is None else batches
                batch = next(batches, None)
            except (pa.ArrowException, OSError) as error:
                raise self._build_error(str(error).splitlines()[0]) from None
            if batch is None:
                return
            if not batch.schema.equals(self.schema):
                changed = sorted({*map(str, batch.schema)} ^ {*map(str, self.schema)})
                raise self._build_error(f"a batch has other columns than the first one: {', '.join(changed)}")
            yield batch

    def _build_error(self, reason: str) -> EventError:
        return EventError(f"cannot read events{f' from {self.place}' if self.place else ''}: {reason}")


def open_batches(events: Any, say: Callable[[str], None]) -> EventBatches | None:
    """Opens events that can be read in batches; None: they are read as a whole."""
    match events:
        case pa.RecordBatchReader():
            return EventBatches(events.schema, lambda: events)
        case pa.dataset.Scanner():
            return EventBatches(events.projected_schema, events.to_batches)
        case pa.dataset.Dataset():
            return EventBatches(events.schema, lambda: _scan(events))
        case str() | Path():
            return _open_files(str(events), say)
        case _:
            return None


def _open_files(path: str, say: Callable[[str], None]) -> EventBatches | None:
    """Opens Parquet or Arrow files with the same columns."""
    files = [EventFile(name) for name in expand_pattern(path)]
    require_files(files, lambda _: None)
    if any(file.form in TEXT_FORMATS for file in files):
        return None
    datasets = [open_dataset(file, file.form) for file in files]
    if any(not dataset.schema.equals(datasets[0].schema, check_metadata=True) for dataset in datasets[1:]):
        return None
    require_files(files, say)
    return EventBatches(datasets[0].schema, lambda: (b for dataset in datasets for b in _scan(dataset)), path)


def _scan(dataset: pa.dataset.Dataset) -> Iterator[pa.RecordBatch]:
    yield from dataset.to_batches(batch_size=ROWS, batch_readahead=READ_AHEAD, fragment_readahead=1)
