"""The key group of a key does not depend on how its values are stored."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from ensue.vector.key_groups import assign_key_groups

TEXTS = ["x", "", None, "long text", "x", "\u00e9"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array(TEXTS), pa.array(TEXTS).dictionary_encode()),
        (pa.array(TEXTS), pa.array(TEXTS, pa.large_string())),
        (pa.array([1, None, -3]), pa.array([1.0, None, -3.0])),
        (pa.array([1, 2**40]), pa.array([1, 2**40], pa.uint64())),
        (pa.array([1, 2]), pa.array([Decimal("1.00"), Decimal("2.00")])),
        (pa.array([0, 5], pa.timestamp("ms")), pa.array([0, 5_000], pa.timestamp("us"))),
        (pa.array([0.5, -0.0]), pa.array([0.5, 0.0])),
    ],
)
def test_equal_keys_are_in_one_key_group(one, other):
    found = [assign_key_groups(pa.table({"k": column}), ["k"], 1 << 30, "us") for column in (one, other)]
    assert found[0].tolist() == found[1].tolist()


def test_keys_are_spread_over_the_key_groups():
    table = pa.table({"k": np.arange(8_000), "t": [str(k) for k in range(8_000)]})
    for key in (["k"], ["t"], ["k", "t"]):
        counts = np.bincount(assign_key_groups(table, key, 8, "us"), minlength=8)
        assert counts.min() > 800
        assert counts.max() < 1_200


def test_without_a_key_there_is_one_key_group():
    assert not assign_key_groups(pa.table({"k": [1, 2]}), [], 4, "us").any()
