"""The key groups of a service on Spark in this process, in the place of Spark."""

import asyncio
import copy
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import TimerValues

from ensue.backends.spark import stream
from ensue.backends.spark.service_stream import RESULT_COLUMNS, ResultFiles, StepFiles, read_step_batch
from ensue.backends.spark.state_store import get_stage_keys
from ensue.backends.spark.stream import _FLOW, PackSteps, StageProcessor
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

    def stream(self, chain, folder):
        self.chain, self.folder = chain, folder
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
        pieces = StepFiles(self.folder).between(self.offset, last)
        rows = pa.Table.from_batches([read_step_batch(*piece) for piece in pieces])
        given = [Row(**row) for made in PackSteps(self.chain)(iter(rows.to_batches())) for row in made.to_pylist()]
        stores = copy.deepcopy(self.stores)
        found = []
        for place, key in enumerate(get_stage_keys(self.chain, 0)):
            processor = StageProcessor(self.chain, 0, None)
            processor.store = stores[place]
            own = [row for row in given if row[self.chain.grouped_by] == key]
            with patch.object(stream, "get_task_cache", TaskCache):  # tasks have no folder
                found += [row.asDict() for row in processor.handleInputRows((key,), iter(own), TimerValues())]
        ResultFiles(self.folder).put(self.batch, pa.Table.from_pylist(found, schema=_FLOW).select(RESULT_COLUMNS))
        if self.lose():  # whoever goes on does all of it again
            forget_live()
            self.repeated += 1
            return
        self.stores, self.offset = stores, last
        self.batch += 1
        self.parcels.append(rows.num_rows)


def on(here):
    return lambda columns, limits, s: SparkBackend(columns, limits, s, here, here.key_groups)


async def answered(s, seconds=60.0):
    """Waits until all that was accepted is matched."""
    progress = s.core.matching.progress
    async with asyncio.timeout(seconds):
        while progress.delivered < await s.look(batches.get_last_position):
            await asyncio.sleep(0.01)
