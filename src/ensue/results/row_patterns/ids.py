"""Stable names of the rows that a clause gives: a hash of its meaning and of their content."""

from hashlib import blake2b

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Bools, Ints, frozen, single
from ensue.computed import cached_property
from ensue.engine.row_patterns.found import Found
from ensue.engine.row_patterns.partitions import Partitions, sort_keys
from ensue.kernels import hashing
from ensue.plan.row_patterns.plan import RowPlan
from ensue.results.identity import (
    ORDINAL,
    Pair,
    hash_rows,
    hash_texts,
    rows_beside_equals,
    salts,
    word_hashes,
)
from ensue.results.row_patterns.table import rows_of

MATCH_ID = "match_id"
_ROWS, _PLACE, _EMPTY, _UNMATCHED = (np.uint64(salt) for salt in range(1, 5))


class RowIds:
    """The ids of what is found in some partitions: equal however rows were cut into pieces.

    Rows of the same content are told apart by their number among them. A table whose rows may
    have lost some of their equals has these numbers in a column.
    """

    def __init__(self, plan: RowPlan, meaning: str, partitions: Partitions) -> None:
        self._plan = plan
        self._fingerprint = blake2b(meaning.encode(), digest_size=16).digest()
        self._partitions = partitions
        self._columns = [(name, name) for name in plan.columns]

    def of(self, found: Found) -> pa.Array:
        """An id for each row of the result of these matches."""
        rows, match, place = rows_of(self._plan, found)
        sizes = np.diff(found.offsets)
        members = np.repeat(found.starts - found.offsets[:-1], sizes) + np.arange(sizes.sum())
        empty = np.flatnonzero(sizes == 0)
        hashed = self._hashes(members, found.starts[empty], found.unmatched)
        high, low = self._begun(len(found))
        hashing.fold_lists(frozen(found.offsets), frozen(members), *hashed, _ROWS, high, low)
        if len(empty):
            without = np.full(len(found), -1, np.int64)
            without[empty] = found.starts[empty]
            others = high.copy(), low.copy()
            hashing.fold_rows(frozen(without), *hashed, _EMPTY, *others)
            high[empty], low[empty] = others[0][empty], others[1][empty]
        if place is None:
            return hash_texts(high, low)
        mine = self._begun(len(rows))
        matched = match >= 0
        mine[0][matched], mine[1][matched] = high[match[matched]], low[match[matched]]
        within = np.where(matched & (place >= 0), place - found.offsets[np.maximum(match, 0)], -1)
        every = np.arange(len(rows))
        hashing.fold_rows(every, *word_hashes(within), _PLACE, *mine)
        if not matched.all():
            alone = frozen(np.where(matched, -1, rows))
            others = mine[0].copy(), mine[1].copy()
            hashing.fold_rows(alone, *hashed, _UNMATCHED, *others)
            mine[0][~matched], mine[1][~matched] = others[0][~matched], others[1][~matched]
        return hash_texts(*mine)

    def _begun(self, count: int) -> Pair:
        first, second = salts(self._fingerprint)
        return np.full(count, first), np.full(count, second)

    def _hashes(self, *wanted_rows: Ints) -> Pair:
        """The hashes of some rows, at their places."""
        partitions = self._partitions
        wanted = np.zeros(partitions.rows, np.bool_)
        for rows in wanted_rows:
            wanted[rows] = True
        known = ORDINAL in partitions.table.column_names
        twins = np.zeros(0, np.bool_) if known else rows_beside_equals(self._ties, wanted)
        chosen = np.flatnonzero(wanted if known else wanted | twins)
        places = partitions.places(chosen)
        some = self._content(places)
        if known:
            alike = np.asarray(single(partitions.table.column(ORDINAL)))[places]
        else:
            alike = np.zeros(len(chosen), np.int64)
            within = twins[chosen]
            if within.any():
                alike[within] = hashing.ordinals(some[0][within], some[1][within])
        _number(some, alike)
        high, low = (np.zeros(partitions.rows, np.uint64) for _ in range(2))
        high[chosen], low[chosen] = some
        return high, low

    def _content(self, places: Ints) -> Pair:
        table = self._partitions.table
        if len(places) < table.num_rows:
            return hash_rows(table, self._columns, places)
        high, low = hash_rows(table, self._columns, np.arange(table.num_rows))
        return high[places], low[places]

    @cached_property
    def _ties(self) -> Ints:
        """A number for each row, the same for those that nothing orders in a partition."""
        partitions = self._partitions
        changes: Bools = np.zeros(partitions.rows, np.bool_)
        begins = partitions.bounds[:-1]
        changes[begins[begins < partitions.rows]] = True
        for by in self._plan.recognition.order:
            for key in sort_keys(partitions.vector(by.expr), by):
                changes[1:] |= key[1:] != key[:-1]
        return np.cumsum(changes)


def _number(some: Pair, alike: Ints) -> None:
    """Tells rows of the same content apart; the first is what it is."""
    later = alike > 0
    if later.any():
        number = word_hashes(alike[later])
        some[0][later] += number[0]
        some[1][later] += number[1]
