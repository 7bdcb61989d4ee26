"""Matches by their trigger, the event that completes them: the first few, their number, or a sign.

Kernels that count without listing matches give `tallied` ones; those of other kernels are taken
together here.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ensue.analyzer.output_mode import get_last_atom, is_summarized
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.projection.match_ids import RowHashes, compute_match_ids
from ensue.schema import ANY, get_type_names
from ensue.vector.arrow_numpy import Ints
from ensue.vector.match_rows import FIRST, TRIGGER, Matches

Columns = Sequence[tuple[str, str]]
ColumnsOf = Mapping[str, Columns]

# The variables of tallied matches; a blank in front tells them from those of a pattern.
_NEVER = np.iinfo(np.int64).max
RANK = "__rank"  # the column of the ranks of matches, where their rows do not tell their order


def get_last_rows(matches: Matches) -> Ints:
    """The last event of each match: the events are in order of their end."""
    return matches.ends()[1]


def count_by_trigger(firsts: Ints, triggers: Ints, counts: Ints) -> Matches:
    """For each trigger the event where its matches begin, and how many there are."""
    return Matches({FIRST: firsts, TRIGGER: triggers}, {}, len(triggers), counts)


def summarize_by_trigger(
    matches: Matches, firsts: Ints, starts: Ints | None, *, latest: bool
) -> Matches:
    """Matches by their trigger: how many, and the event where the first (or last) one begins.

    `firsts` are the events that begin each match, at `starts` if that is not their order.
    """
    triggers, owner, counts = np.unique(
        get_last_rows(matches), return_inverse=True, return_counts=True
    )
    key = firsts if starts is None else starts
    order = np.lexsort((key, owner))
    ends = np.cumsum(counts)
    chosen = order[ends - 1] if latest else order[ends - counts]
    return count_by_trigger(firsts[chosen], triggers, counts.astype(np.int64))


def limit_matches(matches: Matches, query: Query) -> Matches:
    """The first matches of each trigger, by their members, as many as LIMIT allows."""
    assert query.limit is not None
    most = query.limit.count
    if matches.count <= most:
        return matches
    last = get_last_rows(matches)
    _, owner, counts = np.unique(last, return_inverse=True, return_counts=True)
    crowded = np.flatnonzero(counts[owner] > most)
    if not len(crowded):
        return matches
    order = crowded[sort_by_members(matches.pick(crowded), query, last[crowded])]
    sizes = counts[counts > most]
    place = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    kept = np.ones(matches.count, np.bool_)
    kept[order[place >= most]] = False
    return matches.where(kept)


def sort_by_members(matches: Matches, query: Query, last: Ints) -> Ints:
    """The order of the semantics: by the last event, then event by event from the first."""
    owner, code, lengths = _steps(matches, query)
    begins = np.cumsum(lengths) - lengths
    steps = np.full((matches.count, int(lengths.max(initial=1))), _NEVER)
    steps[owner, np.arange(len(owner)) - begins[owner]] = code
    return np.lexsort((*reversed(steps.T), last))


def rank_matches(matches: Matches, query: Query) -> pa.Array:
    """What orders matches of the same time, also those that are known at different times.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> two = Matches({"a": np.array([3, 1]), "b": np.array([5, 5])}, {}, 2)
    >>> first, second = rank_matches(two, Query(Seq((Atom("A", "a"), Atom("B", "b"))))).to_pylist()
    >>> second < first
    True
    """
    _, code, lengths = _steps(matches, query)
    code = np.insert(code, np.cumsum(lengths), _NEVER)  # what has no further event comes later
    places = np.zeros(matches.count + 1, np.int32)
    np.cumsum(8 * (lengths + 1), out=places[1:])
    buffers = [None, pa.py_buffer(places), pa.py_buffer(code.astype(">i8").tobytes())]
    return pa.Array.from_buffers(pa.binary(), matches.count, buffers)


def _steps(matches: Matches, query: Query) -> tuple[Ints, Ints, Ints]:
    """The events of all matches in order, as numbers: whose they are, which, and how many each."""
    variables = [atom.variable for atom in iterate_positive_atoms(query.pattern)]
    codes, owners = [], []
    for number, variable in enumerate(variables):
        offsets, rows = matches.segments(variable)
        owners.append(np.repeat(np.arange(matches.count), np.diff(offsets)))
        codes.append(rows * len(variables) + number)
    owner, code = np.concatenate(owners), np.concatenate(codes)
    order = np.lexsort((code, owner))
    owner, code = owner[order], code[order]
    return owner, code, np.bincount(owner, minlength=matches.count)


class TriggerSummary:
    """The columns of tallied matches that do not come from one variable."""

    def __init__(self, query: Query, columns_of: ColumnsOf, type_column: str | None) -> None:
        assert is_summarized(query)
        self.query = query
        self.type_column = type_column
        self.columns_of: dict[str, Columns] = {}
        self.others: Columns | None = None  # of events of any type
        for atom in iterate_positive_atoms(query.pattern):
            for name in get_type_names(atom.type):
                self.columns_of.setdefault(name, columns_of[atom.variable])
            if atom.type == ANY:
                self.others = columns_of[atom.variable]
        last = get_last_atom(query.pattern)
        self.last = None if last is None else last.variable

    def members(self, matches: Matches) -> Matches:
        """What the fields beside COUNT(*) speak of: the last variable's event."""
        named = {} if self.last is None else {self.last: matches.rows[TRIGGER]}
        return Matches(named, {}, matches.count)

    def located(self, matches: Matches) -> Matches:
        return Matches({TRIGGER: matches.rows[TRIGGER]}, {}, matches.count)

    def ids(
        self,
        identity: bytes,
        matches: Matches,
        events: pa.Table,
        end: str,
        hashes: RowHashes | None = None,
    ) -> pa.Array:
        """Names of triggers: a hash of the query and of the content of the event."""
        triggers = matches.rows[TRIGGER]

        def named(rows: Ints, columns: tuple[tuple[str, str], ...]) -> pa.Array:
            one = Matches({TRIGGER: rows}, {}, len(rows))
            return compute_match_ids(identity, one, events, {TRIGGER: columns}, end, hashes)

        groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
        if self.others is not None:
            groups[tuple(self.others)] = []
        for type_, columns in self.columns_of.items():
            groups.setdefault(tuple(columns), []).append(type_)
        if len(groups) == 1 or self.type_column is None:
            return named(triggers, next(iter(groups)))
        # tables of different columns were joined: an event has those of its own type
        types = np.array(events.column(self.type_column).take(pa.array(triggers)).to_pylist())
        ids = np.empty(matches.count, object)
        for columns, types_ in groups.items():
            of_types = np.isin(types, types_)
            if self.others is not None and columns == tuple(self.others):
                of_types |= ~np.isin(types, list(self.columns_of))
            chosen = np.flatnonzero(of_types)
            ids[chosen] = named(triggers[chosen], columns).to_pylist()
        return pa.array(ids, pa.string())
