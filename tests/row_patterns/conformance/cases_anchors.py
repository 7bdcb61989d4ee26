"""The anchors ^ (before the first row of a partition) and $ (after its last row)."""

from row_patterns.conformance.case import Case, matching

NEXT = "AFTER MATCH SKIP TO NEXT ROW"

CASES: list[Case] = [
    matching("the start", "AAA", "^ A", "A1"),
    matching("the start, then many rows", "AAB", "^ A+", "A1 A2"),
    matching("the start does not fit", "BA", "^ A", "none"),
    matching("the end", "AAA", "A $", "A3"),
    matching("many rows up to the end", "AAA", "A+ $", "A1 A2 A3"),
    matching("the end is missed", "AAB", "A+ $", "none"),
    matching("from the start to the end", "AAA", "^ A+ $", "A1 A2 A3"),
    matching("from the start to the end, but not all rows fit", "AAB", "^ A+ $", "none"),
    matching("the start after a row", "AA", "A ^", "none"),
    matching("the end before a row", "AA", "$ A", "none"),
    matching("the start between rows", "AA", "A ^ A", "none"),
    matching("the end between rows", "AA", "A $ A", "none"),
    matching("no blank after the start", "AA", "^A", "A1"),
    matching("no blank before the end", "AA", "A$", "A2"),
    matching("the start in one branch", "AAB", "^ A | B", "A1 / B3"),
    matching("the start in a group", "ACBCAC", "(^ A | B) C", "A1 C2 / B3 C4"),
    matching("a row or the end", "ABA", "A (B | $)", "A1 B2 / A3"),
    matching("the end or a row", "ABA", "A ($ | B)", "A1 B2 / A3"),
    matching("an optional row before the end", "ABAB", "A B? $", "A3 B4"),
    matching("star of the start", "AA", "^* A", "A1 / A2"),
    matching("optional start", "AA", "^? A", "A1 / A2"),
    matching("plus of the start", "AA", "^+ A", "A1"),
    matching("optional end", "AA", "A $?", "A1 / A2"),
    matching("plus of the end", "AA", "A $+", "A2"),
    matching("a number of ends", "AA", "A ${2}", "A2"),
    matching("the start in a repeated group", "AA", "(^ A)+", "A1"),
    matching("the end in a repeated group", "AA", "(A $)*", "-1 / A2"),
    matching("a row or the start, repeated", "AA-", "(A | ^)+", "A1 A2"),
    matching("an empty match at the start", "AA", "^ | A", "-1 / A2"),
    matching("the end never fits before a row", "A", "$ | A", "A1"),
    matching("the start and the end at once", "A", "^ $ | A", "A1"),
    matching("the start twice", "AA", "^ ^ A", "A1"),
    matching("a reluctant plus up to the end", "AAA", "A+? $", "A1 A2 A3"),
    matching("a reluctant star, then the end", "ABAB", "A*? B $", "A3 B4"),
    matching("the end from each row", "AAA", "A+ $", "A1 A2 A3 / A2 A3 / A3", skip=NEXT),
    matching("the start from each row", "AAA", "^ A", "A1", skip=NEXT),
    matching("the start in a permutation", "AB", "PERMUTE(^ A, B)", "A1 B2"),
    matching("the start in a permutation, the other way", "BA", "PERMUTE(^ A, B)", "none"),
    Case(
        "each partition has its own start and end",
        """
        SELECT * FROM (VALUES (1, 'p'), (2, 'p'), (3, 'q'), (4, 'q'), (5, 'q')) t(id, part)
        MATCH_RECOGNIZE (
            PARTITION BY part
            ORDER BY id
            MEASURES A.id AS a, COUNT(B.*) AS b, C.id AS c
            PATTERN (^ A B* C $)
            DEFINE B AS TRUE
        )
        """,
        [("p", 1, 0, 2), ("q", 3, 1, 5)],
    ),
]
