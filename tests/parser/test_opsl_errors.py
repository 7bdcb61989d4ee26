"""What is wrong with an OPSL text, where, and the way out."""

import time

import pytest

from ensue.analyzer.subscription import check_subscription
from ensue.errors import QueryError
from ensue.ir.subscription import EventAtom, Predicate, PredicateType, Subscription, VariableField, VariableUse
from ensue.parser.opsl.opsl_parser import parse_subscription

REGIONS = {"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"}
AB = ", A = (ARITH:id = 1), B = (ARITH:id = 2)"
XY = ", $x; = (ARITH:id = 1), $y; = (ARITH:id = 2)"


def error_of(text):
    with pytest.raises(QueryError) as caught:
        parse_subscription(text, REGIONS)
    return caught.value


# text with the place in «», problem, hint
NAMES = [
    (f"=|(A; 5)«C»{AB}", "unknown name 'C'", "known here: A, B, Depot; define it after"),
    ("@(«Depto»)(ARITH:id = 1)", "unknown name 'Depto'", "did you mean 'Depot'?"),
    ("A, A = «Bee» && (ARITH:id = 1)", "unknown name 'Bee'", ", Bee = (ARITH:id = 17)"),
    (f"=|(A; «NaN»)B{AB}", "unknown name 'NaN'", "lengths must be finite"),
    ("A, A = (ARITH:id = 1), «A» = (ARITH:id = 2)", "'A' is defined twice", "rename one"),
    ("@(Depot)(ARITH:id = 1), «Depot» = POINT (1 1)", "also passed in the call", "regions="),
    ("A, A = «A»", "'A' is defined in terms of itself: A -> A", "break the cycle"),
    ("A, A = @(Depot)B, B = «A» && (ARITH:id = 1)", "A -> B -> A", "break the cycle"),
    ("@(R)(ARITH:id = 1), R = S, S = «R»", "'R' is defined in terms of itself: R -> S -> R", "break"),
    (f"A && B{AB}, «C = (ARITH:id = 3)»", "'C' is defined and never used", "delete"),
    (f"A && B{AB}, «R = POINT (1 1)»", "'R' is defined and never used", "delete"),
    (f"A && B{AB}, «C = D», D = (ARITH:id = 3)", "'C' is defined and never used", "delete"),
    (f"«Depot» && A{AB}", "'Depot' is a region, and an event is needed", "@(Region)(A)"),
    (f"=|(«Depot»; 5)A{AB}", "'Depot' is a region", "@(Region)(A)"),
    ("$x;, $x; = «Depot»", "'Depot' is a region", "@(Region)(A)"),
    (f"|(A)«POINT (1 1)»{AB}", "this is a region, and an event is needed", "@(Region)(A)"),
]
VARIABLES = [
    ("$x; && «$z;», $x; = (ARITH:id = 1)", "the variable $z; is not defined", "'$x;'?"),
    ("«$z;»", "the variable $z; is not defined", ", $z; = (ARITH:id = 17)"),
    ("(ARITH:id = «$z;.id»)", "the variable $z; is not defined", "define it"),
    ("$x;, $x; = (ARITH:id = 1), «$x;» = (ARITH:id = 2)", "$x; is defined twice", "rename"),
    ("$x;, $x; = «$x;»", "$x; is defined in terms of itself: $x; -> $x;", "break the cycle"),
    ("$x;, $x; = $y; && (ARITH:id = 1), $y; = «$x;»", "$x; -> $y; -> $x;", "break the cycle"),
    ("$x;, $x; = A, A = |(«$x;»)(ARITH:id = 1)", "$x; is defined in terms",
     "break the cycle"),
    ("$x;, $x; = (ARITH:id = 1), «$y; = (ARITH:id = 2)»", "$y; is defined and never", "delete"),
    (f"$x; && !($y;; 5)«$x;»{XY}", "used both inside and outside", "another variable inside"),
    (f"!($y;; 5)«$x;» && $x;{XY}", "used both inside and outside", "$x;.id"),
    (f"!($y;; 5)$x; && !($y;; 6)«$x;»{XY}", "used both inside and outside", "another"),
    (f"!($y;; 5)(!($x;; 2)«$x;»){XY}", "used both inside and outside", "another"),
    ("$x; && !($x;; 5)$y;, $x; = (ARITH:id = 1), $y; = @(«$x;»)(ARITH:id = 2)",
     "$x; is used both inside and outside", "another"),
    (f"!($y;; 5)$x; && (ARITH:id = «$x;.id»){XY}", "used only inside a negation", "reverse the"),
    ("(ARITH:id = «$y;.id»), $y; = (ARITH:id = 2)", "used as an event nowhere", "$y; && ..."),
    ("($y; || A) && (ARITH:id = «$y;.id»), $y; = (ARITH:id = 2), A = (ARITH:id = 1)",
     "$y; is not bound in every alternative", "into each alternative"),
    ("$y; && (ARITH:id = «$y;.id»), $y; = A && A, A = (ARITH:id = 1)",
     "$y; is not a single event", "one of its events"),
    ("$y; && (ARITH:id = «$y;.id»), $y; = !(ARITH:id = 1; 5)(ARITH:id = 2)",
     "$y; is not a single event", "one of its events"),
    ("$y;, $y; = (ARITH:id = «$y;.v»)", "read in $y; itself", "another event"),
    ("!($x;; 5)(!(ARITH:id = 2; 1)(ARITH:id = «$x;.id»)), $x; = (ARITH:id = 1)",
     "read across two negations", "the negation around it"),
]  # fmt: skip
KINDS = [
    ("(ARITH:id = «'x'»)", "ARITH must be compared with a number", "STRING:name = 'x'"),
    ("(STRING:id = «5»)", "STRING must be compared with a text", "ARITH:id = 17"),
    ("(«ARITH:id LIKE 'x'»)", "LIKE works on texts", "STRING:id LIKE 'ab%'"),
    ("(STRING:id LIKE «5»)", "STRING must be compared with a text", "as in"),
    ("$x; && (STRING:id LIKE «$x;.id»), $x; = (ARITH:id = 1)", "LIKE needs a text", "'ab%'"),
    ("(BOOL:ok = «1»)", "BOOL must be compared with TRUE or FALSE", "BOOL:loaded = TRUE"),
    ("(BOOL:ok «<» TRUE)", "BOOL can be compared with = and !=", "BOOL:ok = TRUE"),
    ("(«BOOL:ok IN (TRUE)»)", "BOOL can be compared with = and !=", "BOOL:ok = TRUE"),
    ("(TIME:t = «'x'»)", "TIME must be compared with a moment", "TIMESTAMP"),
    ("(TIME:t > «TIMESTAMP 'x'»)", "'x' is not a timestamp", "2026-01-31 10:00:00"),
    ("(«NUM»:id = 1)", "'NUM' is not a type", "ARITH, STRING, BOOL, TIME"),
    ("(«STRIN»:id = 'x')", "'STRIN' is not a type", "did you mean 'STRING'?"),
    ("(ARITH:id IN (1, «'x'»))", "ARITH must be compared with a number", "as in"),
    ("(ARITH:id IN («$x;.id»))", "an IN list takes values", "join the cases with ||"),
]
NUMBERS = [
    (f"=|(A; «-5»)B{AB}", "a length of time cannot be negative", "leave out the sign"),
    (f"|(A; «-5 s»)B{AB}", "a length of time cannot be negative", "leave out the sign"),
    (f"=|(A; «5 minuts»)B{AB}", "'minuts' is not a unit of time", "did you mean 'minutes'?"),
    (f"=|(A; «5 months»)B{AB}", "'months' is not a unit of time", "differ in length"),
    (f"=|(A; «1e300 weeks»)B{AB}", "this duration is too long", "292 years"),
    (f"=|(A; «1e999»)B{AB}", "this number is too large", "64 bits"),
    (f"=|(«1e999»; 5)B{AB}", "this number is too large", "64 bits"),
    ("(ARITH:id = «99999999999999999999»)", "this number is too large", "64 bits"),
    ("(ARITH:id = «-9e999»)", "this number is too large", "64 bits"),
    ("(ARITH:id = «nan»)", "expected a value, found 'nan'", "it is not a number"),
    ("(ARITH:id = «NULL»)", "expected a value", "NULL satisfies no predicate"),
    (f"DIST(A; <; «-5»)B{AB}", "a distance is not negative", "leave out the sign"),
    (f"DIST(A; <; «x1»)B{AB}", "expected a number", "in the units of places"),
    (f"DIST(A; <; 5 «m»)B{AB}", "expected ')'", "in the units of places"),
    (f"SPL(A; «0»)B{AB}", "the threshold of SPL is more than 0", "must be below it"),
    (f"SPL(A; «-1»)B{AB}", "the threshold of SPL is more than 0", "leave out the sign"),
    (f"@(A; «5»)B{AB}", "@ takes a place but no number", "DIST(place; <; 5)"),
]
SHAPES = [
    (f"=|(A«)»B{AB}", "expected ';'", "an interval is =|(A; 5 minutes), =|(A; B)"),
    (f"=|(A;«)»B{AB}", "found ')'", "an interval is =|(A; 5 minutes)"),
    (f"!(A «5»)B{AB}", "found '5'", "an interval is !(A; 5 minutes)"),
    (f"|=(A; B«;» 5)A{AB}", "found ';'", "an interval is |=(A; 5 minutes)"),
    (f"=|(5; «A»)B{AB}", "expected a number", "=|(moment; 5 minutes)"),
    (f"!«A»{AB}", "expected '('", "!(A; 5 minutes)(B)"),
    (f"=|($x; «5»)A{AB}", "found '5'", "another one is to follow: $x;; 5"),
    (f"«$x» && A{AB}", "the variable $x does not end in ';'", "write $x;"),
    (f"|(«$x»)A{AB}", "the variable $x does not end in ';'", "($x;; 5)"),
    (f"DIST(A; «5»)B{AB}", "expected an operator", "DIST(place; <; 300)"),
    (f"DIST(A«)»B{AB}", "expected ';'", "DIST(place; <; 300)"),
    (f"DIST(A; «<=»; 5)B{AB}", "DIST compares with <, = or >", "DIST(place; <; 5)"),
    (f"|(A; 5«;» 6)B{AB}", "found ';'", "a tolerance at most"),
    ("|(A)«»", "found the end", "|(A)(B)"),
    ("A &&«,» A = (ARITH:id = 1)", "found ','", "missing after &&"),
    (f"(A«,» B){AB}", "found ','", "A && B for both"),
    ("(A && B«,» A = (ARITH:id = 1)", "found ','", "'(' of line 1, column 1 is not closed"),
    (f"A && B«)»{AB}", "found ')'", "this ')' has no matching opening bracket"),
    (f"A «&» B{AB}", "found '&'", "write && for both"),
    (f"A «and» B{AB}", "found 'and'", "write && for both"),
    (f"A «B»{AB}", "found 'B'", "join two parts by && or ||"),
    (f"A «;» B{AB}", "found ';'", "definitions are joined by ','"),
    (f"NEAR«(»A)B{AB}", "found '('", "operators are !, =|"),
    ("ARITH«:»id = 1", "found ':'", "in parentheses: (ARITH:id = 17)"),
    ("(ARITH «id» = 1)", "found 'id'", "a ':' follows the type"),
    ("(ARITH:id«)»", "found ')'", "a predicate is ARITH:id = 17"),
    ("(ARITH:id «IN» 5)", "found 'IN'", "ARITH:id IN (1, 2)"),
    ("(ARITH:id IN («)»)", "found ')'", "ARITH:id IN (1, 2)"),
    ("(STRING:t = «'»x)", "this text has no end", "close it"),
    ('(STRING:«"»t = 5)', "this quoted name has no end", "close it"),
    ("A && «/»* B", "this comment has no end", "close it"),
    ("(STRING:t = «\u2018»x\u2019)", "a value", "straight single quotes"),
    ("A, «=» 5", "found '='", "a definition has the form"),
    ("A,«»", "found the end", "a definition has the form"),
    ("A, A «(»ARITH:id = 1)", "expected '='", "a definition has the form"),
]
REGION_TEXTS = [
    ("«POLYGON ((0 0, 1 1, 0 0))»", "a ring has 2 corners", "POLYGON (("),
    ("«POLYGON EMPTY»", "it is empty", "POLYGON (("),
    ("«POLYGON ()»", "encountered : ')'", "POLYGON (("),
    ("«POLYGON (0 0, 1 1, 2 0, 0 0)»", "expected word but encountered number: '0'", "POLYGON (("),
    ("«POLYGON ((0 0, 1 x, 2 0, 0 0))»", "expected number but encountered word: 'x'", "POLYGON (("),
    ("«POLYGON ((0 0, 2 nan, 2 0))»", "is not a number, or too far away", "POLYGON (("),
    ("«CIRCLE (1e999 2, 3)»", "is not a number, or too far away", "CIRCLE ("),
    ("«POINT (1 2)»", "it has no area", "CIRCLE ("),
    ("«LINESTRING (1 2, 3 4)»", "it has no area", "CIRCLE ("),
    ("«CIRCLE (1 1, -2)»", "is not positive", "CIRCLE (x y, radius)"),
    ("«CIRCLE (1 1, nan)»", "is not positive", "CIRCLE (x y, radius)"),
    ("«CIRCLE (1 1)»", "a circle is 'CIRCLE (x y, radius)'", "CIRCLE ("),
    ("«GEOMETRYCOLLECTION (POINT (1 1))»", "is not a supported geometry", "known here"),
]
OPTIONS = [
    ("select = «lates»", "select takes latest, once or all", "did you mean 'latest'?"),
    ("select = «5»", "select takes latest, once or all", "latest, once, all"),
    ("within = «soon»", "within takes a length of time", "within = 5 minutes"),
    ("equal = «much»", "equal takes a number", "equal = 2.5"),
    ("equal = 5 «m»", "equal is a number", "write equal = 5"),
    ("equal = «-1»", "equal is not negative", "leave out the sign"),
    ("within = «-1 s»", "a length of time cannot be negative", "leave out the sign"),
    ("same_place = «0»", "same_place is more than 0", "must be below it"),
    ("within = 5, «within = 6»", "'within' is given twice", "keep one"),
    ("«withn» = 5", "unknown option 'withn'", "did you mean 'within'?"),
    ("select = all, C = «(»ARITH:id = 3)", "found '('", "definitions stand before WITH"),
]
ALL = [
    *NAMES, *VARIABLES, *KINDS, *NUMBERS, *SHAPES,
    *((f"@({text})(ARITH:id = 1)", *rest) for text, *rest in REGION_TEXTS),
    *((f"A && B{AB} WITH {text}", *rest) for text, *rest in OPTIONS),
]  # fmt: skip


@pytest.mark.parametrize(("marked", "problem", "hint"), ALL)
def test_the_place_the_problem_and_the_way_out(marked, problem, hint):
    text = marked.replace("«", "").replace("»", "")
    error = error_of(text)
    assert problem in error.problem
    assert error.hint is not None
    assert hint in error.hint
    assert error.text == text
    start, end = marked.index("«"), marked.index("»") - 1
    assert (error.span.start, error.span.end) == (start, end), str(error)


@pytest.mark.parametrize("text", ["", "  \n", "-- nothing", "/* nothing */ "])
def test_an_empty_text(text):
    error = error_of(text)
    assert error.problem == "the subscription is empty"
    assert "=|(A; 5 minutes)(B)" in error.hint


def test_reading_a_field_below_a_negation_binds_nothing():
    parse_subscription("!($y;; 5)(ARITH:id = $y;.id), $y; = (ARITH:id = 2)")
    parse_subscription("$x; && !($y;; 5)(ARITH:id = $x;.id, ARITH:v > $y;.v)" + XY)
    parse_subscription("!($y;; 5)(@($x;)(ARITH:id = $x;.id))" + XY)


def test_fields_are_read_where_the_variable_is_in_the_same_alternative():
    parse_subscription("$y; && (ARITH:id = $y;.id) || (ARITH:id = 3), $y; = (ARITH:id = 2)")
    parse_subscription("$y; && (ARITH:id = $y;.id), $y; = (ARITH:id = 1) || @(Depot)(ARITH:id = 2)", REGIONS)
    parse_subscription("$y; && (ARITH:id = $y;.id), $y; = |=(5; 2)(ARITH:id = 1)")
    parse_subscription("$a; && $b;, $a; = (ARITH:id = $b;.id), $b; = (ARITH:v > $a;.v)")


# ------------------------------------------------------------------------------------ limits


def quickly(text):
    start = time.perf_counter()
    error = error_of(text)
    assert time.perf_counter() - start < 20
    return error


def doubling(last):
    names = [f"N{k} = N{k + 1} && N{k + 1}" for k in range(40)]
    return f"N0, {', '.join(names)}, N40 = {last}"


def test_names_that_double_are_refused_before_they_are_written_out():
    assert "more than 64 atoms" in quickly(doubling("(ARITH:id = 1)")).problem
    assert "more than 1,024 uses" in quickly(doubling("$x;, $x; = (ARITH:id = 1)")).problem


def test_variables_that_double_are_one_each():
    names = [f"$v{k}; = $v{k + 1}; && $v{k + 1};" for k in range(30)]
    found = parse_subscription(f"$v0;, {', '.join(names)}, $v30; = (ARITH:id = 1)")
    assert len(found.variables) == 31


def test_64_atoms_and_not_more():
    atoms = ["(ARITH:id = 1)"] * 64
    assert len(parse_subscription(" && ".join(atoms)).root.parts) == 64
    assert "more than 64 atoms" in error_of(" && ".join([*atoms, "(ARITH:id = 2)"])).problem


def test_a_long_text():
    text = "(STRING:name = '" + "ä" * 40_000 + "')"
    assert "80,018 bytes; the limit is 65,536" in error_of(text).problem
    assert "regions=" in error_of(text).hint


def test_a_region_with_many_corners():
    corners = [f"{k % 90} {k // 90}" for k in range(10_001)]
    error = quickly(f"@(POLYGON (({','.join(corners)},0 0)))(ARITH:id = 1)")
    assert "10,002 corners, more than 10,000" in error.problem


@pytest.mark.parametrize(
    "text",
    [
        "(" * 30_000,
        "(" * 20_000 + "ARITH:id = 1" + ")" * 20_000,
        "!(7;5)" * 9_000 + "(ARITH:id = 1)",
        "@(" * 20_000 + "Depot" + ")(ARITH:id = 1)" * 1_500,
        "@(R)(ARITH:id = 1), R = " + "(" * 20_000 + "R" + ")" * 20_000,
        "|(" * 101 + "ARITH:id = 1" + ")(ARITH:id = 2)" * 101,
        "A0, " + ", ".join(f"A{k} = @(Depot)A{k + 1}" for k in range(2_500)) + ", A2500 = B",
        "$a0;, " + ", ".join(f"$a{k}; = @(Depot)$a{k + 1};" for k in range(900))
        + ", $a900; = (ARITH:id = 1)",
        "$a0;, " + ", ".join(f"$a{k}; = $a{k + 1};" for k in range(900)) + ", $a900; = $a0;",
    ],
)  # fmt: skip
def test_deep_nesting_is_an_error_and_no_crash(text):
    error = quickly(text)
    assert "nested too deeply" in error.problem or "expected" in error.problem


def test_depth_up_to_the_bound():
    parse_subscription("@" + "(" * 20_000 + "Depot" + ")" * 20_000 + "(ARITH:id = 1)", REGIONS)
    parse_subscription("@(Depot)" * 97 + "(ARITH:id = 1)", REGIONS)


# ------------------------------------------------------------------------- trees by hand


def test_trees_that_no_parser_made_are_checked_too():
    atom = EventAtom((Predicate(PredicateType.ARITH, "id", "=", VariableField("y", "id")),))
    with pytest.raises(QueryError, match=r"the variable \$x; is not defined"):
        check_subscription(Subscription(VariableUse("x")))
    with pytest.raises(QueryError, match=r"the variable \$y; is not defined"):
        check_subscription(Subscription(atom))
