"""What one conformance case is, and short ways of writing the usual ones.

The expected results come from the standard (ISO/IEC 9075-2, ISO/IEC 19075-5), worked out by hand;
nothing here knows how Ensue finds them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Row = tuple[Any, ...]
Table = dict[str, list[Any]]


@dataclass(frozen=True)
class Case:
    """A query, and either the rows it gives or the way it fails.

    `error` is a regular expression for the message of a refused query ("" for any message);
    `runtime_error` marks a query that is well formed, but fails on these rows.
    """

    name: str
    sql: str
    rows: list[Row] | None
    columns: list[str] | None = None
    error: str | None = None
    runtime_error: bool = False
    tables: dict[str, Table] | None = None
    ordered: bool = False


# ---------------------------------------------------------------- tables


def letters(rows: str) -> Table:
    """A table (id, x) of one row per letter; with spaces, one row per word.

    >>> letters("AB")
    {'id': [1, 2], 'x': ['A', 'B']}
    >>> letters("A AB -")["x"]
    ['A', 'AB', '-']
    """
    words = rows.split() if " " in rows else list(rows)
    return {"id": list(range(1, len(words) + 1)), "x": words}


def series(*values: object) -> str:
    """A table t(id, value) in the text of the query, ids counted from one.

    >>> series(90, None)
    '(VALUES (1, 90), (2, NULL)) t(id, value)'
    """
    rows = ", ".join(
        f"({number}, {'NULL' if value is None else value})" for number, value in enumerate(values, start=1)
    )
    return f"(VALUES {rows}) t(id, value)"


# ---------------------------------------------------------------- matches of letters


def matches(text: str) -> list[Row]:
    """Rows (match number, id, label) of matches written one after the other.

    >>> matches("A1 B2 / -3 / A4")
    [(1, 1, 'A'), (1, 2, 'B'), (2, 3, None), (3, 4, 'A')]

    `-3` is an empty match at row 3.
    """
    return [
        (number, int(word[1:]), None if word[0] == "-" else word[0])
        for number, match in enumerate(text.split("/"), start=1)
        for word in match.split()
    ]


def matching(
    name: str,
    rows: str,
    pattern: str,
    expected: str,
    *,
    skip: str = "",
    subset: str = "",
    free: str = "",
    mode: str = "ALL ROWS PER MATCH",
) -> Case:
    """A pattern of one-letter variables over a table of letters.

    A row fits a variable if its word has that letter: "AB" fits A and B. Variables in `free` have
    no definition, so they fit each row. `expected` is written as in `matches`, or is "none".
    """
    variables = sorted(set(re.findall(r"\b[A-Z]\b", pattern)) - set(free))
    define = ", ".join(f"{variable} AS x LIKE '%{variable}%'" for variable in variables)
    return Case(
        name,
        f"""
        SELECT number, id, label FROM letters MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES MATCH_NUMBER() AS number, CLASSIFIER() AS label
            {mode}
            {skip}
            PATTERN ({pattern})
            {subset}
            DEFINE {define}
        )
        """,
        [] if expected == "none" else matches(expected),
        tables={"letters": letters(rows)},
    )


# ---------------------------------------------------------------- measures over a series


def measured(
    name: str,
    values: Sequence[object],
    measures: str,
    rows: list[Row],
    *,
    pattern: str,
    define: str,
    mode: str = "ALL ROWS PER MATCH",
    skip: str = "",
    subset: str = "",
    select: str = "*",
) -> Case:
    """Measures over t(id, value) in the order of id.

    With ALL ROWS PER MATCH a row of the answer is (id, the measures, value), with ONE ROW PER
    MATCH the measures alone, unless `select` says what is wanted.
    """
    return Case(
        name,
        f"""
        SELECT {select} FROM {series(*values)} MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES {measures}
            {mode}
            {skip}
            PATTERN ({pattern})
            {subset}
            DEFINE {define}
        )
        """,
        rows,
    )


ONE_ROW = "ONE ROW PER MATCH"
ALL_ROWS = "ALL ROWS PER MATCH"


# ---------------------------------------------------------------- refused queries


def refused(
    name: str,
    named: str = "",
    *,
    partition: str = "",
    order: str = "ORDER BY id",
    measures: str = "MEASURES LAST(A.value) AS a",
    mode: str = "",
    skip: str = "",
    pattern: str = "PATTERN (A B+)",
    subset: str = "",
    define: str = "DEFINE B AS B.value > A.value",
    select: str = "*",
) -> Case:
    """A query that is right but for the part given here; `named` is a name the message has."""
    parts = (partition, order, measures, mode, skip, pattern, subset, define)
    clause = "\n            ".join(part for part in parts if part)
    return Case(
        name,
        f"""
        SELECT {select} FROM {series(1, 2, 3)} MATCH_RECOGNIZE (
            {clause}
        ) AS m
        """,
        None,
        error=rf"\b{named}\b" if named else "",
    )
