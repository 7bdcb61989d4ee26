"""A set is made ready at any version, from whatever is nearest."""

from dataclasses import dataclass

import pytest

from ensue.operators.subscriptions import subscription_loader as kept
from ensue.operators.subscriptions.catalog import catalog_snapshots as snapshots
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.catalog_snapshots import SubscriptionNames
from ensue.operators.subscriptions.catalog.change import ChangeKind, SubscriptionChange
from ensue.operators.subscriptions.subscription_loader import clear_set_cache, load_set


class Ready(dict):
    def settle(self):
        self["settled"] = list(self["taken"])


@dataclass(frozen=True)
class Named:
    """Sets of names, which note how they were made."""

    part: str = "names"

    def empty(self):
        return Ready(made="empty", names=set(), taken=[])

    def load(self, snapshot):
        names = {name for name, _, _ in SubscriptionNames.open(snapshot.part("names"))}
        return Ready(made=snapshot.version, names=names, taken=[])

    def take(self, ready, version, changes):
        ready["taken"].append(version)
        for change in changes:
            ready["names"].discard(change.name)
            if change.kind is not ChangeKind.CANCEL:
                ready["names"].add(change.name)


@pytest.fixture
def log(tmp_path):
    clear_set_cache()
    log = CatalogLog(tmp_path)
    for number in range(1, 9):
        log.append([SubscriptionChange.add(f"s{number}", "x")])
    yield log
    clear_set_cache()


def names(log, version):
    return {name for name, _, _ in log.names(version)}


def test_a_process_goes_on_from_what_it_has(log):
    first = load_set(log.folder, Named(), 3)
    assert (first["names"], first["taken"]) == (names(log, 3), [1, 2, 3])
    assert load_set(log.folder, Named(), 3) is first
    later = load_set(log.folder, Named(), 5)
    assert later is first
    assert (later["names"], later["taken"]) == (names(log, 5), [1, 2, 3, 4, 5])


def test_it_never_goes_back(log):
    later = load_set(log.folder, Named(), 5)
    earlier = load_set(log.folder, Named(), 2)
    assert (earlier["names"], earlier["taken"]) == (names(log, 2), [1, 2])
    assert later["names"] == names(log, 5)
    assert load_set(log.folder, Named(), 5) is later  # two streams at different versions


def test_a_later_one_may_do(log):
    later = load_set(log.folder, Named(), 5)
    assert load_set(log.folder, Named(), 2, later=True) is later
    assert load_set(log.folder, Named(), 7, later=True) is later
    assert later["settled"] == [1, 2, 3, 4, 5, 6, 7]


def test_it_begins_with_the_newest_snapshot(log):
    log.snapshot(4, {})
    log.snapshot(7, {})
    found = load_set(log.folder, Named(), 6)
    assert (found["made"], found["taken"]) == (4, [5, 6])
    assert found["names"] == names(log, 6)
    assert load_set(log.folder, Named("index"), 2)["made"] == "empty"


def test_few_changes_are_nearer_than_a_snapshot(log, monkeypatch):
    load_set(log.folder, Named(), 3)
    log.snapshot(6, {})
    assert load_set(log.folder, Named(), 6)["taken"] == [1, 2, 3, 4, 5, 6]
    clear_set_cache()
    load_set(log.folder, Named(), 3)
    monkeypatch.setattr(snapshots, "MIN_CHANGES", 3)
    found = load_set(log.folder, Named(), 7)
    assert (found["made"], found["taken"]) == (6, [7])


def test_a_damaged_snapshot_is_passed_over(log):
    log.snapshot(4, {})
    log.snapshot(6, {})
    (path,) = (log.folder / "snapshots" / f"{6:012}" / "names").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = load_set(log.folder, Named(), 7)
    assert (found["made"], found["names"]) == (4, names(log, 7))


def test_only_the_last_ones_are_kept(log, monkeypatch):
    monkeypatch.setattr(kept, "MAX_CACHED_SETS", 2)
    for version in (8, 7, 6):
        load_set(log.folder, Named(), version)
    assert len(kept._cache) == 2
    assert load_set(log.folder, Named(), 6)["taken"] == [1, 2, 3, 4, 5, 6]
