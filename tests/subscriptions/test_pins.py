"""The version of the set that a micro-batch uses is decided once."""

import multiprocessing
import os

import pytest

from ensue.errors import StateError
from ensue.workload.subscriptions.catalogue import pins
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.pins import Moment, moment_of, moments, pin

QUERY = "4a80494b-39b0-47c4-8fca-10573a1d2c78"


def seen(log, query=QUERY):
    return [(moment.version, moment.batch) for moment in moments(log, query)]


def test_a_repeated_micro_batch_finds_its_pin(tmp_path):
    log = Log(tmp_path)
    assert pin(log, QUERY, 0) == 0
    log.append([Change.add("a", "x")])
    assert pin(log, QUERY, 0) == 0
    assert pin(Log(tmp_path), QUERY, 1) == 1
    log.append([Change.add("b", "x")])
    log.append([Change.add("c", "x")])
    assert pin(log, QUERY, 1) == 1
    assert pin(log, QUERY, 2) == 3
    assert pin(log, QUERY, 3) == 3
    assert pin(log, "other", 0) == 3
    assert seen(log) == [(0, 0), (1, 1), (3, 2)]
    assert seen(log, "other") == [(3, 0)]
    assert moment_of(log, QUERY, 2) == moment_of(log, QUERY, 3)
    assert isinstance(moment_of(log, QUERY, 2), Moment)
    assert moment_of(log, QUERY, 4) is None
    assert pins.queries(log) == [QUERY, "other"]
    assert pins.in_use(log) == {3}


def _pins(folder, batches, answers):
    log = Log(folder)
    for batch in range(batches):
        version = pin(log, QUERY, batch)
        log.append([Change.add(f"{os.getpid()}-{batch}", "x")])
        answers.put((batch, version))


def test_tasks_that_ask_at_a_time_get_one_answer(tmp_path):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    log = Log(tmp_path)
    log.append([Change.add("a", "x")])
    tasks = [context.Process(target=_pins, args=(tmp_path, 1, answers)) for _ in range(4)]
    for task in tasks:
        task.start()
    got = {answers.get(timeout=60) for _ in tasks}
    for task in tasks:
        task.join(60)
    assert len(got) == 1
    assert log.latest() == 5


def test_who_dies_between_pin_and_moment_is_made_good_by_the_retry(tmp_path, monkeypatch):
    log = Log(tmp_path)
    created, calls = pins.created, []

    def dies(path, content):
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return created(path, content)

    monkeypatch.setattr(pins, "created", dies)
    with pytest.raises(KeyboardInterrupt):
        pin(log, QUERY, 0)
    assert seen(log) == []
    log.append([Change.add("a", "x")])
    assert pin(log, QUERY, 0) == 0
    assert seen(log) == [(0, 0)]


def test_a_pin_that_is_gone_is_not_made_anew(tmp_path):
    log = Log(tmp_path)
    for batch in range(3):
        pin(log, QUERY, batch)
    (tmp_path / "pins" / QUERY / "batches" / f"{1:012}").unlink()
    with pytest.raises(StateError, match=r"no longer known(.|\n)*hint: start the stream"):
        pin(log, QUERY, 1)


def test_a_torn_pin_is_an_error(tmp_path):
    log = Log(tmp_path)
    pin(log, QUERY, 0)
    (tmp_path / "pins" / QUERY / "batches" / f"{0:012}").write_text("")
    with pytest.raises(StateError, match="cannot be read"):
        pin(log, QUERY, 0)


def test_old_pins_go_and_moments_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(pins, "KEPT", 3)
    monkeypatch.setattr(pins, "_SWEPT_EVERY", 5)
    log = Log(tmp_path)
    for batch in range(11):
        log.append([Change.add(f"s{batch}", "x")])
        assert pin(log, QUERY, batch) == batch + 1
    left = sorted(int(path.name) for path in (tmp_path / "pins" / QUERY / "batches").iterdir())
    assert left == [7, 8, 9, 10]
    assert seen(log) == [(batch + 1, batch) for batch in range(11)]


def test_a_folder_seen_late_does_not_take_a_stream_back(tmp_path):
    log = Log(tmp_path)
    log.append([Change.add("a", "x")])
    pin(log, QUERY, 0)
    behind = Log(tmp_path)
    behind.latest = lambda: 0
    assert pin(behind, QUERY, 1) == 1


@pytest.mark.parametrize("name", ["", "../x", "a/b"])
def test_only_ids_of_queries_are_names_of_folders(tmp_path, name):
    with pytest.raises(ValueError, match="not the id of a query"):
        pin(Log(tmp_path), name, 0)
