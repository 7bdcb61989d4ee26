"""Greedy and reluctant quantifiers, on variables and on groups, one inside the other."""

from row_patterns.conformance.case import Case, letters, matching

NEXT = "AFTER MATCH SKIP TO NEXT ROW"

GREEDY = [
    matching("star", "AAAB", "A*", "A1 A2 A3 / -4"),
    matching("star before another variable", "AABB", "A* B", "A1 A2 B3 / B4"),
    matching("plus", "AABA", "A+", "A1 A2 / A4"),
    matching("plus before another variable", "AAB-AB", "A+ B", "A1 A2 B3 / A5 B6"),
    matching("plus needs one row", "BB", "A+ B", "none"),
    matching("question mark", "ABA", "A?", "A1 / -2 / A3"),
    matching("question mark before another variable", "ABBA", "A? B", "A1 B2 / B3"),
    matching("an exact number", "AAAAA", "A{2}", "A1 A2 / A3 A4"),
    matching("exactly one", "AA", "A{1}", "A1 / A2"),
    matching("too few for an exact number", "AA", "A{3}", "none"),
    matching("at least two", "AAABA", "A{2,}", "A1 A2 A3"),
    matching("at least none", "AAB", "A{0,}", "A1 A2 / -3"),
    matching("too few for at least three", "AA", "A{3,}", "none"),
    matching("two to three", "AAAAA", "A{2,3}", "A1 A2 A3 / A4 A5"),
    matching("two to three, one is too few", "AAAA", "A{2,3}", "A1 A2 A3"),
    matching("at most two", "AAAB", "A{,2}", "A1 A2 / A3 / -4"),
    matching("none to one", "ABB", "A{0,1} B", "A1 B2 / B3"),
    matching("one to one", "AA", "A{1,1}", "A1 / A2"),
    matching("both bounds left out", "AAB", "A{,}", "A1 A2 / -3"),
    matching("not at all", "AB", "A{0} B", "B2"),
    matching("none to none", "AAB", "A{0,0} B+", "B3"),
    matching("a group not at all", "ABB", "(A B){,0} B", "B2 / B3"),
    matching("only rows that are not there", "AB", "A{0}", "-1 / -2"),
    matching("blanks within the braces", "AAAA", "A { 2 , 3 }", "A1 A2 A3"),
    matching("a blank before a quantifier", "AAB", "A + B", "A1 A2 B3"),
    matching("a greedy row is given back", "AC AC B", "A* C B", "A1 C2 B3"),
    matching("all greedy rows are given back", "AC B", "A* C B", "C1 B2"),
    matching("the first greedy takes all", "AB AB AB", "A* B*", "A1 A2 A3"),
    matching("the first greedy leaves what is needed", "AB AB AB", "A+ B+", "A1 A2 B3"),
    matching("greedy within bounds", "AB AB AB AB", "A{1,2} B{1,2}", "A1 A2 B3 B4"),
    matching("greedy up to a bound, then the rest", "AAAB", "A{1,2} A B", "A1 A2 A3 B4"),
    matching("the bound is reached but no match", "AAAB", "A{1,2} B", "A2 A3 B4"),
    matching("plus from each row", "AAB", "A+", "A1 A2 / A2", skip=NEXT),
]

RELUCTANT = [
    matching("reluctant star alone is empty", "AA", "A*?", "-1 / -2"),
    matching("reluctant star before another variable", "AAB", "A*? B", "A1 A2 B3"),
    matching("reluctant plus takes one", "AAA", "A+?", "A1 / A2 / A3"),
    matching("reluctant plus before another variable", "AAB", "A+? B", "A1 A2 B3"),
    matching("reluctant question mark alone is empty", "AA", "A??", "-1 / -2"),
    matching("reluctant question mark prefers none", "AB B", "A?? B", "B1 / B2"),
    matching("greedy question mark prefers one", "AB B", "A? B", "A1 B2"),
    matching("reluctant question mark takes one if it must", "AB", "A?? B", "A1 B2"),
    matching("reluctant two to three takes two", "AAAAA", "A{2,3}?", "A1 A2 / A3 A4"),
    matching("reluctant at least two takes two", "AAAAA", "A{2,}?", "A1 A2 / A3 A4"),
    matching("reluctant at most two is empty", "AA", "A{,2}?", "-1 / -2"),
    matching("reluctant without bounds is empty", "AA", "A{,}?", "-1 / -2"),
    matching("reluctant grows up to its bound", "AAAB", "A{1,3}? B", "A1 A2 A3 B4"),
    matching("reluctant does not grow past its bound", "AAAB", "A{1,2}? B", "A2 A3 B4"),
    matching("reluctant star before greedy star", "AB AB AB", "A*? B*", "B1 B2 B3"),
    matching("reluctant plus before greedy star", "AB AB AB", "A+? B*", "A1 B2 B3"),
    matching("greedy before reluctant", "AB AB AB", "A+ B+?", "A1 A2 B3"),
    matching("two reluctant ones", "AB AB AB", "A+? B+?", "A1 B2"),
    matching("reluctant within bounds, then greedy", "AB AB AB AB", "A{1,2}? B{1,2}", "A1 B2 B3"),
    matching("a reluctant tail stays short", "ABBB", "A B+?", "A1 B2"),
]

GROUPS = [
    matching("plus of a group", "ABABA", "(A B)+", "A1 B2 A3 B4"),
    matching("star of a group", "ABC", "(A B)*", "A1 B2 / -3"),
    matching("question mark of a group", "ABA", "(A B)?", "A1 B2 / -3"),
    matching("an exact number of groups", "ABABAB", "(A B){2}", "A1 B2 A3 B4"),
    matching("one to two groups", "ABABABC", "(A B){1,2} C", "A3 B4 A5 B6 C7"),
    matching("at least two groups", "ABABABC", "(A B){2,} C", "A1 B2 A3 B4 A5 B6 C7"),
    matching("reluctant plus of a group", "ABAB", "(A B)+?", "A1 B2 / A3 B4"),
    matching("reluctant plus of a group, then more", "ABABC", "(A B)+? C", "A1 B2 A3 B4 C5"),
    matching("reluctant star of a group", "ABC", "(A B)*? C", "A1 B2 C3"),
    matching("plus of an alternation", "ABBA-B", "(A | B)+", "A1 B2 B3 A4 / B6"),
    matching("star of an alternation", "ABCC", "(A | B)* C", "A1 B2 C3 / C4"),
    matching("reluctant plus of an alternation", "AB", "(A | B)+?", "A1 / B2"),
    matching("each round prefers the left branch", "AB AB", "(A | B){2}", "A1 A2"),
    matching("each round prefers what is listed first", "AB AB", "(B | A){2}", "B1 B2"),
    matching("a round falls to its longer branch", "ABAC", "(A | A B)* C", "A1 B2 A3 C4"),
    matching("all rounds of a group at once", "AB AB C", "(A | B)+ C", "A1 A2 C3"),
    matching("the last round is given up first", "AB AB C", "(A | B)+ B C", "A1 B2 C3"),
]

NESTED = [
    matching("plus within plus", "AABAB-", "(A+ B)+", "A1 A2 B3 A4 B5"),
    matching("two pluses within plus", "AABBABC", "(A+ B+)+ C", "A1 A2 B3 B4 A5 B6 C7"),
    matching("three levels", "ABABCABC-", "((A B)+ C)+", "A1 B2 A3 B4 C5 A6 B7 C8"),
    matching("exact within exact", "AABAAB", "(A{2} B){2}", "A1 A2 B3 A4 A5 B6"),
    matching("plus of plus of one variable", "AAAB", "(A+)+ B", "A1 A2 A3 B4"),
    matching("greedy bounds within an exact number", "AAAAA", "(A{1,2}){2}", "A1 A2 A3 A4"),
    matching("reluctant bounds within an exact number", "AAAAA", "(A{1,2}?){2}", "A1 A2 / A3 A4"),
    matching("an optional tail in each round", "AABAB", "(A B?)+", "A1 A2 B3 A4 B5"),
    matching("a reluctant optional head in each round", "AB B", "(A?? B)+", "B1 B2"),
    matching("a greedy optional head in each round", "AB B B", "(A? B)+", "A1 B2 B3"),
    matching("reluctant within greedy", "AABAB", "(A+? B)+", "A1 A2 B3 A4 B5"),
    matching("greedy within reluctant", "AABAB", "(A+ B)+?", "A1 A2 B3 / A4 B5"),
    matching("star after star of the same variable", "AAB", "A* A* B", "A1 A2 B3"),
    matching("a choice of quantified branches", "BBAA", "(A+ | B+)", "B1 B2 / A3 A4"),
    matching("a choice of quantified branches, repeated", "BBAAB", "(A+ | B+){2}", "B1 B2 A3 A4"),
    matching("a failing loop of loops", "A" * 14, "(A+)+ B", "none"),
]

MANY = [
    Case(
        "a hundred rows, twice",
        """
        SELECT * FROM letters MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES FIRST(A.id) AS f, LAST(A.id) AS l, COUNT(A.*) AS n
            PATTERN (A{100})
            DEFINE A AS A.x = 'A'
        )
        """,
        [(1, 100, 100), (101, 200, 100)],
        tables={"letters": letters("A" * 250)},
    ),
    Case(
        "a bound beyond the number of rows",
        """
        SELECT * FROM letters MATCH_RECOGNIZE (
            ORDER BY id
            MEASURES COUNT(A.*) AS n
            PATTERN (A{1,1000})
            DEFINE A AS A.x = 'A'
        )
        """,
        [(5,)],
        tables={"letters": letters("A" * 5)},
    ),
]

CASES: list[Case] = GREEDY + RELUCTANT + GROUPS + NESTED + MANY
