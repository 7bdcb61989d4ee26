"""Kernels of routing: a table against a dictionary, and an index against trying all atoms."""

import random
from pathlib import Path

import numpy as np
import pytest

from ensue.kernels import predicate_index_hash as routing_table
from ensue.kernels.predicate_index_hash import hash_key, insert, move_slots, remove
from ensue.operators.subscriptions import atom_index as arrays
from ensue.operators.subscriptions.atom_index import IndexArrays
from support.routing import change_at_random

pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")]


def _held(room: IndexArrays) -> dict[int, list[int]]:
    """The slots under each key, old and new."""
    table = room.table
    found: dict[int, list[int]] = {}
    for keys, heads in ((table.keys, table.heads), (table.old_keys, table.old_heads)):
        for key, head in zip(keys.tolist(), heads.tolist(), strict=True):
            if key < 2:
                continue
            assert key not in found
            found[key] = []
            while head >= 0:
                begin = head * routing_table.UNIT
                count = int(table.words[begin + 1]) & 15
                for k in range(count):
                    place = begin + routing_table.HEAD + routing_table.ENTRY * k
                    found[key].append(int(table.words[place]))
                head = int(table.words[begin])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_a_table_holds_what_a_dictionary_holds_however_it_grows(seed: int) -> None:
    rng = random.Random(seed)
    room = IndexArrays.empty()
    model: dict[int, list[int]] = {}
    numbers = [rng.randrange(60) for _ in range(400)]
    for step, number in enumerate(numbers):
        room.reach({"words": (step + 2) * 8 * routing_table.LARGE})
        key = np.uint64(hash_key(np.uint64(7), np.uint64(number), np.uint64(1)))
        slots = model.setdefault(int(key), [])
        if slots and rng.random() < 0.45:
            slot = slots.pop(rng.randrange(len(slots)))
            assert remove(room.table, key, slot)
            assert not remove(room.table, key, 10_000)
        else:
            insert(room.table, key, step, 0, 0.0, 0.0, 0.0, 0.0)
            slots.append(step)
        if rng.random() < 0.05 and not room.growing:
            room.rebuild(rng.choice([1024, 2048]))
        if rng.random() < 0.02:
            move_slots(room.table, 300)
        if step % 40 == 0 or step == len(numbers) - 1:
            living = {key: sorted(slots) for key, slots in model.items() if slots}
            assert {key: sorted(slots) for key, slots in _held(room).items()} == living
        if not room.growing:
            room.tidy()


@pytest.mark.parametrize("space", [0, 1])
@pytest.mark.parametrize("seed", [50, 51])
def test_an_index_equals_trying_all(seed: int, space: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(arrays, "_STEP", 256)
    assert change_at_random(seed, space, tmp_path, 8) > 0
