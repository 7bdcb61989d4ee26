"""Incremental matchers of queries, with buffers of the events they still need."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.engine import Engine
from ensue.engine.memory_budget import Usage, sum_usage
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.projection.match_order import RANK, rank_matches
from ensue.projection.match_table import filter_matches
from ensue.runtime.compiled_query import CompiledQuery, build_result
from ensue.runtime.event_buffer import FEW, BufferedEvents, EventBuffer
from ensue.runtime.spill.spilled_keys import is_spill_snapshot, restore_unlimited
from ensue.runtime.stage import Matcher, StageInput, StageMatcher
from ensue.vector.event_table import StreamSchema, get_end_times, split_table
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode
    from ensue.planner.statistics import MatcherCounters

REPLAY_ROWS = 1 << 16  # events after which a replay discards its matches


class LiveMatcher:
    """Feeds batches of an ordered stream to a query; the matches do not depend on the batches."""

    def __init__(self, prepared: CompiledQuery) -> None:
        self.prepared = prepared
        self.engine = prepared.engine()
        self.store = EventBuffer(prepared.shape)
        self._nothing: pa.Table | None = None  # the empty result

    def process(self, events: pa.Table) -> pa.Table:
        """The matches that the next events complete; the events are in stream order."""
        first = self.engine.rows
        matches = self.engine.process(events)
        if events.num_rows <= FEW:
            self.store.add(events, first, None)
            result = self._result(matches)
            if self.store.is_full:
                self.store.keep(self.engine.get_held_rows())
            return result
        kept = self.engine.get_held_rows()
        self.store.add(events, first, [kept, *(matches.elements(v) for v in matches.variables)])
        result = self._result(matches)
        self.store.keep(kept)
        return result

    def on_watermark(self, now: float) -> pa.Table:
        """The matches that the watermark `now` completes."""
        result = self._result(self.engine.on_watermark(now))
        self.store.keep(self.engine.get_held_rows())
        self.store.forget_before(now)
        return result

    def replay(self, events: pa.Table, now: float | None) -> None:
        """Rebuilds the state at the watermark `now` from past events; discards their matches."""
        first = self.engine.rows
        if isinstance(self.engine, Engine):
            rows = first + events.num_rows
            self.engine.replay(split_table(events, REPLAY_ROWS), rows, now)
        else:
            self.engine.process(events)
            if now is not None:
                self.engine.on_watermark(now)
        self.engine.hand_over()
        self.store.add(events, first, [self.engine.get_held_rows()])
        if now is not None:
            self.store.forget_before(now)

    def drop(self, events: pa.Table) -> bool:
        """Drops the state of the keys of some events; False if the engine cannot."""
        engine = self.engine
        if not isinstance(engine, Engine) or not engine.can_drop_keys:
            return False
        keys = self.prepared.plan.query.equivalence
        engine.drop_keys([events.column(key.field_name) for key in keys])
        self.store.keep(engine.get_held_rows())
        return True

    def _result(self, matches: Matches) -> pa.Table:
        self.engine.hand_over()
        if not matches.count and self._nothing is not None:
            return self._nothing
        table = self._build_table(matches, self.store.get_events([matches]))
        if self._nothing is None:
            self._nothing = table.slice(0, 0)
        return table

    def _build_table(self, matches: Matches, known: BufferedEvents) -> pa.Table:
        return build_result(self.prepared, known.renumber(matches), known.events)

    def ranked_result(self, matches: Matches, known: BufferedEvents) -> pa.Table:
        """The result of matches, with the column of their ranks."""
        query, schema = self.prepared.shape.physical(self.prepared.query)
        columns, residual = self.prepared.shape.get_columns(query), self.prepared.plan.residual
        placed = known.renumber(matches)
        found = filter_matches(placed, known.events, query, schema, residual, columns)
        result = build_result(self._accepting_all, found, known.events)
        in_stream = found.map_rows(lambda rows: np.where(rows < 0, rows, known.rows[rows]))
        return result.append_column(RANK, rank_matches(in_stream, self.prepared.query))

    @cached_property
    def _accepting_all(self) -> CompiledQuery:
        """The query without conditions on matches."""
        plan = replace(self.prepared.plan, residual=())
        return replace(self.prepared, query=replace(self.prepared.query, having=None), plan=plan)

    def next_timer(self) -> float | None:
        return self.engine.next_timer()

    @property
    def usage(self) -> Usage:
        return self.engine.usage.add_bytes(self.store.nbytes)

    def snapshot(self) -> bytes:
        self.store.keep(self.engine.get_held_rows())
        events, arrays = self.store.snapshot()
        return pack_state({}, arrays, {"engine": self.engine.snapshot(), "events": events})

    def restore(self, data: bytes) -> None:
        _, arrays, blobs = unpack_state(data)
        self.engine.restore(blobs["engine"])
        self.store.restore(blobs["events"], arrays)


CompositeMember = Matcher[pa.Table, pa.Table]
M = TypeVar("M", bound=CompositeMember)


class CompositeMatcher(Generic[M]):
    """A matcher with its own events for each query; returns a table for each."""

    def __init__(self, matchers: Sequence[M]) -> None:
        self.matchers = matchers

    def process(self, batch: StageInput) -> list[pa.Table]:
        return [matcher.process(batch.bare) for matcher in self.matchers]

    def on_watermark(self, now: float) -> list[pa.Table]:
        return [matcher.on_watermark(now) for matcher in self.matchers]

    def next_timer(self) -> float | None:
        times = [t for m in self.matchers if (t := m.next_timer()) is not None]
        return min(times, default=None)

    @property
    def usage(self) -> Usage:
        return sum_usage(m.usage for m in self.matchers)

    def snapshot(self) -> bytes:
        return pack_state({}, {}, {str(k): m.snapshot() for k, m in enumerate(self.matchers)})

    def restore(self, data: bytes) -> None:
        _, _, saved = unpack_state(data)
        if set(saved) != {str(k) for k in range(len(self.matchers))}:
            raise StateError("the state of a stream was saved for another set of queries")
        for k, matcher in enumerate(self.matchers):
            matcher.restore(saved[str(k)])


class CompositeLiveMatcher(CompositeMatcher[LiveMatcher]):
    """Matchers of several queries, whose keys can be dropped and replayed."""

    def __init__(self, queries: Sequence[CompiledQuery]) -> None:
        super().__init__([LiveMatcher(query) for query in queries])

    def drop(self, events: pa.Table) -> bool:
        """Drops the state of the keys of some events; False: it has to be rebuilt."""
        return all(matcher.drop(events) for matcher in self.matchers)

    def replay(self, events: pa.Table, now: float | None) -> None:
        for matcher in self.matchers:
            matcher.replay(events, now)

    def restore(self, data: bytes) -> None:
        """Restores a saved state, also that of a spilling matcher."""
        if is_spill_snapshot(data):
            restore_unlimited(self, data, self.matchers[0].prepared.shape)
        else:
            super().restore(data)


# ---------------------------------------------------------------------------- EXPLAIN ANALYZE

PIECE = 1 << 16  # events between two counts of the partial matches
FIRST = 100  # events of a first run, which compiles all kernels
S = TypeVar("S", bound=StageMatcher)


class MatcherMeter:
    """Measures what a matcher does, with the counters of its kernel."""

    def __init__(self, matcher: LiveMatcher) -> None:
        self.engine, self.plan = matcher.prepared.engine(counted=True), matcher.prepared.plan
        self.matches = self.most_partial = 0
        self.seconds = self.result_seconds = 0.0
        self.counters: MatcherCounters | None = None
        matcher.engine = self.engine
        build = matcher._build_table
        for name in ("process", "on_watermark"):
            setattr(matcher, name, partial(self._run, getattr(matcher, name)))
        setattr(matcher, "_build_table", partial(self._build, build))  # noqa: B010  it is a method

    def _run(self, call: Callable[[Any], pa.Table], argument: Any) -> pa.Table:
        if isinstance(argument, float) and argument == math.inf and isinstance(self.engine, Engine):
            self.counters = self.engine.counters()  # before the end drops all partial matches
        began = perf_counter()
        table = call(argument)
        self.seconds += perf_counter() - began
        self.matches += table.num_rows
        self.most_partial = max(self.most_partial, self.engine.usage.partial_matches)
        return table

    def _build(self, build: Callable[[Matches, BufferedEvents], pa.Table], *found: Any) -> pa.Table:
        began = perf_counter()
        table = build(*found)
        self.result_seconds += perf_counter() - began
        return table

    def describe(self, *seconds: tuple[str, float]) -> "PlanNode":
        """Describes the run: estimates, actual figures, and the seconds of its phases."""
        from ensue.planner.explain.run_metrics import RunCounts, describe_run

        return describe_run(
            self.plan, RunCounts(self.engine.rows, self.matches, self.counters, self.most_partial, seconds)
        )


def measure_run(
    create: Callable[[], S], parts: Callable[[S], Sequence[LiveMatcher]], events: pa.Table, shape: StreamSchema
) -> tuple[list[MatcherMeter], float, float]:
    """Runs a matcher over events in stream order, and returns its meters and the seconds of compiling and running."""
    times = [perf_counter()]
    for part in (events.slice(0, FIRST), events):
        matcher = create()
        meters = [MatcherMeter(one) for one in parts(matcher)]
        for piece in split_table(part, PIECE):
            matcher.process(StageInput.from_events(piece))
            matcher.on_watermark(get_end_times(piece, shape)[-1].item())  # so that expired matches are not counted
        matcher.on_watermark(math.inf)
        times.append(perf_counter())
    return meters, times[1] - times[0], times[2] - times[1]
