"""Routing finds what trying all atoms finds, after any changes."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ensue.workload.subscriptions.routing.index import AtomIndex
from support.routing import (
    SCHEMA,
    ConvexRegions,
    Corners,
    atom,
    event,
    place,
    satisfied,
    shape,
)


def _check(index, living, regions, space, rng, count=12):
    events = [event(rng) for _ in range(count)]
    places = [place(rng, space) for _ in range(count)]
    rows, slots = index.route(pa.Table.from_pylist(events, SCHEMA), Corners(places))
    expected = [
        (row, slot)
        for row, (e, p) in enumerate(zip(events, places, strict=True))
        for slot, a in sorted(living.items())
        if satisfied(a, e, p, regions, space)
    ]
    assert list(zip(rows.tolist(), slots.tolist(), strict=True)) == expected
    return len(expected)


@pytest.mark.parametrize("space", [0, 1])
@pytest.mark.parametrize("seed", range(6))
def test_routing_equals_trying_all_whatever_is_added_cancelled_and_saved(
    seed: int, space: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    regions = ConvexRegions()
    index = AtomIndex(shape(), regions, space)
    living: dict[int, object] = {}
    found = 0
    with np.errstate(over="ignore"):
        for step in range(12):
            match rng.choice(["add", "add", "many", "cancel", "save"]):
                case "add":
                    for _ in range(10):
                        one = atom(rng, space)
                        slot = index.add(one)
                        assert slot not in living
                        living[slot] = one
                case "many":
                    several = [atom(rng, space) for _ in range(30)]
                    slots = index.add_many(several).tolist()
                    assert not set(slots) & set(living)
                    living |= dict(zip(slots, several, strict=True))
                case "cancel":
                    for slot in rng.sample(sorted(living), len(living) // 2):
                        before = index.generation(slot)
                        index.cancel(slot)
                        assert index.generation(slot) != before
                        del living[slot]
                case "save":
                    index.save(tmp_path / f"{step}")
                    index = AtomIndex.open(tmp_path / f"{step}", shape(), regions, space)
            assert len(index) == len(living)
            found += _check(index, living, regions, space, rng)
    assert found
