"""Texts that are no MATCH_RECOGNIZE clause: parts missing, doubled, misplaced; broken patterns."""

from row_patterns.conformance.case import Case, refused, series

PARTS = [
    refused("no PATTERN", pattern=""),
    refused("no DEFINE", define=""),
    refused("DEFINE without a definition", define="DEFINE"),
    refused("DEFINE without AS", define="DEFINE B B.value > A.value"),
    refused("a definition without a condition", define="DEFINE B AS"),
    refused("a comma after the last definition", define="DEFINE B AS B.value > A.value,"),
    refused("PATTERN without parentheses", pattern="PATTERN A B+"),
    refused("PATTERN of nothing", pattern="PATTERN"),
    refused("a measure without a name", measures="MEASURES LAST(A.value)"),
    refused("a measure without an expression", measures="MEASURES AS a"),
    refused("MEASURES without measures", measures="MEASURES"),
    refused("a comma after the last measure", measures="MEASURES LAST(A.value) AS a,"),
    refused("PARTITION without BY", partition="PARTITION id"),
    refused("PARTITION BY without a column", partition="PARTITION BY"),
    refused("ORDER without BY", order="ORDER id"),
    refused("ORDER BY without a column", order="ORDER BY"),
    refused("SUBSET without parentheses", subset="SUBSET U = A, B"),
    refused("SUBSET of nothing", subset="SUBSET U = ()"),
    refused("SUBSET without an equals sign", subset="SUBSET U (A, B)"),
    refused("SUBSET without a name", subset="SUBSET = (A, B)"),
    Case(
        "an empty clause",
        f"SELECT * FROM {series(1, 2)} MATCH_RECOGNIZE ()",
        None,
        error="",
    ),
    Case(
        "a clause that does not end",
        f"SELECT * FROM {series(1, 2)} MATCH_RECOGNIZE (ORDER BY id MEASURES A.value AS a "
        "PATTERN (A) DEFINE A AS TRUE",
        None,
        error="",
    ),
    Case(
        "a clause without parentheses",
        f"SELECT * FROM {series(1, 2)} MATCH_RECOGNIZE ORDER BY id",
        None,
        error="",
    ),
]

PATTERN = "PATTERN (A B+)"
DEFINE = "DEFINE B AS B.value > A.value"

ORDER = [
    refused("ORDER BY before PARTITION BY", partition="ORDER BY id", order="PARTITION BY value"),
    refused("MEASURES before ORDER BY", order="MEASURES A.value AS a", measures="ORDER BY id"),
    refused(
        "ALL ROWS before MEASURES", measures="ALL ROWS PER MATCH", mode="MEASURES A.value AS a"
    ),
    refused(
        "AFTER MATCH before ONE ROW", mode="AFTER MATCH SKIP TO NEXT ROW", skip="ONE ROW PER MATCH"
    ),
    refused("AFTER MATCH after PATTERN", subset="AFTER MATCH SKIP TO NEXT ROW"),
    refused("ALL ROWS after PATTERN", subset="ALL ROWS PER MATCH"),
    refused("SUBSET before PATTERN", skip="SUBSET U = (A, B)"),
    refused("DEFINE before PATTERN", pattern=DEFINE, define=PATTERN),
    refused("SUBSET after DEFINE", define=f"{DEFINE} SUBSET U = (A, B)"),
    refused("MEASURES after DEFINE", measures="", define=f"{DEFINE} MEASURES A.value AS a"),
    refused("PATTERN twice", pattern=f"{PATTERN} {PATTERN}"),
    refused("DEFINE twice", define="DEFINE B AS B.value > A.value DEFINE A AS A.value = 1"),
    refused("MEASURES twice", measures="MEASURES A.value AS a MEASURES B.value AS b"),
    refused("ORDER BY twice", order="ORDER BY id ORDER BY value"),
    refused("PARTITION BY twice", partition="PARTITION BY id PARTITION BY value"),
    refused("SUBSET twice", subset="SUBSET U = (A, B) SUBSET V = (A)"),
    refused("rows per match twice", mode="ONE ROW PER MATCH ALL ROWS PER MATCH"),
    refused("AFTER MATCH twice", skip="AFTER MATCH SKIP TO NEXT ROW AFTER MATCH SKIP TO NEXT ROW"),
    refused("SEEK", pattern="SEEK PATTERN (A B+)"),
    refused("INITIAL", pattern="INITIAL PATTERN (A B+)"),
]

MODES = [
    refused("one row showing empty matches", mode="ONE ROW PER MATCH SHOW EMPTY MATCHES"),
    refused("one row omitting empty matches", mode="ONE ROW PER MATCH OMIT EMPTY MATCHES"),
    refused("one row with unmatched rows", mode="ONE ROW PER MATCH WITH UNMATCHED ROWS"),
    refused("all rows with unmatched", mode="ALL ROWS PER MATCH WITH UNMATCHED"),
    refused(
        "two ways with empty matches",
        mode="ALL ROWS PER MATCH SHOW EMPTY MATCHES WITH UNMATCHED ROWS",
    ),
    refused("ONE ROWS", mode="ONE ROWS PER MATCH"),
    refused("two rows per match", mode="TWO ROWS PER MATCH"),
    refused("AFTER MATCH alone", skip="AFTER MATCH"),
    refused("SKIP to nothing", skip="AFTER MATCH SKIP TO"),
    refused("SKIP without TO", skip="AFTER MATCH SKIP B"),
    refused("SKIP past the next row", skip="AFTER MATCH SKIP PAST NEXT ROW"),
    refused("SKIP to two variables", skip="AFTER MATCH SKIP TO LAST A, B"),
]

PATTERNS = [
    ("an open parenthesis too many", "((A B+)"),
    ("a closing parenthesis too many", "(A B+))"),
    ("no branch on the right", "(A B+ |)"),
    ("no branch on the left", "(| A B+)"),
    ("no branch in the middle", "(A | | B+)"),
    ("two bars side by side", "(A || B+)"),
    ("no branch in a group", "(A (B | )+)"),
    ("bounds out of order", "(A B{3,2})"),
    ("no repetition at most", "(A B{,0})"),
    ("none to none", "(A B{0,0})"),
    ("braces without a number", "(A B{})"),
    ("a variable in the braces", "(A B{n})"),
    ("three numbers in the braces", "(A B{1,2,3})"),
    ("half a repetition", "(A B{1.5})"),
    ("a negative number in the braces", "(A B{ -1 })"),
    ("braces that do not close", "(A B{2)"),
    ("star and plus", "(A B*+)"),
    ("two stars", "(A B**)"),
    ("plus and star", "(A B+*)"),
    ("three question marks", "(A B???)"),
    ("star and two question marks", "(A B*??)"),
    ("braces after braces", "(A B{2}{3})"),
    ("braces after plus", "(A B+{2})"),
    ("a quantifier without anything before", "(* A B)"),
    ("a quantifier after a bar", "(A | + B)"),
    ("a quantifier at the start of a group", "(A (? B))"),
    ("an exclusion that does not close", "(A {- B+)"),
    ("an exclusion that does not open", "(A B+ -})"),
    ("an exclusion of nothing", "(A {- -} B+)"),
    ("PERMUTE of nothing", "(A B+ PERMUTE())"),
    ("PERMUTE with a comma too many", "(PERMUTE(A, B,))"),
    ("a comma between variables", "(A, B+)"),
    ("a number as a variable", "(A 1 B+)"),
    ("a text as a variable", "(A 'B')"),
    ("a column as a variable", "(A B.value)"),
    ("a condition as a variable", "(A B = 1)"),
]

CASES: list[Case] = (
    PARTS + ORDER + MODES + [refused(name, pattern=f"PATTERN {text}") for name, text in PATTERNS]
)
