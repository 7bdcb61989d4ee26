"""Fills the parts of an alternative with events, one part after the other, newest events first."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ensue.algebra import places
from ensue.algebra.alternatives import Alternative, Compared, Gone, Later, Near
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Region
from ensue.semantics.events import Event
from ensue.semantics.why_not.filled import Filled
from ensue.semantics.why_not.ground import Asked, Frame, Ground, Tries, Try, Watch
from ensue.semantics.why_not.plan import Level, Stop
from ensue.semantics.why_not.pools import Pool
from ensue.semantics.why_not.steps import CONDITION, EDGE, PLACES, TRIED
from ensue.semantics.why_not.stuck import short_of, tell
from ensue.semantics.why_not.windows import window_of


class Search:
    """All combinations of events that fill an alternative.

    Without a frame they are matches; in one, what must not have happened.
    """

    def __init__(
        self,
        way: Alternative,
        ground: Ground,
        *,
        frame: Frame | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.way = way
        self.ground = ground
        self.frame = frame
        self.watch = watch
        self.plan = ground.plan(way)
        self.filled = Filled(way, ground.stream)

    def combinations(self) -> Iterator[Filled]:
        """Each of them while it is there: the next one takes its place."""
        stop, held = self._failed(self.plan.first)
        if stop is None:
            yield from self._from(0)
        elif self.watch is not None:
            self.watch.stopped(stop, 1)
            self.watch.stuck(self, (0, 2 * held), stop)

    def _from(self, depth: int) -> Iterator[Filled]:
        if depth == len(self.plan.levels):
            if self._is_over() and self._is_in_frame():
                yield self.filled
            return
        level = self.plan.levels[depth]
        tries = self._tries(level)
        for row in range(tries.rows[1] - 1, tries.rows[0] - 1, -1):
            event = tries.same.events[row]
            with self.holding(level.part, event):
                stop, held = self.tried(level, event)
                if stop is None:
                    tries.fits = True
                    yield from self._from(depth + 1)
                elif self.watch is not None:
                    self.watch.stopped(stop, 1)
                    if depth == 0:  # each first event is a candidate of its own
                        self.watch.stuck(self, (0, 2 * held), stop)
                    elif stop[0] != "role" and (not tries.best or 2 * held >= tries.best.rank):
                        new = Try(2 * held, short_of(self, stop), event, stop)
                        tries.best = new if new.is_better(tries.best) else tries.best
        if self.watch is not None:
            tell(self, self.watch, depth, tries)

    @contextmanager
    def holding(self, part: int, event: Event) -> Iterator[None]:
        """With an event in a part."""
        self.filled.events[part] = event
        try:
            yield
        finally:
            del self.filled.events[part]

    # ------------------------------------------------------------------------------ events

    def _tries(self, level: Level) -> Tries:
        """The events that may fill a part, by fields and times."""
        test = self.way.parts[level.part]
        assert isinstance(test, EventTest)
        self.ground.steps.take(TRIED + CONDITION * len(level.times))
        pool = self.ground.pools[test]
        same = self.same(level, pool)
        window = window_of(level, self.way.conditions, self.filled, same.longest)
        if self.frame is not None:
            window.begins(self.frame.since, -1)
            window.ends(self.frame.until, -1)
        return Tries(pool, same, window, same.rows(*window.loose()))

    def same(self, level: Level, pool: Pool) -> Pool:
        """Those events that have the value that a field must have, given what is there."""
        for number in level.equal:
            compared = self.way.conditions[number]
            assert isinstance(compared, Compared)
            mine, theirs = compared.name, (compared.other, compared.other_name)
            if compared.part != level.part:
                mine, theirs = compared.other_name, (compared.part, compared.name)
            event = self.filled.events[theirs[0]]
            return pool.equal(mine, self.ground.stream.value(event, theirs[1]))
        for name, operator, value in self._asked(level):
            if operator == "=":
                return pool.equal(name, value)
        return pool

    def _asked(self, level: Level) -> list[Asked]:
        return [] if self.frame is None else self.frame.asked.get(level.part, [])

    def tried(self, level: Level, event: Event) -> tuple[Stop | None, int]:
        """What speaks against the event of a part, and how many conditions held before."""
        self.ground.steps.take(TRIED)
        if self.plays(event, but=level.part):
            return ("role", level.part), 0
        for name, operator, value in self._asked(level):
            if not self.ground.stream.holds(event, name, operator, value):
                return ("condition", -1), 0  # nobody asks for the reason
        return self._failed(level)

    def plays(self, event: Event, *, but: int = -1) -> bool:
        """Whether it has a role already, `but` the one of this part."""
        barred = frozenset() if self.frame is None else self.frame.base
        return event.position in barred or any(
            part != but and event.position == other.position
            for part, other in self.filled.events.items()
        )

    # -------------------------------------------------------------------------- conditions

    def _failed(self, level: Level) -> tuple[Stop | None, int]:
        held = 0
        for number in level.conditions:
            self.ground.steps.take(CONDITION)
            if not self.holds(number):
                return ("condition", number), held
            held += 1
        for number in level.absences:
            if self.barring(number) is not None:
                return ("absence", number), held
            held += 1
        return None, held

    def holds(self, number: int) -> bool:
        """Whether a condition holds for what is there."""
        match self.way.conditions[number]:
            case Later() as later:
                return self.filled.in_time(later)
            case Compared(part, name, operator, other, other_name):
                events, stream = self.filled.events, self.ground.stream
                wanted = stream.value(events[other], other_name)
                return stream.holds(events[part], name, operator, wanted)
            case Near() as near:
                p, q = self.places(near)
                asked = near.comparison, near.number, near.tolerance
                return places.satisfies(near.where, p, q, *asked, self.ground.stream.space)

    def places(self, near: Near) -> tuple[places.Place | places.Shape | None, places.Place | None]:
        """Where the two groups are that it speaks of, or the region and the group."""
        ground = self.ground
        ground.steps.take(PLACES)
        q = ground.stream.place(self.filled.positions(near.second))
        if not isinstance(near.first, Region):
            return ground.stream.place(self.filled.positions(near.first)), q
        zone = ground.sieve.zone(near.first)
        ground.steps.take(EDGE * zone.edges)
        return zone.shape, q

    # ---------------------------------------------------------------------------- absences

    def barring(self, number: int) -> tuple[Event, ...] | None:
        """What happened although it must not; None: nothing."""
        gone, filled = self.way.parts[number], self.filled
        assert isinstance(gone, Gone)
        since, until, base = filled.since(gone), filled.until(gone), filled.positions(gone.base)
        values = tuple(
            self.ground.stream.value(filled.events[c.other], c.other_name) for _, c in gone.asks
        )
        key = id(gone), since, until, base, values
        known = self.ground.barring
        if key not in known:
            known[key] = self._barring(gone, Frame(since, until, base, {}), values)
        return known[key]

    def _barring(
        self, gone: Gone, frame: Frame, values: tuple[object, ...]
    ) -> tuple[Event, ...] | None:
        for place, other in enumerate(gone.absent):
            asked: dict[int, list[Asked]] = {}
            for (which, c), value in zip(gone.asks, values, strict=True):
                if which == place:
                    asked.setdefault(c.part, []).append((c.name, c.operator, value))
            search = Search(other, self.ground, frame=replace(frame, asked=asked))
            for found in search.combinations():
                return tuple(found.events.values())
        return None

    def _is_over(self) -> bool:
        """Whether time has passed all intervals in which nothing may happen."""
        now = self.ground.now
        if now is None:
            return True
        untils = [self.filled.until(p) for p in self.way.parts if isinstance(p, Gone)]
        last = max(untils, default=None)
        if last is None or last < now:
            return True
        if self.watch is not None:
            self.watch.waits(self, None, last)
        return False

    def _is_in_frame(self) -> bool:
        if self.frame is None:
            return True
        start, end = self.filled.start(self.way.root), self.filled.end(self.way.root)
        assert start is not None
        assert end is not None
        return self.frame.since < start and end <= self.frame.until
