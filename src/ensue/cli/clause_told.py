"""How a MATCH_RECOGNIZE clause is run, in words."""

from collections.abc import Iterator

import pyarrow as pa

import ensue
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.cli.stream_counters import many
from ensue.cli.terminal import UsageError
from ensue.languages.row_patterns.text import show_value
from ensue.plan.row_patterns.plan import RowPlan


def told(
    clause: Recognition,
    table: pa.Table | None = None,
    *,
    analyze: bool = False,
    kernel: bool = False,
) -> str:
    """The clause in its one spelling, its automaton, and what is asked of rows when. With a table
    it is checked against its columns, and counted with `analyze`.

    >>> print(told(ensue.parse("MATCH_RECOGNIZE (PATTERN (A B+) DEFINE B AS price > A.price)")))
    MATCH_RECOGNIZE (
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A B+)
      DEFINE
        B AS price > A.price
    )
    automaton: 3 entries with 4 choices
    B: price > A.price, as rows are mapped
    rows are mapped one by one, and the search may come back
    """
    if kernel:
        raise UsageError("--kernel is for patterns, and this query is SQL")
    lines = [ensue.show(clause, "sql"), *_plan(clause)]
    if table is not None:
        found = ensue.match(table, clause)  # which checks it against the columns
        if analyze:
            rows = many(table.num_rows, "row", "rows")
            lines.append(f"of {rows} it makes {found.num_rows:,}")
    return "\n".join(lines)


def _plan(clause: Recognition) -> Iterator[str]:
    plan = RowPlan(clause, {})
    entries = plan.automaton.entries
    choices = many(sum(map(len, entries)), "choice", "choices")
    yield f"automaton: {many(len(entries), 'entry', 'entries')} with {choices}"
    for variable, asked in zip(plan.automaton.variables, plan.conditions, strict=True):
        for values, when in (
            (asked.alone, "over whole columns, before anything is matched"),
            (asked.matched, "as rows are mapped"),
        ):
            for value in values:
                yield f"{variable}: {show_value(value, clause.subsets)}, {when}"
    if plan.decided_by_rows:
        yield "rows alone decide which variables they are mapped to, in linear time"
    else:
        yield "rows are mapped one by one, and the search may come back"
