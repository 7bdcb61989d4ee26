"""An engine over rows of subscriptions: what it was given, and what it finds."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.matches import Matches
from ensue.columns.rows import rows_taken
from ensue.engine.engine import FEW_CODES, Engine
from ensue.plan.limits import Limits
from ensue.results.table import accepted
from ensue.results.triggers import last_rows, limited
from ensue.workload.held_events import WORTH, EventStore
from ensue.workload.subscriptions.shapes.shape import PatternShape
from ensue.workload.subscriptions.shapes.table import PatternMember, Patterns
from ensue.workload.subscriptions.usage import Meter, shares_of

Ints = npt.NDArray[np.int64]
NONE = np.zeros(0, np.int64)
LEAST = 1 << 20  # bytes that an engine may take in any case: it begins with tables of some size
PIECE = 1 << 18  # rows that an engine is given together
_FEW = 1_000  # rows that are kept without asking which of them matter


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Matches as places among rows: each an event of the stream and a key."""

    running: "Running"
    matches: Matches
    rows: Ints
    keys: Ints


class Running:
    """An engine of a shape: for all of its subscriptions, or for one."""

    def __init__(self, shape: PatternShape, limits: Limits, key: int | None = None) -> None:
        self.shape = shape
        self.key = key  # of the only one
        self.engine = shape.engine(limits)
        self.own, self.rows, self.keys = NONE, NONE, NONE  # of what it holds
        self.meter = Meter()
        self._needed = 0
        self._bounded_for = 0  # subscriptions

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table, first: int, rows: Ints, keys: Ints, places: Ints) -> Found:
        """What is found with rows of new events, the first of which is row `first` of all."""
        some = events.select(self.shape.columns)
        found = []
        for begin in range(0, len(rows), PIECE):
            part = slice(begin, begin + PIECE)
            given = rows_taken(some, rows[part])
            number = self.engine.rows
            own = np.arange(number, number + given.num_rows)
            self.own = np.concatenate([self.own, own])
            self.rows = np.concatenate([self.rows, first + rows[part]])
            self.keys = np.concatenate([self.keys, keys[part]])
            found.append(
                self._told(self.engine.feed(self.shape.rows(given, keys[part], places[part])))
            )
            if given.num_rows > _FEW or len(self.own) > max(WORTH, 2 * self._needed):
                self.keep()
        return _joined(self, found)

    def bound_each(self, each: Limits, most: float) -> None:
        """Bounds the engine by what each of its subscriptions may hold and find.

        An engine that exceeds it has a subscription that does. `most` are bytes for all of them.
        """
        subscriptions = self.shape.users if self.key is None else 1
        if subscriptions == self._bounded_for:
            return
        self._bounded_for = subscriptions
        engine = self.engine
        allowance = engine.room.allowance if isinstance(engine, Engine) else engine.allowance
        memory = min(most, max(LEAST, (each.memory or most) * subscriptions))
        matches = None if each.max_matches is None else each.max_matches * subscriptions
        allowance.limits = replace(allowance.limits, max_matches=matches, memory=memory)
        allowance.size = memory

    def shares(self) -> dict[int, float]:
        """The share of each subscription, by its key, in what the engine holds."""
        keys, events = np.unique(self.keys, return_counts=True)
        parts = shares_of(events.astype(np.float64), float(self.engine.partial_matches))
        return dict(zip(keys.tolist(), parts.tolist(), strict=True))

    @property
    def is_idle(self) -> bool:
        """Whether time can pass without its having to know."""
        engine = self.engine
        return isinstance(engine, Engine) and engine.is_blank and engine.scan.known <= FEW_CODES

    def advance(self, now: float) -> Found:
        """What only waited for time to pass."""
        found = self._told(self.engine.advance(now))
        self.keep()
        return found

    def finish(self) -> Found:
        """What only waited for the stream to end."""
        return self._told(self.engine.finish())

    def _told(self, matches: Matches) -> Found:
        self.engine.hand_over()
        members = [matches.elements(v) for v in matches.variables]
        own = np.unique(np.concatenate([NONE, *members]))
        places = np.searchsorted(self.own, own)

        def place(rows: Ints) -> Ints:
            return np.where(rows < 0, np.int64(-1), np.searchsorted(own, rows))

        return Found(self, matches.moved(place), self.rows[places], self.keys[places])

    def keep(self) -> None:
        """Lets go of the rows that no match to come can have."""
        held = self.engine.held_rows()
        if len(held) < len(self.own):
            places = np.searchsorted(self.own, held)
            self.own, self.rows = self.own[places], self.rows[places]
            self.keys = self.keys[places]
        self._needed = len(held)

    # ---------------------------------------------------------------------------- the set changes

    def drop(self, table: Patterns, store: EventStore) -> None:
        """Lets go of what belonged to subscriptions that are gone, if the engine can.

        Else it is let go when its window is over; what it finds is told nobody.
        """
        engine = self.engine
        if not isinstance(engine, Engine) or not engine.can_drop_keys:
            return
        self.keep()
        keys, which = np.unique(self.keys, return_inverse=True)
        gone = np.array([key not in table.by_key for key in keys.tolist()], np.bool_)
        if not len(keys) or not gone.any():
            return
        rows, keys = self.rows[gone[which]], self.keys[gone[which]]
        names = [e.field_name for e in self.shape.plan.query.equivalence]
        events = _events(store, rows)
        given = self.shape.rows(events, keys, np.zeros(len(rows), np.int64))
        engine.drop_keys([given.column(name) for name in names])
        self.keep()


def _joined(running: Running, found: list[Found]) -> Found:
    if len(found) == 1:
        return found[0]
    rows = np.concatenate([NONE, *(f.rows for f in found)])
    keys = np.concatenate([NONE, *(f.keys for f in found)])
    shifts = np.cumsum([0, *(len(f.rows) for f in found)])
    moved = [_shifted(f.matches, by) for f, by in zip(found, shifts.tolist(), strict=False)]
    variables = moved[0].rows
    singles = {v: np.concatenate([m.rows[v] for m in moved]) for v in variables}
    lists = {}
    for variable in moved[0].lists:
        lengths = np.concatenate([np.diff(m.lists[variable][0]) for m in moved])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        lists[variable] = offsets, np.concatenate([m.lists[variable][1] for m in moved])
    count = sum(m.count for m in moved)
    return Found(running, Matches(singles, lists, count), rows, keys)


def _shifted(matches: Matches, by: int) -> Matches:
    return matches.moved(lambda rows: np.where(rows < 0, np.int64(-1), rows + by))


# ----------------------------------------------------------------------------- who is told


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """Matches of subscriptions: `of[which]` is told of the events `rows[offsets...]`."""

    of: list[PatternMember]
    which: Ints
    offsets: Ints
    rows: Ints  # of the stream, ascending in each match


def told(found: Found, table: Patterns, store: EventStore) -> Told:
    """The matches whose subscriptions are alive, without those that HAVING and LIMIT leave out."""
    found = _alive(found, table)
    if found.matches.count and found.running.shape.chooses:
        found = _chosen(found, table, store)
    matches = found.matches
    rows, offsets = _members(found)
    keys = found.keys[last_rows(matches)] if matches.count else NONE
    kept = np.arange(matches.count)
    if found.running.shape.repeats and matches.count > 1:
        kept = _different(keys, offsets, rows)
    if len(kept) < matches.count:
        keys, picked = keys[kept], Matches({}, {"": (offsets, rows)}, matches.count).pick(kept)
        offsets, rows = picked.lists[""]
    unique, which = np.unique(keys, return_inverse=True)
    return Told([table.by_key[key] for key in unique.tolist()], which, offsets, rows)


def _alive(found: Found, table: Patterns) -> Found:
    if not found.matches.count:
        return found
    keys, which = np.unique(found.keys, return_inverse=True)
    alive = np.array([key in table.by_key for key in keys.tolist()], np.bool_)
    if alive.all():
        return found
    return replace(found, matches=found.matches.where(alive[which][last_rows(found.matches)]))


def _chosen(found: Found, table: Patterns, store: EventStore) -> Found:
    """What residual conditions, HAVING and LIMIT leave."""
    shape = found.running.shape
    keys, which = np.unique(found.keys, return_inverse=True)
    of = [table.by_key.get(key) for key in keys.tolist()]
    places = np.array([0 if m is None else m.place for m in of], np.int64)[which]
    events = shape.rows(_events(store, found.rows), found.keys, places)
    columns = shape.shape.columns_of(shape.physical)
    matches = accepted(
        found.matches, events, shape.physical, shape.schema, shape.plan.residual, columns
    )
    if shape.physical.limit is not None:
        matches = limited(matches, shape.physical)
    return replace(found, matches=matches)


def _events(store: EventStore, rows: Ints) -> pa.Table:
    """Events of the stream, one for each row."""
    held = store.of([Matches({"": np.asarray(rows)}, {}, len(rows))])
    return rows_taken(held.events, np.searchsorted(held.rows, rows))


def _members(found: Found) -> tuple[Ints, Ints]:
    """The rows of each match in the order of the stream, and where those of each begin."""
    matches = found.matches
    owners, rows = [NONE], [NONE]
    for variable in matches.variables:
        offsets, places = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        rows.append(found.rows[places])
    owner, row = np.concatenate(owners), np.concatenate(rows)
    order = np.lexsort((row, owner))
    offsets = np.zeros(matches.count + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=matches.count), out=offsets[1:])
    return row[order], offsets


def _different(keys: Ints, offsets: Ints, rows: Ints) -> Ints:
    """The first of all matches with the same subscription and events."""
    seen: dict[tuple[int, bytes], int] = {}
    ends = offsets.tolist()
    for number, key in enumerate(keys.tolist()):
        seen.setdefault((key, rows[ends[number] : ends[number + 1]].tobytes()), number)
    return np.fromiter(seen.values(), np.int64, len(seen))
