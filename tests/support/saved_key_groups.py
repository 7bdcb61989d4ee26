"""A task of subscriptions that is saved in the middle of its stream."""

import math
from pathlib import Path

import pyarrow as pa

from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_operator import (
    VERSION,
    RoutedSubscriptionStage,
    SubscriptionTaskMatcher,
)
from ensue.options import Limits
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import OutputTable, StageInput, SubscriptionVersion

EVENTS = pa.schema({"t": pa.int64(), "id": pa.int64(), "x": pa.float64(), "y": pa.float64()})
CHANGES = (
    {
        "left": "=|(@(R)(A); 9)(DIST(R; >; 3)(A)), A = (ARITH:id = 1)",
        "quiet": "!(A; 2)B, A = (ARITH:id = 2), B = (ARITH:id = 3)",
        "nobody": "!(20; 5)A, A = (ARITH:id = 9)",
        "gone": "=|(A; 9)A, A = (ARITH:id = 1)",
        "same": "=|($a;; 9)(ARITH:id = $a;.id, ARITH:x > 5), $a; = (ARITH:x < 5) WITH select = once",
    },
    {"later": "=|(A; 9)A, A = (ARITH:id = 2) WITH select = all"},
)
REGION = {"R": "POLYGON ((0 0, 4 0, 4 4, 0 4, 0 0))"}


def matcher(folder: Path) -> SubscriptionTaskMatcher:
    """The task of a new stream over a set with these changes; the last one cancels."""
    log = CatalogLog(folder)
    for texts in CHANGES:
        log.append(
            SubscriptionChange.add(name, text, regions=REGION if "(R" in text else {}) for name, text in texts.items()
        )
    log.append([SubscriptionChange.cancel("gone")])
    source = SourceSchema(EVENTS, "t", location=("x", "y"))
    output = OutputTable(0, "", build_notification_schema(source.shape), 0, None)
    stage = RoutedSubscriptionStage(SubscriptionsSpec(log, log.latest()), source, output, Limits(), streaming=True)
    return stage.matcher(0, 1)


def events(begin: int, end: int) -> pa.Table:
    """Three objects that go to and fro."""
    rows = [{"t": t, "id": t * 7 % 4, "x": float(t * 5 % 11), "y": 2.0} for t in range(begin, end)]
    return pa.Table.from_pylist(rows, schema=EVENTS)


def given(table: pa.Table, version: int) -> StageInput:
    return StageInput(table.append_column(VERSION, pa.array([version] * len(table), pa.int64())), {}, ())


def went_on(task: SubscriptionTaskMatcher, rest: pa.Table) -> list[str]:
    """What a task finds in the rest of its stream, after the last change of its set."""
    task.renew(SubscriptionVersion(3, 7, "stream"))
    found = [*task.process(given(rest, 3)), *task.on_watermark(60), *task.on_watermark(math.inf)]
    return sorted(f"{row['subscription']} {row['match_id']}" for t in found for row in t.to_pylist())


REST = events(13, 30)


def halfway(folder: Path) -> SubscriptionTaskMatcher:
    """A task in the middle of its stream; `REST` is what comes."""
    task = matcher(folder)
    task.renew(SubscriptionVersion(1, 0, "stream"))
    task.process(given(events(0, 8), 1))
    task.renew(SubscriptionVersion(2, 3, "stream"))
    task.process(given(events(8, 13), 2))
    task.on_watermark(12)
    return task
