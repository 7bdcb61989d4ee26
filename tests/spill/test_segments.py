"""Stored keys in files: what comes back, what is written anew, and what a damage does."""

import errno
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ensue.errors import LimitError, StateError
from ensue.runtime.spill.spilled_keys import SpilledKeys, SpillFolder

SCHEMA = pa.schema({"k": pa.int64(), "t": pa.int64(), "s": pa.string()})
NEVER = np.iinfo(np.int64).max


def stored(tmp_path) -> SpilledKeys:
    return SpilledKeys(SCHEMA, NEVER, SpillFolder(str(tmp_path)))


def put(keys: SpilledKeys, *rows: tuple[int, int], due=None) -> None:
    table = pa.table([[k for k, _ in rows], [t for _, t in rows], [f"{k}-{t}" for k, t in rows]], schema=SCHEMA)
    codes = np.array([k for k, _ in rows], np.int64)
    times = np.array([t for _, t in rows], np.int64)
    keys.put(table, codes, times, lambda _, first: np.array(due or [NEVER] * len(first)))


def taken(keys: SpilledKeys, *codes: int) -> list[tuple[int, int]]:
    table, known = keys.take(np.array(codes, np.int64))
    assert table["k"].to_pylist() == known.tolist()
    assert table["s"].to_pylist() == [
        f"{k}-{t}" for k, t in zip(table["k"].to_pylist(), table["t"].to_pylist(), strict=True)
    ]
    return sorted(zip(table["k"].to_pylist(), table["t"].to_pylist(), strict=True))


def test_keys_come_back_whole_and_once(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10), (1, 11), (4, 10))
    put(keys, (2, 20), (7, 21), (7, 22))
    assert len(keys) == 4
    assert taken(keys, 7, 1) == [(1, 10), (1, 11), (7, 21), (7, 22)]
    assert keys.holds(np.array([1, 2, 4, 7])).tolist() == [False, True, True, False]
    assert (len(keys), keys.rows) == (2, 2)


def test_a_segment_without_keys_is_removed(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10), (2, 10))
    assert len(list(keys.folder.path.iterdir())) == 1
    taken(keys, 1, 2)
    assert not list(keys.folder.path.iterdir())


def test_a_segment_that_is_half_dead_is_worth_writing_anew(tmp_path):
    keys = stored(tmp_path)
    put(keys, *((k, 10) for k in range(10)))
    taken(keys, 0, 1, 2, 3, 4)
    assert not len(keys.find_sparse())
    taken(keys, 5)
    assert sorted(keys.find_sparse().tolist()) == [6, 7, 8, 9]


def test_old_keys_are_forgotten(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10), (1, 30), (2, 20))
    assert keys.forget_before(25).tolist() == [2]
    assert taken(keys, 1) == [(1, 10), (1, 30)]


def test_keys_are_due_in_time(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10), (2, 20), due=[30, 40])
    put(keys, (3, 10), (4, 10), due=[35, NEVER])
    assert keys.next_due() == 30
    assert sorted(keys.find_due(36).tolist()) == [1, 3]
    taken(keys, 1)
    assert keys.next_due() == 35
    taken(keys, 2, 3)
    assert keys.next_due() is None


def test_codes_may_change(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10), (3, 10), (5, 10))
    taken(keys, 3)
    moved = np.array([-1, 0, -1, -1, -1, 1], np.int32)
    keys.renumber(moved)
    assert keys.holds(np.array([0, 1])).tolist() == [True, True]
    table, known = keys.take(np.array([1]))
    assert (table["k"].to_pylist(), known.tolist()) == ([5], [1])


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (damaged, "damaged"),
        (Path.unlink, "is gone"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "checksum"),
    ],
)
def test_a_damaged_file_is_an_error_that_says_what_to_do(tmp_path, harm, words):
    keys = stored(tmp_path)
    put(keys, *((k, 10) for k in range(50)))
    taken(keys, 0)
    (path,) = keys.folder.path.iterdir()
    harm(path)
    with pytest.raises(StateError, match=words) as error:
        keys.take(np.array([1]))
    assert "hint: start the stream again" in str(error.value)


def test_a_full_disk_is_an_error_that_says_what_to_do(tmp_path, monkeypatch):
    keys = stored(tmp_path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    keys.folder.path.exists()
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(LimitError, match="the disk for stored keys is full") as error:
        put(keys, (1, 10))
    assert "it goes on where it was" in str(error.value)


def test_a_folder_goes_with_its_matcher(tmp_path):
    keys = stored(tmp_path)
    put(keys, (1, 10))
    path = keys.folder.path
    del keys
    assert not path.exists()
