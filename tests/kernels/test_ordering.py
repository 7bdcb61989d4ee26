"""Sorting by digits: what NumPy's stable sort gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ensue.kernels.sorting import stable_order
from ensue.vector import event_table as stream
from ensue.vector.arrow_numpy import as_read_only
from ensue.vector.event_table import create_schema, find_stream_order

WHOLE = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(WHOLE | st.integers(-3, 3) | st.integers(0, 5_000), max_size=80))
def test_equal_values_stay_in_their_order(values: list[int]) -> None:
    array = np.array(values, np.int64)
    assert stable_order(as_read_only(array)).tolist() == np.argsort(array, kind="stable").tolist()


@pytest.mark.parametrize("span", [1, 2, 2**11, 2**11 + 1, 2**22, 2**23, 2**44, 2**63 - 1])
def test_every_number_of_digits(span: int) -> None:
    values = np.random.default_rng(span % 97).integers(-span, span, 3_000)
    assert np.array_equal(stable_order(as_read_only(values)), np.argsort(values, kind="stable"))


@pytest.mark.parametrize("run", [0, 64])
def test_a_stream_is_in_the_same_order_either_way(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_RUN", run)  # 0: by merging, always
    times = np.random.default_rng(3).integers(0, 500, 2_000)
    table = pa.table({"t": times})
    places = find_stream_order(table, create_schema(table.schema, time="t", type=None, order=()))
    assert places is not None
    assert np.array_equal(places, np.argsort(times, kind="stable"))
