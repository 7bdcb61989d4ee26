"""A MATCH_RECOGNIZE clause made ready for the columns of its table."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import pyarrow as pa

from ensue.algebra.check.row_patterns import checked
from ensue.algebra.predicate import Field
from ensue.algebra.row_patterns.recognition import Key, Recognition
from ensue.algebra.row_patterns.values import ROW, OrderedBy
from ensue.columns.arrow_kinds import fields_of, zones_of
from ensue.columns.rows import no_rows
from ensue.columns.stream import COMPUTED
from ensue.computed import cached_property
from ensue.engine.row_patterns.finding import Finder
from ensue.engine.row_patterns.found import Found, Search
from ensue.engine.row_patterns.partitions import Partitions, partitions_of
from ensue.errors import LimitError, QueryError
from ensue.languages.row_patterns.scalar_text import show_name, show_scalar
from ensue.languages.row_patterns.text import show_clause
from ensue.plan.limits import Limits
from ensue.plan.row_patterns.plan import RowPlan
from ensue.results.row_patterns.ids import MATCH_ID, RowIds
from ensue.results.row_patterns.table import ResultTable
from ensue.workload.arranged import is_own


@dataclass(frozen=True)
class Clause:
    """A clause and the columns that it is about. It travels; what it runs on is made there."""

    plan: RowPlan  # whose keys are columns
    arrow: pa.Schema  # of the events, with computed keys
    meaning: str  # the clause in its one spelling, by which ids know it
    ids: bool  # whether results begin with a column match_id
    limits: Limits

    @property
    def recognition(self) -> Recognition:
        return self.plan.recognition

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that partitions are told apart by."""
        return tuple(dict.fromkeys(map(column_of, self.recognition.partition)))

    @cached_property
    def results(self) -> ResultTable:
        return ResultTable(self.plan, self.arrow)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of what it gives."""
        own = self.results.schema
        return pa.schema([pa.field(MATCH_ID, pa.string()), *own]) if self.ids else own

    def whole(self, events: pa.Table, ties: Sequence[str] = ()) -> pa.Table:
        """What is found in rows that are all there; those that ORDER BY leaves equal are in the
        order of some columns, then as they stand here."""
        order = (*self.recognition.order, *(OrderedBy(Field(ROW, name)) for name in ties))
        partitions = partitions_of(events, self.key, order)
        search = Search.whole(partitions.bounds)
        return self.given(partitions, Finder(self.plan).find(partitions, search))

    def given(self, partitions: Partitions, found: Iterable[Found]) -> pa.Table:
        """The result of matches."""
        tables = list(self._given(partitions, found))
        return pa.concat_tables(tables) if tables else no_rows(self.schema)

    def _given(self, partitions: Partitions, found: Iterable[Found]) -> Iterator[pa.Table]:
        ids = RowIds(self.plan, self.meaning, partitions) if self.ids else None
        most, matches = self.limits.max_matches, 0
        for some in found:
            matches += len(some)
            if most is not None and matches > most:
                raise LimitError(
                    f"the clause finds more matches than max_matches={most:,} allows\n"
                    "  hint: AFTER MATCH SKIP PAST LAST ROW, or a pattern that asks for more, "
                    "finds fewer; max_matches= allows more"
                )
            for table in self.results.of(partitions, (some,)):
                if ids is None:
                    yield table
                else:
                    yield table.add_column(0, self.schema.field(0), ids.of(some))


def prepared(
    recognition: Recognition,
    arrow: pa.Schema,
    limits: Limits,
    *,
    ids: bool,
    session: str | None = None,
) -> Clause:
    """A clause over events with these columns, or a QueryError that says what does not fit.

    `session` is the zone of all times that have one, where it is not that of their types.
    """
    kinds = {name: kind for name, kind in fields_of(arrow).items() if not is_own(name)}
    meant = checked(recognition, kinds, zones_of(arrow, session))
    bound = replace(meant, partition=tuple(map(_bound, meant.partition)))
    clause = Clause(RowPlan(bound, kinds), arrow, show_clause(meant), ids, limits)
    if ids:
        for name in clause.results.schema.names:
            if name.lower() == MATCH_ID:
                raise QueryError(
                    f"a column of the result would be called '{name}', and that is the id of a "
                    "match",
                    hint="give the measure another name by AS, or rename the table's column",
                    text=recognition.text,
                )
    return clause


def column_of(key: Key) -> str:
    """The column that holds a key: its own, or one that is computed.

    >>> from ensue.languages.row_patterns.clause import read_bare
    >>> text = "(PARTITION BY a, upper(b) AS c PATTERN (X) DEFINE X AS TRUE)"
    >>> [column_of(key) for key in read_bare(text).partition]
    ['a', '__key_...']
    """
    if key.column is not None:
        return key.column
    shown = show_scalar(key.expr, lambda field: show_name(str(field.name)))
    # a digest: Spark takes dots and backticks in names for more than that
    return COMPUTED + blake2b(shown.encode(), digest_size=8).hexdigest()


def _bound(key: Key) -> Key:
    """A key that is computed as the column that holds it."""
    return key if key.column is not None else replace(key, expr=Field(ROW, column_of(key)))
