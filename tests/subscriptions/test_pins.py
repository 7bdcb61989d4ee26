"""The version of the set that a micro-batch uses is decided once."""

import multiprocessing
import os

import pytest

from ensue.errors import StateError
from ensue.operators.subscriptions.catalog import version_pins as pins
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.catalog.version_pins import (
    VersionStart,
    find_version_start,
    list_version_starts,
    pin_version,
)

QUERY = "4a80494b-39b0-47c4-8fca-10573a1d2c78"


def seen(log, query=QUERY):
    return [(moment.version, moment.batch) for moment in list_version_starts(log, query)]


def test_a_repeated_micro_batch_finds_its_pin(tmp_path):
    log = CatalogLog(tmp_path)
    assert pin_version(log, QUERY, 0).version == 0
    log.append([SubscriptionChange.add("a", "x")])
    assert pin_version(log, QUERY, 0).version == 0
    assert pin_version(CatalogLog(tmp_path), QUERY, 1).version == 1
    log.append([SubscriptionChange.add("b", "x")])
    log.append([SubscriptionChange.add("c", "x")])
    assert pin_version(log, QUERY, 1).version == 1
    assert pin_version(log, QUERY, 2).version == 3
    assert pin_version(log, QUERY, 3).version == 3
    assert pin_version(log, "other", 0).version == 3
    assert seen(log) == [(0, 0), (1, 1), (3, 2)]
    assert seen(log, "other") == [(3, 0)]
    assert find_version_start(log, QUERY, 2) == find_version_start(log, QUERY, 3)
    assert isinstance(find_version_start(log, QUERY, 2), VersionStart)
    assert find_version_start(log, QUERY, 4) is None
    assert pins.list_streams(log) == [QUERY, "other"]
    assert pins.find_used_versions(log) == {3}


def _pins(folder, batches, answers):
    log = CatalogLog(folder)
    for batch in range(batches):
        version = pin_version(log, QUERY, batch).version
        log.append([SubscriptionChange.add(f"{os.getpid()}-{batch}", "x")])
        answers.put((batch, version))


def test_tasks_that_ask_at_a_time_get_one_answer(tmp_path):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("a", "x")])
    tasks = [context.Process(target=_pins, args=(tmp_path, 1, answers)) for _ in range(4)]
    for task in tasks:
        task.start()
    got = {answers.get(timeout=60) for _ in tasks}
    for task in tasks:
        task.join(60)
    assert len(got) == 1
    assert log.latest() == 5


def test_a_pin_that_is_gone_is_not_made_anew(tmp_path):
    log = CatalogLog(tmp_path)
    for batch in range(3):
        pin_version(log, QUERY, batch)
    (tmp_path / "pins" / QUERY / f"{1:012}").unlink()
    with pytest.raises(StateError, match=r"no longer known(.|\n)*hint: start the stream"):
        pin_version(log, QUERY, 1)


def test_a_torn_pin_is_an_error(tmp_path):
    log = CatalogLog(tmp_path)
    pin_version(log, QUERY, 0)
    (tmp_path / "pins" / QUERY / f"{0:012}").write_text("")
    with pytest.raises(StateError, match="cannot be read"):
        pin_version(log, QUERY, 0)


def test_old_pins_go_but_for_the_first_of_each_version(tmp_path, monkeypatch):
    monkeypatch.setattr(pins, "KEPT_PINS", 3)
    monkeypatch.setattr(pins, "_SWEPT_EVERY", 5)
    log = CatalogLog(tmp_path)
    for batch in range(11):
        if batch % 3 == 0:
            log.append([SubscriptionChange.add(f"s{batch}", "x")])
        assert pin_version(log, QUERY, batch).version == batch // 3 + 1
    left = sorted(int(path.name) for path in (tmp_path / "pins" / QUERY).iterdir())
    assert left == [0, 3, 6, 7, 8, 9, 10]
    assert seen(log) == [(1, 0), (2, 3), (3, 6), (4, 9)]


def test_a_folder_seen_late_does_not_take_a_stream_back(tmp_path):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("a", "x")])
    pin_version(log, QUERY, 0)
    behind = CatalogLog(tmp_path)
    behind.latest = lambda: 0
    assert pin_version(behind, QUERY, 1).version == 1


@pytest.mark.parametrize("name", ["", "../x", "a/b"])
def test_only_ids_of_queries_are_names_of_folders(tmp_path, name):
    with pytest.raises(ValueError, match="not the id of a query"):
        pin_version(CatalogLog(tmp_path), name, 0)
