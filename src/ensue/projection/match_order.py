"""The order of matches and of result tables, and LIMIT, COUNT and EXISTS of the matches of each trigger.

A trigger is the event that completes a match. Kernels return matches in the order of their last events, so most
results are in order already. Some kernels count matches without listing them; the matches of other kernels are
grouped here.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.output_mode import get_last_atom, is_summarized
from ensue.engine.match_output import list_members
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.kernels.match_selection import order_by_members
from ensue.projection.match_ids import RowHashes, compute_match_ids
from ensue.schema import ANY, Schema, get_type_names
from ensue.vector.arrow_numpy import Bools, Ints, wrap_numbers
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import from_arrow
from ensue.vector.match_rows import FIRST, TRIGGER, Matches
from ensue.vector.take import combine_column, take_rows

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
    order = np.argsort(last, kind="stable")
    members = list_members(matches.pick(order), _list_variables(query))
    ordered: Ints = order[order_by_members(last[order], *members)]
    return ordered


def rank_matches(matches: Matches, query: Query) -> pa.Array:
    """Binary sort keys of matches with the same time, comparable between deliveries.

    >>> from ensue.ir.pattern import Atom, Seq
    >>> two = Matches({"a": np.array([3, 1]), "b": np.array([5, 5])}, {}, 2)
    >>> first, second = rank_matches(two, Query(Seq((Atom("A", "a"), Atom("B", "b"))))).to_pylist()
    >>> second < first
    True
    """
    offsets, code = list_members(matches, _list_variables(query))
    code = np.insert(code, offsets[1:], _NEVER)  # a prefix is sorted last
    places = (8 * (offsets + np.arange(len(offsets)))).astype(np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(code.astype(">i8").tobytes())]
    return pa.Array.from_buffers(pa.binary(), matches.count, buffers)


def _list_variables(query: Query) -> list[str]:
    """The variables of a match in the order of the pattern."""
    return [atom.variable for atom in iterate_positive_atoms(query.pattern)]


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
        types = np.array(events.column(self.type_column).take(wrap_numbers(triggers)).to_pylist())
        ids = np.empty(matches.count, object)
        for columns, types_ in groups.items():
            of_types = np.isin(types, types_)
            if self.others is not None and columns == tuple(self.others):
                of_types |= ~np.isin(types, list(self.columns_of))
            chosen = np.flatnonzero(of_types)
            ids[chosen] = compute_ids(triggers[chosen], columns).to_pylist()
        return pa.array(ids, pa.string())


_BLOCK = 1 << 20  # tied matches that are sorted event by event at a time
RESULT_ORDER = ("end", "start", "match_id")


def sort_matches(matches: Matches, events: pa.Table, query: Query, schema: Schema, unit: Unit) -> Matches:
    """Sorts matches by end, then by start, then by their events from the first on."""
    if matches.count < 2 or not matches.variables or is_summarized(query):
        return matches  # summaries have the order of their triggers
    first, last = matches.ends()
    if bool((last < 0).any()):
        return matches  # a match without events is the only one
    order, alike = _sort_by_times(matches, first, last, events, schema, unit)
    if alike.any():
        order = np.arange(matches.count) if order is None else order
        order = _sort_ties(matches, query, order, alike)
    return matches if order is None else matches.pick(order)


def _sort_by_times(
    matches: Matches, first: Ints, last: Ints, events: pa.Table, schema: Schema, unit: Unit
) -> tuple[Ints | None, Bools]:
    """The order by end, start and first event, None if it is given; and a mask of the matches
    that tie with the one before."""
    same = _number_times(events, schema.end, unit, last)
    if not schema.intervals:
        key = same * events.num_rows + first
        order = None if bool((key[1:] >= key[:-1]).all()) else np.argsort(key, kind="stable")
        key = key if order is None else key[order]
        return order, key[1:] == key[:-1]
    start = _earliest(matches, _times(events, schema.start, unit))
    keys = (first, start, same)
    order = np.lexsort(keys)
    alike = np.ones(matches.count - 1, np.bool_)
    for values in keys:
        alike &= values[order[1:]] == values[order[:-1]]
    return order, alike


def _number_times(events: pa.Table, column: str, unit: Unit, rows: Ints) -> Ints:
    """Numbers for the times of rows, in the same order and equal for equal times; the events are sorted by them."""
    own = _times(take_rows(events.select([column]), rows), column, unit)
    if bool((own[1:] >= own[:-1]).all()):
        return np.cumsum(np.concatenate([[False], own[1:] != own[:-1]]))
    times = _times(events, column, unit)
    return np.cumsum(np.concatenate([[False], times[1:] != times[:-1]]))[rows]


def _times(events: pa.Table, column: str, unit: Unit) -> Ints:
    return np.asarray(from_arrow(combine_column(events, column), unit).values)


def _earliest(matches: Matches, starts: Ints) -> Ints:
    """The start of each match of interval events."""
    found = np.full(matches.count, starts.max(), starts.dtype)
    for variable in matches.variables:
        offsets, rows = matches.segments(variable)
        here = np.flatnonzero(np.diff(offsets))
        if len(here):
            least = np.minimum.reduceat(starts[rows], offsets[here])
            found[here] = np.minimum(found[here], least)
    return found


def _sort_ties(matches: Matches, query: Query, order: Ints, alike: Bools) -> Ints:
    """Sorts tied matches event by event."""
    begins = np.flatnonzero(np.concatenate([[True], ~alike]))
    sizes = np.diff(np.append(begins, len(order)))
    begins, sizes = begins[sizes > 1], sizes[sizes > 1]
    for some in _blocks(sizes):
        before = np.cumsum(sizes[some]) - sizes[some]
        places = np.repeat(begins[some] - before, sizes[some])
        places += np.arange(len(places))
        group = np.repeat(np.arange(len(before)), sizes[some])
        tied = order[places]
        order[places] = tied[sort_by_members(matches.pick(tied), query, group)]
    return order


def _blocks(sizes: Ints) -> list[slice]:
    """Splits groups into blocks, to bound the memory."""
    ends = np.cumsum(sizes)
    if ends[-1] <= _BLOCK:
        return [slice(0, len(sizes))]
    cuts = [0]
    while cuts[-1] < len(sizes):
        reached = ends[cuts[-1]] - sizes[cuts[-1]]
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, reached + _BLOCK, "right"))))
    return [slice(*pair) for pair in pairwise(cuts)]


def get_named_columns(query: Query) -> set[str]:
    """The columns of RETURN, or of the variables; they replace standard columns."""
    named = {column.name for column in query.returns}
    if named or query.all_events:
        return named
    return {atom.variable for atom in iterate_positive_atoms(query.pattern)}


def has_result_order(names: Collection[str], query: Query | None) -> bool:
    """Whether a result has the columns that order it, and its query does not replace them."""
    named = set() if query is None else get_named_columns(query)
    return {*_get_standard_columns(query)} <= {*names} - named


def _get_standard_columns(query: Query | None) -> tuple[str, ...]:
    return (*RESULT_ORDER, "position") if query is not None and query.all_events else RESULT_ORDER


def sort_result(found: pa.Table, query: Query | None, order: tuple[str, ...] = RESULT_ORDER) -> pa.Table:
    """Sorts the result of a table by the standard columns `order`.

    A result without these columns, or whose query replaces them, is not sorted.
    """
    if found.num_rows < 2 or not has_result_order(found.column_names, query):
        return found
    by = list(_get_standard_columns(query) if order == RESULT_ORDER else order)
    keys = found.select(by).combine_chunks()
    after, before = keys.slice(1), keys.slice(0, keys.num_rows - 1)
    sorted_ = wrap_numbers(np.ones(after.num_rows, np.bool_))
    for name in reversed(by):
        later = pc.greater(after[name], before[name])
        sorted_ = pc.or_(later, pc.and_(pc.equal(after[name], before[name]), sorted_))
    if pc.all(sorted_, skip_nulls=False).as_py():
        return found
    return found.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in by]))
