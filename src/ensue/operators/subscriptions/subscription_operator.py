"""The operator and the stages of a subscription set; events are routed to tasks before they are
sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.state_format import unpack_state
from ensue.errors import QueryError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.version_pins import pin_version
from ensue.operators.subscriptions.subscription_loader import (
    FollowingMatcher,
    SubscriptionSetLoader,
    write_due_snapshot,
)
from ensue.operators.subscriptions.subscription_matcher import SLICE, VERSION, SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import (
    SubscriptionSet,
    compile_subscription_set,
    return_subscription_set,
    take_subscription_set,
)
from ensue.options import Limits
from ensue.projection.notification_rows import build_notification_schema
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.job_fingerprint import find_started_set
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import QuerySpec, SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import (
    BATCH,
    ROW,
    FailedSubscriptions,
    FinalStage,
    InputFilter,
    MicroBatch,
    OutputTable,
    RoutedEvents,
    StageInput,
    StageMatcher,
    SubscriptionVersion,
    TableMatcher,
    UnseenTypes,
    build_output,
)
from ensue.runtime.workload import Workload
from ensue.vector.event_table import split_table

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode

ALL_EVENTS = InputFilter(None)  # routing selects the relevant events


@dataclass(frozen=True)
class SubscriptionStage(FinalStage):
    """All subscriptions of a set over one stream, in one task that gets all events."""

    subscribed: SubscriptionsSpec
    source: SourceSchema
    output: OutputTable
    limits: Limits
    streaming: bool = False
    whole_stream: ClassVar[str | None] = None
    reads: ClassVar[InputFilter] = ALL_EVENTS

    @property
    def outputs(self) -> tuple[OutputTable, ...]:  # type: ignore[override]
        return (self.output,)

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:  # noqa: ARG002
        """Creates a matcher that follows the changes of the set."""
        return FollowingMatcher(self.subscribed, self.source, self.limits, streaming=self.streaming)

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:  # noqa: ARG002
        return ReusedSetMatcher(self.subscribed, self.source, self.limits)


# ---------------------------------------------------------------------------- tasks

ADDED = pa.schema({VERSION: pa.int64()})
BLAME_SHARE = 0.5  # share of the largest cause of an error from which others are left out, too
_TABLE = "table"  # stands for the stream id when events are a complete table


@dataclass(frozen=True)
class RoutedSubscriptionStage(SubscriptionStage):
    """Distributes the subscriptions of a set over tasks."""

    each: Limits | None = None  # of each subscription: those that make a task fail are left out; None: all fail
    added: pa.Schema = ADDED  # columns of events; a sender may number equal ones: a task sees only those it needs
    arrival = (BATCH, ROW)

    def spread(self, events: pa.Table, key_groups: int, batch: MicroBatch | SubscriptionVersion | None) -> RoutedEvents:
        """Sends each event to every task with a subscription for which it is relevant."""
        version = self._version(batch)
        number = self.subscribed.version if version is None else version.number
        subscriptions = self._load_set(version, key_groups)
        rows, tasks = [], []
        first, bits = 0, np.arange(key_groups, dtype=np.uint64) & np.uint64(63)
        for piece in split_table(events, SLICE):
            relevant, masks = subscriptions.find_tasks(piece)
            numbers, key_group = np.nonzero(masks[:, None] >> bits & np.uint64(1))
            rows.append(relevant[numbers] + first)
            tasks.append(key_group)
            first += piece.num_rows
        row = np.concatenate([np.zeros(0, np.int64), *rows])
        added = pa.table({VERSION: np.full(len(row), number, np.int64)}, schema=ADDED)
        return RoutedEvents(row, np.concatenate([np.zeros(0, np.int64), *tasks]), added, version)

    def _version(self, batch: MicroBatch | SubscriptionVersion | None) -> SubscriptionVersion | None:
        """Returns the version of a micro-batch; None if the set does not change."""
        log = self.subscribed.log
        if isinstance(batch, SubscriptionVersion):
            return batch
        if batch is None or not isinstance(log, CatalogLog):
            return None
        start = pin_version(log, batch.stream, batch.number)
        return SubscriptionVersion(start.version, start.batch, batch.stream)

    def _load_set(self, version: SubscriptionVersion | None, key_groups: int) -> SubscriptionSet:
        """Returns the set that routes the current events."""
        log = self.subscribed.log
        if not isinstance(log, CatalogLog):
            return self._build_set_once(key_groups)
        version = version or SubscriptionVersion(self.subscribed.version, 0, _TABLE)
        loader = self.set_loader(version, key_groups)
        loaded = loader.at(log, version.number, later=version.floor is not None)
        write_due_snapshot(log, loader, loaded)
        return loaded

    def require_fit(self) -> None:
        """Raises an error before the start if a subscription does not fit the events."""
        for name, why in self._load_set(None, 1).refused.items():
            raise QueryError(f"subscription '{name}': {why}", hint="cancel it, or replace it")

    def set_loader(self, version: SubscriptionVersion, key_groups: int) -> SubscriptionSetLoader:
        return SubscriptionSetLoader(self.source, self.streaming, key_groups, version.stream, version.floor)

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

    def __reduce__(self) -> Any:  # without the sets that it has built
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

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
        self.left_out: FailedSubscriptions = {}
        changing = stage.streaming and isinstance(stage.subscribed.log, CatalogLog)
        if changing:  # it knows no version yet
            self._begin(SubscriptionSet(stage.source.shape, streaming=True, key_groups=key_groups))
        else:
            self._begin(stage._load_set(None, key_groups))
            self.version = stage.subscribed.version

    def _begin(self, subscriptions: SubscriptionSet) -> None:
        super().__init__(subscriptions, self.stage.limits, self.key_group)
        if self.stage.each is not None:
            self.limit_each(self.stage.each)

    def renew(self, version: SubscriptionVersion) -> None:
        """Switches to another version of the set."""
        self.announced = version
        log = self.stage.subscribed.log
        assert isinstance(log, CatalogLog)
        subscriptions = self.stage.set_loader(version, self.key_groups).at(log, version.number, later=True)
        if subscriptions is not self.subscription_set:
            saved = self.snapshot()
            self._begin(subscriptions)
            self.network.version = self.version
            super()._restore(*unpack_state(saved))
        self.version = self.network.version = version.number
        if self.passed is not None:
            self.network.skip_past(self.passed)
        self.leave_out({})

    def find_failed(self, error: Exception) -> FailedSubscriptions:
        """Returns the subscriptions that made it fail, if each has its own limits."""
        shares = {} if self.stage.each is None else self.get_failure_causes()
        largest = max(shares.values(), default=0.0)
        failed = self.version, type(error).__name__
        return {name: failed for name, share in shares.items() if share >= BLAME_SHARE * largest}

    def leave_out(self, failed: FailedSubscriptions) -> None:
        """Leaves out these subscriptions and those that failed before, unless they were added later."""
        self.left_out = {**self.left_out, **failed}
        for name, (version, _) in self.left_out.items():
            if self.subscription_set.was_added_by(name, version):
                self.subscription_set.cancel(name)
        if self.left_out:
            self.subscription_set.settle()

    def report(self) -> Mapping[str, Any]:
        """Returns the subscriptions that were left out, and the sizes of all if one may exceed its limit."""
        said: dict[str, Any] = {"left_out": self.left_out} if self.left_out else {}
        most = None if self.stage.each is None else self.stage.each.memory_size
        if most is not None and self.usage.state_bytes * self.key_groups > most:
            said["bytes"] = self.measure_subscriptions().bytes
        return said

    def on_watermark(self, now: float) -> list[pa.Table]:
        self.passed = now
        return super().on_watermark(now)

    def _describe_state(self) -> dict[str, Any]:
        announced = None if self.announced is None else asdict(self.announced)
        return {**super()._describe_state(), "announced": announced, "passed": self.passed, "left_out": self.left_out}

    def _restore(self, header: dict[str, Any], arrays: dict[str, Any], blobs: dict[str, bytes]) -> None:
        self.left_out = {name: (version, error) for name, (version, error) in header["left_out"].items()}
        if header["announced"] is not None:
            self.renew(SubscriptionVersion(**header["announced"]))
        super()._restore(header, arrays, blobs)
        self.passed = header["passed"]


# ---------------------------------------------------------------------------- operator


def plan_subscriptions(specs: Sequence[QuerySpec], workload: Workload) -> Iterator["SubscriptionOperator"]:
    """Plans a set of subscriptions, the only query of a call."""
    (spec,), source, options = specs, workload.source, workload.options
    subscribed = spec.query
    assert isinstance(subscribed, SubscriptionsSpec)
    output = build_output(spec, build_notification_schema(source.shape), None)
    yield SubscriptionOperator(subscribed, source, output, options.planning.limits, options.streaming)


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

    def with_outputs(self, outputs: Sequence[OutputTable]) -> "SubscriptionOperator":
        return replace(self, output=outputs[0])

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        return UnseenTypes()

    def chains(self) -> tuple[tuple[RoutedSubscriptionStage, ...], ...]:
        """Creates one stage, whose tasks get the events that are routed to them."""
        stage = RoutedSubscriptionStage(self.subscribed, self.source, self.output, self.limits, self.streaming)
        stage.require_fit()
        return ((stage,),)

    def as_single_stage(self) -> SubscriptionStage:
        return SubscriptionStage(self.subscribed, self.source, self.output, self.limits, self.streaming)

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        from ensue.operators.subscriptions.subscription_description import describe_subscription_set
        from ensue.planner.explain.plan_node import PlanNode

        plan = describe_subscription_set(self.subscribed, self.source, self.limits)
        if ordered is None:
            return plan
        (matches,) = run_to_end(self.as_single_stage().table_matcher(), StageInput.from_events(ordered))
        figures = PlanNode(f"{matches.num_rows:,} matches in {ordered.num_rows:,} events")
        return replace(plan, children=(*plan.children, figures))


class ReusedSetMatcher(SubscriptionMatcher):
    """Matches a set over a table; the compiled set is reused by the next call."""

    def __init__(self, subscribed: SubscriptionsSpec, source: SourceSchema, limits: Limits) -> None:
        self.subscribed, self.source = subscribed, source
        super().__init__(take_subscription_set(subscribed, source), limits, version=subscribed.version)

    def on_watermark(self, now: float) -> list[pa.Table]:
        result = super().on_watermark(now)
        return_subscription_set(self.subscribed, self.source, self.subscription_set)
        return result
