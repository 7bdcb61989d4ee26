"""What Spark calls in its workers, called in this process, row by row: the rows reach who they are for."""

import json
import random
from collections import defaultdict
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row

import ensue
from ensue.backends.spark import backfill, batch, flush, stream
from ensue.backends.spark.match_frames import UnpackMatches
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.stage import MicroBatch
from ensue.runtime.tasks.backfill import BackfillCut
from ensue.runtime.tasks.task_state import TaskCache
from ensue.runtime.tasks.wire_format import KEY_GROUP, Control
from support.key_groups import DictStore
from support.stages import EVENTS, HIERARCHIES, job_of, readings, rows_of

READINGS = readings(random.Random(3), 500)
PACKED = pa.schema({"control": pa.string(), "query": pa.int32(), "matches": pa.binary()})


class Handle:
    """Spark's handle of a processor, whose timers never expire."""

    def registerTimer(self, ms):  # noqa: N802
        pass

    deleteTimer = registerTimer  # noqa: N815


class Times:
    def __init__(self, watermark_ms):
        self.watermark_ms = watermark_ms

    def getCurrentWatermarkInMs(self):  # noqa: N802
        return self.watermark_ms


class Query:
    """A streaming query over one chain, with its state."""

    def __init__(self, chain: PipelinePlan) -> None:
        self.chain = chain
        self.processors: dict[tuple[int, int], stream.StageProcessor] = {}
        self.watermark_ms = 0
        self.delivered: list[dict] = []

    def feed(self, events: pa.Table) -> None:
        """A micro-batch."""
        pack = stream.PackEvents(self.chain, "raise")
        rows = [Row(**row) for made in pack(iter(with_key_group(events))) for row in made.to_pylist()]
        for stage in range(len(self.chain.stages)):
            by_key = defaultdict(list)
            for row in rows:
                by_key[row[self.chain.grouped_by]].append(row)
            made = [row for key, given in by_key.items() for row in self._run(stage, key, given)]
            rows = [Row(**row) for row in pa.Table.from_pylist(made, schema=stream._FLOW).to_pylist()]
        self.delivered += [row.asDict() for row in rows]
        self.watermark_ms = max(self.watermark_ms, pc.max(events["t"]).as_py())

    def _run(self, stage, key, rows):
        if (stage, key) not in self.processors:
            processor = self.processors[stage, key] = stream.StageProcessor(self.chain, stage, 0)
            processor.handle, processor.store = Handle(), DictStore()
        times = Times(self.watermark_ms)
        return [row.asDict() for row in self.processors[stage, key].handleInputRows((key,), iter(rows), times)]

    def finish(self) -> list[dict]:
        """What the state in the stores still gives when the stream ends."""
        schema = pa.schema([*batch.STAGE_SCHEMA, pa.field("part", pa.string()), pa.field("place", pa.int32())])
        sent: list[dict] = []
        for stage in range(len(self.chain.stages)):
            parts = [row | {"part": flush._SENT, "place": 0} for row in sent]
            for (number, key), processor in self.processors.items():
                parts += state_parts(key, processor.store) if number == stage else ()
            batches = pa.Table.from_pylist(parts, schema=schema).to_batches()
            finished = flush.FinishStage(self.chain, stage)(iter(batches))
            sent = [row for made in finished for row in made.to_pylist()]
        return sent


def state_parts(key, store):
    head = store.head()
    counts = json.dumps({"parts": head.parts, "entries": head.entries}).encode()
    of = dict.fromkeys(batch.STAGE_SCHEMA.names) | {"through": key}
    yield of | {"part": "head", "place": 0, "blob": counts}
    for kind, blobs in (("snapshot", store.parts(head.parts)), ("log", store.entries(head.entries))):
        for place, blob in enumerate(blobs):
            yield of | {"part": kind, "place": place, "blob": blob}


def with_key_group(events):
    return events.append_column(KEY_GROUP, pa.array([0] * len(events), pa.int32())).to_batches()


def delivered(rows, unpack):
    """The rows that a stream of one output delivers."""
    packed = [
        {"control": row["control"], "query": row["output"], "matches": row["blob"]}
        for row in rows
        if row["output"] is not None or row["control"] == Control.LATE
    ]
    given = pa.RecordBatch.from_pylist(packed, schema=PACKED)
    return pa.Table.from_batches(list(unpack(iter([given]))), schema=unpack.result)


@pytest.fixture(autouse=True)
def _outside_spark(monkeypatch):
    """Tasks have no folder, and each call of `PackEvents` is a micro-batch."""
    numbers = count()
    monkeypatch.setattr(stream, "get_task_cache", TaskCache)
    monkeypatch.setattr(stream, "get_micro_batch", lambda: MicroBatch("stream", next(numbers)))


@pytest.mark.parametrize("hierarchy", ["two keys", "waiting"])
def test_a_stream_of_several_stages_has_the_matches_of_a_table(hierarchy):
    workload = job_of(HIERARCHIES[hierarchy], READINGS, streaming=True)
    (chain,), (output,) = workload.chains, workload.outputs
    query = Query(chain)
    for first in range(0, 500, 125):
        query.feed(READINGS.slice(first, 125))
    found = delivered(query.delivered + query.finish(), UnpackMatches(output.schema))
    wanted = ensue.match(READINGS, HIERARCHIES[hierarchy], **EVENTS)
    assert wanted.num_rows > 3
    assert rows_of(found) == rows_of(wanted)


def test_late_events_and_counters_travel_beside_the_matches():
    workload = job_of(HIERARCHIES["one cut"], READINGS, streaming=True, deliver_late=True)
    (chain,), (output,) = workload.chains, workload.outputs
    query = Query(chain)
    query.feed(READINGS.slice(300))
    query.feed(READINGS.slice(0, 300))  # all of them are late
    found = delivered(query.delivered, UnpackMatches(output.schema, workload.source.came))
    late = found.filter(pc.is_valid(found["late_event"]))
    assert late.num_rows == sum(row["late"] or 0 for row in query.delivered) > 100
    assert sum(row["matches"] or 0 for row in query.delivered) == found.num_rows - late.num_rows


def test_a_history_gives_its_matches_and_the_state_of_every_key_group():
    workload = job_of(HIERARCHIES["two keys"], READINGS, streaming=True)
    (chain,), (output,) = workload.chains, workload.outputs
    cut = BackfillCut(10**6, (100, 300))
    rows = [
        row
        for made in backfill.PackHistory(chain, cut, "raise")(iter(with_key_group(READINGS)))
        for row in made.to_pylist()
    ]
    for stage in range(len(chain.stages)):
        rows += backfill._mark_key_groups(chain, stage).to_pylist()
        rows.sort(key=lambda row: [row[name] for name in backfill._ORDER])
        batches = pa.Table.from_pylist(rows, schema=backfill._FLOW).to_batches()
        rows = [row for made in backfill.HistoryStage(chain, stage, cut)(iter(batches)) for row in made.to_pylist()]
    wanted = ensue.match(READINGS, HIERARCHIES["two keys"], **EVENTS)
    assert rows_of(delivered(rows, UnpackMatches(output.schema))) == rows_of(wanted)
    states = {(row["sender"], row["key_group"]) for row in rows if row["control"] == Control.STATE}
    assert len(states) == sum(chain.count_key_groups(stage) for stage in range(len(chain.stages)))
