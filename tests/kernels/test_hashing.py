"""Tables of codes against a dictionary, hashes against their promises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.kernels import hashing
from support.seeds import scaled

pytestmark = [
    pytest.mark.kernels,
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # with JIT off, scalars warn
]

ALL = np.zeros(0, np.bool_)


def frozen(array):
    array.flags.writeable = False
    return array


def laid_out(words, lead=b"", wide=False):
    """Strings as Arrow lays them out, behind other bytes."""
    encoded = [word.encode() for word in words]
    offsets = np.cumsum([len(lead), *(len(word) for word in encoded)])
    data = np.frombuffer(lead + b"".join(encoded), np.uint8)
    return frozen(offsets.astype(np.int64 if wide else np.int32)), data


def hashed(words, **layout):
    high, low = np.empty(len(words), np.uint64), np.empty(len(words), np.uint64)
    hashing.hash_texts(*laid_out(words, **layout), hashing.EVERY_ROW, high, low)
    return high, low


@settings(max_examples=scaled(24), deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=40), st.data())
def test_integers_get_lasting_codes(keys, data):
    known: dict[int, int] = {}
    size = 2  # so small that it fills up at once
    slot_keys, slot_codes = np.zeros(size, np.int64), np.full(size, -1, np.int32)
    state = np.zeros(4, np.int64)
    cut = data.draw(st.integers(0, len(keys)))
    for piece in (keys[:cut], keys[cut:]):
        valid = data.draw(st.lists(st.booleans(), min_size=len(piece), max_size=len(piece)))
        array = frozen(np.array(piece, np.int64))
        mask = frozen(np.array(valid, np.bool_))
        out, done = np.empty(len(piece), np.int32), 0
        while True:
            done = hashing.encode_integers(array, mask, slot_keys, slot_codes, state, out, done)
            if done == len(piece):
                break
            wider = np.zeros(2 * size, np.int64), np.full(2 * size, -1, np.int32)
            hashing.insert_integers(slot_keys, slot_codes, *wider)
            (slot_keys, slot_codes), size = wider, 2 * size
        wanted = [known.setdefault(k, len(known)) if v or not valid else -1 for k, v in zip(piece, valid, strict=True)]
        assert out.tolist() == wanted


@settings(max_examples=scaled(24), deadline=None)
@given(st.lists(st.text(max_size=20) | st.sampled_from("ab"), max_size=30), st.booleans())
def test_strings_get_lasting_codes(words, wide):
    known: dict[str, int] = {}
    offsets, data = laid_out(words, lead=b"xyz", wide=wide)
    hashes, _ = hashed(words)
    slots, places = np.zeros(64, np.uint64), np.zeros(33, np.int64)
    codes, content = np.zeros(32, np.int32), np.zeros(4000, np.uint8)
    out, state = np.empty(len(words), np.int32), np.zeros(4, np.int64)
    table = slots, places, content, codes
    done = hashing.encode_texts(hashes, offsets, data, ALL, *table, state, out, 0)
    assert done == len(words)
    assert out.tolist() == [known.setdefault(word, len(known)) for word in words]
    kept = [content[places[k] : places[k + 1]].tobytes().decode() for k in range(len(known))]
    assert kept == list(known)


@pytest.mark.parametrize("room", [(4, 9, 100), (64, 3, 100), (64, 9, 3)])
def test_a_full_table_asks_for_room_and_stays_whole(room):
    size, entries, length = room
    words = ["ab", "cd", "ef"]
    offsets, data = laid_out(words)
    table = (
        np.zeros(size, np.uint64),
        np.zeros(entries, np.int64),
        np.zeros(length, np.uint8),
        np.zeros(entries - 1, np.int32),
    )
    out, state = np.full(3, -7, np.int32), np.zeros(4, np.int64)
    done = hashing.encode_texts(hashed(words)[0], offsets, data, ALL, *table, state, out, 0)
    assert done < 3
    assert state[2] == done
    assert out[done:].tolist() == [-7] * (3 - done)


def test_texts_of_the_same_hash_are_told_apart():
    words = ["left", "rite", "left"]
    offsets, data = laid_out(words)
    table = (np.zeros(8, np.uint64), np.zeros(5, np.int64), np.zeros(99, np.uint8), np.zeros(4, np.int32))
    out = np.empty(3, np.int32)
    same = np.full(3, 5, np.uint64)
    hashing.encode_texts(same, offsets, data, ALL, *table, np.zeros(4, np.int64), out, 0)
    assert out.tolist() == [0, 1, 0]


def test_placed_entries_are_found_again():
    words = ["a", "bb", "ccc"]
    offsets, data = laid_out(words, wide=True)
    hashes, _ = hashed(words)
    slots = np.zeros(8, np.uint64)
    hashing.insert_texts(hashes, slots)
    table = slots, offsets.copy(), data.copy(), np.arange(3, dtype=np.int32)
    out, state = np.empty(3, np.int32), np.array([3, 3, 3, 6])
    assert hashing.encode_texts(hashes, offsets, data, ALL, *table, state, out, 0) == 3
    assert out.tolist() == [0, 1, 2]


@given(st.lists(st.text(max_size=30), min_size=1, max_size=10), st.binary(max_size=9))
@settings(max_examples=scaled(24), deadline=None)
def test_a_hash_depends_on_the_text_only(words, lead):
    assert np.array_equal(hashed(words), hashed(words, lead=lead, wide=True))
    alone = np.array([hashed([word]) for word in words])[:, :, 0].T
    assert np.array_equal(hashed(words), alone)


def test_hashes_differ():
    words = ["", "\0", "\0\0", "a", "a\0", "b", "abcdefgh", "abcdefg", "abcdefgh\0"]
    high, low = hashed(words)
    assert len(set(high.tolist())) == len(set(low.tolist())) == len(words)
    numbers = np.arange(-500, 500)
    high, low = np.empty(1000, np.uint64), np.empty(1000, np.uint64)
    hashing.hash_words(numbers, high, low)
    assert len(set(high.tolist())) == len(set(low.tolist())) == 1000


def test_columns_are_added_in_any_order():
    first, second = hashed(["a", "b"]), hashed(["c", "d"])
    salts = np.array([[1, 2], [3, 4]], np.uint64)

    def total(order):
        out = np.zeros(2, np.uint64), np.zeros(2, np.uint64)
        for k in order:
            column = (first, second)[k]
            hashing.add_column(*column, np.array([True, k == 0]), *salts[k], *out)
        return np.array(out)

    assert np.array_equal(total([0, 1]), total([1, 0]))
    assert not np.array_equal(total([0]), total([1]))
    assert total([1])[0][1] == 0  # a NULL adds nothing


def test_words_are_added_as_their_hashes_are():
    words = np.array([0, 1, -1, 2**62], np.int64)
    valid, salts = np.array([True, True, False, True]), np.array([1, 2], np.uint64)
    hashes = np.empty(4, np.uint64), np.empty(4, np.uint64)
    hashing.hash_words(words, *hashes)
    at_once, in_two = (
        tuple(np.full(4, k, np.uint64) for k in range(2)) for _ in range(2)
    )  # fmt: skip
    hashing.add_words(words, valid, *salts, *at_once)
    hashing.add_column(*hashes, valid, *salts, *in_two)
    assert np.array_equal(np.array(at_once), np.array(in_two))


def test_ordinals_count_the_equals_before():
    high = np.array([1, 2, 1, 1, 2], np.uint64)
    low = np.array([0, 0, 0, 9, 0], np.uint64)
    assert hashing.number_duplicates(high, low).tolist() == [0, 0, 1, 0, 1]


def test_lists_and_single_rows_are_folded_apart():
    rows = np.arange(3, dtype=np.uint64), np.arange(3, dtype=np.uint64)
    salt = np.uint64(77)

    def folded(offsets, members):
        out = np.zeros(len(offsets) - 1, np.uint64), np.zeros(len(offsets) - 1, np.uint64)
        hashing.fold_lists(np.array(offsets), np.array(members, np.int64), *rows, salt, *out)
        return list(zip(*(o.tolist() for o in out), strict=True))

    found = folded([0, 2, 4, 5, 5], [1, 2, 2, 1, 1])
    assert len(set(found)) == 4
    one = np.zeros(2, np.uint64), np.zeros(2, np.uint64)
    hashing.fold_rows(np.array([1, -1]), *rows, salt, *one)
    assert one[0][0] != one[0][1]


def test_hexadecimal():
    digits = np.frombuffer(bytes(range(256)).hex().encode(), np.uint8)
    high, low = np.array([0x0123456789ABCDEF, 0], np.uint64), np.array([2**64 - 1, 16], np.uint64)
    text = hashing.format_hex(high, low, digits).tobytes().decode()
    assert text == f"{'0123456789abcdef'}{'f' * 16}{'0' * 30}10"
