"""Random SQL in which a clause over live rows is joined with one over an archive."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from random import Random

import pyarrow as pa

from ensue.analyzer.join_checks import check_archive_join
from ensue.analyzer.row_pattern_checks import check_row_pattern
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.parser.sql.clause_join import read_archive_join
from ensue.parser.sql.sql_parser import parse_sql
from ensue.reference import Event, compute_value, join_matches
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.event_table import create_schema

SCHEMA = pa.schema({"row": pa.int64(), "ts": pa.int64(), "k": pa.string(), "v": pa.int64()})
_PATTERNS = (
    ("(S)", "", ""),
    ("(S)", "", "S AS S.v > 2"),
    ("(S)", "", "S AS S.v > PREV(S.v)"),
    ("(S D+)", "", "D AS D.v < PREV(D.v)"),
    ("(S D+)", "WITHIN 6", "D AS D.v <= PREV(D.v)"),
    ("(S D{1,2})", "WITHIN 9", "D AS D.v <> S.v"),
    ("(S D*? E)", "WITHIN 8", "E AS E.v > S.v"),
    ("(S (D | E))", "", "D AS D.v = 1, E AS E.v = 2"),
    ("(S D)", "WITHIN 4", "D AS D.v >= FIRST(S.v)"),
)
_SKIPS = ("PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW")
_RANGES = (
    "A.till < L.since AND A.since >= L.since - 10",
    "A.till < L.since AND L.since - A.since <= 7",
    "A.till <= L.since - 2 AND A.since > L.since - 12",
    "A.till < L.till AND A.since >= L.till - 9",
    "A.since BETWEEN L.till - 15 AND L.till AND A.till < L.since - 1",
)
_KEYS = ("A.k = L.k", "A.k = L.k", "A.k = L.k AND A.v = L.v", "A.v > L.v", "A.key = L.key")


@dataclass(frozen=True)
class Told:
    """A query, live rows and an archive of them."""

    text: str
    live: pa.Table
    past: pa.Table
    own: bool

    @property
    def whole(self) -> pa.Table:
        """All that the archive is to the query."""
        return pa.concat_tables([self.past, self.live]) if self.own else self.past

    @cached_property
    def archive_join(self) -> ArchiveJoinQuery:
        query, kinds = parse_sql(self.text), get_field_kinds(SCHEMA)

        def resolved(clause):
            return check_row_pattern(clause.row_pattern, kinds)

        return read_archive_join(query, {"old": "old"}, resolved)

    @cached_property
    def meant(self) -> Counter:
        """What the judge says."""
        schema = create_schema(SCHEMA, time="ts", type=None, order=("row",)).schema
        asked = check_archive_join(self.archive_join, schema, {"old": schema})
        rows = join_matches(asked, _events(self.live), {"old": _events(self.whole)})
        return Counter(tuple(compute_value(r.expr, row.binding) for r in asked.returns) for row in rows)


def _events(table: pa.Table) -> list[Event]:
    rows = sorted(table.to_pylist(), key=lambda row: (row["ts"], row["row"]))
    return [Event(n, "", row["ts"], row["ts"], row) for n, row in enumerate(rows)]


def rows_of(table: pa.Table) -> Counter:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def random_told(random: Random) -> Told:
    kind = random.choice(("JOIN", "JOIN", "LEFT JOIN", "ANTI JOIN"))
    on = f"{random.choice(_KEYS)} AND {random.choice(_RANGES)}"
    shown = "L.k, L.key, L.since, L.v AS v, L.till - L.since AS lasted"
    if kind != "ANTI JOIN":
        shown += ", A.since AS before, A.v AS w, L.v + A.v AS total"
    where = random.choice(("", "", " WHERE L.v > 1"))
    text = f"SELECT {shown} FROM live {_clause(random)} AS L {kind} old {_clause(random)} AS A ON {on}{where}"
    live, past = random.randint(0, 25), random.randint(0, 40)
    return Told(text, _table(random, live, 21, past), _table(random, past, 0, 0), random.random() < 0.4)


def _clause(random: Random) -> str:
    pattern, within, define = random.choice(_PATTERNS)
    last = random.choice(("LAST(v)", "FIRST(v)", "LAST(S.v)"))
    till = "LAST(ts)" if random.random() < 0.7 else "FINAL LAST(ts)"
    since = random.choice(("FIRST(ts)", "S.ts", "FIRST(S.ts)"))
    define = f" DEFINE {define}" if define else " DEFINE S AS TRUE"
    return (
        f"MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, row MEASURES S.k AS key, {since} AS since, "
        f"{till} AS till, {last} AS v ONE ROW PER MATCH AFTER MATCH SKIP {random.choice(_SKIPS)} "
        f"PATTERN {pattern} {within}{define})"
    )


def _table(random: Random, rows: int, first: int, number: int) -> pa.Table:
    times = sorted(random.randint(first, first + 20) for _ in range(rows))
    columns = {
        "row": list(range(number, number + rows)),
        "ts": times,
        "k": [random.choice(("a", "b", None, "a")) for _ in range(rows)],
        "v": [random.randint(0, 4) for _ in range(rows)],
    }
    return pa.table(columns, schema=SCHEMA)
