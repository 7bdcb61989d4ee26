"""A day of 200 trucks through the subscription service, and what its subscribers received.

Departures, arrivals, silences, rests and strays from convoys are planted in the reports, among
much that looks like them, so what subscribers are told can be checked. One listens in this
program; the other is a webhook, a small HTTP server here, which verifies the signature of each
request and drops what it has seen. In the middle of the day the service is stopped, and goes on
from its file. Needs `pip install ".[service]"`; nothing but this machine is spoken to.
"""

import asyncio
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

import ensue
from samples.fleet_day import FleetDay, fleet_day

SILENT = "silent"  # the subscription whose notes go to the webhook


async def main() -> None:
    day = fleet_day()
    print(f"{day.reports.num_rows:,} reports, {day.notes.num_rows:,} happenings planted")
    hook = Hook()
    await hook.start()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fleet.db"
        pieces = list(day.batches(15 * 60))
        noon = len(pieces) // 2
        async with service(file, day) as running:
            await subscribe(running, day, hook)
            heard, token = await played(running, day, pieces[:noon])
        async with service(file, day) as running:  # another process could do this
            rest, _ = await played(running, day, pieces[noon:], token)
            await running.dispatcher.wait_until_idle()
    await hook.stop()
    silences = [match for match in heard + rest if match["name"] == SILENT]
    right = [check("listening", heard + rest, day), {match["match_id"] for match in silences} == hook.received.keys()]
    print(f"by webhook   {len(hook.received)} of {len(silences)} silences, {hook.repeats} repeated")
    if not all(right):
        sys.exit(1)


def service(file: Path, day: FleetDay) -> ensue.Service:
    """A service over the reports; one that was there before goes on where it stopped."""
    return ensue.Service(
        file,
        schema=day.reports.schema,
        time="ts",
        type="type",
        location=("x", "y"),
        space="earth",
        key="id",
        regions=day.regions,
        limits={"allow": ("127.0.0.0/8",)},  # for the webhook here: it would be refused else
    )


async def subscribe(service: ensue.Service, day: FleetDay, hook: "Hook") -> None:
    for name, template, values in day.subscriptions:
        made = await service.subscribe(name=name, template=template, values=values)
        if name == SILENT:
            target = await service.add_target(made.id, "webhook", {"url": hook.url})
            hook.secret = await service.secret(target)


async def played(
    service: ensue.Service, day: FleetDay, pieces: list[Any], token: int = 0
) -> tuple[list[dict[str, Any]], int]:
    """Publishes reports while somebody listens; what was heard, and the token to go on from."""
    heard: list[dict[str, Any]] = []

    async def listen() -> None:
        nonlocal token
        async for note in service.notifications(after=token):
            token = note.number
            if note.kind == "match":
                heard.append(note.content)

    listening = asyncio.create_task(listen())
    sequence = await service.position("reports") or 0  # the number of the next report
    for reports in pieces:
        await service.publish(reports, producer="reports", sequence=sequence)
        sequence += reports.num_rows
    last = day.reports["ts"][-1].as_py()
    if pieces[-1].num_rows and pieces[-1]["ts"][-1].as_py() == last:
        await service.advance(last + timedelta(days=1))  # no more reports come: silences are known
    newest = (await service.health())["newest_note"]
    while token < newest:
        await asyncio.sleep(0.01)
    listening.cancel()
    return heard, token


class Hook:
    """A web server that takes notifications."""

    def __init__(self) -> None:
        self.secret = ""
        self.received: dict[str, dict[str, Any]] = {}  # by webhook-id
        self.repeats = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hook"

    async def stop(self) -> None:
        self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():  # until the connection ends
            head = line + await reader.readuntil(b"\r\n\r\n")
            _, *lines = head.decode().split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
            }
            body = await reader.readexactly(int(headers["content-length"]))
            content = Webhook(self.secret).verify(body, headers)  # an error if it is not ours
            id = headers["webhook-id"]
            if content["kind"] == "match":
                self.repeats += id in self.received
                self.received[id] = content
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            await writer.drain()


def check(who: str, matches: list[dict[str, Any]], day: FleetDay) -> bool:
    different = day.different(matches)
    missed = sum(line.startswith("missed") for line in different)
    print(
        f"{who:12} {len(matches)} received, {day.notes.num_rows} planted: {missed} missed, "
        f"{len(different) - missed} false"
    )
    for line in different[:10]:
        print(f"  {line}")
    return not different


if __name__ == "__main__":
    asyncio.run(main())
