"""Exclusion {- -}: rows that are matched and measured, but are not in the output."""

from row_patterns.conformance.case import ONE_ROW, Case, matching, measured

OUTPUT = [
    matching("an excluded middle", "ABBC", "A {- B+ -} C", "A1 C4"),
    matching("an excluded head", "ABAB", "{- A -} B", "B2 / B4"),
    matching("an excluded tail", "AB", "A {- B -}", "A1"),
    matching("all is excluded", "AB", "{- A B -}", "none"),
    matching("two exclusions side by side", "ABC", "{- A -} {- B -} C", "C3"),
    matching("two exclusions apart", "ABCD", "{- A -} B {- C -} D", "B2 D4"),
    matching("a quantified exclusion", "ABBC", "A {- B -}* C", "A1 C4"),
    matching("a quantified exclusion of no rows", "AC", "A {- B -}* C", "A1 C2"),
    matching("an exclusion with bounds", "ABBC", "A {- B -}{1,2} C", "A1 C4"),
    matching("an excluded plus", "AAB", "{- A+ -} B", "B3"),
    matching("an exclusion in a repeated group", "ABAB", "(A {- B -})+", "A1 A3"),
    matching("an excluded branch", "ABBA", "(A | {- B -})+", "A1 A4"),
    matching("a choice within an exclusion", "ACD", "A {- B | C -} D", "A1 D3"),
    matching("one of three rows of a variable", "AAA", "A {- A -} A", "A1 A3"),
    matching("an excluded optional that is absent", "AC", "A {- B? -} C", "A1 C2"),
    matching("an excluded permutation", "BAC", "{- PERMUTE(A, B) -} C", "C3"),
    matching("an exclusion in a permutation", "BAAB", "PERMUTE({- A -}, B)", "B1 / B4"),
    matching("an excluded reluctant plus", "AB AB", "{- A+? -} B*", "B2"),
    matching("an excluded star takes all", "AB AB", "{- A* -} B*", "none"),
    matching("a match without output rows keeps its number", "AB", "{- A -}*", "/ -2"),
    matching("an excluded match is not an empty one", "AAB", "{- A+ -} | B", "/ B3"),
    matching("no blanks in an exclusion", "ABC", "A{-B-}C", "A1 C3"),
    matching("an exclusion with anchors", "ABC", "^ {- A+ B -} C $", "C3"),
    matching(
        "omitting empty matches as well", "AB-", "(A {- B -})*", "A1", mode="ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    ),
    matching(
        "skipping to the row after an excluded start",
        "AAB",
        "{- A -} (A | B)",
        "A2 / B3",
        skip="AFTER MATCH SKIP TO NEXT ROW",
    ),
    matching(
        "skipping to an excluded variable", "ABAB", "A {- B -} Z", "A1 Z3", free="Z", skip="AFTER MATCH SKIP TO LAST B"
    ),
]

MEASURES = [
    measured(
        "excluded rows count in running measures",
        [10, 20, 30, 5],
        "COUNT(*) AS n, SUM(value) AS total, LAST(B.value) AS b",
        [(1, 1, 10, None, 10), (4, 4, 65, 30, 5)],
        pattern="A {- B+ -} C",
        define="B AS B.value > PREV(B.value), C AS C.value < PREV(C.value)",
    ),
    measured(
        "excluded rows count in final measures",
        [10, 20, 30, 5],
        "FINAL COUNT(*) AS n, FINAL LAST(B.value) AS b",
        [(1, 4, 30, 10), (4, 4, 30, 5)],
        pattern="A {- B+ -} C",
        define="B AS B.value > PREV(B.value), C AS C.value < PREV(C.value)",
    ),
    measured(
        "one row per match does not heed exclusions",
        [10, 20, 30, 5],
        "A.value AS a, COUNT(B.*) AS b, C.value AS c",
        [(10, 2, 5)],
        pattern="A {- B+ -} C",
        define="B AS B.value > PREV(B.value), C AS C.value < PREV(C.value)",
        mode=ONE_ROW,
    ),
    measured(
        "a match whose rows are all excluded has its one row",
        [10, 20],
        "FIRST(value) AS f, LAST(value) AS l",
        [(10, 20)],
        pattern="{- A B -}",
        define="B AS B.value > A.value",
        mode=ONE_ROW,
    ),
    measured(
        "conditions see excluded rows",
        [10, 20, 15, 30],
        "CLASSIFIER() AS label",
        [(1, "A", 10), (4, "C", 30)],
        pattern="A {- B+ -} C",
        define="B AS B.value < 25, C AS C.value > MAX(B.value) + 5",
    ),
]

CASES: list[Case] = OUTPUT + MEASURES
