"""Compiled code on disk: damaged, foreign or missing, it costs time and never an answer."""

import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numba
import pyarrow as pa
import pytest

import ensue
from ensue import cache_files as private_files
from ensue.cache_files import CacheWarning
from ensue.kernels.jit_cache import compile_cached

POSIX = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")
COMPILED = pytest.mark.usefixtures("compiled")

MATCHING = """
import pyarrow as pa
import ensue
size = 200
events = pa.table({
    "at": range(size),
    "type": ["ABC"[k % 3] for k in range(size)],
    "key": [str(k % 5) for k in range(size)],
})
query = "SEQ(A a, B b) WHERE a.key = b.key WITHIN 20"
print(ensue.match(events, query, time="at", type="type").num_rows)
"""
FOUND = "64"


def double(x):
    return 2 * x


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    """Warnings come once in a process, and so once in each test."""
    monkeypatch.setattr(private_files, "_warned", set())


@pytest.fixture
def at_first(monkeypatch):
    """As in a process that has not looked for its folder yet."""
    private_files.get_cache_folder.cache_clear()
    yield monkeypatch
    monkeypatch.undo()
    private_files.get_cache_folder.cache_clear()


def doubled(place: Path) -> tuple[int, list[str], int]:
    """What the function gives, what was warned of, and how often it was loaded."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function = compile_cached(double, "source", (numba.types.int64,), place=place)
    said = [str(w.message) for w in caught if issubclass(w.category, CacheWarning)]
    return function(21), said, sum(function.stats.cache_hits.values())


def only_file(place: Path) -> Path:
    (path,) = place.iterdir()
    return path


@pytest.fixture
def place(tmp_path):
    place = tmp_path / "compiled"
    place.mkdir(mode=0o700)
    return place


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(random.Random(len(content)).randint(1, 9)):
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    path.write_bytes(content)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: random.randrange(path.stat().st_size)])


def is_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def is_a_link(path: Path) -> None:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")


def is_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def of_another_name(path: Path) -> None:
    """A kept file, whole, but that of something else."""
    private_files.write_cached("another", pickle.dumps("anything"), path.parent)
    path.with_name("another").replace(path)


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_text("import os\n" * 100),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "of another name": of_another_name,
    "writable by others": lambda path: path.chmod(0o666),
    "a folder": is_a_folder,
    "a link": is_a_link,
    "a pipe": is_a_pipe,
}


@COMPILED
@POSIX
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_compiled_and_kept_anew(place, damage):
    assert doubled(place) == (42, [], 0)
    assert doubled(place) == (42, [], 1)
    DAMAGES[damage](only_file(place))
    answer, said, loaded = doubled(place)
    assert (answer, loaded) == (42, 0)
    (message,) = said
    assert "compiled and stored again" in message
    assert doubled(place) == (42, [], 1)


@COMPILED
@pytest.mark.parametrize("damage", [flipped, truncated])
def test_no_bit_of_a_file_is_loaded_unseen(place, damage):
    doubled(place)
    path = only_file(place)
    whole = path.read_bytes()
    for _ in range(200):
        path.write_bytes(whole)
        damage(path)
        private_files._warned.clear()
        with pytest.warns(CacheWarning, match="is damaged"):
            assert private_files.read_cached(path.name, place) is None
    assert doubled(place)[0] == 42


@COMPILED
def test_a_file_that_cannot_be_unpickled_is_compiled_anew(place):
    doubled(place)
    private_files.write_cached(only_file(place).name, b"not a pickle", place)
    answer, (message,), _ = doubled(place)
    assert answer == 42
    assert "cannot be loaded" in message


@COMPILED
@POSIX
def test_a_full_disk_leaves_the_answer_and_no_rest(place):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        answer, said, _ = doubled(place)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert answer == 42
    (message,) = said
    assert "cannot be kept" in message
    assert "make room" in message
    assert not list(place.iterdir())


def test_rests_of_killed_writers_are_swept(place):
    old, new = place / "old.tmp", place / "new.tmp"
    old.touch()
    new.touch()
    os.utime(old, (1, 1))
    private_files.write_cached("name", b"content", place)
    assert sorted(p.name for p in place.iterdir()) == ["name", "new.tmp"]


def test_a_folder_that_is_gone_is_made_again(place):
    place.rmdir()
    private_files.write_cached("name", b"content", place)
    assert private_files.read_cached("name", place) == b"content"
    assert not place.stat().st_mode & 0o077


# --------------------------------------------------------------------------- the folder


def test_the_folder_is_closed_to_others_whatever_the_umask(at_first, tmp_path):
    at_first.setenv("ENSUE_CACHE", str(tmp_path / "new" / "cache"))
    before = os.umask(0)
    try:
        found = private_files.get_cache_folder()
    finally:
        os.umask(before)
    assert found == tmp_path / "new" / "cache" / "compiled"
    assert not found.stat().st_mode & 0o077


def open_to_others(base: Path) -> None:
    (base / "compiled").mkdir()
    (base / "compiled").chmod(0o777)


def linked(base: Path) -> None:
    (base / "elsewhere").mkdir(mode=0o700)
    (base / "compiled").symlink_to(base / "elsewhere")


TROUBLES = {
    "can be written by others: run: chmod go-w '": open_to_others,
    "is a link: remove it": linked,
    "cannot be used": lambda base: (base / "compiled").touch(),
}


@POSIX
@pytest.mark.parametrize("why", TROUBLES)
def test_a_folder_that_is_not_ours_alone_is_left_aside(at_first, tmp_path, why):
    base, spare = tmp_path / "cache", tmp_path / "spare"
    base.mkdir()
    spare.mkdir()
    TROUBLES[why](base)
    at_first.setenv("ENSUE_CACHE", str(base))
    at_first.setattr("tempfile.tempdir", str(spare))
    with pytest.warns(CacheWarning) as caught:
        found = private_files.get_cache_folder()
    assert found == spare / f"ensue-{os.geteuid()}" / "compiled"
    (warning,) = caught
    assert why in str(warning.message)
    assert "ENSUE_CACHE" in str(warning.message)
    assert str(found) in str(warning.message)


@POSIX
def test_a_folder_of_another_user_is_left_aside(at_first, tmp_path):
    at_first.setenv("ENSUE_CACHE", str(tmp_path))
    at_first.setattr("tempfile.tempdir", str(tmp_path / "none"))
    (tmp_path / "compiled").mkdir(mode=0o700)
    at_first.setattr("os.geteuid", lambda: os.getuid() + 1)
    with pytest.warns(CacheWarning, match="belongs to another user"):
        assert private_files.get_cache_folder() is None


def test_without_any_folder_kernels_are_compiled_in_memory(at_first, tmp_path):
    (tmp_path / "file").touch()
    at_first.setenv("ENSUE_CACHE", str(tmp_path / "file"))
    at_first.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.warns(CacheWarning, match="compiled again in every process"):
        assert private_files.get_cache_folder() is None
    private_files.write_cached("name", b"content")
    assert private_files.read_cached("name") is None


def homeless() -> Path:
    raise RuntimeError("no home directory")


@POSIX
@pytest.mark.parametrize("home", [homeless, Path])
def test_a_user_without_a_home_has_a_temporary_folder(at_first, tmp_path, home):
    at_first.delenv("ENSUE_CACHE", raising=False)
    at_first.setattr("pathlib.Path.home", home)
    at_first.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.warns(CacheWarning, match="no home folder: set ENSUE_CACHE"):
        assert private_files.get_cache_folder() == tmp_path / f"ensue-{os.geteuid()}" / "compiled"


# --------------------------------------------------------------------------- whole processes


def matching(cache: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MATCHING],
        env=os.environ | {"ENSUE_CACHE": str(cache), "NUMBA_CACHE_DIR": str(cache / "numba")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> tuple[str, str]:
    out, err = process.communicate(timeout=120)
    return out.strip(), err


@COMPILED
@pytest.mark.slow
def test_a_run_after_damage_finds_the_same_with_one_warning(tmp_path):
    assert answer(matching(tmp_path)) == (FOUND, "")
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    assert len(files) > 3
    for number, path in enumerate(files):
        [truncated, flipped, DAMAGES["empty"], DAMAGES["foreign"]][number % 4](path)
    found, said = answer(matching(tmp_path))
    assert found == FOUND
    assert said.count("Warning") == 1
    assert "compiled and stored again" in said
    assert answer(matching(tmp_path)) == (FOUND, "")


@COMPILED
@POSIX
@pytest.mark.slow
def test_processes_that_are_killed_while_they_compile_leave_a_usable_cache(tmp_path):
    began = time.monotonic()
    assert answer(matching(tmp_path / "timed"))[0] == FOUND
    whole = time.monotonic() - began
    for _ in range(12):
        both = [matching(tmp_path / "cache") for _ in range(2)]
        time.sleep(random.uniform(0.1, 1.1) * whole)
        for process in both:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert answer(matching(tmp_path / "cache")) == (FOUND, "")
        for path in list((tmp_path / "cache" / "compiled").iterdir()):
            if random.random() < 0.5:
                path.unlink()


@COMPILED
def test_one_text_serves_times_of_two_types():
    """Kernels may differ in nothing but the type of times: each is compiled for its own."""
    for times in ([1, 2, 3], [1.0, 2.0, 3.0]):
        found = ensue.match(pa.table({"t": times, "x": [1, 2, 3]}), "A a WHERE a.x > 1", time="t")
        assert found.num_rows == 2


def test_code_is_that_of_the_kernels_it_calls_too():
    from ensue.kernels import geometry, hashing, jit, polygons, regions

    called = jit._find_imports(regions.__name__)
    assert {geometry.__name__, polygons.__name__} <= called
    assert polygons.__name__ in jit._find_imports(geometry.__name__)
    assert jit._find_imports(hashing.__name__) == set()


def test_another_kernel_that_is_called_makes_another_digest(monkeypatch):
    from ensue.kernels import jit, regions

    before = jit.compute_digest(regions.__name__)
    known = jit.compute_digest.__wrapped__

    def changed(module):
        return "changed" if module == "ensue.kernels.polygons" else known(module)

    monkeypatch.setattr(jit, "compute_digest", changed)
    assert changed(regions.__name__) != before
