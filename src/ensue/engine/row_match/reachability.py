"""Which pattern positions can still reach a match, for every gap between two rows.

A backward pass over the rows computes the set of automaton entries from which the end can be
reached. These sets are the states of an automaton that is built lazily.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ensue.kernels.row_search import UNKNOWN, Masks, propagate_backwards
from ensue.planner.row_pattern_automaton import END, RowPatternAutomaton, RowTransition
from ensue.vector.arrow_numpy import Bools, Ints

_DENSE = 10  # up to this number of variables every combination has a symbol
_STATES = 20_000  # limit of lazily built states
_CELLS = 1 << 26  # limit of the transition table


class TooManyStatesError(Exception):
    """The lazily built automaton exceeds its limits."""


@dataclass
class Reachability:
    """The backward automaton of a pattern, shared between batches of rows."""

    automaton: RowPatternAutomaton
    sets: list[int] = field(default_factory=list)  # the entries of each state, as bits
    numbers: dict[int, int] = field(default_factory=dict)
    symbols: dict[int, int] = field(default_factory=dict)  # of combinations of variables
    table: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 0), np.int32))

    def __post_init__(self) -> None:
        entries = self.automaton.entries
        width = len(entries) // 8 + 1
        self._moves = _moves(self.automaton)
        numbered = list(enumerate(entries))
        # without $: of all rows, and of the first row of a partition
        ends = (RowTransition(END, at_start=at_start) for at_start in (False, True))
        self._ends = [_bits([e for e, cs in numbered if end in cs], width) for end in ends]
        is_end = lambda choice: choice.variable == END and not choice.at_start
        self.closed = self._state(_bits([e for e, cs in numbered if any(map(is_end, cs))], width))
        self.opened = self._state(self._possible_later())

    def _possible_later(self) -> int:
        """The entries from which later rows, none of them the first, can complete a match."""
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
        reached: set[int] = set()
        while stack:
            entry = stack.pop()
            if entry not in reached:
                reached.add(entry)
                stack += before[entry]
        return _bits(list(reached), len(entries) // 8 + 1)

    def compute(self, mask: Masks, bounds: Ints, limits: Ints, opened: Bools, begun: Bools) -> npt.NDArray[np.int32]:
        """The state of each gap; `mask` has the variables that each row may be mapped to."""
        symbols, distinct = self._symbols(mask)
        last = np.where(opened, self.opened, self.closed).astype(np.int32)
        alive = np.zeros(len(mask) + len(bounds) - 1, np.int32)
        place = np.array([0, -1], np.int64)
        while True:
            row = propagate_backwards(symbols, bounds, limits, last, begun, len(self.symbols), self.table, alive, place)
            if row < 0:
                return alive
            state = alive[place[1] + place[0]]
            first = row == bounds[place[0]] and not begun[place[0]]
            symbol = symbols[row] + (len(self.symbols) if first else 0)
            before = self._state(self._before(self.sets[state], distinct[symbols[row]], first))
            self.table[state, symbol] = before

    def members(self) -> npt.NDArray[np.uint8]:
        """For each state, which entries it contains."""
        count = len(self.automaton.entries)
        width = (count + 7) // 8
        raw = b"".join(s.to_bytes(width, "little") for s in self.sets)
        bits = np.frombuffer(raw, np.uint8).reshape(len(self.sets), width)
        return np.ascontiguousarray(np.unpackbits(bits, axis=1, bitorder="little")[:, :count])

    def _symbols(self, mask: Masks) -> tuple[Masks, list[int]]:
        """The symbol of each row, and the variables of each symbol."""
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
            self.table = np.empty((0, 0), np.int32)  # the symbols of first rows have moved
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
        """The final entries, and those from which a row with these variables leads to `after`."""
        entries = self._ends[0] | (self._ends[1] if first else 0)
        for move, sources in self._moves:
            if mask >> move.variable & 1 and (first or not move.at_start):
                entries |= move.before(after) & sources
        return entries


class _Move(NamedTuple):
    """Transitions with the same relative or the same absolute target, handled together."""

    variable: int
    at_start: bool  # only at the first row of a partition
    shift: int | None
    entry: int | None

    def before(self, after: int) -> int:
        """The entries from which these transitions lead to one of `after`."""
        if self.shift is None:
            return -(after >> self.entry & 1) if self.entry is not None else 0
        return after >> self.shift if self.shift >= 0 else after << -self.shift


def _moves(automaton: RowPatternAutomaton) -> list[tuple[_Move, int]]:
    """Group the transitions, each group with its source entries as bits."""
    groups: dict[_Move, list[int]] = {}
    transitions: list[tuple[int, _Move, _Move]] = []
    for entry, choices in enumerate(automaton.entries):
        for c in choices:
            if c.variable != END:
                relative = _Move(c.variable, c.at_start, c.entry - entry, None)
                absolute = _Move(c.variable, c.at_start, None, c.entry)
                transitions.append((entry, relative, absolute))
    sizes = Counter(move for _, *moves in transitions for move in moves)
    for entry, relative, absolute in transitions:
        move = relative if sizes[relative] >= sizes[absolute] else absolute
        groups.setdefault(move, []).append(entry)
    width = len(automaton.entries) // 8 + 1
    return [(move, _bits(entries, width)) for move, entries in groups.items()]


def _bits(entries: list[int], width: int) -> int:
    bits = bytearray(width)
    for entry in entries:
        bits[entry >> 3] |= 1 << (entry & 7)
    return int.from_bytes(bits, "little")
