"""Subscriptions made ready for events of a shape: where events go, and the nodes that match."""

import json
import warnings
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from ensue.algebra.canonical_subscription import canonical_text
from ensue.algebra.check.subscription_fields import check_fields
from ensue.algebra.durations import show_duration
from ensue.algebra.subscription import Length, Moment, Subscription
from ensue.algebra.window import ByTime
from ensue.columns.regions import Regions
from ensue.columns.stream import Shape
from ensue.columns.values import constant
from ensue.errors import QueryError, SubscriptionWarning
from ensue.kernels.geometry import EARTH, PLANE
from ensue.kernels.regions import RegionTable
from ensue.languages.opsl import parse
from ensue.own_frames import outside
from ensue.plan.subscriptions.joins import Root, Units, roots_of, unbounded
from ensue.schema import Kind
from ensue.workload.source import Source
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.change import Kind as Happens
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.memory import MemoryLog
from ensue.workload.subscriptions.members import Member, Members, name_digest
from ensue.workload.subscriptions.nodes.table import NodeTable, leaves_of
from ensue.workload.subscriptions.routing.index import AtomIndex
from ensue.workload.subscriptions.shapes.table import Patterns, is_pattern
from ensue.workload.subscriptions.subscribed import Subscribed


class DropsGone(Protocol):
    """Whoever holds something of subscriptions."""

    def drop_gone(self) -> None:
        """Lets go of what belonged to those that were cancelled."""


class Fleet:
    """All subscriptions of a set, over events of one shape.

    Nothing is compiled when one is added. Matchers share it: it holds no events.
    """

    def __init__(self, shape: Shape, *, streaming: bool = False, lanes: int = 1) -> None:
        self.shape = shape
        self.streaming = streaming
        self.lanes = lanes
        self.space = EARTH if shape.schema.space == "earth" else PLANE
        self.regions = Regions(shape.schema.space)
        self.index = AtomIndex(shape, self.regions, self.space)
        self.time: Any = np.float64 if shape.schema.time_kind is Kind.FLOAT else np.int64
        self.nodes = NodeTable(self.time, self.regions, self.index)
        self.nodes.lanes = lanes
        self.members = Members()
        self.matchers: WeakSet[DropsGone] = WeakSet()  # that hold values of its nodes
        self.patterns = Patterns(shape, self.index, self.nodes.leaf_of, streaming)
        self.refused: dict[str, str] = {}  # that do not fit the events, and why
        self.units = Units(self._length, self._moment, not shape.schema.intervals)

    def __len__(self) -> int:
        return len(self.members) + len(self.patterns)

    def region_table(self) -> RegionTable | None:
        """The regions for kernels; None: events have no place, and nothing of it is compiled."""
        return None if self.shape.schema.location is None else self.regions.table

    # ---------------------------------------------------------------------------- changes

    def take(self, change: Change, version: int, now: float | None = None) -> None:
        """Goes on with a change. QueryError if it cannot be; then nothing has changed.

        `now` is the time that the stream has come to.
        """
        if change.kind is Happens.CANCEL:
            self.cancel(change.name)
            return
        if is_pattern(change):
            pattern = self.patterns.ready(change)
            if change.kind is Happens.REPLACE:
                self.cancel(change.name)
            self.patterns.add(change.name, version, pattern)
            return
        try:
            subscription, roots = self._ready(change, now)
            number = self.nodes.subscribe(roots, subscription.select, version)
        except QueryError as error:
            raise error.at(None, change.text) from None
        if change.kind is Happens.REPLACE:
            self.cancel(change.name)
        identity = _identity(change.name, subscription)
        self.members.add(Member(change.name, number, identity))

    def check(self, change: Change, now: float | None = None) -> None:
        """QueryError if a subscription cannot be matched here."""
        if is_pattern(change):
            self.patterns.ready(change)
            return
        try:
            _, roots = self._ready(change, now)
            for root in roots:
                for leaf in leaves_of(root.node):
                    self.index.check(leaf.test)
        except QueryError as error:
            raise error.at(None, change.text) from None

    def follow(self, change: Change, version: int, now: float | None = None) -> None:
        """Goes on with a change of a set that runs: what does not fit the events is left out.

        So is what it was to replace: whoever changed the set does not want that any more.
        """
        try:
            self.take(change, version, now)
        except QueryError as error:
            self.cancel(change.name)
            self.refused[change.name] = str(error)
            said = f"subscription '{change.name}' cannot be matched here: {error}"
            warnings.warn(said, SubscriptionWarning, stacklevel=outside())

    def _ready(self, change: Change, now: float | None) -> tuple[Subscription, list[Root]]:
        assert change.text is not None
        subscription = parse(change.text, change.regions)
        check_fields(subscription, self.shape.schema)
        roots = roots_of(subscription, self.units)
        if self.streaming:
            _require_bounds(roots)
        self._require_future(subscription, now)
        return subscription, roots

    def cancel(self, name: str) -> None:
        """One less; it is silent from now on."""
        self.refused.pop(name, None)
        if self.patterns.cancel(name):
            return
        member = self.members.pop(name)
        if member is not None:  # else it could not be matched here in the first place
            self.nodes.cancel(member.number)

    def settle(self) -> None:
        """All matchers let go of what was cancelled; its numbers may be used again."""
        if self.nodes.gone or self.nodes.gone_subscriptions:
            for matcher in self.matchers:
                matcher.drop_gone()
            self.nodes.reuse()

    # ---------------------------------------------------------------------------- files

    def save(self, folder: Path) -> None:
        """Writes all of it into an empty folder."""
        for name, part in (
            ("regions", self.regions), ("index", self.index), ("nodes", self.nodes),
            ("members", self.members), ("patterns", self.patterns),
        ):  # fmt: skip
            (folder / name).mkdir()
            part.save(folder / name)
        (folder / "refused").write_text(json.dumps(self.refused))

    @classmethod
    def open(
        cls, folder: Path, shape: Shape, *, streaming: bool = False, lanes: int = 1
    ) -> "Fleet":
        """What was saved there for events of this shape. Files are mapped, and never changed."""
        fleet = cls(shape, streaming=streaming, lanes=lanes)
        fleet.regions = Regions.open(folder / "regions", shape.schema.space)
        fleet.index = AtomIndex.open(folder / "index", shape, fleet.regions, fleet.space)
        fleet.nodes = NodeTable.open(folder / "nodes", fleet.time, fleet.regions, fleet.index)
        if fleet.nodes.lanes != lanes:
            fleet.nodes.split(lanes)
        fleet.members = Members.open(folder / "members")
        fleet.patterns = Patterns(shape, fleet.index, fleet.nodes.leaf_of, streaming)
        fleet.patterns.open(folder / "patterns")
        fleet.refused = json.loads((folder / "refused").read_text())
        return fleet

    # ---------------------------------------------------------------------------- units

    def _length(self, length: Length | None) -> int | float:
        if length is None:
            return 0
        calendar = self.shape.schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
        if isinstance(length, ByTime):
            if not calendar:
                raise QueryError(
                    f"{show_duration(length.nanoseconds)}: the time column holds numbers, so a "
                    "length is a number",
                    span=length.span,
                )
            return length.nanoseconds if self.shape.unit == "ns" else length.nanoseconds // 1_000
        if calendar:
            raise QueryError(
                f"{length.amount}: the time column holds timestamps, so a length has a unit",
                hint=f"{length.amount} seconds",
                span=length.span,
            )
        if self.time is np.int64 and length.amount != int(length.amount):
            raise QueryError(
                f"{length.amount}: the time column holds whole numbers, so a length is one",
                span=length.span,
            )
        return length.amount

    def _moment(self, moment: Moment) -> int | float:
        calendar = self.shape.schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
        if calendar != isinstance(moment.at, datetime):
            kind = "timestamps" if calendar else "numbers"
            wanted = "TIMESTAMP '2026-01-01 12:00:00'" if calendar else "a number"
            raise QueryError(
                f"the time column holds {kind}, so a moment is {wanted}", span=moment.span
            )
        found: int | float = np.asarray(constant(moment.at, self.shape.unit).values)[0].item()
        return found

    def _require_future(self, subscription: Subscription, now: float | None) -> None:
        """What is absent from a moment on must be watched from then on."""
        if now is None:
            return
        for moment in _watched(subscription):
            if self._moment(moment) < now:
                raise QueryError(
                    "the interval of an absence begins before the subscription does, so part of "
                    "it was not watched",
                    hint="let it begin later",
                    span=moment.span,
                )

    def counters(self) -> dict[str, int]:
        """How much is shared."""
        nodes = len(self.nodes.rows)
        return {
            "subscriptions": len(self),
            "patterns": len(self.patterns),
            "shapes": len(self.patterns.shapes),
            "nodes": nodes,
            "nodes_shared": sum(row.users - 1 for row in self.nodes.rows.values()),
            "leaves": sum(1 for row in self.nodes.rows.values() if row.slot >= 0),
        }


def _require_bounds(roots: list[Root]) -> None:
    if any(unbounded(root.node) for root in roots):
        raise QueryError(
            "nothing says how long its events may wait for each other, so on a stream they would "
            "pile up for ever",
            hint="limit how long a match may last: WITH within = 10 minutes",
        )


def _watched(subscription: Subscription) -> Iterator[Moment]:
    from ensue.algebra.subscription import Since, Timed, When, parts_of

    left = [subscription.root, *subscription.variables.values()]
    while left:
        part = left.pop()
        left += parts_of(part)
        if isinstance(part, Timed) and part.when is When.ABSENT:
            interval = part.interval
            if isinstance(interval, Since) and isinstance(interval.base, Moment):
                yield interval.base


def _identity(name: str, subscription: Subscription) -> bytes:
    """What its matches are known by: the name, then what it means."""
    meaning = canonical_text(replace(subscription, text=None))
    return name_digest(name) + blake2b(meaning.encode(), digest_size=16).digest()


def fleet_of(
    subscribed: Subscribed, source: Source, *, streaming: bool = False, lanes: int = 1
) -> Fleet:
    """The subscriptions of a set made ready, as they are at its version."""
    fleet = Fleet(source.shape, streaming=streaming, lanes=lanes)
    for version, change in subscribed.log.alive(subscribed.version):
        fleet.take(change, version)
    return fleet


# of each set: for which events, at which version
_built: WeakKeyDictionary[Log | MemoryLog, tuple[Hashable, int, Fleet]] = WeakKeyDictionary()


@contextmanager
def built_fleet(subscribed: Subscribed, source: Source) -> Iterator[Fleet]:
    """The subscriptions of a set made ready: what was built for a table before is used again.

    Subscriptions that were added since then are added to it; after other changes it is built anew.
    """
    log, version = subscribed.log, subscribed.version
    kept = _built.pop(log, None)  # another thread builds its own meanwhile
    fleet = None
    if kept is not None and kept[0] == source.key and kept[1] <= version:
        changes = list(log.changes(kept[1], version))
        if all(change.kind is Happens.ADD for _, change in changes):
            fleet = kept[2]
            for came, change in changes:
                fleet.take(change, came)
    if fleet is None:
        fleet = fleet_of(subscribed, source)
    yield fleet
    _built[log] = source.key, version, fleet
