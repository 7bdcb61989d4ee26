"""Codes of keys: the same value, the same code, however the stream is cut and encoded."""

from datetime import date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.errors import StateError
from ensue.vector.key_codes import ColumnCodes, DenseCodes, KeyCodes, TypeNames
from support.seeds import scaled

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # with JIT off, scalars warn


def partition(values):
    """Which values are equal, as numbers in the order of appearance; -1 for no key."""
    known = {}
    return [
        -1 if v is None or v != v else known.setdefault(v, len(known)) for v in values
    ]  # fmt: skip


def renumbered(codes):
    known = {}
    return [-1 if c < 0 else known.setdefault(c, len(known)) for c in codes]


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pa.int8(): st.integers(-128, 127),
    pa.float64(): st.floats(allow_infinity=True) | st.sampled_from([0.0, -0.0, 1.0, 1e300]),
    pa.string(): st.text(max_size=12) | st.sampled_from("abc"),
    pa.large_string(): st.text(max_size=3),
    pa.string_view(): st.text(max_size=3),
    pa.dictionary(pa.int32(), pa.string()): st.text(max_size=2),
    pa.bool_(): st.booleans(),
    pa.decimal128(20, 2): st.decimals(-50, 50, places=2),
    pa.timestamp("us"): st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)),
    pa.date32(): st.dates(date(1800, 1, 1), date(2200, 1, 1)),
    pa.duration("us"): st.timedeltas(timedelta(-9), timedelta(9)),
    pa.binary(): st.binary(max_size=3),
    pa.list_(pa.int64()): st.lists(st.integers(0, 2), max_size=2),
}


@pytest.mark.parametrize("type", VALUES, ids=str)
@settings(max_examples=scaled(30), deadline=None)
@given(st.data())
def test_equal_values_get_equal_codes_in_any_slices(type, data):
    values = data.draw(st.lists(st.none() | VALUES[type], max_size=30))
    cut = data.draw(st.integers(0, len(values)))
    array = pa.array(values, type)
    codes = KeyCodes()
    found = np.concatenate([codes.encode([array[:cut]]), codes.encode([array[cut:]])])
    plain = [tuple(v) if isinstance(v, list) else v for v in values]
    assert found.dtype == np.int32
    assert renumbered(found) == partition(plain)
    assert len(codes) == len(codes.values()) == max([-1, *partition(plain)]) + 1
    again = KeyCodes.restore(codes.snapshot())
    assert again.encode([array]).tolist() == found.tolist()
    assert again.values() == codes.values()


@given(st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("ab"))))
@settings(max_examples=scaled(50), deadline=None)
def test_several_columns_are_one_key(rows):
    codes = KeyCodes()
    columns = [pa.array([r[k] for r in rows], t) for k, t in enumerate((pa.int32(), pa.string()))]
    found = codes.encode(columns)
    assert renumbered(found) == partition([None if None in r else r for r in rows])
    for code, row in zip(found.tolist(), rows, strict=True):
        assert code < 0 or codes.values()[code] == row
    assert KeyCodes.restore(codes.snapshot()).encode(columns).tolist() == found.tolist()


def test_the_same_value_is_alike_in_every_type():
    numbers = ColumnCodes()
    same = [
        pa.array([7], pa.int8()),
        pa.array([7], pa.int64()),
        pa.array([7], pa.uint32()),
        pa.array([7.0], pa.float32()),
        pa.array([Decimal("7.00")], pa.decimal128(9, 2)),
        pa.array([7]).dictionary_encode(),
    ]
    assert {numbers.encode(column)[0] for column in same} == {0}
    texts = ColumnCodes()
    for type in (pa.string(), pa.large_string(), pa.string_view()):
        assert texts.encode(pa.array(["x"], type)).tolist() == [0]
    times = ColumnCodes()
    midnight = datetime(2026, 1, 1)
    for type in (pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "UTC")):
        assert times.encode(pa.array([midnight], type)).tolist() == [0]
    assert times.encode(pa.array([date(2026, 1, 1)])).tolist() == [0]
    assert times.encode(pa.array([1, 1001, 1], pa.timestamp("ns"))).tolist() == [1, 2, 1]


def test_different_kinds_never_share_a_code():
    codes = ColumnCodes()
    mixed = [pa.array([1]), pa.array(["1"]), pa.array([True]), pa.array([0.5]), pa.array([1.0])]
    assert [int(codes.encode(column)[0]) for column in mixed] == [0, 1, 2, 3, 0]


def test_tables_grow():
    numbers = pa.array(np.arange(9_000))
    texts = pa.array([f"key {k}" * 3 for k in range(3_000)])
    codes = KeyCodes()
    assert np.array_equal(codes.encode([numbers]), np.arange(9_000))
    words = KeyCodes()
    assert np.array_equal(words.encode([texts]), np.arange(3_000))
    assert np.array_equal(words.encode([texts[::1]]), np.arange(3_000))
    again = KeyCodes.restore(words.snapshot())
    assert again.encode([pa.array(["new", "key 5" * 3])]).tolist() == [3_000, 5]


def test_chunks_and_changing_dictionaries():
    codes = KeyCodes()
    chunked = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", None]).dictionary_encode()])
    assert codes.encode([chunked]).tolist() == [0, 1, 1, -1]
    empty = pa.chunked_array([], pa.string())
    assert codes.encode([empty]).tolist() == []
    assert codes.encode([pa.array([None, None])]).tolist() == [-1, -1]


@pytest.mark.parametrize("type", VALUES, ids=str)
@settings(max_examples=scaled(20), deadline=None)
@given(st.data())
def test_what_is_kept_has_the_codes_that_are_said(type, data):
    values = pa.array(data.draw(st.lists(st.none() | VALUES[type], max_size=20)), type)
    other = pa.array(data.draw(st.lists(st.integers(0, 2), min_size=20, max_size=20)))
    for columns in ([values], [values, other[: len(values)], values], [other, other]):
        codes = KeyCodes()
        found = codes.encode(columns)
        names = codes.values()
        alive = np.array(data.draw(_flags(len(codes))), np.bool_)
        moved = codes.keep(alive)
        assert moved[alive].tolist() == list(range(int(alive.sum())))
        assert (moved[~alive] == -1).all()
        assert codes.values() == [name for name, kept in zip(names, alive, strict=True) if kept]
        assert len(KeyCodes.restore(codes.snapshot())) == len(codes) == int(alive.sum())
        again = codes.encode(columns)
        for before, after in zip(found.tolist(), again.tolist(), strict=True):
            if before < 0:
                assert after == -1
            elif alive[before]:
                assert after == moved[before]
            else:
                assert after >= alive.sum()
        assert renumbered(again) == renumbered(found)


def _flags(count):
    return st.lists(st.booleans(), min_size=count, max_size=count)


def test_forgetting_makes_tables_small_again():
    codes = KeyCodes()
    texts = pa.array([f"key {k}" * 3 for k in range(3_000)]).dictionary_encode()
    numbers = pa.array(np.arange(3_000))
    codes.encode([texts, numbers])
    large = codes.nbytes
    assert abs(len(codes.snapshot()) - large) < 500
    codes.keep(np.arange(3_000) == 7)
    assert codes.known == 3
    assert codes.nbytes < 100
    # the dictionary's codes are not remembered from before
    assert codes.encode([texts[7:9], numbers[7:9]]).tolist() == [0, 1]
    assert codes.values()[0] == ("key 7" * 3, 7)


@pytest.mark.parametrize("saved", [b"", b"nonsense that is long enough", b"ensue keys\x09\x00\x01\x00"])
def test_unknown_bytes_are_refused(saved):
    with pytest.raises(StateError):
        KeyCodes.restore(saved)


def test_bytes_cut_short_are_refused():
    codes = KeyCodes()
    codes.encode([pa.array(["a"])])
    with pytest.raises(StateError):
        KeyCodes.restore(codes.snapshot()[:-1])


def test_the_number_of_columns_stays():
    codes = KeyCodes()
    codes.encode([pa.array([1])])
    with pytest.raises(ValueError, match="1 key columns so far, now 2"):
        codes.encode([pa.array([1]), pa.array([2])])


NARROW = st.sampled_from([pa.int8(), pa.uint16(), pa.int64(), pa.uint64()])


@settings(max_examples=scaled(60))
@given(st.data())
def test_dictionaries_and_narrow_integers_need_no_hash_table(data):
    count = data.draw(st.integers(1, 20))
    columns = []
    for _ in range(data.draw(st.integers(1, 2))):
        if data.draw(st.booleans()):
            texts = pa.array(data.draw(st.lists(st.text(max_size=2) | st.none(), min_size=1, max_size=5)), pa.string())
            indices = st.lists(st.none() | st.integers(0, len(texts) - 1), min_size=count, max_size=count)
            columns.append(pa.DictionaryArray.from_arrays(pa.array(data.draw(indices), pa.int8()), texts))
        else:
            type, least, step = data.draw(NARROW), data.draw(st.integers(0, 40)), data.draw(st.integers(1, 9))
            steps = data.draw(st.lists(st.none() | st.integers(0, 9), min_size=count, max_size=count))
            columns.append(pa.array([None if n is None else least + step * n for n in steps], type))
    keys = pa.table(columns, names=[f"k{n}" for n in range(len(columns))])
    dense = DenseCodes.find(keys, 1 << 14)
    plain = [None if None in row.values() else tuple(row.values()) for row in keys.to_pylist()]
    if dense is None:  # nothing but NULL
        assert any(column.null_count == count for column in keys.columns)
        return
    cut = data.draw(st.integers(0, count))
    found = np.concatenate([dense.encode(keys.slice(0, cut)), dense.encode(keys.slice(cut))])
    assert renumbered(found) == partition(plain)
    assert found.max() < 1 << 14


@pytest.mark.parametrize(
    "values", [[0, 5_000], [-(2**63), 2**63 - 1], [None], ["a"], [1.0]], ids=["wide", "widest", "null", "text", "real"]
)
def test_other_keys_need_a_hash_table(values):
    assert DenseCodes.find(pa.table({"k": values}), 4_000) is None
    assert DenseCodes.find(pa.table({}), 4_000) is None


def test_chunks_of_different_dictionaries_need_a_hash_table():
    chunks = [pa.array(values).dictionary_encode() for values in (["a", "b"], ["b", "a"])]
    assert DenseCodes.find(pa.table({"k": pa.chunked_array(chunks)}), 100) is None


TYPES = st.sampled_from(
    ["", "A", "AB", "Login", "eight888", "nine99999", "nine99998", "A\0", "\0", "ein sehr langer Name"]
)


@settings(max_examples=scaled(60))
@given(st.lists(TYPES, unique=True, max_size=4), st.lists(st.none() | TYPES | st.text(max_size=3), max_size=9))
@pytest.mark.parametrize("type", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_types_are_found_by_their_names(type, names, values):
    column = pa.chunked_array([pa.array(values, pa.string()).cast(type)])
    expected = [names.index(value) if value in names else -1 for value in values]
    assert TypeNames(names).find(column).tolist() == expected
    bits = np.array([*(1 << n for n in range(len(names))), 99])
    assert TypeNames(names).map(column.slice(1), bits).tolist() == [bits[n] for n in expected[1:]]


def test_texts_of_a_long_column_get_the_codes_of_its_parts():
    random = np.random.default_rng(5)
    texts = pa.array([None if n < 9 else f"key {n}" for n in random.integers(0, 90, 1_000).tolist()], pa.string())
    parts = ColumnCodes()
    expected = np.concatenate([parts.encode(texts.slice(at, 50)) for at in range(0, len(texts), 50)])
    assert ColumnCodes().encode(texts).tolist() == expected.tolist()
    assert ColumnCodes().encode(pa.nulls(100, pa.string())).tolist() == [-1] * 100
