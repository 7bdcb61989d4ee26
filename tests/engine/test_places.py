"""Numbers for the places of events that come together from many key groups."""

import random

import numpy as np
import pyarrow as pa
import pytest

from ensue.operators.hierarchy.hierarchy_matcher import KeyNumbers, encode_event_keys, encode_time_bound
from ensue.vector.event_table import create_schema, sort_events


@pytest.mark.parametrize("seed", range(20))
def test_keys_order_events_as_the_stream_does(seed):
    rng = random.Random(seed)
    rows = rng.randrange(1, 60)

    def maybe(value):
        return value if rng.random() < 0.9 else None

    ends = [rng.choice([-1.5, -0.0, 0.0, 2.0, 3.25]) for _ in range(rows)]
    table = pa.table(
        {
            "s": [e - rng.choice([0, 0.5]) for e in ends],
            "e": ends,
            "x": pa.array([maybe(rng.randrange(-2, 3)) for _ in range(rows)], pa.int64()),
            "n": [maybe(rng.choice(["", "a", "a\0", "ab", "b", "é"])) for _ in range(rows)],
            "arrival": np.arange(rows),
        }
    )
    order = rng.choice([(), ("x",), ("n",), ("x", "n"), ("n", "x")])
    shape = create_schema(table.schema, time=("s", "e"), type=None, order=(*order, "arrival"))
    plain = create_schema(table.schema, time=("s", "e"), type=None, order=order)
    keys = encode_event_keys(table, plain, ["arrival"])
    assert len(set(keys.tolist())) == rows
    found = np.argsort(keys, kind="stable").tolist()
    assert found == sort_events(table, shape)["arrival"].to_pylist()
    late = [e >= 0 for e in ends]
    assert [bytes(k) >= encode_time_bound(0.0) for k in keys] == late


@pytest.mark.parametrize("seed", range(20))
def test_numbers_compare_like_keys(seed):
    rng = random.Random(seed)
    places, seen = KeyNumbers(), {}
    for _ in range(30):
        keys = [b"%04d" % rng.randrange(400) for _ in range(rng.randrange(8))]
        for key, number in zip(keys, places.get_numbers(np.array(keys, "S4")).tolist(), strict=True):
            assert seen.setdefault(key, number) == number
        if rng.random() < 0.1:
            border = b"%04d" % rng.randrange(100)
            places.forget(border)
            seen = {k: n for k, n in seen.items() if k >= border}
    ordered = sorted(seen)
    numbers = [seen[k] for k in ordered]
    assert numbers == sorted(set(numbers))
    assert places.keys(np.array(numbers, np.int64)).tolist() == ordered
