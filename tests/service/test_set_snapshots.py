"""A restart reads the set of subscriptions as it was compiled, if nothing speaks against it."""

import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.service.matching import in_process
from ensue.service.matching import in_process as set_snapshots
from ensue.service.service import Service
from support.services import LEFT, matches, point, run, service

COUNT = 5


@pytest.fixture(autouse=True)
def few(monkeypatch) -> None:
    """A snapshot is worth it for few subscriptions."""
    monkeypatch.setattr(in_process, "_FEW", 3)


@pytest.fixture
def compiled(monkeypatch) -> list[str]:
    """The names of subscriptions whose texts were compiled."""
    found: list[str] = []
    real = SubscriptionSet.take

    def take(self, change, *more):
        found.append(change.name)
        return real(self, change, *more)

    monkeypatch.setattr(SubscriptionSet, "take", take)
    return found


async def begin(path: Path) -> None:
    """Trucks are in the depot, and each is watched."""
    async with service(path) as s:
        await s.subscribe_all({"text": LEFT.format(id=n), "name": f"s{n}"} for n in range(COUNT))
        await s.publish([point(n, n, 5.0) for n in range(COUNT)])
        await s.cancel(1)


async def leave(path: Path) -> list[str]:
    """All leave; who was told of it."""
    async with service(path) as s:
        await s.publish([point(20 + n, n, 40.0) for n in range(COUNT)])
        return sorted(found["name"] for found in await matches(s))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """The files of a service that was stopped with a snapshot of its set."""
    found = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_process, "_FEW", 3)
        run(lambda: begin(found / "a.db"))
    return found


@pytest.fixture
def begun(stopped: Path, tmp_path: Path) -> Path:
    """A copy of them."""
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a.db"


ALL_BUT_THE_CANCELLED = [f"s{n}" for n in range(1, COUNT)]


def folder_of(path: Path) -> Path:
    return Path(f"{path}-set")


def test_a_restart_compiles_what_has_changed_and_nothing_else(tmp_path, compiled):
    path = tmp_path / "a.db"

    async def story():
        await begin(path)
        assert stat.S_IMODE(folder_of(path).stat().st_mode) == 0o700
        compiled.clear()
        assert await leave(path) == ALL_BUT_THE_CANCELLED
        assert set(compiled) <= {"1"}  # the one that was cancelled behind the snapshot
        compiled.clear()
        async with service(path) as s:
            made = await s.subscribe(LEFT.format(id=99), name="late")
            await s.publish([point(100, 99, 5.0)])
            await s.publish([point(110, 99, 40.0)])
            assert (await matches(s))[-1]["name"] == "late"
        compiled.clear()
        async with service(path) as s:
            await s.publish([point(120, 99, 5.0), point(130, 99, 40.0)])
            assert (await matches(s))[-1]["name"] == "late"
        assert set(compiled) <= {"1", str(made.id)}

    run(story)


def _damage(folder: Path) -> None:
    largest = max(folder.rglob("*.npy"), key=lambda file: file.stat().st_size)
    content = largest.read_bytes()
    largest.write_bytes(content[:-1] + bytes([content[-1] ^ 0xFF]))


def _cut(folder: Path) -> None:
    for file in folder.rglob("*.npy"):
        file.write_bytes(file.read_bytes()[:-8])


def _share(folder: Path) -> None:
    folder.chmod(0o777)


def _link(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def _refuse(_: Path) -> None:
    """The files are as they were, and their tables do not fit any more."""


@pytest.mark.parametrize("break_it", [_damage, _cut, _share, _link, _refuse, shutil.rmtree])
def test_a_snapshot_that_cannot_be_read_or_trusted_is_made_anew(
    begun: Path, compiled, monkeypatch, break_it: Callable[[Path], None]
):
    def broken(*_: object, **__: object) -> SubscriptionSet:
        raise KeyError("a column that another release knew")

    if break_it is _refuse:
        monkeypatch.setattr(SubscriptionSet, "open", broken)
    break_it(folder_of(begun))
    assert run(lambda: leave(begun)) == ALL_BUT_THE_CANCELLED
    assert len(set(compiled)) >= COUNT - 1


def test_a_snapshot_of_another_release_is_not_read(begun: Path, compiled, monkeypatch):
    monkeypatch.setattr(set_snapshots, "package_version", lambda _: "99")
    assert run(lambda: leave(begun)) == ALL_BUT_THE_CANCELLED
    assert len(set(compiled)) >= COUNT - 1


def test_a_snapshot_of_another_file_is_not_read(tmp_path, compiled):
    one, other = tmp_path / "a.db", tmp_path / "b.db"

    async def texts(s: Service, far: int) -> None:
        await s.subscribe_all(
            {"text": f"=|(@(Depot)(A); 60)(DIST(Depot; >; {far})(A)), A = (ARITH:id = {n})"} for n in range(COUNT)
        )
        await s.publish([point(n, n, 5.0) for n in range(COUNT)])

    async def story():
        for path, far in ((one, 20), (other, 1_000)):
            async with service(path) as s:
                await texts(s, far)
        shutil.rmtree(folder_of(other))
        folder_of(one).rename(folder_of(other))
        assert await leave(other) == []

    run(story)
