"""A table of nodes that was saved and opened goes on like the one that was not."""

from random import Random

import numpy as np
import pytest

from ensue.errors import StateError
from ensue.operators.subscriptions.network_table import NetworkTable
from support.fleets import Nodes, random_events
from support.seeds import some
from support.subscriptions import Bounds, random_subscription

NO_PLACES = Bounds(places=False)


def changed(random, tables, alive, count):
    """Adds and cancels the same in several tables."""
    for _ in range(count):
        if alive and random.random() < 0.4:
            name = random.choice(sorted(alive))
            numbers = alive.pop(name)
            for table, number in zip(tables, numbers, strict=True):
                table.table.cancel(number)
        else:
            name = f"s{random.random()}"
            subscription = random_subscription(random, NO_PLACES)
            alive[name] = [table.add(name, subscription, since=0, key_group=0) for table in tables]


def same(a, b):
    for name, x, y in zip(a.arrays()._fields, a.arrays(), b.arrays(), strict=True):
        parts = a._edges, a._users, a._tests, a._subscriptions, a._nodes
        size = next(part.count for part in parts if part.get(name) is x)
        assert (x[:size] == y[:size]).all(), name


@pytest.mark.kernels
@pytest.mark.parametrize("seed", some(2, 12))
def test_an_opened_table_goes_on_like_the_saved_one(tmp_path, seed):
    random = Random(seed)
    kept, opened = Nodes(), Nodes()
    alive = {}
    changed(random, [kept], alive, random.randint(0, 20))
    if random.random() < 0.5:
        kept.table.reuse()
    kept.table.save(tmp_path)
    opened.table = NetworkTable.open(tmp_path, np.int64, None, opened.tried)
    opened.tried.atoms = dict(kept.tried.atoms)
    opened.names = dict(kept.names)
    opened.state.table = opened.table
    alive = {name: [*numbers, *numbers] for name, numbers in alive.items()}
    same(kept.table, opened.table)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = []
    for part in (random_events(random, 10), []):
        changed(random, [kept, opened], alive, random.randint(1, 8))
        same(kept.table, opened.table)
        assert sorted(kept.table.keys) == sorted(opened.table.keys)
        assert len(kept.table.keys) == len(opened.table.keys)
        for column in ("users", "hash"):
            mine, theirs = kept.table._subscriptions, opened.table._subscriptions
            assert (mine[column][: mine.count] == theirs[column][: theirs.count]).all()
        found.append([table.feed(part, {}) for table in (kept, opened)])
    found.append([table.finish() for table in (kept, opened)])
    for mine, theirs in found:
        assert mine == theirs
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("key_groups", [1, 2, 5, 200])
def test_subscriptions_are_dealt_out_to_key_groups(key_groups):
    random = Random(key_groups)
    dealt, split = Nodes(), Nodes()
    dealt.table.split(key_groups)
    subscriptions = [random_subscription(random, NO_PLACES) for _ in range(15)]
    for number, subscription in enumerate([*subscriptions, *subscriptions]):
        for nodes in (dealt, split):
            nodes.add(number, subscription, key_group=None)
    split.table.split(key_groups)
    same(dealt.table, split.table)
    of = dealt.table.arrays().key_group[:30]
    assert (of[:15] == of[15:]).all()  # equal ones are together
    assert of.max() < key_groups
    assert key_groups == 1 or len(set(of.tolist())) > 1


@pytest.mark.parametrize("key_groups", [1, 3])
def test_all_key_groups_together_find_what_one_finds(key_groups):
    random = Random(3)
    whole = Nodes()
    parts = [Nodes(key_group=key_group) for key_group in range(key_groups)]
    for nodes in parts:
        nodes.table.split(key_groups)
    for number in range(20):
        subscription = random_subscription(random, NO_PLACES)
        for nodes in (whole, *parts):
            nodes.add(number, subscription, key_group=None)
    events = random_events(random, 14)
    found = sorted([*whole.feed(events, {}), *whole.finish()])
    apart = [match for nodes in parts for match in (*nodes.feed(events, {}), *nodes.finish())]
    assert sorted(apart) == found
    assert found


def test_a_table_of_another_format_or_time_is_refused(tmp_path):
    nodes = Nodes()
    nodes.table.save(tmp_path)
    with pytest.raises(StateError, match="another time column"):
        NetworkTable.open(tmp_path, np.float64, None, nodes.tried)
    about = tmp_path / "table.json"
    about.write_text(about.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(StateError, match="format 9"):
        NetworkTable.open(tmp_path, np.int64, None, nodes.tried)
    about.unlink()
    with pytest.raises(StateError, match="no part of a compiled set"):
        NetworkTable.open(tmp_path, np.int64, None, nodes.tried)
