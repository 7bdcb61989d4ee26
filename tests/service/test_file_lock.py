"""One service at a time uses a file: a second one is refused, and says who has it."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ensue.errors import StateError
from ensue.service.store.database import FileLock
from support.services import HERE, matches, point, run, service

HOLDING = """
import sys, time
from ensue.service.store.database import FileLock
lock = FileLock(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_service_on_a_file_is_refused_and_the_first_goes_on(tmp_path):
    async def story():
        path = tmp_path / "a.db"
        async with service(path) as first:
            await first.subscribe(HERE.format(id=1))
            with pytest.raises(StateError) as refused:
                await service(path).start()
            assert f"process {os.getpid()} on {socket.gethostname()}" in str(refused.value)
            assert "stop that one first" in str(refused.value)
            await first.publish(point(1, 1, 0.0))
            assert len(await matches(first)) == 1
        async with service(path) as second:  # the lock went with the first
            assert len(await matches(second)) == 1

    run(story)


def test_another_name_of_the_same_file_is_the_same_file(tmp_path):
    (tmp_path / "other").symlink_to(tmp_path, target_is_directory=True)
    lock = FileLock(tmp_path / "a.db")
    with pytest.raises(StateError, match="in use"):
        FileLock(tmp_path / "other" / "a.db")
    lock.release()


def test_a_service_that_cannot_start_leaves_the_file_to_others(tmp_path):
    async def story():
        (tmp_path / "a.db").write_bytes(b"no database at all, but a text" * 100)
        with pytest.raises(StateError, match="cannot be opened"):
            await service(tmp_path / "a.db").start()
        FileLock(tmp_path / "a.db").release()

    run(story)


def test_the_lock_of_a_killed_process_is_gone(tmp_path):
    source = str(Path(__file__).parents[2] / "src")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(tmp_path / "a.db")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(StateError, match=f"process {other.pid} on "):
            FileLock(tmp_path / "a.db")
        other.send_signal(signal.SIGKILL)
        other.wait()
        FileLock(tmp_path / "a.db").release()
    finally:
        other.kill()
        other.communicate()


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    lock = FileLock(tmp_path / "a.db")
    up, tell_up = os.pipe()
    over, tell_over = os.pipe()
    child = os.fork()
    if not child:
        os.write(tell_up, b"x")
        os.read(over, 1)
        os._exit(0)
    try:
        os.read(up, 1)
        with pytest.raises(StateError, match="in use"):  # the child has not let it go for others
            FileLock(tmp_path / "a.db")
        lock.release()
        FileLock(tmp_path / "a.db").release()
    finally:
        os.write(tell_over, b"x")
        os.waitpid(child, 0)
        for end in (up, tell_up, over, tell_over):
            os.close(end)
