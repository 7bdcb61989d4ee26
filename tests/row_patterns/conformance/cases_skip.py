"""AFTER MATCH SKIP: where the search goes on."""

from dataclasses import replace

from row_patterns.conformance.case import Case, matching


def skip(name: str, rows: str, pattern: str, to: str, expected: str, *, subset: str = "") -> Case:
    return matching(name, rows, pattern, expected, skip=f"AFTER MATCH SKIP {to}", subset=subset)


def fails(name: str, rows: str, pattern: str, to: str, *, subset: str = "") -> Case:
    case = skip(name, rows, pattern, to, "none", subset=subset)
    return replace(case, rows=None, runtime_error=True)


PLAIN = [
    matching("past the last row is the default", "AAAB", "A+ B?", "A1 A2 A3 B4"),
    skip("past the last row", "AAAA", "A A", "PAST LAST ROW", "A1 A2 / A3 A4"),
    skip("to the next row", "AAA", "A A", "TO NEXT ROW", "A1 A2 / A2 A3"),
    skip("to the next row, matches of all lengths", "AAAB", "A+ B", "TO NEXT ROW", "A1 A2 A3 B4 / A2 A3 B4 / A3 B4"),
    skip("to the next row after a match of one row", "AA", "A", "TO NEXT ROW", "A1 / A2"),
    skip("past the last row after an unmatched row", "BAA", "A A", "PAST LAST ROW", "A2 A3"),
]

VARIABLES = [
    skip("to a variable", "ABAB", "A B A?", "TO B", "A1 B2 A3 / A3 B4"),
    skip("to the first of a variable", "ABBC", "A? B+ C", "TO FIRST C", "A1 B2 B3 C4"),
    skip("to the next row, with a choice", "ABBB", "A B B | B B", "TO NEXT ROW", "A1 B2 B3 / B2 B3 / B3 B4"),
    skip("to the first of a variable after many rows", "XBBYBY", "X B+ Y | B+ Y", "TO FIRST Y", "X1 B2 B3 Y4 / B5 Y6"),
    skip("to the last of a variable", "ABABA", "A B A", "TO LAST A", "A1 B2 A3 / A3 B4 A5"),
    skip("to a variable means to its last row", "ABABA", "A B A", "TO A", "A1 B2 A3 / A3 B4 A5"),
    skip("to the first of the last part", "ACBAC", "A C | B A C", "TO FIRST C", "A1 C2 / B3 A4 C5"),
    skip("a row of one match begins the next", "A BX X", "A B | X X", "TO NEXT ROW", "A1 B2 / X2 X3"),
    skip("to the last row of the match", "UUDU", "U U+ | D U", "TO LAST U", "U1 U2 / D3 U4"),
    skip("to the last row of a variable, not of the match", "ABBC", "A B+ C", "TO LAST B", "A1 B2 B3 C4"),
    skip("to the last of a variable, and on from there", "AB AB AB AB", "A B", "TO LAST B", "A1 B2 / A2 B3 / A3 B4"),
    skip("to the first of a variable, and on from there", "A AB AB B", "A+? B B", "TO FIRST B", "A1 B2 B3 / A2 B3 B4"),
    skip("to the last of a variable leaves rows out", "A AB AB B", "A+? B B", "TO LAST B", "A1 B2 B3"),
]

SUBSETS = [
    skip(
        "to the last of a union",
        "ABDACD",
        "A (B | C) D",
        "TO LAST U",
        "A1 B2 D3 / A4 C5 D6",
        subset="SUBSET U = (B, C)",
    ),
    skip(
        "to the first of a union",
        "A AC AB B",
        "A (B | C) (B | C)",
        "TO FIRST U",
        "A1 C2 B3 / A2 B3 B4",
        subset="SUBSET U = (B, C)",
    ),
    skip(
        "to a union means to its last row",
        "A AC AB B B",
        "A (B | C) (B | C)",
        "TO U",
        "A1 C2 B3 / A3 B4 B5",
        subset="SUBSET U = (B, C)",
    ),
    skip(
        "a union is there if one of its variables is",
        "ABAB",
        "A B C?",
        "TO LAST U",
        "A1 B2 / A3 B4",
        subset="SUBSET U = (B, C)",
    ),
]

EMPTY = [
    skip("after an empty match the next row follows", "BAAB", "A*", "PAST LAST ROW", "-1 / A2 A3 / -4"),
    skip("a variable to skip to is not asked of an empty match", "BCAB", "(A B)?", "TO LAST B", "-1 / -2 / A3 B4 / -4"),
    skip("to the next row with empty matches", "AAB", "A*", "TO NEXT ROW", "A1 A2 / A2 / -3"),
]

ERRORS = [
    fails("to the first row of the match", "AB", "A B", "TO A"),
    fails("to the first A, the first row of the match", "AAB", "A+ B", "TO FIRST A"),
    fails("to the last A, a match of one row", "AAB", "A+?", "TO LAST A"),
    fails("to a variable that is not in the match", "AB", "A B C?", "TO C"),
    fails("to the first of a variable that is not in the match", "AB", "A B C?", "TO FIRST C"),
    fails("to the last of a variable that is not in the match", "AC", "A (B | C)", "TO LAST B"),
    fails("to a union that is not in the match", "AB", "A B (C | D)?", "TO U", subset="SUBSET U = (C, D)"),
    fails("to a union that begins the match", "AB", "A B", "TO FIRST U", subset="SUBSET U = (A, B)"),
    fails("the second match fails", "ABCAB", "A B C?", "TO LAST C"),
]

CASES: list[Case] = PLAIN + VARIABLES + SUBSETS + EMPTY + ERRORS
