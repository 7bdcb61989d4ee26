"""The operator and the stages of a subscription set; events are routed to tasks before they are
sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.version_pins import find_version_start, pin_version
from ensue.operators.subscriptions.subscription_loader import (
    FollowingMatcher,
    SubscriptionSetLoader,
    load_on_driver,
    write_due_snapshot,
)
from ensue.operators.subscriptions.subscription_matcher import SLICE, SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import (
    SubscriptionSet,
    compile_subscription_set,
    return_subscription_set,
    take_subscription_set,
)
from ensue.operators.subscriptions.template_table import decode_pattern_numbers, is_pattern_leaf
from ensue.options import Limits
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.job_fingerprint import find_started_set
from ensue.runtime.query_spec import QuerySpec, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import (
    ARRIVAL,
    BATCH,
    ROW,
    InputFilter,
    MicroBatch,
    OutputTable,
    PlannedQueries,
    PlanRequest,
    RoutedEvents,
    StageInput,
    StageMatcher,
    SubscriptionVersion,
    TableMatcher,
    UnseenTypes,
    build_output,
)
from ensue.vector.event_table import split_table
from ensue.vector.take import create_empty_table

ALL_EVENTS = InputFilter(None)  # routing selects the relevant events


@dataclass(frozen=True)
class SubscriptionStage:
    """All subscriptions of a set over one stream, and the output of their matches."""

    subscribed: SubscriptionsSpec
    source: SourceSchema
    output: OutputTable
    limits: Limits
    streaming: bool = False
    whole_stream: str | None = None
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)
    reads: InputFilter = ALL_EVENTS

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        return (self.output,)

    def matches(self, tables: Sequence[pa.Table]) -> int:
        return sum(table.num_rows for table in tables)

    def iterate_outputs(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """Yields the matches with the number of their output."""
        for table in tables:
            if table.num_rows:
                yield self.output.number, table

    def iterate_forwarded(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        """Yields nothing: no other stage reads the matches of subscriptions."""
        return iter(())


# ---------------------------------------------------------------------------- tasks

VERSION = "__version"  # of the set that routed an event
ADDED = pa.schema({VERSION: pa.int64()})
FORMAT = 1  # of the state of a task
_TABLE = "table"  # stands for the stream id when events are a complete table


@dataclass(frozen=True)
class RoutedSubscriptionStage(SubscriptionStage):
    """Distributes the subscriptions of a set over tasks."""

    arrival: tuple[str, ...] = (BATCH, ROW)
    added: pa.Schema = ADDED

    def spread(self, events: pa.Table, key_groups: int, batch: MicroBatch | None) -> RoutedEvents:
        """Sends each event to every task with a subscription for which it is relevant."""
        version = self._version(batch)
        number = self.subscribed.version if version is None else version.number
        subscriptions = self._load_set(version, key_groups)
        rows, tasks = [], []
        first, bits = 0, np.arange(key_groups, dtype=np.uint64) & np.uint64(63)
        for piece in split_table(events, SLICE):
            relevant, masks = _find_tasks(subscriptions, piece)
            numbers, key_group = np.nonzero(masks[:, None] >> bits & np.uint64(1))
            rows.append(relevant[numbers] + first)
            tasks.append(key_group)
            first += piece.num_rows
        row = np.concatenate([np.zeros(0, np.int64), *rows])
        added = pa.table({VERSION: np.full(len(row), number, np.int64)}, schema=ADDED)
        return RoutedEvents(row, np.concatenate([np.zeros(0, np.int64), *tasks]), added, version)

    def _version(self, batch: MicroBatch | None) -> SubscriptionVersion | None:
        """Returns the version of a micro-batch; None if the set does not change."""
        log = self.subscribed.log
        if batch is None or not isinstance(log, CatalogLog):
            return None
        number = pin_version(log, batch.stream, batch.number)
        moment = find_version_start(log, batch.stream, number)
        assert moment is not None
        return SubscriptionVersion(number, moment.batch, batch.stream)

    def _load_set(self, version: SubscriptionVersion | None, key_groups: int) -> SubscriptionSet:
        """Returns the set that routes the current events."""
        log = self.subscribed.log
        if not isinstance(log, CatalogLog):
            return self._build_set_once(key_groups)
        if version is None:
            return self.set_loader(_TABLE, key_groups).at(log, self.subscribed.version)
        loader = self.set_loader(version.stream, key_groups)
        loaded = loader.at(log, version.number)
        write_due_snapshot(log, loader, version.number, loaded)
        return loaded

    def require_fit(self) -> None:
        """Raises an error before the start if a subscription does not fit the events."""
        log = self.subscribed.log
        if isinstance(log, CatalogLog):
            load_on_driver(log, self.set_loader(_TABLE, 1), self.subscribed.version)
        else:
            self._build_set_once(1)

    def set_loader(self, stream: str, key_groups: int) -> SubscriptionSetLoader:
        return SubscriptionSetLoader.build(self.source, streaming=self.streaming, key_groups=key_groups, stream=stream)

    def _build_set_once(self, key_groups: int) -> SubscriptionSet:
        """Returns the set in memory, built once per number of tasks."""
        if key_groups not in self._built_sets:
            self._built_sets[key_groups] = compile_subscription_set(
                self.subscribed, self.source, streaming=self.streaming, key_groups=key_groups
            )
        return self._built_sets[key_groups]

    @cached_property
    def _built_sets(self) -> dict[int, SubscriptionSet]:
        return {}

    def __reduce__(self) -> Any:
        return RoutedSubscriptionStage, (
            self.subscribed, self.source, self.output, self.limits, self.streaming,
        )  # fmt: skip

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> "SubscriptionTaskMatcher":
        return SubscriptionTaskMatcher(self, key_group, key_groups)

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:
        subscriptions = self._load_set(None, key_groups)
        return SubscriptionMatcher(subscriptions, self.limits, key_group, version=self.subscribed.version)


class SubscriptionTaskMatcher(SubscriptionMatcher):
    """Matches the subscriptions of one task; a new version is announced before its events.

    The state is identified by keys of nodes and names of subscriptions, so it can be restored
    in any process and with any later version: cancelled subscriptions are dropped, and added
    ones do not see events of earlier versions.
    """

    def __init__(self, stage: RoutedSubscriptionStage, key_group: int, key_groups: int) -> None:
        self.stage, self.key_group, self.key_groups = stage, key_group, key_groups
        self.announced: SubscriptionVersion | None = None
        self.passed: float | None = None  # the current stream time
        changing = stage.streaming and isinstance(stage.subscribed.log, CatalogLog)
        if changing:  # it knows no version yet
            self._begin(SubscriptionSet(stage.source.shape, streaming=True, key_groups=key_groups))
        else:
            self._begin(stage._load_set(None, key_groups))
            self.version = stage.subscribed.version

    def _begin(self, subscriptions: SubscriptionSet) -> None:
        SubscriptionMatcher.__init__(self, subscriptions, self.stage.limits, self.key_group)
        subscriptions.matchers.add(self)

    def renew(self, version: SubscriptionVersion) -> None:
        """Switches to another version of the set."""
        self.announced = version
        log = self.stage.subscribed.log
        assert isinstance(log, CatalogLog)
        subscriptions = self.stage.set_loader(version.stream, self.key_groups).at(log, version.number, later=True)
        if subscriptions is not self.subscription_set:
            saved = SubscriptionMatcher.snapshot(self)
            self._begin(subscriptions)
            self.state.version = self.version
            SubscriptionMatcher.restore(self, saved)
        self.version = self.state.version = version.number
        if self.passed is not None:
            self.state.skip_past(self.passed)

    def process(self, batch: StageInput) -> list[pa.Table]:
        """Returns what the next events complete, each seen by the subscriptions of its version."""
        events = batch.events.select(self.stage.source.arrow.names)
        versions = np.asarray(batch.events.column(VERSION).to_numpy(), np.int64)
        tables, first = [], 0
        for piece in split_table(events, SLICE):
            end = first + piece.num_rows
            tables.append(self._feed_slice(piece, versions[first:end]))
            first = end
        return [pa.concat_tables(tables) if tables else create_empty_table(self.schema)]

    def on_watermark(self, now: float) -> list[pa.Table]:
        self.passed = now
        return super().on_watermark(now)

    def snapshot(self) -> bytes:
        announced = None if self.announced is None else asdict(self.announced)
        header = {"key_group_format": FORMAT, "announced": announced, "passed": self.passed}
        return pack_state(header, {}, {"fleet": super().snapshot()})

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        if header.get("key_group_format") != FORMAT:
            raise StateError(
                f"the state of subscriptions is of format {header.get('key_group_format')}, and this "
                f"release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        if header["announced"] is not None:
            self.renew(SubscriptionVersion(**header["announced"]))
        super().restore(blobs["fleet"])
        self.passed = header["passed"]


def _find_tasks(subscriptions: SubscriptionSet, events: pa.Table) -> tuple[Any, Any]:
    """Returns the relevant events, and their tasks, modulo 64, as bits."""
    rows, leaves = subscriptions.route(events)
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    of_pattern = is_pattern_leaf(leaves)
    bits = np.zeros(len(leaves), np.uint64)
    bits[~of_pattern] = subscriptions.nodes.arrays().key_groups[leaves[~of_pattern]]
    bits[of_pattern] = subscriptions.patterns.key_group_bits(
        decode_pattern_numbers(leaves[of_pattern]), subscriptions.key_groups
    )
    order = np.argsort(rows, kind="stable")
    rows, bits = rows[order].astype(np.int64), bits[order]
    begins = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return rows[begins], np.bitwise_or.reduceat(bits, begins)


# ---------------------------------------------------------------------------- operator


def plan_subscriptions(specs: Sequence[QuerySpec], call: PlanRequest) -> PlannedQueries:
    """Plans a set of subscriptions, the only query of a call."""
    (spec,), source, options = specs, call.source, call.options
    subscribed = spec.query
    assert isinstance(subscribed, SubscriptionsSpec)

    def build_operators(outputs: Mapping[QuerySpec, Sequence[OutputTable]]) -> Iterator[SubscriptionOperator]:
        (output,) = outputs[spec]
        limits = options.planning.limits
        yield SubscriptionOperator(subscribed, source, output, limits, options.streaming)

    return PlannedQueries({spec: (build_output(spec, build_notification_schema(source.shape), None),)}, build_operators)


def describe_subscriptions(subscribed: SubscriptionsSpec) -> dict[str, Any]:
    """Describes a set of subscriptions in the text of a checkpoint."""
    return {"subscriptions": subscribed.log.identity}


def parse_subscriptions(described: Mapping[str, Any], _operators: object) -> SubscriptionsSpec:
    """Opens the set of subscriptions that a checkpoint describes."""
    place, _, folder = described["subscriptions"].partition(" ")
    if place != "folder":
        return find_started_set(described["subscriptions"])
    log = CatalogLog(folder)
    return SubscriptionsSpec(log, log.latest())


@dataclass(frozen=True)
class SubscriptionOperator:
    """Runs all subscriptions of a set."""

    subscribed: SubscriptionsSpec
    source: SourceSchema
    output: OutputTable
    limits: Limits
    streaming: bool = False
    of_events: bool = True
    rows: None = None  # all events are needed
    reads: InputFilter = ALL_EVENTS
    expected: tuple[CompiledQuery, ...] = ()  # matches of subscriptions are not estimated

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        return (self.output,)

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        return UnseenTypes()

    def chains(self) -> tuple[tuple[RoutedSubscriptionStage, ...], ...]:
        """Creates one stage, whose tasks get the events that are routed to them."""
        stage = RoutedSubscriptionStage(self.subscribed, self.source, self.output, self.limits, self.streaming)
        stage.require_fit()
        return ((stage,),)

    def as_single_stage(self) -> "SingleTaskSubscriptionStage":
        return SingleTaskSubscriptionStage(self.subscribed, self.source, self.output, self.limits, self.streaming)


@dataclass(frozen=True)
class SingleTaskSubscriptionStage(SubscriptionStage):
    """Runs all subscriptions of a set in one task that gets all events."""

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:  # noqa: ARG002
        """Creates a matcher that follows the changes of the set."""
        return FollowingMatcher(self.subscribed, self.source, self.limits, streaming=self.streaming)

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:  # noqa: ARG002
        return ReusedSetMatcher(self.subscribed, self.source, self.limits)


class ReusedSetMatcher(SubscriptionMatcher):
    """Matches a set over a table; the compiled set is reused by the next call."""

    def __init__(self, subscribed: SubscriptionsSpec, source: SourceSchema, limits: Limits) -> None:
        self.subscribed, self.source = subscribed, source
        super().__init__(take_subscription_set(subscribed, source), limits, version=subscribed.version)

    def on_watermark(self, now: float) -> list[pa.Table]:
        result = super().on_watermark(now)
        return_subscription_set(self.subscribed, self.source, self.subscription_set)
        return result
