"""A matcher that several queries share, and that shares its scan with other matchers."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ensue.algebra.canonical_text import query_text
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr
from ensue.algebra.query import Query
from ensue.columns.buffers import Ints
from ensue.columns.evaluate import Vector
from ensue.columns.matches import Matches
from ensue.columns.rows import taken
from ensue.engine.engine import Engine
from ensue.engine.output import joined
from ensue.engine.reference import rows_of
from ensue.engine.scan import Scanned
from ensue.kernels.merging import merge_rows
from ensue.plan.physical import Plan, Reference
from ensue.plan.structure_text import structure_text
from ensue.schema import Kind, Types, names_of, overlap
from ensue.workload.prepared import Prepared, joined_of
from ensue.workload.queries.shared_scan import (
    Block,
    Codes,
    RoleTest,
    Uses,
    feature_name,
    first_rows,
)

DENSE = 12  # passing over so many rows costs a kernel no more than taking one out for it
SLICE = 1 << 20  # events a kernel looks at before it can be interrupted


def matching_part(prepared: Prepared) -> str:
    """Equal for queries that have the same matches before RETURN, HAVING and the like choose."""
    plan = prepared.plan
    return f"{_matching(plan)!r} {plan.structure!r} {plan.roles!r} {plan.prune}"


def stored_part(prepared: Prepared) -> str:
    """The matching part as saved states know it."""
    plan = prepared.plan
    structure = structure_text(plan.structure, plan.query.where)
    return f"{query_text(_matching(plan))} {structure} {plan.prune}"


def _matching(plan: Plan) -> Query:
    query = replace(plan.query, name=None, returns=(), exists=False, limit=None)
    if not isinstance(plan.structure, Reference):  # which judges HAVING itself
        query = replace(query, having=None)
    return query


class Watcher:
    """An engine for the queries of one matching part.

    It is given only the events that can matter to it, numbered by themselves; the numbers of the
    stream are put back into the matches.
    """

    def __init__(self, prepared: Prepared, members: Sequence[int] = ()) -> None:
        self.prepared = prepared
        self.members = list(members)  # the numbers of its queries
        self.engine = prepared.engine()
        self.tests: tuple[RoleTest, ...] = ()
        self.names = tuple(e.field_name for e in prepared.plan.query.equivalence)
        if self._scanning is not None:
            self.tests = _tests(self._scanning)
        self.types = tuple(dict.fromkeys(test.key.type for test in self.tests))

    @property
    def _scanning(self) -> Engine | None:
        """The engine, if it takes part in the common scan.

        The reference looks for itself, and negated complex events are looked for elsewhere.
        """
        engine = self.engine
        return engine if isinstance(engine, Engine) and not engine.inner else None

    @property
    def shares(self) -> bool:
        """Whether it takes part in the common scan."""
        return self._scanning is not None

    @property
    def needs_every_event(self) -> bool:
        """Whether events that play no role count: for what is adjacent, or for a window."""
        if self._scanning is None:
            return True
        strict = Strategy.STRICT in self.prepared.plan.query.strategies
        return strict or self._scanning.program.frame.counts

    def count(self, uses: Uses) -> None:
        """Says what it will ask of a block."""
        roles = self.prepared.plan.roles
        uses.types.update(dict.fromkeys(name for role in roles for name in names_of(role.type)))
        for test in self.tests:
            test.count(uses)
        if self._scanning is not None:
            uses.features.update(map(feature_name, self._scanning.program.features))

    # ---------------------------------------------------------------------------- rows

    def rows_in(self, block: Block) -> tuple[Ints | None, Ints]:
        """The rows that can matter and the roles that each can play; None: all rows."""
        found = [block.role_rows(test) for test in self.tests]
        total = sum(map(len, found))
        if self.needs_every_event or DENSE * total > block.count:
            mask = block.blank_mask()
            seen: set[Types] = set()
            for test, rows in zip(self.tests, found, strict=True):
                if any(overlap(test.key.type, other) for other in seen):
                    mask[rows] |= test.bit
                else:  # no row of this type has a role yet
                    mask[rows] = test.bit
                seen.add(test.key.type)
            return None, mask
        offsets = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(rows) for rows in found], out=offsets[1:])
        merged, mask = np.empty(total, np.int64), np.empty(total, np.int64)
        together = np.concatenate(found) if found else np.empty(0, np.int64)
        bits = np.array([test.bit for test in self.tests], np.int64)
        count = merge_rows(together, offsets, bits, merged, mask)
        return merged[:count], mask[:count]

    # ---------------------------------------------------------------------------- feeding

    def feed(self, block: Block, *, lasting: bool) -> tuple[Matches, Ints | None]:
        """The matches that a block completes, in the engine's own numbers, and which rows of the
        block it was given (None: all).

        `lasting`: other blocks follow, so that keys and strings need codes of the engine.
        """
        engine = self._scanning
        if engine is None:
            return self.engine.feed(block.events), None
        if not self.needs_every_event and not any(map(block.has_type, self.types)):
            return nothing(self), _NO_ROWS
        rows, mask = self.rows_in(block)
        if not len(mask):
            return nothing(self), rows
        key, codes = block.keys(self.names)
        key = key if rows is None else key.take(rows)
        if lasting and self.names:
            columns = [block.events.column(name) for name in self.names]
            key = _recoded(
                key, rows, lambda at: engine.scan.keys.encode([taken(c, at) for c in columns])
            )
            codes = len(engine.scan.keys)
        starts = block.starts if rows is None else block.starts.take(rows)
        ends = starts
        if block.schema.intervals:
            ends = block.ends if rows is None else block.ends.take(rows)
        scanned = Scanned(
            mask,
            key,
            starts,
            ends,
            tuple(self._features(block, rows, lasting=lasting)),
        )
        pieces = [
            engine.feed_scanned(scanned.part(begin, begin + SLICE), codes)
            for begin in range(0, len(mask), SLICE)
        ]
        return joined_of(engine, pieces), rows

    def _features(self, block: Block, rows: Ints | None, *, lasting: bool) -> list[Vector]:
        engine, found = self.engine, []
        assert isinstance(engine, Engine)
        for feature in engine.program.features:
            vector = block.feature(feature, rows)
            if lasting and feature.kind is Kind.STRING:
                own = self._own_strings(engine, block, rows, feature.expr, vector)
                vector = Vector(vector.kind, own.astype(np.int64), vector.valid)
            found.append(vector)
        return found

    def _own_strings(
        self, engine: Engine, block: Block, rows: Ints | None, expr: Expr, vector: Vector
    ) -> Codes:
        def encode(at: Ints) -> Codes:
            return engine.scan.strings.encode([block.values(expr, at).values])

        return _recoded(np.asarray(vector.values), rows, encode)

    def finish(self) -> Matches:
        return self.engine.finish()


_FIRST = np.zeros(1, np.int64)
_NO_ROWS = np.zeros(0, np.int64)


def _tests(engine: Engine) -> tuple[RoleTest, ...]:
    frame = engine.program.frame
    found = []
    for role in engine.program.plan.roles:
        bit = 1 << frame.bit(role.variable)
        found.append(RoleTest.of(role, role.conditions, bit))
        if role.first:
            first = 1 << frame.bit(role.variable, first=True)
            found.append(RoleTest.of(role, (*role.conditions, *role.first), first))
    return tuple(found)


def _recoded(
    found: npt.NDArray[np.integer], rows: Ints | None, encode: Callable[[Ints], Codes]
) -> Codes:
    """A block's codes as codes of an engine: one row of each is encoded."""
    if len(found) == 1 and found[0] >= 0:
        return encode(_FIRST if rows is None else rows)
    firsts = first_rows(found)
    used = np.flatnonzero(firsts >= 0)
    table = np.full(len(firsts) + 1, -1, np.int32)
    at = firsts[used] if rows is None else rows[firsts[used]]
    table[used] = encode(at)
    codes: Codes = table[found]
    return codes


def nothing(watcher: Watcher) -> Matches:
    """No match."""
    if isinstance(watcher.engine, Engine):
        return joined([], watcher.engine.program.source.output)
    return rows_of(watcher.prepared.plan, [])


def renumbered(matches: Matches, numbers: Ints) -> Matches:
    """Matches whose row k is the row `numbers[k]`."""

    def moved(rows: Ints) -> Ints:
        if not len(numbers):
            return rows
        return np.where(rows < 0, np.int64(-1), numbers[rows])

    return matches.moved(moved)


def watchers_of(queries: Sequence[Prepared]) -> list[Watcher]:
    """One for all queries that match alike."""
    found: dict[str, Watcher] = {}
    for number, prepared in enumerate(queries):
        key = matching_part(prepared)
        if key not in found:
            found[key] = Watcher(prepared)
        found[key].members.append(number)
    return list(found.values())


def uses_of(watchers: Sequence[Watcher]) -> Uses:
    uses = Uses()
    for watcher in watchers:
        watcher.count(uses)
    return uses
