"""A set of subscriptions in lanes: events are routed before they are sent to any.

An event goes to the lanes that have a subscription for it, and to no other. Lanes share one fleet
in each process; equal subscriptions are in the same lane, so they share their nodes.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.columns.location import places_of
from ensue.columns.rows import no_rows
from ensue.columns.stream import slices
from ensue.computed import cached_property
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.workload.stage import BATCH, ROW, Fed, MicroBatch, Spread, Version
from ensue.workload.subscriptions.catalogue.log import Log
from ensue.workload.subscriptions.catalogue.pins import moment_of, pin
from ensue.workload.subscriptions.fleet import Fleet, fleet_of
from ensue.workload.subscriptions.matcher import SLICE, FleetMatcher, matched_in
from ensue.workload.subscriptions.opened import FleetsOf, prepared, snapshot
from ensue.workload.subscriptions.shapes.table import numbers_of, pattern_rows
from ensue.workload.subscriptions.stage import SubscriptionStage

VERSION = "__version"  # of the set, by which an event was routed
ADDED = pa.schema({VERSION: pa.int64()})
FORMAT = 1  # of the state of a lane
_TABLE = "table"  # in the place of a stream's id: all events are there


@dataclass(frozen=True)
class LanedStage(SubscriptionStage):
    """All subscriptions of a set, dealt out to lanes."""

    arrival: tuple[str, ...] = (BATCH, ROW)
    added: pa.Schema = ADDED

    # ---------------------------------------------------------------------------- where events go

    def spread(self, events: pa.Table, lanes: int, batch: MicroBatch | None) -> Spread:
        """To every lane that has a subscription with an atom for the event."""
        version = self._version(batch)
        number = self.subscribed.version if version is None else version.number
        fleet = self._fleet(version, lanes)
        rows, places = [], []
        first = 0
        for piece in slices(events, SLICE):
            found, masks = _lanes_of(fleet, piece)
            which, lane = np.nonzero(masks[:, None] >> _bits(lanes) & np.uint64(1))
            rows.append(found[which] + first)
            places.append(lane)
            first += piece.num_rows
        row = np.concatenate([np.zeros(0, np.int64), *rows])
        added = pa.table({VERSION: np.full(len(row), number, np.int64)}, schema=ADDED)
        return Spread(row, np.concatenate([np.zeros(0, np.int64), *places]), added, version)

    def _version(self, batch: MicroBatch | None) -> Version | None:
        """The version that a micro-batch has; None: the set does not change while it runs."""
        log = self.subscribed.log
        if batch is None or not isinstance(log, Log):
            return None
        number = pin(log, batch.stream, batch.number)
        moment = moment_of(log, batch.stream, number)
        assert moment is not None
        return Version(number, moment.batch, batch.stream)

    def _fleet(self, version: Version | None, lanes: int) -> Fleet:
        """The set for events that are routed now."""
        log = self.subscribed.log
        if not isinstance(log, Log):
            return self._own(lanes)
        if version is None:
            return self.fleets(_TABLE, lanes).at(log, self.subscribed.version)
        fleets = self.fleets(version.stream, lanes)
        found = fleets.at(log, version.number)
        snapshot(log, fleets, version.number, found)
        return found

    def require_fit(self) -> None:
        """Refuses a set of which something does not fit the events, before any of them comes."""
        log = self.subscribed.log
        if isinstance(log, Log):
            prepared(log, self.fleets(_TABLE, 1), self.subscribed.version)
        else:
            self._own(1)

    def fleets(self, stream: str, lanes: int) -> FleetsOf:
        """How this process makes the set ready for a stream."""
        return FleetsOf.of(self.source, streaming=self.streaming, lanes=lanes, stream=stream)

    def _own(self, lanes: int) -> Fleet:
        """The set of a process that sent it along."""
        if lanes not in self._sent_along:
            self._sent_along[lanes] = fleet_of(
                self.subscribed, self.source, streaming=self.streaming, lanes=lanes
            )
        return self._sent_along[lanes]

    @cached_property
    def _sent_along(self) -> dict[int, Fleet]:
        return {}

    def __reduce__(self) -> Any:
        return LanedStage, (
            self.subscribed, self.source, self.output, self.limits, self.streaming,
        )  # fmt: skip

    # ---------------------------------------------------------------------------- in lanes

    def matcher(self) -> "LaneMatcher":
        """A matcher for the only lane."""
        return self.lane_matcher(0, 1)

    def lane_matcher(self, lane: int, lanes: int) -> "LaneMatcher":
        """A matcher for one of so many lanes, with no events yet."""
        return LaneMatcher(self, lane, lanes)

    def matched(self, given: Fed) -> list[pa.Table]:
        """What is found where all events are there, in one lane."""
        return self.lane_matched(given, 0, 1)

    def lane_matched(self, given: Fed, lane: int, lanes: int) -> list[pa.Table]:
        """What one of so many lanes finds where all events are there."""
        fleet, version = self._fleet(None, lanes), self.subscribed.version
        events = given.events.select(self.source.arrow.names)
        return [matched_in(events, fleet, version, self.limits, lane)]


class LaneMatcher(FleetMatcher):
    """The subscriptions of one lane. It is told of a new version before the events that have it.

    What a lane holds is known by the keys of nodes and the names of subscriptions, so it goes on
    in any process, and with any later version: what is cancelled is dropped, and what came later
    does not see events of earlier versions.
    """

    def __init__(self, stage: LanedStage, lane: int, lanes: int) -> None:
        self.stage, self.lane, self.lanes = stage, lane, lanes
        self.told: Version | None = None
        self.passed: float | None = None  # the time that has come
        changing = stage.streaming and isinstance(stage.subscribed.log, Log)
        fleet = _nobody(stage, lanes) if changing else stage._fleet(None, lanes)
        self._begin(fleet)
        self.version = 0 if changing else stage.subscribed.version

    def _begin(self, fleet: Fleet) -> None:
        FleetMatcher.__init__(self, fleet, self.stage.limits, self.lane)
        fleet.matchers.add(self)

    def renew(self, version: Version) -> None:
        """The set has another version."""
        self.told = version
        log = self.stage.subscribed.log
        assert isinstance(log, Log)
        fleet = self.stage.fleets(version.stream, self.lanes).at(log, version.number, later=True)
        if fleet is not self.fleet:
            saved = FleetMatcher.save(self)
            self._begin(fleet)
            self.state.version = self.version
            FleetMatcher.restore(self, saved)
        self.version = self.state.version = version.number
        if self.passed is not None:
            self.state.skip_past(self.passed)

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next events complete, each seen by the subscriptions of its own version."""
        events = given.events.select(self.stage.source.arrow.names)
        versions = np.asarray(given.events.column(VERSION).to_numpy(), np.int64)
        found, first = [], 0
        for piece in slices(events, SLICE):
            behind = first + piece.num_rows
            found.append(self._routed(piece, versions[first:behind]))
            first = behind
        return [pa.concat_tables(found) if found else no_rows(self.schema)]

    def advance(self, now: float) -> list[pa.Table]:
        """What only waited for time to pass."""
        self.passed = now
        return super().advance(now)

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        told = None if self.told is None else asdict(self.told)
        header = {"lane_format": FORMAT, "told": told, "passed": self.passed}
        return packed(header, {}, {"fleet": super().save()})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        if header.get("lane_format") != FORMAT:
            raise StateError(
                f"the state of subscriptions is of format {header.get('lane_format')}, and this "
                f"release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        if header["told"] is not None:
            self.renew(Version(**header["told"]))
        super().restore(blobs["fleet"])
        self.passed = header["passed"]


def _nobody(stage: LanedStage, lanes: int) -> Fleet:
    """The set before anybody says which version it has."""
    return Fleet(stage.source.shape, streaming=True, lanes=lanes)


def _lanes_of(fleet: Fleet, events: pa.Table) -> tuple[Any, Any]:
    """The events that somebody looks at, and the lanes of those, modulo 64, as bits."""
    schema = fleet.shape.schema
    places = None if schema.location is None else places_of(events, schema)
    rows, slots = fleet.index.route(events, places)
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    leaves = fleet.nodes.leaf_of.array[slots]
    own = pattern_rows(leaves)
    bits = np.zeros(len(leaves), np.uint64)
    bits[~own] = fleet.nodes.arrays().lanes[leaves[~own]]
    bits[own] = fleet.patterns.lane_bits(numbers_of(leaves[own]), fleet.lanes)
    order = np.argsort(rows, kind="stable")
    rows, bits = rows[order].astype(np.int64), bits[order]
    begins = np.flatnonzero(np.concatenate([[True], rows[1:] != rows[:-1]]))
    return rows[begins], np.bitwise_or.reduceat(bits, begins)


def _bits(lanes: int) -> Any:
    return np.arange(lanes, dtype=np.uint64) & np.uint64(63)
