"""LIMIT, COUNT and EXISTS of matches by their trigger, the event that completes them.

Some kernels count matches without listing them; the matches of other kernels are grouped here.
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

_NEVER = np.iinfo(np.int64).max
RANK = "__rank"  # the column of the ranks of matches, where their rows do not have stream order


def get_last_rows(matches: Matches) -> Ints:
    """The last event of each match: the events are in order of their end."""
    return matches.ends()[1]


def summarize_by_trigger(matches: Matches, firsts: Ints, starts: Ints | None, *, latest: bool) -> Matches:
    """For each trigger the number of matches, and the first event of the first (or last) one.

    `firsts` are the first events of all matches, and `starts` their times if they are not in
    order.
    """
    triggers, owner, counts = np.unique(get_last_rows(matches), return_inverse=True, return_counts=True)
    key = firsts if starts is None else starts
    order = np.lexsort((key, owner))
    ends = np.cumsum(counts)
    chosen = order[ends - 1] if latest else order[ends - counts]
    rows = {FIRST: firsts[chosen], TRIGGER: triggers}
    return Matches(rows, {}, len(triggers), counts.astype(np.int64))


def limit_matches(matches: Matches, query: Query) -> Matches:
    """Applies LIMIT: the first matches of each trigger, by their events."""
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
    """The specified order: by the last event, then event by event from the first."""
    owner, code, lengths = _list_events(matches, query)
    begins = np.cumsum(lengths) - lengths
    steps = np.full((matches.count, int(lengths.max(initial=1))), _NEVER)
    steps[owner, np.arange(len(owner)) - begins[owner]] = code
    return np.lexsort((*reversed(steps.T), last))


def rank_matches(matches: Matches, query: Query) -> pa.Array:
    """Binary sort keys of matches with the same time, comparable between deliveries.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> two = Matches({"a": np.array([3, 1]), "b": np.array([5, 5])}, {}, 2)
    >>> first, second = rank_matches(two, Query(Seq((Atom("A", "a"), Atom("B", "b"))))).to_pylist()
    >>> second < first
    True
    """
    _, code, lengths = _list_events(matches, query)
    code = np.insert(code, np.cumsum(lengths), _NEVER)  # a prefix is sorted last
    places = np.zeros(matches.count + 1, np.int32)
    np.cumsum(8 * (lengths + 1), out=places[1:])
    buffers = [None, pa.py_buffer(places), pa.py_buffer(code.astype(">i8").tobytes())]
    return pa.Array.from_buffers(pa.binary(), matches.count, buffers)


def _list_events(matches: Matches, query: Query) -> tuple[Ints, Ints, Ints]:
    """The events of all matches in order: match, event code, and the length of each match."""
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
    """The columns of summarized matches that do not belong to one variable."""

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
        """The trigger as the last variable's event, for columns beside COUNT(*)."""
        rows = {} if self.last is None else {self.last: matches.rows[TRIGGER]}
        return Matches(rows, {}, matches.count)

    def ids(
        self, identity: bytes, matches: Matches, events: pa.Table, end: str, hashes: RowHashes | None = None
    ) -> pa.Array:
        """The ids of triggers: a hash of the query and of the content of the event."""
        triggers = matches.rows[TRIGGER]

        def compute_ids(rows: Ints, columns: tuple[tuple[str, str], ...]) -> pa.Array:
            triggers = Matches({TRIGGER: rows}, {}, len(rows))
            return compute_match_ids(identity, triggers, events, {TRIGGER: columns}, end, hashes)

        groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
        if self.others is not None:
            groups[tuple(self.others)] = []
        for type_, columns in self.columns_of.items():
            groups.setdefault(tuple(columns), []).append(type_)
        if len(groups) == 1 or self.type_column is None:
            return compute_ids(triggers, next(iter(groups)))
        # tables of different columns were concatenated: an event has those of its type
        types = np.array(events.column(self.type_column).take(pa.array(triggers)).to_pylist())
        ids = np.empty(matches.count, object)
        for columns, types_ in groups.items():
            of_types = np.isin(types, types_)
            if self.others is not None and columns == tuple(self.others):
                of_types |= ~np.isin(types, list(self.columns_of))
            chosen = np.flatnonzero(of_types)
            ids[chosen] = compute_ids(triggers[chosen], columns).to_pylist()
        return pa.array(ids, pa.string())
