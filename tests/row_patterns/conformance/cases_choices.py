"""Where the standard leaves room, where dialects differ, or where we had to read it ourselves.

Each case says what is chosen and why; another choice may be as good.
"""

from row_patterns.conformance.case import ONE_ROW, Case, matching, measured, refused, series

# A repetition ends with the first empty round beyond its minimum, as in Perl and .NET (19075-5,
# 7.2.8 follows Perl). So a *preferred* empty round ends the loop with fewer rows. Engines that
# prune threads without progress, such as Trino and RE2, go on to the branch that takes a row.
EMPTY_ROUNDS = [
    matching("star of nothing or a row", "AA", "(() | A)*", "-1 / -2"),  # Trino: A1 A2
    matching("star of a star or a row", "AAB", "(A* | B)*", "A1 A2 / -3"),  # Trino: A1 A2 B3
    matching("plus of a star or a row", "AAB", "(A* | B)+", "A1 A2 / -3"),  # Trino: A1 A2 B3
    matching("star of a reluctant optional", "AA", "(A??)*", "-1 / -2"),  # Trino: A1 A2
    matching("star of a reluctant star", "AA", "(A*?)*", "-1 / -2"),  # Trino: A1 A2
    matching("plus of the start or a row", "AA-", "(^ | A)+", "-1 / A2"),  # Trino: A1 A2
]

SYNTAX = [
    # Oracle and 19075-5 ask for a positive number. One reading of 9075-2 allows {0} as the empty
    # pattern, and so do we.
    matching("no repetition", "AAB", "A B{0}", "A1 / A2"),
    # PATTERN takes a row pattern, and the empty one is (): so it is PATTERN (()).
    refused("a pattern of nothing at all", pattern="PATTERN ()", measures="MEASURES 1 AS one"),
    # PATTERN (()) has no variable, and DEFINE must define one: by the letter of the standard there
    # is no way to write it. What stands in DEFINE is then of no use.
    Case(
        "only the empty pattern",
        f"SELECT * FROM {series(7, 8)} MATCH_RECOGNIZE (ORDER BY id MEASURES MATCH_NUMBER() AS n, "
        "CLASSIFIER() AS c PATTERN (()) DEFINE A AS TRUE)",
        [(1, None), (2, None)],
    ),
    # The columns of the output table have names of their own. Trino gives both columns one name.
    refused(
        "a measure named like a partition column",
        "value",
        partition="PARTITION BY value",
        measures="MEASURES A.id AS value",
    ),
    refused(
        "a measure named like an input column, all rows",
        "value",
        measures="MEASURES A.id AS value",
        mode="ALL ROWS PER MATCH",
    ),
    # Trino: an exclusion in an exclusion is allowed, and the outer one decides.
    matching("an exclusion in an exclusion", "ABCD", "A {- {- B -} C -} D", "A1 D4"),
    # DESC, ASC and NULLS FIRST by default: implementation-defined in the standard; DuckDB has
    # NULLS LAST whether the order is ascending or descending.
    Case(
        "rows without a value come last",
        f"""
        SELECT * FROM {series(2, None, 1)} MATCH_RECOGNIZE (
            ORDER BY value MEASURES ARRAY_AGG(id) AS ids PATTERN (A+) DEFINE A AS TRUE
        )
        """,
        [([3, 1, 2],)],
    ),
]

MEASURES = [
    # Running semantics sees the rows up to the current one, so an offset past it finds nothing.
    # Trino's FIRST looks at the whole match instead.
    measured(
        "RUNNING FIRST with an offset past the current row",
        [10, 20, 30],
        "FIRST(value, 1) AS f",
        [(1, None, 10), (2, 20, 20), (3, 20, 30)],
        pattern="A+",
        define="A AS TRUE",
    ),
    # The same for a later variable under NEXT: there is no row of B yet at row 1.
    measured(
        "NEXT from a variable that comes later",
        [10, 20, 30],
        "NEXT(FIRST(B.value)) AS f",
        [(1, None, 10), (2, 30, 20), (3, 30, 30)],
        pattern="A B+",
        define="B AS TRUE",
    ),
    # NEXT looks at the row itself: in a measure the whole match is known, so the label of the
    # next row is (as in Trino). Beyond the match there is no label.
    measured(
        "the label of the next row in a measure",
        [1, 2, 3, 4],
        "NEXT(CLASSIFIER()) AS n, PREV(CLASSIFIER()) AS p",
        [(2, "B", None, 2), (3, None, "A", 3)],
        pattern="A B",
        define="A AS A.value = 2, B AS B.value = 3",
    ),
    # In a condition the label of a later row is not known yet, so it is NULL (as in Trino).
    measured(
        "the label of the next row in a condition",
        [1, 2],
        "A.value AS v",
        [],
        pattern="A+",
        define="A AS NEXT(CLASSIFIER()) = 'A'",
        mode=ONE_ROW,
    ),
    # There is no row, so the result is NULL whatever the expression (Oracle, Trino); not the
    # expression over a row of NULLs, which would give 0 and 'x'.
    measured(
        "an expression over a row that is not there",
        [1],
        "PREV(COALESCE(value, 0)) AS p, FIRST(COALESCE(value, 0), 1) AS f",
        [(None, None)],
        pattern="A",
        define="A AS TRUE",
        mode=ONE_ROW,
    ),
    # All measures of an unmatched row are NULL, constants too; those of an empty match are
    # computed.
    measured(
        "a constant as a measure of an unmatched row",
        [1, 2],
        "7 AS seven, COUNT(*) AS n",
        [(1, None, None, 1), (2, 7, 1, 2)],
        mode="ALL ROWS PER MATCH WITH UNMATCHED ROWS",
        pattern="A",
        define="A AS A.value = 2",
    ),
    measured(
        "a constant as a measure of an empty match",
        [1, 2],
        "7 AS seven, COUNT(*) AS n",
        [(1, 7, 0, 1), (2, 7, 1, 2)],
        pattern="A?",
        define="A AS A.value = 2",
    ),
    # ARRAY_AGG over no rows is NULL in the standard and in DuckDB.
    measured(
        "a list of no rows",
        [1],
        "ARRAY_AGG(B.value) AS v",
        [(None,)],
        pattern="A B?",
        define="B AS FALSE",
        mode=ONE_ROW,
    ),
    # DISTINCT in aggregates: Oracle and Trino refuse it, the standard does not.
    measured(
        "a count of different values",
        [1, 2, 1, 3],
        "COUNT(DISTINCT A.value) AS n",
        [(3,)],
        pattern="A+",
        define="A AS TRUE",
        mode=ONE_ROW,
    ),
    # The grammar of the standard has no reluctant {n}, which changes nothing. Trino reads it.
    matching("a reluctant exact number", "ABB", "A B{2}?", "A1 B2 B3"),
    # The standard has columns in PARTITION BY; what is computed has its text for a name.
    Case(
        "a partition by an expression",
        f"SELECT * FROM {series(1, 2, 3)} MATCH_RECOGNIZE (PARTITION BY value % 2 AS odd "
        "ORDER BY id MEASURES COUNT(*) AS n PATTERN (A+) DEFINE A AS TRUE)",
        [(1, 2), (0, 1)],
    ),
    # The standard orders by columns only; Snowflake and Flink take expressions.
    Case(
        "an order by an expression",
        f"SELECT * FROM {series(3, 1, 2)} MATCH_RECOGNIZE (ORDER BY 10 - value "
        "MEASURES FIRST(A.value) AS f, LAST(A.value) AS l PATTERN (A+) DEFINE A AS TRUE)",
        [(3, 1)],
    ),
    # An aggregate without any column is over the whole match (Trino).
    measured(
        "a sum of a constant",
        [1, 2, 3],
        "SUM(2) AS s, COUNT(1) AS n",
        [(6, 3)],
        pattern="A B+",
        define="B AS TRUE",
        mode=ONE_ROW,
    ),
    # The match number needs no column either.
    measured(
        "a list of the match number",
        [1, 2],
        "ARRAY_AGG(MATCH_NUMBER()) AS n",
        [([1, 1],)],
        pattern="A+",
        define="A AS TRUE",
        mode=ONE_ROW,
    ),
]

CASES: list[Case] = EMPTY_ROUNDS + SYNTAX + MEASURES
