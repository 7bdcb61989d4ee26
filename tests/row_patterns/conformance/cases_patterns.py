"""Concatenation, alternation, grouping: which match is preferred, one match per starting row."""

from row_patterns.conformance.case import Case, matching

NEXT = "AFTER MATCH SKIP TO NEXT ROW"

CONCATENATION = [
    matching("one variable", "ABA", "A", "A1 / A3"),
    matching("two variables in a row", "ABCAB", "A B", "A1 B2 / A4 B5"),
    matching("the wrong order does not match", "BA", "A B", "none"),
    matching("a start that fails leaves the next row as a start", "AABC", "A B C", "A2 B3 C4"),
    matching("rows of a match are neighbours", "A-B", "A B", "none"),
    matching("a variable may stand twice", "AAA", "A A", "A1 A2"),
    matching("a variable may come back later", "ABABA", "A B A", "A1 B2 A3"),
    matching("a match ends at the end of the rows", "AB", "A B C", "none"),
    matching("a match may begin at the last row", "BBA", "A", "A3"),
    matching("rows before the first match are passed over", "BBAB", "A B", "A3 B4"),
]

ALTERNATION = [
    matching("the left branch is preferred", "AB AB", "A | B", "A1 / A2"),
    matching("the order of the branches decides", "AB AB", "B | A", "B1 / B2"),
    matching("the right branch is taken if the left fails", "AB", "B | A", "A1 / B2"),
    matching("a shorter left branch is preferred", "ABA", "A | A B", "A1 / A3"),
    matching("a longer left branch is preferred", "ABA", "A B | A", "A1 B2 / A3"),
    matching("a branch is given up if what follows fails", "ABC", "(A | A B) C", "A1 B2 C3"),
    matching("a branch in the middle", "ACDABD", "A (B | C) D", "A1 C2 D3 / A4 B5 D6"),
    matching("alternation binds less than concatenation", "ABCDAD", "A B | C D", "A1 B2 / C3 D4"),
    matching("three branches", "CBA", "A | B | C", "C1 / B2 / A3"),
    matching("a branch of a branch", "CDBDAD", "(A | (B | C)) D", "C1 D2 / B3 D4 / A5 D6"),
    matching("two choices in a row", "AB AB C", "(A | B) (A | B) C", "A1 A2 C3"),
    matching("only the second choice is changed", "AB B C", "(A | B) (A | B) C", "A1 B2 C3"),
    matching("the first choice decides first", "A BX C", "(A | A B) (X C | C)", "A1 X2 C3"),
    matching("branches of different lengths", "ABCD", "(A | B C) (C D | D)", "B2 C3 D4"),
    matching("a choice between two labels of one row", "A BX C", "A (B | X) C", "A1 B2 C3"),
    matching("a choice of labels is changed for a later row", "AB BC D", "(A | B) (B | C) D", "A1 B2 D3"),
    matching("equal branches", "AA", "A | A", "A1 / A2"),
    matching("one match for each starting row", "AB AB", "A | B", "A1 / A2", skip=NEXT),
    matching("overlapping matches, one for each start", "AAB", "A A | A B", "A1 A2 / A2 B3", skip=NEXT),
]

GROUPING = [
    matching("groups within groups", "ABC", "((A) (B (C)))", "A1 B2 C3"),
    matching("a pattern in doubled parentheses", "AB", "((A B))", "A1 B2"),
    matching("no blanks are needed", "ACD", "A(B|C)D", "A1 C2 D3"),
    matching("a group as a branch", "ABC", "(A B) | C", "A1 B2 / C3"),
    matching("a group is no unit of preference", "A B C", "((A | A B) C | A) B", "A1 B2"),
]

UNDEFINED = [
    matching("a variable without definition fits each row", "A-B", "A Z B", "A1 Z2 B3", free="Z"),
    matching("a variable without definition first", "AA", "Z | A", "Z1 / Z2", free="Z"),
    matching("a variable without definition last", "AA", "A | Z", "A1 / A2", free="Z"),
    matching("any rows up to the last B", "-B-B-", "Z* B", "Z1 Z2 Z3 B4", free="Z"),
    matching("as few rows as possible up to B", "-B-B-", "Z*? B", "Z1 B2 / Z3 B4", free="Z"),
]

CASES: list[Case] = CONCATENATION + ALTERNATION + GROUPING + UNDEFINED
