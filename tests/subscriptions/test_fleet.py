"""Sets of subscriptions through the public calls: tables and live, against the oracle."""

import gc
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.support.fleets import meant, random_corners, random_events
from tests.support.seeds import some
from tests.support.subscriptions import Bounds, random_subscription

import ensue
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.subscription_set import SubscriptionSet, _built
from ensue.printing.opsl_printer import format_subscription
from ensue.reference.conditions import Event

POINTS = pa.schema(
    {"ts": pa.int64(), "n": pa.int64(), "id": pa.int64(), "kind": pa.string(), "v": pa.int64(),
     "x": pa.float64(), "y": pa.float64()}
)  # fmt: skip
BOX = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"


def table_of(events: list[Event], corners: dict[int, Any]) -> pa.Table:
    rows = []
    for event in events:
        ((x, y),) = corners.get(event.position, ((None, None),))
        rows.append({"ts": event.end, "n": event.position, **event.values, "x": x, "y": y})
    return pa.Table.from_pylist(rows, POINTS)


def found_in(table: pa.Table) -> Counter[Any]:
    return Counter(
        (row["subscription"], tuple(m["n"] for m in row["members"]), row["start"], row["end"])
        for row in table.to_pylist()
    )


def case_of(seed: int, size: int = 3) -> tuple[Any, list[Event], dict[int, Any], Counter[Any]]:
    """A set, a stream, and what the oracle says."""
    random = Random(seed)
    space = random.choice(("plane", "plane", "earth"))
    events = random_events(random, random.choice((6, 9, 12)))
    corners = random_corners(random, events)
    corners = {p: c for p, c in corners.items() if len(c) == 1}
    fleet = ensue.Subscriptions(time="ts", location=("x", "y"), space=space, order="n")
    wanted: Counter[Any] = Counter()
    for number in range(size):
        bounds = Bounds(atoms=3, depth=random.choice((1, 2)))
        subscription = random_subscription(random, bounds)
        fleet.add(str(number), format_subscription(subscription))
        for match in meant(subscription, events, corners, space):
            wanted[str(number), *match] += 1
    return fleet, events, corners, wanted


@pytest.mark.filterwarnings("ignore::ensue.SubscriptionWarning")
@pytest.mark.parametrize("seed", some(6, 40))
def test_tables_and_live_find_what_is_meant(seed: int) -> None:
    fleet, events, corners, wanted = case_of(seed)
    table = table_of(events, corners)
    shuffled = table.take(pa.array(np.random.default_rng(seed).permutation(len(table))))
    whole = ensue.match(shuffled, fleet)
    assert found_in(whole) == wanted
    assert ensue.match(shuffled, fleet).equals(whole)  # with what was built for the first
    ids = whole.column("match_id").to_pylist()
    assert len(set(ids)) == len(ids)

    random = Random(seed)
    live = ensue.live(fleet, schema=POINTS, watermark=3)
    found, at = [], 0
    order = sorted(range(len(events)), key=lambda n: events[n].end + random.randint(0, 3))
    while at < len(order):
        size = random.randint(1, 4)
        found.append(live.feed(table.take(pa.array(order[at : at + size]))))
        at += size
        if random.random() < 0.4:
            live = ensue.live(fleet, schema=POINTS, watermark=3).restore(live.save())
    found.append(live.finish())
    assert found_in(pa.concat_tables(found)) == wanted
    assert sorted(pa.concat_tables(found).column("match_id").to_pylist()) == sorted(ids)


def test_a_set_changes_while_it_is_live() -> None:
    fleet = ensue.Subscriptions(time="ts", location=("x", "y"))
    fleet.add("box", f"@({BOX})(ARITH:id = 1)")
    live = ensue.live(fleet, schema=POINTS)
    event = {"n": 0, "id": 1, "x": 5.0, "y": 5.0}
    assert live.feed({"ts": 1, **event})["subscription"].to_pylist() == ["box"]
    fleet.add("pair", "=|(A; 10)(A), A = (ARITH:id = 1)")
    assert live.feed({"ts": 2, **event})["subscription"].to_pylist() == ["box"]
    assert sorted(live.feed({"ts": 3, **event})["subscription"].to_pylist()) == ["box", "pair"]
    fleet.replace("pair", "!(A; 1)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)")
    fleet.cancel("box")
    assert live.feed({"ts": 4, **event}).num_rows == 0
    (row,) = live.feed({"ts": 9, **event}).to_pylist()
    assert (row["subscription"], row["start"], row["end"]) == ("pair", 4, 5)


def test_one_that_does_not_fit_is_left_out_of_a_set_that_runs_and_so_is_what_it_replaces() -> None:
    fleet = ensue.Subscriptions(time="ts")
    fleet.add("one", "(ARITH:id = 1)")
    fleet.add("two", "(ARITH:id = 1)")
    live = ensue.live(fleet, schema=POINTS)
    event = {"n": 0, "id": 1}
    assert live.feed({"ts": 1, **event}).num_rows == 2
    fleet.replace("one", "(ARITH:nosuch = 1)")
    with pytest.warns(ensue.SubscriptionWarning, match=r"'one' cannot be matched(.|\n)*nosuch"):
        found = live.feed({"ts": 2, **event})
    assert found["subscription"].to_pylist() == ["two"]
    fleet.replace("one", "(ARITH:id = 1)")
    assert live.feed({"ts": 3, **event}).num_rows == 2


def test_a_name_is_used_once() -> None:
    fleet = ensue.Subscriptions(time="ts")
    fleet.add("a", "(ARITH:id = 1)")
    with pytest.raises(ensue.QueryError, match="'a'"):
        fleet.add("a", "(ARITH:id = 2)")
    with pytest.raises(ensue.QueryError, match="'b'"):
        fleet.cancel("b")
    assert fleet.version == 1
    assert fleet["a"] == "(ARITH:id = 1)"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("@(POLYGON ((0 0, 1 1)))(ARITH:id = 1)", "corners"),
        ("@(POLYGON ((0 0, 2 2, 2 0, 0 2, 0 0)))(ARITH:id = 1)", "cross"),
        ("@(CIRCLE(0 0, -1))(ARITH:id = 1)", "radius"),
        ("@(Depto)(ARITH:id = 1)", "Depot"),
        ("=|(A; -5)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)", "negative|length|minus"),
        ("(ARITH:idd = 1)", "idd"),
        ("(STRING:id = 'x')", "STRING"),
        ("=|(A; 5 minutes)(B), A = (ARITH:id = 1), B = (ARITH:id = 2)", "numbers"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, says: str) -> None:
    fleet = ensue.Subscriptions(time="ts", location=("x", "y"), regions={"Depot": BOX})
    events = pa.Table.from_pylist([], POINTS)

    def asked() -> None:
        fleet.add("wrong", text)
        ensue.match(events, fleet)

    with pytest.raises(ensue.QueryError, match=says) as error:
        asked()
    assert "line 1, column" in str(error.value)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The subscriptions that are made ready."""
    names: list[str] = []
    take = SubscriptionSet.take

    def noted(self: SubscriptionSet, change: SubscriptionChange, version: int, now: float | None = None) -> None:
        names.append(change.name)
        take(self, change, version, now)

    monkeypatch.setattr(SubscriptionSet, "take", noted)
    return names


@pytest.mark.parametrize("kept", [False, True])
def test_a_set_is_made_ready_once_for_all_tables(taken: list[str], tmp_path: Path, kept: bool) -> None:
    fleet = ensue.Subscriptions(time="ts", type="kind", folder=tmp_path / "set" if kept else None)
    fleet.add_all({f"id {n}": f"(ARITH:id = {n})" for n in range(3)})
    fleet.add("pattern", "SEQ(E a, E b) WHERE a.id = 1 AND b.id = 2 WITHIN 5")

    def names(*ids: int) -> list[str]:
        events = pa.table({"ts": range(len(ids)), "kind": ["E"] * len(ids), "id": ids})
        return sorted(ensue.match(events, fleet).column("subscription").to_pylist())

    assert names(1, 2) == ["id 1", "id 2", "pattern"]
    assert sorted(taken) == ["id 0", "id 1", "id 2", "pattern"]
    taken.clear()
    assert names(1, 2) == ["id 1", "id 2", "pattern"]  # nothing is left of the first events
    assert names(2, 1, 0) == ["id 0", "id 1", "id 2"]
    assert not taken
    fleet.add("more", "(ARITH:id = 4)")
    assert names(4, 0) == ["id 0", "more"]
    assert taken == ["more"]
    fleet.cancel("id 0")
    assert names(4, 0, 1) == ["id 1", "more"]
    fleet.replace("more", "(ARITH:id = 0)")
    assert names(4, 0, 1) == ["id 1", "more"]
    with pytest.raises(ensue.QueryError, match="id"):
        ensue.match(pa.table({"ts": [1], "kind": ["E"]}), fleet)  # events of another shape
    assert names(4, 0, 1) == ["id 1", "more"]


def test_what_is_built_for_a_set_is_gone_with_it() -> None:
    fleet = ensue.Subscriptions(time="ts")
    fleet.add("one", "(ARITH:id = 1)")
    before = len(_built)
    ensue.match(pa.table({"ts": [1], "id": [1]}), fleet)
    assert len(_built) == before + 1
    del fleet
    gc.collect()
    assert len(_built) <= before
