"""The engine of a template: its rows of events and subscriptions, and its matches."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.engine import FEW_CODES, Engine
from ensue.operators.subscriptions.member_registry import CpuMeter, estimate_shares
from ensue.operators.subscriptions.templates.query_template import QueryTemplate
from ensue.operators.subscriptions.templates.template_table import PatternMember, TemplateTable
from ensue.options import Limits
from ensue.projection.match_order import get_last_rows, limit_matches
from ensue.projection.match_table import filter_matches
from ensue.runtime.event_buffer import MIN_COMPACT_ROWS, EventBuffer
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

Ints = npt.NDArray[np.int64]
NONE = np.zeros(0, np.int64)
LEAST = 1 << 20  # bytes that an engine may always use, since its initial tables need space
PIECE = 1 << 18  # rows per call of an engine
_FEW = 1_000  # with fewer rows, unneeded ones are not dropped


@dataclass(frozen=True, slots=True, eq=False)
class TemplateMatches:
    """Matches as positions among rows: pairs of an event and a subscription key."""

    running: "TemplateEngine"
    matches: Matches
    rows: Ints
    keys: Ints


class TemplateEngine:
    """An engine of a template, for all of its subscriptions or for one."""

    def __init__(self, shape: QueryTemplate, limits: Limits, key: int | None = None) -> None:
        self.shape = shape
        self.key = key  # of the only subscription
        self.engine = shape.engine(limits)
        self.own, self.rows, self.keys = NONE, NONE, NONE  # of the held rows
        self.meter = CpuMeter()
        self._needed = 0
        self._bounded_for = 0  # subscriptions

    def process(self, events: pa.Table, first: int, rows: Ints, keys: Ints, places: Ints) -> TemplateMatches:
        """Matches rows of new events; event 0 is row `first` of the stream."""
        columns = events.select(self.shape.columns)
        results = []
        for begin in range(0, len(rows), PIECE):
            part = slice(begin, begin + PIECE)
            batch = take_rows(columns, rows[part])
            numbers = self.engine.rows + np.arange(batch.num_rows)
            self.own = np.concatenate([self.own, numbers])
            self.rows = np.concatenate([self.rows, first + rows[part]])
            self.keys = np.concatenate([self.keys, keys[part]])
            matches = self.engine.process(self.shape.rows(batch, keys[part], places[part]))
            results.append(self._locate_matches(matches))
            if batch.num_rows > _FEW or len(self.own) > max(MIN_COMPACT_ROWS, 2 * self._needed):
                self.keep()
        return _concat_matches(self, results)

    def limit_each(self, each: Limits, most: float) -> None:
        """Limits the engine by the limits per subscription.

        If the engine exceeds them, a subscription does. `most` limits the bytes of all engines.
        """
        subscriptions = self.shape.users if self.key is None else 1
        if subscriptions == self._bounded_for:
            return
        self._bounded_for = subscriptions
        engine = self.engine
        allowance = engine.room.allowance if isinstance(engine, Engine) else engine.allowance
        memory = min(most, max(LEAST, (each.memory_size or most) * subscriptions))
        max_matches = None if each.max_matches is None else each.max_matches * subscriptions
        allowance.limits = replace(allowance.limits, max_matches=max_matches, memory=memory)
        allowance.size = memory

    def shares(self) -> dict[int, float]:
        """Returns the share of each subscription, by key, in the state of the engine."""
        keys, events = np.unique(self.keys, return_counts=True)
        parts = estimate_shares(events.astype(np.float64), float(self.engine.partial_matches))
        return dict(zip(keys.tolist(), parts.tolist(), strict=True))

    @property
    def is_idle(self) -> bool:
        """Whether the passing of time does not affect the engine."""
        engine = self.engine
        return isinstance(engine, Engine) and engine.is_blank and engine.scan.known <= FEW_CODES

    def on_watermark(self, now: float) -> TemplateMatches:
        """Returns the matches that the watermark `now` completes."""
        result = self._locate_matches(self.engine.on_watermark(now))
        self.keep()
        return result

    def _locate_matches(self, matches: Matches) -> TemplateMatches:
        self.engine.hand_over()
        members = [matches.elements(v) for v in matches.variables]
        numbers = np.unique(np.concatenate([NONE, *members]))
        positions = np.searchsorted(self.own, numbers)

        def locate(rows: Ints) -> Ints:
            return np.where(rows < 0, np.int64(-1), np.searchsorted(numbers, rows))

        return TemplateMatches(self, matches.map_rows(locate), self.rows[positions], self.keys[positions])

    def keep(self) -> None:
        """Drops the rows that no later match can contain."""
        held = self.engine.get_held_rows()
        if len(held) < len(self.own):
            positions = np.searchsorted(self.own, held)
            self.own, self.rows = self.own[positions], self.rows[positions]
            self.keys = self.keys[positions]
        self._needed = len(held)

    def drop(self, table: TemplateTable, store: EventBuffer) -> None:
        """Drops the state of cancelled subscriptions if the engine can.

        Otherwise it expires with its window, and its matches are not delivered.
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
        batch = self.shape.rows(events, keys, np.zeros(len(rows), np.int64))
        engine.drop_keys([batch.column(name) for name in names])
        self.keep()


def _concat_matches(running: TemplateEngine, parts: list[TemplateMatches]) -> TemplateMatches:
    if len(parts) == 1:
        return parts[0]
    rows = np.concatenate([NONE, *(f.rows for f in parts)])
    keys = np.concatenate([NONE, *(f.keys for f in parts)])
    shifts = np.cumsum([0, *(len(f.rows) for f in parts)])

    def shift(by: int) -> Callable[[Ints], Ints]:
        return lambda rows: np.where(rows < 0, np.int64(-1), rows + by)

    moved = [f.matches.map_rows(shift(by)) for f, by in zip(parts, shifts.tolist(), strict=False)]
    variables = moved[0].rows
    singles = {v: np.concatenate([m.rows[v] for m in moved]) for v in variables}
    lists = {}
    for variable in moved[0].lists:
        lengths = np.concatenate([np.diff(m.lists[variable][0]) for m in moved])
        offsets = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        lists[variable] = offsets, np.concatenate([m.lists[variable][1] for m in moved])
    count = sum(m.count for m in moved)
    return TemplateMatches(running, Matches(singles, lists, count), rows, keys)


# ----------------------------------------------------------------------------- delivery


@dataclass(frozen=True, slots=True, eq=False)
class SelectedMatches:
    """Match k is of `members[which[k]]`, with the rows from `offsets[k]` on."""

    members: list[PatternMember]
    which: Ints
    offsets: Ints
    rows: Ints  # of the stream, ascending in each match


def select_matches(found: TemplateMatches, table: TemplateTable, store: EventBuffer) -> SelectedMatches:
    """Selects the matches of active subscriptions that HAVING and LIMIT keep."""
    found = _filter_alive(found, table)
    if found.matches.count and found.running.shape.filters_matches:
        found = _apply_having(found, table, store)
    matches = found.matches
    rows, offsets = _members(found)
    keys = found.keys[get_last_rows(matches)] if matches.count else NONE
    selected = np.arange(matches.count)
    if found.running.shape.repeats and matches.count > 1:
        selected = _find_distinct(keys, offsets, rows)
    if len(selected) < matches.count:
        members = Matches({}, {"": (offsets, rows)}, matches.count).pick(selected)
        keys, (offsets, rows) = keys[selected], members.lists[""]
    unique, which = np.unique(keys, return_inverse=True)
    return SelectedMatches([table.by_key[key] for key in unique.tolist()], which, offsets, rows)


def _filter_alive(found: TemplateMatches, table: TemplateTable) -> TemplateMatches:
    if not found.matches.count:
        return found
    keys, which = np.unique(found.keys, return_inverse=True)
    alive = np.array([key in table.by_key for key in keys.tolist()], np.bool_)
    if alive.all():
        return found
    return replace(found, matches=found.matches.where(alive[which][get_last_rows(found.matches)]))


def _apply_having(found: TemplateMatches, table: TemplateTable, store: EventBuffer) -> TemplateMatches:
    """Applies residual conditions, HAVING and LIMIT."""
    shape = found.running.shape
    keys, which = np.unique(found.keys, return_inverse=True)
    members = [table.by_key.get(key) for key in keys.tolist()]
    places = np.array([0 if m is None else m.place for m in members], np.int64)[which]
    events = shape.rows(_events(store, found.rows), found.keys, places)
    columns = shape.shape.get_columns(shape.physical)
    matches = filter_matches(found.matches, events, shape.physical, shape.schema, shape.plan.residual, columns)
    if shape.physical.limit is not None:
        matches = limit_matches(matches, shape.physical)
    return replace(found, matches=matches)


def _events(store: EventBuffer, rows: Ints) -> pa.Table:
    """Returns the events of rows of the stream."""
    held = store.get_events([Matches({"": np.asarray(rows)}, {}, len(rows))])
    return take_rows(held.events, np.searchsorted(held.rows, rows))


def _members(found: TemplateMatches) -> tuple[Ints, Ints]:
    """Returns the rows of each match in stream order, and the offsets of the matches."""
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


def _find_distinct(keys: Ints, offsets: Ints, rows: Ints) -> Ints:
    """Returns the first of the matches with the same subscription and events."""
    seen: dict[tuple[int, bytes], int] = {}
    ends = offsets.tolist()
    for number, key in enumerate(keys.tolist()):
        seen.setdefault((key, rows[ends[number] : ends[number + 1]].tobytes()), number)
    return np.fromiter(seen.values(), np.int64, len(seen))
