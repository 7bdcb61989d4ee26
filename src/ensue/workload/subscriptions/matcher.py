"""Matches all subscriptions of a set in events that come piece by piece."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.location import places_of
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import slices
from ensue.columns.values import from_arrow
from ensue.engine.allowance import machine_memory
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.kernels.node_tables import Events
from ensue.plan.limits import Limits
from ensue.results.notified import MEMBERS, notified, notified_schema
from ensue.workload.held_events import EventStore
from ensue.workload.stage import Fed
from ensue.workload.subscriptions.compared_fields import compared_fields
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.nodes.held import Delivered, NodeState
from ensue.workload.subscriptions.shapes.running import Found
from ensue.workload.subscriptions.shapes.state import PatternState
from ensue.workload.subscriptions.shapes.table import numbers_of, pattern_rows
from ensue.workload.subscriptions.usage import Usage
from ensue.workload.work import Progress

FORMAT = 1
VALUE_BYTES = 256  # about what a value takes, with its share of lists and events
SLICE = 1 << 16  # events that are routed and matched together
FIRST_SLICE = 1 << 10  # of a table: how long they take says whether compiling pays off
Ints = npt.NDArray[np.int64]


class FleetMatcher:
    """The subscriptions of a fleet, those of one lane or all of them.

    Where events were routed before they came here, they say themselves which leaves they reach.
    """

    def __init__(self, fleet: Fleet, limits: Limits, lane: int = -1) -> None:
        self.fleet = fleet
        self._bound = bound = limits.bytes_of(machine_memory(), os.cpu_count() or 1)
        most_held = limits.max_partial_matches or int(min(2**40, bound // VALUE_BYTES))
        self.state = NodeState(
            fleet.nodes, fleet.time, fleet.space, fleet.region_table, lane,
            most_held, limits.max_matches or int(min(2**40, bound // VALUE_BYTES)),
        )  # fmt: skip
        self.patterns = PatternState(fleet.patterns, limits, lane, fleet.lanes)
        self.store = EventStore(fleet.shape)
        self.schema = notified_schema(fleet.shape)
        self.rows = 0  # events so far
        self.routed = 0  # of these, how many some subscription looks at
        self.version = 0  # of the set: events know which one they were routed by

    # ---------------------------------------------------------------------------- limits

    def bound_each(self, each: Limits) -> None:
        """Bounds what each subscription may hold and find, on the average of those that share."""
        self.patterns.each = each
        self._bound_nodes()

    def _bound_nodes(self) -> None:
        each = self.patterns.each
        if each is None:
            return
        subscriptions = max(1, len(self.fleet.members))
        memory = min(self._bound, (each.memory or self._bound) * subscriptions)
        self.state.most_held = int(min(2**40, memory // VALUE_BYTES))
        if each.max_matches is not None:
            self.state.most_found = each.max_matches * subscriptions

    def blamed(self) -> dict[str, float]:
        """Subscriptions, each with its share in what an error arose from; none: nobody's."""
        if self.patterns.failed is not None:
            return self.patterns.blamed()
        return self._named(self.state.blamed)

    def _named(self, shares: Mapping[int, float]) -> dict[str, float]:
        members = ((self.fleet.members.at(number), share) for number, share in shares.items())
        return {member.name: share for member, share in members if member is not None}

    @property
    def seconds(self) -> float:
        """Processor time since `usage` was asked last, without compiling."""
        return self.state.meter.seconds + self.patterns.seconds

    def forget_seconds(self) -> None:
        """Counts processor time from 0 on."""
        for meter in (self.state.meter, *(r.meter for r in self.patterns.running.values())):
            meter.seconds = 0.0

    def usage(self) -> Usage:
        """What each subscription holds, and the processor time since it was asked last.

        The time of nodes, which are matched together, is divided by what subscriptions hold.
        """
        found = self.patterns.usage()
        spent, self.state.meter.seconds = self.state.meter.seconds, 0.0
        held = self._named(self.state.shares())
        total = sum(held.values())
        size = self.state.saved_bytes
        sizes = {name: share / total * size for name, share in held.items()}
        seconds = {name: share / total * spent for name, share in held.items()}
        return Usage({**sizes, **found.bytes}, {**seconds, **found.seconds})

    # ---------------------------------------------------------------------------- going on

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next events complete."""
        return [self.feed_events(given.bare)]

    def feed_events(self, events: pa.Table) -> pa.Table:
        """The same for events as they came in."""
        found = [self._fed(piece) for piece in slices(events, SLICE)]
        return pa.concat_tables(found) if found else no_rows(self.schema)

    def _fed(self, events: pa.Table) -> pa.Table:
        return self._routed(events, np.full(events.num_rows, self.version))

    def _routed(self, events: pa.Table, versions: Ints) -> pa.Table:
        places = self._places(events)
        rows, slots = self.fleet.index.route(events, places)
        leaves = self.fleet.nodes.leaf_of.array[slots]
        return self._matched(events, rows, leaves, versions)

    def _matched(
        self, events: pa.Table, rows: Any, leaves: npt.NDArray[np.int32], versions: Ints
    ) -> pa.Table:
        self.patterns.drop_gone(self.store)
        self._bound_nodes()
        first = self.rows
        self.rows += events.num_rows
        self.routed += len(np.unique(rows))
        own = pattern_rows(leaves)
        numbers = numbers_of(leaves[own])
        patterns = self.patterns.feed(events, first, rows[own], numbers, versions)
        rows, leaves = rows[~own], leaves[~own]
        kept, places = np.unique(rows, return_inverse=True)
        some = rows_taken(events, kept)
        new = self._events(some, first + kept, versions[kept])
        found = self.state.feed(new, places.astype(np.int32), leaves)
        held = [self.state.events.position, *self.patterns.held_since(first)]
        members = [found.members, *(f.rows for f in patterns)]
        self.store.add(events, first, [*members, *held])
        return self._told(found, patterns)

    def advance(self, now: float) -> list[pa.Table]:
        """What only waited for time to pass."""
        self.patterns.drop_gone(self.store)
        found = self._told(self.state.advance(now), self.patterns.advance(now))
        self.store.forget_before(now)
        return [found]

    def finish(self) -> list[pa.Table]:
        """What only waited for the stream to end."""
        return [self._told(self.state.finish(), self.patterns.finish())]

    def deadline(self) -> float | None:
        times = [self.state.deadline(), self.patterns.deadline()]
        return min((t for t in times if t is not None), default=None)

    @property
    def now(self) -> float | None:
        """The time that has come; None: none yet."""
        return self.state.now

    # ---------------------------------------------------------------------------- events

    def _places(self, events: pa.Table) -> Any:
        schema = self.fleet.shape.schema
        return None if schema.location is None else places_of(events, schema)

    def _times(self, events: pa.Table) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """When events start and end."""
        shape = self.fleet.shape
        start, end = (
            np.asarray(from_arrow(events.column(name), shape.unit).values).astype(self.fleet.time)
            for name in (shape.schema.start, shape.schema.end)
        )
        return start, end

    def _events(self, events: pa.Table, positions: Ints, versions: Ints) -> Events:
        shape = self.fleet.shape
        start, end = self._times(events)
        places = self._places(events)
        corner = np.zeros(len(positions) + 1, np.int64) if places is None else places.first
        nothing = np.zeros(0)
        x, y = (nothing, nothing) if places is None else (places.x, places.y)
        numbers, codes, known = compared_fields(events, shape, list(self.fleet.nodes.fields))
        return Events(positions, versions, start, end, corner, x, y, numbers, codes, known)

    def _told(self, found: Delivered, patterns: Sequence[Found] = ()) -> pa.Table:
        tables = [self._told_of_patterns(part) for part in patterns]
        if len(found):
            numbers, which = np.unique(found.subscription, return_inverse=True)
            of = [member for n in numbers.tolist() if (member := self.fleet.members.at(n))]
            matches = Matches({}, {MEMBERS: (found.offsets, found.members)}, len(found))
            held = self.store.of([matches])
            placed = held.placed(matches).lists[MEMBERS][1]
            told = notified(
                [member.name for member in of], [member.identity for member in of], which,
                found.start, found.end, found.offsets, placed, held.events, self.fleet.shape,
            )  # fmt: skip
            tables.append(told)
        self._forget()
        return pa.concat_tables(tables) if tables else no_rows(self.schema)

    def _told_of_patterns(self, found: Found) -> pa.Table:
        told = self.patterns.told(found, self.store)
        if not len(told.which):
            return no_rows(self.schema)
        matches = Matches({}, {MEMBERS: (told.offsets, told.rows)}, len(told.which))
        held = self.store.of([matches])
        placed = held.placed(matches).lists[MEMBERS][1]
        start, end = self._times(held.events)
        return notified(
            [member.name for member in told.of], [member.identity for member in told.of],
            told.which, np.minimum.reduceat(start[placed], told.offsets[:-1]),
            end[placed[told.offsets[1:] - 1]], told.offsets, placed, held.events,
            self.fleet.shape,
        )  # fmt: skip

    def _forget(self) -> None:
        if self.store.is_full:
            self.state.compact()
            self.patterns.compact()
            self.store.keep(self._held())

    def _held(self) -> Ints:
        """The rows of the stream that matches to come may have."""
        return np.union1d(self.state.events.position, self.patterns.held())

    # ---------------------------------------------------------------------------- the set changes

    def drop_gone(self) -> None:
        """Lets go of what belonged to subscriptions that were cancelled."""
        gone = self.fleet.nodes.gone_subscriptions
        self.state.compact()
        used, tied = self.state.used_up()
        self.state.use_up(used[~np.isin(used[:, 0], gone)], tied[~np.isin(tied[:, 0], gone)])

    # ---------------------------------------------------------------------------- state

    @property
    def partial_matches(self) -> int:
        return self.state.partial_matches + self.patterns.partial_matches

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return self.state.saved_bytes + self.patterns.state_bytes + self.store.nbytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        arrays = self.state.save()
        patterns = self.patterns.save()
        self.store.keep(self._held())
        events, more = self.store.save()
        used, tied = (u.tolist() for u in self.state.used_up())
        numbers = {n for n, *_ in (*used, *tied)}
        names = {n: m.name for n in numbers if (m := self.fleet.members.at(n)) is not None}
        header = {
            "format": FORMAT,
            "rows": self.rows,
            "routed": self.routed,
            "version": self.version,
            "fields": list(self.fleet.nodes.fields),
            "used": [(names[n], position) for n, position in used if n in names],
            "tied": [(names[n], *rest) for n, *rest in tied if n in names],
        }
        saved = {f"node {name}": array for name, array in arrays.items()}
        return packed(header, {**saved, **more}, {"events": events, "patterns": patterns})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, arrays, blobs = unpacked(data)
        if header.get("format") != FORMAT:
            raise StateError(
                f"the state of subscriptions is of format {header.get('format')}, and this "
                f"release reads {FORMAT}\n  hint: use the release that wrote it"
            )
        nodes = {n.removeprefix("node "): a for n, a in arrays.items() if n.startswith("node ")}
        for name in ("event numbers", "event codes", "event known"):
            nodes[name] = self._as_here(nodes[name], header["fields"])
        self.state.restore(nodes)
        others = {n: a for n, a in arrays.items() if not n.startswith("node ")}
        self.store.restore(blobs["events"], others)
        if "patterns" in blobs:
            self.patterns.restore(blobs["patterns"])
        self.rows, self.routed = int(header["rows"]), int(header["routed"])
        self.version = int(header["version"])
        numbers = {}
        for name, *_ in (*header["used"], *header["tied"]):
            if (member := self.fleet.members.get(name)) is not None:
                numbers[name] = member.number
        used, tied = (
            [(numbers[name], *rest) for name, *rest in header[what] if name in numbers]
            for what in ("used", "tied")
        )
        self.state.use_up(
            np.array(used, np.int64).reshape(-1, 2), np.array(tied, np.int64).reshape(-1, 3)
        )

    def _as_here(self, columns: npt.NDArray[Any], names: Sequence[str]) -> npt.NDArray[Any]:
        """Values by field, where fields are in another order, or more of them, than elsewhere."""
        here = self.fleet.nodes.fields
        found = np.zeros((len(columns), len(here)), columns.dtype)
        # events that came before somebody compared a field do not have it
        for name, column in zip(names, columns.T, strict=False):
            if name in here:
                found[:, here[name]] = column
        return found


def matched_in(
    events: pa.Table,
    fleet: Fleet,
    version: int,
    limits: Limits,
    lane: int = -1,
    progress: Progress | None = None,
) -> pa.Table:
    """What a fleet, or one of its lanes, finds in events that are all there."""
    matcher = FleetMatcher(fleet, limits, lane)
    matcher.version = version
    found = []
    size = FIRST_SLICE
    while matcher.rows < events.num_rows:
        found.append(matcher.feed_events(events.slice(matcher.rows, size)))
        size = min(8 * size, SLICE)
        if progress is not None:
            progress(matcher.rows, events.num_rows)
    return pa.concat_tables([*found, *matcher.finish()])
