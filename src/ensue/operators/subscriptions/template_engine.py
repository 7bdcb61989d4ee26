"""The engine of a template: its rows of events and subscriptions, and its matches."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.engine import FEW_CODES, Engine
from ensue.engine.memory_budget import Usage
from ensue.operators.subscriptions.member_registry import CpuMeter, estimate_shares
from ensue.operators.subscriptions.query_template import QueryTemplate
from ensue.operators.subscriptions.template_table import PatternMember, TemplateTable
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


class PairRows(NamedTuple):
    """The rows of an engine, which are pairs of an event and a subscription."""

    own: Ints  # their numbers in the engine, ascending
    rows: Ints  # of the stream
    keys: Ints  # of the subscriptions

    def take(self, places: Ints) -> "PairRows":
        return PairRows(self.own[places], self.rows[places], self.keys[places])


@dataclass(frozen=True, slots=True, eq=False)
class TemplateMatches:
    """Matches as positions among rows: pairs of an event and a subscription key."""

    engine: "TemplateEngine"
    matches: Matches
    rows: Ints
    keys: Ints


class TemplateEngine:
    """An engine of a template, for all of its subscriptions or for one."""

    def __init__(self, template: QueryTemplate, limits: Limits, key: int | None = None) -> None:
        self.template = template
        self.key = key  # of the only subscription
        self.engine = template.engine(limits)
        self.held = PairRows(NONE, NONE, NONE)
        self.meter = CpuMeter()
        self._needed = 0
        self._bounded_for = 0  # subscriptions

    def process(self, events: pa.Table, first: int, rows: Ints, keys: Ints, places: Ints) -> list[TemplateMatches]:
        """Matches rows of new events; event 0 is row `first` of the stream."""
        columns = events.select(self.template.columns)
        results = []
        for begin in range(0, len(rows), PIECE):
            part = slice(begin, begin + PIECE)
            batch = take_rows(columns, rows[part])
            numbers = self.engine.rows + np.arange(batch.num_rows)
            new = PairRows(numbers, first + rows[part], keys[part])
            self.held = PairRows(*map(np.concatenate, zip(self.held, new, strict=True)))
            matches = self.engine.process(self.template.rows(batch, keys[part], places[part]))
            results.append(self._locate_matches(matches))
            if batch.num_rows > _FEW or len(self.held.own) > max(MIN_COMPACT_ROWS, 2 * self._needed):
                self.compact()
        return results

    def limit_each(self, each: Limits, most: float) -> None:
        """Limits the engine by the limits per subscription.

        If the engine exceeds them, a subscription does. `most` limits the bytes of all engines.
        """
        subscriptions = self.template.users if self.key is None else 1
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
        keys, events = np.unique(self.held.keys, return_counts=True)
        parts = estimate_shares(events.astype(np.float64), float(self.usage.partial_matches))
        return dict(zip(keys.tolist(), parts.tolist(), strict=True))

    @property
    def is_idle(self) -> bool:
        """Whether the passing of time does not affect the engine."""
        engine = self.engine
        return isinstance(engine, Engine) and engine.is_blank and engine.scan.known <= FEW_CODES

    @property
    def usage(self) -> Usage:
        return self.engine.usage.add_bytes(3 * self.held.own.nbytes)

    @property
    def held_rows(self) -> Ints:
        """The rows of the stream that later matches may contain."""
        return self.held.rows

    def next_timer(self) -> float | None:
        return self.engine.next_timer()

    def on_watermark(self, now: float) -> TemplateMatches:
        """Returns the matches that the watermark `now` completes."""
        result = self._locate_matches(self.engine.on_watermark(now))
        self.compact()
        return result

    def _locate_matches(self, matches: Matches) -> TemplateMatches:
        self.engine.hand_over()
        members = [matches.elements(v) for v in matches.variables]
        numbers = np.unique(np.concatenate([NONE, *members]))
        pairs = self.held.take(np.searchsorted(self.held.own, numbers))

        def locate(rows: Ints) -> Ints:
            return np.where(rows < 0, np.int64(-1), np.searchsorted(numbers, rows))

        return TemplateMatches(self, matches.map_rows(locate), pairs.rows, pairs.keys)

    def compact(self) -> None:
        """Drops the rows that no later match can contain."""
        needed = self.engine.get_held_rows()
        if len(needed) < len(self.held.own):
            self.held = self.held.take(np.searchsorted(self.held.own, needed))
        self._needed = len(needed)

    def drop_cancelled(self, table: TemplateTable, store: EventBuffer) -> None:
        """Drops the state of cancelled subscriptions if the engine can.

        Otherwise it expires with its window, and its matches are not delivered.
        """
        engine = self.engine
        if not isinstance(engine, Engine) or not engine.can_drop_keys:
            return
        self.compact()
        cancelled = self.held.take(np.flatnonzero(~table.are_alive(self.held.keys)))
        if not len(cancelled.rows):
            return
        names = [e.field_name for e in self.template.plan.query.equivalence]
        events = _get_events(store, cancelled.rows)
        batch = self.template.rows(events, cancelled.keys, np.zeros(len(cancelled.rows), np.int64))
        engine.drop_keys([batch.column(name) for name in names])
        self.compact()

    # ---------------------------------------------------------------------------- delivery

    def select(
        self, found: TemplateMatches, table: TemplateTable, store: EventBuffer
    ) -> tuple[list[PatternMember], Ints, Ints, Ints]:
        """Selects the matches of active subscriptions that HAVING and LIMIT keep.

        Match k is of `members[which[k]]`, with the rows of the stream from `offsets[k]` on. Returns these four.
        """
        matches = found.matches
        alive = table.are_alive(found.keys)
        if not alive.all():
            matches = matches.where(alive[get_last_rows(matches)])
        if matches.count and self.template.filters_matches:
            matches = self._apply_having(replace(found, matches=matches), table, store)
        rows, offsets = _list_members(matches, found.rows)
        keys = found.keys[get_last_rows(matches)] if matches.count else NONE
        if self.template.repeats and matches.count > 1:
            selected = _find_distinct(keys, offsets, rows)
            distinct = Matches({}, {"": (offsets, rows)}, matches.count).pick(selected)
            keys, (offsets, rows) = keys[selected], distinct.lists[""]
        unique, which = np.unique(keys, return_inverse=True)
        return [table.by_key[key] for key in unique.tolist()], which, offsets, rows

    def _apply_having(self, found: TemplateMatches, table: TemplateTable, store: EventBuffer) -> Matches:
        """Applies residual conditions, HAVING and LIMIT."""
        template = self.template
        keys, which = np.unique(found.keys, return_inverse=True)
        members = [table.by_key.get(key) for key in keys.tolist()]
        places = np.array([0 if m is None else m.place for m in members], np.int64)[which]
        events = template.rows(_get_events(store, found.rows), found.keys, places)
        query, columns = template.physical, template.shape.get_columns(template.physical)
        matches = filter_matches(found.matches, events, query, template.schema, template.plan.residual, columns)
        return matches if query.limit is None else limit_matches(matches, query)


def _get_events(store: EventBuffer, rows: Ints) -> pa.Table:
    """Returns the events of rows of the stream."""
    held = store.get_events([Matches({"": np.asarray(rows)}, {}, len(rows))])
    return take_rows(held.events, np.searchsorted(held.rows, rows))


def _list_members(matches: Matches, stream_rows: Ints) -> tuple[Ints, Ints]:
    """Returns the rows of each match in stream order, and the offsets of the matches."""
    owners, rows = [NONE], [NONE]
    for variable in matches.variables:
        offsets, places = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        rows.append(stream_rows[places])
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
