"""Quantified groups that may be empty, and the empty pattern.

A round that is empty counts towards the minimum and ends the repetition beyond it. Where it makes
a difference whether a preferred empty round ends the loop, see cases_choices.
"""

from row_patterns.conformance.case import Case, matching

GREEDY = [
    matching("star of an optional", "AAB", "(A?)*", "A1 A2 / -3"),
    matching("star of star", "AAB", "(A*)*", "A1 A2 / -3"),
    matching("plus of star", "AAB", "(A*)+", "A1 A2 / -3"),
    matching("plus of an optional, no row fits", "BB", "(A?)+", "-1 / -2"),
    matching("plus of a variable or a star", "BBA-", "(A | B*)+", "B1 B2 A3 / -4"),
    matching("star of a variable or a star", "AAB", "(B | A*)*", "A1 A2 B3"),
    matching("an exact number of optionals", "A-", "(A?){2}", "A1 / -2"),
    matching("an exact number of optionals, all taken", "AAA", "(A?){2}", "A1 A2 / A3"),
    matching("more optionals than rows", "AB", "(A?){3} B", "A1 B2"),
    matching("two to three optionals", "AAAA", "(A?){2,3}", "A1 A2 A3 / A4"),
    matching("at least two optionals", "AAA-", "(A?){2,}", "A1 A2 A3 / -4"),
    matching("star of two stars", "AABBAB-", "(A* B*)*", "A1 A2 B3 B4 A5 B6 / -7"),
    matching("plus of two stars, then a row", "ABAC", "(A* B*)+ C", "A1 B2 A3 C4"),
    matching("star of two optionals", "BAABC", "(A? B?)* C", "B1 A2 A3 B4 C5"),
    matching("star of star of an optional", "AAB", "((A?)*)*", "A1 A2 / -3"),
    matching("three stars, then a row", "AAB", "((A*)*)* B", "A1 A2 B3"),
    matching("star of two starred branches", "AC", "(A* | B*)* C", "A1 C2"),
    matching("the second starred branch is needed", "ABC", "(A* | B*)* C", "A1 B2 C3"),
    matching("an optional of an optional", "AB", "(A?)? B", "A1 B2"),
    matching("plus of star of a group", "ABAB-", "((A B)*)+", "A1 B2 A3 B4 / -5"),
    matching("star of a group of optionals, no row fits", "--", "(A? B?)*", "-1 / -2"),
]

RELUCTANT = [
    matching("star of a reluctant optional, then a row", "AAB", "(A??)* B", "A1 A2 B3"),
    matching("an exact number of reluctant optionals", "AA", "(A??){2}", "-1 / -2"),
    matching("reluctant optionals taken as they must", "AAB", "(A??){2} B", "A1 A2 B3"),
    matching("plus of reluctant star, then a row", "AAB", "(A*?)+ B", "A1 A2 B3"),
    matching("reluctant star of star", "AA", "(A*)*?", "-1 / -2"),
    matching("reluctant plus of star", "AA", "(A*)+?", "A1 A2"),
    matching("reluctant plus of an optional", "AA", "(A?)+?", "A1 / A2"),
    matching("reluctant plus of a reluctant optional", "AA", "(A??)+?", "-1 / -2"),
    matching("reluctant star of star, then a row", "AAB", "(A*)*? B", "A1 A2 B3"),
]

EMPTY = [
    matching("the empty pattern as the first branch", "AA", "() | A", "-1 / -2"),
    matching("the empty pattern as the last branch", "AB", "A | ()", "A1 / -2"),
    matching("the empty pattern between rows", "AB", "A () B", "A1 B2"),
    matching("the empty pattern within a group", "AA", "(() A)+", "A1 A2"),
    matching("star of the empty pattern", "AB", "A ()* B", "A1 B2"),
    matching("plus of the empty pattern", "AB", "A ()+ B", "A1 B2"),
    matching("a number of empty patterns", "AB", "A (){3} B", "A1 B2"),
    matching("plus of a row or nothing", "AAB", "(A | ())+", "A1 A2 / -3"),
    matching("nothing or a row, as the rest needs it", "AB", "(() | A) B", "A1 B2"),
    matching("star of nothing or a row, as the rest needs it", "AAB", "(() | A)* B", "A1 A2 B3"),
    matching("an empty match at each row", "AA", "()* | A", "-1 / -2"),
    matching("empty groups within groups", "A", "(()) A (()())", "A1"),
]

CASES: list[Case] = GREEDY + RELUCTANT + EMPTY
