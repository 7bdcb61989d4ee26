"""Room for a kernel at work: what it asks for, as far as it may have it."""

import weakref
from typing import TYPE_CHECKING

from ensue.columns.matches import Matches
from ensue.engine.allowance import MOST_ROWS, Allowance, Holding
from ensue.source.kernel_inputs import (
    MOST_NODES,
    MOST_OUT,
    NEEDS_DRAIN,
    NEEDS_OUTPUT,
    OUT_TOP,
    POSITION,
    STOP,
    STOPPED,
)
from ensue.structures.contract import Asked

if TYPE_CHECKING:
    from ensue.engine.engine import Engine

MOST_OUTPUT = 1 << 18  # matches taken out at a time


class Room:
    """Makes the tables of an engine larger, or says that they are large enough."""

    def __init__(self, engine: "Engine", allowance: Allowance) -> None:
        self._engine = weakref.ref(engine)  # an engine that is let go takes its tables with it
        self.allowance = allowance
        self.matches = 0  # found, and not handed over by whoever feeds the engine
        self.size = 0.0  # bytes that these take
        self.waiting, self.waiting_size = 0, 0.0  # the same for those not delivered yet
        self.counts = True  # matches: not those that were delivered before
        self.elsewhere = 0.0  # bytes that others of the same call hold
        self.at: tuple[int, float] | None = None  # the event in hand and its time, if there is one

    @property
    def engine(self) -> "Engine":
        engine = self._engine()
        assert engine is not None
        return engine

    # ---------------------------------------------------------------------------- what is held

    def drained(self, piece: Matches) -> None:
        """Matches have been taken out of the kernel's output."""
        if not self.counts:
            return
        self.waiting += piece.number
        self.waiting_size += piece.nbytes

    def keep(self, found: Matches) -> None:
        """What was waiting has been delivered, and nobody has taken it away yet."""
        self.waiting, self.waiting_size = 0, 0.0
        if not self.counts:
            return
        self.matches += found.number
        self.size += found.nbytes
        self.ask()

    def hand_over(self) -> None:
        """What was found so far is with others now."""
        self.matches, self.size = 0, 0.0

    def take_over(self, other: "Room") -> None:
        """Counts on from another engine of the same query."""
        self.matches, self.size, self.elsewhere = other.matches, other.size, other.elsewhere

    def holding(self, more: float = 0.0) -> Holding:
        """What the engine holds, and would with so many bytes more."""
        engine = self.engine
        tables = sum(table.nbytes for table in engine.state.tables.values())
        tables += engine.waiting_bytes
        # matches are there twice while they are put together
        matches = 2 * (self.size + self.waiting_size)
        return Holding(
            engine.partial_matches,
            self.matches + self.waiting,
            tables + matches + self.elsewhere + more,
            *(self.at or (engine.rows - 1, engine.now)),
        )

    def ask(self, more: float = 0.0) -> None:
        """An error if the engine may not take so many bytes more."""
        if not self.allowance.unlimited:
            self.allowance.ask(self.holding(more))

    def allow(self) -> None:
        """Tells the kernel how far it may make tables larger by itself."""
        state, held = self.engine.state, self.holding()
        tables, meta = state.tables, state.meta
        meta[STOP] = 0
        meta[MOST_OUT] = self.allowance.most_matches(tables["O"].shape[1], held)
        width = sum(tables[name].shape[1] for name in state.source.returned if name != "O")
        meta[MOST_NODES] = self.allowance.most_entries(width, held)

    # ---------------------------------------------------------------------------- making room

    def make(self, code: int, now: float, *, again: bool) -> None:
        """Does what a kernel asks for by a code, before the event that ends `now`.

        `again`: it has asked for the same at the same event, and got too little.
        """
        engine, state = self.engine, self.engine.state
        tables, meta = state.tables, state.meta
        row = engine.rows + int(meta[POSITION])
        self.at = (row, now)
        match code:
            case _ if code == NEEDS_OUTPUT:
                crowded = meta[OUT_TOP] * 2 < len(tables["O"])  # one event needs more room
                self.drain()
                if crowded or len(tables["O"]) < MOST_OUTPUT:
                    self.grow("O")
            case _ if code == NEEDS_DRAIN:
                self.drain()
                self.ask()
            case _ if code == STOPPED:  # it would have made tables larger than they may be
                self.drain()
                self.ask(max(2.0 * t.nbytes for t in tables.values()))
                raise self.allowance.full(self.holding())
            case _:
                state.make_room(Asked(code, now, row, again), self)
        self.at = None

    def drain(self) -> None:
        """Takes the matches out of the output."""
        self.engine.drain()

    def grow(self, *names: str) -> None:
        """Twice the room in some tables, if there may be so much."""
        state = self.engine.state
        tables = [state.tables[name] for name in names]
        self.ask(2.0 * sum(table.nbytes for table in tables))
        if 2 * len(tables[0]) > MOST_ROWS:
            raise self.allowance.full(self.holding())
        state.grow(*names)
