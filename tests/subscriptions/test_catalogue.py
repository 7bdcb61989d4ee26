"""A set of subscriptions as a log of its changes: nothing is lost, whoever writes or dies."""

import multiprocessing
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import QueryError, StateError
from ensue.operators.subscriptions.catalog import catalog_snapshots as snapshots
from ensue.operators.subscriptions.catalog import change as change_file
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeKind, SubscriptionChange
from support.seeds import scaled

DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 0))"


def listed(folder):
    return sorted(path.name for path in folder.iterdir())


def replayed(versions):
    """The set as a plain dictionary, in the order in which they came."""
    alive = {}
    for number, changes in enumerate(versions, 1):
        for change in changes:
            alive.pop(change.name, None)
            if change.kind is not ChangeKind.CANCEL:
                alive[change.name] = number, change
    return list(alive.values())


@st.composite
def histories(draw):
    """Versions of changes that may follow each other."""
    alive, versions = set(), []
    for _ in range(draw(st.integers(1, 6))):
        changes = []
        for _ in range(draw(st.integers(1, 5))):
            kinds = [ChangeKind.ADD, *((ChangeKind.CANCEL, ChangeKind.REPLACE) if alive else ())]
            kind = draw(st.sampled_from(kinds))
            if kind is ChangeKind.ADD:
                name = draw(st.sampled_from([c for c in "abcdefghij" if c not in alive] or ["z"]))
                if name in alive:
                    continue
            else:
                name = draw(st.sampled_from(sorted(alive)))
            if kind is ChangeKind.CANCEL:
                alive.remove(name)
                changes.append(SubscriptionChange.cancel(name))
                continue
            alive.add(name)
            regions = {r: f"{DEPOT}{r}" for r in draw(st.sets(st.sampled_from("RST")))}
            options = draw(st.sampled_from([{}, {"within": 5}, {"x": [1, None, "é"]}]))
            language = draw(st.sampled_from([None, "opsl"]))
            text = draw(st.text(max_size=5))
            changes.append(SubscriptionChange(kind, name, text, language, regions, options))
        if changes:
            versions.append(changes)
    return versions


@settings(max_examples=scaled(60), deadline=None)
@given(histories(), st.sets(st.integers(1, 6)))
def test_reading_at_any_version_is_replaying_the_list(tmp_path_factory, versions, kept):
    log = CatalogLog(tmp_path_factory.mktemp("log"))
    for number, changes in enumerate(versions, 1):
        assert log.append(changes) == number
        if number in kept:
            log.snapshot(number, {})
    fresh = CatalogLog(log.folder)
    assert fresh.latest() == len(versions)
    assert fresh.total(fresh.latest()) == sum(map(len, versions))
    for version in range(len(versions) + 1):
        assert list(fresh.alive(version)) == replayed(versions[:version])
        behind = [(n, c) for n, v in enumerate(versions, 1) if n > version for c in v]
        assert list(fresh.changes(version)) == behind


def test_a_version_has_more_changes_than_are_in_memory_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(change_file, "ROWS", 7)
    log, names = CatalogLog(tmp_path), [f"s{k}" for k in range(50)]
    changes = [SubscriptionChange.add(n, n, regions={"R": f"{DEPOT}{len(n)}"}) for n in names]
    log.append(iter(changes))
    log.append([SubscriptionChange.cancel(name) for name in names[:45:2]])
    assert [c for _, c in log.changes(0, 1)] == changes
    left = [c for k, c in enumerate(changes) if k % 2 or k >= 45]
    assert [c for _, c in log.alive()] == left


def test_texts_of_regions_are_kept_once(tmp_path):
    log, text = CatalogLog(tmp_path), DEPOT * 1_000
    log.append(SubscriptionChange.add(f"s{k}", "x", regions={"R": text}) for k in range(100))
    (file,) = log.files()
    assert file.path.stat().st_size < 2 * len(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([SubscriptionChange.add("a", "x")], "there is a subscription 'a' already"),
        ([SubscriptionChange.add("b", "x"), SubscriptionChange.add("b", "y")], "there is a subscription 'b' already"),
        ([SubscriptionChange.cancel("aa")], "there is no subscription 'aa'\n  hint: did you mean 'a'"),
        ([SubscriptionChange.replace("c", "x")], "there is no subscription 'c'"),
        ([SubscriptionChange.cancel("a"), SubscriptionChange.replace("a", "x")], "there is no subscription 'a'"),
    ],
)
def test_changes_that_cannot_follow_are_refused_and_none_is_made(tmp_path, changes, message):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("a", "x")])
    with pytest.raises(QueryError, match=message):
        log.append(changes)
    assert log.latest() == 1
    assert listed(tmp_path / "changes") == ["000000000001"]


def test_no_changes_are_no_version(tmp_path):
    log = CatalogLog(tmp_path)
    assert log.append([]) == 0
    assert list(log.alive()) == []


# ------------------------------------------------------------------------------ writers at a time


def _write(folder, writer, count):
    log = CatalogLog(folder)
    for number in range(count):
        log.append(
            [SubscriptionChange.add(f"{writer}-{number}", "x"), SubscriptionChange.add(f"{writer}+{number}", "y")]
        )
        if number % 3 == 0:
            log.append([SubscriptionChange.cancel(f"{writer}-{number}")])


def _left(writers, count):
    return sorted(
        [f"{w}+{n}" for w in range(writers) for n in range(count)]
        + [f"{w}-{n}" for w in range(writers) for n in range(count) if n % 3]
    )


def test_threads_that_write_at_a_time_lose_nothing(tmp_path):
    threads = [threading.Thread(target=_write, args=(tmp_path, w, 12)) for w in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(change.name for _, change in CatalogLog(tmp_path).alive()) == _left(4, 12)


def test_processes_that_write_at_a_time_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_write, args=(tmp_path, w, 8)) for w in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 3
    assert sorted(change.name for _, change in CatalogLog(tmp_path).alive()) == _left(3, 8)


def test_of_two_who_add_the_same_name_one_is_refused(tmp_path, monkeypatch):
    log, other = CatalogLog(tmp_path), CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("first", "x")])
    link, raced = os.link, []

    def beaten(*args):
        if not raced:  # another writer comes between the look at the names and the link
            raced.append(other)
            other.append([SubscriptionChange.add("same", "theirs")])
        link(*args)

    monkeypatch.setattr(os, "link", beaten)
    with pytest.raises(QueryError, match="'same' already"):
        log.append([SubscriptionChange.add("same", "ours")])
    assert [c.text for _, c in log.alive()] == ["x", "theirs"]


def test_a_link_whose_answer_was_lost_is_not_made_twice(tmp_path, monkeypatch):
    link = os.link

    def deaf(*args):
        link(*args)
        raise FileExistsError

    monkeypatch.setattr(os, "link", deaf)
    log = CatalogLog(tmp_path)
    assert log.append([SubscriptionChange.add("a", "x")]) == 1
    assert log.latest() == 1


# ------------------------------------------------------------------------------ crashes


def _dies(folder, what, step):
    """Makes changes and a snapshot, and ends without a word before a step of it."""
    steps = iter(range(1_000))

    def counted(call):
        def counting(*args, **kwargs):
            if next(steps) == step:
                os._exit(9)
            return call(*args, **kwargs)

        return counting

    for name in ("fsync", "link"):
        setattr(os, name, counted(getattr(os, name)))
    for name in ("open", "unlink", "rename", "mkdir"):
        setattr(Path, name, counted(getattr(Path, name)))
    log = CatalogLog(folder)
    if what == "append":
        log.append([SubscriptionChange.add("new", "x"), SubscriptionChange.cancel("old")])
    else:
        log.snapshot(1, {})
    os._exit(0)


@pytest.mark.parametrize("what", ["append", "snapshot"])
def test_whoever_dies_at_any_step_leaves_all_or_nothing(tmp_path, what):
    context = multiprocessing.get_context("fork")
    code, step, seen = 9, 0, set()
    while code:
        folder = tmp_path / str(step)
        log = CatalogLog(folder)
        log.append([SubscriptionChange.add("old", "x")])
        process = context.Process(target=_dies, args=(folder, what, step))
        process.start()
        process.join(60)
        code = process.exitcode
        assert code in (0, 9)
        fresh = CatalogLog(folder)
        seen.add(tuple(sorted(change.name for _, change in fresh.alive())))
        version = fresh.append([SubscriptionChange.add("later", "x")])  # others go on as if nothing were
        fresh.snapshot(version, {})
        assert "later" in {change.name for _, change in CatalogLog(folder).alive()}
        step += 1
    assert step > 4
    assert seen == ({("old",), ("new",)} if what == "append" else {("old",)})


def test_what_the_killed_have_left_goes_after_a_while(tmp_path, monkeypatch):
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("a", "x")])
    left = tmp_path / "changes" / ".tmp-left"
    left.write_bytes(b"half")
    log.append([SubscriptionChange.add("b", "x")])
    assert left.exists()  # its writer may be at work
    os.utime(left, (1, 1))
    log.append([SubscriptionChange.add("c", "x")])
    assert not left.exists()


# ------------------------------------------------------------------------------ damage


def damaged_log(folder):
    log = CatalogLog(folder)
    for name in "abc":
        log.append([SubscriptionChange.add(name, "x" * 100)])
    return folder / "changes" / "000000000002"


@pytest.mark.parametrize("place", [3, 60, 900, 1_024, 1_500, -1])
def test_a_byte_that_changed_is_noticed(tmp_path, place):
    path = damaged_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    if place == 900:  # between the head and the tables: nobody reads it
        assert len(list(CatalogLog(tmp_path).changes())) == 3
        return
    with pytest.raises(StateError, match=r"000000000002 cannot be read(.|\n)*hint: restore"):
        list(CatalogLog(tmp_path).changes())


def test_a_file_that_is_cut_short_is_noticed(tmp_path):
    path = damaged_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(StateError, match=r"bytes instead of(.|\n)*hint"):
        list(CatalogLog(tmp_path).changes())


def test_a_file_of_another_version_is_noticed(tmp_path):
    path = damaged_log(tmp_path)
    shutil.copy(path.with_name("000000000001"), path)
    with pytest.raises(StateError, match="it holds version 1"):
        list(CatalogLog(tmp_path).changes())


def test_a_missing_version_is_noticed(tmp_path):
    damaged_log(tmp_path).unlink()
    with pytest.raises(StateError, match="000000000002 cannot be read: it is missing"):
        CatalogLog(tmp_path).latest()


def test_a_format_of_another_release_is_refused(tmp_path):
    path = damaged_log(tmp_path)
    data = bytearray(path.read_bytes())
    data[8] = 7
    path.write_bytes(data)
    with pytest.raises(StateError, match=r"format 7(.|\n)*hint: use the release that wrote it"):
        list(CatalogLog(tmp_path).changes())


def test_settings_are_the_same_for_ever(tmp_path):
    log = CatalogLog(tmp_path / "set")
    assert log.settings() is None
    log.settle({"time": "ts", "location": ("lon", "lat")})
    CatalogLog(tmp_path / "set").settle({"time": "ts", "location": ("lon", "lat")})
    with pytest.raises(StateError, match="has time='ts', not 'at'"):
        log.settle({"time": "at", "location": ("lon", "lat")})
    (tmp_path / "set" / "settings").write_text("{")
    with pytest.raises(StateError, match="cannot be read"):
        log.settings()
    (tmp_path / "set" / "settings").write_text('{"format": 8, "settings": {}}')
    with pytest.raises(StateError, match="format 8"):
        log.settings()


# ------------------------------------------------------------------------------ snapshots


class Part:
    """A part of a snapshot that is one file."""

    def __init__(self, text):
        self.text = text

    def save(self, folder):
        (folder / "text").write_text(self.text)


def test_the_newest_snapshot_that_is_whole_and_has_the_parts(tmp_path):
    kept = snapshots.CatalogSnapshots(tmp_path / "snapshots")
    assert kept.newest(9) is None
    for version in (2, 4, 6):
        kept.write(version, {"index": Part(f"at {version}")})
    kept.write(8, {"names": Part("")})
    assert kept.newest(9).version == 8
    assert kept.newest(9, "index").version == 6
    assert kept.newest(5).version == 4
    assert (kept.newest(5).part("index") / "text").read_text() == "at 4"
    assert kept.newest(1) is None
    (tmp_path / "snapshots" / "000000000006" / "index" / "text").write_text("at 5")
    assert kept.newest(7).version == 6
    assert kept.newest(7, checked=True).version == 4
    (tmp_path / "snapshots" / "000000000006" / "index" / "text").write_text("torn off")
    assert kept.newest(7).version == 4
    (tmp_path / "snapshots" / "000000000004" / "list").write_text("{")
    assert kept.newest(7).version == 2
    kept.write(4, {"index": Part("mended")})
    assert (kept.newest(5).part("index") / "text").read_text() == "mended"


def test_old_snapshots_go_but_for_those_that_streams_need(tmp_path):
    kept = snapshots.CatalogSnapshots(tmp_path)
    for version in range(1, 9):
        kept.write(version * 10, {"index": Part("")})
    kept.sweep({25})
    assert listed(tmp_path) == [f"{v:012}" for v in (20, 60, 70, 80)]


def test_a_part_that_fails_leaves_no_snapshot(tmp_path):
    class Full:
        def save(self, folder):
            (folder / "half").write_text("")
            raise OSError("no space left on device")

    kept = snapshots.CatalogSnapshots(tmp_path)
    with pytest.raises(OSError, match="no space"):
        kept.write(1, {"index": Full()})
    assert listed(tmp_path) == []


def test_a_snapshot_is_due_after_many_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(snapshots, "MIN_CHANGES", 3)
    log = CatalogLog(tmp_path)
    log.append([SubscriptionChange.add("a", "x"), SubscriptionChange.add("b", "x")])
    assert not log.snapshot_due(log.latest())
    log.append([SubscriptionChange.cancel("a")])
    assert log.snapshot_due(log.latest())
    log.snapshot(2, {})
    assert not log.snapshot_due(log.latest())
