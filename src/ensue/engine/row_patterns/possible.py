"""What can still become a match, known of every place between two rows.

Backwards over the rows: the entries of the pattern from which its end can be reached. Sets of
entries are states of an automaton that is worked out as far as the rows ask for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.columns.buffers import Bools, Ints
from ensue.kernels.row_patterns import UNKNOWN, Masks, backwards
from ensue.plan.row_patterns.automaton import END, Automaton, Choice

_DENSE = 10  # with so few variables every combination of them has a symbol
_STATES = 20_000  # sets that are worked out at the most
_CELLS = 1 << 26  # of the table of transitions


class TooManyStatesError(Exception):
    """A pattern of which more sets of entries occur than are worth to be told apart."""


@dataclass
class Possible:
    """The states of a pattern, kept from one batch of rows to the next."""

    automaton: Automaton
    sets: list[int] = field(default_factory=list)  # the entries of a state, as bits
    numbers: dict[int, int] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)  # of combinations of variables
    table: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))

    def __post_init__(self) -> None:
        entries = self.automaton.entries
        width = len(entries) // 8 + 1
        self._moves = _moves(self.automaton)
        self._ends = [  # without $: of all rows, and of the first of a partition
            _bits(
                [e for e, choices in enumerate(entries) if Choice(END, at_start=s) in choices],
                width,
            )
            for s in (False, True)
        ]
        at_end = [
            e
            for e, cs in enumerate(entries)
            if any(c.variable == END and not c.at_start for c in cs)
        ]
        self.closed = self._state(_bits(at_end, width))
        self.opened = self._state(self._possible_later())

    def _possible_later(self) -> int:
        """The entries from which some rows, none of them the first, lead to a match."""
        entries = self.automaton.entries
        before: list[list[int]] = [[] for _ in entries]
        stack = []
        for entry, choices in enumerate(entries):
            for choice in choices:
                if choice.at_start:
                    continue
                if choice.variable == END:
                    stack.append(entry)
                else:
                    before[choice.entry].append(entry)
        found: set[int] = set()
        while stack:
            entry = stack.pop()
            if entry not in found:
                found.add(entry)
                stack += before[entry]
        return _bits(list(found), len(entries) // 8 + 1)

    def of(
        self, mask: Masks, bounds: Ints, limits: Ints, opened: Bools, begun: Bools
    ) -> npt.NDArray[np.int32]:
        """The state of each place; `mask` are the variables that a row may be mapped to."""
        symbols, distinct = self._symbols(mask)
        last = np.where(opened, self.opened, self.closed).astype(np.int32)
        alive = np.zeros(len(mask) + len(bounds) - 1, np.int32)
        place = np.array([0, -1], np.int64)
        while True:
            row = backwards(
                symbols, bounds, limits, last, begun, len(self.symbols), self.table, alive, place
            )
            if row < 0:
                return alive
            state = alive[place[1] + place[0]]
            first = row == bounds[place[0]] and not begun[place[0]]
            symbol = symbols[row] + (len(self.symbols) if first else 0)
            before = self._state(self._before(self.sets[state], distinct[symbols[row]], first))
            self.table[state, symbol] = before

    def members(self) -> npt.NDArray[np.uint8]:
        """Of each state whether an entry is in it."""
        count = len(self.automaton.entries)
        width = (count + 7) // 8
        raw = b"".join(s.to_bytes(width, "little") for s in self.sets)
        bits = np.frombuffer(raw, np.uint8).reshape(len(self.sets), width)
        return np.ascontiguousarray(np.unpackbits(bits, axis=1, bitorder="little")[:, :count])

    def _symbols(self, mask: Masks) -> tuple[Masks, list[int]]:
        """The symbol of each row, and what the symbols stand for."""
        variables = len(self.automaton.variables)
        if variables <= _DENSE:
            if not self.symbols:
                self.symbols = {value: value for value in range(1 << variables)}
                self._widen()
            return mask, list(range(1 << variables))
        known, codes = np.unique(mask, return_inverse=True)
        new = [int(value) for value in known if int(value) not in self.symbols]
        if new:
            for value in new:
                self.symbols[value] = len(self.symbols)
            self.table = np.empty((0, 0), np.int32)  # first rows have moved
            self._widen()
        numbers = np.array([self.symbols[int(value)] for value in known], np.int64)
        return numbers[codes], list(self.symbols)

    def _state(self, entries: int) -> int:
        if entries not in self.numbers:
            self.numbers[entries] = len(self.sets)
            self.sets.append(entries)
            self._widen()
        return self.numbers[entries]

    def _widen(self) -> None:
        states, symbols = len(self.sets), 2 * len(self.symbols)
        if not symbols or (self.table.shape[0] >= states and self.table.shape[1] == symbols):
            return
        rows = max(16, 2 * states)
        if states > _STATES or rows * symbols > _CELLS:
            raise TooManyStatesError
        wider = np.full((rows, symbols), UNKNOWN, np.int32)
        if self.table.shape[1] == symbols:
            wider[: len(self.table)] = self.table
        self.table = wider

    def _before(self, after: int, mask: int, first: bool) -> int:
        """The entries from which a row of some variables leads to one of `after`, or that end."""
        found = self._ends[0] | (self._ends[1] if first else 0)
        for move, entries in self._moves:
            if mask >> move.variable & 1 and (first or not move.at_start):
                found |= move.before(after) & entries
        return found


class _Move(NamedTuple):
    """Choices of rows that are taken together: they lead equally far, or to the same entry."""

    variable: int
    at_start: bool  # only with the first row of a partition
    shift: int | None
    entry: int | None

    def before(self, after: int) -> int:
        """Where such choices would have to stand to lead to one of some entries."""
        if self.shift is None:
            return -(after >> self.entry & 1) if self.entry is not None else 0
        return after >> self.shift if self.shift >= 0 else after << -self.shift


def _moves(automaton: Automaton) -> list[tuple[_Move, int]]:
    """The choices of rows, in few groups, each with the entries that they are of as bits."""
    groups: dict[_Move, list[int]] = {}
    ways: list[tuple[int, _Move, _Move]] = []
    for entry, choices in enumerate(automaton.entries):
        for c in choices:
            if c.variable != END:
                far = _Move(c.variable, c.at_start, c.entry - entry, None)
                to = _Move(c.variable, c.at_start, None, c.entry)
                ways.append((entry, far, to))
    sizes = Counter(move for _, *moves in ways for move in moves)
    for entry, far, to in ways:
        groups.setdefault(far if sizes[far] >= sizes[to] else to, []).append(entry)
    width = len(automaton.entries) // 8 + 1
    return [(move, _bits(entries, width)) for move, entries in groups.items()]


def _bits(entries: list[int], width: int) -> int:
    bits = bytearray(width)
    for entry in entries:
        bits[entry >> 3] |= 1 << (entry & 7)
    return int.from_bytes(bits, "little")
