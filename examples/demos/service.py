"""`make demo-service`: a day of trucks on a map, and what subscribers are told of it.

cd examples && python -m demos.service [FILE] [--speed N] [--trucks N] [--once]
"""

import asyncio
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from ensue.cli.main import count, run_parsed
from ensue.cli.options import add_server_options, add_service_options
from ensue.cli.serve import build_server, get_service_arguments, log_to_stderr
from ensue.cli.terminal import UsageError, get_output_console, print_notice
from ensue.service.service import Service
from ensue.service.sources.source import EventSource
from ensue.service.web.server import HttpServer
from samples.fleet_day import FleetDay, fleet_day

_STEP = 30.0  # seconds of the day that are published together
_HEAD = 7 * 3_600.0  # of the day that is there from the start, to try subscriptions on
_PRODUCER = "demo"


class Player(EventSource):
    """Plays a day into the service, in its order."""

    def __init__(self, day: FleetDay, speed: float, server: "HttpServer | None" = None) -> None:
        super().__init__(_PRODUCER)
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

    async def run(self, service: Service) -> None:
        """The day; then what was received is compared with what was planted."""
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
        found = [note.content for note in await service.list_notifications(0, 1_000_000)]
        matches = [content for content in found if content["kind"] == "match"]
        self.different = self.day.different(matches)
        get_output_console().print(
            f"the day is over: {self.day.notes.num_rows} happenings were planted, and of what the "
            f"demo's subscriptions were told {len(self.different)} differ"
        )
        for line in self.different[:10]:
            get_output_console().print(f"  {line}")
        if self.server is not None:
            self.server.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; with --once, 1 if subscribers were told other than what was planted."""
    parser = ArgumentParser(prog="demos.service", description="Replay a day of trucks into the subscription service.")
    parser.add_argument("file", metavar="FILE", nargs="?", help="a new file; default: a temporary one")
    parser.add_argument("--speed", type=float, default=60.0, help="how many times faster; default: 60")
    parser.add_argument("--trucks", type=count, default=200, help="default: 200")
    parser.add_argument("--once", action="store_true", help="stop and check when the day is over")
    add_server_options(parser)
    add_service_options(parser)
    parser.set_defaults(command=serve_demo)
    return run_parsed(parser, arguments)


def serve_demo(options: Namespace) -> int:
    """Serves a day of trucks until Ctrl-C, or with --once until it is over."""
    log_to_stderr()
    if options.speed <= 0:
        raise UsageError("--speed must be a positive number")
    if options.file is not None and Path(options.file).exists():
        raise UsageError(
            f"{options.file} already exists, and the demo needs a new file\n"
            f"  hint: to continue it: ensue serve {options.file}"
        )
    day = fleet_day(options.trucks)
    with _file(options) as path:
        service = demo_service(path, day, **get_service_arguments(options))
        server = build_server(service, options)
        player = Player(day, options.speed, server if options.once else None)
        server.run(_started, player.begin)
    if options.once:
        return 0 if player.different == [] else 1
    return 0


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
    get_output_console().print(f"trucks move on {address}")
    print_notice("draw a region, choose what may happen there, see how often it would have, save it")
    print_notice("Ctrl-C stops it")


@contextmanager
def _file(options: Namespace) -> Iterator[Path]:
    if options.file is not None:
        yield Path(options.file)
        return
    with tempfile.TemporaryDirectory(prefix="ensue-demo-") as folder:
        yield Path(folder) / "fleet.db"


if __name__ == "__main__":
    sys.exit(main())
