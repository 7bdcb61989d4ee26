"""Stages that say themselves where events go, and of which something else is asked meanwhile."""

import pyarrow as pa
import pytest

from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from support.key_groups import Stream
from support.spreading import EVENTS, counting


def events(*rows):
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=EVENTS)


def counted(table):
    return sorted((row["subscription"], row["at"], row["n"]) for row in table.to_pylist() if row["n"])


@pytest.mark.parametrize("forget", [False, True])
@pytest.mark.parametrize("key_groups", [1, 3])
def test_what_is_asked_changes_between_micro_batches(tmp_path, forget, key_groups):
    log = CatalogLog(tmp_path)
    stream = Stream(counting(tmp_path, key_groups=key_groups), delay_ms=0, forget=lambda: forget)
    log.append(
        [SubscriptionChange.add("one", "a"), SubscriptionChange.add("two", "a"), SubscriptionChange.add("none", "z")]
    )
    stream.feed(events((1, "a"), (2, "b"), (3, "a")))
    log.append([SubscriptionChange.add("three", "a"), SubscriptionChange.cancel("two")])
    stream.feed(events((5, "a"), (4, "a"), (6, "b")))
    log.append([SubscriptionChange.replace("one", "b")])
    stream.feed(events((7, "a"), (8, "b")))
    stream.pause()
    found = stream.finish()
    assert counted(found) == [
        ("one", 1, 1),
        ("one", 3, 2),  # it came with 1
        ("one", 4, 3),
        ("one", 5, 4),
        ("one", 8, 1),
        ("three", 4, 1),
        ("three", 5, 2),
        ("three", 7, 3),
        ("two", 1, 1),  # the one of 3 waited until it was cancelled
    ]
    silent = [row["subscription"] for row in found.to_pylist() if not row["n"]]
    assert silent == ["none"]


def test_an_event_for_several_key_groups_counts_once_and_is_late_once(tmp_path):
    CatalogLog(tmp_path).append([SubscriptionChange.add(f"s{k}", "a") for k in range(20)])
    stream = Stream(counting(tmp_path, key_groups=4, deliver_late=True), delay_ms=0)
    stream.feed(events((1, "a"), (9, "a"), (9, "x")))
    stream.feed(events((10, "a"), (3, "a"), (4, "x")))
    stream.finish()
    assert (stream.events, stream.late) == (4, 1)
    assert stream.late_events().to_pylist() == [{"at": 3, "k": "a"}]
