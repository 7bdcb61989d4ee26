"""A stage that says itself where events go: whoever has subscribed to a value counts its events.

The smallest work of this kind: a subscription is the value of a column `k`, and a match is an
event with its number among those that it has seen. One that saw none by the end says so, too.
"""

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from ensue.engine.memory_budget import Usage
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeKind
from ensue.operators.subscriptions.catalog.version_pins import pin_version
from ensue.options import Limits
from ensue.runtime.job_fingerprint import FORMAT
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import BATCH, ROW, InputFilter, OutputTable, RoutedEvents, SubscriptionVersion

RESULT = pa.schema({"match_id": pa.string(), "subscription": pa.string(), "at": pa.int64(), "n": pa.int64()})
EVENTS = pa.schema({"at": pa.int64(), "k": pa.string()})
READS, LIMITS = InputFilter(None), Limits()
ADDED = pa.schema({"__who": pa.list_(pa.string())})


def key_group_of(name, key_groups):
    return zlib.crc32(name.encode()) % key_groups


def asked_at(log, version):
    return {change.name: (came, change.text) for came, change in log.alive(version)}


@dataclass(frozen=True)
class CountingStage:
    """What is asked is in a log of changes: the text of a subscription is the value it counts."""

    folder: str
    version: int | None = None  # None: it changes
    reads: InputFilter = READS
    outputs: tuple = (OutputTable(0, "", RESULT, 0, None),)
    whole_stream: str | None = None
    takes: Mapping = field(default_factory=dict)
    hold: int = 0
    arrival: tuple = (BATCH, ROW)
    limits: Limits = LIMITS
    added: pa.Schema = ADDED

    def spread(self, events, key_groups, batch):
        log = CatalogLog(self.folder)
        start = pin_version(log, batch.stream, batch.number) if batch is not None else None
        number = self.version if start is None else start.version
        wanted = {}
        for name, (came, value) in asked_at(log, number).items():
            names = wanted.setdefault(value, {}).setdefault(key_group_of(name, key_groups), [])
            names.append(f"{name}@{came}")
        rows, places, who = [], [], []
        for row, value in enumerate(events.column("k").to_pylist()):
            for key_group, names in wanted.get(value, {}).items():
                rows.append(row)
                places.append(key_group)
                who.append(names)
        version = None
        if start is not None:
            version = SubscriptionVersion(start.version, start.batch)
        added = pa.table({"__who": pa.array(who, ADDED.types[0])}, schema=ADDED)
        return RoutedEvents(np.array(rows, np.int64), np.array(places, np.int64), added, version)

    def matcher(self, key_group=0, key_groups=1):
        return Counting(self, key_group, key_groups)

    def table_matcher(self, key_group=0, key_groups=1):
        matcher = Counting(self, key_group, key_groups)
        matcher.renew(SubscriptionVersion(self.version, 0))
        return matcher

    def matches(self, found):
        return found[0].num_rows

    def iterate_outputs(self, found):
        yield 0, found[0]

    def iterate_forwarded(self, found):  # noqa: ARG002
        return iter(())


class Counting:
    def __init__(self, stage, key_group, key_groups):
        self.stage, self.key_group, self.key_groups = stage, key_group, key_groups
        self.counts, self.version = {}, 0

    def renew(self, version):
        log = CatalogLog(self.stage.folder)
        for came, change in log.changes(self.version, version.number):
            if change.kind is not ChangeKind.ADD:
                gone = [name for name in self.counts if name.startswith(f"{change.name}@")]
                self.counts = {k: n for k, n in self.counts.items() if k not in gone}
            if change.kind is not ChangeKind.CANCEL and key_group_of(change.name, self.key_groups) == self.key_group:
                self.counts[f"{change.name}@{came}"] = 0
        self.version = version.number

    def process(self, given):
        found = []
        events = given.events
        for at, who in zip(events.column("at").to_pylist(), events.column("__who").to_pylist(), strict=True):
            for name in who:
                if name in self.counts:  # else it was cancelled while the event waited
                    self.counts[name] += 1
                    asked = name.partition("@")[0]
                    found.append((f"{name}-{at}", asked, at, self.counts[name]))
        return [_table(found)]

    def on_watermark(self, now):
        if now != math.inf:
            return [_table([])]
        return [_table([(name, name.partition("@")[0], None, 0) for name, n in self.counts.items() if not n])]

    def next_timer(self):
        return None

    @property
    def usage(self):
        return Usage(len(self.counts)).add_bytes(len(self.snapshot()))

    def snapshot(self):
        return json.dumps([self.counts, self.version]).encode()

    def restore(self, data):
        self.counts, self.version = json.loads(data)


def _table(rows):
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in RESULT]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, RESULT, strict=True)], RESULT)


def counting(folder, *, key_groups=2, version=None, deliver_late=False):
    """The workload of one such stage, as far as runners ask for it."""
    source = SourceSchema(EVENTS, "at")
    stage = CountingStage(str(folder), version)
    text = json.dumps({"format": FORMAT, "queries": [{"name": None, "number": 0, "query": "counting"}]})
    chain = PipelinePlan((), source, (stage,), key_groups, text, deliver_late)
    return SimpleNamespace(
        chains=(chain,), source=source, outputs=stage.outputs, types=None, is_single=True,
        works=(), specs=(), deliver_late=deliver_late,
    )  # fmt: skip
