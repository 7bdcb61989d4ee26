"""A subscription set compiled for events of one shape: the predicate index, the shared network and
templates."""

import json
import warnings
from collections.abc import Hashable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.subscription import check_subscription_fields
from ensue.errors import QueryError, SubscriptionWarning
from ensue.ir.canonical_form import canonical_subscription
from ensue.ir.selection import ByTime
from ensue.ir.subscription import (
    IntervalSince,
    Length,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    iterate_parts,
)
from ensue.ir.values import format_duration
from ensue.kernels.geometry import EARTH, PLANE
from ensue.kernels.regions import RegionTable
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.operators.subscriptions.catalog.change import ChangeKind, SubscriptionChange
from ensue.operators.subscriptions.member_registry import Member, MemberRegistry, hash_name
from ensue.operators.subscriptions.network_table import NetworkTable, iterate_leaves
from ensue.operators.subscriptions.template_table import (
    TemplateTable,
    decode_pattern_numbers,
    is_pattern,
    is_pattern_leaf,
)
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.planner.subscription_network import NetworkRoot, TimeUnits, is_unbounded, plan_network
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.schema import ValueKind
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_numpy import build_texts
from ensue.vector.column_values import create_constant
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_columns import read_places
from ensue.vector.geo_regions import Regions


class SubscriptionSet:
    """All subscriptions of a set, over events of one shape.

    Adding a subscription compiles no code. Matchers share the set, which holds no events.
    """

    def __init__(self, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1) -> None:
        self.shape = shape
        self.streaming = streaming
        self.key_groups = key_groups
        self.space = EARTH if shape.schema.space == "earth" else PLANE
        self.regions = Regions(shape.schema.space)
        self.index = AtomIndex(shape, self.regions, self.space)
        self.time: Any = np.float64 if shape.schema.time_kind is ValueKind.FLOAT else np.int64
        self.nodes = NetworkTable(self.time, self.regions, self.index)
        self.nodes.key_groups = key_groups
        self.members = MemberRegistry()
        self.matchers: WeakSet[Any] = WeakSet()  # that hold values of its nodes
        self.patterns = TemplateTable(shape, self.index, self.nodes.leaf_of, streaming)
        self.refused: dict[str, str] = {}  # subscriptions that do not fit the events: the reason
        self.version = 0  # that it was loaded at
        # Subscriptions that are cancelled at a version, and stay for the events of earlier ones. So steps of
        # several versions are matched with one set: what is added is there from the start, and ignores earlier events.
        self.ending: dict[str, int] = {}
        self._calendar = shape.schema.time_kind in (ValueKind.TIMESTAMP, ValueKind.DATE)
        self.units = TimeUnits(self._length, self._moment, not shape.schema.intervals)

    def __len__(self) -> int:
        return len(self.members) + len(self.patterns)

    def region_table(self) -> RegionTable | None:
        """Returns the regions for kernels; None if events have no location."""
        return None if self.shape.schema.location is None else self.regions.table

    def route(self, events: pa.Table) -> tuple[Any, npt.NDArray[np.int32]]:
        """Returns rows of events, and the leaves of nodes and patterns that they reach."""
        schema = self.shape.schema
        places = None if schema.location is None else read_places(events, schema)
        rows, slots = self.index.route(events, places)
        return rows, self.nodes.leaf_of["node"][slots]

    def find_relevant_names(self, events: pa.Table) -> set[str]:
        """Returns the subscriptions for which these events are relevant."""
        _, leaves = self.route(events)
        of_pattern = is_pattern_leaf(leaves)
        keys = self.patterns.rows["key"][decode_pattern_numbers(leaves[of_pattern])]
        numbers = self.nodes.find_subscriptions(set(leaves[~of_pattern].tolist()))
        return {
            *self.name_shares(dict.fromkeys(numbers, 0.0)),
            *(self.patterns.by_key[key].name for key in keys.tolist()),
        }

    def name_shares(self, shares: Mapping[int, float]) -> dict[str, float]:
        """Returns the shares of subscriptions on nodes by name."""
        return {m.name: share for number, share in shares.items() if (m := self.members.at(number)) is not None}

    def find_tasks(self, events: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
        """Returns the relevant events, and the tasks that need them, modulo 64, as bits."""
        rows, leaves = self.route(events)
        if not len(rows):
            return np.zeros(0, np.int64), np.zeros(0, np.uint64)
        of_pattern = is_pattern_leaf(leaves)
        bits = np.zeros(len(leaves), np.uint64)
        bits[~of_pattern] = self.nodes.arrays().key_groups[leaves[~of_pattern]]
        key_groups = self.patterns.key_groups(decode_pattern_numbers(leaves[of_pattern]), self.key_groups)
        bits[of_pattern] = np.uint64(1) << (key_groups.astype(np.uint64) & np.uint64(63))
        order = np.argsort(rows, kind="stable")
        rows, bits = rows[order].astype(np.int64), bits[order]
        begins = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
        return rows[begins], np.bitwise_or.reduceat(bits, begins)

    def take(self, change: SubscriptionChange, version: int, now: float | None = None) -> None:
        """Applies a change at the stream time `now`; a QueryError leaves the set unchanged."""
        if change.kind is ChangeKind.CANCEL:
            self.cancel(change.name)
            return
        if is_pattern(change):
            pattern = self.patterns.ready(change)
            if change.kind is ChangeKind.REPLACE:
                self.cancel(change.name)
            self.patterns.add(change.name, version, pattern)
            return
        try:
            subscription, roots = self._compile(change, now)
            number = self.nodes.subscribe(roots, subscription.select, version)
        except QueryError as error:
            raise error.at(None, change.text) from None
        if change.kind is ChangeKind.REPLACE:
            self.cancel(change.name)
        self.members.add(Member(change.name, number, _identity(change.name, subscription)))

    def check(self, change: SubscriptionChange, now: float | None = None) -> None:
        """Raises a QueryError if a subscription cannot be matched here."""
        if is_pattern(change):
            self.patterns.ready(change)
            return
        try:
            _, roots = self._compile(change, now)
            for root in roots:
                for leaf in iterate_leaves(root.node):
                    self.index.check(leaf.test)
        except QueryError as error:
            raise error.at(None, change.text) from None

    def follow(self, change: SubscriptionChange, version: int, now: float | None = None) -> None:
        """Applies a change; a subscription that does not fit is left out, even a replacement."""
        try:
            self.take(change, version, now)
        except QueryError as error:
            self.cancel(change.name)
            self.refused[change.name] = str(error)
            message = f"subscription '{change.name}' cannot be matched here: {error}"
            warnings.warn(message, SubscriptionWarning, stacklevel=find_stacklevel())

    def _compile(self, change: SubscriptionChange, now: float | None) -> tuple[Subscription, list[NetworkRoot]]:
        assert change.text is not None
        subscription = parse_subscription(change.text, change.regions)
        check_subscription_fields(subscription, self.shape.schema)
        roots = plan_network(subscription, self.units)
        if self.streaming and any(is_unbounded(root.node) for root in roots):
            raise QueryError(
                "the time between its events has no limit, so on a stream they would pile up forever",
                hint="limit how long a match may last: WITH within = 10 minutes",
            )
        self._require_future(subscription, now)
        return subscription, roots

    def drop_ended(self, floor: int) -> None:
        """Removes the subscriptions that were cancelled up to a version."""
        over = [name for name, version in self.ending.items() if version <= floor]
        for name in over:
            self.cancel(name)
        if over:
            self.settle()

    def filter_cancelled(self, matches: pa.Table, version: int) -> pa.Table:
        """Drops the matches of subscriptions that were cancelled at a version or before."""
        if not matches.num_rows or not self.ending:
            return matches
        over = build_texts([name for name, ended in self.ending.items() if ended <= version])
        return matches.filter(pc.invert(pc.is_in(matches.column("subscription"), value_set=over)))

    def was_added_by(self, name: str, version: int) -> bool:
        """Whether a subscription was added at a version or before."""
        if (pattern := self.patterns.members.get(name)) is not None:
            return pattern.since <= version
        member = self.members.get(name)
        return member is not None and bool(self.nodes.arrays().since[member.number] <= version)

    def cancel(self, name: str) -> None:
        """Removes a subscription, also for earlier events."""
        self.refused.pop(name, None)
        self.ending.pop(name, None)
        if self.patterns.cancel(name):
            return
        member = self.members.pop(name)
        if member is not None:  # otherwise it was left out when it was added
            self.nodes.cancel(member.number)

    def settle(self) -> None:
        """Lets all matchers drop cancelled subscriptions, so that their numbers can be reused."""
        if self.nodes.gone or self.nodes.gone_subscriptions or self.patterns.gone:
            for matcher in self.matchers:
                matcher.drop_cancelled()
            self.nodes.reuse()
            self.patterns.gone = False

    def save(self, folder: Path) -> None:
        """Writes the set to an empty folder."""
        for name, part in (
            ("regions", self.regions), ("index", self.index), ("nodes", self.nodes),
            ("members", self.members), ("patterns", self.patterns),
        ):  # fmt: skip
            (folder / name).mkdir()
            part.save(folder / name)
        (folder / "names").write_text(json.dumps({"refused": self.refused, "ending": self.ending}))

    @classmethod
    def open(
        cls, folder: Path, shape: StreamSchema, *, streaming: bool = False, key_groups: int = 1
    ) -> "SubscriptionSet":
        """Opens a saved set for events of this shape. Files are mapped and never changed."""
        subscriptions = cls(shape, streaming=streaming, key_groups=key_groups)
        subscriptions.regions = Regions.open(folder / "regions", shape.schema.space)
        subscriptions.index = AtomIndex.open(folder / "index", shape, subscriptions.regions, subscriptions.space)
        subscriptions.nodes = NetworkTable.open(
            folder / "nodes", subscriptions.time, subscriptions.regions, subscriptions.index
        )
        if subscriptions.nodes.key_groups != key_groups:
            subscriptions.nodes.split(key_groups)
        subscriptions.members = MemberRegistry.open(folder / "members")
        subscriptions.patterns = TemplateTable(shape, subscriptions.index, subscriptions.nodes.leaf_of, streaming)
        subscriptions.patterns.open(folder / "patterns")
        names = json.loads((folder / "names").read_text())
        subscriptions.refused, subscriptions.ending = names["refused"], names["ending"]
        return subscriptions

    def _length(self, length: Length | None) -> int | float:
        if length is None:
            return 0
        if isinstance(length, ByTime):
            if not self._calendar:
                raise QueryError(
                    f"{format_duration(length.nanoseconds)}: the time column holds numbers, so a length is a number",
                    span=length.span,
                )
            return length.nanoseconds if self.shape.unit == "ns" else length.nanoseconds // 1_000
        if self._calendar:
            raise QueryError(
                f"{length.amount}: the time column holds timestamps, so a length has a unit",
                hint=f"{length.amount} seconds",
                span=length.span,
            )
        if self.time is np.int64 and length.amount != int(length.amount):
            raise QueryError(
                f"{length.amount}: the time column holds whole numbers, so a length is one", span=length.span
            )
        return length.amount

    def _moment(self, moment: TimePoint) -> int | float:
        if self._calendar != isinstance(moment.at, datetime):
            kind = "timestamps" if self._calendar else "numbers"
            hint = "TIMESTAMP '2026-01-01 12:00:00'" if self._calendar else "a number"
            raise QueryError(f"the time column holds {kind}, so a moment is {hint}", span=moment.span)
        constant = create_constant(moment.at, self.shape.unit)
        value: int | float = np.asarray(constant.values)[0].item()
        return value

    def _require_future(self, subscription: Subscription, now: float | None) -> None:
        """Raises a QueryError if an absence starts before the subscription."""
        if now is None:
            return
        for moment in _absence_starts(subscription):
            if self._moment(moment) < now:
                raise QueryError(
                    "the interval of an absence begins before the subscription does, so part of it was not watched",
                    hint="let it begin later",
                    span=moment.span,
                )

    def counters(self) -> dict[str, int]:
        """Returns the counts of shared parts."""
        return {
            "subscriptions": len(self),
            "patterns": len(self.patterns),
            "shapes": len(self.patterns.shapes),
            **self.nodes.counters(),
        }


def _absence_starts(subscription: Subscription) -> Iterator[TimePoint]:
    for part in iterate_parts(subscription.root, *subscription.variables.values()):
        if isinstance(part, TemporalCondition) and part.when is TemporalRelation.ABSENT:
            interval = part.interval
            if isinstance(interval, IntervalSince) and isinstance(interval.base, TimePoint):
                yield interval.base


def _identity(name: str, subscription: Subscription) -> bytes:
    """Computes the identity of its matches: hashes of the name and of the meaning."""
    meaning = canonical_subscription(subscription)
    return hash_name(name) + blake2b(meaning.encode(), digest_size=16).digest()


def compile_subscription_set(
    subscribed: SubscriptionsSpec, source: SourceSchema, *, streaming: bool = False, key_groups: int = 1
) -> SubscriptionSet:
    """Compiles the subscriptions of a set at its version."""
    subscriptions = SubscriptionSet(source.shape, streaming=streaming, key_groups=key_groups)
    for version, change in subscribed.log.alive(subscribed.version):
        subscriptions.take(change, version)
    return subscriptions


# by set: the key of the events, the version, and the compiled set
_built: WeakKeyDictionary[Any, tuple[Hashable, int, SubscriptionSet]] = WeakKeyDictionary()


def take_subscription_set(subscribed: SubscriptionsSpec, source: SourceSchema) -> SubscriptionSet:
    """Takes the compiled set of an earlier call for a table, or compiles it.

    Later additions are added to it; after other changes it is compiled again.
    """
    log, version = subscribed.log, subscribed.version
    cached = _built.pop(log, None)  # another thread builds its own meanwhile
    if cached is not None and cached[0] == source.key and cached[1] <= version:
        changes = list(log.changes(cached[1], version))
        if all(change.kind is ChangeKind.ADD for _, change in changes):
            for number, change in changes:
                cached[2].take(change, number)
            return cached[2]
    return compile_subscription_set(subscribed, source)


def return_subscription_set(
    subscribed: SubscriptionsSpec, source: SourceSchema, subscriptions: SubscriptionSet
) -> None:
    """Keeps a compiled set for the next call."""
    _built[subscribed.log] = source.key, subscribed.version, subscriptions
