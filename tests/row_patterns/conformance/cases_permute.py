"""PERMUTE: all orders of its elements, preferred in the order of the list."""

from row_patterns.conformance.case import Case, matching

CASES: list[Case] = [
    matching("both orders of two", "ABBA", "PERMUTE(A, B)", "A1 B2 / B3 A4"),
    matching("orders of three", "CABBCA", "PERMUTE(A, B, C)", "C1 A2 B3 / B4 C5 A6"),
    matching("all elements are needed", "ABA", "PERMUTE(A, B, C)", "none"),
    matching("an element is used once", "AAB", "PERMUTE(A, B)", "A2 B3"),
    matching("one element", "AB", "PERMUTE(A)", "A1"),
    matching("four elements, the last order", "DCBA", "PERMUTE(A, B, C, D)", "D1 C2 B3 A4"),
    matching("the order of the list is preferred", "AB AB", "PERMUTE(A, B)", "A1 B2"),
    matching("the order of the list, turned round", "AB AB", "PERMUTE(B, A)", "B1 A2"),
    matching("three that fit all rows", "ABC ABC ABC", "PERMUTE(C, A, B)", "C1 A2 B3"),
    matching("the first order that fits", "BC ABC A", "PERMUTE(A, B, C)", "B1 C2 A3"),
    matching("A first, then C before B", "AB C ABC", "PERMUTE(A, B, C)", "A1 C2 B3"),
    matching(
        "the first element decides before the second", "AB C AB", "PERMUTE(B, A, C)", "B1 C2 A3"
    ),
    matching("a quantified element first", "AAB", "PERMUTE(A+, B)", "A1 A2 B3"),
    matching("a quantified element last", "BAA", "PERMUTE(A+, B)", "B1 A2 A3"),
    matching("a quantified element on both sides", "AABAA", "PERMUTE(A+, B)", "A1 A2 B3"),
    matching("reluctant elements", "AABB", "PERMUTE(A+?, B+?)", "A1 A2 B3"),
    matching("an optional element is left out", "BA", "PERMUTE(A?, B)", "B1"),
    matching("an optional element is needed", "BAC", "PERMUTE(A?, B) C", "B1 A2 C3"),
    matching("two starred elements", "BBAA-", "PERMUTE(A*, B*)", "B1 B2 / A3 A4 / -5"),
    matching("plus of a permutation", "ABBA-", "PERMUTE(A, B)+", "A1 B2 B3 A4"),
    matching("a number of permutations", "BABA", "PERMUTE(A, B){2}", "B1 A2 B3 A4"),
    matching("an optional permutation", "BAC", "PERMUTE(A, B)? C", "B1 A2 C3"),
    matching("an element that is a choice", "ACCB", "PERMUTE(A | B, C)", "A1 C2 / C3 B4"),
    matching("an element that is a sequence", "CABABC", "PERMUTE(A B, C)", "C1 A2 B3 / A4 B5 C6"),
    matching("an element that is a group", "CABAB", "PERMUTE((A B)+, C)", "C1 A2 B3 A4 B5"),
    matching("a permutation in a permutation", "CBA", "PERMUTE(A, PERMUTE(B, C))", "C1 B2 A3"),
    matching("the inner one stays together", "BAC", "PERMUTE(A, PERMUTE(B, C))", "none"),
    matching("between other rows", "SBAE", "S PERMUTE(A, B) E", "S1 B2 A3 E4"),
    matching("as a branch", "CBA", "PERMUTE(A, B) | C", "C1 / B2 A3"),
    matching("the same variable twice", "AAA", "PERMUTE(A, A)", "A1 A2"),
    matching("a later order if what follows needs it", "AB AB A", "PERMUTE(A, B) A", "A1 B2 A3"),
    matching("an order that is needed for the rest", "AB B AC", "PERMUTE(A, B) C", "A1 B2 C3"),
]
