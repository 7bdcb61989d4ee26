"""A stream in this process that writes its own archive, and that is killed at every point."""

from collections.abc import Callable
from copy import copy
from random import Random

import pyarrow as pa

from ensue.archives.delta_writer import commit
from ensue.archives.file_archive import FileArchive
from ensue.archives.parquet_writer import AddedFile
from ensue.runtime.tasks.wire_format import Control, Message, PackedTable, unpack_table
from ensue.runtime.workload import Workload
from support.key_groups import Stream, kind_of
from support.task_caches import forget_live

POINTS = ("tasks", "delivery", "archive")  # behind which an attempt may be killed
MOST_KILLS = 8


class ArchivingStream(Stream):
    """Micro-batches are tried until one is not killed; what was committed before stays."""

    def __init__(self, workload: Workload, delay_ms: int, archive: FileArchive, random: Random) -> None:
        early = random.random() < 0.5
        super().__init__(workload, delay_ms, forget=lambda: random.random() < 0.3, early=early)
        self.archive, self.random = archive, random
        self.number = 0  # of the micro-batch
        self.kills = self.commits = self.compactions = 0
        self.sink: dict[str, dict] = {}  # rows by id

    def tried(self, run: Callable[[], None]) -> None:
        """A micro-batch, tried until it is done."""
        while not self._attempt(run):
            self.kills += 1
        self.number += 1

    def _attempt(self, run: Callable[[], None]) -> bool:
        before = self._copied()
        point = self.random.choice((None, None, *POINTS)) if self.kills < MOST_KILLS else None
        sent = len(self.delivered)
        run()
        made = self.delivered[sent:]
        if point != "tasks":
            self._deliver_rows(made)
        if point not in ("tasks", "delivery"):
            files = [AddedFile.read(p.blob.decode()) for p in made if kind_of(p) == Control.ARCHIVED]
            if files:
                self.commits += commit(self.archive, files, "stream", self.number)
            if self.random.random() < 0.3:
                self.compactions += self.archive.compact(fewest=2).parts
        if point is None:
            return True
        self._restore(before)
        return False

    def _deliver_rows(self, made: list[Message]) -> None:
        for packed in made:
            if not isinstance(packed, PackedTable):
                continue
            for row in unpack_table(packed.blob)[1].to_pylist():
                known = self.sink.setdefault(row["match_id"], row)
                assert repr(known) == repr(row), "another row in the repetition"

    def _copied(self) -> tuple:
        stores = {place: dict(store.values) for place, store in self.stores.items()}
        counts = self.watermark_ms, self.batches, self.events, self.late, self.before_cut
        return stores, dict(self.timers), counts, copy(self.delivered)

    def _restore(self, before: tuple) -> None:
        stores, timers, counts, delivered = before
        for place, values in stores.items():
            self.stores[place].values = values
        self.timers, self.delivered = timers, delivered
        self.watermark_ms, self.batches, self.events, self.late, self.before_cut = counts
        if self.random.random() < 0.5:
            forget_live()

    def ended(self) -> list[dict]:
        """All rows, with those that only waited for the stream to end."""
        sent = len(self.delivered)
        self.end()
        self._deliver_rows(self.delivered[sent:])
        return list(self.sink.values())

    def recent(self) -> pa.Table:
        """The events that tasks have released and not archived."""
        from ensue.runtime.tasks.task import Task
        from ensue.runtime.tasks.task_state import rebuild_task

        found = []
        for place, store in self.stores.items():
            head, chain = store.head(), self.workload.chains[place[0]]
            task = Task(chain) if head is None else rebuild_task(store, head, chain)
            past = getattr(task.matcher, "past", None)
            pasts = [past] if past is not None else task.matcher.archived.values()
            found += [table for past in pasts if past.own for table in past.recent]
        return pa.concat_tables([self.archive.shape.arrow.empty_table(), *found])
