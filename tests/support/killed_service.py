"""A service with its HTTP server in a process of its own, which tests kill and start again.

    python killed_service.py

It loads what it needs once, then starts a process for each line of JSON that says what to run:
`path`, what is said of the stream, `limits`, `sources` as {"kind": ..., "config": ...}, and
`death`, the point at which it kills itself. It says in lines of JSON the `pid` of the process, the
`address` once it listens, and its `exit` code, negative if it was killed.

A death is {"statement": TEXT, "time": N}: before the Nth statement to the file that begins with
TEXT is done; or {"commit": N}: behind the Nth commit, before anybody is told of it.
"""

import json
import logging
import os
import select
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import ensue
from ensue.cli.serve import SOURCES
from ensue.service import service as parts
from ensue.service.delivery.dispatcher import Dispatcher, DispatcherOptions
from ensue.service.delivery.retry_queue import Backoff
from ensue.service.service import Service
from ensue.service.store.database import Database
from ensue.service.web.server import HttpServer

# Receivers of a test are back at once: nobody waits minutes for them.
PACE = DispatcherOptions(requests=Backoff((0.05, 0.2)), brokers=Backoff((0.05, 0.2)), closing=5.0)


# ------------------------------------------------------------------------------------ death


def dying(death: Mapping[str, Any]) -> type[Database]:
    """The file of a service that ends at a point of its work."""

    class Dying(Database):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            if "commit" in death:
                self.committed.append(counted(death["commit"], lambda: True))

        def _open(self, *, read_only: bool = False) -> sqlite3.Connection:
            db = super()._open(read_only=read_only)
            if "statement" in death and not read_only:
                begins = death["statement"]
                db.set_trace_callback(counted(death["time"], lambda statement: statement.startswith(begins)))
            return db

    return Dying


def counted(number: int, holds: Callable[..., bool]) -> Callable[..., None]:
    """Dies the so manyth time that something holds; nobody gets time to clean up."""
    left = number

    def called(*given: Any) -> None:
        nonlocal left
        if holds(*given):
            left -= 1
            if not left:
                die()

    return called


def die() -> None:
    """Ends the process without a chance to do anything more."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_with_the_test() -> None:
    """Waits until nobody is left who could say what to run."""
    line = select.poll()
    line.register(sys.stdin, 0)  # it cannot be read here, but it is heard when it is closed
    line.poll()
    die()


# ------------------------------------------------------------------------------------- life


def run(said: dict[str, Any]) -> None:
    """Serves until it is stopped."""
    parts.Dispatcher = partial(Dispatcher, pace=PACE)
    death = said.pop("death", None)
    if death is not None:
        parts.Database = dying(death)
    sources = [SOURCES[one["kind"]](one["config"]) for one in said.pop("sources", ())]
    if "location" in said:
        said["location"] = tuple(said["location"])
    service = Service(**said, sources=sources)
    HttpServer(service, port=0).run(lambda address: tell(address=address))


def tell(**what: Any) -> None:
    """One line, as a whole."""
    os.write(sys.stdout.fileno(), json.dumps(what).encode() + b"\n")


def read_once() -> None:
    """Reads a text of each language, so that no life has to build the parsers."""
    texts = ensue.Subscriptions(time="t", location=("x", "y"))
    texts.add("1", "(ARITH:id = 1)")
    texts.add("2", "PATTERN SEQ(Any a) WITHIN 1")


def main() -> None:
    read_once()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            threading.Thread(target=die_with_the_test, daemon=True).start()
            run(json.loads(line))
            return
        tell(pid=pid)
        _, status = os.waitpid(pid, 0)
        tell(exit=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
