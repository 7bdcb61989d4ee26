"""The nodes of subscriptions find what the oracle says, however the stream is cut."""

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.support.fleets import Nodes, meant, random_corners, random_events
from tests.support.subscriptions import Bounds, random_subscription

from ensue.geo import geometry as places
from ensue.ir.subscription import Subscription
from ensue.operators.subscriptions.network_state import NetworkState
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.reference.conditions import Event
from ensue.vector.geo_regions import Regions
from support.seeds import of_round, scaled

SEEDS = 30  # in each block


def _nodes(space: str, corners: dict[int, Any], *, points: bool) -> Nodes:
    def fits(test: Any, event: Event) -> bool:
        shape = places.parse_region(test.region.text, space)
        place = places.build_hull(corners.get(event.position, ()))
        numbers = test.comparison, test.number, test.tolerance
        return places.evaluate_relation(test.where, shape, place, *numbers, space)

    return Nodes(Regions(space), int(space == "earth"), points, fits=fits)


def _saved_and_restored(nodes: Nodes) -> None:
    saved, used = nodes.state.snapshot(), nodes.state.get_consumed()
    nodes.state = NetworkState(nodes.table, np.int64, nodes.space, nodes._regions)
    nodes.state.restore(saved)
    nodes.state.restore_consumed(*used)


def _cut(nodes: Nodes, events: list[Event], corners: dict[int, Any], random: Random) -> list[Any]:
    """Fed in pieces, with time passing, compaction and a change of process in between."""
    found, at = [], 0
    while at < len(events):
        size = random.randint(1, 4)
        found += nodes.feed(events[at : at + size], corners)
        at += size
        if random.random() < 0.3:
            found += nodes.advance(int(events[min(at, len(events)) - 1].end))
        if random.random() < 0.3:
            nodes.state.compact()
        if random.random() < 0.3:
            _saved_and_restored(nodes)
    return found + nodes.finish()


def block_of(size: int, block: int) -> range:
    return of_round(block, size)


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("space", ["plane", "earth"])
@pytest.mark.parametrize("points", [True, False], ids=["points", "lasting"])
def test_random_subscriptions_match_as_they_mean(space: str, points: bool, block: int) -> None:
    matches = 0
    for seed in block_of(SEEDS, block):
        random = Random(f"{seed} {space} {points}")
        bounds = Bounds(
            atoms=random.choice((2, 3, 4)),
            depth=random.choice((1, 2, 3)),
            negations=random.choice((1, 1, 2)),
            places=random.random() < 0.5,
        )
        subscription = random_subscription(random, bounds)
        events = random_events(random, random.choice((4, 6, 8, 10)), points=points)
        corners = random_corners(random, events)
        nodes = _nodes(space, corners, points=points)
        nodes.add("s", subscription)
        found = [match for _, match in _cut(nodes, events, corners, random)]
        wanted = meant(subscription, events, corners, space)
        assert Counter(found) == Counter(wanted), (seed, subscription)
        matches += len(wanted)
    assert matches > scaled(SEEDS) / 3


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(4))
def test_several_share_nodes_and_find_their_own(block: int) -> None:
    for seed in block_of(10, block):
        random = Random(seed)
        events = random_events(random, 10)
        corners = random_corners(random, events)
        nodes = _nodes("plane", corners, points=True)
        several = [random_subscription(random, Bounds(atoms=3, depth=2)) for _ in range(4)]
        several += several[:2]
        for number, subscription in enumerate(several):
            nodes.add(number, subscription)
        assert len(nodes.table.keys) < nodes.table.requests
        found = Counter(_cut(nodes, events, corners, random))
        wanted = Counter(
            (number, match)
            for number, subscription in enumerate(several)
            for match in meant(subscription, events, corners, "plane")
        )
        assert found == wanted, seed


@pytest.mark.first_rounds(1)
@pytest.mark.parametrize("block", range(4))
def test_one_that_comes_later_sees_later_events_only_and_one_that_goes_is_silent(block: int) -> None:
    for seed in block_of(15, block):
        random = Random(f"changes {seed}")
        events = random_events(random, 10)
        corners = random_corners(random, events)
        nodes = _nodes("plane", corners, points=True)
        bounds = Bounds(atoms=3, depth=2, moments=False)
        some = [random_subscription(random, bounds) for _ in range(3)]
        found: list[Any] = []
        begun: dict[int, tuple[Subscription, int]] = {}
        numbers: dict[int, int] = {}
        gone: dict[int, int] = {}
        for at, event in enumerate(events):  # the set changes at every event
            name = at
            begun[name] = (random.choice(some), at)
            numbers[name] = nodes.add(name, begun[name][0], since=at)
            if at > 2 and random.random() < 0.5:
                old = random.choice([n for n in begun if n not in gone and n != name])
                nodes.table.cancel(numbers[old])
                gone[old] = at
                if random.random() < 0.5:
                    nodes.state.compact()
                    used, tied = nodes.state.get_consumed()
                    mine = nodes.table.gone_subscriptions
                    nodes.state.restore_consumed(used[~np.isin(used[:, 0], mine)], tied[~np.isin(tied[:, 0], mine)])
                    nodes.table.reuse()
            found += nodes.feed([event], corners, version=at)
        found += nodes.finish()
        for name, (subscription, at) in begun.items():
            if name not in gone:
                wanted = meant(subscription, events[at:], corners, "plane")
                assert Counter(m for n, m in found if n == name) == Counter(wanted), (seed, name)


def test_what_no_match_can_use_is_gone_from_every_node() -> None:
    text = "=|(A;5)B && |(A)C || =|(A;3)(D && E) WITH within = 9"
    names = ", ".join(f"{n.upper()} = (STRING:kind = '{n}')" for n in "abcde")
    nodes = _nodes("plane", {}, points=True)
    nodes.add("s", parse_subscription(text.replace(" WITH", f", {names} WITH")))
    events = [Event(n, "", n, n, {"kind": kind, "id": 1, "v": 1}) for n, kind in enumerate("abcdea")]
    nodes.feed(events, {})
    nodes.state.compact()
    assert nodes.state.usage.partial_matches > 0
    nodes.advance(100)
    nodes.state.compact()
    assert nodes.state.usage.partial_matches == 0
    assert len(nodes.state.events.position) == 0
    assert nodes.state.held.counted[0] == 0
