"""Secrets in the file of a service: sealed, and the files closed to others."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from ensue.errors import StateError
from ensue.service.service import Service
from support.http_service import web
from support.services import HERE, crashed, run, service

KEY = "ENSUE_SECRET_KEY"
HOOK = {"kind": "webhook", "url": "http://127.0.0.1:9/x", "headers": {"x-auth": "hunter2hunter2"}}
LIMITS = {"allow": ["127.0.0.0/8"]}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened(path: Path, **more: object) -> Service:
    return service(path, limits=LIMITS, **more)


async def secret_of(path: Path, **more: object) -> str:
    """The secret of the webhook in a file, which is made if there is none."""
    async with opened(path, **more) as s:
        if not await s.subscriptions():
            await s.subscribe(HERE.format(id=1), targets=[HOOK])
        return await s.secret(1)


@pytest.mark.skipif(os.name != "posix", reason="modes of files are those of POSIX")
def test_files_are_closed_to_others(tmp_path):
    path = tmp_path / "a.db"

    async def story():
        os.umask(before := os.umask(0))
        for time in range(2):
            async with opened(path):
                files = {Path(f"{path}{end}") for end in ("", "-wal", "-shm", ".key")}
                assert set(tmp_path.glob("a.db*")) >= files
                assert {mode(file) for file in tmp_path.glob("a.db*")} == {0o600}
                if not time:
                    crashed(path, tmp_path / "b.db")
            path.chmod(0o644)
        for file in tmp_path.glob("b.db*"):
            file.chmod(0o666)
        async with opened(tmp_path / "b.db"):  # with files that a crash has left
            assert {mode(file) for file in tmp_path.glob("b.db*")} == {0o600}
        assert before == os.umask(before)

    run(story)


def test_no_secret_is_in_the_files_as_it_is(tmp_path):
    async def story():
        async with web(tmp_path, limits=LIMITS) as w:
            target = {"kind": "webhook", "config": {k: HOOK[k] for k in ("url", "headers")}}
            body = {"text": HERE.format(id=1), "targets": [target]}
            first, again = [
                await w.ask("ann", "POST", "/subscriptions", json=body, headers={"idempotency-key": "k"})
                for _ in range(2)
            ]
            secret = first.json()["targets"][0]["secret"]
            assert again.content == first.content
            shown = (await w.ask("ann", "GET", "/subscriptions/1/targets")).json()["items"]
            assert shown[0]["config"]["headers"] == {"x-auth": "***"}
            rotated = (await w.ask("ann", "POST", "/targets/1/rotate", json={})).json()["secret"]
            files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
            for plain in (secret, secret.removeprefix("whsec_"), rotated, "hunter2hunter2"):
                assert plain.encode() not in files

    run(story)


def test_the_key_is_beside_the_file_or_where_it_is_said(tmp_path):
    elsewhere = tmp_path / "elsewhere.key"

    async def story():
        first = await secret_of(tmp_path / "a.db")
        assert await secret_of(tmp_path / "a.db") == first
        assert (tmp_path / "a.db.key").exists()
        other = await secret_of(tmp_path / "b.db", secret_key_file=elsewhere)
        assert not (tmp_path / "b.db.key").exists()
        assert await secret_of(tmp_path / "b.db", secret_key_file=elsewhere) == other

    run(story)


def test_a_file_does_not_open_without_its_key(tmp_path):
    path, key = tmp_path / "a.db", tmp_path / "a.db.key"

    async def story():
        first = await secret_of(path)
        right = key.read_text()
        key.unlink()
        with pytest.raises(StateError, match=f"is missing: there is no (.|\n)*hint: .*{KEY}"):
            await secret_of(path)
        assert not key.exists()
        key.write_text(Fernet.generate_key().decode())
        with pytest.raises(StateError, match=r"encrypted with another key(.|\n)*hint"):
            await secret_of(path)
        key.write_text("not a key")
        with pytest.raises(StateError, match=r"is invalid(.|\n)*hint"):
            await secret_of(path)
        key.write_text("")
        with pytest.raises(StateError, match=r"is invalid(.|\n)*hint"):
            await secret_of(path)
        key.write_text(right)
        assert await secret_of(path) == first

    run(story)


def test_a_key_is_changed(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    old, new = (Fernet.generate_key().decode() for _ in range(2))

    async def story():
        monkeypatch.setenv(KEY, old)
        first = await secret_of(path)
        assert not (tmp_path / "a.db.key").exists()
        monkeypatch.setenv(KEY, f"{new},{old}")
        assert await secret_of(path) == first
        monkeypatch.setenv(KEY, new)
        assert await secret_of(path) == first
        monkeypatch.setenv(KEY, old)
        with pytest.raises(StateError, match="encrypted with another key"):
            await secret_of(path)

    run(story)
