"""A workload at work in this process: events go in, matches come out as they are found."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ensue.engine.interrupts import allow_interrupts
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import EventError, StateError
from ensue.runtime.query_spec import Name
from ensue.runtime.spill.resident_keys import get_spill_counters
from ensue.runtime.stage import PipelineStage, StageInput, StageMatcher
from ensue.runtime.stream_order import ReleasedEvents, StreamOrder
from ensue.runtime.tasks.task_state import require_same_job
from ensue.runtime.workload import Workload
from ensue.vector.event_table import drop_bad_times, sort_events
from ensue.vector.take import create_empty_table

FORMAT = 1
LONG = 1_000  # events from which on a kernel runs where it can be interrupted: to go there takes
# longer than to match a few


@dataclass(frozen=True, slots=True)
class LiveCounters:
    """What a live matcher did, and how large it is now."""

    events: int  # that came and have a time
    late: int  # of these, those that came too late
    dropped: int  # that have no usable time, or do not fit the schema
    matches: int
    partial_matches: int
    waiting: int  # events that the watermark has not passed
    state_bytes: int  # about as many as `save` gives
    misses: int = 0  # keys that were not in memory when an event of theirs came
    stored_keys: int = 0  # that are not in memory
    stored_bytes: int = 0  # of their events


class LiveWorkload:
    """Gives the same matches as a batch run, however the events are cut into pieces."""

    def __init__(
        self, workload: Workload, delay: int | float | None, bad_events: str = "raise"
    ) -> None:
        self.workload = workload
        self.bad_events = bad_events
        self.order = StreamOrder(workload.source.shape, delay)
        self.events = self.late = self.dropped = self.matches = 0
        self.late_events: list[pa.Table] = []  # not given back yet
        self._types = workload.types
        self._stages: list[PipelineStage] = [work.whole() for work in workload.works]
        self._parts = self._made()
        self._fresh = True  # nothing was given to them
        self._outputs = {output.number: output for output in workload.outputs}
        self._nothing = {o.name: create_empty_table(o.schema) for o in workload.outputs}
        self._over: str | None = None  # why no more events can be given

    def _made(self) -> list[tuple[PipelineStage, StageMatcher]]:
        return [(stage, stage.matcher()) for stage in self._stages]

    @property
    def matchers(self) -> list[StageMatcher]:
        """What finds the matches, one for each kind of work."""
        return [matcher for _, matcher in self._parts]

    def feed(self, events: pa.Table, *, ordered: bool = True) -> Mapping[Name, pa.Table]:
        """What is certain with the next events; `ordered`: they are in the order they came."""
        self._require_open()
        shape = self.workload.source.shape
        usable, dropped = drop_bad_times(events, shape, self.bad_events, self._types, finite=True)
        if not ordered:
            usable = sort_events(usable, shape)
        with self._all_or_nothing(usable.num_rows):
            passed = self.order.take(usable)
            found = self._matched(passed.events)
            self._count(usable, passed, dropped)
        return found

    def advance(self, time: float) -> Mapping[Name, pa.Table]:
        """What is certain once time has come so far, though no event came."""
        self._require_open()
        with self._all_or_nothing(LONG):
            return self._matched(self.order.advance(time), alone=True)

    def finish(self) -> Mapping[Name, pa.Table]:
        """What only waited for more events, or for time."""
        self._require_open()
        with self._all_or_nothing(LONG):
            self._fresh = False
            left = self.order.finish()
            rounds = [(stage, self._fed(matcher, left)) for stage, matcher in self._parts]
            rounds += [(stage, matcher.finish()) for stage, matcher in self._parts]
            found = self._delivered(rounds)
        self._over = "it is finished"
        return found

    def _matched(self, events: pa.Table, *, alone: bool = False) -> Mapping[Name, pa.Table]:
        self._fresh = False
        now = self.order.now
        rounds = []
        for stage, matcher in self._parts:
            if events.num_rows:
                rounds.append((stage, self._fed(matcher, events)))
            due = matcher.deadline()
            if now is not None and (alone or (due is not None and due < now)):
                rounds.append((stage, matcher.advance(now)))
        return self._delivered(rounds)

    def _fed(self, matcher: StageMatcher, events: pa.Table) -> list[pa.Table]:
        return matcher.feed(StageInput(events, {}, ()))

    def _delivered(
        self, rounds: Sequence[tuple[PipelineStage, list[pa.Table]]]
    ) -> Mapping[Name, pa.Table]:
        found: dict[Name, list[pa.Table]] = {}
        for stage, tables in rounds:
            for number, table in stage.delivered(tables):
                output = self._outputs[number]
                found.setdefault(output.name, []).append(output.given(table))
                self.matches += table.num_rows
        joined = {n: t[0] if len(t) == 1 else pa.concat_tables(t) for n, t in found.items()}
        return self._nothing | joined

    def _count(self, usable: pa.Table, passed: ReleasedEvents, dropped: int) -> None:
        self.events += usable.num_rows
        self.dropped += dropped
        if passed.late.num_rows:
            self.late += passed.late.num_rows
            if self.workload.deliver_late:
                self.late_events.append(passed.late)

    def _require_open(self) -> None:
        if self._over is not None:
            raise EventError(
                f"no more events can be given to this live matcher: {self._over}\n"
                "  hint: make a new one with ensue.live, and restore a state that was saved before"
            )

    @contextlib.contextmanager
    def _all_or_nothing(self, rows: int) -> Iterator[None]:
        """A piece that is matched in part leaves a matcher that nobody can go on with."""
        try:
            if rows < LONG:
                yield
            else:
                with allow_interrupts():
                    yield
        except BaseException as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            self._over = f"it was stopped in the middle of a piece ({why})"
            raise

    @property
    def counts(self) -> LiveCounters:
        matchers = self.matchers
        size = self.order.nbytes + sum(m.state_bytes for m in matchers)
        spilled = [get_spill_counters(matcher) for matcher in matchers]
        return LiveCounters(
            self.events,
            self.late,
            self.dropped,
            self.matches,
            sum(m.partial_matches for m in matchers),
            self.order.waiting.num_rows,
            size,
            sum(one.misses for one in spilled),
            sum(one.keys for one in spilled),
            sum(one.bytes for one in spilled),
        )

    def take_late_events(self) -> pa.Table:
        """The late events since it was asked last."""
        given, self.late_events = self.late_events, []
        late = pa.concat_tables([create_empty_table(self.workload.source.arrow), *given])
        return late.select(self.workload.source.came.names)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        self._require_open()
        header = {
            "live": FORMAT,
            "workload": self.workload.text,
            "delay": self.order.delay,
            "counted": [self.events, self.late, self.dropped, self.matches],
        }
        late = pa.concat_tables(
            [create_empty_table(self.workload.source.arrow), *self.late_events]
        )
        blobs = {"order": self.order.save(), "late": serialize_table(late)}
        blobs |= {f"part {k}": m.save() for k, (_, m) in enumerate(self._parts)}
        return pack_state(header, {}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped. If that cannot be, nothing has changed."""
        header, _, blobs = unpack_state(data)
        if "live" not in header:
            raise StateError("these bytes are no saved state of a live matcher")
        if header["live"] != FORMAT:
            raise StateError(
                f"the state was saved in format {header['live']}, this release reads {FORMAT}\n"
                "  hint: use the release that saved it"
            )
        require_same_job(header["workload"], self.workload.text, "saved state")
        if header["delay"] != self.order.delay:
            raise StateError(
                "the saved state was written with another watermark=\n"
                "  hint: pass the one that it was written with"
            )
        if self._fresh:  # its matchers are made and empty: large sets take a while to make ready
            parts, self._fresh = self._parts, False
        else:
            parts = self._made()
        try:
            for k, (_, matcher) in enumerate(parts):
                matcher.restore(blobs[f"part {k}"])
        except BaseException:
            if parts is self._parts:
                self._parts = self._made()
            raise
        order = StreamOrder(self.order.shape, self.order.delay)
        order.restore(blobs["order"])
        late = deserialize_table(blobs["late"])
        self._parts, self.order, self._over = parts, order, None
        self.events, self.late, self.dropped, self.matches = header["counted"]
        self.late_events = [late] if late.num_rows else []
