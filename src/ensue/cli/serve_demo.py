"""`ensue serve --demo`: a day of trucks on a map, and what subscribers are told of it."""

import asyncio
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from ensue.cli.serve import said_of_work, server_of, temporary_file
from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.samples.fleet_day import FleetDay, fleet_day
from ensue.service.service import Service
from ensue.service.sources.contract import Progress, Taker
from ensue.service.web.server import Server

_STEP = 30.0  # seconds of the day that are published together
_HEAD = 7 * 3_600.0  # of the day that is there from the start, to try subscriptions on
_PRODUCER = "demo"


class Player:
    """Plays a day into the service, in its order."""

    def __init__(self, day: FleetDay, speed: float, server: "Server | None" = None) -> None:
        self.name = _PRODUCER
        self.progress = Progress(self.name)
        self.day = day
        self.speed = speed
        self.server = server  # is stopped when the day is over
        self.different: list[str] | None = None  # from what was planted; None: not over yet

    async def begin(self, service: Service) -> None:
        """Subscribes to what the day is watched for, and begins to play."""
        await service.subscribe_all(
            {"name": watched.name, "template": watched.template, "values": watched.values}
            for watched in self.day.subscriptions
        )
        service.add_source(self)

    async def run(self, service: Taker) -> None:
        """The day; then what was received is compared with what was planted."""
        assert isinstance(service, Service)
        sequence = 0
        for number, reports in enumerate(self.day.batches(_STEP)):
            if reports.num_rows:
                await service.publish(reports, producer=_PRODUCER, sequence=sequence)
                self.progress.count("messages", reports.num_rows)
                sequence += reports.num_rows
            if number * _STEP >= _HEAD:
                await asyncio.sleep(_STEP / self.speed)
        last = self.day.reports["ts"][-1].as_py()
        await service.advance(last + timedelta(days=1))
        found = [note.content for note in await service.notes(0, 1_000_000)]
        matches = [content for content in found if content["kind"] == "match"]
        self.different = self.day.different(matches)
        output().print(
            f"the day is over: {self.day.notes.num_rows} happenings were planted, and of what the "
            f"demo's subscriptions were told {len(self.different)} differ"
        )
        for line in self.different[:10]:
            output().print(f"  {line}")
        if self.server is not None:
            self.server.stop()


def serve_demo(options: Namespace) -> Exit:
    """Serves a day of trucks until Ctrl-C, or with --once until it is over."""
    if options.speed <= 0:
        raise UsageError("--speed must be a positive number")
    if options.file is not None and Path(options.file).exists():
        raise UsageError(
            f"{options.file} already exists, and the demo needs a new file\n"
            f"  hint: to continue it, leave out --demo: ensue serve {options.file}"
        )
    day = fleet_day(options.trucks)
    with _file(options) as path:
        service = demo_service(path, day, **said_of_work(options))
        server = server_of(service, options)
        player = Player(day, options.speed, server if options.once else None)
        server.run(_started, player.begin)
    if options.once:
        return Exit.FINE if player.different == [] else Exit.DIFFERENT
    return Exit.FINE


def demo_service(path: Path, day: FleetDay, **more: object) -> Service:
    """A service for the reports of a day."""
    given: dict[str, object] = {**more}
    # the day is a fixed one, whatever the clock says
    given["limits"] = {"max_ahead": 1e12, **dict(given.get("limits") or {})}  # type: ignore[call-overload]
    given["regions"] = {**day.regions, **dict(given.get("regions") or {})}  # type: ignore[call-overload]
    return Service(
        path, schema=day.reports.schema, time="ts", type="type", location=("x", "y"),
        space="earth", key="id", **given,  # type: ignore[arg-type]
    )  # fmt: skip


def _started(address: str) -> None:
    output().print(f"trucks move on {address}")
    notice("draw a region, choose what may happen there, see how often it would have, save it")
    notice("Ctrl-C stops it")


@contextmanager
def _file(options: Namespace) -> Iterator[Path]:
    if options.file is not None:
        yield Path(options.file)
        return
    path = temporary_file()
    try:
        yield path
    finally:
        shutil.rmtree(path.parent)
