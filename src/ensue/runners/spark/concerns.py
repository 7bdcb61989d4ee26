"""What the owner of a stream should hear of: events that are left out, said once on the driver."""

import logging
from typing import Any
from weakref import WeakSet

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from ensue.runners.spark.progress import BatchProgress, read
from ensue.runners.spark.stream import is_ours

LOGGER = "ensue.stream"
_heard: "WeakSet[SparkSession]" = WeakSet()  # sessions with a listener


class Concerns:
    """What was said of one stream."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def of(self, done: BatchProgress) -> list[str]:
        """What is to be said of a micro-batch, and was not of an earlier one."""
        found = {}
        if done.ahead:
            found["ahead"] = (
                f"{_events(done.ahead)} of micro-batch {done.batch} left out, since the time is "
                "further ahead of the clock than max_ahead= allows\n"
                "  hint: fix the sender; with max_ahead=None they would pass, and all others "
                "would be late"
            )
        if 2 * done.late > done.events:
            found["late"] = (
                f"most of micro-batch {done.batch} is late: {done.late} of "
                f"{_events(done.events)} end before the watermark, {done.watermark}\n"
                "  hint: a longer watermark= includes them; if the watermark is in the future, an "
                "event with a wrong time has moved it, and you need a new checkpoint"
            )
        if done.dropped:
            found["dropped"] = (
                f"{_events(done.dropped)} of micro-batch {done.batch} without usable time left out"
            )
        if done.shed_keys:  # every time: each is a loss of its own
            found[f"shed {done.batch}"] = (
                f"micro-batch {done.batch} is behind the clock by more than shed= allows: "
                f"{_events(done.shed_events)} of {done.shed_keys:,} keys dropped, and "
                f"{done.shed_partial_matches:,} partial matches of theirs\n"
                "  hint: ensue.start(..., shed_to=folder) lists them by key and interval"
            )
        new = [text for kind, text in found.items() if kind not in self._said]
        self._said |= set(found)
        return new


def _events(count: int) -> str:
    return f"{count:,} event{'' if count == 1 else 's'}"


class Listener(StreamingQueryListener):
    """Writes the concerns of all streams of a session to the log."""

    def __init__(self) -> None:
        self.concerns: dict[str, Concerns] = {}

    # Spark gives these their names and arguments.

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if not any(map(is_ours, dict(progress["observedMetrics"] or {}))):
            return  # a stream of somebody else
        concerns = self.concerns.setdefault(str(progress["runId"]), Concerns())
        name = progress["name"]
        for text in concerns.of(read(progress)):
            logging.getLogger(LOGGER).warning(f"{name}: {text}" if name else text)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self.concerns.pop(str(event.runId), None)


def listen(session: SparkSession) -> None:
    """Lets the streams of a session say what concerns their owner, once for all of them."""
    if session not in _heard:
        session.streams.addListener(Listener())
        _heard.add(session)
