"""The key groups of a service on Spark in this process, in the place of Spark."""

import asyncio
import copy

import pyarrow as pa

from ensue.backends.spark.service_tasks import (
    RESULT_SCHEMA,
    ResultFiles,
    StepFiles,
    StoredKeyGroup,
    pack_steps,
    read_steps,
    unpack_steps,
)
from ensue.runtime.tasks.task_state import TaskCache
from ensue.service.matching.spark_backend import SparkBackend
from ensue.service.store import event_batches as batches
from support.key_groups import DictStore
from support.task_caches import forget_live


class Here:
    """A stream in this process, in the place of Spark. It lives on when a service is restarted."""

    def __init__(self, key_groups=2, lose=None, broken=None):
        self.key_groups = key_groups
        self.broken = broken  # why it does not go on
        self.lose = lose or (lambda: False)  # whether a micro-batch is lost before it is committed
        self.batch = 0
        self.stores = [DictStore() for _ in range(key_groups)]
        self.offset = self.plan_queries = 0
        self.repeated = 0
        self.parcels = []  # how many steps each of them had

    def tasks(self):
        return self.key_groups

    def stream(self, work, folder):
        self.work, self.folder = work, folder
        return self

    def start(self):
        pass

    stop = close = start

    def failure(self):
        """Called with every round: then it goes on by a micro-batch."""
        if self.broken is not None:
            return self.broken
        self.plan_queries = max(self.plan_queries, self.offset)
        if self.plan_queries == self.offset:  # else it is done again, up to where it was
            self.plan_queries = StepFiles(self.folder).last
        if self.plan_queries > self.offset:
            self.step(self.plan_queries)
        return None

    def step(self, last):
        rows = [
            row for piece in StepFiles(self.folder).between(self.offset, last) for row in read_steps(*piece).to_pylist()
        ]
        hands = [self.work.route_step(row["head"], row["body"]) for row in rows]
        stores = copy.deepcopy(self.stores)
        found = []
        for place in range(self.key_groups):
            some = [(r["position"], r["head"], h[place]) for r, h in zip(rows, hands, strict=True)]
            kept = StoredKeyGroup(stores[place], self.work, place, TaskCache())
            given = [pack_steps(some)]
            tables = kept.take(unpack_steps(given))
            kept.keep(given)
            found += [(place, position, table, None) for position, table in tables]
            found.append((place, kept.task.position, None, kept.task.format_counters()))
        table = pa.Table.from_pylist(
            [dict(zip(RESULT_SCHEMA.names, row, strict=True)) for row in found], schema=RESULT_SCHEMA
        )
        ResultFiles(self.folder).put(self.batch, table)
        if self.lose():  # whoever goes on does all of it again
            forget_live()
            self.repeated += 1
            return
        self.stores, self.offset = stores, last
        self.batch += 1
        self.parcels.append(len(rows))


def on(here):
    return lambda columns, limits, s: SparkBackend(columns, limits, s, here, here.key_groups)


async def answered(s, seconds=60.0):
    """Waits until all that was accepted is matched."""
    progress = s.core.matching.progress
    async with asyncio.timeout(seconds):
        while progress.delivered < await s.look(batches.get_last_position):
            await asyncio.sleep(0.01)
